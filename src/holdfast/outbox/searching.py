"""Looking into an outbox of millions of entries, for a screen: pages, and numbers that are counted only so far."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from datetime import datetime
from typing import Any, Final, NamedTuple, Unpack
from uuid import UUID

import sqlalchemy as sa
from sqlalchemy.orm import Session

from holdfast.audit.searching import WINDOW, count_up_to, search
from holdfast.machine.outbox_entry import CLAIMABLE, OutboxStatus
from holdfast.outbox.checks import an_id
from holdfast.outbox.draft import DEFAULT_QUEUE
from holdfast.outbox.entry import OutboxEntry
from holdfast.outbox.finding import Finding, Wanted, statuses_of
from holdfast.outbox.queues import PausedQueue, Queues
from holdfast.outbox.rows import entry_of, status_of

COUNTED: Final = 10_000
_RECENT: Final = 1_000
_MOST_QUEUES: Final = 100


class FoundEntries(NamedTuple):
    """A page of entries. `after` is where the search goes on, None if there is nothing more to be searched."""

    entries: Sequence[OutboxEntry]
    after: UUID | None


class QueueState(NamedTuple):
    """A queue in use, or paused. `waiting` is counted up to `COUNTED`."""

    queue: str
    waiting: int
    oldest_due: datetime | None
    paused: PausedQueue | None


class Facets(NamedTuple):
    """How many entries there are, and what there is to filter by. Of the statuses in `at_least` there may be more."""

    by_status: dict[str, int]
    at_least: frozenset[str]
    queues: Sequence[QueueState]
    operations: Sequence[str]
    targets: Sequence[str]
    errors: Sequence[str]
    now: datetime


class Searching(Finding, Queues):
    """Each of these takes about as long with a million entries as with a thousand."""

    def search(self, *, limit: int = 50, after: UUID | None = None, **wanted: Unpack[Wanted]) -> FoundEntries:
        """A page of entries, the newest first. What no index finds is searched for in a part of the entries at a time,
        so a page may have few entries, or none, and yet an `after`.

        Raises ValueError for an unknown status, and for ids that are no UUIDs.
        """
        if after is not None:
            an_id("after", after)

        def work(session: Session) -> FoundEntries:
            id, conditions = self.tables.outbox.c.entry_id, self._where(wanted)
            if ways := self._short_ways(session, wanted):
                beyond = () if after is None else (id < after,)
                # The limit keeps a planner from walking along all entries in their order to save the sorting.
                matching = [sa.select(id).where(way, *conditions, *beyond) for way in ways]
                some = sa.union_all(*matching).limit(len(ways) * WINDOW).subquery()
                newest = sa.select(some.c.entry_id).order_by(some.c.entry_id.desc()).limit(limit + 1)
                conditions = [id.in_(session.execute(newest).scalars().all())]
                found = search(session, self._select(), (id,), near=conditions, limit=limit)
            else:
                start = None if after is None else (after,)
                found = search(session, self._select(), (id,), far=conditions, after=start, limit=limit)
            return FoundEntries(tuple(map(entry_of, found.rows)), None if found.until is None else found.until[0])

        return self.sessions.run(work, reads=True)

    def facets(self) -> Facets:
        """How many entries there are in each status, the queues that are in use, and what recent entries are about."""

        def work(session: Session) -> Facets:
            now = self.now(session)
            numbers, at_least = self._numbers(session)
            paused = {one.queue: one for one in self._paused(session)}
            names = sorted({DEFAULT_QUEUE, *paused, *self._queues(session)})[:_MOST_QUEUES]
            queues = [self._queue(session, name, paused.get(name)) for name in names]
            return Facets(numbers, at_least, queues, *self._recent(session), now)

        return self.sessions.run(work, reads=True)

    def _short_ways(self, session: Session, wanted: Wanted) -> list[Any]:
        """The conditions by which indexes lead to all that can match, to some by each, if that is no more than a part
        of the entries. SQLite does not see by itself that two indexes hold all live ones.
        """
        row, statuses = self.tables.outbox.c, statuses_of(wanted.get("status"))
        ways: list[Any] = []
        if wanted.get("saga_id") is not None:
            ways = [row.saga_id == wanted.get("saga_id")]
        elif wanted.get("subject_id") is not None:
            ways = [row.subject_id == wanted.get("subject_id")]
        elif statuses is not None and OutboxStatus.SUCCEEDED not in statuses and wanted.get("key") is not None:
            ways = [row.order_key == wanted.get("key")]
        elif statuses is not None and statuses <= CLAIMABLE:
            ways = [row.fresh_at.is_not(None), row.gate_at.is_not(None)]
        elif statuses == frozenset({OutboxStatus.ABANDONED}):
            ways = [_IS_ABANDONED]
        few = all(count_up_to(session, WINDOW + 1, row.entry_id, where=[way]) <= WINDOW for way in ways)
        return ways if few else []

    def _numbers(self, session: Session) -> tuple[dict[str, int], frozenset[str]]:
        row = self.tables.outbox.c
        numbers: Counter[OutboxStatus] = Counter()
        at_least: set[OutboxStatus] = set()
        for there in (row.fresh_at, row.gate_at):
            some = sa.select(row.status).where(there.is_not(None)).limit(COUNTED).subquery()
            found = session.execute(sa.select(some.c.status, sa.func.count()).group_by(some.c.status)).all()
            numbers.update({status_of(status): int(number) for status, number in found})
            if sum(number for _, number in found) >= COUNTED:
                at_least |= CLAIMABLE
        given_up = count_up_to(session, COUNTED, row.entry_id, where=[_IS_ABANDONED])
        if given_up >= COUNTED:
            at_least.add(OutboxStatus.ABANDONED)
        numbers[OutboxStatus.ABANDONED] = given_up
        if at_least:
            at_least.add(OutboxStatus.SUCCEEDED)
            numbers[OutboxStatus.SUCCEEDED] = self._recent_successes(session)
        else:
            # Succeeded entries are in no index of their own: they are what is left of all.
            rest = count_up_to(session, COUNTED + numbers.total(), row.entry_id) - numbers.total()
            numbers[OutboxStatus.SUCCEEDED] = max(0, rest)
            if rest >= COUNTED:
                at_least.add(OutboxStatus.SUCCEEDED)
        return {str(status): numbers[status] for status in OutboxStatus}, frozenset(map(str, at_least))

    def _recent_successes(self, session: Session) -> int:
        row = self.tables.outbox.c
        some = sa.select(row.status).order_by(row.entry_id.desc()).limit(COUNTED).subquery()
        succeeded = sa.select(sa.func.count()).where(some.c.status == str(OutboxStatus.SUCCEEDED))
        return int(session.execute(succeeded).scalar() or 0)

    def _queues(self, session: Session) -> Iterator[str]:
        """The queues of entries that have not ended, found by one look into an index for each."""
        row = self.tables.outbox.c
        for there in (row.fresh_at, row.gate_at):
            last: str | None = None
            for _ in range(_MOST_QUEUES):
                beyond = [there.is_not(None), *(() if last is None else (row.queue > last,))]
                first = sa.select(row.queue).where(*beyond).order_by(row.queue).limit(1)
                last = session.execute(first).scalar()
                if last is None:
                    break
                yield last

    def _queue(self, session: Session, name: str, paused: PausedQueue | None) -> QueueState:
        row = self.tables.outbox.c
        waiting = sum(
            count_up_to(session, COUNTED, row.entry_id, where=[row.queue == name, there.is_not(None)])
            for there in (row.fresh_at, row.gate_at)
        )
        return QueueState(name, min(waiting, COUNTED), self._oldest_due(session, name), paused)

    def _recent(self, session: Session) -> tuple[list[str], list[str], list[str]]:
        row = self.tables.outbox.c
        some = sa.select(row.operation, row.resolver, row.last_error).order_by(row.entry_id.desc()).limit(_RECENT)
        found = session.execute(sa.select(some.subquery()).distinct()).all()
        columns = zip(*found, strict=True) if found else ((), (), ())
        operations, targets, errors = (sorted({value for value in column if value}) for column in columns)
        return operations, targets, errors


_IS_ABANDONED: Final = sa.text(f"status = '{OutboxStatus.ABANDONED}'")
