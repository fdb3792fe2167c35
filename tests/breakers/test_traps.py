"""What the original got wrong with breakers, and ours must not: those of its traps that have no better home.

The numbers are those of the list in `tests/letters/test_traps.py`, which says where all of them are tested.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from holdfast.breakers.repository import CircuitBreakerStateRepository
from holdfast.machine.breaker import CLOSED, OPEN
from holdfast.machine.breaker_record import BREAKER
from holdfast.testing.clock import ManualClock
from tests.breakers.fleet import Process
from tests.stores import STORES, fresh_place

LASTING = [name for name in STORES if name != "memory"]


@pytest.mark.parametrize("name", LASTING)
def test_trap_17_a_manual_block_is_where_the_traffic_looks_and_survives_every_restart(
    name: str, tmp_path: Path, clock: ManualClock
) -> None:
    with fresh_place(name, tmp_path, (BREAKER,)) as place:
        store = place.open(clock)
        CircuitBreakerStateRepository(store, clock).atomic_force_open("api", "drill", "ann", 90)
        store.close()
        clock.advance(89 * 60)
        for _ in range(2):  # each is a process that knows nothing but the place
            store = place.open(clock)
            process = Process(store, clock)
            process.sync()
            assert (process.state, process.is_refused()) == (OPEN, True)
            assert "drill" in process.circuit.rule
            process.sharing.close()
            store.close()


def test_trap_18_a_breaker_that_was_forced_closed_trips_again_for_its_traffic_once_the_pin_is_over(
    tmp_path: Path, clock: ManualClock
) -> None:
    with fresh_place("sqlite", tmp_path, (BREAKER,)) as place:
        store = place.open(clock)
        CircuitBreakerStateRepository(store, clock).atomic_force_close("api", "trust me", "ann", ttl_minutes=90)
        process = Process(store, clock)
        process.sync()
        process.fail()
        assert process.state is CLOSED
        clock.advance(90 * 60)
        process.sync()
        process.fail()
        assert process.state is OPEN
        store.close()


def test_trap_28_a_forced_open_from_the_command_line_stops_the_traffic_of_other_processes(
    tmp_path: Path, clock: ManualClock
) -> None:
    with fresh_place("sqlite", tmp_path, (BREAKER,)) as place:
        store = place.open()
        process = Process(store, clock)
        process.sync()
        assert not process.is_refused()
        force = ["breakers", "force-open", "api", "--reason", "drill", "--url", place.url]
        subprocess.run([sys.executable, "-m", "holdfast", *force], check=True, capture_output=True)
        process.sync()
        assert (process.state, process.is_refused()) == (OPEN, True)
        process.sharing.close()
        store.close()
