from __future__ import annotations

import json
from typing import Any

import pytest

from holdfast.core.outcome import OutcomeKind
from holdfast.machine.breaker import CircuitState
from holdfast.telemetry import events
from holdfast.telemetry.events import (
    CATALOGUE,
    AttemptCompleted,
    CallCompleted,
    CallInterrupted,
    ChaosInjected,
    CircuitStateChanged,
    FellBack,
    GuardEvent,
    Hedged,
    LoadShed,
    Reloaded,
    ReloadFailed,
    RetryDeferred,
    RetryScheduled,
    Severity,
    TimedOut,
)

ONE_OF_EACH: list[GuardEvent] = [
    CallCompleted("pay", "c1", 0.25, OutcomeKind.TIMEOUT, error_type="GuardTimeout", parent_call_id="c0", attempts=2),
    CallInterrupted("pay", "c1", "cancelled", 0.1),
    AttemptCompleted("pay", "c1", 0, OutcomeKind.SUCCESS, wait=0.01, service_s=0.2, endpoint="eu", policy_id="p"),
    CircuitStateChanged("pay", "c1", "eu", CircuitState.CLOSED, CircuitState.OPEN, "count(5, 60)", 5),
    LoadShed("pay", "c1", "eu", "circuit_open", 3.0),
    RetryScheduled("pay", "c1", 0, 0.2),
    RetryDeferred("pay", "c1", 0, "orders"),
    TimedOut("pay", "c1", 2.0, "attempt"),
    FellBack("pay", "c1", OutcomeKind.TRANSIENT_FAILURE),
    Hedged("pay", "c1", 1, 0.5),
    ChaosInjected("pay", "c1", "latency"),
    Reloaded("pay"),
    ReloadFailed("pay", "", "Retry.attempts must be at least 1"),
]


def test_the_catalogue_lists_every_event_class_once() -> None:
    defined = [
        value
        for value in vars(events).values()
        if isinstance(value, type) and issubclass(value, GuardEvent) and value is not GuardEvent
    ]
    assert list(CATALOGUE) == defined
    assert [type(event) for event in ONE_OF_EACH] == defined


def test_exported_names_are_unique_and_start_with_guard() -> None:
    names = [kind.event_name for kind in CATALOGUE]
    assert all(name.startswith("guard.") for name in names)
    assert len(set(names)) == len(names)


@pytest.mark.parametrize("event", ONE_OF_EACH, ids=lambda event: event.event_name)
def test_an_event_is_slotted_and_starts_with_operation_and_call(event: GuardEvent) -> None:
    assert not hasattr(event, "__dict__")
    assert event.field_names()[:2] == ("operation_key", "call_id")
    assert event.operation_key == "pay"


@pytest.mark.parametrize("event", ONE_OF_EACH, ids=lambda event: event.event_name)
def test_an_event_as_a_dict_is_plain_json_with_all_its_fields(event: GuardEvent) -> None:
    shown = event.as_dict()
    assert json.loads(json.dumps(shown)) == shown
    assert {"event", "severity", *event.field_names()} <= set(shown)
    assert shown["event"] == event.event_name
    assert type(event).__name__ in repr(event)


def attempt(**fields: Any) -> AttemptCompleted:
    return AttemptCompleted("pay", "c1", 0, OutcomeKind.TRANSIENT_FAILURE, **fields)


def circuit(to_state: str) -> CircuitStateChanged:
    return CircuitStateChanged("pay", "c1", "eu", "closed", to_state)


@pytest.mark.parametrize(
    ("event", "severity"),
    [
        (ONE_OF_EACH[0], Severity.INFO),
        (ONE_OF_EACH[1], Severity.INFO),
        (attempt(handled=False, last=True), Severity.INFO),
        (attempt(handled=True), Severity.WARNING),
        (attempt(handled=True, last=True), Severity.ERROR),
        (circuit("open"), Severity.ERROR),
        (circuit("half_open"), Severity.WARNING),
        (circuit("closed"), Severity.INFO),
        (ONE_OF_EACH[4], Severity.ERROR),
        (ONE_OF_EACH[5], Severity.WARNING),
        (ONE_OF_EACH[6], Severity.WARNING),
        (ONE_OF_EACH[7], Severity.ERROR),
        (ONE_OF_EACH[8], Severity.WARNING),
        (ONE_OF_EACH[9], Severity.WARNING),
        (ONE_OF_EACH[10], Severity.INFO),
        (ONE_OF_EACH[11], Severity.INFO),
        (ONE_OF_EACH[12], Severity.ERROR),
    ],
)
def test_severities_follow_the_table(event: GuardEvent, severity: Severity) -> None:
    assert event.severity is severity


def test_the_documented_severity_of_a_class_names_known_severities() -> None:
    for kind in CATALOGUE:
        assert any(level.value in kind.severity_rule for level in Severity)
