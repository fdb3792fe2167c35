"""What workers could do nothing with: see it, have it tried again, or let it go."""

from __future__ import annotations

from typing import Any, Final

import click

from holdfast.cli.confirm import agreed, counted, yes_option
from holdfast.cli.exits import NotFound, WrongUsage
from holdfast.cli.filters import json_option
from holdfast.cli.output import Column, document, facts, note, say, table
from holdfast.cli.revealing import reveal_dead
from holdfast.cli.session import InOrder, Session, pass_session, store_options
from holdfast.errors import DeadLetterError
from holdfast.views.plain import iso, masked
from holdfast.views.workflows import dead_document
from holdfast.workflows.dead import DeadItem

COLUMNS: Final = (
    Column("id"), Column("type"), Column("workflow"), Column("stage", gives=True, optional=True),
    Column("tries", right=True, optional=True), Column("dead since", optional=True), Column("error", gives=True),
)  # fmt: skip


@click.group(cls=InOrder)
@store_options
def dead() -> None:
    """Items and messages of workflows that nobody could do anything with."""


@dead.command("list")
@click.argument("workflow", required=False)
@click.option("--after", metavar="CURSOR", help="Go on where a page ended.")
@click.option("--limit", type=click.IntRange(1, 9_999), default=100, show_default=True, metavar="N")
@json_option
@store_options
@pass_session
def list_dead(session: Session, workflow: str | None, after: str | None, limit: int, as_json: bool) -> None:
    """List them, the last one first; of one WORKFLOW if it is given."""
    items = session.workflows.dead
    try:
        found = items.list(workflow, after=after, limit=limit + 1)
    except ValueError as error:
        raise WrongUsage(f"--after: {error}") from None
    shown, following = found[:limit], found[limit - 1].cursor if len(found) > limit else None
    if as_json:
        count = items.count(workflow)
        document({"count": count, "items": [dead_document(one) for one in shown], "next": following})
    elif not shown:
        note("there are no dead items")
    else:
        table(COLUMNS, [_row(one) for one in shown])
        if following is not None:
            note(f"there are more, {items.count(workflow)} in all: --after {following}")


@dead.command()
@click.argument("id")
@json_option
@store_options
@pass_session
def show(session: Session, id: str, as_json: bool) -> None:
    """Show one, with what it was to do."""
    one = _found(session, id)
    if as_json:
        document(dead_document(one))
        return
    facts([
        ("id", one.id), ("type", one.type), ("workflow", one.workflow_id), ("stage", one.stage),
        ("tries", f"{one.attempts} of {one.max_attempts}"), ("made", iso(one.created_at)),
        ("dead since", iso(one.dead_at)), ("error", one.error), ("payload", masked(dict(one.payload))),
    ])  # fmt: skip


@dead.command()
@click.argument("ids", metavar="ID...", nargs=-1, required=True)
@json_option
@store_options
@pass_session
def replay(session: Session, ids: tuple[str, ...], as_json: bool) -> None:
    """Have them tried again, from their first attempt."""
    for id in ids:
        _found(session, id)
    for id in ids:
        session.workflows.dead.replay(id)
    _done("replayed", ids, as_json)


@dead.command()
@click.argument("ids", metavar="ID...", nargs=-1, required=True)
@yes_option
@json_option
@store_options
@pass_session
def discard(session: Session, ids: tuple[str, ...], yes: bool, as_json: bool) -> None:
    """Forget them."""
    for id in ids:
        _found(session, id)
    gone = ids if agreed(f"discard {counted(len(ids), 'dead item')}?", yes=yes, dry_run=False) else ()
    for id in gone:
        session.workflows.dead.discard(id)
    _done("discarded", gone, as_json)


dead.add_command(reveal_dead)


def _found(session: Session, id: str) -> DeadItem:
    try:
        return session.workflows.dead.show(id)
    except DeadLetterError as error:
        raise NotFound(f"{error}; `holdfast workflow dead list` shows them") from None


def _done(what: str, ids: tuple[str, ...], as_json: bool) -> None:
    if as_json:
        document({what: list(ids)})
    else:
        say(f"{what}: {', '.join(ids) or 'none'}")


def _row(one: DeadItem) -> list[Any]:
    return [one.id, one.type, one.workflow_id, one.stage, one.attempts, iso(one.dead_at), one.error]
