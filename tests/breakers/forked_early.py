"""Run as a program: a child forked before its parent has told of a trip, and before it has heard of the store."""

from __future__ import annotations

import os
import sys
import time

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


def main(url: str) -> None:
    store = Place("sqlite", url, (BREAKER,)).open()
    names = "due", "tripped"
    circuits = {name: LiveCircuit(name, Breaker(consecutive(1), open_for=0.01), SYSTEM_CLOCK, Hub()) for name in names}
    sharing = Sharing(store, background=False)
    for circuit in circuits.values():
        sharing.attach(circuit)
    fail(circuits["due"])
    assert sharing.sync()
    fail(circuits["tripped"])
    time.sleep(0.02)
    if os.fork() == 0:
        try:
            assert isinstance(circuits["due"].admit(time.monotonic()), Refusal), "it probed without leave"
            assert sharing.sync()
            assert store.get(BREAKER, ("tripped",)) == [None], "it voted with its parent's evidence"
        except BaseException as error:
            sys.stderr.write(f"{error}\n")
            os._exit(1)
        os._exit(0)
    assert os.wait()[1] == 0, "the child failed"
    assert sharing.sync()
    assert store.get(BREAKER, ("tripped",)) != [None]
    store.close()
    sys.stdout.write("its own\n")


def fail(circuit: LiveCircuit) -> None:
    circuit.finish(circuit.gate, Evidence.FAILURE, time.monotonic())


if __name__ == "__main__":
    main(*sys.argv[1:])
