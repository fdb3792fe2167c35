from __future__ import annotations

import importlib
import sys

import pytest
from prometheus_client import CollectorRegistry, generate_latest

from holdfast.core.outcome import OutcomeKind
from holdfast.errors import PolicyError
from holdfast.telemetry.events import CallCompleted, CallInterrupted, CircuitStateChanged
from holdfast.telemetry.hub import Hub
from holdfast.telemetry.prometheus import PrometheusCollector

SUCCESS, REJECTED = OutcomeKind.SUCCESS, OutcomeKind.REJECTED


@pytest.fixture
def hub() -> Hub:
    return Hub()


@pytest.fixture
def registry(hub: Hub) -> CollectorRegistry:
    registry = CollectorRegistry()
    PrometheusCollector(hub=hub, registry=registry, buckets=(0.1, 1.0))
    return registry


def test_a_scrape_shows_every_call_up_to_now(hub: Hub, registry: CollectorRegistry) -> None:
    meter = hub.meter("pay")
    meter.pending.extend([0.05, 0.5, 5.0])
    meter.add(REJECTED, 0.0)
    meter.shed("eu", "circuit_open")
    assert not hub.loud
    value = registry.get_sample_value
    assert value("guard_calls_total", {"operation": "pay", "outcome": "success"}) == 3
    assert value("guard_calls_total", {"operation": "pay", "outcome": "rejected"}) == 1
    assert value("guard_shed_total", {"operation": "pay", "reason": "circuit_open"}) == 1
    assert value("guard_call_duration_seconds_count", {"operation": "pay"}) == 4
    assert value("guard_call_duration_seconds_sum", {"operation": "pay"}) == pytest.approx(5.55)
    for bound, count in {"0.1": 2, "1.0": 3, "+Inf": 4}.items():
        assert value("guard_call_duration_seconds_bucket", {"operation": "pay", "le": bound}) == count


def test_a_circuit_shows_its_state_and_its_changes(hub: Hub, registry: CollectorRegistry) -> None:
    value = registry.get_sample_value
    for before, after, gauge in (("closed", "open", 2), ("open", "half_open", 1), ("half_open", "closed", 0)):
        hub.emit(CircuitStateChanged("pay", "c1", "eu", before, after))
        assert value("guard_circuit_state", {"name": "eu"}) == gauge
        moved = {"name": "eu", "from_state": before, "to_state": after}
        assert value("guard_circuit_transitions_total", moved) == 1


def test_events_emitted_by_hand_count_and_interruptions_do_not(hub: Hub, registry: CollectorRegistry) -> None:
    hub.emit(CallCompleted("pay", "c1", 0.1, SUCCESS))
    hub.emit(CallInterrupted("pay", "c2", "cancelled", 0.1))
    assert registry.get_sample_value("guard_calls_total", {"operation": "pay", "outcome": "success"}) == 1


def test_the_exposition_format_is_accepted(hub: Hub, registry: CollectorRegistry) -> None:
    hub.meter("pay").pending.append(0.2)
    text = generate_latest(registry).decode()
    assert 'guard_calls_total{operation="pay",outcome="success"} 1.0' in text
    assert "# TYPE guard_call_duration_seconds histogram" in text


def test_labels_hold_no_urls_and_are_bounded(hub: Hub, registry: CollectorRegistry) -> None:
    hub.emit(CircuitStateChanged("pay", "c1", "http://bob:hunter2@proxy:80/x", "closed", "open"))
    for number in range(1500):
        hub.meter(f"user-{number}").pending.append(0.1)
    text = generate_latest(registry).decode()
    assert "hunter2" not in text
    assert 'guard_circuit_state{name="proxy:80"} 2.0' in text
    assert registry.get_sample_value("guard_calls_total", {"operation": "other", "outcome": "success"}) == 500


def test_impossible_buckets_are_refused() -> None:
    for buckets in ((), (1.0, 0.5), (1.0, 1.0)):
        with pytest.raises(PolicyError, match=r"PrometheusCollector\.buckets must rise"):
            PrometheusCollector(registry=None, buckets=buckets)


def test_an_unregistered_collector_stops_counting(hub: Hub) -> None:
    registry = CollectorRegistry()
    collector = PrometheusCollector(hub=hub, registry=registry)
    hub.meter("pay").pending.append(0.1)
    hub.unregister(collector)
    hub.meter("pay").pending.append(0.1)
    assert registry.get_sample_value("guard_calls_total", {"operation": "pay", "outcome": "success"}) == 1


def test_a_missing_extra_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "prometheus_client", None)
    monkeypatch.delitem(sys.modules, "holdfast.telemetry.prometheus")
    with pytest.raises(ImportError, match=r'pip install "holdfast\[prometheus\]"'):
        importlib.import_module("holdfast.telemetry.prometheus")
