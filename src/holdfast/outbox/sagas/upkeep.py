"""What a worker does for sagas from time to time."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from typing import Final
from uuid import UUID

import sqlalchemy as sa
from sqlalchemy.orm import Session

from holdfast.machine import saga as machine
from holdfast.machine.outbox_entry import TERMINAL
from holdfast.machine.saga import ACTIVE
from holdfast.outbox.runner_errors import error_name
from holdfast.outbox.sagas.catching_up import catch_up, settled_rows
from holdfast.outbox.sagas.place import SagaPlace, Work

_log: Final = logging.getLogger("holdfast.outbox")


class SagaUpkeep(SagaPlace):
    """Deadlines, and sagas that were left behind."""

    def sweep_deadlines(self, limit: int = 100) -> int:
        """Undo sagas whose time is over; how many there were."""
        return self._each(self.overdue(limit), self.expiring)

    def catch_up(self, limit: int = 100) -> int:
        """Move sagas whose entries were settled by processes that do not know them; how many there were.

        Nothing waits to be called for such a saga, though it has not ended.
        """
        return self._each(self.left_behind(limit), self.catching_up)

    def _each(self, those: Work, unit: Callable[[UUID], Work]) -> int:
        number = 0
        if not self._wired:  # a program without sagas of its own leaves those of others alone
            return number
        for saga_id in self.outbox.run(those):
            try:
                number += bool(self.outbox.run(unit(saga_id)))
            except Exception as error:  # the others must not wait for this one
                _log.warning("saga %s could not be moved: %s", saga_id, error_name(error))
        return number

    def overdue(self, limit: int = 100) -> Work:
        """A unit of work that gives the ids of sagas whose time is over."""
        column = self._table.c

        def work(session: Session) -> Sequence[UUID]:
            late = sa.select(column.saga_id).where(column.deadline_at <= self.outbox.now(session))
            return session.execute(late.order_by(column.deadline_at).limit(limit)).scalars().all()

        return work

    def expiring(self, saga_id: UUID) -> Work:
        """A unit of work that undoes a saga whose time is over."""

        def work(session: Session) -> bool:
            for progress in self._locked(session, [saga_id]):
                if progress.run.deadline_at is None or progress.run.deadline_at > self.outbox.now(session):
                    return False
                progress.expires = False
                idle = progress.idle(session)
                progress.take(session, machine.on_deadline(progress.plan, progress.record, idle=idle))
                self._audited(session, progress)
                return True
            return False

        return work

    def left_behind(self, limit: int = 100) -> Work:
        """A unit of work that gives the ids of active sagas for which nothing is to be called."""
        column, row = self._table.c, self.outbox.tables.outbox.c
        ended = [str(one) for one in sorted(TERMINAL)]
        live = sa.select(sa.literal(1)).where(row.saga_id == column.saga_id, row.status.not_in(ended)).exists()
        names = sorted({name for name, _ in self._wired})
        still = sa.select(column.saga_id).where(
            column.state.in_([str(one) for one in sorted(ACTIVE)]), column.definition.in_(names), ~live
        )
        return lambda session: session.execute(still.order_by(column.started_at).limit(limit)).scalars().all()

    def catching_up(self, saga_id: UUID) -> Work:
        """A unit of work."""

        def work(session: Session) -> bool:
            rows = settled_rows(session, self.outbox, saga_id)
            for progress in self._locked(session, [saga_id]):
                catch_up(session, progress, rows)
                self._audited(session, progress)
                return progress.has_changed
            return False

        return work
