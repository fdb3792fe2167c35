"""What the processes of test_processes.py do. Each opens the place by itself."""

from __future__ import annotations

import random
import threading
import time
from multiprocessing.sharedctypes import Synchronized
from multiprocessing.synchronize import Barrier
from typing import Any

from holdfast.breakers import share
from holdfast.breakers.repository import CircuitBreakerStateRepository
from holdfast.breakers.sharing import Sharing
from holdfast.core.clock import SYSTEM_CLOCK
from holdfast.core.outcome import Evidence
from holdfast.guard.circuit import LiveCircuit
from holdfast.machine.breaker import Breaker
from holdfast.machine.breaker_record import BREAKER
from holdfast.machine.circuit import Refusal
from holdfast.machine.trip import consecutive
from holdfast.telemetry.hub import Hub
from tests.stores import Place

POLICY = Breaker(consecutive(1), open_for=0.3, successes=2, out_of=3, probes=2)
ONE_PROBE = Breaker(consecutive(1), open_for=0.3)
_shared: dict[str, Any] = {}


def prepare(start: Barrier, running: Synchronized[int], most: Synchronized[int], probed: Synchronized[int]) -> None:
    _shared.update(start=start, running=running, most=most, probed=probed)


def take_slots(place: tuple[str, str], rounds: int) -> list[int]:
    """How many slots this process got in each round, and how often it was the one that closed."""
    store = Place(*place, (BREAKER,)).open()
    breakers = CircuitBreakerStateRepository(store)
    taken = []
    for number in range(rounds):
        _shared["start"].wait()
        name = f"api-{number}"
        mine = sum(breakers.try_acquire_half_open_slot(name, 3, 60)[0] for _ in range(3))
        for _ in range(mine):
            breakers.record_success_with_close_check(name, 99)
        taken.append(mine)
    store.close()
    return taken


def settle(place: tuple[str, str], rounds: int) -> list[tuple[int, int]]:
    """How often this process was told that it opened or closed the breaker."""
    store = Place(*place, (BREAKER,)).open()
    breakers = CircuitBreakerStateRepository(store)
    told = []
    for number in range(rounds):
        _shared["start"].wait()
        opened = sum(breakers.record_failure_with_open_check(f"o-{number}", 10).did_open for _ in range(5))
        closed = sum(breakers.record_success_with_close_check(f"c-{number}", 10).did_close for _ in range(5))
        told.append((opened, closed))
    store.close()
    return told


def probe(place: tuple[str, str], wanted: int, threads: int) -> int:
    """Call, trip and probe a shared circuit in many threads until the fleet has made so many probes."""
    share.SHORTEST_LEASE_S = 60.0  # type: ignore[misc]  # a busy machine may stop a process for longer than two
    store = Place(*place, (BREAKER,)).open()
    circuit = LiveCircuit("api", POLICY, SYSTEM_CLOCK, Hub())
    _shared["start"].wait()
    with Sharing(store) as sharing:
        sharing.attach(circuit)
        workers = [threading.Thread(target=_call, args=(circuit, wanted)) for _ in range(threads)]
        for worker in workers:
            worker.start()
        for worker in workers:
            worker.join()
        connected = sharing.is_connected
    store.close()
    return connected


def _call(circuit: LiveCircuit, wanted: int) -> None:
    give_up, rng = time.monotonic() + 60 + wanted, random.Random()
    while _shared["probed"].value < wanted and time.monotonic() < give_up:
        permit = circuit.admit(time.monotonic())
        if isinstance(permit, Refusal):
            time.sleep(0.001)
            continue
        evidence = Evidence.SUCCESS if rng.random() < 0.7 else Evidence.FAILURE
        if permit.lease is not None:
            evidence = _probe(evidence, rng)
        circuit.finish(permit, evidence, time.monotonic())


def _probe(evidence: Evidence, rng: random.Random) -> Evidence:
    running, most, probed = _shared["running"], _shared["most"], _shared["probed"]
    with running.get_lock():
        running.value += 1
        most.value = max(most.value, running.value)
    time.sleep(rng.random() * 0.01)
    with running.get_lock():
        running.value -= 1
        probed.value += 1
    return Evidence.NEUTRAL if rng.random() < 0.2 else evidence
