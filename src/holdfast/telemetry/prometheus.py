"""Prometheus: what the guards of a hub do, for scraping. Needs the extra `prometheus`.

    PrometheusCollector(hub=default_hub())

guard_calls_total{operation,outcome}, guard_call_duration_seconds{operation}, guard_shed_total{operation,reason},
guard_circuit_state{name} (0 closed, 1 half-open, 2 open; known from a circuit's first change on),
guard_circuit_transitions_total{name,from_state,to_state}.
"""

from __future__ import annotations

import threading
from bisect import bisect_left
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Final

try:
    from prometheus_client import REGISTRY, CollectorRegistry
    from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily, Metric
    from prometheus_client.registry import Collector
except ModuleNotFoundError as missing:
    raise ImportError('prometheus-client is not installed; run: pip install "holdfast[prometheus]"') from missing

from holdfast.core.outcome import OutcomeKind
from holdfast.errors import PolicyError
from holdfast.telemetry.events import CallCompleted, CircuitStateChanged, GuardEvent, LoadShed
from holdfast.telemetry.hub import Hub
from holdfast.telemetry.metrics import Labels

BUCKETS: Final = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0)
STATES: Final = {"closed": 0, "half_open": 1, "open": 2}


class PrometheusCollector(Collector):
    """A quiet listener that a registry scrapes; it registers itself with both when they are given."""

    quiet = True
    wants: frozenset[type[GuardEvent]] = frozenset({CallCompleted, CircuitStateChanged, LoadShed})

    def __init__(
        self,
        *,
        hub: Hub | None = None,
        registry: CollectorRegistry | None = REGISTRY,
        buckets: Sequence[float] = BUCKETS,
    ) -> None:
        if not buckets or list(buckets) != sorted(set(buckets)):
            raise PolicyError(f"PrometheusCollector.buckets must rise and not be empty, got {buckets!r}")
        self._bounds = tuple(buckets)
        self._lock = threading.Lock()
        self._flushes: tuple[Callable[[], None], ...] = ()
        self._operations, self._circuits, self._reasons = Labels(), Labels(), Labels()
        self._calls: Counter[tuple[str, str]] = Counter()
        self._durations: dict[str, list[int]] = {}
        self._seconds: dict[str, float] = {}
        self._shed: Counter[tuple[str, str]] = Counter()
        self._states: dict[str, int] = {}
        self._moves: Counter[tuple[str, str, str]] = Counter()
        if hub is not None:
            hub.register(self)
        if registry is not None:
            registry.register(self)

    def bind(self, flush: Callable[[], None]) -> None:
        """Called by a hub at registration."""
        if flush not in self._flushes:
            self._flushes += (flush,)

    def unbind(self, flush: Callable[[], None]) -> None:
        """Called by a hub when it lets go of this collector."""
        self._flushes = tuple(bound for bound in self._flushes if bound != flush)

    def on_calls(self, operation_key: str, kind: OutcomeKind, durations: Sequence[float]) -> None:
        with self._lock:
            operation = self._operations(operation_key)
            self._calls[operation, kind.value] += len(durations)
            counts = self._durations.setdefault(operation, [0] * (len(self._bounds) + 1))
            for duration in durations:
                counts[bisect_left(self._bounds, duration)] += 1
            self._seconds[operation] = self._seconds.get(operation, 0.0) + sum(durations)

    def on_shed(self, operation_key: str, name: str, reason: str, count: int) -> None:
        with self._lock:
            self._shed[self._operations(operation_key), self._reasons(reason)] += count

    def on_event(self, event: GuardEvent) -> None:
        if isinstance(event, CallCompleted):
            self.on_calls(event.operation_key, event.outcome, (event.duration_s,))
        elif isinstance(event, LoadShed):
            self.on_shed(event.operation_key, event.name, event.reason, 1)
        elif isinstance(event, CircuitStateChanged):
            with self._lock:
                name = self._circuits(event.name)
                self._states[name] = STATES.get(event.to_state, STATES["closed"])
                self._moves[name, str(event.from_state), str(event.to_state)] += 1

    def describe(self) -> Iterable[Metric]:
        """Nothing: a registry would otherwise scrape while it registers."""
        return ()

    def collect(self) -> Iterable[Metric]:
        """Everything up to now, including what the hub's meters still hold."""
        for flush in self._flushes:
            flush()
        with self._lock:
            return [
                _counter("guard_calls", "Guarded calls", ("operation", "outcome"), self._calls),
                self._histogram(),
                _counter("guard_shed", "Calls refused before they ran", ("operation", "reason"), self._shed),
                self._gauge(),
                _counter(
                    "guard_circuit_transitions",
                    "State changes of circuits",
                    ("name", "from_state", "to_state"),
                    self._moves,
                ),
            ]

    def _histogram(self) -> Metric:
        family = HistogramMetricFamily("guard_call_duration_seconds", "Duration of guarded calls", labels=["operation"])
        for operation, counts in self._durations.items():
            total, buckets = 0, []
            for bound, count in zip((*map(str, self._bounds), "+Inf"), counts, strict=True):
                total += count
                buckets.append((bound, total))
            family.add_metric([operation], buckets, self._seconds[operation])
        return family

    def _gauge(self) -> Metric:
        family = GaugeMetricFamily("guard_circuit_state", "0 closed, 1 half-open, 2 open", labels=["name"])
        for name, state in self._states.items():
            family.add_metric([name], state)
        return family


def _counter(name: str, text: str, labels: Sequence[str], counts: Mapping[Any, int]) -> Metric:
    family = CounterMetricFamily(name, text, labels=labels)
    for values, count in counts.items():
        family.add_metric(values, count)
    return family
