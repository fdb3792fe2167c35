"""Whole queues: stop and start them, and see how far behind they are."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Any, NamedTuple

import sqlalchemy as sa
from sqlalchemy.exc import IntegrityError
from sqlalchemy.orm import Session

from holdfast.machine.outbox_entry import OutboxStatus
from holdfast.outbox.checks import maybe_text, text
from holdfast.outbox.counts import SqlStatusCountsSource, count_statuses
from holdfast.outbox.draft import DEFAULT_QUEUE, LARGEST_PAYLOAD
from holdfast.outbox.place import Place
from holdfast.outbox.rows import in_utc
from holdfast.outbox.wake import wake_in


class PausedQueue(NamedTuple):
    """A queue from which nothing is claimed."""

    queue: str
    paused_at: datetime
    paused_by: str | None
    reason: str | None


class Queues(Place):
    """A paused queue takes entries, and gives none."""

    def pause(self, queue: str = DEFAULT_QUEUE, *, by: str | None = None, reason: str | None = None) -> bool:
        """Claim nothing from this queue until it is resumed; calls that run go on. False if it was paused already."""
        text("queue", queue, 64)
        maybe_text("by", by, LARGEST_PAYLOAD)
        maybe_text("reason", reason, LARGEST_PAYLOAD)
        cut = {"paused_by": by and by[:255], "reason": reason and reason[:255]}
        table = self.tables.queues

        def work(session: Session) -> bool:
            there = sa.select(table.c.queue).where(table.c.queue == queue)
            if session.execute(there).scalar() is not None:
                return False
            session.execute(table.insert(), {"queue": queue, "paused_at": self.now(session), **cut})
            return True

        try:
            return self.run(work)
        except IntegrityError:  # somebody else was quicker
            return False

    def resume(self, queue: str = DEFAULT_QUEUE) -> bool:
        """Let it be claimed from again. False if it was not paused."""
        table = self.tables.queues

        def work(session: Session) -> bool:
            gone: Any = session.execute(table.delete().where(table.c.queue == queue))
            if gone.rowcount:
                wake_in(session, self.tables.outbox.name, self.signals)
            return bool(gone.rowcount)

        return self.run(work)

    def paused(self) -> tuple[PausedQueue, ...]:
        """The queues that are paused, by name."""
        return self.run(self._paused)

    def _paused(self, session: Session) -> tuple[PausedQueue, ...]:
        row = self.tables.queues.c
        found = sa.select(row.queue, row.paused_at, row.paused_by, row.reason).order_by(row.queue)
        return tuple(PausedQueue(one, in_utc(at) or at, by, why) for one, at, by, why in session.execute(found))

    def oldest_due(self, queue: str = DEFAULT_QUEUE) -> datetime | None:
        """Since when the entry that has waited longest for its call could have been called; None if none waits."""
        return self.run(lambda session: self._oldest_due(session, queue))

    def lag(self, queue: str = DEFAULT_QUEUE) -> timedelta:
        """How long the entry that has waited longest for its call has waited."""

        def work(session: Session) -> timedelta:
            since = self._oldest_due(session, queue)
            return timedelta(0) if since is None else max(timedelta(0), self.now(session) - since)

        return self.run(work)

    def _oldest_due(self, session: Session, queue: str) -> datetime | None:
        row, now = self.tables.outbox.c, self.now(session)
        fresh = sa.select(sa.func.min(row.fresh_at)).where(row.queue == queue, row.fresh_at.is_not(None))
        gated = sa.select(sa.func.min(row.gate_at)).where(row.queue == queue, row.gate_at <= now)
        found = [in_utc(session.execute(one).scalar()) for one in (fresh, gated)]
        return min((at for at in found if at is not None), default=None)

    def status_counts(self) -> dict[OutboxStatus, int]:
        """How many entries there are in each status, those without any included.

        Raises ValueError for a row whose status nobody knows.
        """
        if type(self._counts) is SqlStatusCountsSource:
            return self.run(lambda session: count_statuses(session, self.tables.outbox))
        return self._counts.status_counts(self.tables.outbox, self.sessions.factory)
