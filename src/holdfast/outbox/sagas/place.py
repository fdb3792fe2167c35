"""What all work on sagas shares: the definitions, a saga under its lock, and what is told of it."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from typing import Any, Final
from uuid import UUID

from sqlalchemy.orm import Session

from holdfast.audit.event import AuditEvent
from holdfast.errors import ConfigurationError
from holdfast.machine import saga as machine
from holdfast.machine.saga import Plan, SagaState
from holdfast.outbox.events import SagaMoved
from holdfast.outbox.outbox import Outbox
from holdfast.outbox.runner_errors import error_name
from holdfast.outbox.sagas.after import call_after_commit
from holdfast.outbox.sagas.definition import Saga, Wired, wire
from holdfast.outbox.sagas.progress import Moved, Progress
from holdfast.outbox.sagas.rows import SagaRun, run_of, select_sagas
from holdfast.outbox.settle import write_events
from holdfast.telemetry.hub import Hub, default_hub

_log: Final = logging.getLogger("holdfast.outbox")
Work = Callable[[Session], Any]
"""A unit of work, for `run` or `arun` of the outbox."""


class SagaPlace:
    """The sagas of one outbox."""

    def __init__(
        self,
        outbox: Outbox,
        *definitions: Saga,
        hub: Hub | None = None,
        on_stuck: Callable[[SagaRun], object] | None = None,
    ) -> None:
        self.outbox = outbox
        self._hub = default_hub() if hub is None else hub
        self._on_stuck = on_stuck
        self._wired: dict[tuple[str, int], Wired] = {}
        self._table = outbox.tables.sagas
        for definition in definitions:
            self.register(definition)

    def register(self, saga: Saga) -> Saga:
        """Make a definition known, and register the operations that it brings along.

        Raises ConfigurationError for an operation that nobody registered, and for another definition of the same name
        and version.
        """
        key = saga.name, saga.version
        known = self._wired.get(key)
        if known is None:
            self._wired[key] = wire(saga, self.outbox.operations)
        elif known.saga != saga:
            raise ConfigurationError(
                f"saga {saga.name!r} has another version {saga.version} already; count the version up when steps change"
            )
        return saga

    @property
    def definitions(self) -> tuple[Saga, ...]:
        """Those that are known here."""
        return tuple(wired.saga for wired in self._wired.values())

    def knows(self, run: SagaRun) -> bool:
        """Whether this process has the definition of a saga, and so can move it."""
        wired = self._wired.get((run.definition, run.version))
        return wired is not None and wired.names == tuple(step.name for step in run.steps)

    def is_sensitive(self, run: SagaRun) -> bool:
        """Whether its data are nobody's to read: of one that this process does not know, too."""
        return not self.knows(run) or self._wired[run.definition, run.version].sensitive

    def plan_of(self, run: SagaRun) -> Plan | None:
        """The steps as the definition has them; None if this process does not have it."""
        return self._wired[run.definition, run.version].plan if self.knows(run) else None

    def _find_definition(self, saga: Saga | str) -> Wired:
        """Of a name, the highest version."""
        if isinstance(saga, Saga):
            self.register(saga)
            return self._wired[saga.name, saga.version]
        versions = [version for name, version in self._wired if name == saga]
        if not versions:
            known = ", ".join(sorted({name for name, _ in self._wired})) or "none"
            raise ConfigurationError(f"there is no saga {saga!r}; known: {known}")
        return self._wired[saga, max(versions)]

    def _locked(self, session: Session, ids: Iterable[UUID]) -> Iterator[Progress]:
        """These sagas, locked in the order of their ids; those that nobody here knows are passed over."""
        wanted = sorted(set(ids))
        if not wanted:
            return
        found = select_sagas(self._table).where(self._table.c.saga_id.in_(wanted)).order_by(self._table.c.saga_id)
        rows = session.execute(found.with_for_update()).all()
        now = self.outbox.now(session) if rows else None
        for row in rows:
            run = run_of(row)
            if not self.knows(run):
                _log.warning("saga %s waits: nobody here knows %s %d", run.saga_id, run.definition, run.version)
            elif now is not None:
                yield Progress(self.outbox, self._wired[run.definition, run.version], run, now)

    def _write(
        self, session: Session, progress: Progress, there: Iterable[UUID] = (), entry_id: UUID | None = None
    ) -> list[AuditEvent]:
        events = progress.write(session, there=set(there)) + progress.audit(entry_id)
        self._tell(session, progress, progress.moved)
        return events

    def _tell(self, session: Session, progress: Progress, moved: Sequence[Moved]) -> None:
        """Once it is committed: telemetry, and whoever wants to know of a stuck saga."""
        if not moved:
            return
        run, record = progress.run, progress.record
        after = replace(run, state=record.state, steps=record.steps, reason=machine.why(record))

        def tell() -> None:
            for state, reason in moved:
                self._hub.emit(SagaMoved(run.definition, "", str(run.saga_id), str(state), reason))
            if moved[-1].state == SagaState.STUCK and self._on_stuck is not None:
                try:
                    self._on_stuck(after)
                except Exception as error:  # the saga is stuck whatever a hook makes of it
                    _log.warning("on_stuck failed for saga %s: %s", run.saga_id, error_name(error))

        call_after_commit(session, tell)

    def _audited(self, session: Session, progress: Progress, there: Iterable[UUID] = ()) -> None:
        write_events(session, self.outbox.audit_sink, self._write(session, progress, there))
