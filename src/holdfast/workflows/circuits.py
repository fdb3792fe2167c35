"""Circuit breakers of tasks: one for each task type of each workflow, or as wide as the configuration says.

The rules are the breaker machine's. This adds whose circuit it is, what a task's failure means to it, and a cache that
stays small without forgetting that something is broken.
"""

from __future__ import annotations

import threading
from asyncio import CancelledError
from collections import OrderedDict
from collections.abc import Callable, Iterator
from concurrent.futures import CancelledError as FutureCancelled
from contextlib import contextmanager
from inspect import iscoroutinefunction
from typing import TYPE_CHECKING, Any, Final, ParamSpec, TypeVar, cast
from weakref import WeakValueDictionary

from holdfast.core.clock import SYSTEM_CLOCK, Clock
from holdfast.core.outcome import Evidence
from holdfast.errors import (
    BulkheadFullError,
    CircuitOpenError,
    ConcurrencyError,
    ConfigurationError,
    GuardRejected,
    TransientError,
)
from holdfast.guard.circuit import LiveCircuit
from holdfast.machine.breaker import Breaker, CircuitState, Control
from holdfast.machine.circuit import Permit, Refusal
from holdfast.machine.trip import k_of_n
from holdfast.telemetry.events import GuardEvent
from holdfast.telemetry.hub import Hub, default_hub
from holdfast.workflows.execution import TaskCircuit
from holdfast.workflows.resilience import ResilienceConfig

if TYPE_CHECKING:
    from holdfast.breakers.breakers import Breakers

P = ParamSpec("P")
T = TypeVar("T")

Key = tuple[str, str, str]
"""The scope, its name, and the task type (empty where types share a circuit)."""

NEUTRAL: Final[tuple[type[BaseException], ...]] = (
    CancelledError, FutureCancelled, GeneratorExit, KeyboardInterrupt,
    BulkheadFullError, CircuitOpenError, ConcurrencyError, GuardRejected,
)  # fmt: skip
"""What says nothing of the thing that was called: cancelled, no slot, a lost lease, refused before it was called."""

_LOOKS: Final = 16


class WorkflowCircuit:
    """A circuit as a task's call passes it: `admit` before, `settle` after, or both around a block with `attempt`."""

    __slots__ = ("__weakref__", "_factory", "key", "live")

    def __init__(self, key: Key, live: LiveCircuit, factory: WorkflowCircuitFactory) -> None:
        self.key = key
        self.live = live
        self._factory = factory

    @property
    def name(self) -> str:
        """Unlike that of any other circuit of its factory."""
        return _name(self.key)

    @property
    def workflow_id(self) -> str | None:
        """None where workflows share the circuit."""
        scope, name, _ = self.key
        return name if scope == "workflow" else None

    @property
    def state(self) -> CircuitState:
        return self.live.state

    def admit(self) -> Permit:
        """Leave to call; it must be settled. After the cooldown, one call at a time is let through as a probe.

        Raises TransientError ("Circuit breaker open ...") whose `retry_after` is what is left of the cooldown.
        """
        live = self.live
        if gate := live.gate:  # the generation while all may pass
            return Permit(gate)
        answer = live.admit(live.clock.monotonic())
        if isinstance(answer, Refusal):
            raise self._open(answer)
        return answer

    def settle(self, permit: Permit, error: BaseException | None) -> None:
        """The call of this permit has ended: well, or with this error. What is neutral gives a probe back."""
        live = self.live
        if error is None and permit.generation == live.gate:
            live.succeed(permit.generation, live.clock.monotonic(), 0.0)
        else:
            live.finish(permit, self._evidence(error), live.clock.monotonic(), error=error)
        if not live.gate and not self.is_at_rest:
            self._factory.keep(self)

    @contextmanager
    def attempt(self) -> Iterator[None]:
        """Around a call, sync or async. Raises TransientError while the circuit is open."""
        permit = self.admit()
        try:
            yield
        except BaseException as error:
            self.settle(permit, error)
            raise
        self.settle(permit, None)

    def call(self, func: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        """What the function returns. Raises TransientError while the circuit is open."""
        if iscoroutinefunction(func):
            raise TypeError(f"{func!r} is async and would only be begun here; use `with circuit.attempt():` around it")
        with self.attempt():
            return func(*args, **kwargs)

    def figures(self) -> dict[str, Any]:
        """The numbers behind the next decision."""
        return {"name": self.name, "workflow_id": self.workflow_id, **self.live.look("figures")}

    @property
    def is_at_rest(self) -> bool:
        """Whether nothing would be lost but a few counted calls if it were made anew."""
        return self.live.state is CircuitState.CLOSED and self.live.control is Control.AUTO

    def _evidence(self, error: BaseException | None) -> Evidence:
        if error is None:
            return Evidence.SUCCESS
        return Evidence.NEUTRAL if isinstance(error, self._factory.ignored) else Evidence.FAILURE

    def _open(self, refusal: Refusal) -> TransientError:
        # Behind a probe nobody knows how long: it may run for hours, or end now. And an operator's word has no end.
        left = refusal.retry_after
        cooldown = self._factory.config.circuit_cooldown_seconds
        wait = cooldown if left is None else min(left, cooldown)
        text = f"Circuit breaker open: {self.name} ({refusal.rule}); next try in {wait:.3g} s"
        error = CircuitOpenError(text, retry_after=wait)
        error.__cause__ = refusal.cause
        return error


class _Untried:
    """The circuit of calls of which none has failed. There is none yet: one that knows of successes only decides as one
    that knows of nothing, for it opens by the failures among the last calls."""

    __slots__ = ("_factory", "_key")

    def __init__(self, factory: WorkflowCircuitFactory, workflow_id: str, task_type: str) -> None:
        self._factory = factory
        self._key = workflow_id, task_type

    def admit(self) -> None:
        """All may pass."""

    def settle(self, permit: None, error: BaseException | None) -> None:
        if error is not None:
            circuit = self._factory.get_circuit(*self._key)
            # Of an earlier round than any other, if it is open by now: then this call was let through before.
            circuit.settle(Permit(circuit.live.gate), error)


class WorkflowCircuitFactory:
    """Gives each task type of each workflow its circuit, the same one every time.

    At most `circuit_cache_size` are kept, those used last; one that is not closed, or that somebody holds, is not
    forgotten. Exceptions of the types in `ignored` are neutral. With `breakers`, the circuits are shared through their
    store, under their names; whether that is there, `breakers.status()` says.

    Raises ConfigurationError for `ignored` types that are none.
    """

    def __init__(
        self,
        config: ResilienceConfig | None = None,
        *,
        clock: Clock = SYSTEM_CLOCK,
        telemetry: Hub | None = None,
        ignored: tuple[type[BaseException], ...] = (),
        breakers: Breakers | None = None,
    ) -> None:
        kinds: tuple[object, ...] = ignored
        for kind in kinds:
            if not isinstance(kind, type) or not issubclass(kind, BaseException):
                raise ConfigurationError(f"ignored must be a tuple of exception types, got {kind!r} in it")
        self.config = config = ResilienceConfig() if config is None else config
        self._policy = Breaker(
            k_of_n(config.failures_to_open, config.window), open_for=config.circuit_cooldown_seconds, probes=1
        )
        self._clock = clock
        self._hub = default_hub() if telemetry is None else telemetry
        self.ignored = (*NEUTRAL, *ignored)
        self._breakers = breakers
        self._lock, self._sharing = threading.Lock(), threading.Lock()
        self._kept: OrderedDict[Key, WorkflowCircuit] = OrderedDict()
        # What was dropped to make room is found again as long as a call holds it: its result must not be lost.
        self._held: WeakValueDictionary[Key, WorkflowCircuit] = WeakValueDictionary()
        self._by_workflow: dict[str, set[Key]] = {}

    def __len__(self) -> int:
        return len(self._kept)

    def get_circuit(self, workflow_id: str, task_type: str) -> WorkflowCircuit:
        """The circuit of a task type in a workflow.

        Raises ConfigurationError when the function that is the scope gives no name, PolicyError when the name is too
        long to be shared.
        """
        key, dropped = self._key(workflow_id, task_type), list[WorkflowCircuit]()
        with self._lock:
            circuit = self._kept.get(key)
            if circuit is not None:
                self._kept.move_to_end(key)
            else:
                circuit = self._held.pop(key, None) or self._made(key, workflow_id, task_type)
                dropped = self._put(circuit)
        if self._breakers is not None:
            self._share(circuit)
            self._unshare(dropped)
        return circuit

    def passage(self, workflow_id: str, task_type: str) -> TaskCircuit:
        """The circuit as one call passes it: where none has failed so far, it is made by the first one that does."""
        apart = self.config.circuit_scope == "workflow" and self._breakers is None
        if apart and ("workflow", workflow_id, task_type) not in self._kept:
            return _Untried(self, workflow_id, task_type)
        return self.get_circuit(workflow_id, task_type)

    def keep(self, circuit: WorkflowCircuit) -> None:
        """Take back a circuit that was dropped while a call held it, and has opened since."""
        with self._lock:
            if self._held.get(circuit.key) is not circuit:
                return
            del self._held[circuit.key]
            dropped = self._put(circuit)
        self._share(circuit)
        self._unshare(dropped)

    def clear_workflow_circuits(self, workflow_id: str) -> int:
        """Forget the circuits of a workflow that has ended, open ones too; how many there were."""
        with self._lock:
            keys = self._by_workflow.pop(workflow_id, set())
            dropped = [self._kept.pop(key) for key in keys]
            for key in [one for one in self._held if one[:2] == ("workflow", workflow_id)]:
                del self._held[key]
        self._unshare(dropped)
        return len(dropped)

    def workflow_ids(self) -> list[str]:
        """The workflows that have circuits here: for whoever clears those that have ended elsewhere."""
        with self._lock:
            return list(self._by_workflow)

    def circuits(self) -> list[WorkflowCircuit]:
        """Every circuit that is kept, the one used last at the end."""
        with self._lock:
            return list(self._kept.values())

    def _key(self, workflow_id: str, task_type: str) -> Key:
        scope = self.config.circuit_scope
        if scope == "task_type":
            return "task_type", "", task_type
        if callable(scope):
            name: object = scope(workflow_id, task_type)
            if isinstance(name, str) and name:
                return "dependency", name, ""
            if name is not None:
                raise ConfigurationError(
                    f"circuit_scope must name the dependency of task type {task_type!r}, got {name!r}; "
                    f"return a text, or None to keep workflows apart"
                )
        return "workflow", workflow_id, task_type

    def _made(self, key: Key, workflow_id: str, task_type: str) -> WorkflowCircuit:
        # Metrics have a label for each circuit's name, and there is no end of workflows.
        label, hub = _name(key), self._hub
        if key[0] == "workflow":
            label, hub = f"workflow:{task_type}", cast(Hub, _Tagged(hub, {"workflow_id": workflow_id}))
        live = _ProbeCircuit(label, self._policy, self._clock, hub)
        # A probe that outlives its lease would not count, and a task that takes longer than the cooldown would never
        # close its circuit.
        longest = self.config.get_bulkhead(task_type).timeout_seconds
        live.probe_s = max(longest, self.config.circuit_cooldown_seconds)
        return WorkflowCircuit(key, live, self)

    def _put(self, newest: WorkflowCircuit) -> list[WorkflowCircuit]:
        """Keep one more, and drop what has not been used for longest: a few looks, however many are open."""
        kept, dropped = self._kept, list[WorkflowCircuit]()
        kept[newest.key] = newest
        if newest.workflow_id is not None:
            self._by_workflow.setdefault(newest.workflow_id, set()).add(newest.key)
        for _ in range(_LOOKS):
            if len(kept) <= self.config.circuit_cache_size:
                break
            key, circuit = kept.popitem(last=False)
            if circuit is newest or not circuit.is_at_rest:
                kept[key] = circuit
                continue
            dropped.append(circuit)
            self._held[key] = circuit
            if circuit.workflow_id is not None:
                keys = self._by_workflow[circuit.workflow_id]
                keys.discard(key)
                if not keys:
                    del self._by_workflow[circuit.workflow_id]
        return dropped

    def _share(self, circuit: WorkflowCircuit) -> None:
        if self._breakers is not None and circuit.live.remote is None:
            with self._sharing:
                if circuit.live.remote is None:
                    self._breakers.share(circuit.live, circuit.name)

    def _unshare(self, circuits: list[WorkflowCircuit]) -> None:
        if self._breakers is not None:
            for circuit in circuits:
                self._breakers.sharing.detach(circuit.live)


def _name(key: Key) -> str:
    scope, owner, task_type = key
    if scope == "workflow":
        owner = owner.replace("%", "%25").replace(":", "%3A")  # so that where it ends is certain
    return ":".join(part for part in (scope, owner, task_type) if part)


class _ProbeCircuit(LiveCircuit):
    """A circuit whose probes have as much time as a task may take."""

    __slots__ = ("probe_s",)

    probe_s: float

    def acquire(self, now: float) -> Permit | Refusal:
        answer = super().acquire(now)
        if isinstance(answer, Permit) and answer.lease is not None and self.outage is not None:
            answer.lease = self.outage.leases[answer] = now + self.probe_s
        return answer


class _Tagged:
    """A hub as a circuit uses it: what it tells says whose circuit it is."""

    __slots__ = ("_hub", "_tags")

    def __init__(self, hub: Hub, tags: dict[str, Any]) -> None:
        self._hub = hub
        self._tags = tags

    def emit(self, event: GuardEvent) -> None:
        event.tags = {**self._tags, **event.tags}
        self._hub.emit(event)
