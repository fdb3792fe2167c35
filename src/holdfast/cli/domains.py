"""Dead letters by what they have in common: domains, errors; and what is kept for how long."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import click

from holdfast.cli.answers import Document, after_option, listed, moment, seconds
from holdfast.cli.filters import json_option, letter_filters
from holdfast.cli.output import Column, document, facts, note
from holdfast.cli.session import Session, pass_session, store_options
from holdfast.cli.times import stamp
from holdfast.views.letters import user_of

_DOMAINS: Final = (
    Column("domain", gives=True), Column("letters", right=True), Column("pending", right=True), Column("way"),
    Column("paused by", gives=True, optional=True), Column("until", optional=True), Column("again in", right=True),
    Column("why", gives=True),
)  # fmt: skip
_ERRORS: Final = (
    Column("letters", right=True), Column("domain", gives=True), Column("failure type", gives=True, optional=True),
    Column("newest"), Column("error", gives=True),
)  # fmt: skip
_many: Final = click.option("--limit", type=click.IntRange(1), default=100, show_default=True, metavar="N")


@click.command()
@_many
@after_option
@json_option
@store_options
@pass_session
def domains(session: Session, limit: int, after: str | None, as_json: bool) -> None:
    """Show domains, by name: what waits, and whether it may go out now."""
    found = session.api.pages("/letters/domains", limit, after)
    listed(found, _DOMAINS, _domain_row, as_json, nothing="there are no letters")


@click.command()
@letter_filters
@click.option("--limit", type=click.IntRange(1, 500), default=100, show_default=True, metavar="N")
@json_option
@store_options
@pass_session
def errors(session: Session, where: dict[str, Any], limit: int, as_json: bool) -> None:
    """Show errors by how often they come: the same but for the numbers and names in them."""
    asked = {name: _quoted(value) if name == "user_id" else value for name, value in where.items()}
    found = session.api.get("/letters/fingerprints", limit=limit, **asked)
    listed(found, _ERRORS, _error_row, as_json, nothing="no letters match")
    if not found["is_all"] and not as_json:
        note(f"of the newest {found['looked_at']:,} letters that match")


@click.command()
@json_option
@store_options
@pass_session
def retention(session: Session, as_json: bool) -> None:
    """Show what is kept for how long, and how full it is."""
    found = session.api.get("/letters/retention")
    if as_json:
        document(found)
        return
    facts([
        ("active", f"{found['active']:,} of {found['capacity']:,}"),
        ("when full", found["overflow"]),
        ("archived after", f"{found['archive_after_days']} days, from when they were resolved"),
        ("deleted after", f"{found['purge_after_days']} days, from when they were resolved"),
        ("stale after", f"{found['stale_after_minutes']} minutes"),
        ("resolved, older than 30 days", str(found["resolved_older_than_30_days"])),
        ("archived, older than 90 days", str(found["archived_older_than_90_days"])),
        ("summaries", f"{found['summaries']} of {found['summarised_letters']} letters"),
        ("spooled", "yes: the spool file holds what the store could not take" if found["spooled"] else ""),
    ])  # fmt: skip


def _domain_row(one: Document) -> Sequence[Any]:
    why = one["pause_reason"] if one["paused"] else one["reason"]
    return (
        one["domain"], one["total"], one["pending"], one["way"], one["paused_by"],
        stamp(moment(one["paused_until"])), seconds(one["retry_after"]), why,
    )  # fmt: skip


def _error_row(one: Document) -> Sequence[Any]:
    return one["count"], one["domain"], one["failure_type"], stamp(moment(one["newest"])), one["example"]


def _quoted(user: int | str) -> int | str:
    """A text that would be taken for a number is put in quotes, as the option takes it."""
    return f'"{user}"' if isinstance(user, str) and user_of(user) != user else user
