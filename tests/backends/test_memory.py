"""What only the memory store promises."""

from __future__ import annotations

import logging
import threading

import pytest

from holdfast.backends.memory import MemoryStore
from holdfast.errors import Conflict
from holdfast.store.port import Delete, Insert, Swap
from holdfast.store.query import equal
from holdfast.store.record import evolve
from holdfast.testing.clock import ManualClock
from holdfast.testing.store import ITEM, item


def test_its_time_is_its_clocks() -> None:
    clock = ManualClock()
    store = MemoryStore(clock)
    before = store.now()
    clock.advance(1.5)
    assert store.now() - before == 1_500_000


def test_two_stores_share_nothing() -> None:
    first, second = MemoryStore(), MemoryStore()
    first.commit([Insert(ITEM, item("a"))])
    assert second.page(ITEM) == []


def test_it_has_no_transaction_to_join() -> None:
    with pytest.raises(TypeError, match="leave connection= out"):
        MemoryStore().commit([Insert(ITEM, item("a"))], connection=object())


def test_a_commit_that_is_undone_leaves_what_was_stored_and_not_what_the_caller_believed() -> None:
    store = MemoryStore()
    kept = item("a", size=5, token="t", lane="right")
    store.commit([Insert(ITEM, kept)])
    belief = item("a", size=1, token="other")
    with pytest.raises(Conflict):
        store.commit([Swap(ITEM, belief, evolve(kept, size=6)), Delete(ITEM, item("ghost"))])
    with pytest.raises(Conflict):
        store.commit([Delete(ITEM, belief), Delete(ITEM, item("ghost"))])
    assert store.page(ITEM) == [kept]
    assert store.page(ITEM, equal(lane="right", state="new"), by="size") == [kept]
    assert store.tally(ITEM, ("lane",)) == {("right",): 1}
    store.commit([Insert(ITEM, item("b", token="other"))])
    with pytest.raises(Conflict):
        store.commit([Insert(ITEM, item("c", token="t"))])


def test_a_subscriber_is_called_by_the_thread_that_commits_and_before_commit_returns() -> None:
    store = MemoryStore()
    called: list[threading.Thread] = []
    store.subscribe("a", lambda: called.append(threading.current_thread()))
    store.commit([], wake="a")
    store.commit([], wake="b")
    store.commit([])
    assert called == [threading.current_thread()]


def test_a_subscriber_may_use_the_store() -> None:
    store = MemoryStore()
    seen: list[int] = []
    store.subscribe("a", lambda: seen.append(len(store.page(ITEM))))
    store.commit([Insert(ITEM, item("a"))], wake="a")
    assert seen == [1]


def test_a_subscriber_that_fails_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    store = MemoryStore()
    store.subscribe("a", lambda: 1 // 0)
    with caplog.at_level(logging.ERROR, "holdfast.store"):
        store.commit([Insert(ITEM, item("a"))], wake="a")
    assert [record.getMessage() for record in caplog.records] == ["a subscriber of a failed"]
    assert store.page(ITEM) == [item("a")]


def test_a_closed_subscription_is_silent_and_its_twin_is_not() -> None:
    store = MemoryStore()
    calls: list[int] = []

    def callback() -> None:
        calls.append(1)

    first, second = store.subscribe("a", callback), store.subscribe("a", callback)
    first.close()
    first.close()
    store.commit([], wake="a")
    assert calls == [1]
    second.close()
    store.commit([], wake="a")
    assert calls == [1]


def test_groups_that_have_emptied_leave_nothing_behind() -> None:
    store = MemoryStore()
    for n in range(50):
        one = item(f"{n}", state=f"s{n}", lane=f"l{n}", due_at=n, token=f"{n}")
        store.commit([Insert(ITEM, one)])
        store.page(ITEM, equal(state=f"never{n}"), by="due_at")
        store.commit([Delete(ITEM, one)])
    (table,) = store._tables.values()
    assert all(not groups for groups in table._indexes.values())
    assert not table.counts
    assert all(not holders for holders in table._unique.values())
