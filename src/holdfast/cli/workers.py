"""`holdfast workers`: who works on workflows, what they have in hand, and who looks after what."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Any, Final

import click

from holdfast.cli.answers import Document, moment
from holdfast.cli.api import part
from holdfast.cli.filters import json_option
from holdfast.cli.output import Column, document, facts, heading, note, table
from holdfast.cli.session import InOrder, Session, pass_session, store_options
from holdfast.cli.times import ago, stamp, until

_WORKERS: Final = (
    Column("id"), Column("state"), Column("host", gives=True), Column("pid", right=True), Column("up", right=True),
    Column("seen", right=True), Column("in hand", right=True), Column("queues", gives=True),
    Column("versions", gives=True, optional=True),
)  # fmt: skip
_LEASES: Final = (Column("looked after", gives=True), Column("by", gives=True), Column("for", right=True))
_ITEMS: Final = (
    Column("workflow"), Column("name", gives=True), Column("stage", gives=True), Column("kind"),
    Column("task", gives=True), Column("try", right=True), Column("crashes", right=True, optional=True),
)  # fmt: skip


@click.group(cls=InOrder)
@store_options
def workers() -> None:
    """Workers of workflows: who is alive, what they have in hand.

    To run one: holdfast worker.
    """


@workers.command("list")
@json_option
@store_options
@pass_session
def list_workers(session: Session, as_json: bool) -> None:
    """Show everybody who is alive or has work, and what one at a time looks after."""
    found = session.api.get("/workers")
    if as_json:
        document(found)
        return
    now = datetime.fromisoformat(found["now"])
    if found["workers"]:
        table(_WORKERS, [_row(one, now) for one in found["workers"]])
    else:
        note("no worker is alive; holdfast worker --app runs one")
    if found["leases"]:
        heading("one at a time")
        table(_LEASES, [(one["name"], one["holder"], until(moment(one["until"]), now)) for one in found["leases"]])


@workers.command()
@click.argument("id")
@json_option
@store_options
@pass_session
def show(session: Session, id: str, as_json: bool) -> None:
    """Show one worker, and what it has in hand."""
    found = session.api.get(f"/workers/{part(id)}")
    if as_json:
        document(found)
        return
    facts([
        ("id", found["id"]),
        ("state", found["state"]),
        ("host", found["host"]),
        ("pid", None if found["pid"] is None else str(found["pid"])),
        ("since", stamp(moment(found["since"]))),
        ("seen", stamp(moment(found["seen_at"]))),
        ("counts until", stamp(moment(found["counts_until"]))),
        ("queues", ", ".join(found["queues"])),
        ("tasks", ", ".join(found["tasks"])),
        ("versions", _versions(found)),
        ("in hand", str(found["in_hand"])),
    ])  # fmt: skip
    if found["items"]:
        heading("in hand")
        table(_ITEMS, [_item_row(one) for one in found["items"]])


def _row(one: Document, now: datetime) -> Sequence[Any]:
    return (
        one["id"], one["state"], one["host"], one["pid"], ago(moment(one["since"]), now),
        ago(moment(one["seen_at"]), now), one["in_hand"], " ".join(one["queues"]), _versions(one),
    )  # fmt: skip


def _item_row(one: Document) -> Sequence[Any]:
    return (
        one["workflow_id"], one["workflow"], one["stage"], one["kind"], one["task"], one["attempt"],
        one["crashes"] or "",
    )  # fmt: skip


def _versions(one: Document) -> str:
    return "all" if one["versions"] is None else " ".join(one["versions"])
