"""Run as a program: follow an open breaker, take a probe's permit, and hold it until killed."""

from __future__ import annotations

import sys
import threading
import time

from holdfast.breakers.sharing import Sharing
from holdfast.core.clock import SYSTEM_CLOCK
from holdfast.guard.circuit import LiveCircuit
from holdfast.machine.breaker_record import BREAKER
from holdfast.machine.circuit import Permit
from holdfast.telemetry.hub import Hub
from tests.breakers.workers import ONE_PROBE
from tests.stores import Place


def main(name: str, url: str, breaker: str) -> None:
    circuit = LiveCircuit(breaker, ONE_PROBE, SYSTEM_CLOCK, Hub())
    Sharing(Place(name, url, (BREAKER,)).open()).attach(circuit)
    permit = circuit.admit(time.monotonic())
    while not isinstance(permit, Permit) or permit.lease is None:
        time.sleep(0.01)
        permit = circuit.admit(time.monotonic())
    sys.stdout.write("holding\n")
    sys.stdout.flush()
    threading.Event().wait()


if __name__ == "__main__":
    main(*sys.argv[1:])
