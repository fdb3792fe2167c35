from __future__ import annotations

import pytest

from holdfast.core.outcome import OutcomeKind
from holdfast.errors import PolicyError
from holdfast.telemetry import metrics as metrics_module
from holdfast.telemetry.events import CallCompleted, CallInterrupted, CircuitStateChanged, LoadShed
from holdfast.telemetry.hub import Hub
from holdfast.telemetry.metrics import InMemoryMetrics, Labels

SUCCESS, TIMEOUT = OutcomeKind.SUCCESS, OutcomeKind.TIMEOUT


def test_a_snapshot_has_exactly_the_contract_keys_and_starts_empty() -> None:
    assert InMemoryMetrics().snapshot() == {
        "call_count": 0,
        "counts_by_operation_outcome": {},
        "duration_s": {"min": None, "max": None, "mean": None},
        "circuit_transitions": {},
        "shed_by_reason": {},
    }


def test_events_are_counted_by_operation_and_outcome() -> None:
    metrics = InMemoryMetrics()
    metrics.on_event(CallCompleted("pay", "1", 1.0, SUCCESS))
    metrics.on_event(CallCompleted("pay", "2", 3.0, TIMEOUT))
    metrics.on_event(CallCompleted("ship", "3", 2.0, SUCCESS))
    metrics.on_event(LoadShed("pay", "4", "eu", "circuit_open"))
    metrics.on_event(CircuitStateChanged("pay", "2", "eu", "closed", "open"))
    metrics.on_event(CircuitStateChanged("pay", "9", "eu", "open", "half_open"))
    assert metrics.snapshot() == {
        "call_count": 3,
        "counts_by_operation_outcome": {"pay/success": 1, "pay/timeout": 1, "ship/success": 1},
        "duration_s": {"min": 1.0, "max": 3.0, "mean": 2.0},
        "circuit_transitions": {"eu: closed->open": 1, "eu: open->half_open": 1},
        "shed_by_reason": {"circuit_open": 1},
    }


def test_an_interrupted_call_adds_nothing_to_the_counts() -> None:
    metrics = InMemoryMetrics()
    metrics.on_event(CallInterrupted("pay", "1", "cancelled", 5.0))
    assert metrics.snapshot() == InMemoryMetrics().snapshot()


def test_the_call_count_goes_on_beyond_the_ring() -> None:
    metrics = InMemoryMetrics(ring_size=10)
    metrics.on_calls("pay", SUCCESS, [9.0] * 90)
    metrics.on_calls("pay", SUCCESS, [float(n) for n in range(10)])
    seen = metrics.snapshot()
    assert seen["call_count"] == 100
    assert seen["duration_s"] == {"min": 0.0, "max": 9.0, "mean": 4.5}


def test_a_snapshot_includes_what_the_hub_still_holds() -> None:
    hub, metrics = Hub(), InMemoryMetrics()
    hub.register(metrics)
    hub.meter("pay").pending.append(0.5)
    assert metrics.snapshot()["counts_by_operation_outcome"] == {"pay/success": 1}


def test_one_recorder_serves_two_hubs_and_lets_go_of_one() -> None:
    first, second, metrics = Hub(), Hub(), InMemoryMetrics()
    for hub in (first, second):
        hub.register(metrics)
        hub.meter("pay").pending.append(0.5)
    assert metrics.snapshot()["call_count"] == 2
    first.unregister(metrics)
    for hub in (first, second):
        hub.meter("pay").pending.append(0.5)
    assert metrics.snapshot()["call_count"] == 3


def test_reset_forgets_everything_including_what_is_pending() -> None:
    hub, metrics = Hub(), InMemoryMetrics()
    hub.register(metrics)
    hub.meter("pay").pending.append(0.5)
    hub.meter("pay").shed("eu", "circuit_open")
    metrics.reset()
    assert metrics.snapshot() == InMemoryMetrics().snapshot()


def test_an_impossible_ring_is_refused() -> None:
    with pytest.raises(PolicyError, match=r"InMemoryMetrics\.ring_size must be at least 1, got 0"):
        InMemoryMetrics(ring_size=0)


def test_operations_beyond_the_limit_are_counted_together(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(metrics_module, "MAX_KEYS", 3)
    metrics = InMemoryMetrics()
    for number in range(10):
        metrics.on_calls(f"user/{number}", SUCCESS, [0.1])
    seen = metrics.snapshot()
    assert seen["counts_by_operation_outcome"]["other/success"] == 7
    assert seen["call_count"] == 10


def test_a_url_as_a_label_is_reduced_to_its_host() -> None:
    labels = Labels()
    assert labels("http://user:secret@proxy.example:8080/path?token=x#y") == "proxy.example:8080"
    assert labels("payments") == "payments"
    assert len(labels("x" * 1000)) == 100


def test_labels_beyond_the_limit_become_other() -> None:
    labels = Labels(limit=2)
    assert [labels(name) for name in ("a", "b", "c", "a", "d")] == ["a", "b", "other", "a", "other"]
