"""`holdfast saga`: see sagas, cancel them, and help those that are stuck."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Any, Final
from uuid import UUID

import click

from holdfast.cli.answers import after_option, limit_option, server_reason_option
from holdfast.cli.counting import saga_facets
from holdfast.cli.exits import Failed, NotFound, WrongUsage
from holdfast.cli.filters import json_option
from holdfast.cli.output import Column, document, facts, heading, note, say, table
from holdfast.cli.revealing import reveal_saga
from holdfast.cli.session import InOrder, Session, pass_session, table_options
from holdfast.cli.times import ago, stamp
from holdfast.cli.trail import cursor_given
from holdfast.machine.saga import CANCELLED, SagaState
from holdfast.outbox.entry import OutboxEntry
from holdfast.outbox.sagas.sagas import SagaRun, Sagas
from holdfast.views.audit import cursor_text
from holdfast.views.sagas import call_document, saga_document

_SAGAS: Final = (
    Column("id"), Column("definition", gives=True), Column("state"), Column("at", gives=True),
    Column("age", right=True, optional=True), Column("subject", gives=True, optional=True),
    Column("reason", gives=True),
)  # fmt: skip
_STEPS: Final = (Column("step", gives=True), Column("state"), Column("error", gives=True))
_ENTRIES: Final = (
    Column("entry"), Column("step", gives=True), Column("direction"), Column("operation", gives=True, optional=True),
    Column("status"), Column("tries", right=True, optional=True), Column("error", gives=True),
)  # fmt: skip
STATES: Final = [str(state) for state in SagaState]
_UNTOUCHED: Final = ("waiting", "skipped")


@click.group(cls=InOrder)
@table_options
def saga() -> None:
    """Sagas: see them, cancel them, help those that are stuck."""


@saga.command("list")
@click.option("--state", type=click.Choice(STATES), metavar="STATE", help="One of the five states.")
@click.option("--definition", metavar="NAME")
@click.option("--subject", metavar="ID")
@limit_option
@after_option
@json_option
@table_options
@pass_session
def list_sagas(
    session: Session,
    state: str | None,
    definition: str | None,
    subject: str | None,
    limit: int,
    after: str | None,
    as_json: bool,
) -> None:
    """Show sagas, the newest first."""
    cursor = None if after is None else cursor_given(after)
    found: list[SagaRun] = []
    while len(found) < limit:  # a part is searched at a time
        more = session.sagas.search(
            state=state, definition=definition, subject_id=subject, limit=limit - len(found), after=cursor
        )
        found, cursor = [*found, *more.sagas], more.after
        if cursor is None:
            break
    following = None if cursor is None else cursor_text(cursor)
    if as_json:
        document({"items": [saga_document(run, session.sagas) for run in found], "next": following})
        return
    if found:
        now = session.now()
        table(_SAGAS, [_row(run, now) for run in found])
    else:
        note("no sagas match")
    if following is not None:
        note(f"there are more: --after {following}")


@saga.command()
@click.argument("id")
@json_option
@table_options
@pass_session
def show(session: Session, id: str, as_json: bool) -> None:
    """Show one saga: its steps, and every call that was asked for."""
    sagas = session.sagas
    run = _find(sagas, id)
    entries = sagas.history(run.saga_id)
    if as_json:
        document({**saga_document(run, sagas), "entries": [call_document(entry) for entry in entries]})
        return
    facts([
        ("id", str(run.saga_id)),
        ("definition", f"{run.definition} {run.version}"),
        ("state", str(run.state)),
        ("reason", run.reason),
        ("subject", run.subject_id),
        ("started", stamp(run.started_at)),
        ("changed", stamp(run.changed_at)),
        ("deadline", stamp(run.deadline_at)),
        ("data", saga_document(run, sagas)["data"]),
    ])  # fmt: skip
    heading("steps")
    table(_STEPS, [(step.name, step.state, step.error) for step in run.steps])
    heading("entries")
    table(_ENTRIES, [_entry_row(entry) for entry in entries])


@saga.command()
@click.argument("id")
@click.option("--reason", default=CANCELLED, metavar="NAME", help="A name, not a sentence: it is audited.")
@json_option
@table_options
@pass_session
def cancel(session: Session, id: str, reason: str, as_json: bool) -> None:
    """Have a running saga undone. After its pivot that can no longer be done."""
    sagas = session.sagas
    run = _known(sagas, id)
    if not sagas.cancel(run.saga_id, reason):
        raise Failed(f"saga {id} cannot be cancelled: it is {_find(sagas, id).state}, or past its pivot")
    _tell(sagas, id, as_json)


@saga.command()
@click.argument("id")
@json_option
@table_options
@pass_session
def resume(session: Session, id: str, as_json: bool) -> None:
    """Try again what a stuck saga gave up, with new budgets."""
    sagas = session.sagas
    run = _known(sagas, id)
    if not sagas.resume(run.saga_id):
        raise Failed(f"saga {id} cannot be resumed: it is {_find(sagas, id).state}, not stuck")
    _tell(sagas, id, as_json)


@saga.command()
@click.argument("id")
@click.argument("step")
@server_reason_option
@json_option
@table_options
@pass_session
def resolve(session: Session, id: str, step: str, reason: str, as_json: bool) -> None:
    """Say that what a stuck saga gave up in STEP was done by hand."""
    sagas = session.sagas
    run = _known(sagas, id)
    if not sagas.resolve(run.saga_id, step):
        raise Failed(f"saga {id} has given up nothing in step {step!r}")
    _tell(sagas, id, as_json)


saga.add_command(saga_facets)
saga.add_command(reveal_saga)


def _find(sagas: Sagas, id: str) -> SagaRun:
    """Raises NotFound."""
    try:
        run = sagas.get(UUID(id))
    except ValueError:
        raise WrongUsage(f"{id!r} is no id of a saga; `holdfast saga list` shows them") from None
    if run is None:
        raise NotFound(f"there is no saga {id}")
    return run


def _known(sagas: Sagas, id: str) -> SagaRun:
    """Raises Failed for a saga whose definition is not here."""
    run = _find(sagas, id)
    if not sagas.knows(run):
        raise Failed(f"nobody here knows saga {run.definition!r} in version {run.version}; give --app of its program")
    return run


def _tell(sagas: Sagas, id: str, as_json: bool) -> None:
    run = _find(sagas, id)
    if as_json:
        document(saga_document(run, sagas))
    elif run.state == SagaState.RUNNING and run.reason is not None:
        say(f"saga {id} is undone if its pivot, which is being called, does not succeed")
    else:
        say(f"saga {id} is {run.state}")


def _row(run: SagaRun, now: datetime) -> Sequence[Any]:
    at = [step.name for step in run.steps if step.state not in _UNTOUCHED]
    return (
        run.saga_id,
        f"{run.definition} {run.version}",
        run.state,
        at[-1] if at else "",
        ago(run.started_at, now),
        run.subject_id,
        run.reason,
    )


def _entry_row(entry: OutboxEntry) -> Sequence[Any]:
    return (
        entry.entry_id,
        entry.step,
        entry.direction,
        entry.operation,
        entry.status,
        entry.attempts,
        entry.last_error,
    )
