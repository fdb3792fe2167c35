"""How much there is, and what it is about: facets of the outbox and of sagas."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import click

from holdfast.cli.answers import Document, seconds
from holdfast.cli.filters import json_option
from holdfast.cli.output import Column, document, facts, heading, table
from holdfast.cli.session import Session, pass_session, store_options

_QUEUES: Final = (
    Column("queue", gives=True), Column("waiting", right=True), Column("lag", right=True),
    Column("paused by", gives=True), Column("why", gives=True),
)  # fmt: skip


@click.command("facets")
@json_option
@store_options
@pass_session
def outbox_facets(session: Session, as_json: bool) -> None:
    """Count entries by status, up to 10,000 of each, and show queues, operations, targets and errors."""
    found = session.api.get("/outbox/facets")
    if as_json:
        document(found)
        return
    _by("status", "entries", found["by_status"], found["at_least"])
    if found["queues"]:
        heading("")
        table(_QUEUES, [_queue_row(one) for one in found["queues"]])
    heading("")
    facts((name, tuple(found[name])) for name in ("operations", "targets", "errors"))


@click.command("facets")
@json_option
@store_options
@pass_session
def saga_facets(session: Session, as_json: bool) -> None:
    """Count sagas by state, up to 10,000 of each, and show their definitions."""
    found = session.api.get("/sagas/facets")
    if as_json:
        document(found)
        return
    _by("state", "sagas", found["by_state"], found["at_least"])
    heading("")
    facts([("definitions", tuple(found["definitions"]))])


def _by(name: str, what: str, counted: Document, at_least: Sequence[str]) -> None:
    rows = [(one, f"{number}{' or more' if one in at_least else ''}") for one, number in counted.items()]
    table((Column(name), Column(what, right=True)), rows)


def _queue_row(one: Document) -> Sequence[Any]:
    lag = seconds(one["lag_s"]) if one["lag_s"] else ""
    by = (one["paused_by"] or "somebody") if one["paused"] else ""
    return one["queue"], one["waiting"], lag, by, one["paused_reason"]
