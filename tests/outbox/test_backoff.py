"""How long to wait before the next call."""

from __future__ import annotations

from datetime import timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.outbox.backoff import BackoffPolicy

SECOND = timedelta(seconds=1)


def test_the_defaults_are_those_of_the_contract() -> None:
    policy = BackoffPolicy()
    assert (policy.base_delay, policy.lease, policy.max_delay) == (
        timedelta(seconds=30),
        timedelta(minutes=5),
        timedelta(hours=1),
    )


def test_the_delay_doubles_up_to_the_ceiling() -> None:
    policy = BackoffPolicy(base_delay=SECOND, max_delay=10 * SECOND)
    assert [policy.delay(n) for n in range(1, 7)] == [n * SECOND for n in (1, 2, 4, 8, 10, 10)]


@given(st.integers(1, 40), st.integers(1, 10**7), st.integers(0, 10**9))
def test_it_is_the_formula_of_the_contract(attempts: int, base: int, more: int) -> None:
    policy = BackoffPolicy(base_delay=timedelta(microseconds=base), max_delay=timedelta(microseconds=base + more))
    assert policy.delay(attempts) == timedelta(microseconds=min(base * 2 ** (attempts - 1), base + more))


def test_a_million_attempts_are_neither_slow_nor_an_overflow() -> None:
    assert BackoffPolicy().delay(1_000_000) == timedelta(hours=1)


@pytest.mark.parametrize("attempts", [0, -1])
def test_fewer_than_one_attempt_is_a_value_error_that_names_attempts(attempts: int) -> None:
    with pytest.raises(ValueError, match="attempts"):
        BackoffPolicy().delay(attempts)


@pytest.mark.parametrize(
    ("fields", "name"),
    [
        ({"base_delay": timedelta(0)}, "base_delay"),
        ({"lease": timedelta(0)}, "lease"),
        ({"base_delay": 2 * SECOND, "max_delay": SECOND}, "max_delay"),
        ({"jitter": 1.5}, "jitter"),
    ],
)
def test_a_policy_that_cannot_work_is_refused(fields: dict[str, object], name: str) -> None:
    with pytest.raises(ValueError, match=name):
        BackoffPolicy(**fields)  # type: ignore[arg-type]


def test_jitter_takes_off_up_to_its_share() -> None:
    policy = BackoffPolicy(base_delay=10 * SECOND, jitter=0.5)
    assert policy.delay(1, rng=lambda: 0.0) == 10 * SECOND
    assert policy.delay(1, rng=lambda: 0.5) == 7.5 * SECOND
    assert policy.delay(1) == 10 * SECOND


def test_the_delay_takes_what_the_seed_does_not_know_by_name_only() -> None:
    with pytest.raises(TypeError):
        BackoffPolicy().delay(1, lambda: 0.5)  # type: ignore[misc]
