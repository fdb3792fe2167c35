"""What the tests of replay share: letters of a guarded function, on a store whose time stands still."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

from holdfast.backends.memory import MemoryStore
from holdfast.guard.guard import Guard
from holdfast.letters.data import FailedOperationData
from holdfast.letters.handlers import ReplayHandlers
from holdfast.letters.recovery import Recovery, RecoveryPolicy
from holdfast.letters.replay import Replayer
from holdfast.letters.repository import FailedOperationRepository
from holdfast.machine.breaker import Breaker
from holdfast.machine.trip import consecutive
from holdfast.store.port import Store
from holdfast.telemetry.events import GuardEvent
from holdfast.telemetry.hub import Hub
from holdfast.testing.clock import ManualClock

OPEN = "CIRCUIT_BREAKER_OPEN"


class SwiftClock(ManualClock):
    """A manual clock that jumps at once where somebody waits, whatever other threads may be about to do."""

    def wait(self, event: threading.Event, seconds: float | None) -> bool:
        if not event.is_set() and seconds is not None:
            self.advance(seconds)
        return event.is_set()


class Kit:
    """A repository, a registry and a replayer; `events` are those that were told, `calls` what was called."""

    def __init__(self, store: Store | None = None, clock: ManualClock | None = None, **options: Any) -> None:
        self.clock = SwiftClock() if clock is None else clock
        self.store = MemoryStore(self.clock) if store is None else store
        self.letters = FailedOperationRepository(self.store)
        self.handlers = ReplayHandlers()
        self.hub = Hub(clock=self.clock)
        self.events: list[GuardEvent] = []
        self.hub.register(self.events.append)
        self.replayer = Replayer(
            self.letters, self.handlers, clock=self.clock, hub=self.hub, rng=lambda: 1.0, **options
        )
        self.recovery = Recovery(self.replayer, RecoveryPolicy(concurrency=1))
        self.calls: list[Any] = []
        self.broken = False
        self.guard = self.make_guard()

    def make_guard(self, *policies: Any) -> Guard:
        used = policies or (Breaker(consecutive(3), open_for=30.0),)
        return Guard("payments", *used, clock=self.clock, telemetry=self.hub, rng=lambda: 0.5)

    def charge(self, order_id: str, amount: int = 1) -> str:
        self.calls.append(order_id)
        if self.broken:
            raise ConnectionError("no route to the bank")
        return f"charged {order_id}"

    def register(self, fn: Callable[..., Any] | None = None, guard: Guard | None = None, **options: Any) -> None:
        used = self.guard if guard is None else guard
        self.handlers.register_function("payments", "charge", fn or self.charge, used, **options)

    def letter(self, order_id: str = "o1", failure_type: str = OPEN, **fields: Any) -> FailedOperationData:
        given: dict[str, Any] = {
            "entity_type": "order",
            "entity_id": order_id,
            "request_data": {"function": "charge", "args": {"order_id": order_id, "amount": 7}},
            "max_retries": 3,
        }
        return self.letters.create("payments", failure_type, **{**given, **fields})

    def status(self, id: str) -> str:
        found = self.letters.get_by_id(id)
        assert found is not None
        return found.status

    def open_circuit(self) -> None:
        for _ in range(3):
            self.guard.run(_fail)
        assert self.guard.circuit.state == "open"

    def told(self, kind: type[GuardEvent]) -> list[Any]:
        return [event for event in self.events if isinstance(event, kind)]


def _fail() -> None:
    raise ConnectionError("down")
