"""One record changed as a machine says, whoever else is at it."""

from __future__ import annotations

import sys
import threading
from collections.abc import Sequence

import pytest

from holdfast.backends.memory import MemoryStore
from holdfast.errors import Conflict
from holdfast.store.change import change, remove
from holdfast.store.port import Delete, Insert, Swap
from holdfast.store.record import Kind, R, evolve
from holdfast.testing.store import ITEM, Item, item


@pytest.fixture
def store() -> MemoryStore:
    return MemoryStore()


def meddle(store: MemoryStore) -> None:
    """Somebody else is faster."""
    (found,) = store.get(ITEM, ("a",))
    if found is None:
        store.commit([Insert(ITEM, item("a"))])
    else:
        store.commit([Swap(ITEM, found, evolve(found, size=found.size + 10))])


def test_whoever_loses_asks_again_with_the_record_as_it_is_now(store: MemoryStore) -> None:
    store.commit([Insert(ITEM, item("a"))])
    asked: list[int] = []

    def decide(found: Item | None) -> Item:
        assert found is not None
        asked.append(found.size)
        if len(asked) < 3:
            meddle(store)
        return evolve(found, size=found.size + 1)

    before, after = change(store, ITEM, "a", decide)
    assert asked == [0, 10, 20]
    assert (before, after) == (item("a", version=3, size=20), item("a", version=4, size=21))
    assert store.get(ITEM, ("a",)) == [after]


def test_whoever_loses_an_insert_sees_the_record_that_won(store: MemoryStore) -> None:
    seen: list[Item | None] = []

    def decide(found: Item | None) -> Item:
        seen.append(found)
        if found is None:
            meddle(store)
            return item("a", size=1)
        return evolve(found, size=found.size + 1)

    change(store, ITEM, "a", decide)
    assert seen == [None, item("a")]
    assert store.get(ITEM, ("a",)) == [item("a", version=2, size=1)]


def test_a_record_that_vanishes_meanwhile_is_asked_for_as_missing(store: MemoryStore) -> None:
    store.commit([Insert(ITEM, item("a"))])

    def decide(found: Item | None) -> Item | None:
        if found is None:
            return None
        store.commit([Delete(ITEM, found)])
        return evolve(found, size=1)

    assert change(store, ITEM, "a", decide) == (None, None)
    assert store.get(ITEM, ("a",)) == [None]


def test_whoever_always_loses_gives_up(store: MemoryStore, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys.modules["holdfast.store.change"], "PATIENCE_S", 0.05)

    def decide(found: Item | None) -> Item:
        meddle(store)
        return item("a") if found is None else evolve(found)

    with pytest.raises(Conflict) as caught:
        change(store, ITEM, "a", decide)
    assert caught.value.lost == (0,)


def test_a_machine_that_fails_is_heard(store: MemoryStore) -> None:
    with pytest.raises(ZeroDivisionError):
        change(store, ITEM, "a", lambda _: 1 // 0)  # type: ignore[arg-type, return-value]
    assert store.page(ITEM) == []


def test_only_a_change_wakes_and_it_is_told_what_changed(store: MemoryStore) -> None:
    heard = threading.Event()
    store.subscribe("news", heard.set)
    told: list[tuple[Item | None, Item]] = []

    def wake(before: Item | None, after: Item) -> str | None:
        told.append((before, after))
        return "news" if after.size == 1 else None

    change(store, ITEM, "a", lambda _: None, wake=wake)
    assert told == []
    change(store, ITEM, "a", lambda _: item("a"), wake=wake)
    assert told == [(None, item("a"))]
    assert not heard.is_set()
    change(store, ITEM, "a", lambda found: None if found is None else evolve(found, size=1), wake=wake)
    assert heard.is_set()


def test_a_removal_takes_the_record_as_it_is_now() -> None:
    class Restless(MemoryStore):
        """Somebody changes the record between the read and the delete, twice."""

        left = 2

        def commit(self, changes, **options):  # type: ignore[no-untyped-def]
            if self.left and isinstance(changes[0], Delete):
                self.left -= 1
                meddle(self)
            super().commit(changes, **options)

    restless = Restless()
    restless.commit([Insert(ITEM, item("a"))])
    assert remove(restless, ITEM, "a") == item("a", version=3, size=20)
    assert restless.page(ITEM) == []


class Reading(MemoryStore):
    """Counts what is read."""

    reads = 0

    def get(self, kind: Kind[R], ids: Sequence[str]) -> list[R | None]:
        self.reads += 1
        return super().get(kind, ids)


def one_more(found: Item | None) -> Item:
    assert found is not None
    return evolve(found, size=found.size + 1)


def test_a_record_that_is_still_as_it_was_seen_is_not_read_again() -> None:
    store = Reading()
    store.commit([Insert(ITEM, item("a"))])
    _, after = change(store, ITEM, "a", one_more, known=item("a"))
    _, after = change(store, ITEM, "a", one_more, known=after)
    assert store.reads == 0
    assert store.get(ITEM, ("a",)) == [item("a", version=3, size=2)]


def test_a_record_that_has_changed_since_it_was_seen_is_read_again() -> None:
    store = Reading()
    store.commit([Insert(ITEM, item("a"))])
    meddle(store)
    store.reads = 0
    before, after = change(store, ITEM, "a", one_more, known=item("a"))
    assert store.reads == 1
    assert (before, after) == (item("a", version=2, size=10), item("a", version=3, size=11))


def test_nobody_is_refused_for_what_was_true_a_while_ago() -> None:
    store = Reading()
    store.commit([Insert(ITEM, item("a", size=10))])

    def decide(found: Item | None) -> Item | None:
        assert found is not None
        return evolve(found, size=0) if found.size else None

    assert change(store, ITEM, "a", decide, known=item("a")) == (item("a", size=10), item("a", version=2))
    assert change(store, ITEM, "a", decide, known=item("a", version=2)) == (item("a", version=2), None)
    assert change(store, ITEM, "b", lambda found: None, known=item("b", size=1)) == (None, None)
