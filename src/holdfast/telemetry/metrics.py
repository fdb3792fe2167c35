"""The default recorder: counts and recent durations, in process."""

from __future__ import annotations

import threading
from collections import Counter, deque
from collections.abc import Callable, Sequence
from typing import Any, Final

from holdfast.core.outcome import OutcomeKind
from holdfast.errors import PolicyError
from holdfast.telemetry.events import CallCompleted, CircuitStateChanged, GuardEvent, LoadShed

# A key made from user data must not become a leak: later ones are counted together.
MAX_KEYS: Final = 4096
OTHER: Final = "other"


class Labels:
    """Names as metric labels: a URL becomes its host, long ones are cut, and only so many are told apart."""

    __slots__ = ("_known", "limit")

    def __init__(self, limit: int = 1000) -> None:
        self.limit = limit
        self._known: dict[str, str] = {}

    def __call__(self, name: str) -> str:
        label = self._known.get(name)
        if label is None:
            if len(self._known) >= self.limit:
                return OTHER
            label = self._known[name] = _short(name)
        return label


class InMemoryMetrics:
    """Counts calls by operation and outcome, circuit transitions and refusals; keeps the last durations.

    Quiet: a hub feeds it in batches. Events given to it directly, or through `emit`, count too.
    """

    quiet = True
    wants: frozenset[type[GuardEvent]] = frozenset({CallCompleted, CircuitStateChanged, LoadShed})

    def __init__(self, ring_size: int = 1000) -> None:
        if ring_size < 1:
            raise PolicyError(f"InMemoryMetrics.ring_size must be at least 1, got {ring_size}; the default is 1000")
        self.ring_size = ring_size
        self._lock = threading.Lock()
        self._flushes: tuple[Callable[[], None], ...] = ()
        self._clear()

    def bind(self, flush: Callable[[], None]) -> None:
        """Called by a hub at registration: `flush` hands over what its meters still hold."""
        if flush not in self._flushes:
            self._flushes += (flush,)

    def unbind(self, flush: Callable[[], None]) -> None:
        """Called by a hub when it lets go of this recorder."""
        self._flushes = tuple(bound for bound in self._flushes if bound != flush)

    def on_calls(self, operation_key: str, kind: OutcomeKind, durations: Sequence[float]) -> None:
        """Count a batch of calls that came to the same kind."""
        with self._lock:
            _count(self._calls, (operation_key, kind), (OTHER, kind), len(durations))
            self._call_count += len(durations)
            self._durations.extend(durations)

    def on_shed(self, operation_key: str, name: str, reason: str, count: int) -> None:
        """Count refusals."""
        with self._lock:
            _count(self._shed, reason, OTHER, count)

    def on_event(self, event: GuardEvent) -> None:
        """Count one event; kinds that are not counted here are ignored."""
        if isinstance(event, CallCompleted):
            self.on_calls(event.operation_key, event.outcome, (event.duration_s,))
        elif isinstance(event, LoadShed):
            self.on_shed(event.operation_key, event.name, event.reason, 1)
        elif isinstance(event, CircuitStateChanged):
            move = f"{event.from_state}->{event.to_state}"
            with self._lock:
                _count(self._transitions, f"{event.name}: {move}", f"{OTHER}: {move}", 1)

    def snapshot(self) -> dict[str, Any]:
        """Everything counted so far; `duration_s` covers the last `ring_size` calls, None before any."""
        self._flush()
        with self._lock:
            return {
                "call_count": self._call_count,
                "counts_by_operation_outcome": {
                    f"{operation}/{kind.value}": count for (operation, kind), count in self._calls.items()
                },
                "duration_s": _spread(self._durations),
                "circuit_transitions": dict(self._transitions),
                "shed_by_reason": dict(self._shed),
            }

    def reset(self) -> None:
        """Forget everything."""
        self._flush()
        with self._lock:
            self._clear()

    def _clear(self) -> None:
        self._call_count = 0
        self._calls: Counter[tuple[str, OutcomeKind]] = Counter()
        self._durations: deque[float] = deque(maxlen=self.ring_size)
        self._transitions: Counter[str] = Counter()
        self._shed: Counter[str] = Counter()

    def _flush(self) -> None:
        for flush in self._flushes:
            flush()


def _short(name: str) -> str:
    if "://" in name:
        name = name.partition("://")[2]
        for end in "/?#":
            name = name.partition(end)[0]
        name = name.rpartition("@")[2]
    return name[:100]


def _count(counts: Counter[Any], key: Any, overflow: Any, by: int) -> None:
    counts[key if key in counts or len(counts) < MAX_KEYS else overflow] += by


def _spread(durations: deque[float]) -> dict[str, float | None]:
    if not durations:
        return {"min": None, "max": None, "mean": None}
    return {"min": min(durations), "max": max(durations), "mean": sum(durations) / len(durations)}
