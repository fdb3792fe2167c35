"""The store in this process's memory: the reference for what the verbs mean, and the store of tests.

Nothing survives the process. Records are immutable, so nothing handed in or out aliases the store.
"""

from __future__ import annotations

import heapq
import logging
import threading
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import islice, product
from operator import itemgetter
from typing import Any, Final

from holdfast.backends.sorted import Key, SortedKeys
from holdfast.core.clock import SYSTEM_CLOCK, Clock
from holdfast.store.codec import micros
from holdfast.store.port import Change, Delete, Insert, Swap, conflict, counted, summed
from holdfast.store.query import ANY, Cursor, Where, kind_has, matcher
from holdfast.store.record import Index, Kind, R, Record, Value, evolve

_LOG: Final = logging.getLogger("holdfast.store")
_Step = tuple[Any, Any]
"""What a change made of a table: the record that came, or None, and the one that went, or None."""


class MemoryStore:
    """See the module's docstring. `clock` is for tests."""

    def __init__(self, clock: Clock = SYSTEM_CLOCK) -> None:
        self._clock = clock
        self._lock = threading.RLock()
        self._tables: dict[str, _Table] = {}
        self._subscriptions: list[_Subscription] = []

    @property
    def url(self) -> str:
        return "memory://"

    def now(self) -> int:
        return micros(self._clock.wall())

    def get(self, kind: Kind[R], ids: Sequence[str]) -> list[R | None]:
        with self._lock:
            rows = self._table(kind).rows
            return [rows.get(id) for id in ids]

    def commit(self, changes: Sequence[Change], *, wake: str | None = None, connection: Any = None) -> None:
        if connection is not None:
            raise TypeError("memory:// has no transactions to join; leave connection= out, or use an SQL store")
        with self._lock:
            self._make(changes)
        if wake is not None:
            self._wake(wake)

    def claim(
        self, kind: Kind[R], where: Where, decide: Callable[[R], R | None], *, by: str = "due_at", limit: int
    ) -> list[R]:
        with self._lock:
            changed: list[R] = []
            swaps: list[Change] = []
            for record in self._table(kind).scan(where, by, False, None):
                if len(changed) >= limit:
                    break
                if (answer := decide(record)) is not None:
                    changed.append(answer)
                    swaps.append(Swap(kind, record, answer))
            self._make(swaps)
            return changed

    def page(
        self,
        kind: Kind[R],
        where: Where = ANY,
        *,
        by: str = "id",
        descending: bool = False,
        after: Cursor | None = None,
        offset: int = 0,
        limit: int = 100,
    ) -> list[R]:
        first = max(0, offset)
        with self._lock:
            found = self._table(kind).scan(where, by, descending, after)
            return list(islice(found, first, first + max(0, limit)))

    def tally(
        self, kind: Kind[Any], by: Sequence[str] = (), where: Where = ANY, *, arrivals: bool = False
    ) -> dict[tuple[Any, ...], int]:
        with self._lock:
            table = self._table(kind)
            if arrivals or counted(kind, by, where):
                fields, counts = (kind.arrivals, table.arrived) if arrivals else (kind.tally, table.counts)
                return summed(fields, counts.items(), by, where)
            kind_has(kind, by)
            groups = Counter(
                tuple(row[kind.positions[name]] for name in by)
                for row in filter(matcher(kind, where), table.rows.values())
            )
            return dict(groups)

    def sweep(
        self,
        kind: Kind[Any],
        where: Where,
        change: Mapping[str, Value] | None = None,
        *,
        by: str = "id",
        limit: int | None = None,
    ) -> int:
        kind_has(kind, change or ())
        with self._lock:
            found = self._table(kind).scan(where, by, False, None)
            steps: list[Change] = [
                Delete(kind, record) if change is None else Swap(kind, record, evolve(record, **change))
                for record in islice(found, None if limit is None else max(0, limit))
            ]
            self._make(steps)
            return len(steps)

    def subscribe(self, topic: str, callback: Callable[[], object]) -> _Subscription:
        subscription = _Subscription(self._subscriptions, topic, callback)
        self._subscriptions.append(subscription)
        return subscription

    def ping(self) -> None:
        """Always there."""

    def close(self) -> None:
        """There is nothing to let go of; the records stay as long as the store."""

    def _table(self, kind: Kind[Any]) -> _Table:
        table = self._tables.get(kind.name)
        if table is None:
            table = self._tables[kind.name] = _Table(kind)
        return table

    def _make(self, changes: Sequence[Change]) -> None:
        """Make all the changes, or none. The caller holds the lock."""
        done: list[tuple[_Table, _Step]] = []
        lost: list[int] = []
        for at, change in enumerate(changes):
            table = self._table(change.kind)
            if (step := table.make(change)) is not None:
                done.append((table, step))
            else:
                lost.append(at)
        if lost:
            for table, step in reversed(done):
                table.undo(step)
            raise conflict(changes, lost)

    def _wake(self, topic: str) -> None:
        for subscription in [one for one in tuple(self._subscriptions) if one.topic == topic]:
            try:
                subscription.callback()
            except Exception:  # the commit is done, and another's failure is no news for whoever made it
                _LOG.exception("a subscriber of %s failed", topic)


class _Subscription:
    is_prompt = True

    def __init__(self, all: list[_Subscription], topic: str, callback: Callable[[], object]) -> None:
        self._all = all
        self.topic = topic
        self.callback = callback

    def close(self) -> None:
        try:
            self._all.remove(self)
        except ValueError:
            pass  # closed before


class _Table:
    """The records of one kind, with their indexes and counters."""

    def __init__(self, kind: Kind[Any]) -> None:
        self.kind = kind
        self.rows: dict[str, Any] = {}
        self.counts: Counter[tuple[Any, ...]] = Counter()
        self.arrived: Counter[tuple[Any, ...]] = Counter()
        self._unique: dict[str, dict[Any, str]] = {name: {} for name in kind.unique}
        self._indexes: dict[Index, defaultdict[tuple[Any, ...], SortedKeys]] = {
            index: defaultdict(SortedKeys) for index in (*kind.indexes, Index((), "id"))
        }
        at = kind.positions
        self._places = {index: (tuple(at[name] for name in index.equal), at[index.by]) for index in self._indexes}
        self._read = {index: itemgetter(*equal, by) for index, (equal, by) in self._places.items()}
        self._born = None if kind.born is None else at[kind.born]
        self._counted = tuple(at[name] for name in kind.tally)
        self._arriving = tuple(at[name] for name in kind.arrivals)

    def make(self, change: Change) -> _Step | None:
        """Make one change; None if it conflicts with what is here."""
        if isinstance(change, Insert):
            record: Record = change.record
            if record.id in self.rows or self._taken(record, None):
                return None
            self._put(record)
            if self._arriving:
                self.arrived[tuple(record[at] for at in self._arriving)] += 1  # type: ignore[index]  # a NamedTuple
            return record, None
        old = change.old if isinstance(change, Swap) else change.record
        stored = self.rows.get(old.id)
        if stored is None or stored.version != old.version:
            return None
        if self._born is not None and stored[self._born] != old[self._born]:  # type: ignore[index]  # a NamedTuple
            return None
        if isinstance(change, Delete):
            self._drop(stored)
            return None, stored
        if self._taken(change.new, old.id):
            return None
        self._replace(stored, change.new)
        return change.new, stored

    def undo(self, step: _Step) -> None:
        came, went = step
        if came is not None and went is not None:
            self._replace(came, went)
        elif went is not None:
            self._put(went)
        elif came is not None:
            self._drop(came)
            if self._arriving:
                self.arrived[tuple(came[at] for at in self._arriving)] -= 1

    def scan(self, where: Where, by: str, descending: bool, after: Cursor | None) -> Iterator[Any]:
        """The matching records in the order of `(by, id)`, read from the index that narrows most."""
        kind_has(self.kind, (by,))
        matches, rows = matcher(self.kind, where), self.rows
        keys = self._keys(where, by, descending, None if after is None else (after.value, after.id))
        return (record for _, id in keys if matches(record := rows[id]))

    def _keys(self, where: Where, by: str, descending: bool, after: Key | None) -> Iterator[Key]:
        given = {c.field: (c.value,) if c.operator == "=" else c.value for c in where if c.operator in ("=", "in")}
        usable = [index for index in self._indexes if index.by == by and given.keys() >= set(index.equal)]
        if not usable:
            at = self.kind.positions[by]
            keys = sorted(((row[at], row.id) for row in self.rows.values() if row[at] is not None), reverse=descending)
            beyond = (lambda key: key < after) if descending else (lambda key: key > after)
            return iter(keys) if after is None else filter(beyond, keys)
        index = max(usable, key=lambda index: len(index.equal))
        groups = self._indexes[index]
        lists = [groups[values] for values in product(*(set(given[name]) for name in index.equal)) if values in groups]
        if descending:
            return heapq.merge(*(keys.descending(after) for keys in lists), reverse=True)
        return heapq.merge(*(keys.ascending(after) for keys in lists))

    def _taken(self, record: Any, own: str | None) -> bool:
        for name, holders in self._unique.items():
            value = record[self.kind.positions[name]]
            if value is not None and holders.get(value, own) != own:
                return True
        return False

    def _put(self, record: Any) -> None:
        self.rows[record.id] = record
        for index in self._places:
            self._list(index, record)
        self._hold(record)
        self._count(record, 1)

    def _drop(self, record: Any) -> None:
        del self.rows[record.id]
        for index in self._places:
            self._unlist(index, record)
        self._let_go(record)
        self._count(record, -1)

    def _replace(self, old: Any, new: Any) -> None:
        """What a drop and a put would do, for what has changed."""
        self.rows[new.id] = new
        for index, places in self._read.items():
            if places(old) != places(new):
                self._unlist(index, old)
                self._list(index, new)
        self._let_go(old)
        self._hold(new)
        self._count(old, -1)
        self._count(new, 1)

    def _list(self, index: Index, record: Any) -> None:
        equal, by = self._places[index]
        if record[by] is not None:
            self._indexes[index][tuple([record[at] for at in equal])].add((record[by], record.id))

    def _unlist(self, index: Index, record: Any) -> None:
        equal, by = self._places[index]
        if record[by] is not None:
            values = tuple([record[at] for at in equal])
            keys = self._indexes[index][values]
            keys.discard((record[by], record.id))
            if not keys:
                del self._indexes[index][values]

    def _hold(self, record: Any) -> None:
        for name, holders in self._unique.items():
            if (value := record[self.kind.positions[name]]) is not None:
                holders[value] = record.id

    def _let_go(self, record: Any) -> None:
        for name, holders in self._unique.items():
            if (value := record[self.kind.positions[name]]) is not None:
                del holders[value]

    def _count(self, record: Any, number: int) -> None:
        if self._counted:
            values = tuple([record[at] for at in self._counted])
            self.counts[values] += number
            if not self.counts[values]:
                del self.counts[values]
