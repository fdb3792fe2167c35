"""Metrics that sinks export without knowing them: measured events, and readings."""

from __future__ import annotations

from typing import Any

import pytest
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader
from prometheus_client import CollectorRegistry, generate_latest

from holdfast.telemetry.hub import Hub
from holdfast.telemetry.measure import Fresh, Measure, MeasuredEvent, Reading
from holdfast.telemetry.otel import OtelListener
from holdfast.telemetry.prometheus import PrometheusCollector
from holdfast.testing.clock import ManualClock


class Baked(MeasuredEvent):
    """A loaf came out of the oven."""

    __slots__ = ("kind", "took")
    event_name = "bakery.baked"
    measure = Measure("bakery.loaf", "Loaves", ("kind",), key="oven", seconds="took")

    def __init__(self, operation_key: str, call_id: str, kind: str, took: float) -> None:
        super().__init__(operation_key, call_id)
        self.kind = kind
        self.took = took


def crumbs() -> dict[tuple[str, ...], float]:
    return {("rye",): 3.0}


def broken() -> dict[tuple[str, ...], float]:
    raise RuntimeError("no scales")


READINGS = (
    Reading("bakery.crumbs", "Crumbs on the floor", ("kind",), crumbs),
    Reading("bakery.swept", "Crumbs swept up", (), lambda: {(): 7.0}, grows=True),
    Reading("bakery.weight", "Flour", (), broken),
)


def registry_of(hub: Hub, **options: Any) -> CollectorRegistry:
    registry = CollectorRegistry()
    PrometheusCollector(hub=hub, registry=registry, buckets=(1.0, 10.0), **options)
    return registry


def points_of(reader: InMemoryMetricReader) -> dict[str, dict[tuple[Any, ...], Any]]:
    found: dict[str, dict[tuple[Any, ...], Any]] = {}
    data = reader.get_metrics_data()
    for metric in (m for r in data.resource_metrics for scope in r.scope_metrics for m in scope.metrics):  # type: ignore[union-attr]
        for point in metric.data.data_points:
            value = point.count if hasattr(point, "count") else point.value  # type: ignore[union-attr]
            found.setdefault(metric.name, {})[tuple(sorted((point.attributes or {}).items()))] = value
    return found


def test_prometheus_counts_and_times_what_an_event_says_of_itself() -> None:
    hub = Hub()
    value = registry_of(hub).get_sample_value
    hub.emit(Baked("left", "", "rye", 0.5))
    hub.emit(Baked("left", "", "rye", 5.0))
    hub.emit(Baked("right", "", "oat", 50.0))
    assert not hub.loud
    assert value("bakery_loaf_total", {"oven": "left", "kind": "rye"}) == 2
    assert value("bakery_loaf_total", {"oven": "right", "kind": "oat"}) == 1
    assert value("bakery_loaf_duration_seconds_sum", {"oven": "left", "kind": "rye"}) == 5.5
    for bound, count in {"1.0": 1, "10.0": 2, "+Inf": 2}.items():
        assert value("bakery_loaf_duration_seconds_bucket", {"oven": "left", "kind": "rye", "le": bound}) == count


def test_open_telemetry_counts_and_times_what_an_event_says_of_itself() -> None:
    hub, reader = Hub(), InMemoryMetricReader()
    hub.register(OtelListener(meter_provider=MeterProvider([reader]), attempts=False))
    hub.emit(Baked("left", "", "rye", 0.5))
    hub.emit(Baked("left", "", "rye", 5.0))
    points = points_of(reader)
    assert points["bakery.loaf"] == {(("kind", "rye"), ("oven", "left")): 2}
    assert points["bakery.loaf.duration"] == {(("kind", "rye"), ("oven", "left")): 2}
    assert points["guard.events"] == {(("event", "bakery.baked"), ("operation", "left"), ("severity", "info")): 2}


def test_labels_of_measured_events_are_bounded() -> None:
    hub = Hub()
    registry = registry_of(hub)
    for number in range(1200):
        hub.emit(Baked(f"oven-{number}", "", "http://bob:hunter2@host/x", 0.1))
    assert registry.get_sample_value("bakery_loaf_total", {"oven": "other", "kind": "host"}) == 200
    assert "hunter2" not in generate_latest(registry).decode()


def test_prometheus_asks_for_readings_when_it_is_scraped(caplog: pytest.LogCaptureFixture) -> None:
    registry = registry_of(Hub(), readings=READINGS)
    assert "no scales" not in caplog.text  # not yet asked
    text = generate_latest(registry).decode()
    assert 'bakery_crumbs{kind="rye"} 3.0' in text
    assert "bakery_swept_total 7.0" in text
    assert "\nbakery_weight" not in text  # the scrape goes on without it
    assert "the metric bakery.weight could not be read" in caplog.text


def test_open_telemetry_asks_for_readings_when_it_collects() -> None:
    reader = InMemoryMetricReader()
    OtelListener(meter_provider=MeterProvider([reader]), readings=READINGS)
    points = points_of(reader)
    assert points["bakery.crumbs"] == {(("kind", "rye"),): 3.0}
    assert points["bakery.swept"] == {(): 7.0}
    assert "bakery.weight" not in points


def test_an_answer_is_asked_for_again_when_it_is_old() -> None:
    clock, asked = ManualClock(), []

    def ask() -> int:
        asked.append(clock.monotonic())
        return len(asked)

    fresh = Fresh(ask, 5.0, clock)
    assert [fresh(), fresh()] == [1, 1]
    clock.advance(4.9)
    assert fresh() == 1
    clock.advance(0.1)
    assert fresh() == 2


def test_a_failure_to_answer_is_no_stale_answer_and_not_asked_for_at_once_either() -> None:
    clock, answers = ManualClock(), [1, RuntimeError("away"), 2]

    def ask() -> int:
        answer = answers.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return answer

    fresh = Fresh(ask, 5.0, clock)
    assert fresh() == 1
    clock.advance(5)
    assert [fresh(), fresh()] == [None, None]
    clock.advance(5)
    assert fresh() == 2
