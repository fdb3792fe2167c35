"""Reading letters: every filter is applied in the store, before the limit."""

from __future__ import annotations

import heapq
from datetime import datetime, timedelta
from typing import Any, Final, TypedDict, Unpack

from holdfast.letters.data import FailedOperationData, cursor_of, letters_of
from holdfast.letters.desk import Desk
from holdfast.letters.values import ago, identity, size, sought
from holdfast.machine.dead_letter import ACTIVE, EVICTABLE, LETTER, PENDING, LetterRecord
from holdfast.store.codec import duration, micros
from holdfast.store.port import FOREVER
from holdfast.store.query import Condition, Where, among, outside

_SLA: Final = timedelta(hours=24)


class Sought(TypedDict, total=False):
    """Which letters are meant: those that have all of these; both ends of the time are included."""

    status: str | None
    domain: str | None
    failure_type: str | None
    entity_type: str | None
    entity_id: str | None
    user_id: int | str | None
    created_from: datetime | None
    created_to: datetime | None


class Finding(Desk):
    def get_pending_by_domain(self, domain: str, limit: int = 100) -> list[FailedOperationData]:
        """Oldest first."""
        return self._oldest(_where(status=PENDING, domain=domain), limit)

    def get_pending_count_by_domain(self, domain: str) -> int:
        return self._count(_where(status=PENDING, domain=domain))

    def find_by_status(
        self, status: str, domain: str | None = None, failure_type: str | None = None, limit: int = 100
    ) -> list[FailedOperationData]:
        """Oldest first."""
        return self._oldest(_where(status=status, domain=domain, failure_type=failure_type), limit)

    def find(
        self,
        *,
        status: str | None = None,
        domain: str | None = None,
        failure_type: str | None = None,
        offset: int = 0,
        limit: int = 100,
        entity_type: str | None = None,
        entity_id: str | None = None,
        user_id: int | str | None = None,
        created_from: datetime | None = None,
        created_to: datetime | None = None,
        after: str | None = None,
    ) -> list[FailedOperationData]:
        """Newest first, of every status unless one is given; both ends of the time are included.

        `after` is the `cursor` of the last letter of the page before, and costs the same for every page.
        """
        where = conditions(
            status=status, domain=domain, failure_type=failure_type, entity_type=entity_type, entity_id=entity_id,
            user_id=user_id, created_from=created_from, created_to=created_to,
        )  # fmt: skip
        if size(limit) == 0:
            return []
        found = self.store.page(
            LETTER, where, by="created_at", descending=True, after=cursor_of(after),
            offset=size(offset), limit=size(limit),
        )  # fmt: skip
        return letters_of(found)

    def count(
        self,
        *,
        status: str | None = None,
        domain: str | None = None,
        failure_type: str | None = None,
        entity_type: str | None = None,
        entity_id: str | None = None,
        user_id: int | str | None = None,
        created_from: datetime | None = None,
        created_to: datetime | None = None,
    ) -> int:
        """How many there are, of every status unless one is given; both ends of the time are included."""
        where = conditions(
            status=status, domain=domain, failure_type=failure_type, entity_type=entity_type, entity_id=entity_id,
            user_id=user_id, created_from=created_from, created_to=created_to,
        )  # fmt: skip
        return self._count(where)

    def count_created_in_window(self, start: datetime, end: datetime) -> int:
        """Of every status, both ends included; what was deleted since is not counted (`inflow` does)."""
        return self._count(_made(None, start, end))

    def count_all(self) -> int:
        """The active letters."""
        return self._count((among("status", ACTIVE),))

    def count_by_domain(self, domain: str) -> int:
        """The active letters of the domain."""
        return self._count((among("status", ACTIVE), *_where(domain=domain)))

    def find_replayable(
        self,
        max_retries: int,
        domain: str | None = None,
        failure_type: str | None = None,
        limit: int = 100,
        *,
        source: str | None = None,
        after: str | None = None,
    ) -> list[FailedOperationData]:
        """What may be acquired now: pending, below the cap, not waiting; oldest first.

        `source` is that of the metadata; `after` the `cursor` of the last letter of the page before.
        """
        where = _where(status=PENDING, domain=domain, failure_type=failure_type, source=source)
        ready = (Condition("not_before", "<=", self._now()), below(max_retries))
        return self._oldest((*where, *ready), limit, after)

    def find_sla_breached(
        self, current_time: datetime, sla_thresholds: dict[str, timedelta]
    ) -> list[FailedOperationData]:
        """All pending letters older than their domain's threshold, else that of "default", else 24 hours."""
        now, own = micros(current_time), {name: span for name, span in sla_thresholds.items() if name != "default"}
        rest = _older(now, sla_thresholds.get("default", _SLA))
        groups = [self._all((*_where(status=PENDING), rest, outside("domain", own)))]
        groups += [self._all((*_where(status=PENDING, domain=name), _older(now, span))) for name, span in own.items()]
        return letters_of(heapq.merge(*groups, key=lambda letter: (letter.created_at, letter.id)))

    def get_expired_operations(self, before_date: datetime, limit: int = 100) -> list[FailedOperationData]:
        """Of every status, those that expired strictly before; the longest expired first."""
        where = (Condition("expires_at", "<", micros(before_date)),)
        if size(limit) == 0:
            return []
        return letters_of(self.store.page(LETTER, where, by="expires_at", limit=size(limit)))

    def find_expired(self, current_time: datetime) -> list[FailedOperationData]:
        """As `get_expired_operations`, all of them."""
        return self.get_expired_operations(current_time, FOREVER)

    def get_oldest_ids(self, count: int, domain: str | None = None) -> list[str]:
        """The ids that eviction would take, oldest first."""
        return [letter.id for letter in self._evictable(size(count), domain)]

    def _evictable(self, count: int, domain: str | None) -> list[LetterRecord]:
        where = (among("status", EVICTABLE), *_where(domain=domain))
        return self.store.page(LETTER, where, by="created_at", limit=count) if count else []

    def _oldest(self, where: Where, limit: int, after: str | None = None) -> list[FailedOperationData]:
        cursor = cursor_of(after)
        if size(limit) == 0:
            return []
        return letters_of(self.store.page(LETTER, where, by="created_at", after=cursor, limit=size(limit)))

    def _all(self, where: Where) -> list[LetterRecord]:
        return self.store.page(LETTER, where, by="created_at", limit=FOREVER)

    def _count(self, where: Where) -> int:
        return sum(self.store.tally(LETTER, (), where).values())


def below(max_retries: int) -> Condition:
    """A letter that a caller with this cap may acquire."""
    return Condition("retry_count", "<", min(max_retries, FOREVER))


def conditions(**wanted: Unpack[Sought]) -> Where:
    """What `find` is asked for, as conditions; None is no filter. Raises TypeError for a filter that there is not."""
    if strange := wanted.keys() - Sought.__annotations__.keys():
        # One that is misspelt must not mean every letter.
        raise TypeError(f"letters have no {strange.pop()!r} to be found by")
    texts = {name: wanted.get(name) for name in ("status", "domain", "failure_type", "entity_type", "entity_id")}
    return _where(**texts) + _made(wanted.get("user_id"), wanted.get("created_from"), wanted.get("created_to"))


def _where(**values: Any) -> Where:
    """Exact matches; None is no filter."""
    return tuple([Condition(name, "=", sought(name, value)) for name, value in values.items() if value is not None])


def _made(user_id: Any, start: datetime | None, end: datetime | None) -> Where:
    if user_id is start is end is None:
        return ()
    where: list[Condition] = []
    if user_id is not None:
        where.append(Condition("user_id", "=", identity("user_id", user_id)))
    if start is not None:
        where.append(Condition("created_at", ">=", micros(start)))
    if end is not None:
        where.append(Condition("created_at", "<=", micros(end)))
    return tuple(where)


def _older(now: int, span: timedelta) -> Condition:
    return Condition("created_at", "<", ago(now, duration(span), 1))
