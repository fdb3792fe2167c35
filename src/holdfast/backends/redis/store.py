"""The store in Redis or Valkey.

Every change goes through one compare-and-swap script, which is atomic: a commit is made as a whole or not at all.
A page, a count or a sweep that has to look at more than some thousand records does it in several steps, between which
others may change records; each record is judged as it then is.

What is durable is for the server to say: with `appendonly yes` and `appendfsync always` a commit is on disk when it
returns; with `everysec`, the usual setting, the last second may be lost with the machine; without `appendonly`,
everything since the last snapshot. A replica that takes over may lack the last commits. `durability()` tells which
holds, and warns of settings that lose records.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, cast

from holdfast.backends.redis.catalog import Catalog
from holdfast.backends.redis.durability import Durability, read_durability
from holdfast.backends.redis.layout import Layout, utf8
from holdfast.backends.redis.link import Link
from holdfast.backends.redis.route import route
from holdfast.backends.redis.scripts import script
from holdfast.backends.redis.server_time import ServerTime
from holdfast.backends.redis.sweep import EVERY, Sweeping
from holdfast.backends.redis.tally import tally
from holdfast.backends.redis.wakeups import Wakeup, Wakeups
from holdfast.backends.redis.walk import Walk, all_records
from holdfast.core.clock import Clock
from holdfast.store.codec import micros
from holdfast.store.port import Change, Insert, Swap, conflict
from holdfast.store.query import ANY, Condition, Cursor, Where, check
from holdfast.store.record import Kind, R, Record, Value, evolve

_READ_AT_ONCE: Final = 1000
_FEW: Final = 8
_MORE: Final = 500


class RedisStore:
    """A store at `redis://`, `rediss://` or `unix://`. Works on Redis 6.2 and later, Valkey, and clusters of them.

    All keys begin with `{prefix}`, so that a cluster keeps them on one node. `clock` is for tests: without it, times
    are the server's. Raises MissingExtra without redis-py, ValueError for an address that cannot be one.
    """

    def __init__(self, url: str, *, clock: Clock | None = None, prefix: str = "holdfast") -> None:
        if not prefix or "{" in prefix or "}" in prefix:
            raise ValueError(f"prefix must be a text without braces, got {prefix!r}; use for instance 'holdfast'")
        self._clock = clock
        self._root = utf8(f"{{{prefix}}}:")
        self._link = Link(url, lambda: self._wakeups.resume())
        self._wakeups = Wakeups(self._link, self._root + b"bell:")
        self._time = ServerTime(self._link)
        self._catalog = Catalog(self._link, prefix)

    @property
    def url(self) -> str:
        return self._link.url

    def now(self) -> int:
        return self._time.now() if self._clock is None else micros(self._clock.wall())

    def get(self, kind: Kind[R], ids: Sequence[str]) -> list[R | None]:
        layout = self._catalog.layout(kind)
        keys = [layout.key(id) for id in ids]
        found: list[bytes | None] = []
        for at in range(0, len(keys), _READ_AT_ONCE):
            found += self._link.read(b"MGET", *keys[at : at + _READ_AT_ONCE])
        records = iter(layout.records([document for document in found if document is not None]))
        return [None if document is None else next(records) for document in found]

    def commit(self, changes: Sequence[Change], *, wake: str | None = None, connection: Any = None) -> None:
        if connection is not None:
            raise TypeError("Redis has no transactions to join; leave connection= out, or use an SQL store")
        if lost := self._swap(changes, b"all", wake):
            raise conflict(changes, lost)
        if wake is not None:
            self._wakeups.tell(self._channel(wake))

    def claim(
        self, kind: Kind[R], where: Where, decide: Callable[[R], R | None], *, by: str = "due_at", limit: int
    ) -> list[R]:
        at = self._asked(kind, where, (by,)).kind.positions[by]
        claimed: dict[str, R] = {}
        after: Cursor | None = None
        step, exhausted = limit, False
        while len(claimed) < limit and not exhausted:
            left = limit - len(claimed)
            swaps: list[Swap] = []
            while len(swaps) < left and not exhausted:
                found: list[Any] = self.page(kind, where, by=by, after=after, limit=step)
                # What was claimed a moment ago may have moved on in the order, to where it is met again.
                answers = [(old, decide(old)) for old in found if old.id not in claimed]
                swaps += [Swap(kind, old, new) for old, new in answers if new is not None]
                exhausted = len(found) < step
                after = Cursor(found[-1][at], found[-1].id) if found else after
                # Others are after the same records, or most are left alone: look at more at once.
                step = max(left, min(2 * step, _MORE), _FEW)
            lost = self._swap(swaps, b"%d" % left, None)
            if lost[:1] == [-1]:
                raise conflict(swaps, lost[1:])
            missed = set(lost)
            claimed |= {swap.new.id: cast("R", swap.new) for place, swap in enumerate(swaps) if place not in missed}
        return list(claimed.values())

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
        layout = self._asked(kind, where, (by,))
        if limit <= 0:
            return []
        way = route(layout, where, by, descending=descending, after=after)
        if way is None:
            found = self._sorted(layout, where, by, descending, after)
            return found[max(0, offset) :][:limit]
        documents: list[bytes] = []
        skip = max(0, offset)
        walk = Walk(self._link, "page", layout, way, descending=descending)
        while len(documents) < limit and not walk.done:
            skip, *more = walk.go(limit - len(documents), skip)
            documents += more
        return layout.records(documents)

    def tally(
        self, kind: Kind[Any], by: Sequence[str] = (), where: Where = ANY, *, arrivals: bool = False
    ) -> dict[tuple[Any, ...], int]:
        return tally(self._link, self._asked(kind, where, by), by, where, arrivals=arrivals)

    def sweep(
        self,
        kind: Kind[Any],
        where: Where,
        change: Mapping[str, Value] | None = None,
        *,
        by: str = "id",
        limit: int | None = None,
    ) -> int:
        layout = self._asked(kind, where, (by, *(change or ())))
        if by in layout.nullable:
            where = (*where, Condition(by, "is set"))
        if change is not None and any(change.get(name) is not None for name in kind.unique):
            # At most one record can have the value, so this is a commit of one change, or a conflict.
            found = self.page(kind, where, by=by, limit=EVERY if limit is None else limit)
            self.commit([Swap(kind, old, evolve(old, **change)) for old in found])
            return len(found)
        sweeping = Sweeping(self._link, layout, where, change)
        way = route(layout, where, by if limit is not None else None)
        if way is not None and (change is None or change.get(way.by.by) is None):
            return sweeping.along(way, EVERY if limit is None else limit)
        # What is walked over must not move along: first find the records, then change them.
        if limit is not None:
            return sweeping.these(self.page(kind, where, by=by, limit=limit))
        return sweeping.these(all_records(self._link, layout, where))

    def subscribe(self, topic: str, callback: Callable[[], object]) -> Wakeup:
        return self._wakeups.subscribe(self._channel(topic), callback)

    def ping(self) -> None:
        self._link.read(b"PING")

    def close(self) -> None:
        self._wakeups.close()
        self._link.close()

    def durability(self) -> Durability:
        """What the server's settings promise of a commit that has returned."""
        return read_durability(self._link)

    def reindex(self, kind: Kind[Any]) -> int:
        """Build indexes and counters anew from the records, after a change of the kind. How many records there are.

        Nobody else may write meanwhile. Raises SchemaError if records share a value that is now to be unique.
        """
        return self._catalog.reindex(kind)

    def _asked(self, kind: Kind[R], where: Where, names: Sequence[str]) -> Layout[R]:
        check(kind, where)
        for name in names:
            if name not in kind.positions:
                raise ValueError(f"{kind.name} has no field {name!r}; it has {', '.join(kind.positions)}")
        return self._catalog.layout(kind)

    def _channel(self, topic: str) -> bytes:
        return self._root + b"wake:" + utf8(topic)

    def _swap(self, changes: Sequence[Change], most: bytes, wake: str | None, whole: bool = False) -> list[int]:
        """The positions of the changes that could not be made, as `lua/commit.lua` tells them."""
        plans: dict[str, bytes] = {}
        arguments: list[bytes] = []
        for change in changes:
            layout = self._catalog.layout(change.kind)
            id, version, document, plan = utf8(_subject(change).id), b"", b"", layout.plan
            if isinstance(change, Insert):
                document = layout.document(change.record)
            else:
                version = layout.version(_subject(change))
            if isinstance(change, Swap):
                if change.new.id != change.old.id:
                    raise ValueError(f"a swap keeps the id: {change.old.id!r} became {change.new.id!r}")
                document = layout.document(change.new) if whole else layout.successor(change.old, change.new)
                plan = plan if whole else layout.swap_plan(change.old, change.new)
            arguments += (plans.setdefault(plan, b"%d" % (len(plans) + 1)), id, version, document)
        channel = b"" if wake is None else self._channel(wake)
        if not arguments and not channel:
            return []
        listed = utf8("[" + ",".join(plans) + "]")
        call = (self._root, channel, self._wakeups.origin, listed, most, *arguments)
        lost: list[int] = self._link.call(script("commit"), *call, writes=True)
        return self._swap(changes, most, wake, whole=True) if lost == [-2] else lost

    def _sorted(self, layout: Layout[R], where: Where, by: str, descending: bool, after: Cursor | None) -> list[R]:
        """All matching records in an order that no index has."""
        found = all_records(self._link, layout, (*where, Condition(by, "is set")))
        at = layout.kind.positions[by]

        def place(record: Any) -> tuple[Any, str]:
            return record[at], record.id

        found.sort(key=place, reverse=descending)
        if after is None:
            return found
        last = (after.value, after.id)
        return [one for one in found if (place(one) < last if descending else place(one) > last)]


def _subject(change: Change) -> Record:
    return change.old if isinstance(change, Swap) else change.record
