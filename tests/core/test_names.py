"""The names and defaults that both documents promise, one row per name: what a reader of either can type and get."""

from __future__ import annotations

import inspect
import pickle
from datetime import UTC, datetime
from typing import Any

import pytest

import holdfast
from holdfast import GuardRejected, GuardTimeout, HoldfastError, OutcomeError, OutcomeKind, PolicyError, Priority
from holdfast.errors import REJECTIONS

REQUIRED = inspect.Parameter.empty

# Names of the resilience framework and of the retry model that have no row of defaults below.
PLAIN_NAMES = [
    "Outcome", "OutcomeKind", "Verdict", "Deadline", "TypedKey", "ResilienceContext", "current_context",
    "use_context", "Classifier", "GuardedFn", "ResultClassifier", "ResilienceStrategy", "default_classify",
    "guarded_call", "guarded_call_sync", "PRIORITY", "Priority", "ResiliencePipeline", "ResiliencePipelineBuilder",
    "ResiliencePipelineRegistry", "get_pipeline_registry", "GuardEvent", "CallCompleted", "CircuitStateChanged",
    "LoadShed", "TelemetryListener", "InMemoryMetrics", "register_listener", "get_listeners", "emit",
    "BackoffStrategy", "RetryPolicy", "CircuitBreaker", "CircuitBreakerState", "CircuitState", "RetryOutcome",
    "RetryAttempt", "CircuitBreakerEvent", "HourlyAggregate", "RetryMetrics", "ProxyRotator", "GuardRejected",
    "CircuitOpen", "BulkheadFull", "RateLimited", "DeadlineExpired", "BudgetExhausted", "PoolExhausted",
    "GuardTimeout",
]  # fmt: skip

DEFAULTS: dict[str, dict[str, Any]] = {
    "TimeoutStrategy": {"timeout_s": REQUIRED},
    "RetryStrategy": {"max_attempts": 3, "base_delay_s": 0.5, "max_delay_s": 30},
    "CircuitBreakerStrategy": {"failure_threshold": 5, "reset_timeout_s": 30},
    "BulkheadStrategy": {"max_concurrent": 1, "max_queued": 32},
    "PriorityBulkheadStrategy": {"max_concurrent": 1, "max_queued": 32},
    "RateLimiterStrategy": {"rate_per_s": 10, "burst": 10},
    "FallbackStrategy": {"function": None},
    "InMemoryMetrics": {"ring_size": 1000},
    "CircuitBreaker": {
        "proxy_id": REQUIRED, "failure_threshold": 5, "window_duration": 60, "timeout_duration": 30,
    },
    "RetryPolicy": {
        "max_attempts": 3, "backoff_strategy": "exponential", "base_delay": 1.0, "multiplier": 2.0,
        "max_backoff_delay": 30, "jitter": False, "retry_status_codes": (502, 503, 504), "timeout": None,
        "retry_non_idempotent": False,
    },
    "RetryMetrics": {"retention_hours": 24, "max_current_attempts": 10_000},
    "Budget": {"max_rate": 0.2, "min_concurrency": 3},
    "Hedge": {"delay": 2.0, "max_hedged": 1},
    "Chaos": {"rate": 0.001, "enabled": False},
    "Throttle": {"threshold": 0.9, "window": 60, "cap": 0.9},
    "AdaptiveLimit": {
        "min": 1, "max": 200, "initial": 20, "window_min": 1, "window_max": 30, "min_samples": 50, "quantile": 0.9,
        "ceiling_factor": 5,
    },
    "slow_ratio": {"threshold": 60},
    "Breaker": {"successes": 1, "open_for": 30},
    "ProxyRotator": {"choose": "p2c", "attempts_per_endpoint": 1, "max_proxy_attempts": None},
    "EndpointPool": {"choose": "p2c"},
}  # fmt: skip

REASONS = {
    "CircuitOpen": "circuit_open",
    "BulkheadFull": "bulkhead_full",
    "RateLimited": "rate_limited",
    "DeadlineExpired": "deadline_expired",
    "BudgetExhausted": "budget_exhausted",
    "PoolExhausted": "pool_exhausted",
    "Throttled": "throttled",
}


@pytest.mark.parametrize("name", sorted({*PLAIN_NAMES, *DEFAULTS}))
def test_a_promised_name_is_public_under_its_own_name(name):
    assert name in holdfast.__all__
    made = getattr(holdfast, name)
    assert getattr(made, "__name__", name).rpartition(".")[2] in {name, "Callable", "CircuitState"}


@pytest.mark.parametrize("name", DEFAULTS)
def test_a_promised_default_is_the_one_in_the_signature(name):
    parameters = inspect.signature(getattr(holdfast, name)).parameters
    assert {field: parameters[field].default for field in DEFAULTS[name]} == DEFAULTS[name]


@pytest.mark.parametrize(
    "name", ["CircuitBreakerStrategy", "BulkheadStrategy", "PriorityBulkheadStrategy", "RateLimiterStrategy"]
)
def test_a_strategy_with_shared_state_takes_its_name_first(name):
    assert next(iter(inspect.signature(getattr(holdfast, name)).parameters)) == "name"


def test_the_seam_takes_the_promised_arguments_in_both_forms():
    promised = [
        "operation_key", "fn", "deadline", "strategies", "classify", "result_classifier", "passthrough_exceptions",
        "properties",
    ]  # fmt: skip
    for seam in (holdfast.guarded_call, holdfast.guarded_call_sync):
        parameters = inspect.signature(seam).parameters
        assert list(parameters)[: len(promised)] == promised
        assert all(p.kind is p.KEYWORD_ONLY for p in list(parameters.values())[2:])


def test_the_builder_has_every_promised_verb():
    verbs = (
        "add timeout retry circuit_breaker bulkhead priority_bulkhead rate_limiter fallback classify "
        "result_classifier passthrough build"
    )
    assert all(callable(getattr(holdfast.ResiliencePipelineBuilder, verb)) for verb in verbs.split())


def test_the_two_names_of_the_circuits_state_are_one_enum():
    assert holdfast.CircuitBreakerState is holdfast.CircuitState
    assert [state.value for state in holdfast.CircuitState] == ["closed", "open", "half_open"]


def test_priorities_count_from_the_most_urgent():
    assert [(p.name, p.value) for p in Priority] == [("INTERACTIVE", 0), ("WORKFLOW", 1), ("BACKGROUND", 2)]


def test_the_outcomes_of_an_attempt_are_the_four_of_the_model():
    assert [outcome.value for outcome in holdfast.RetryOutcome] == ["success", "failure", "timeout", "circuit_open"]


def test_a_circuit_breaker_shows_every_field_of_the_model():
    fields = {
        "proxy_id", "state", "failure_count", "failure_window", "failure_threshold", "window_duration",
        "timeout_duration", "next_test_time", "last_state_change",
    }  # fmt: skip
    breaker = holdfast.CircuitBreaker("proxy", telemetry=holdfast.Hub())
    assert set(breaker.model_dump()) == fields
    assert all(hasattr(breaker, field) for field in fields)


def test_the_records_have_every_field_of_the_model_and_ours():
    now = datetime(2026, 1, 1, tzinfo=UTC)
    attempt = holdfast.RetryAttempt(
        request_id="r", attempt_number=0, proxy_id="p", timestamp=now, outcome="success", delay_before=0, latency=0
    )
    assert set(attempt.model_dump()) == {
        "request_id", "attempt_number", "proxy_id", "timestamp", "outcome", "status_code", "delay_before", "latency",
        "error_message", "reason", "policy_id", "failover_round", "wait",
    }  # fmt: skip
    event = holdfast.CircuitBreakerEvent(
        proxy_id="p", from_state="closed", to_state="open", timestamp=now, failure_count=5
    )
    assert set(event.model_dump()) == {"proxy_id", "from_state", "to_state", "timestamp", "failure_count"}
    assert {
        "hour", "total_requests", "total_retries", "success_by_attempt", "failure_by_reason", "avg_latency",
    } <= set(holdfast.HourlyAggregate(hour=now).model_dump())  # fmt: skip


@pytest.mark.parametrize("name", REASONS)
def test_every_refusal_has_its_reason_and_is_a_guard_rejected(name):
    kind = getattr(holdfast, name)
    error = kind("payments", 2.5)
    assert isinstance(error, GuardRejected)
    assert (error.reason, error.guard, error.retry_after) == (REASONS[name], "payments", 2.5)
    assert REJECTIONS[REASONS[name]] is kind


def test_there_are_no_reasons_beyond_the_promised_ones():
    assert set(REJECTIONS) == set(REASONS.values())


def test_our_errors_are_also_what_a_caller_would_catch_without_us():
    assert issubclass(GuardTimeout, TimeoutError)
    assert issubclass(PolicyError, ValueError)
    assert all(issubclass(kind, HoldfastError) for kind in (GuardRejected, GuardTimeout, OutcomeError, PolicyError))
    assert not issubclass(GuardRejected, TimeoutError)


@pytest.mark.parametrize(
    "error",
    [*(kind("payments", 2.5, "no") for kind in REJECTIONS.values()), GuardTimeout("payments", 5.0, "ran out")],
    ids=lambda error: type(error).__name__,
)
def test_our_errors_survive_a_trip_to_another_process(error):
    again = pickle.loads(pickle.dumps(error))
    assert (type(again), str(again), again.guard) == (type(error), str(error), "payments")


def test_an_outcome_error_survives_a_trip_to_another_process():
    again = pickle.loads(pickle.dumps(OutcomeError(OutcomeKind.REJECTED, "shed")))
    assert (again.kind, again.detail) == (OutcomeKind.REJECTED, "shed")
