"""Real processes on one store: the fleet's limits hold, and every transition has one author."""

from __future__ import annotations

import multiprocessing
import subprocess
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from holdfast.breakers.repository import CircuitBreakerStateRepository
from holdfast.breakers.share import SHORTEST_LEASE_S
from holdfast.breakers.sharing import Sharing
from holdfast.core.clock import SYSTEM_CLOCK
from holdfast.core.outcome import Evidence
from holdfast.guard.circuit import LiveCircuit
from holdfast.machine.breaker import CLOSED
from holdfast.machine.breaker_record import BREAKER
from holdfast.machine.circuit import Permit
from holdfast.telemetry.hub import Hub
from tests.breakers import workers
from tests.conftest import SIZE
from tests.stores import SHARED_STORES, Place, fresh_place

PROCESSES = 4 if SIZE == 1 else 8
THREADS = PROCESSES
SPAWN = multiprocessing.get_context("spawn")

pytestmark = [pytest.mark.torture, pytest.mark.timeout(1800)]


@pytest.fixture(params=SHARED_STORES)
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Place]:
    with fresh_place(request.param, tmp_path, (BREAKER,)) as place:
        yield place


class Counters:
    """What the processes count together."""

    def __init__(self) -> None:
        self.running, self.most, self.probed = (SPAWN.Value("i", 0) for _ in range(3))

    def run(self, place: Place, job: Any, *args: Any) -> list[Any]:
        shared = (SPAWN.Barrier(PROCESSES), self.running, self.most, self.probed)
        with ProcessPoolExecutor(PROCESSES, SPAWN, workers.prepare, shared) as pool:
            jobs = [pool.submit(job, (place.name, place.url), *args) for _ in range(PROCESSES)]
            return [one.result() for one in jobs]


@pytest.fixture
def breakers(place: Place) -> Iterator[CircuitBreakerStateRepository]:
    store = place.open()
    yield CircuitBreakerStateRepository(store)
    store.close()


def test_slots_of_many_processes_are_never_above_the_limit(place, breakers, size):
    rounds = 10 * size
    for number in range(rounds):
        breakers.record_failure_with_open_check(f"api-{number}", 1)
    taken = Counters().run(place, workers.take_slots, rounds)
    assert [sum(mine) for mine in zip(*taken, strict=True)] == [3] * rounds
    assert {breakers.get_by_service_name(f"api-{number}").success_count for number in range(rounds)} == {3}


def test_one_process_opens_and_one_closes(place, breakers, size):
    rounds = 10 * size
    for number in range(rounds):
        breakers.get_or_create(f"c-{number}")
        breakers.update_state(f"c-{number}", "half_open")
    told = Counters().run(place, workers.settle, rounds)
    for number, mine in enumerate(zip(*told, strict=True)):
        assert [sum(each) for each in zip(*mine, strict=True)] == [1, 1]
        assert breakers.get_by_service_name(f"o-{number}").failure_count == 5 * PROCESSES
        assert breakers.get_by_service_name(f"c-{number}").success_count == 5 * PROCESSES - 10


def test_probes_of_the_whole_fleet_are_never_above_the_limit(place, size):
    counters = Counters()
    connected = counters.run(place, workers.probe, 60 * size, THREADS)
    assert all(connected)
    assert counters.probed.value >= 60 * size
    assert counters.running.value == 0
    assert counters.most.value <= workers.POLICY.probes


def test_the_permit_of_a_process_that_was_killed_goes_to_another_one_when_its_lease_is_over(place, breakers, size):
    for number in range(size):
        name = f"api-{number}"
        breakers.record_failure_with_open_check(name, 1)
        words = [sys.executable, "-m", "tests.breakers.holder", place.name, place.url, name]
        with subprocess.Popen(words, stdout=subprocess.PIPE, text=True) as holder:
            try:
                assert holder.stdout is not None
                assert holder.stdout.readline() == "holding\n"
                held = time.monotonic()
            finally:
                holder.kill()
        circuit = LiveCircuit(name, workers.ONE_PROBE, SYSTEM_CLOCK, Hub())
        circuit.finish(circuit.gate, Evidence.FAILURE, time.monotonic())  # and it knows of no leave but the store's
        with Sharing(breakers.store) as sharing:
            sharing.attach(circuit)
            permit = circuit.admit(time.monotonic())
            while not isinstance(permit, Permit) and time.monotonic() < held + 30:
                time.sleep(0.005)
                permit = circuit.admit(time.monotonic())
            assert isinstance(permit, Permit)
            assert time.monotonic() - held > SHORTEST_LEASE_S / 2
            circuit.finish(permit, Evidence.SUCCESS, time.monotonic())
            while circuit.state is not CLOSED and time.monotonic() < held + 30:
                time.sleep(0.005)
        assert breakers.get_by_service_name(name).is_closed
