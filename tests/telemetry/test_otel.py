from __future__ import annotations

import importlib
import sys
from typing import Any

import pytest
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from holdfast.core.outcome import OutcomeKind
from holdfast.telemetry.events import AttemptCompleted, CallCompleted, CircuitStateChanged, LoadShed
from holdfast.telemetry.hub import Hub
from holdfast.telemetry.otel import OtelListener
from tests.telemetry.clocks import StandingClock

SUCCESS, TIMEOUT = OutcomeKind.SUCCESS, OutcomeKind.TIMEOUT


class Bench:
    """A hub, an OtelListener on it, and a reader of what the listener measured."""

    def __init__(self, **options: Any) -> None:
        self.reader = InMemoryMetricReader()
        self.spans = InMemorySpanExporter()
        tracers = TracerProvider()
        tracers.add_span_processor(SimpleSpanProcessor(self.spans))
        self.hub = Hub(clock=StandingClock())
        self.listener = OtelListener(meter_provider=MeterProvider([self.reader]), tracer_provider=tracers, **options)
        self.hub.register(self.listener)

    def points(self) -> dict[str, dict[tuple[Any, ...], Any]]:
        data = self.reader.get_metrics_data()
        found: dict[str, dict[tuple[Any, ...], Any]] = {}
        for resource in data.resource_metrics if data else ():
            for metric in (metric for scope in resource.scope_metrics for metric in scope.metrics):
                points = found.setdefault(metric.name, {})
                for point in metric.data.data_points:
                    key = tuple(sorted((point.attributes or {}).items()))
                    points[key] = getattr(point, "count", None) or getattr(point, "value", None)
        return found


def key(**attributes: Any) -> tuple[Any, ...]:
    return tuple(sorted(attributes.items()))


def test_events_calls_and_attempts_have_their_instruments() -> None:
    bench = Bench()
    bench.hub.emit(AttemptCompleted("pay", "c1", 0, TIMEOUT, service_s=1.0, handled=True))
    bench.hub.emit(AttemptCompleted("pay", "c1", 1, SUCCESS, service_s=1.0))
    bench.hub.emit(CallCompleted("pay", "c1", 2.5, SUCCESS))
    points = bench.points()
    assert points["guard.call.duration"] == {key(operation="pay", outcome="success"): 1}
    assert points["guard.attempt.duration"] == {
        key(operation="pay", outcome="timeout", handled=True): 1,
        key(operation="pay", outcome="success", handled=False): 1,
    }
    assert points["guard.events"] == {
        key(event="guard.attempt_completed", severity="warning", operation="pay"): 1,
        key(event="guard.attempt_completed", severity="info", operation="pay"): 1,
        key(event="guard.call_completed", severity="info", operation="pay"): 1,
    }


def test_attempts_and_spans_need_every_event_and_otherwise_the_listener_is_quiet() -> None:
    assert Bench().hub.loud
    assert Bench(attempts=False, spans=True).hub.loud
    assert not Bench(attempts=False).hub.loud


def test_a_quiet_listener_is_complete_at_every_collection() -> None:
    bench = Bench(attempts=False)
    meter = bench.hub.meter("pay")
    meter.pending.extend([0.1, 0.2])
    meter.add(TIMEOUT, 1.0)
    meter.shed("eu", "circuit_open")
    bench.hub.emit(CircuitStateChanged("pay", "c1", "eu", "closed", "open"))
    points = bench.points()
    assert points["guard.call.duration"] == {
        key(operation="pay", outcome="success"): 2,
        key(operation="pay", outcome="timeout"): 1,
    }
    assert points["guard.events"][key(event="guard.call_completed", severity="info", operation="pay")] == 3
    assert points["guard.events"][key(event="guard.load_shed", severity="error", operation="pay")] == 1
    assert points["guard.circuit.state"] == {key(name="eu"): 2}


def test_labels_hold_no_urls_and_are_bounded() -> None:
    bench = Bench(attempts=False)
    bench.hub.emit(LoadShed("https://bob:hunter2@host/path", "c1", "eu", "circuit_open"))
    for number in range(1200):
        bench.hub.meter(f"user-{number}").pending.append(0.1)
    points = bench.points()
    assert "hunter2" not in str(points)
    assert points["guard.call.duration"][key(operation="other", outcome="success")] > 100


def test_a_missing_extra_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "opentelemetry", None)
    monkeypatch.delitem(sys.modules, "holdfast.telemetry.otel")
    with pytest.raises(ImportError, match=r'pip install "holdfast\[otel\]"'):
        importlib.import_module("holdfast.telemetry.otel")
