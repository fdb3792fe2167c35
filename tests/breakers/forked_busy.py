"""Run as a program: children forked while other threads are at a circuit find it free, and whole."""

from __future__ import annotations

import os
import signal
import sys
import threading
import time

from holdfast.core.clock import SYSTEM_CLOCK
from holdfast.core.outcome import Evidence
from holdfast.guard.circuit import LiveCircuit
from holdfast.machine.breaker import Breaker
from holdfast.machine.trip import ratio
from holdfast.telemetry.hub import Hub

CHILDREN = 100


def main() -> None:
    circuit = LiveCircuit("api", Breaker(ratio(0.9)), SYSTEM_CLOCK, Hub())
    over = threading.Event()

    def call() -> None:
        while not over.is_set():
            circuit.finish(circuit.gate, Evidence.SUCCESS, time.monotonic())

    callers = [threading.Thread(target=call) for _ in range(3)]
    for caller in callers:
        caller.start()
    try:
        for _ in range(CHILDREN):
            child = os.fork()
            if child == 0:
                signal.alarm(5)
                circuit.finish(circuit.gate, Evidence.SUCCESS, time.monotonic())
                os._exit(0)
            assert os.waitpid(child, 0)[1] == 0, "a child waited for a lock that nobody holds"
    finally:
        over.set()
        for caller in callers:
            caller.join()
    sys.stdout.write("decided\n")


if __name__ == "__main__":
    main()
