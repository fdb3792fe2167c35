"""What a saga makes of its entries: of one that is being settled, and of those that were settled behind its back."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final
from uuid import UUID

import sqlalchemy as sa
from sqlalchemy.orm import Session

from holdfast.errors import ConfigurationError
from holdfast.machine import saga as machine
from holdfast.machine.outbox_entry import ABANDON, CANCEL, CANCELLED, RELEASE, REQUEUE, SUCCEED, OutboxStatus
from holdfast.machine.saga import Direction, StepState
from holdfast.outbox.entry import OutboxEntry
from holdfast.outbox.outbox import Outbox
from holdfast.outbox.sagas.definition import backward_id, forward_id
from holdfast.outbox.sagas.progress import Progress
from holdfast.outbox.settle import Settlement

_NOTHING: Final[frozenset[UUID]] = frozenset()
_UNKNOWN_ERROR: Final = "Unknown"


def take_settlement(session: Session, progress: Progress, one: Settlement) -> frozenset[UUID]:
    """Follow what became of an entry; the ids of entries that are in the queue again already.

    Raises ConfigurationError for a requeue of what its saga no longer wants.
    """
    entry, name = one.entry, one.entry.step
    if name is None or name not in (step.name for step in progress.record.steps):
        return _NOTHING
    if one.move.name == REQUEUE.name:
        return _requeued(session, progress, entry, name)
    if entry.direction == Direction.FORWARD:
        _forward(session, progress, one, name)
    else:
        _backward(session, progress, one, name)
    return _NOTHING


def _forward(session: Session, progress: Progress, one: Settlement, name: str) -> None:
    plan, saga, called = progress.plan, progress.record, one.entry.last_attempt_at is not None
    match one.move.name:
        case SUCCEED.name:
            change = machine.on_step_succeeded(plan, saga, name, one.given.get("result"))
        case ABANDON.name:
            error = one.given.get("last_error") or _UNKNOWN_ERROR
            change = machine.on_step_abandoned(plan, saga, name, error, idle=progress.idle(session))
        case CANCEL.name:
            idle = progress.idle(session)
            change = machine.on_step_abandoned(plan, saga, name, CANCELLED, called=called, idle=idle)
        case RELEASE.name:
            change = machine.on_step_returned(plan, saga, name, called=one.entry.attempts > 1)
        case _:
            change = machine.on_step_returned(plan, saga, name, called=True)
    progress.take(session, change)


def _backward(session: Session, progress: Progress, one: Settlement, name: str) -> None:
    plan, saga = progress.plan, progress.record
    undo = _undo_of(progress, one.entry, name)
    if one.move.name == SUCCEED.name:
        progress.take(session, machine.on_compensation_succeeded(plan, saga, name, undo=undo))
    elif one.move.name in (ABANDON.name, CANCEL.name):
        error = one.given.get("last_error") or CANCELLED
        progress.take(session, machine.on_compensation_abandoned(plan, saga, name, error, undo=undo))


def _undo_of(progress: Progress, entry: OutboxEntry, name: str) -> int:
    """Which of the step's compensations the entry is; 0 if it is none."""
    undos = progress.record.step(name).undos
    known = (undo for undo in range(undos, 0, -1) if backward_id(progress.run.saga_id, name, undo) == entry.entry_id)
    return next(known, 0)


def _requeued(session: Session, progress: Progress, entry: OutboxEntry, name: str) -> frozenset[UUID]:
    change = machine.on_resume(progress.plan, progress.record, only=(name,))
    wanted = change.calls if entry.direction == Direction.FORWARD else change.undos
    if name not in wanted:
        story = f"its saga {progress.run.saga_id} is {progress.record.state}, and does not wait for it"
        raise ConfigurationError(f"entry {entry.entry_id} cannot be requeued: {story}; start a new saga")
    progress.take(session, change)
    return frozenset({entry.entry_id})


Rows = Mapping[UUID, Any]


def settled_rows(session: Session, outbox: Outbox, saga_id: UUID) -> Rows:
    """The saga's entries that have ended, locked in the order of their ids."""
    row = outbox.tables.outbox.c
    ids = session.execute(
        sa.select(row.entry_id).where(
            row.saga_id == saga_id, row.status.in_([str(OutboxStatus.SUCCEEDED), str(OutboxStatus.ABANDONED)])
        )
    ).scalars()
    locked = (
        sa.select(row.entry_id, row.status, row.last_error, row.last_attempt_at, row.result)
        .where(row.entry_id.in_(ids.all()))
        .order_by(row.entry_id)
        .with_for_update()
    )
    return {one.entry_id: one for one in session.execute(locked)}


def catch_up(session: Session, progress: Progress, rows: Rows) -> None:
    """Follow what became of entries while nobody told the saga."""
    for name in [step.name for step in progress.record.steps]:
        _catch_up_call(session, progress, rows, name)
        _catch_up_undo(session, progress, rows, name)


def _catch_up_call(session: Session, progress: Progress, rows: Rows, name: str) -> None:
    row, step = rows.get(forward_id(progress.run.saga_id, name)), progress.record.step(name)
    if row is None or step.state not in (StepState.STARTED, StepState.UNKNOWN):
        return
    if row.status == OutboxStatus.SUCCEEDED:
        progress.take(session, machine.on_step_succeeded(progress.plan, progress.record, name, row.result))
    elif row.status == OutboxStatus.ABANDONED:
        change = machine.on_step_abandoned(
            progress.plan,
            progress.record,
            name,
            row.last_error or _UNKNOWN_ERROR,
            called=row.last_attempt_at is not None,
            idle=progress.idle(session),
        )
        progress.take(session, change)


def _catch_up_undo(session: Session, progress: Progress, rows: Rows, name: str) -> None:
    step = progress.record.step(name)
    row = rows.get(backward_id(progress.run.saga_id, name, step.undos))
    if row is None:
        return
    plan, saga = progress.plan, progress.record
    if row.status == OutboxStatus.SUCCEEDED:
        progress.take(session, machine.on_compensation_succeeded(plan, saga, name, undo=step.undos))
    elif row.status == OutboxStatus.ABANDONED:
        error = row.last_error or _UNKNOWN_ERROR
        progress.take(session, machine.on_compensation_abandoned(plan, saga, name, error, undo=step.undos))
