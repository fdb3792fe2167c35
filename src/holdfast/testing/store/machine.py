"""Random histories on a store and on the memory store: after every act both must say the same.

class MyMachine(StoreMachine):
    def make_store(self):
        return MyStore("my://…", kinds=CONFORMANCE_KINDS)  # at an empty place, each time

TestMyStore = MyMachine.TestCase
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from holdfast.backends.memory import MemoryStore
from holdfast.errors import Conflict
from holdfast.store.port import Change, Delete, Insert, Store, Swap
from holdfast.store.query import Condition, Cursor, Where
from holdfast.store.record import Value, evolve
from holdfast.testing.store.kinds import ITEM, Item, item

_TEXTS = st.sampled_from(["", "a", "A", "b", "a b", "é", "🙂", "%", ":", "\uffff"])
_NUMBERS = st.one_of(st.integers(-3, 3), st.sampled_from([2**53, -(2**53)]))
_IDS = st.sampled_from(["a", "b", "c", "d", "e", "f", "g", "é", "🙂"])
_FIELDS: dict[str, st.SearchStrategy[Any]] = {
    "due_at": st.none() | _NUMBERS,
    "state": st.sampled_from(["new", "old", "odd"]),
    "lane": st.sampled_from(["left", "right", ""]),
    "size": _NUMBERS,
    "rank": st.none() | _NUMBERS,
    "label": st.none() | _TEXTS,
    "body": _TEXTS,
}
_UNIQUE: dict[str, st.SearchStrategy[Any]] = {"token": st.none() | _TEXTS, "number": st.none() | st.integers(0, 4)}
_ORDERS = st.sampled_from(["id", "due_at", "size", "rank", "label", "token", "body", "version"])
_COUNTED = ("lane", "state")


def _condition(name: str) -> st.SearchStrategy[Condition]:
    values = _FIELDS[name]
    some = st.lists(values, max_size=3).map(tuple)
    one = values.filter(lambda value: value is not None)
    return st.one_of(
        st.builds(Condition, st.just(name), st.just("="), values),
        st.builds(Condition, st.just(name), st.sampled_from(["in", "not in"]), some),
        st.builds(Condition, st.just(name), st.sampled_from(["<", "<=", ">", ">="]), one),
        st.builds(Condition, st.just(name), st.sampled_from(["is null", "is set"]), st.none()),
    )


_WHERES = st.lists(st.sampled_from(sorted(_FIELDS)).flatmap(_condition), max_size=3).map(tuple)
_LIMITS = st.integers(-1, 6)


class StoreMachine(RuleBasedStateMachine):
    """Override `make_store`; see the module."""

    def make_store(self) -> Store:
        """A store at an empty place, which knows `CONFORMANCE_KINDS`."""
        raise NotImplementedError("StoreMachine.make_store is for the subclass to say")

    @initialize()
    def begin(self) -> None:
        self.oracle: Store = MemoryStore()
        self.subject = self.make_store()
        self.seen: list[Item] = []  # every version that ever was: some of them are stale

    def teardown(self) -> None:
        if hasattr(self, "subject"):
            self.subject.close()

    def both(self, act: Callable[[Store], Any]) -> Any:
        """What both stores answer. A conflict is an answer as well, and changes nothing."""
        answers = []
        for store in (self.oracle, self.subject):
            try:
                answers.append(act(store))
            except Conflict:
                answers.append(Conflict)
        assert answers[0] == answers[1]
        return answers[0]

    @rule(id=_IDS, values=st.fixed_dictionaries({**_FIELDS, **_UNIQUE}))
    def insert(self, id: str, values: dict[str, Any]) -> None:
        new = Item(id=id, version=1, **values)
        if self.both(lambda store: store.commit([Insert(ITEM, new)])) is None:
            self.seen.append(new)

    @rule(data=st.data(), values=st.fixed_dictionaries({}, optional={**_FIELDS, **_UNIQUE}), delete=st.booleans())
    def change_a_version_of_now_or_then(self, data: st.DataObject, values: dict[str, Value], delete: bool) -> None:
        if not self.seen:
            return
        old = data.draw(st.sampled_from(self.seen[-12:]))
        new = evolve(old, **values)
        step: Change = Delete(ITEM, old) if delete else Swap(ITEM, old, new)
        if self.both(lambda store: store.commit([step])) is None and not delete:
            self.seen.append(new)

    @rule(data=st.data(), number=st.integers(1, 4), values=st.fixed_dictionaries({}, optional=_FIELDS))
    def commit_several(self, data: st.DataObject, number: int, values: dict[str, Value]) -> None:
        changes: list[Change] = []
        for id in data.draw(st.lists(_IDS, min_size=number, max_size=number, unique=True)):
            now = self.oracle.get(ITEM, (id,))[0]
            if now is None:
                changes.append(Insert(ITEM, item(id, **values)))
            elif data.draw(st.booleans()):
                changes.append(Delete(ITEM, now))
            else:
                changes.append(Swap(ITEM, now, evolve(now, **values)))
        if self.seen and data.draw(st.integers(0, 3)) == 0:
            old = data.draw(st.sampled_from(self.seen[-12:]))
            if old.id not in {_subject(change).id for change in changes}:
                changes.append(Swap(ITEM, old, evolve(old, token=None, number=None)))
        if self.both(lambda store: store.commit(changes)) is None:
            self.seen += [_outcome(change) for change in changes if not isinstance(change, Delete)]

    @rule(where=_WHERES, by=_ORDERS, limit=_LIMITS, values=st.fixed_dictionaries({}, optional=_FIELDS), no=_IDS)
    def claim(self, where: Where, by: str, limit: int, values: dict[str, Value], no: str) -> None:
        def decide(found: Item) -> Item | None:
            return None if found.id == no else evolve(found, **values)

        self.seen += self.both(lambda store: store.claim(ITEM, where, decide, by=by, limit=limit))

    @rule(
        where=_WHERES,
        values=st.none() | st.fixed_dictionaries({}, optional={**_FIELDS, **_UNIQUE}),
        by=_ORDERS,
        limit=st.none() | _LIMITS,
    )
    def sweep(self, where: Where, values: dict[str, Value] | None, by: str, limit: int | None) -> None:
        if self.both(lambda store: store.sweep(ITEM, where, values, by=by, limit=limit)) and values is not None:
            self.seen += self.oracle.page(ITEM, limit=3)

    @rule(where=_WHERES, by=_ORDERS, descending=st.booleans(), offset=st.integers(-1, 4), limit=_LIMITS)
    def page(self, where: Where, by: str, descending: bool, offset: int, limit: int) -> None:
        self.both(lambda store: store.page(ITEM, where, by=by, descending=descending, offset=offset, limit=limit))

    @rule(data=st.data(), where=_WHERES, by=_ORDERS, descending=st.booleans(), limit=_LIMITS)
    def page_beyond_a_cursor(self, data: st.DataObject, where: Where, by: str, descending: bool, limit: int) -> None:
        placed = [one for one in self.seen[-12:] if getattr(one, by) is not None]
        if placed:
            last = data.draw(st.sampled_from(placed))
            after = Cursor(getattr(last, by), last.id)
            self.both(lambda store: store.page(ITEM, where, by=by, descending=descending, after=after, limit=limit))

    @rule(by=st.lists(st.sampled_from(sorted(_FIELDS)), max_size=2, unique=True), where=_WHERES)
    def tally_anything(self, by: list[str], where: Where) -> None:
        self.both(lambda store: store.tally(ITEM, by, where))

    @rule(by=st.sets(st.sampled_from(_COUNTED)), states=st.lists(_FIELDS["state"], max_size=2), out=st.booleans())
    def tally_what_is_counted(self, by: set[str], states: list[str], out: bool) -> None:
        where = (Condition("state", "not in" if out else "in", tuple(states)),)
        self.both(lambda store: store.tally(ITEM, sorted(by), where))

    @invariant()
    def both_hold_the_same(self) -> None:
        if not hasattr(self, "subject"):
            return
        self.both(lambda store: store.page(ITEM))
        self.both(lambda store: store.tally(ITEM, _COUNTED))
        self.both(lambda store: store.tally(ITEM, ("lane",), arrivals=True))


def _subject(change: Change) -> Any:
    return change.old if isinstance(change, Swap) else change.record


def _outcome(change: Change) -> Any:
    return change.new if isinstance(change, Swap) else _subject(change)
