"""The breakers of a store: their states, an operator's word on them, and the circuits here that share them."""

from __future__ import annotations

from holdfast.breakers.repository import CircuitBreakerStateRepository
from holdfast.breakers.sharing import Sharing, SharingStatus
from holdfast.core.clock import SYSTEM_CLOCK, Clock
from holdfast.guard.circuit import LiveCircuit
from holdfast.store.port import Store
from holdfast.telemetry.hub import Hub


class Breakers(CircuitBreakerStateRepository):
    """The repository, and sharing. What an operator says here every process on the store hears within a second."""

    def __init__(
        self,
        store: Store,
        *,
        clock: Clock | None = None,
        hub: Hub | None = None,
        quorum: int = 1,
        background: bool = True,
    ) -> None:
        super().__init__(store, clock)
        own = SYSTEM_CLOCK if clock is None else clock
        self.sharing = Sharing(store, quorum=quorum, clock=own, hub=hub, background=background)

    def share(self, circuit: LiveCircuit, name: str | None = None) -> None:
        """Make the circuit one with those of its name in all processes."""
        self.sharing.attach(circuit, name)

    def status(self) -> SharingStatus:
        """Whether the store is there, and what is shared through it."""
        return self.sharing.status()

    def close(self) -> None:
        """Stop sharing; the circuits go on alone."""
        self.sharing.close()
