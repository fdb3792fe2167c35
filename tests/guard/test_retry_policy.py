"""RetryPolicy: the seed's fields and bounds, its waits, and what a guard makes of it."""

from __future__ import annotations

import pickle
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from holdfast.core.backoff import BackoffStrategy, Jitter
from holdfast.guard.guard import Guard
from holdfast.guard.retry_policy import RetryPolicy
from holdfast.guard.timeout import Timeout
from holdfast.machine.retry import RetrySafety
from holdfast.telemetry.hub import Hub
from holdfast.testing.clock import ManualClock


def test_the_defaults_are_those_of_the_contract() -> None:
    assert RetryPolicy().model_dump(mode="json") == {
        "max_attempts": 3,
        "backoff_strategy": "exponential",
        "base_delay": 1.0,
        "multiplier": 2.0,
        "max_backoff_delay": 30.0,
        "jitter": False,
        "retry_status_codes": [502, 503, 504],
        "timeout": None,
        "retry_non_idempotent": False,
    }


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("max_attempts", 1), ("max_attempts", 10), ("base_delay", 60), ("base_delay", 0.001), ("multiplier", 10),
        ("multiplier", 1.01), ("max_backoff_delay", 300), ("max_backoff_delay", 0.1), ("timeout", 0.01),
        ("timeout", None), ("retry_status_codes", [500, 599]), ("retry_status_codes", []),
        ("backoff_strategy", "linear"),
    ],
)  # fmt: skip
def test_values_at_the_bounds_are_accepted(field: str, value: Any) -> None:
    assert getattr(RetryPolicy(**{field: value}), field) in (value, tuple(value) if isinstance(value, list) else value)


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("max_attempts", 0), ("max_attempts", 11), ("max_attempts", 2.5), ("base_delay", 0), ("base_delay", -1),
        ("base_delay", 60.1), ("base_delay", float("nan")), ("multiplier", 1), ("multiplier", 10.5),
        ("max_backoff_delay", 0), ("max_backoff_delay", 301), ("timeout", 0), ("timeout", -1),
        ("timeout", float("inf")), ("timeout", float("nan")), ("retry_status_codes", [404]),
        ("retry_status_codes", [503, 600]), ("retry_status_codes", [499]), ("backoff_strategy", "fibonacci"),
        ("max_attempt", 3),
    ],
)  # fmt: skip
def test_an_impossible_value_is_refused_with_field_and_value(field: str, value: Any) -> None:
    with pytest.raises(ValidationError) as caught:
        RetryPolicy(**{field: value})
    assert isinstance(caught.value, ValueError)
    assert field in str(caught.value)
    shown = value[-1] if isinstance(value, list) else value
    assert str(shown) in str(caught.value)


def test_a_status_that_is_no_server_error_is_refused_with_the_range() -> None:
    with pytest.raises(ValueError, match=r"retry_status_codes must be server errors, 500\.\.599, got 429"):
        RetryPolicy(retry_status_codes=[503, 429])


def test_a_policy_cannot_be_changed_in_place() -> None:
    policy = RetryPolicy()
    with pytest.raises(ValidationError):
        policy.max_attempts = 5  # type: ignore[misc]
    assert isinstance(policy.retry_status_codes, tuple)


def test_policies_are_comparable_hashable_and_survive_serialisation() -> None:
    policy = RetryPolicy(max_attempts=5, backoff_strategy="linear", timeout=9.5, retry_status_codes=[500, 503])
    assert policy == RetryPolicy(max_attempts=5, backoff_strategy="linear", timeout=9.5, retry_status_codes=[500, 503])
    assert policy != RetryPolicy()
    assert len({policy, policy.replaced()}) == 1
    assert RetryPolicy.model_validate_json(policy.model_dump_json()) == policy
    assert RetryPolicy.model_validate(policy.model_dump()) == policy
    assert pickle.loads(pickle.dumps(policy)) == policy


def test_replacing_values_validates_them() -> None:
    assert RetryPolicy(timeout=3).replaced(timeout=None, max_attempts=4) == RetryPolicy(max_attempts=4)
    with pytest.raises(ValidationError):
        RetryPolicy().replaced(max_attempts=0)


@pytest.mark.parametrize(
    ("strategy", "expected"),
    [("exponential", [1, 2, 4, 8, 16, 30]), ("linear", [1, 2, 3, 4, 5, 6]), ("fixed", [1, 1, 1, 1, 1, 1])],
)
def test_waits_grow_by_the_strategy_up_to_the_cap(strategy: str, expected: list[float]) -> None:
    policy = RetryPolicy(backoff_strategy=BackoffStrategy(strategy))
    assert [policy.calculate_delay(k) for k in range(6)] == expected


def test_jitter_spreads_by_half_and_is_capped_afterwards() -> None:
    policy = RetryPolicy(jitter=True, base_delay=4, max_backoff_delay=5)
    assert policy.calculate_delay(0, lambda: 0.0) == 2.0
    assert policy.calculate_delay(0, lambda: 0.999) == 5.0
    assert policy.calculate_delay(7, lambda: 0.0) == 2.5


def test_a_negative_attempt_number_is_refused() -> None:
    with pytest.raises(ValueError, match="attempt must be 0 or more, got -1"):
        RetryPolicy().calculate_delay(-1)


@given(
    strategy=st.sampled_from(list(BackoffStrategy)),
    attempt=st.one_of(st.integers(0, 50), st.integers(0, 10**400)),
    base=st.floats(0.001, 60),
    multiplier=st.floats(1.001, 10),
    cap=st.floats(0.001, 300),
    jitter=st.booleans(),
    draw=st.floats(0, 1, exclude_max=True),
)
def test_no_wait_is_ever_above_the_cap_or_overflows(
    strategy: BackoffStrategy, attempt: int, base: float, multiplier: float, cap: float, jitter: bool, draw: float
) -> None:
    policy = RetryPolicy(
        backoff_strategy=strategy, base_delay=base, multiplier=multiplier, max_backoff_delay=cap, jitter=jitter
    )
    assert 0 < policy.calculate_delay(attempt, lambda: draw) <= cap


def test_a_policy_becomes_the_guards_own_policies() -> None:
    retry, timeout = RetryPolicy(
        max_attempts=4,
        backoff_strategy="linear",
        base_delay=2,
        multiplier=3,
        max_backoff_delay=7,
        jitter=True,
        timeout=11,
    ).policies()
    assert (retry.attempts, retry.backoff, retry.base, retry.multiplier, retry.cap) == (4, "linear", 2, 3, 7)
    assert retry.jitter is Jitter.SPREAD
    assert retry.safety is RetrySafety.IDEMPOTENT
    assert timeout == Timeout(total=11)


def test_without_timeout_there_is_only_a_retry() -> None:
    (retry,) = RetryPolicy().policies()
    assert retry.jitter is Jitter.NONE


def test_retry_non_idempotent_lifts_the_safety_rule() -> None:
    assert RetryPolicy(retry_non_idempotent=True).to_retry().safety is RetrySafety.ALWAYS


@given(k=st.integers(0, 12), jitter=st.booleans(), draw=st.floats(0, 1, exclude_max=True))
def test_the_guards_retry_waits_exactly_as_the_policy_calculates(k: int, jitter: bool, draw: float) -> None:
    policy = RetryPolicy(jitter=jitter)
    assert policy.to_retry().schedule.delay(k, lambda: draw) == policy.calculate_delay(k, lambda: draw)


def test_max_attempts_counts_all_calls() -> None:
    clock = ManualClock()
    calls = []

    def down() -> None:
        calls.append(1)
        raise OSError("down")

    policy = RetryPolicy(max_attempts=3)
    outcome = Guard("x", *policy.policies(), clock=clock, telemetry=Hub(clock=clock)).run(down)
    assert (len(calls), outcome.attempts, clock.slept) == (3, 3, [1.0, 2.0])
