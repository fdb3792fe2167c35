"""One saga in an open transaction: takes the machine's decisions, and writes all of them at once."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from datetime import datetime
from typing import Any, NamedTuple
from uuid import UUID

import sqlalchemy as sa
from sqlalchemy.orm import Session

from holdfast.audit.event import AuditEvent
from holdfast.machine import saga as machine
from holdfast.machine.outbox_entry import CANCEL, CANCELLED, REQUEUE, WAITING
from holdfast.machine.saga import ENDED, Change, Direction, SagaRecord, SagaState, StepState
from holdfast.outbox import outcomes
from holdfast.outbox.entry import OutboxEntry
from holdfast.outbox.outbox import Outbox
from holdfast.outbox.rows import columns_of, entry_of
from holdfast.outbox.runner_errors import error_name
from holdfast.outbox.sagas.definition import Wired, backward_id, forward_id
from holdfast.outbox.sagas.rows import SagaRun, steps_to_json
from holdfast.outbox.subject import SubjectRef
from holdfast.store.codec import plain


class Moved(NamedTuple):
    """A state that the saga came into."""

    state: SagaState
    reason: str | None


class Progress:
    """A saga whose row is locked. `take` follows a decision, `write` writes what came of all of them."""

    def __init__(
        self,
        outbox: Outbox,
        wired: Wired,
        run: SagaRun,
        now: datetime,
        headers: dict[str, str] | None = None,
    ) -> None:
        self._outbox = outbox
        self._wired = wired
        self.run = run
        self._now = now
        self.headers = headers
        self.record: SagaRecord = run.record
        self.moved: list[Moved] = []
        self.expires = True
        """Whether the deadline still counts."""
        self._calls: dict[str, OutboxEntry] = {}
        self._undos: dict[str, OutboxEntry] = {}
        self._cancels: list[UUID] = []

    @property
    def plan(self) -> machine.Plan:
        return self._wired.plan

    @property
    def has_changed(self) -> bool:
        return self.record != self.run.record or not self.expires

    def take(self, session: Session, change: Change) -> None:
        """Follow a decision. A payload that cannot be made gives its step up: it must not stop the settle it is in."""
        before, self.record = self.record.state, change.saga
        if self.headers is None and (change.calls or change.undos):
            self.headers = self._earlier_headers(session)
        if self.record.state != before:
            self.moved.append(Moved(self.record.state, machine.why(self.record)))
        for name in change.cancels:
            if self._calls.pop(name, None) is None:
                self._cancels.append(forward_id(self.run.saga_id, name))
        lost = [(name, error) for name in change.calls if (error := self._prepare_call(name)) is not None]
        for name in change.undos:
            if (error := self._prepare_undo(name)) is not None:
                undo = self.record.step(name).undos
                self.take(session, machine.on_compensation_abandoned(self.plan, self.record, name, error, undo=undo))
        for name, error in lost:
            idle = self.idle(session)
            self.take(session, machine.on_step_abandoned(self.plan, self.record, name, error, called=False, idle=idle))

    def _earlier_headers(self, session: Session) -> dict[str, str]:
        """Those that the saga was started with: every entry of it has them."""
        row = self._outbox.tables.outbox.c
        found = sa.select(row.headers).where(row.saga_id == self.run.saga_id).limit(1)
        return session.execute(found).scalar() or {}

    def idle(self, session: Session) -> dict[str, bool]:
        """The forward calls that nobody is making, locked; by step, whether they were ever begun.

        An entry that somebody has locked is being claimed or settled: it is waited for by the saga, never by us, since
        whoever settles it waits for this saga.
        """
        found = dict.fromkeys(self._calls, False)
        ids = {
            forward_id(self.run.saga_id, step.name): step.name
            for step in self.record.steps
            if step.state == StepState.STARTED and step.name not in self._calls
        }
        if self.record.state != SagaState.RUNNING or not ids:
            return found
        row = self._outbox.tables.outbox.c
        waiting = sa.select(row.entry_id, row.last_attempt_at).where(
            row.entry_id.in_(ids), row.status.in_([str(one) for one in sorted(WAITING)])
        )
        for entry_id, called_at in session.execute(waiting.with_for_update(skip_locked=True)):
            found[ids[entry_id]] = called_at is not None
        return found

    def write(self, session: Session, *, there: Collection[UUID] = ()) -> list[AuditEvent]:
        """Cancel, enqueue, and write the saga; what is to be audited of the cancelled entries. `there` are entries that
        exist already, and go back into the queue.
        """
        if not self.has_changed:
            return []
        events = self._cancel(session) if self._cancels else []
        entries = [*self._calls.values(), *self._undos.values()]
        for entry in entries:
            if entry.entry_id in there:
                again = self._outbox.statements(session).update(
                    REQUEUE, [entry.entry_id], scrub=False, given={"payload": entry.payload, "scrubbed": False}
                )
                session.execute(again)
        new = [entry for entry in entries if entry.entry_id not in there]
        if new:
            self._outbox.enqueue(session, new)
        sagas = self._outbox.tables.sagas
        session.execute(sagas.update().where(sagas.c.saga_id == self.run.saga_id).values(self.values()))
        return events

    def values(self) -> dict[str, Any]:
        """What changes in the saga's row."""
        record = self.record
        values: dict[str, Any] = {
            "state": str(record.state),
            "steps": steps_to_json(record.steps),
            "reason": record.reason,
            "changed_at": self._now,
        }
        if record.state != SagaState.RUNNING or not self.expires:
            values["deadline_at"] = None
        if record.state in ENDED and self._wired.sensitive:
            values["data"] = sa.null()
        return values

    def first_entries(self) -> Sequence[OutboxEntry]:
        """The entries of a saga that begins."""
        return tuple(self._calls.values())

    def _prepare_call(self, name: str) -> str | None:
        """Make the entry of a step; the name of the error if that cannot be done."""
        at = self._wired.names.index(name)
        before = self.plan[at].after
        depends_on = forward_id(self.run.saga_id, before[-1]) if before else None
        try:
            self._calls[name] = self._entry(name, Direction.FORWARD, forward_id(self.run.saga_id, name), depends_on, {})
        except Exception as error:
            return error_name(error)
        return None

    def _prepare_undo(self, name: str) -> str | None:
        call = forward_id(self.run.saga_id, name)
        undo = backward_id(self.run.saga_id, name, self.record.step(name).undos)
        try:
            self._undos[name] = self._entry(name, Direction.BACKWARD, undo, call, {"compensates": str(call)})
        except Exception as error:
            return error_name(error)
        return None

    def _entry(
        self, name: str, direction: Direction, entry_id: UUID, depends_on: UUID | None, extra: dict[str, Any]
    ) -> OutboxEntry:
        call = (self._wired.forward if direction == Direction.FORWARD else self._wired.backward)[name]
        return OutboxEntry(
            entry_id=entry_id,
            subject_id=self.run.subject_id,
            resolver=call.target,
            ref=SubjectRef(kind=call.target, value=self.run.subject_id, extra=extra),
            operation=call.operation,
            payload=call.payload_for(self.run.data, self._results()),
            enqueued_at=self._now,
            saga_id=self.run.saga_id,
            step=name,
            direction=str(direction),
            depends_on=depends_on,
            headers=self.headers or None,
            queue=self._wired.saga.queue,
        )

    def _results(self) -> Mapping[str, Any]:
        """What the steps gave that have been done, also where they were undone since."""
        return {
            step.name: plain(step.result)
            for step in self.record.steps
            if step.state == StepState.DONE or step.result is not None
        }

    def _cancel(self, session: Session) -> list[AuditEvent]:
        outbox, row = self._outbox, self._outbox.tables.outbox.c
        mine = sa.select(*columns_of(outbox.tables.outbox)).where(row.entry_id.in_(self._cancels))
        events = []
        for entry in map(entry_of, session.execute(mine.order_by(row.entry_id).with_for_update()).all()):
            name = str(entry.operation)
            scrub = outbox.operations.is_sensitive(name)
            session.execute(outbox.statements(session).update(CANCEL, [entry.entry_id], scrub=scrub, given={}))
            found = outbox.operations.find(name)
            event = outcomes.abandoned(found, entry, self._now, CANCELLED, entry.attempts)
            if event is not None:
                events.append(event)
        return events

    def _event(self, type: str, facts: dict[str, str | int | bool], entry_id: UUID | None = None) -> AuditEvent:
        return AuditEvent(
            event_type=type,
            subject_ref=self.run.subject_id,
            occurred_at=self._now,
            payload=facts,
            entry_id=entry_id,
        )

    def audit(self, entry_id: UUID | None = None) -> list[AuditEvent]:
        """What is audited of the states that the saga came into."""
        events = []
        for state, reason in self.moved:
            name = "resumed" if state == SagaState.RUNNING else str(state)
            facts: dict[str, str | int | bool] = self._facts()
            if reason is not None:
                facts["reason"] = reason
            events.append(self._event(f"saga_{name}", facts, entry_id))
        return events

    def started(self) -> AuditEvent:
        return self._event("saga_started", self._facts())

    def _facts(self) -> dict[str, str | int | bool]:
        return {
            "saga_id": str(self.run.saga_id),
            "definition": self.run.definition,
            "version": self.run.version,
        }
