"""What the processes of test_processes.py do. Each opens the place by itself."""

from __future__ import annotations

import os
from multiprocessing.synchronize import Barrier

from holdfast.store import lease
from holdfast.store.change import change
from holdfast.store.port import Insert, Store, Swap
from holdfast.store.query import equal
from holdfast.store.record import evolve
from holdfast.testing.store import ITEM, Item, item
from tests.stores import Place

NEW = equal(state="new")


def up(found: Item | None) -> Item:
    assert found is not None
    return evolve(found, size=found.size + 1)


def count_up(store: Store, times: int) -> int:
    for n in range(times):
        change(store, ITEM, f"{n % 2}", up)
    return times


def claim_all(store: Store, times: int) -> list[str]:
    mine: list[str] = []
    while True:
        found = store.claim(ITEM, NEW, lambda one: evolve(one, state=f"{os.getpid()}"), limit=5)
        mine += [one.id for one in found]
        if not found and not store.page(ITEM, NEW, limit=1):
            return mine


def count_up_under_a_lease(store: Store, times: int) -> int:
    """Unguarded read and write, which only the lease keeps from losing anything."""
    granted = 0
    while granted < times:
        token = lease.acquire(store, "counter", 60)
        if token is None:
            continue
        (found,) = store.get(ITEM, ("0",))
        assert found is not None
        store.sweep(ITEM, equal(id="0"), {"size": found.size + 1})
        assert lease.release(store, "counter", token)
        granted += 1
    return granted


def insert_one_key(store: Store, times: int) -> int:
    """How many of the keys this process was the first to hold."""
    won = 0
    for n in range(times):
        won += change(store, ITEM, f"key{n}", lambda found, n=n: None if found else item(f"key{n}"))[1] is not None  # type: ignore[misc]
    return won


JOBS = {job.__name__: job for job in (count_up, claim_all, count_up_under_a_lease, insert_one_key)}


def run(place: tuple[str, str], job: str, times: int) -> object:
    store = Place(*place).open()
    try:
        store.ping()
        _start.wait(60)
        return JOBS[job](store, times)
    finally:
        store.close()


def prepare(start: Barrier) -> None:
    global _start
    _start = start


def write_until_killed(place: tuple[str, str]) -> None:
    """Three changes that belong together, again and again."""
    store = Place(*place).open()
    for n in range(1_000_000):
        a, b = store.get(ITEM, ("a", "b"))
        assert a is not None
        assert b is not None
        store.commit(
            [Swap(ITEM, a, up(a)), Insert(ITEM, item(f"made{os.getpid()}-{n}", state="made")), Swap(ITEM, b, up(b))],
        )
