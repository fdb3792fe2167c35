"""Taking out what has ended well and is old."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import timedelta
from typing import Any
from uuid import UUID

import sqlalchemy as sa
from sqlalchemy.orm import Session

from holdfast.machine.outbox_entry import OutboxStatus
from holdfast.machine.saga import ENDED
from holdfast.outbox.checks import span
from holdfast.outbox.draft import PUBLISH
from holdfast.outbox.entry import OutboxEntry
from holdfast.outbox.place import AT_A_TIME, Place
from holdfast.outbox.rows import entry_of

Archive = Callable[[Session, Sequence[OutboxEntry]], None]


class Retention(Place):
    """Abandoned entries, unverified ones and audit events stay."""

    def prune(self, older_than: timedelta, *, limit: int | None = None, archive: Archive | None = None) -> int:
        """Delete succeeded entries that are older, of groups and sagas that are complete, chunk by chunk; how many.

        `archive(session, entries)` is called with what goes, in the transaction in which it goes.
        """
        span("older_than", older_than)
        gone, after = 0, None
        while limit is None or gone < limit:
            size = AT_A_TIME if limit is None else min(AT_A_TIME, limit - gone)
            ids = self.run(self._pruning(older_than, size, after, archive))
            gone += len(ids)
            if len(ids) < size:
                break
            after = ids[-1]  # what was kept before it is not looked at again
        return gone

    def prunable(self, older_than: timedelta) -> int:
        """How many entries `prune` would delete now."""
        span("older_than", older_than)
        number = sa.func.count(self.tables.outbox.c.entry_id)

        def work(session: Session) -> int:
            old = self._old(self.now(session) - older_than)
            return int(session.execute(old.with_only_columns(number)).scalar_one())

        return self.sessions.run(work, reads=True)

    def _pruning(
        self, older_than: timedelta, size: int, after: UUID | None, archive: Archive | None
    ) -> Callable[[Session], Sequence[UUID]]:
        outbox, attempts = self.tables.outbox, self.tables.attempts

        def work(session: Session) -> Sequence[UUID]:
            old = self._old(self.now(session) - older_than)
            if after is not None:
                old = old.where(outbox.c.entry_id > after)
            page = old.order_by(outbox.c.entry_id).limit(size)
            entries = [entry_of(row) for row in session.execute(page)]
            ids = [entry.entry_id for entry in entries]
            if ids:
                if archive is not None:
                    archive(session, entries)
                session.execute(attempts.delete().where(attempts.c.entry_id.in_(ids)))
                session.execute(outbox.delete().where(outbox.c.entry_id.in_(ids)))
            return ids

        return work

    def _old(self, before: Any) -> Any:
        row = self.tables.outbox.c
        alone = {PUBLISH} | {one.name for one in self.operations if not one.grouped}
        return self._select().where(
            row.status == str(OutboxStatus.SUCCEEDED),
            sa.func.coalesce(row.last_attempt_at, row.enqueued_at) < before,
            sa.or_(row.verification.is_(None), row.verification == "confirmed"),
            sa.or_(row.operation.in_(sorted(alone)), ~self._unfinished_group()),
            sa.or_(row.saga_id.is_(None), ~self._unfinished_saga()),
        )

    def _unfinished_group(self) -> Any:
        row, other = self.tables.outbox.c, self.tables.outbox.alias("other")
        same_saga = sa.or_(other.c.saga_id == row.saga_id, sa.and_(other.c.saga_id.is_(None), row.saga_id.is_(None)))
        return _exists(
            other.c.subject_id == row.subject_id,
            other.c.operation == row.operation,
            same_saga,
            other.c.status != str(OutboxStatus.SUCCEEDED),
        )

    def _unfinished_saga(self) -> Any:
        """Its steps' results are still asked for."""
        row, sagas = self.tables.outbox.c, self.tables.sagas
        return _exists(sagas.c.saga_id == row.saga_id, sagas.c.state.not_in([str(one) for one in sorted(ENDED)]))


def _exists(*conditions: Any) -> Any:
    return sa.select(sa.literal_column("1")).where(*conditions).exists()
