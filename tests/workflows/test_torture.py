"""Workers are killed, frozen and set to a wrong time, and the server is restarted under them: every workflow comes to
its end, what is done stays done, and what came late is not written.

`make torture SIZE=200` kills a thousand workers over five thousand workflows, on each database.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from holdfast.backends.open import open_store
from holdfast.core.clock import SYSTEM_CLOCK
from holdfast.testing.failpoints import Side
from holdfast.workflows.records import KINDS
from tests.services import postgres
from tests.stores import make_place
from tests.workflows.fleet import PATIENCE_S, THREADS, WORKERS, Fleet

KILLS, FLOWS = 5, 25  # at SIZE=1
TTL_S = 1.0
HOUR_S = 3600.0
ENDLESS_S = 10 * PATIENCE_S

pytestmark = pytest.mark.torture
Fleets = Callable[..., Fleet]
Show = Callable[[str], None]


@pytest.fixture(params=["sqlite", "postgres"])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    return make_place(request.param, tmp_path, KINDS).url


@pytest.fixture
def fleet_of(tmp_path: Path, seed: int) -> Iterator[Fleets]:
    made: list[Fleet] = []

    def make(url: str, **options: Any) -> Fleet:
        made.append(Fleet(url, tmp_path, seed, **options))
        return made[-1]

    yield make
    for fleet in made:
        fleet.close()


@pytest.fixture
def show(capsys: pytest.CaptureFixture[str], size: int) -> Callable[[str], None]:
    """Prints the figures of a long run."""
    begun = SYSTEM_CLOCK.monotonic()

    def show(figures: str) -> None:
        if size > 1:
            with capsys.disabled():
                sys.stdout.write(f"\n  {figures}; {SYSTEM_CLOCK.monotonic() - begun:.0f} s\n")

    return show


@pytest.fixture
def server() -> Iterator[postgres.Server]:
    server = postgres.private_server("-c", "fsync=off")
    yield server
    server.stop(crash=True)


def test_killed_workers_lose_nothing_and_repeat_only_what_was_under_way(
    place: str, fleet_of: Fleets, show: Show, size: int
) -> None:
    fleet = fleet_of(place)
    for _ in range(KILLS * size):
        fleet.start(FLOWS // KILLS)
        fleet.wait_for_work()
        fleet.pause(0.0, 0.1)
        fleet.kill_one()
    fleet.wait()
    show(fleet.check())


def test_workers_that_die_at_a_change_of_the_store_are_carried_on(
    place: str, fleet_of: Fleets, show: Show, size: int
) -> None:
    fleet = fleet_of(place, workers=0)
    for number in range(1, 3 * size + 3):
        for side in Side:
            fleet.start(1)
            fleet.die_at(number, side)
    fleet.join()
    fleet.wait()
    show(fleet.check())


@pytest.mark.parametrize("elsewhere", [False, True])
def test_what_a_dead_worker_had_begun_is_run_again_soon_or_when_its_lease_is_over(
    place: str, fleet_of: Fleets, show: Show, size: int, elsewhere: bool
) -> None:
    fleet = fleet_of(place, elsewhere=elsewhere, beat_s=TTL_S / 4, ttl_s=TTL_S)
    for _ in range(size):
        fleet.start(FLOWS // KILLS)
        fleet.wait_for_work()
        fleet.kill_one()
        fleet.wait()
    show(fleet.check())


def test_on_the_same_host_the_work_of_the_dead_is_free_though_their_lease_is_not_over(
    place: str, fleet_of: Fleets, show: Show, size: int
) -> None:
    """Whoever finds that a process is gone buries it: with a lease that outlasts the test nothing else would."""
    fleet = fleet_of(place, ttl_s=ENDLESS_S)
    for _ in range(KILLS * size):
        fleet.start(FLOWS // KILLS)
        fleet.wait_for_work()
        fleet.kill_one()
        fleet.wait()
    show(fleet.check())
    assert [wait for wait in fleet.waits_after_death() if wait > ENDLESS_S / 2] == []


def test_frozen_workers_write_nothing_late(place: str, fleet_of: Fleets, show: Show, size: int) -> None:
    fleet = fleet_of(place, beat_s=TTL_S / 4, ttl_s=TTL_S)
    for _ in range(size):
        fleet.start(FLOWS)
        fleet.wait_for_work()
        pid = fleet.freeze_one()
        fleet.pause(3 * TTL_S, 3 * TTL_S)
        fleet.thaw(pid)
    fleet.wait()
    # A worker that is frozen while it writes to SQLite holds up all others, beyond their leases too.
    show(fleet.check(most_again=WORKERS * THREADS * size))


def test_no_work_is_stolen_from_the_living_when_the_clock_jumps(
    place: str, fleet_of: Fleets, show: Show, size: int
) -> None:
    fleet = fleet_of(place, beat_s=5.0, ttl_s=30.0, stepped=True)
    for _ in range(size):
        for ahead in (HOUR_S, -HOUR_S, 0.0):
            fleet.start(FLOWS // KILLS)
            fleet.wait_for_work()
            fleet.step_clock(ahead)
            fleet.pause(0.2, 0.5)
    fleet.step_clock(2 * HOUR_S)  # what was made due while the clock was ahead would else wait until then
    fleet.wait()
    show(fleet.check(most_again=0))


def test_postgresql_is_restarted_again_and_again_and_every_workflow_ends(
    server: postgres.Server, fleet_of: Fleets, show: Show, size: int
) -> None:
    url = server.fresh_database()
    store: Any = open_store(url, kinds=KINDS)
    store.create_tables()
    store.close()
    fleet = fleet_of(url)
    for number in range(2 * size):
        fleet.start(FLOWS // KILLS)
        fleet.pause(0.2, 1.0)
        server.restart(crash=number % 2 == 1)
    fleet.wait()
    show(fleet.check(most_again=WORKERS * THREADS * 2 * size))
