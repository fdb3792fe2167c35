"""How many entries there are in each status."""

from __future__ import annotations

from typing import Any, Protocol, runtime_checkable

import sqlalchemy as sa
from sqlalchemy.orm import Session

from holdfast.machine.outbox_entry import OutboxStatus
from holdfast.outbox.rows import status_of


@runtime_checkable
class StatusCountsSource(Protocol):
    """Someone who counts entries: every status is in the result, with 0 where there is none."""

    def status_counts(self, outbox: sa.Table, session_factory: Any) -> dict[OutboxStatus, int]: ...


class SqlStatusCountsSource:
    """One grouped query."""

    def status_counts(self, outbox: sa.Table, session_factory: Any) -> dict[OutboxStatus, int]:
        """Raises ValueError for a row whose status nobody knows."""
        with session_factory() as session:
            return count_statuses(session, outbox)


def count_statuses(session: Session, outbox: sa.Table) -> dict[OutboxStatus, int]:
    """Raises ValueError for a row whose status nobody knows."""
    grouped = sa.select(outbox.c.status, sa.func.count()).group_by(outbox.c.status)
    found = {status_of(status): int(number) for status, number in session.execute(grouped)}
    return {status: found.get(status, 0) for status in OutboxStatus}
