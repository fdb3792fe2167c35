"""Who counts as alive, who as dead, and what happens to the work of the dead."""

from __future__ import annotations

import threading
from datetime import timedelta
from typing import Any

import pytest

from holdfast.backends.memory import MemoryStore
from holdfast.errors import StoreUnavailable
from holdfast.store.port import Insert, Store
from holdfast.store.query import equal
from holdfast.store.record import evolve
from holdfast.testing.clock import ManualClock
from holdfast.workflows.presence import Presence, host
from holdfast.workflows.records import ITEM, WORKER, ItemRecord, WorkerRecord

BEAT_S, TTL_S = 0.5, 3.0


@pytest.fixture
def presence(store: Store, clock: ManualClock) -> Presence:
    return Presence(store, beat_s=BEAT_S, ttl_s=TTL_S, clock=clock)


def other(store: Store, clock: ManualClock) -> Presence:
    return Presence(store, beat_s=BEAT_S, ttl_s=TTL_S, clock=clock)


def give(store: Store, owner: str | None, number: int = 1, due: int | None = None) -> None:
    items = [
        ItemRecord(f"{owner}-{n}", 1, due, "default", 0, "run", "t", owner, "w", "a", 1, 0, 1, 0) for n in range(number)
    ]
    store.commit([Insert(ITEM, item) for item in items])


def test_the_work_of_whoever_gives_no_sign_of_life_is_anybodys_and_his_row_goes(
    store: Store, presence: Presence, clock: ManualClock
) -> None:
    dead = other(store, clock)
    assert dead.show()
    give(store, dead.id, 3)
    assert presence.bury() == 0
    clock.advance(TTL_S)
    assert presence.bury() + _beaten(presence, clock, 2) == 3
    assert {(item.owner, item.crashes) for item in store.page(ITEM)} == {(None, 1)}
    assert store.page(WORKER) == []


def test_what_the_dead_had_begun_goes_before_all_that_waits_but_for_what_a_worker_has_died_of_before(
    store: Store, presence: Presence, clock: ManualClock
) -> None:
    dead = other(store, clock)
    assert dead.show()
    waiting_since = store.now() - 60_000_000
    give(store, None, 2, due=waiting_since)
    give(store, dead.id, 2)
    killer = ItemRecord("killer", 1, None, "default", 0, "run", "t", dead.id, "w", "b", 1, 0, 1, crashes=1)
    elsewhere = ItemRecord("elsewhere", 1, None, "other", 1, "run", "t", dead.id, "w", "c", 1, 0, 1, 0)
    store.commit([Insert(ITEM, killer), Insert(ITEM, elsewhere)])
    clock.advance(TTL_S)
    assert presence.bury(patient=False) == 4
    line = store.page(ITEM, equal(queue="default", priority=0), by="due_at")
    assert [item.id for item in line] == [f"{dead.id}-0", f"{dead.id}-1", "None-0", "None-1", "killer"]
    assert line[-1].due_at == store.get(ITEM, ["elsewhere"])[0].due_at == store.now()


def test_whoever_was_buried_learns_it_at_the_next_beat_and_goes_on_as_somebody_else(
    store: Store, presence: Presence, clock: ManualClock
) -> None:
    late = other(store, clock)
    late.show()
    before = late.id
    clock.advance(TTL_S)
    presence.bury(patient=False)
    assert not late.show()
    assert late.id != before
    assert late.show()


def test_a_live_worker_is_not_buried_when_the_time_of_the_store_jumps(clock: ManualClock) -> None:
    jumping = Jumping(clock)
    store = MemoryStore(jumping)
    worker, judge = other(store, clock), other(store, clock)
    worker.show()
    give(store, worker.id)
    judge.bury()
    jumping.ahead = 3600
    for _ in range(10):
        assert judge.bury() == 0
        clock.advance(BEAT_S)
        assert worker.show()


def test_a_dead_worker_is_found_though_the_time_of_the_store_went_back(clock: ManualClock) -> None:
    jumping = Jumping(clock)
    store = MemoryStore(jumping)
    worker, judge = other(store, clock), other(store, clock)
    worker.show()
    give(store, worker.id)
    judge.bury()
    jumping.ahead = -3600
    assert _beaten(judge, clock, round((TTL_S + BEAT_S) / BEAT_S)) == 1


def test_nothing_is_taken_from_a_worker_that_beats_while_he_is_being_buried(
    store: Store, presence: Presence, clock: ManualClock
) -> None:
    worker = other(store, clock)
    worker.show()
    give(store, worker.id)
    [seen] = store.page(WORKER)
    clock.advance(TTL_S)
    assert worker.show()
    assert presence._bury(seen) == 0
    assert [item.owner for item in store.page(ITEM)] == [worker.id]


def test_two_who_bury_at_once_free_each_item_once(store: Store, clock: ManualClock) -> None:
    dead = other(store, clock)
    dead.show()
    give(store, dead.id, 50)
    clock.advance(TTL_S)
    freed: list[int] = []
    crew = [threading.Thread(target=lambda: freed.append(other(store, clock).bury(patient=False))) for _ in range(4)]
    for one in crew:
        one.start()
    for one in crew:
        one.join(20)
    assert sum(freed) == 50
    assert {item.crashes for item in store.page(ITEM)} == {1}
    assert store.page(WORKER) == []


def test_a_burial_that_was_broken_off_is_finished_by_the_next_one(
    store: Store, presence: Presence, clock: ManualClock
) -> None:
    dead = other(store, clock)
    dead.show()
    give(store, dead.id)
    [row] = store.page(WORKER)
    from holdfast.store.port import Swap

    store.commit([Swap(WORKER, row, evolve(row, about='{"buried_by": "one who died"}', host="", process=""))])
    clock.advance(TTL_S)
    assert presence.bury(patient=False) == 1
    assert not dead.show()


def test_a_burial_that_the_store_has_broken_off_is_finished_when_it_is_back(
    store: Store, presence: Presence, monkeypatch: pytest.MonkeyPatch
) -> None:
    presence.show()
    store.commit([Insert(WORKER, WorkerRecord("killed", 1, store.now() + 10**9, host(), "0 1", "{}"))])
    give(store, "killed")
    with monkeypatch.context() as patched:

        def fail(owner: str) -> int:
            raise StoreUnavailable("the store is away")

        patched.setattr(presence, "take_from", fail)
        with pytest.raises(StoreUnavailable):
            presence.bury()
    assert presence.bury() == 1
    assert [row.id for row in store.page(WORKER)] == [presence.id]


def test_a_burial_whose_undertaker_of_this_host_was_killed_is_finished_at_once(
    store: Store, presence: Presence, clock: ManualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    store.commit([Insert(WORKER, WorkerRecord("killed", 1, store.now() + 10**9, host(), "0 1", "{}"))])
    give(store, "killed")
    undertaker = other(store, clock)
    with monkeypatch.context() as patched:
        patched.setattr("holdfast.workflows.presence.process_of", lambda number: "0 2")

        def die(owner: str) -> int:
            raise SystemExit

        patched.setattr(undertaker, "take_from", die)
        with pytest.raises(SystemExit):
            undertaker.bury()
        assert presence.bury() == 0, "he is at it"
    assert presence.bury() == 1
    assert store.page(WORKER) == []


def test_a_worker_of_this_host_whose_process_is_gone_is_dead_at_once(store: Store, presence: Presence) -> None:
    store.commit([Insert(WORKER, WorkerRecord("killed", 1, store.now() + 10**9, host(), "0 1", "{}"))])
    give(store, "killed")
    assert presence.bury() == 1


def test_of_another_host_nothing_is_known_before_his_time_is_over(store: Store, presence: Presence) -> None:
    store.commit([Insert(WORKER, WorkerRecord("far", 1, store.now() + 10**9, "elsewhere", "1 1", "{}"))])
    give(store, "far")
    assert presence.bury(patient=False) == 0


def test_what_belongs_to_somebody_without_a_row_is_found(store: Store, presence: Presence, clock: ManualClock) -> None:
    worker = other(store, clock)
    worker.show()
    give(store, worker.id)
    give(store, "buried and gone on", 2)
    give(store, None, due=store.now())
    assert presence.adopt_orphans() == 2
    assert sorted(str(item.owner) for item in store.page(ITEM)) == sorted(["None", "None", "None", worker.id])


def test_a_beat_whose_answer_was_lost_is_no_death(store: Store, presence: Presence) -> None:
    presence.show()
    before, record = presence.id, presence._record
    presence.show()
    presence._record = record  # as if the answer to the second one had not come
    assert presence.show()
    assert presence.id == before


def test_who_leaves_has_no_row(store: Store, presence: Presence) -> None:
    presence.show()
    presence.leave()
    presence.leave()
    assert store.page(WORKER) == []
    assert presence.show()


def _beaten(presence: Presence, clock: ManualClock, times: int) -> int:
    freed = 0
    for _ in range(times):
        clock.advance(BEAT_S)
        freed += presence.bury()
    return freed


class Jumping:
    """A clock whose time of day can be moved."""

    def __init__(self, clock: ManualClock) -> None:
        self._clock = clock
        self.ahead = 0.0

    def wall(self) -> Any:
        return self._clock.wall() + timedelta(seconds=self.ahead)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._clock, name)
