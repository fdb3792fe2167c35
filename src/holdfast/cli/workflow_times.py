"""`holdfast workflow timeline`: what the stages of a workflow spent their time on."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import datetime
from typing import Any, Final

import click

from holdfast.cli.answers import Document, moment
from holdfast.cli.api import part
from holdfast.cli.filters import json_option
from holdfast.cli.output import Column, document, note, table
from holdfast.cli.session import Session, pass_session, store_options
from holdfast.workflows.lengths import took

_BARS: Final = (
    Column("stage", gives=True), Column("begins", right=True), Column("took", right=True), Column("what"),
    Column("try", right=True), Column("outcome"), Column("note", gives=True, wraps=True),
)  # fmt: skip


@click.command()
@click.argument("id")
@json_option
@store_options
@pass_session
def timeline(session: Session, id: str, as_json: bool) -> None:
    """Show what stages spent their time on: calls, waits, further attempts."""
    found = session.api.get(f"/workflows/{part(id)}/timeline")
    if as_json:
        document(found)
        return
    rows = list(_rows(found))
    if rows:
        table(_BARS, rows)
    else:
        note("no stage has begun")
    if not found["complete"]:
        note("its log is too long to be told whole: these are its first transactions")


def _rows(found: Document) -> Iterator[Sequence[Any]]:
    now, lanes = datetime.fromisoformat(found["now"]), found["lanes"]
    first = min((datetime.fromisoformat(lane["start"]) for lane in lanes), default=now)
    for lane in lanes:
        name, told = lane["stage"] + (f" ({lane['incarnation']})" if lane["incarnation"] > 1 else ""), None
        for bar in lane["bars"]:
            start = datetime.fromisoformat(bar["start"])
            length = took(start, moment(bar["end"]), now if bar["end"] is None else None)
            attempt = bar["attempt"] if bar["kind"] == "run" else ""
            said = "" if bar["note"] == told else bar["note"]  # of an attempt, and of the wait for the next one
            yield name, f"+{took(first, start, None)}", length, bar["kind"], attempt, bar["outcome"], said
            name, told = "", bar["note"]
