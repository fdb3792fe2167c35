"""Switch guards off, open circuits, and put everything back."""

from __future__ import annotations

import copy
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Protocol

from holdfast.errors import PolicyError
from holdfast.guard.circuit import CircuitBreakerStrategy, LiveCircuit
from holdfast.guard.scope import Scope
from holdfast.machine.breaker import CircuitState, Control
from holdfast.machine.circuit import Circuit
from holdfast.telemetry.hub import Hub, default_hub


class Registry(Protocol):
    """Where a name leads to a pipeline or a guard: a ResiliencePipelineRegistry, or a dict."""

    def get(self, name: str, /) -> Any: ...


def disable(hub: Hub | None = None) -> Scope[Hub]:
    """Turn every guard on the hub (default: the process-wide one) into a plain call, in all threads.

    A block or a decorator. Blocks nest; the outermost one must end last.
    """
    return Scope(lambda: _disabled(default_hub() if hub is None else hub))


def unchanged(hub: Hub | None = None) -> Scope[Hub]:
    """Put the hub's listeners and its switch back at the end, whatever the block did to them."""
    return Scope(lambda: _unchanged(default_hub() if hub is None else hub))


def trip(target: Any, *, registry: Registry | None = None) -> Scope[LiveCircuit]:
    """Open a circuit as if its dependency had just failed, and put it back afterwards; `as` gives the circuit.

    `target` is a guard, a guarded function, a pipeline, or anything with a circuit (`pool.circuit(endpoint)`, a
    CircuitBreaker). A name is looked up in `registry`, by default the process-wide registry of pipelines.

    The circuit stays open for its full `open_for` and then admits a probe, as ever: a manual clock leads a test through
    recovery. An isolated circuit stays isolated. Afterwards it is as it was, with its counts, except that half-open
    comes back as open and due, and calls under way no longer count.

    Raises, when the block begins: PolicyError for something without a Breaker, KeyError for an unknown name.
    """
    return Scope(lambda: _tripped(circuit_of(target, registry)))


def circuit_of(target: Any, registry: Registry | None = None) -> LiveCircuit:
    """The circuit behind whatever `trip` accepts."""
    if isinstance(target, str):
        target = _named(target, registry)
    found = getattr(target, "__holdfast_guard__", target)
    plan = getattr(found, "plan", None)
    if plan is not None:
        found = plan.first(CircuitBreakerStrategy)
    circuit = found if isinstance(found, LiveCircuit) else getattr(found, "circuit", None)
    if not isinstance(circuit, LiveCircuit):
        raise PolicyError(
            f"trip needs something with a Breaker, got {target!r}; a pool has a circuit for each endpoint, use "
            "trip(pool.circuit(endpoint))"
        )
    return circuit


def _named(name: str, registry: Registry | None) -> Any:
    if registry is None:
        from holdfast.guard.registry import get_pipeline_registry

        registry = get_pipeline_registry()
    found = registry.get(name)
    if found is None:
        raise KeyError(f"nothing is registered as {name!r}")
    return found


@contextmanager
def _disabled(hub: Hub) -> Iterator[Hub]:
    was_off = hub.off
    hub.switch(True)
    try:
        yield hub
    finally:
        hub.switch(was_off)


@contextmanager
def _unchanged(hub: Hub) -> Iterator[Hub]:
    before, was_off = hub.listeners, hub.off
    try:
        yield hub
    finally:
        for listener in hub.listeners:
            if not any(listener is known for known in before):
                hub.unregister(listener)
        for listener in before:
            hub.register(listener)
        hub.switch(was_off)


@contextmanager
def _tripped(circuit: LiveCircuit) -> Iterator[LiveCircuit]:
    before = Memory(circuit)
    if circuit.control is not Control.ISOLATED:
        circuit.command("enable")
        if circuit.state is CircuitState.OPEN:
            circuit.command("close")  # to open anew, for the full time
        circuit.command("trip")
    try:
        yield circuit
    finally:
        before.restore()


class Memory:
    """What a circuit was like."""

    __slots__ = ("_at", "_circuit", "_dirty", "_generation", "_policy", "_snapshot", "_tallies")

    def __init__(self, circuit: LiveCircuit) -> None:
        self._circuit = circuit
        with circuit._lock:
            self._at = circuit._clock.monotonic()
            self._snapshot = circuit.snapshot(self._at)
            self._generation = circuit.generation
            self._policy = circuit.policy
            self._dirty = circuit.dirty
            self._tallies = copy.deepcopy(circuit._tallies)

    def restore(self) -> None:
        """Make the circuit so again, unless nothing has happened to it; events tell of it as of any change."""
        circuit = self._circuit
        if circuit.generation == self._generation:
            return
        circuit.command("enable")
        circuit.command("reset")
        circuit._plan_ahead(int(self._snapshot["rounds"]))
        with circuit._lock:
            now = circuit._clock.monotonic()
            Circuit.restore(circuit, self._snapshot, now - self._at, now)
            if circuit.state is CircuitState.CLOSED and circuit.policy is self._policy:
                circuit._tallies, circuit.dirty = self._tallies, self._dirty
            told = circuit._collect()
        if told:
            circuit._tell()
