"""The six verbs that a backend offers. Everything durable is written on these, once.

`get`, `commit`, `claim`, `page`, `tally`, `sweep`: no other way in or out. Each call is atomic, and what it did is
durable when it returns. A store that cannot be reached raises `StoreUnavailable`; nothing answers from a local copy.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Final, NamedTuple, Protocol

from holdfast.errors import Conflict
from holdfast.store.query import ANY, Cursor, Where
from holdfast.store.record import Kind, R, Record, Value


class Insert(NamedTuple):
    """Keep a new record, at its first version. Conflicts with a record of the same id or the same unique value."""

    kind: Kind[Any]
    record: Record


class Swap(NamedTuple):
    """Put `new` in the place of `old`, of which it is a later version, usually the next. Conflicts if the version that
    is stored is another, or what the kind calls `born`."""

    kind: Kind[Any]
    old: Record
    new: Record


class Delete(NamedTuple):
    """Remove a record. Conflicts as a swap does."""

    kind: Kind[Any]
    record: Record


Change = Insert | Swap | Delete
Decide = Callable[[Any], Any]
"""A machine's answer to a record: the next version, or None to leave it alone. Pure; it may be asked twice."""

FOREVER: Final = 1 << 62


class Subscription(Protocol):
    @property
    def is_prompt(self) -> bool:
        """Whether, as far as is known now, others' commits are told within a second: then it will do to poll rarely."""
        ...

    def close(self) -> None: ...


class Store(Protocol):
    """Thread-safe. Construction touches neither file nor network; the first verb does."""

    @property
    def url(self) -> str:
        """Where the store is, without password."""
        ...

    def now(self) -> int:
        """The store's time in microseconds: the same on every host that shares it. Costs no round trip."""
        ...

    def get(self, kind: Kind[R], ids: Sequence[str]) -> list[R | None]:
        """The records of these ids, in that order; None for one that is not there."""
        ...

    def commit(self, changes: Sequence[Change], *, wake: str | None = None, connection: Any = None) -> None:
        """Make all the changes in this order, or none.

        `wake` names a topic whose subscribers are told afterwards. `connection` is a transaction of the caller's, in
        which the changes are made and with which they live or die (SQL stores only).
        Raises Conflict, which names the changes that could not be made.
        """
        ...

    def claim(
        self, kind: Kind[R], where: Where, decide: Callable[[R], R | None], *, by: str = "due_at", limit: int
    ) -> list[R]:
        """Change up to `limit` matching records as `decide` says, in the order of `by`; gives the new versions.

        Records that another claim is holding are passed over, and those that `decide` leaves alone do not count.
        """
        ...

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
        """Up to `limit` matching records in the order of `(by, id)`, beyond the cursor, without the first `offset`."""
        ...

    def tally(
        self, kind: Kind[Any], by: Sequence[str] = (), where: Where = ANY, *, arrivals: bool = False
    ) -> dict[tuple[Any, ...], int]:
        """How many records match, by the values of these fields; groups of none are left out.

        From maintained counters when the kind's `tally` holds all fields that are asked for. With `arrivals`, of all
        that were ever inserted, by the fields of the kind's `arrivals`.
        """
        ...

    def sweep(
        self,
        kind: Kind[Any],
        where: Where,
        change: Mapping[str, Value] | None = None,
        *,
        by: str = "id",
        limit: int | None = None,
    ) -> int:
        """Give these values to all matching records (a new version each), or delete them for None. How many there were.

        With `limit`, the first ones in the order of `by`.
        """
        ...

    def subscribe(self, topic: str, callback: Callable[[], object]) -> Subscription:
        """Call back soon after a commit with `wake=topic`, by whichever process and from whatever thread.

        An accelerator only: a call may be missed or come for nothing, so whoever waits polls as well. The callback must
        be quick, for instance set an event.
        """
        ...

    def ping(self) -> None:
        """Raises StoreUnavailable when the store cannot be reached."""
        ...

    def close(self) -> None:
        """Let go of connections and threads. The store may be used again: it reconnects."""
        ...


def counted(kind: Kind[Any], by: Iterable[str], where: Where) -> bool:
    """Whether the kind's counters can answer."""
    asked = {*by, *(condition.field for condition in where)}
    plain = all(condition.operator in ("=", "in", "not in") for condition in where)
    return bool(kind.tally) and plain and asked <= set(kind.tally)


def summed(
    fields: Sequence[str],
    counts: Iterable[tuple[Sequence[Any], int]],
    by: Sequence[str],
    where: Where,
) -> dict[tuple[Any, ...], int]:
    """Counts by all of these fields, narrowed and summed up to those asked for.

    Raises ValueError for a field that is not counted.
    """
    places = {name: at for at, name in enumerate(fields)}
    if unknown := [name for name in (*by, *(condition.field for condition in where)) if name not in places]:
        raise ValueError(f"{unknown[0]!r} is not counted; counted are {', '.join(fields) or 'no fields'}")
    wanted = [places[name] for name in by]
    tests = [(places[condition.field], condition) for condition in where]
    totals: Counter[tuple[Any, ...]] = Counter()
    for values, number in counts:
        if all(condition.holds(values[at]) for at, condition in tests):
            totals[tuple(values[at] for at in wanted)] += number
    return {values: number for values, number in totals.items() if number}


def conflict(changes: Sequence[Change], lost: Sequence[int]) -> Conflict:
    """The error for changes that could not be made."""
    change = changes[lost[0]]
    if isinstance(change, Insert):
        story = "is there already, or another one with the same unique value"
        return Conflict(f"{change.kind.name} {change.record.id} {story}", tuple(lost))
    record = change.old if isinstance(change, Swap) else change.record
    story = f"is no longer at version {record.version}"
    if isinstance(change, Swap) and change.kind.unique:
        story += ", or another one has the same unique value"
    return Conflict(f"{change.kind.name} {record.id} {story}", tuple(lost))
