"""Prometheus: what the guards of a hub do, for scraping. Needs the extra `prometheus`.

    PrometheusCollector(hub=default_hub())

guard_calls_total{operation,outcome}, guard_call_duration_seconds{operation}, guard_shed_total{operation,reason},
guard_circuit_state{name} (0 closed, 1 half-open, 2 open; known from a circuit's first change on),
guard_circuit_transitions_total{name,from_state,to_state}.

Events that say how they are counted add metrics of their own: letter_kept_total{domain,how},
letter_replay_total{domain,outcome}, letter_replay_duration_seconds{domain,outcome}, letter_sla_breached_total{domain}.
So do `readings`, which are asked for when the metrics are scraped. What is `expected` is shown as 0 before it first
happens: a counter that begins with 1 has no increase, and an alarm on its increase would miss that.
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
from holdfast.telemetry.measure import Expected, Measure, MeasuredEvent, Reading
from holdfast.telemetry.metrics import Labels

BUCKETS: Final = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0)
STATES: Final = {"closed": 0, "half_open": 1, "open": 2}


class _Times:
    """Durations by labels, in buckets."""

    def __init__(self, bounds: tuple[float, ...]) -> None:
        self._bounds = bounds
        self._counts: dict[tuple[str, ...], list[int]] = {}
        self._seconds: dict[tuple[str, ...], float] = {}

    def add(self, labels: tuple[str, ...], durations: Sequence[float]) -> None:
        counts = self._counts.setdefault(labels, [0] * (len(self._bounds) + 1))
        for duration in durations:
            counts[bisect_left(self._bounds, duration)] += 1
        self._seconds[labels] = self._seconds.get(labels, 0.0) + sum(durations)

    def family(self, name: str, text: str, labels: Sequence[str]) -> Metric:
        family = HistogramMetricFamily(name, text, labels=labels)
        for values, counts in self._counts.items():
            total, buckets = 0, []
            for bound, count in zip((*map(str, self._bounds), "+Inf"), counts, strict=True):
                total += count
                buckets.append((bound, total))
            family.add_metric(values, buckets, self._seconds[values])
        return family


class _Measured:
    """What the events with one measure came to."""

    def __init__(self, measure: Measure, bounds: tuple[float, ...]) -> None:
        self._measure = measure
        self._counts: Counter[tuple[str, ...]] = Counter()
        self._times = None if measure.seconds is None else _Times(bounds)
        self._labels = [Labels() for _ in measure.label_names()]

    def add(self, event: MeasuredEvent) -> None:
        given = self._measure.label_values(event)
        values = tuple(label(value) for label, value in zip(self._labels, given, strict=True))
        self._counts[values] += 1
        if self._times is not None and self._measure.seconds is not None:
            self._times.add(values, (getattr(event, self._measure.seconds),))

    def begin(self, given: tuple[str, ...]) -> None:
        """Count from 0 on."""
        self._counts[tuple(label(value) for label, value in zip(self._labels, given, strict=True))] += 0

    def families(self) -> Iterable[Metric]:
        name, text, labels = _plain(self._measure.name), self._measure.text, self._measure.label_names()
        yield _counter(name, text, labels, self._counts)
        if self._times is not None:
            timed = self._measure.timed
            yield self._times.family(f"{name}_{timed}_seconds", f"{text}: {timed}", labels)


class PrometheusCollector(Collector):
    """A quiet listener that a registry scrapes; it registers itself with both when they are given."""

    quiet = True
    wants: frozenset[type[GuardEvent]] = frozenset({CallCompleted, CircuitStateChanged, LoadShed, MeasuredEvent})

    def __init__(
        self,
        *,
        hub: Hub | None = None,
        registry: CollectorRegistry | None = REGISTRY,
        buckets: Sequence[float] = BUCKETS,
        readings: Iterable[Reading] = (),
        expected: Expected = tuple,
    ) -> None:
        if not buckets or list(buckets) != sorted(set(buckets)):
            raise PolicyError(f"PrometheusCollector.buckets must rise and not be empty, got {buckets!r}")
        self._bounds = tuple(buckets)
        self._lock = threading.Lock()
        self._flushes: tuple[Callable[[], None], ...] = ()
        self._operations, self._circuits, self._reasons = Labels(), Labels(), Labels()
        self._calls: Counter[tuple[str, str]] = Counter()
        self._durations = _Times(self._bounds)
        self._shed: Counter[tuple[str, str]] = Counter()
        self._states: dict[str, int] = {}
        self._moves: Counter[tuple[str, str, str]] = Counter()
        self._measured: dict[str, _Measured] = {}
        self._readings = tuple(readings)
        self._expected = expected
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
            self._durations.add((operation,), durations)

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
        elif isinstance(event, MeasuredEvent):
            with self._lock:
                self._by(event.measure).add(event)

    def describe(self) -> Iterable[Metric]:
        """Nothing: a registry would otherwise scrape while it registers."""
        return ()

    def collect(self) -> Iterable[Metric]:
        """Everything up to now, including what the hub's meters still hold."""
        for flush in self._flushes:
            flush()
        read = [_reading(reading) for reading in self._readings]
        expected = list(self._expected())
        with self._lock:
            for measure, values in expected:
                self._by(measure).begin(values)
            return [
                _counter("guard_calls", "Guarded calls", ("operation", "outcome"), self._calls),
                self._durations.family(
                    "guard_call_duration_seconds", "Duration of guarded calls", labels=["operation"]
                ),
                _counter("guard_shed", "Calls refused before they ran", ("operation", "reason"), self._shed),
                self._gauge(),
                _counter(
                    "guard_circuit_transitions",
                    "State changes of circuits",
                    ("name", "from_state", "to_state"),
                    self._moves,
                ),
                *(family for measured in self._measured.values() for family in measured.families()),
                *read,
            ]

    def _by(self, measure: Measure) -> _Measured:
        return self._measured.setdefault(measure.name, _Measured(measure, self._bounds))

    def _gauge(self) -> Metric:
        family = GaugeMetricFamily("guard_circuit_state", "0 closed, 1 half-open, 2 open", labels=["name"])
        for name, state in self._states.items():
            family.add_metric([name], state)
        return family


def _reading(reading: Reading) -> Metric:
    kind = CounterMetricFamily if reading.grows else GaugeMetricFamily
    family = kind(_plain(reading.name), reading.text, labels=reading.labels)
    for values, number in reading.values().items():
        family.add_metric(values, number)
    return family


def _plain(name: str) -> str:
    return name.replace(".", "_")


def _counter(name: str, text: str, labels: Sequence[str], counts: Mapping[Any, int]) -> Metric:
    family = CounterMetricFamily(name, text, labels=labels)
    for values, count in counts.items():
        family.add_metric(values, count)
    return family
