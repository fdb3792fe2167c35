"""Sagas: external calls that together either happen or are undone.

A saga follows the settles of its entries in their own transaction: that a step has ended, that the saga has moved, and
the entries of the next steps, or of compensations, are kept together or not at all.
"""

from __future__ import annotations

import logging
from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from typing import Any, ClassVar, Final
from uuid import UUID, uuid5

import sqlalchemy as sa
from sqlalchemy.orm import Session

from holdfast.audit.event import AuditEvent, JoiningSink
from holdfast.audit.searching import WINDOW, count_up_to, search, unread
from holdfast.errors import ConfigurationError
from holdfast.machine import saga as machine
from holdfast.machine.saga import CANCELLED, Direction, SagaState, StepRecord, StepState
from holdfast.outbox.checks import an_id, text
from holdfast.outbox.draft import origin_headers
from holdfast.outbox.entry import OutboxEntry
from holdfast.outbox.ids import new_entry_id
from holdfast.outbox.outbox import Outbox
from holdfast.outbox.rows import columns_of, entry_of
from holdfast.outbox.sagas.after import audit_at_commit
from holdfast.outbox.sagas.catching_up import catch_up, settled_rows, take_settlement
from holdfast.outbox.sagas.definition import Saga, Step, Wired
from holdfast.outbox.sagas.place import Work
from holdfast.outbox.sagas.progress import Moved, Progress
from holdfast.outbox.sagas.rows import SagaRun, insert_once, run_of, select_sagas
from holdfast.outbox.sagas.searching import COUNTED, FoundSagas, SagaFacets, SagaPosition, merged
from holdfast.outbox.sagas.upkeep import SagaUpkeep
from holdfast.outbox.settle import Settlement
from holdfast.outbox.subject import json_value
from holdfast.telemetry.hub import Hub

__all__ = ["Saga", "SagaRun", "Sagas", "Step"]

_log: Final = logging.getLogger("holdfast.outbox")
_RECENT: Final = 200
_KEYS: Final = UUID("9f1c2f0e-5a0b-5e4c-9d57-6f0a5d1f7f35")


class Sagas(SagaUpkeep):
    """The sagas of an outbox, by their definitions.

    A saga whose definition or version this process does not know stays as it is, and can be seen; a process that knows
    it brings it on (`catch_up`). `on_stuck` is called with a saga that needs help, once that is on disk; what it raises
    is logged and goes no further.
    """

    event_types: ClassVar[frozenset[str]] = frozenset(
        f"saga_{name}" for name in ("started", "resumed", "completed", "compensating", "compensated", "stuck")
    )

    def __init__(
        self,
        outbox: Outbox,
        *definitions: Saga,
        hub: Hub | None = None,
        on_stuck: Callable[[SagaRun], object] | None = None,
    ) -> None:
        super().__init__(outbox, *definitions, hub=hub, on_stuck=on_stuck)
        outbox.followers.append(self)

    # -- in the caller's transaction

    def start(
        self,
        session: Session,
        saga: Saga | str,
        data: Any = None,
        *,
        subject_id: str | None = None,
        saga_id: UUID | None = None,
        key: str | None = None,
        headers: dict[str, str] | None = None,
    ) -> UUID:
        """Begin a saga in the caller's transaction, with which it lives or dies; its id.

        `data` is JSON, and what payloads are made of. `key`, or a `saga_id` of the caller's, makes a repetition
        harmless: the saga that is there already is left alone. Of an AsyncSession, use `astart`.

        Raises ValueError for data that is not JSON, or that a step or a compensation would not take.
        """
        wired = self._find_definition(saga)
        if key is not None and saga_id is not None:
            raise ConfigurationError("give key or saga_id, not both: either names the saga")
        if saga_id is not None:
            an_id("saga_id", saga_id)
        if key is not None:
            saga_id = uuid5(_KEYS, f"{wired.saga.name}\0{text('key', key)}")
        progress = self._begin(session, wired, saga_id or new_entry_id(), subject_id, json_value("data", data), headers)
        run = progress.run
        row = {
            "saga_id": run.saga_id,
            "definition": run.definition,
            "version": run.version,
            "subject_id": run.subject_id,
            "data": run.data,
            "started_at": run.started_at,
            "deadline_at": run.deadline_at,
            **progress.values(),
        }
        if not insert_once(session, self._table, row):
            self._check_same(session, run)
            return run.saga_id
        self.outbox.enqueue(session, progress.first_entries())
        self._tell(session, progress, [Moved(SagaState.RUNNING, None), *progress.moved])
        if isinstance(self.outbox.audit_sink, JoiningSink):
            audit_at_commit(session, self.outbox.audit_sink, [progress.started(), *progress.audit()])
        return run.saga_id

    async def astart(self, session: Any, saga: Saga | str, data: Any = None, **options: Any) -> UUID:
        """The same in the transaction of an AsyncSession."""
        started: UUID = await session.run_sync(lambda inner: self.start(inner, saga, data, **options))
        return started

    def _begin(
        self,
        session: Session,
        wired: Wired,
        saga_id: UUID,
        subject_id: str | None,
        data: Any,
        headers: dict[str, str] | None,
    ) -> Progress:
        subject = str(saga_id) if subject_id is None else text("subject_id", subject_id)
        if data is not None and not isinstance(data, dict):
            raise TypeError(f"a saga's data is a dict, got {type(data).__name__}")
        self._check_data(wired, data)
        now, saga = self.outbox.now(session), wired.saga
        deadline = None if saga.deadline is None else now + saga.deadline
        steps = tuple(StepRecord(step.name) for step in wired.plan)
        run = SagaRun(
            saga_id, saga.name, saga.version, SagaState.RUNNING, subject, data, steps, None, now, now, deadline
        )
        progress = Progress(self.outbox, wired, run, now, {**origin_headers(), **(headers or {})})
        progress.take(session, machine.start(wired.plan))
        return progress

    def _check_data(self, wired: Wired, data: Any) -> None:
        """Raises ValueError for data that a step or a compensation would not take: it would fail at every attempt.

        What a payload's function makes of it is known only when the step begins.
        """
        for call in (*wired.forward.values(), *wired.backward.values()):
            operation = self.outbox.operations.find(call.operation)
            if operation is not None and not callable(call.payload):
                operation.check(call.payload_for(data, {}))

    def _check_same(self, session: Session, run: SagaRun) -> None:
        found = sa.select(self._table.c.definition).where(self._table.c.saga_id == run.saga_id)
        definition = session.execute(found.with_for_update(read=True)).scalar()
        if definition not in (None, run.definition):
            raise ConfigurationError(f"saga {run.saga_id} is there already, as a {definition!r}")

    # -- in the transaction that settles

    def follow(self, session: Session, settled: Sequence[Settlement]) -> Iterable[AuditEvent]:
        """Move the sagas whose entries these are."""
        of_sagas: defaultdict[UUID, list[Settlement]] = defaultdict(list)
        for one in settled:
            if one.entry.saga_id is not None and one.entry.step is not None:
                of_sagas[one.entry.saga_id].append(one)
        events: list[AuditEvent] = []
        for progress in self._locked(session, of_sagas):
            there: set[UUID] = set()
            those = of_sagas[progress.run.saga_id]
            progress.headers = those[0].entry.headers or {}
            for one in those:
                there |= take_settlement(session, progress, one)
            events += self._write(session, progress, there, entry_id=those[-1].entry.entry_id)
        return events

    # -- for operators

    def get(self, saga_id: UUID) -> SagaRun | None:
        """The saga of this id, if there is one. Raises ValueError for what is no UUID, as everything here does."""
        an_id("saga_id", saga_id)
        found = select_sagas(self._table).where(self._table.c.saga_id == saga_id)

        def work(session: Session) -> SagaRun | None:
            row = session.execute(found).first()
            return None if row is None else run_of(row)

        return self.outbox.run(work)

    def find(
        self,
        *,
        state: SagaState | str | None = None,
        definition: str | None = None,
        subject_id: str | None = None,
        limit: int = 100,
    ) -> Sequence[SagaRun]:
        """Sagas, the oldest first."""
        if limit <= 0:
            return ()
        column, found = self._table.c, select_sagas(self._table)
        given = {
            column.state: None if state is None else str(SagaState(state)),
            column.definition: definition,
            column.subject_id: subject_id,
        }
        for one, value in given.items():
            if value is not None:
                found = found.where(one == value)
        found = found.order_by(column.started_at, column.saga_id).limit(limit)
        return self.outbox.run(lambda session: tuple(map(run_of, session.execute(found))))

    def search(
        self,
        *,
        state: SagaState | str | None = None,
        definition: str | None = None,
        subject_id: str | None = None,
        after: SagaPosition | None = None,
        limit: int = 50,
    ) -> FoundSagas:
        """A page of sagas, the newest first, however many there are. By definition a part of them is searched at a
        time, so a page may have few, or none, and yet an `after`.

        Raises ValueError for an unknown state.
        """
        wanted = tuple(SagaState) if state is None else (SagaState(state),)
        column, chosen = self._table.c, select_sagas(self._table)
        order = column.started_at, column.saga_id
        far = [] if definition is None else [column.definition == definition]

        def work(session: Session) -> FoundSagas:
            if subject_id is not None:
                rest = far if state is None else [*far, unread(column.state) == str(wanted[0])]
                of_subject = [column.subject_id == subject_id]
                found = search(session, chosen, order, near=of_subject, far=rest, after=after, limit=limit)
                return merged([found], limit)
            # There is an index by state and time, and none by time alone.
            window = WINDOW // len(wanted)
            parts = [
                search(
                    session, chosen, order, near=[column.state == str(one)], far=far, after=after, limit=limit,
                    window=window,
                )
                for one in wanted
            ]  # fmt: skip
            return merged(parts, limit)

        return self.outbox.run(work)

    def facets(self) -> SagaFacets:
        """How many sagas there are in each state, counted up to `COUNTED`, and of which definitions the newest are."""

        def work(session: Session) -> SagaFacets:
            column = self._table.c
            by_state = {
                str(state): count_up_to(session, COUNTED, column.saga_id, where=[column.state == str(state)])
                for state in SagaState
            }
            names = {saga.name for saga in self.definitions}
            for state in SagaState:
                some = sa.select(column.definition).where(column.state == str(state))
                newest = some.order_by(column.started_at.desc(), column.saga_id.desc()).limit(_RECENT).subquery()
                names.update(session.execute(sa.select(newest.c.definition).distinct()).scalars())
            return SagaFacets(by_state, sorted(names))

        return self.outbox.run(work)

    def history(self, saga_id: UUID) -> Sequence[OutboxEntry]:
        """The entries of a saga, calls and compensations, in the order in which they were asked for."""
        an_id("saga_id", saga_id)
        outbox = self.outbox.tables.outbox
        found = sa.select(*columns_of(outbox)).where(outbox.c.saga_id == saga_id)
        steps = sa.select(self._table.c.steps).where(self._table.c.saga_id == saga_id)

        def work(session: Session) -> Sequence[OutboxEntry]:
            names = [step["name"] for step in session.execute(steps).scalar() or ()]
            places = {name: at for at, name in enumerate(names)}

            def asked_for(entry: OutboxEntry) -> Any:
                is_undo, at = entry.direction == Direction.BACKWARD, places.get(entry.step or "", 0)
                return entry.enqueued_at, is_undo, -at if is_undo else at

            return tuple(sorted(map(entry_of, session.execute(found)), key=asked_for))

        return self.outbox.run(work)

    def cancel(self, saga_id: UUID, reason: str = CANCELLED) -> bool:
        """Have a running saga undone; False if it is not running, is past its pivot, or nobody here knows it.

        While the pivot is being called the answer is True, but the saga is undone only if the pivot fails. `reason` is
        a name, not a message: it is audited.
        """
        return bool(self.outbox.run(self.cancelling(saga_id, reason)))

    def cancelling(self, saga_id: UUID, reason: str = CANCELLED) -> Work:
        """A unit of work, for `run` or `arun` of the outbox."""
        an_id("saga_id", saga_id)

        def work(session: Session) -> bool:
            for progress in self._locked(session, [saga_id]):
                idle = progress.idle(session)
                progress.take(session, machine.on_cancel(progress.plan, progress.record, reason, idle=idle))
                self._audited(session, progress)
                return progress.record.reason is not None and progress.has_changed
            return False

        return work

    def resume(self, saga_id: UUID) -> bool:
        """Try again what was given up in a stuck saga, under the same ids, with new budgets; False if it is not stuck.

        Payloads are made anew, so it does not matter that they were scrubbed.
        """
        return bool(self.outbox.run(self.resuming(saga_id)))

    def resuming(self, saga_id: UUID) -> Work:
        """A unit of work."""
        an_id("saga_id", saga_id)

        def work(session: Session) -> bool:
            rows = settled_rows(session, self.outbox, saga_id)
            for progress in self._locked(session, [saga_id]):
                if progress.record.state != SagaState.STUCK:
                    return False
                catch_up(session, progress, rows)
                progress.take(session, machine.on_resume(progress.plan, progress.record))
                self._audited(session, progress, there=rows)
                return progress.has_changed
            return False

        return work

    def resolve(self, saga_id: UUID, step: str) -> bool:
        """Take it from a person that what a stuck saga gave up in this step has been done by hand; False if it has
        given up nothing there.
        """
        an_id("saga_id", saga_id)

        def work(session: Session) -> bool:
            for progress in self._locked(session, [saga_id]):
                if step not in (one.name for one in progress.record.steps):
                    return False
                if progress.record.state == SagaState.STUCK:
                    progress.take(session, _by_hand(progress, step))
                    self._audited(session, progress)
                return progress.has_changed
            return False

        return bool(self.outbox.run(work))


def _by_hand(progress: Progress, name: str) -> machine.Change:
    step = progress.record.step(name)
    if step.state == StepState.UNRESOLVED:
        return machine.on_compensation_succeeded(progress.plan, progress.record, name, undo=step.undos)
    if step.state in (StepState.UNKNOWN, StepState.SKIPPED) and not machine.is_backward(progress.record):
        return machine.on_step_succeeded(progress.plan, progress.record, name)
    return machine.Change(progress.record)
