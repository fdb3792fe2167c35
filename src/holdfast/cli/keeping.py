"""What is kept for how long: archive, purge, and the summaries of compressed letters."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import click

from holdfast.cli.answers import server_reason_option
from holdfast.cli.confirm import agreed, counted, dry_run_option, yes_option
from holdfast.cli.exits import Failed, NotFound, WrongUsage
from holdfast.cli.filters import json_option
from holdfast.cli.output import Column, document, facts, note, say, table
from holdfast.cli.session import Session, pass_session, store_options
from holdfast.cli.times import ago
from holdfast.machine.dead_letter import DLQCompressedStatus
from holdfast.views.plain import masked, plain

_STATUSES: Final = [status.value for status in DLQCompressedStatus]
_SUMMARIES: Final = (
    Column("domain", gives=True), Column("failure type", gives=True), Column("code", gives=True),
    Column("letters", right=True), Column("status"), Column("last seen", right=True), Column("sample", gives=True),
)  # fmt: skip


@click.command()
@click.option(
    "--older-than", "days", type=click.IntRange(0), default=30, show_default=True, metavar="DAYS",
    help="Resolved longer ago than this.",
)  # fmt: skip
@server_reason_option
@dry_run_option
@json_option
@store_options
@pass_session
def archive(session: Session, days: int, reason: str, dry_run: bool, as_json: bool) -> None:
    """Archive letters that were resolved long ago. They stay readable until they are purged."""
    if dry_run:
        number = session.letters.count_resolved_older_than(days)
        if as_json:
            document({"matched": number, "archived": 0})
        else:
            say(f"{counted(number)} would be archived")
        return
    archived = session.letters.archive_old_resolved(days)
    if as_json:
        document({"archived": archived})
    else:
        say(f"archived {counted(archived)}")


@click.command()
@click.argument("ids", metavar="[ID...]", nargs=-1)
@click.option(
    "--older-than", "days", type=click.IntRange(0), metavar="DAYS", help="Resolved longer ago than this; 0 is all."
)
@server_reason_option
@yes_option
@dry_run_option
@json_option
@store_options
@pass_session
def purge(
    session: Session, ids: Sequence[str], days: int | None, reason: str, yes: bool, dry_run: bool, as_json: bool
) -> None:
    """Delete archived letters for good: those named, or those older than so many days.

    Without --yes it shows how many there are, and asks where there is somebody to ask.
    """
    if bool(ids) == (days is not None):
        raise WrongUsage("say what to purge: ids, or --older-than DAYS (0 for every archived letter)")
    number = _purgeable_ids(session, ids) if days is None else session.letters.count_archived_older_than(days)
    if not as_json:
        say(f"{counted(number, 'archived letter')} would be deleted")
    purged = 0
    if number and agreed(f"Delete {counted(number)} for good?", yes=yes, dry_run=dry_run):
        purged = session.letters.purge_archived(list(ids) if ids else None, days, limit=number)
        if not as_json:
            say(f"deleted {counted(purged)}")
    if as_json:
        document({"matched": number, "purged": purged})


@click.group()
@store_options
def compressed() -> None:
    """Summaries of letters that were compressed to make room."""


@compressed.command("list")
@click.option("--domain", metavar="NAME")
@click.option("--status", type=click.Choice(_STATUSES), metavar="|".join(_STATUSES))
@click.option("--limit", type=click.IntRange(1), default=50, show_default=True, metavar="N")
@json_option
@store_options
@pass_session
def list_compressed(session: Session, domain: str | None, status: str | None, limit: int, as_json: bool) -> None:
    """Show summaries, the latest first."""
    entries = session.letters.get_compressed_entries(domain, status, limit)
    if as_json:
        document({"items": [{**plain(one), "sample_context": masked(one.sample_context)} for one in entries]})
    elif entries:
        now = session.now()
        rows = [
            (e.domain, e.failure_type, e.error_code, e.count, e.status, ago(e.last_seen, now), e.sample_error_message)
            for e in entries
        ]
        table(_SUMMARIES, rows)
    else:
        note("no summaries match")


@compressed.command("summary")
@json_option
@store_options
@pass_session
def summary(session: Session, as_json: bool) -> None:
    """Count summaries, and the letters that they stand for."""
    figures = session.letters.get_compressed_summary()
    if as_json:
        document(figures)
        return
    facts([
        ("summaries", str(figures["total_summaries"])),
        ("letters", str(figures["total_compressed_items"])),
        *((status, str(number)) for status, number in figures["by_status"].items()),
    ])  # fmt: skip


@compressed.command("mark")
@click.argument("id")
@click.argument("status", type=click.Choice(_STATUSES))
@store_options
@pass_session
def mark(session: Session, id: str, status: str) -> None:
    """Give a summary another status."""
    if not session.letters.update_compressed_status(id, status):
        raise NotFound(f"there is no summary {id}")
    say(f"{id} is {status}")


def _purgeable_ids(session: Session, ids: Sequence[str]) -> int:
    found = [letter for id in dict.fromkeys(ids) if (letter := session.letters.get_by_id(id)) is not None]
    if not found:
        raise NotFound(f"there is no letter {', '.join(ids)}")
    for letter in found:
        if letter.status != "archived":
            raise Failed(f"letter {letter.id} is {letter.status}; only archived letters can be purged")
    return len(found)
