from __future__ import annotations

import logging

import pytest

from holdfast.core.outcome import OutcomeKind
from holdfast.telemetry.events import (
    CallCompleted,
    CircuitStateChanged,
    LoadShed,
    ReloadFailed,
    RetryScheduled,
    Severity,
)
from holdfast.telemetry.hub import Hub
from holdfast.telemetry.log import LoggingListener


@pytest.fixture
def hub() -> Hub:
    hub = Hub(enrichers=[lambda event: {"region": "eu"}])
    hub.register(LoggingListener())
    return hub


def test_severities_become_levels(hub: Hub, caplog: pytest.LogCaptureFixture) -> None:
    hub.set_severity("guard.reload_failed", Severity.DEBUG)
    with caplog.at_level(logging.DEBUG, "holdfast"):
        hub.emit(CallCompleted("pay", "c1", 0.1, OutcomeKind.SUCCESS))
        hub.emit(RetryScheduled("pay", "c1", 0, 0.2))
        hub.emit(LoadShed("pay", "c1", "eu", "circuit_open", 3.0))
        hub.emit(ReloadFailed("pay", "", "no"))
    assert [record.levelname for record in caplog.records] == ["INFO", "WARNING", "ERROR", "DEBUG"]
    assert {record.name for record in caplog.records} == {"holdfast"}


def test_a_record_reads_well_and_carries_the_event_as_values(hub: Hub, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.INFO, "holdfast"):
        hub.emit(CircuitStateChanged("pay", "c1", "eu", "closed", "open", "count(5, 60)", 5))
    (record,) = caplog.records
    assert record.getMessage().startswith("guard.circuit_state_changed pay ")
    assert "from_state=closed to_state=open" in record.getMessage()
    event = vars(record)["guard_event"]
    assert (event["name"], event["failure_count"], event["tags"]) == ("eu", 5, {"region": "eu"})


def test_error_texts_are_redacted(hub: Hub, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.INFO, "holdfast"):
        hub.emit(ReloadFailed("pay", "", "cannot reach https://bob:hunter2@host/"))
    (record,) = caplog.records
    assert "hunter2" not in record.getMessage()
    assert "hunter2" not in str(vars(record)["guard_event"])


def test_a_disabled_level_writes_nothing(caplog: pytest.LogCaptureFixture) -> None:
    hub = Hub()
    hub.register(LoggingListener(logging.getLogger("mine")))
    with caplog.at_level(logging.WARNING, "mine"):
        hub.emit(CallCompleted("pay", "c1", 0.1, OutcomeKind.SUCCESS))
        hub.emit(RetryScheduled("pay", "c1", 0, 0.2))
    assert [record.name for record in caplog.records] == ["mine"]
