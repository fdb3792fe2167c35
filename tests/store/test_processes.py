"""Several processes at one place: exact results."""

from __future__ import annotations

import multiprocessing
import time
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from holdfast.store.port import Insert, Store
from holdfast.testing.store import ITEM, Item, item
from tests.store import workers
from tests.stores import SHARED_STORES, Place, fresh_place

PROCESSES = 4
Run = Callable[[str, int], list[Any]]
SPAWN = multiprocessing.get_context("spawn")

pytestmark = [pytest.mark.torture, pytest.mark.timeout(600)]


@pytest.fixture(scope="module")
def pool() -> Iterator[ProcessPoolExecutor]:
    """Processes that serve every test here: starting them takes longer than all that they do."""
    with ProcessPoolExecutor(PROCESSES, SPAWN, workers.prepare, (SPAWN.Barrier(PROCESSES),)) as pool:
        yield pool


@pytest.fixture(params=SHARED_STORES)
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Place]:
    with fresh_place(request.param, tmp_path) as place:
        yield place


@pytest.fixture
def store(place: Place) -> Iterator[Store]:
    store = place.open()
    yield store
    store.close()


@pytest.fixture
def in_processes(pool: ProcessPoolExecutor, place: Place) -> Run:
    """Gives the results of one job, done by several processes at the same time."""

    def run(job: str, times: int) -> list[Any]:
        jobs = [pool.submit(workers.run, (place.name, place.url), job, times) for _ in range(PROCESSES)]
        return [one.result() for one in jobs]

    return run


def test_changes_by_many_processes_lose_nothing(in_processes: Run, store: Store, size: int) -> None:
    store.commit([Insert(ITEM, item("0")), Insert(ITEM, item("1"))])
    done = sum(in_processes("count_up", 30 * size))
    assert [one.size for one in store.page(ITEM)] == [done // 2, done // 2]
    assert [one.version for one in store.page(ITEM)] == [done // 2 + 1, done // 2 + 1]


def test_claims_by_many_processes_are_disjoint_and_miss_nothing(in_processes: Run, store: Store, size: int) -> None:
    ids = [f"{n:05}" for n in range(200 * size)]
    store.commit([Insert(ITEM, item(id, due_at=n)) for n, id in enumerate(ids)])
    shares = in_processes("claim_all", 1)
    assert Counter(id for share in shares for id in share) == Counter(ids)
    assert sorted(store.tally(ITEM, ("state",)).values()) == sorted(len(share) for share in shares if share)


def test_one_process_at_a_time_holds_a_lease(in_processes: Run, store: Store, size: int) -> None:
    store.commit([Insert(ITEM, item("0"))])
    granted = sum(in_processes("count_up_under_a_lease", 5 * size))
    assert store.get(ITEM, ("0",)) == [item("0", version=granted + 1, size=granted)]


def test_of_many_processes_that_insert_one_id_one_succeeds(in_processes: Run, store: Store, size: int) -> None:
    assert sum(in_processes("insert_one_key", 30 * size)) == 30 * size
    assert store.tally(ITEM, arrivals=True) == {(): 30 * size}


def test_a_process_that_is_killed_leaves_whole_commits(place: Place, store: Store, size: int) -> None:
    store.commit([Insert(ITEM, item("a")), Insert(ITEM, item("b"))])
    goal = 0
    for _ in range(size):
        goal += 20
        child = SPAWN.Process(target=workers.write_until_killed, args=((place.name, place.url),))
        child.start()
        give_up = time.monotonic() + 60
        while store.tally(ITEM, ("state",)).get(("made",), 0) < goal and time.monotonic() < give_up:
            child.join(0.01)
            assert child.is_alive()
        child.kill()
        child.join()
        (a, b, *made), counts = at_rest(store)
        assert a.size == b.size == len(made) >= goal
        assert counts == {("new",): 2, ("made",): len(made)}
        goal = len(made)


def at_rest(store: Store) -> tuple[list[Item], dict[tuple[Any, ...], int]]:
    """All items and their counts, once a server has finished what its dead client had sent."""
    while True:
        items, counts = store.page(ITEM, limit=1_000_000), store.tally(ITEM, ("state",))
        if store.page(ITEM, limit=1_000_000) == items:
            return items, counts
