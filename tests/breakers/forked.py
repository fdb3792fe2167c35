"""Run as a program: a child forked while its parent shares a circuit shares it too, as a process of its own."""

from __future__ import annotations

import os
import sys
import threading
import time

from holdfast.breakers.sharing import Sharing
from holdfast.core.clock import SYSTEM_CLOCK
from holdfast.core.outcome import Evidence
from holdfast.guard.circuit import LiveCircuit
from holdfast.machine.breaker import OPEN, Breaker
from holdfast.machine.breaker_record import BREAKER
from holdfast.machine.trip import consecutive
from holdfast.telemetry.hub import Hub
from tests.stores import Place


def main(name: str, url: str) -> None:
    store = Place(name, url, (BREAKER,)).open()
    circuits = {one: LiveCircuit(one, Breaker(consecutive(1)), SYSTEM_CLOCK, Hub()) for one in ("mine", "yours")}
    sharing = Sharing(store)
    for circuit in circuits.values():
        sharing.attach(circuit)
    wait(lambda: sharing.is_connected)
    parent = sharing.status().process
    child = os.fork()
    own, other = ("yours", "mine") if child == 0 else ("mine", "yours")
    assert (sharing.status().process == parent) == (child != 0)
    assert [one.name for one in threading.enumerate()].count("holdfast-breakers") == 1
    circuits[own].finish(circuits[own].gate, Evidence.FAILURE, time.monotonic())
    wait(lambda: circuits[other].state is OPEN)
    if child:
        assert os.waitpid(child, 0)[1] == 0, "the child did not see what its parent did"
    sharing.close()
    store.close()
    if child == 0:
        os._exit(0)
    sys.stdout.write("shared\n")


def wait(done: object) -> None:
    give_up = time.monotonic() + 20
    while not done():  # type: ignore[operator]  # a function
        assert time.monotonic() < give_up, "it did not come to pass"
        time.sleep(0.01)


if __name__ == "__main__":
    main(*sys.argv[1:])
