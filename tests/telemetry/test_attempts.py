from __future__ import annotations

import gc
import json
import threading
import tracemalloc
from datetime import UTC, date, datetime, timedelta, timezone
from typing import Any

import pytest
from pydantic import ValidationError

from holdfast.core.outcome import OutcomeKind
from holdfast.machine.breaker import CircuitState
from holdfast.telemetry import attempts as attempts_module
from holdfast.telemetry import ledger as ledger_module
from holdfast.telemetry.attempts import (
    AttemptRecorder,
    CircuitBreakerEvent,
    HourlyAggregate,
    RetryAttempt,
    RetryMetrics,
    RetryOutcome,
)
from holdfast.telemetry.events import (
    AttemptCompleted,
    CallCompleted,
    CallInterrupted,
    CircuitStateChanged,
    RetryScheduled,
)
from holdfast.telemetry.hub import Hub
from tests.telemetry.clocks import NOON, StandingClock

SUCCESS, FAILURE, TIMEOUT, CIRCUIT_OPEN = RetryOutcome
HOUR = timedelta(hours=1)


@pytest.fixture
def clock() -> StandingClock:
    return StandingClock(NOON + timedelta(minutes=30))


@pytest.fixture
def metrics(clock: StandingClock) -> RetryMetrics:
    return RetryMetrics(clock=clock)


def attempt(
    request_id: str = "r1",
    number: int = 0,
    outcome: RetryOutcome = SUCCESS,
    at: datetime = NOON,
    proxy_id: str = "eu",
    **fields: Any,
) -> RetryAttempt:
    return RetryAttempt(
        request_id=request_id, attempt_number=number, proxy_id=proxy_id, timestamp=at, outcome=outcome, **fields
    )


def opened(
    proxy_id: str = "eu", at: datetime = NOON, to_state: CircuitState = CircuitState.OPEN
) -> CircuitBreakerEvent:
    return CircuitBreakerEvent(
        proxy_id=proxy_id, from_state=CircuitState.CLOSED, to_state=to_state, timestamp=at, failure_count=5
    )


def requests_by_hour(metrics: RetryMetrics) -> dict[int, int]:
    return {hour.hour: seen.total_requests for hour, seen in metrics.hourly_aggregates.items()}


def test_the_model_keeps_the_seed_fields_and_defaults() -> None:
    metrics = RetryMetrics()
    assert metrics.retention_hours == 24
    assert metrics.max_current_attempts == 10_000
    assert list(metrics.current_attempts) == []
    assert metrics.hourly_aggregates == {}
    assert metrics.circuit_breaker_events == []
    assert HourlyAggregate(hour=NOON, avg_latency=0.5).avg_latency == 0.5


@pytest.mark.parametrize(
    "wrong",
    [
        {"number": -1},
        {"delay_before": -0.1},
        {"latency": -0.1},
        {"latency": float("nan")},
        {"wait": -1.0},
        {"failover_round": -1},
        {"outcome": "unknown"},
    ],
)
def test_an_attempt_out_of_bounds_is_refused(wrong: dict[str, Any]) -> None:
    with pytest.raises(ValidationError):
        attempt(**wrong)


def test_an_attempt_is_frozen() -> None:
    with pytest.raises(ValidationError):
        attempt().latency = 1.0


@pytest.mark.parametrize("settings", [{"retention_hours": 0}, {"max_current_attempts": 0}])
def test_impossible_settings_are_refused(settings: dict[str, int]) -> None:
    with pytest.raises(ValidationError):
        RetryMetrics(**settings)


def test_a_naive_timestamp_is_taken_as_utc(metrics: RetryMetrics) -> None:
    naive = attempt(at=NOON.replace(tzinfo=None))
    assert naive.timestamp == NOON
    metrics.record_attempt(naive)
    metrics.record_circuit_breaker_event(opened(at=NOON.replace(tzinfo=None)))
    assert metrics.get_summary()["total_retries"] == 1


def test_hours_are_utc_hours_also_for_half_hour_time_zones(metrics: RetryMetrics) -> None:
    india = timezone(timedelta(hours=5, minutes=30))
    metrics.record_attempt(attempt(at=datetime(2026, 3, 14, 17, 45, tzinfo=india)))
    assert list(metrics.hourly_aggregates) == [NOON]


def test_the_summary_is_full_before_any_aggregation_and_the_same_after_many(metrics: RetryMetrics) -> None:
    metrics.record_attempt(attempt("r1", 0, FAILURE, latency=0.2))
    metrics.record_attempt(attempt("r1", 1, SUCCESS, latency=0.4))
    metrics.record_circuit_breaker_event(opened())
    expected = {
        "total_requests": 1,
        "total_retries": 2,
        "extra_attempts": 1,
        "success_by_attempt": {1: 1},
        "circuit_breaker_events_count": 1,
        "retention_hours": 24,
    }
    assert metrics.get_summary() == expected
    for _ in range(3):
        metrics.aggregate_hourly()
        assert metrics.get_summary() == expected


def test_an_hour_shows_requests_attempts_reasons_and_the_mean_latency(metrics: RetryMetrics) -> None:
    metrics.record_attempt(attempt("r1", 0, FAILURE, latency=0.1, reason="connect"))
    metrics.record_attempt(attempt("r1", 1, TIMEOUT, latency=0.5))
    metrics.record_attempt(attempt("r2", 0, SUCCESS, latency=0.3))
    hour = metrics.hourly_aggregates[NOON]
    assert (hour.total_requests, hour.total_retries, hour.extra_attempts) == (2, 3, 1)
    assert hour.success_by_attempt == {0: 1}
    assert hour.failure_by_reason == {"connect": 1, "timeout": 1}
    assert hour.avg_latency == pytest.approx(0.3)


def test_eviction_from_the_ring_loses_nothing(clock: StandingClock) -> None:
    metrics = RetryMetrics(clock=clock, max_current_attempts=3)
    for number in range(10):
        metrics.record_attempt(attempt(f"r{number}", latency=1.0))
    assert [one.request_id for one in metrics.current_attempts] == ["r7", "r8", "r9"]
    assert metrics.get_summary()["total_retries"] == 10
    assert metrics.get_by_proxy()["eu"]["total_attempts"] == 10


def test_current_attempts_come_back_as_they_were_recorded(metrics: RetryMetrics) -> None:
    full = attempt(
        at=NOON + timedelta(microseconds=123_457), outcome=TIMEOUT, status_code=504, delay_before=0.1, latency=0.3,
        error_message="read timed out", reason="timeout", policy_id="fast", failover_round=2, wait=0.7,
    )  # fmt: skip
    bare = attempt("r2")
    metrics.record_attempt(full)
    metrics.record_attempt(bare)
    assert list(metrics.current_attempts) == [full, bare]


def test_what_is_returned_is_a_copy(metrics: RetryMetrics) -> None:
    metrics.record_attempt(attempt(policy_id="p"))
    metrics.current_attempts.clear()
    metrics.hourly_aggregates.clear()
    hour = metrics.hourly_aggregates[NOON]
    hour.success_by_attempt[0] = 99
    hour.by_proxy["eu"].attempts = 99
    hour.total_retries = 99
    assert metrics.get_summary()["success_by_attempt"] == {0: 1}
    assert metrics.get_summary()["total_retries"] == 1
    assert metrics.get_by_proxy()["eu"]["total_attempts"] == 1


def test_a_request_counts_once_in_the_hour_of_its_first_attempt(metrics: RetryMetrics, clock: StandingClock) -> None:
    metrics.record_attempt(attempt("r1", 0, FAILURE, NOON + timedelta(minutes=59)))
    clock.advance(hours=1)
    metrics.record_attempt(attempt("r1", 1, SUCCESS, NOON + HOUR))
    assert requests_by_hour(metrics) == {12: 1, 13: 0}
    assert [point["total_retries"] for point in metrics.get_timeseries()] == [1, 1]


def test_a_request_whose_records_come_out_of_order_moves_to_the_hour_of_its_lowest_attempt(
    metrics: RetryMetrics, clock: StandingClock
) -> None:
    clock.advance(hours=1)
    metrics.record_attempt(attempt("r1", 2, SUCCESS, NOON + HOUR))
    assert requests_by_hour(metrics) == {13: 1}
    metrics.record_attempt(attempt("r1", 0, FAILURE, NOON))
    metrics.record_attempt(attempt("r1", 1, FAILURE, NOON + HOUR))
    assert requests_by_hour(metrics) == {12: 1, 13: 0}


def test_a_request_without_attempt_zero_counts_all_the_same(metrics: RetryMetrics) -> None:
    metrics.record_attempt(attempt("r1", 1, FAILURE))
    metrics.record_attempt(attempt("r1", 2, SUCCESS))
    assert metrics.get_summary()["total_requests"] == 1


def test_request_ids_are_remembered_in_bounded_memory(metrics: RetryMetrics, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ledger_module, "GENERATION", 10)
    for number in range(1000):
        metrics.record_attempt(attempt(f"r{number}", 0, FAILURE))
        metrics.record_attempt(attempt(f"r{max(0, number - 4)}", 1, SUCCESS))
    assert metrics.get_summary()["total_requests"] == 1000, "the ten ids seen last are always known"
    requests = metrics._ledger.requests
    assert len(requests._young) + len(requests._old) <= 20


def test_the_age_cutoff_rounds_down_to_the_hour(metrics: RetryMetrics) -> None:
    """At 12:30, hours=1 reaches back to 11:30 and therefore shows all of 11:00."""
    metrics.record_attempt(attempt("r1", at=NOON - timedelta(minutes=59)))
    metrics.record_attempt(attempt("r2", at=NOON - timedelta(minutes=61)))
    assert [point["timestamp"] for point in metrics.get_timeseries(hours=1)] == [NOON - HOUR]
    assert metrics.get_by_proxy(hours=1)["eu"]["total_attempts"] == 1
    assert len(metrics.get_timeseries(hours=2)) == 2


def test_retention_keeps_the_whole_hour_it_ends_in(metrics: RetryMetrics, clock: StandingClock) -> None:
    metrics.record_attempt(attempt("r1", at=NOON))
    clock.now = NOON + timedelta(hours=24, minutes=59)
    metrics.aggregate_hourly()
    assert metrics.get_summary()["total_retries"] == 1
    assert len(metrics.current_attempts) == 1
    clock.now = NOON + timedelta(hours=25)
    assert metrics.get_summary()["total_retries"] == 0, "a reader never sees more than retention"
    metrics.aggregate_hourly()
    assert len(metrics.current_attempts) == 0
    assert metrics.hourly_aggregates == {}


def test_attempts_older_than_retention_are_not_counted(metrics: RetryMetrics) -> None:
    metrics.record_attempt(attempt("r1", 0, FAILURE, NOON - timedelta(hours=30)))
    metrics.record_attempt(attempt("r1", 1, SUCCESS, NOON))
    summary = metrics.get_summary()
    assert (summary["total_requests"], summary["total_retries"]) == (0, 1)


def test_old_circuit_events_are_pruned_with_their_hour(metrics: RetryMetrics, clock: StandingClock) -> None:
    metrics.record_circuit_breaker_event(opened())
    clock.advance(hours=26)
    metrics.aggregate_hourly()
    assert metrics.circuit_breaker_events == []
    assert metrics.get_by_proxy() == {}


def test_a_clock_far_ahead_does_not_fill_the_memory(metrics: RetryMetrics) -> None:
    for day in range(1000):
        metrics.record_attempt(attempt(f"r{day}", at=NOON + timedelta(days=day)))
    assert len(metrics.hourly_aggregates) <= 24 + 1 + 24
    assert metrics.get_summary()["total_retries"] == 1000


def test_reasons_are_codes_else_redacted_messages_else_the_outcome(metrics: RetryMetrics) -> None:
    metrics.record_attempt(attempt("r1", 0, FAILURE, reason="connect", error_message="refused by 10.0.0.1"))
    metrics.record_attempt(attempt("r2", 0, FAILURE, error_message="GET https://bob:hunter2@host/x failed"))
    metrics.record_attempt(attempt("r3", 0, CIRCUIT_OPEN))
    metrics.record_attempt(attempt("r4", 0, FAILURE, error_message="x y " * 1000))
    reasons = metrics.hourly_aggregates[NOON].failure_by_reason
    assert sum(reasons.values()) == 4
    assert {"connect", "circuit_open"} <= set(reasons)
    assert "hunter2" not in json.dumps(metrics.model_dump(mode="json"))
    assert max(map(len, reasons)) <= 200


def test_the_number_of_reasons_endpoints_and_policies_is_bounded(
    metrics: RetryMetrics, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ledger_module, "MAX_NAMES", 50)
    for number in range(200):
        at = attempt(
            f"r{number}", 0, FAILURE, proxy_id=f"e{number}", policy_id=f"p{number}", error_message=f"error {number}"
        )
        metrics.record_attempt(at)
    hour = metrics.hourly_aggregates[NOON]
    assert len(hour.failure_by_reason) == ledger_module.MAX_REASONS + 1
    assert hour.failure_by_reason["other"] == 200 - ledger_module.MAX_REASONS
    assert len(hour.by_proxy) == len(hour.by_policy) == 51
    assert sum(tally["total_attempts"] for tally in metrics.get_by_proxy().values()) == 200


def test_the_timeseries_is_sorted_and_rates_are_per_attempt(metrics: RetryMetrics) -> None:
    metrics.record_attempt(attempt("r2", 0, SUCCESS, NOON, latency=0.2))
    metrics.record_attempt(attempt("r1", 0, FAILURE, NOON - HOUR, latency=0.1))
    metrics.record_attempt(attempt("r1", 1, FAILURE, NOON - HOUR, latency=0.1))
    metrics.record_attempt(attempt("r1", 2, FAILURE, NOON - HOUR, latency=0.1))
    metrics.record_attempt(attempt("r1", 3, SUCCESS, NOON - HOUR, latency=0.5))
    first, second = metrics.get_timeseries()
    assert first == {
        "timestamp": NOON - HOUR,
        "total_requests": 1,
        "total_retries": 4,
        "extra_attempts": 3,
        "success_rate": 0.25,
        "avg_latency": pytest.approx(0.2),
    }
    assert (second["timestamp"], second["success_rate"]) == (NOON, 1.0)


def test_a_range_of_no_hours_is_refused(metrics: RetryMetrics) -> None:
    with pytest.raises(ValueError, match="hours must be at least 1, got 0"):
        metrics.get_timeseries(hours=0)


def test_endpoints_show_attempts_and_openings_also_with_events_only(metrics: RetryMetrics) -> None:
    metrics.record_attempt(attempt("r1", 0, FAILURE, proxy_id="eu", latency=0.2))
    metrics.record_attempt(attempt("r1", 1, SUCCESS, proxy_id="us", latency=0.4))
    metrics.record_circuit_breaker_event(opened("eu"))
    metrics.record_circuit_breaker_event(opened("asia"))
    metrics.record_circuit_breaker_event(opened("asia", to_state=CircuitState.HALF_OPEN))
    assert metrics.get_by_proxy() == {
        "eu": {
            "total_attempts": 1, "success_count": 0, "failure_count": 1, "avg_latency": 0.2,
            "circuit_breaker_opens": 1,
        },
        "us": {
            "total_attempts": 1, "success_count": 1, "failure_count": 0, "avg_latency": 0.4,
            "circuit_breaker_opens": 0,
        },
        "asia": {
            "total_attempts": 0, "success_count": 0, "failure_count": 0, "avg_latency": 0.0,
            "circuit_breaker_opens": 1,
        },
    }  # fmt: skip


def test_the_success_rate_is_known_per_policy(metrics: RetryMetrics) -> None:
    metrics.record_attempt(attempt("r1", 0, FAILURE, policy_id="fast"))
    metrics.record_attempt(attempt("r1", 1, SUCCESS, policy_id="fast"))
    metrics.record_attempt(attempt("r2", 0, SUCCESS))
    assert list(metrics.get_by_policy()) == ["fast"]
    assert metrics.get_by_policy()["fast"]["success_rate"] == 0.5
    assert metrics.get_by_policy()["fast"]["total_attempts"] == 2


def test_days_add_up_their_hours(clock: StandingClock) -> None:
    metrics = RetryMetrics(clock=clock, retention_hours=72)
    for hours_ago in (0, 1, 13, 14, 40):
        metrics.record_attempt(attempt(f"r{hours_ago}", at=NOON - hours_ago * HOUR, latency=1.0))
    days = metrics.get_daily()
    assert [(day["date"], day["total_retries"]) for day in days] == [
        (date(2026, 3, 12), 1),
        (date(2026, 3, 13), 2),
        (date(2026, 3, 14), 2),
    ]
    assert days[2]["success_rate"] == 1.0
    assert days[2]["avg_latency"] == 1.0


def test_the_last_thousand_events_are_kept_and_all_are_counted(metrics: RetryMetrics) -> None:
    for number in range(1500):
        metrics.record_circuit_breaker_event(opened(f"e{number % 3}"))
    assert len(metrics.circuit_breaker_events) == 1000
    assert metrics.circuit_breaker_events[0] == opened("e2")
    assert metrics.get_summary()["circuit_breaker_events_count"] == 1500


def test_it_serialises_to_json_and_back_without_loss(metrics: RetryMetrics, clock: StandingClock) -> None:
    for number in range(50):
        outcome = FAILURE if number % 3 else SUCCESS
        metrics.record_attempt(
            attempt(f"r{number // 2}", number % 2, outcome, NOON - number * timedelta(minutes=7), latency=0.1 * number)
        )
    metrics.record_circuit_breaker_event(opened())
    stored = json.loads(json.dumps(metrics.model_dump(mode="json")))
    again = RetryMetrics.model_validate({**stored, "clock": clock})
    assert again.model_dump(mode="json") == stored
    assert again.get_summary() == metrics.get_summary()
    assert again.get_by_proxy() == metrics.get_by_proxy()
    again.record_attempt(attempt("r0", 5, FAILURE))
    assert again.get_summary()["total_requests"] == metrics.get_summary()["total_requests"], "still known"


def test_live_requests_are_those_being_retried(metrics: RetryMetrics) -> None:
    metrics.begin_retry("r1", 1, proxy_id="eu", wait=0.5)
    metrics.begin_retry("r2", 1, proxy_id="eu")
    metrics.begin_retry("r1", 2, proxy_id="us", wait=1.0)
    assert [(one["request_id"], one["attempt_number"], one["wait"]) for one in metrics.get_live()] == [
        ("r2", 1, 0.0),
        ("r1", 2, 1.0),
    ]
    metrics.end_request("r1")
    metrics.end_request("unknown")
    assert [one["request_id"] for one in metrics.get_live()] == ["r2"]
    for number in range(2000):
        metrics.begin_retry(f"x{number}", 1, proxy_id="eu")
    assert len(metrics.get_live()) == attempts_module.MAX_LIVE


def test_threads_record_exact_totals(metrics: RetryMetrics) -> None:
    def work(name: int) -> None:
        for number in range(300):
            metrics.record_attempt(attempt(f"{name}/{number // 3}", number % 3, SUCCESS))
            if number % 50 == 0:
                metrics.aggregate_hourly()
                metrics.get_summary()

    workers = [threading.Thread(target=work, args=(name,)) for name in range(4)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    summary = metrics.get_summary()
    assert (summary["total_retries"], summary["total_requests"]) == (1200, 400)


def test_ten_thousand_attempts_of_a_hundred_endpoints_fit_into_the_budget() -> None:
    """The last hour at 10,000 requests, a full day of hours behind it, and the last thousand circuit events."""
    clock = StandingClock(NOON)
    metrics = RetryMetrics(clock=clock)
    endpoints = [f"endpoint-{number}" for number in range(100)]
    gc.collect()
    tracemalloc.start()
    try:
        before = tracemalloc.get_traced_memory()[0]
        for hour in range(25):
            for number in range(10_000 if hour == 24 else 500):
                clock.now = NOON + hour * HOUR + number * timedelta(milliseconds=300)
                failed = number % 4 == 0
                metrics.record_attempt(
                    RetryAttempt(
                        request_id=f"{hour:02x}{number:010x}",
                        attempt_number=0,
                        proxy_id=endpoints[number % 100],
                        timestamp=clock.now,
                        outcome=FAILURE if failed else SUCCESS,
                        delay_before=number * 0.1,
                        latency=number * 0.01,
                        wait=number * 0.001,
                        error_message=f"connect to host {number % 100} failed" if failed else None,
                        policy_id="default",
                    )
                )
                if number % 12 == 0:
                    metrics.record_circuit_breaker_event(opened(endpoints[number % 100], clock.now))
        gc.collect()
        used = tracemalloc.get_traced_memory()[0] - before
    finally:
        tracemalloc.stop()
    assert len(metrics.current_attempts) == 10_000
    assert used <= 2_500_000, f"{used:,} bytes"


def recording(clock: StandingClock) -> tuple[Hub, RetryMetrics]:
    hub, metrics = Hub(clock=clock), RetryMetrics(clock=clock)
    hub.register(AttemptRecorder(metrics))
    return hub, metrics


def test_the_recorder_turns_attempt_events_into_records(clock: StandingClock) -> None:
    hub, metrics = recording(clock)
    assert hub.loud
    hub.emit(
        AttemptCompleted(
            "pay", "c1", 1, OutcomeKind.TRANSIENT_FAILURE, wait=0.1, service_s=0.2, endpoint="eu", policy_id="p",
            handled=True, delay=0.5, status_code=503, error_type="HTTPError", failover_round=1,
        )
    )  # fmt: skip
    assert list(metrics.current_attempts) == [
        attempt(
            "c1", 1, FAILURE, clock.now, "eu", wait=0.1, latency=0.2, policy_id="p", delay_before=0.5,
            status_code=503, reason="HTTPError", failover_round=1,
        )
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("kind", "reason", "expected"),
    [
        (OutcomeKind.SUCCESS, None, [SUCCESS]),
        (OutcomeKind.PARTIAL, None, [SUCCESS]),
        (OutcomeKind.TIMEOUT, None, [TIMEOUT]),
        (OutcomeKind.TRANSIENT_FAILURE, None, [FAILURE]),
        (OutcomeKind.TERMINAL_FAILURE, None, [FAILURE]),
        (OutcomeKind.REJECTED, "circuit_open", [CIRCUIT_OPEN]),
        (OutcomeKind.REJECTED, "rate_limited", []),
    ],
)
def test_every_outcome_kind_has_its_retry_outcome(
    clock: StandingClock, kind: OutcomeKind, reason: str | None, expected: list[RetryOutcome]
) -> None:
    hub, metrics = recording(clock)
    hub.emit(AttemptCompleted("pay", "c1", 0, kind, reason=reason))
    assert [one.outcome for one in metrics.current_attempts] == expected
    assert all(one.proxy_id == "pay" for one in metrics.current_attempts)


def test_the_recorder_keeps_circuit_changes_and_live_retries(clock: StandingClock) -> None:
    hub, metrics = recording(clock)
    hub.emit(CircuitStateChanged("pay", "c1", "eu", CircuitState.CLOSED, CircuitState.OPEN, "count", 5))
    hub.emit(RetryScheduled("pay", "c1", 0, 0.5))
    hub.emit(RetryScheduled("pay", "c2", 1, 0.5))
    assert metrics.circuit_breaker_events == [opened(at=clock.now)]
    assert [(one["request_id"], one["attempt_number"]) for one in metrics.get_live()] == [("c1", 1), ("c2", 2)]
    hub.emit(CallCompleted("pay", "c1", 1.0, OutcomeKind.SUCCESS))
    hub.emit(CallInterrupted("pay", "c2", "cancelled", 1.0))
    assert metrics.get_live() == []


def test_a_measurement_error_stays_inside_the_hub(clock: StandingClock) -> None:
    hub, metrics = recording(clock)
    hub.emit(AttemptCompleted("pay", "c1", 0, OutcomeKind.SUCCESS, service_s=-1.0))
    assert hub.listener_failures == 1
    assert len(metrics.current_attempts) == 0


def test_epoch_hours_are_whole_also_before_1970() -> None:
    old = StandingClock(datetime(1969, 12, 31, 23, 30, tzinfo=UTC))
    metrics = RetryMetrics(clock=old)
    metrics.record_attempt(attempt(at=old.now))
    assert list(metrics.hourly_aggregates) == [datetime(1969, 12, 31, 23, tzinfo=UTC)]


def test_its_repr_does_not_print_every_attempt(metrics: RetryMetrics) -> None:
    metrics.record_attempt(attempt("secret-id"))
    assert "secret-id" not in repr(metrics)


def test_pruning_a_full_ring_keeps_the_order_of_what_stays(clock: StandingClock) -> None:
    metrics = RetryMetrics(clock=clock, max_current_attempts=4)
    ages = {"a": 0, "b": 20, "c": 1, "d": 21, "e": 2, "f": 3}
    for name, hours in ages.items():
        metrics.record_attempt(attempt(name, at=NOON - hours * HOUR))
    clock.advance(hours=5)
    metrics.aggregate_hourly()
    assert [one.request_id for one in metrics.current_attempts] == ["c", "e", "f"]
    for name in "ghi":
        metrics.record_attempt(attempt(name))
    assert [one.request_id for one in metrics.current_attempts] == ["f", "g", "h", "i"]


def test_the_recorder_works_without_a_hub(clock: StandingClock, metrics: RetryMetrics) -> None:
    AttemptRecorder(metrics).on_event(AttemptCompleted("pay", "c1", 0, OutcomeKind.SUCCESS))
    assert metrics.current_attempts[0].timestamp == clock.now
