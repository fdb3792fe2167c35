"""Looking at the audit trail: its events as sentences, its streams, and until when it is known to be in order."""

from __future__ import annotations

from typing import Any, Final

import click

from holdfast.cli.answers import Document, after_option, limit_option, listed, moment
from holdfast.cli.confirm import counted
from holdfast.cli.filters import json_option
from holdfast.cli.output import Column, document, facts, say
from holdfast.cli.session import Session, pass_session, store_options
from holdfast.cli.times import MOMENT, stamp
from holdfast.cli.trail import OCCURRED

_SENTENCES: Final = (OCCURRED, Column("what", gives=True), Column("subject", gives=True, optional=True))
_STREAMS: Final = (
    Column("stream", gives=True), Column("events", right=True), Column("checkpoint"), Column("at", right=True),
)  # fmt: skip


@click.command("list")
@click.option("--subject", metavar="NAME", help="Whom or what it is about; of operators operator:NAME.")
@click.option("--entry", type=click.UUID, metavar="ID", help="Of this outbox entry.")
@click.option("--type", "type", multiple=True, metavar="TYPE", help="Of this type; can be given again.")
@click.option("--stream", metavar="NAME")
@click.option("--since", type=MOMENT, metavar="TIME", help="Not before: 2026-01-31T12:00 (UTC), or 2h, 7d ago.")
@click.option("--until", type=MOMENT, metavar="TIME", help="As --since.")
@limit_option
@after_option
@json_option
@store_options
@pass_session
def list_events(session: Session, /, limit: int, after: str | None, as_json: bool, **wanted: Any) -> None:
    """Show events, the newest first, as sentences: who did what, and what became of it."""
    asked = {name: value or None for name, value in wanted.items()}
    listed(session.api.pages("/audit", limit, after, **asked), _SENTENCES, _sentence_row, as_json, nothing="no events")


@click.command()
@json_option
@store_options
@pass_session
def status(session: Session, as_json: bool) -> None:
    """Show how much there is, and until when it is known to be in order."""
    found = session.api.get("/audit/status")
    if as_json:
        document(found)
        return
    last = found["last_verification"]
    facts([
        ("events", f"{found['events']:,} in {counted(found['streams'], 'stream')}"),
        ("key", "yes" if found["keyed"] else "none: whoever can write to the database can forge the trail"),
        ("written here", "yes" if found["has_the_key"] else "no: it has another key than this"),
        ("last checkpoint", stamp(moment(found["last_checkpoint_at"])) or "none"),
        ("last verified", "never" if last is None else _verification_words(last)),
    ])  # fmt: skip


@click.command()
@click.option("--limit", type=click.IntRange(1), default=100, show_default=True, metavar="N")
@after_option
@json_option
@store_options
@pass_session
def streams(session: Session, limit: int, after: str | None, as_json: bool) -> None:
    """Show the chains, by name, and the last checkpoint of each."""
    page = session.api.pages("/audit/streams", limit, after)
    listed(page, _STREAMS, _stream_row, as_json, nothing="no event of this trail is chained")


@click.command()
@json_option
@store_options
@pass_session
def types(session: Session, as_json: bool) -> None:
    """Show the types of events that are known."""
    found = session.api.get("/audit/types")
    if as_json:
        document(found)
        return
    for name in found:
        say(name)


def _sentence_row(one: Document) -> tuple[Any, ...]:
    return stamp(moment(one["occurred_at"])), one["says"], one["subject_ref"]


def _stream_row(one: Document) -> tuple[Any, ...]:
    last = one["checkpoint"]
    return one["stream"], one["events"], *(("", "") if last is None else (stamp(moment(last["taken_at"])), last["seq"]))


def _verification_words(last: Document) -> str:
    how = "in order" if last["verified"] else f"{last['broken']} of {counted(last['streams'], 'stream')} broken"
    return f"{stamp(moment(last['until']))} by {last['by']}: {how}"
