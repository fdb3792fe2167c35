"""Looking at dead letters: list, show, attempts, facets, stats."""

from __future__ import annotations

from datetime import datetime
from typing import Any, Final

import click

from holdfast.cli.exits import NotFound
from holdfast.cli.filters import STATUSES, json_option, letter_filters
from holdfast.cli.output import Column, document, facts, heading, note, table
from holdfast.cli.session import Session, pass_session, store_options
from holdfast.cli.times import ago, span, stamp
from holdfast.letters.data import FailedOperationData, ReplayAttempt
from holdfast.views.letters import PAYLOADS, attempt_document, letter_document
from holdfast.views.plain import masked

_LETTERS: Final = (
    Column("id"), Column("status"), Column("domain", gives=True), Column("tries", right=True, optional=True),
    Column("age", right=True), Column("error", gives=True),
)  # fmt: skip
_ATTEMPTS: Final = (
    Column("#", right=True), Column("started"), Column("took", right=True), Column("outcome"),
    Column("trigger", gives=True), Column("note", gives=True),
)  # fmt: skip


@click.command("list")
@letter_filters
@click.option("--limit", type=click.IntRange(1), default=50, show_default=True, metavar="N")
@click.option("--after", metavar="CURSOR", help="Go on where a page ended; that page names the cursor.")
@json_option
@store_options
@pass_session
def list_letters(session: Session, where: dict[str, Any], limit: int, after: str | None, as_json: bool) -> None:
    """Show letters, the newest first."""
    found = session.letters.find(**where, limit=limit + 1, after=after)
    shown, more = found[:limit], len(found) > limit
    following = shown[-1].cursor if more else None
    if as_json:
        document({"items": [letter_document(letter) for letter in shown], "next": following})
        return
    if not shown:
        note("no letters match")
        return
    now = session.now()
    table(_LETTERS, [_row(letter, now) for letter in shown])
    if following is not None:
        note(f"there are more: --after {following}")


@click.command()
@click.argument("id")
@json_option
@store_options
@pass_session
def show(session: Session, id: str, as_json: bool) -> None:
    """Show one letter: what failed, what is kept of it, and every attempt to replay it."""
    letter = find_letter(session, id)
    attempts = session.letters.get_attempts(id)
    if as_json:
        document({**letter_document(letter), "attempts": [attempt_document(attempt) for attempt in attempts]})
        return
    now = session.now()
    facts(_facts(letter, now, _due(session, letter, now)))
    for name in PAYLOADS:
        if data := getattr(letter, name):
            heading(name.replace("_", " "))
            facts((str(key), masked({key: value})[key]) for key, value in data.items())
    if attempts:
        heading("attempts")
        _show_attempts(attempts)


@click.command()
@click.argument("id")
@json_option
@store_options
@pass_session
def attempts(session: Session, id: str, as_json: bool) -> None:
    """Show the attempts to replay a letter, the oldest first."""
    find_letter(session, id)
    made = session.letters.get_attempts(id)
    if as_json:
        document({"id": id, "attempts": [attempt_document(attempt) for attempt in made]})
    elif made:
        _show_attempts(made)
    else:
        note("nobody has tried to replay it")


@click.command()
@click.option("--status", type=click.Choice(STATUSES), metavar="STATUS", help="Count domains within this status.")
@click.option("--domain", metavar="NAME", help="Count statuses within this domain.")
@json_option
@store_options
@pass_session
def facets(session: Session, status: str | None, domain: str | None, as_json: bool) -> None:
    """Count letters by status and by domain."""
    counts = session.letters.get_facet_counts(status=status, domain=domain)
    if as_json:
        document(counts)
        return
    table((Column("status"), Column("letters", right=True)), _largest_first(counts["by_status"]))
    heading("")
    table((Column("domain", gives=True), Column("letters", right=True)), _largest_first(counts["by_domain"]))


@click.command()
@json_option
@store_options
@pass_session
def stats(session: Session, as_json: bool) -> None:
    """Show totals, what waits in each domain, and what is old enough to be cleaned up."""
    figures = session.letters.get_statistics()
    cleanup = session.letters.get_cleanup_stats()
    old = {name: cleanup[name] for name in ("resolved_older_than_30_days", "archived_older_than_90_days")}
    if as_json:
        document({**figures, **old})
        return
    facts([("total", str(figures["total"])), *((name.replace("_", " "), str(number)) for name, number in old.items())])
    heading("by status")
    table((Column("status"), Column("letters", right=True)), _largest_first(figures["by_status"]))
    if not figures["pending_by_domain"]:
        return
    heading("pending")
    waiting = figures["pending_by_domain_and_failure_type"]
    rows = [(domain, kind, n) for domain, kinds in sorted(waiting.items()) for kind, n in _largest_first(kinds)]
    table((Column("domain", gives=True), Column("failure type", gives=True), Column("letters", right=True)), rows)


def find_letter(session: Session, id: str) -> FailedOperationData:
    """The letter. Raises NotFound."""
    letter = session.letters.get_by_id(id)
    if letter is None:
        raise NotFound(f"there is no letter {id}")
    return letter


def _row(letter: FailedOperationData, now: datetime) -> tuple[Any, ...]:
    tries = f"{letter.retry_count}/{letter.max_retries}"
    error = letter.error_message or letter.failure_type
    return letter.id, letter.status, letter.domain, tries, ago(letter.created_at, now), error


def _due(session: Session, letter: FailedOperationData, now: datetime) -> tuple[str, str]:
    """The next try, where the program that is here makes it by itself. Otherwise, until when nobody can replay it
    without force: without its program that is all that is known, and what is a person's to do does not happen then.
    """
    at = letter.next_attempt_at
    if at is not None and session.has_app:
        handlers = session.letters.handlers
        if handlers.find(letter) is not None and handlers.recovers(letter.domain, letter.failure_type):
            return "next try", stamp(at)
    return "not before", stamp(at) if at is not None and at > now else ""


def _facts(letter: FailedOperationData, now: datetime, due: tuple[str, str]) -> list[tuple[str, Any]]:
    entity = " ".join(part for part in (letter.entity_type, letter.entity_id) if part)
    return [
        ("id", letter.id),
        ("status", letter.status),
        ("domain", letter.domain),
        ("failure type", letter.failure_type),
        ("error", letter.error_message),
        ("error code", letter.error_code),
        ("entity", entity),
        ("user", None if letter.user_id is None else str(letter.user_id)),
        ("tries", f"{letter.retry_count} of {letter.max_retries}"),
        ("occurrences", str(letter.occurrences) if letter.occurrences > 1 else ""),
        ("created", f"{stamp(letter.created_at)} ({ago(letter.created_at, now)} ago)"),
        ("last try", stamp(letter.last_retry_at)),
        due,
        ("expires", stamp(letter.expires_at)),
        ("resolved", stamp(letter.resolved_at)),
        ("resolved by", None if letter.resolved_by_id is None else str(letter.resolved_by_id)),
        ("resolution", letter.resolution_type),
        ("note", letter.resolution_note),
        ("archived", stamp(letter.archived_at)),
        ("hint", letter.next_action_hint),
        ("recommended", letter.recommended_action),
    ]


def _show_attempts(attempts: list[ReplayAttempt]) -> None:
    rows = []
    for made in attempts:
        took = "" if made.finished_at is None else span(made.finished_at - made.started_at)
        what = ": ".join(part for part in (made.error_type, made.note) if part)
        rows.append((made.number, stamp(made.started_at), took, made.outcome or "running", made.trigger, what))
    table(_ATTEMPTS, rows)


def _largest_first(counts: dict[str, int]) -> list[tuple[str, int]]:
    return sorted(counts.items(), key=lambda item: (-item[1], item[0]))
