"""Processes that share a breaker, without the processes: each has its own circuit and its own `Sharing`."""

from __future__ import annotations

from typing import Any

from holdfast.breakers.sharing import Sharing
from holdfast.core.outcome import Evidence
from holdfast.errors import StoreUnavailable
from holdfast.guard.circuit import LiveCircuit
from holdfast.machine.breaker import Breaker, CircuitState
from holdfast.machine.circuit import Permit, Refusal
from holdfast.machine.trip import consecutive
from holdfast.store.port import Store
from holdfast.telemetry.events import CircuitStateChanged
from holdfast.telemetry.hub import Hub
from holdfast.testing.clock import ManualClock

SUCCESS, FAILURE, NEUTRAL = Evidence


class Flaky:
    """A store that can be away."""

    def __init__(self, store: Store) -> None:
        self.store = store
        self.away = False
        self.calls = 0

    def __getattr__(self, name: str) -> Any:
        found = getattr(self.store, name)
        if name in ("url", "now", "close", "subscribe"):
            return found

        def call(*args: Any, **options: Any) -> Any:
            self.calls += 1
            if self.away:
                raise StoreUnavailable("the store is away")
            return found(*args, **options)

        return call


class Process:
    """One process with a circuit named api; nothing happens in the background."""

    def __init__(self, store: Store, clock: ManualClock, policy: Breaker | None = None, **options: Any) -> None:
        self.clock = clock
        self.hub = Hub(clock=clock)
        self.heard: list[CircuitStateChanged] = []
        self.hub.register(lambda event: self.heard.append(event) if isinstance(event, CircuitStateChanged) else None)
        self.circuit = LiveCircuit("api", policy or Breaker(consecutive(1), open_for=30.0), clock, self.hub)
        self.sharing = Sharing(store, clock=clock, hub=self.hub, background=False, **options)
        self.sharing.attach(self.circuit)

    @property
    def state(self) -> CircuitState:
        return self.circuit.state

    @property
    def causes(self) -> list[str | None]:
        """Why its state changed, so far."""
        return [event.cause for event in self.heard]

    def sync(self) -> bool:
        return self.sharing.sync()

    def ask(self) -> Permit | Refusal:
        return self.circuit.admit(self.clock.monotonic())

    def probe(self) -> Permit:
        """Leave for a probe; it must be there."""
        permit = self.ask()
        assert isinstance(permit, Permit), "no leave for a probe"
        assert permit.lease is not None
        return permit

    def is_refused(self) -> bool:
        return isinstance(self.ask(), Refusal)

    def finish(self, permit: Permit, evidence: Evidence, error: BaseException | None = None) -> None:
        self.circuit.finish(permit, evidence, self.clock.monotonic(), 0.0, error)

    def fail(self) -> None:
        """A call that fails; closed, it trips the circuit."""
        permit = self.ask()
        assert isinstance(permit, Permit)
        self.finish(permit, FAILURE, ConnectionError("down"))


def sync(*processes: Process) -> None:
    for process in processes:
        process.sync()
