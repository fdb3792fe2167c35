import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.core.backoff import Backoff, BackoffStrategy, Jitter, delay
from holdfast.errors import PolicyError

draws = st.floats(0, 1, exclude_max=True)
bases = st.floats(0, 1e6)
caps = st.floats(1e-6, 1e6)
multipliers = st.floats(1, 1e6)
counts = st.one_of(st.integers(0, 50), st.just(10**6), st.integers(0, 10**9))


def plain(strategy: str, k: int) -> float:
    return Backoff(strategy, base=1.0, multiplier=3.0, cap=1000.0, jitter="none").delay(k, lambda: 0.5)


def jittered(jitter: str, draw: float, previous: float | None = None, cap: float = 100.0) -> float:
    return Backoff("fixed", base=8.0, cap=cap, jitter=jitter).delay(0, lambda: draw, previous)


def test_exponential_starts_with_the_base_and_multiplies():
    assert [plain("exponential", k) for k in range(4)] == [1, 3, 9, 27]


def test_linear_adds_the_base_each_time():
    assert [plain("linear", k) for k in range(4)] == [1, 2, 3, 4]


def test_fixed_is_always_the_base():
    assert [plain("fixed", k) for k in range(4)] == [1, 1, 1, 1]


@pytest.mark.parametrize(
    ("jitter", "lowest", "middle", "highest"),
    [
        ("none", 8, 8, 8),
        ("full", 0, 4, 8),
        ("equal", 4, 6, 8),
        ("proportional", 6, 8, 10),
        ("spread", 4, 8, 12),
    ],
)
def test_each_jitter_spreads_the_wait_over_its_own_range(jitter: str, lowest: float, middle: float, highest: float):
    assert [jittered(jitter, draw) for draw in (0.0, 0.5, 1.0)] == [lowest, middle, highest]


def test_the_cap_comes_after_the_jitter():
    assert jittered("spread", 0.999, cap=9) == 9
    assert jittered("proportional", 0.999, cap=9) == 9


def test_jitter_still_spreads_the_waits_once_growth_has_reached_the_cap():
    backoff = Backoff(base=1, cap=30, jitter="full")
    assert backoff.delay(1000, lambda: 0.5) == 15


def test_decorrelated_jitter_lies_between_the_base_and_three_times_the_previous_wait():
    assert jittered("decorrelated", 0.0, previous=20) == 8
    assert jittered("decorrelated", 0.5, previous=20) == 34
    assert jittered("decorrelated", 0.5) == 16
    assert jittered("decorrelated", 0.5, previous=0.0) == 8


def test_decorrelated_jitter_is_only_below_the_base_when_the_cap_is():
    assert jittered("decorrelated", 0.9, previous=1000, cap=5) == 5


@given(st.sampled_from(BackoffStrategy), bases, multipliers, caps, st.sampled_from(Jitter), counts, draws, bases)
def test_any_wait_is_finite_and_within_the_cap(strategy, base, multiplier, cap, jitter, k, draw, previous):
    wait = delay(strategy, base, multiplier, cap, jitter, k, lambda: draw, previous)
    assert 0 <= wait <= cap
    if jitter is Jitter.DECORRELATED:
        assert wait >= min(base, cap)
    elif jitter is not Jitter.FULL:
        assert wait >= min(base, cap) / 2


@given(st.sampled_from(BackoffStrategy), bases, multipliers, caps, st.sampled_from(Jitter), counts, draws)
def test_no_wait_is_longer_than_the_longest(strategy, base, multiplier, cap, jitter, k, draw):
    backoff = Backoff(strategy, base, multiplier, cap, jitter)
    previous = backoff.longest(k - 1) if k else None
    assert backoff.delay(k, lambda: draw, previous) <= backoff.longest(k) * (1 + 1e-12)


@given(st.sampled_from(BackoffStrategy), multipliers, caps, st.sampled_from(Jitter), counts, draws, bases)
def test_a_zero_base_never_waits(strategy, multiplier, cap, jitter, k, draw, previous):
    assert Backoff(strategy, 0, multiplier, cap, jitter).delay(k, lambda: draw, previous) == 0.0


def test_a_whole_number_as_multiplier_does_not_grow_without_end():
    assert delay("exponential", 1, 2, 60, "none", 10**6, lambda: 0.5, None) == 60


def test_names_become_members():
    backoff = Backoff("linear", jitter="equal")
    assert backoff.strategy is BackoffStrategy.LINEAR
    assert backoff.jitter is Jitter.EQUAL


def test_a_backoff_is_a_frozen_value():
    assert Backoff() == Backoff("exponential", 0.5, 2.0, 30.0, "full")
    assert hash(Backoff()) == hash(Backoff())
    with pytest.raises(AttributeError):
        Backoff().base = 1  # type: ignore[misc]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"strategy": "quadratic"}, r"strategy must be one of exponential, linear, fixed, got 'quadratic'"),
        ({"jitter": "some"}, r"jitter must be one of none, full, equal, .*spread, got 'some'"),
        ({"base": -1}, r"base must be .* 0 or more, got -1"),
        ({"base": math.nan}, r"base must be"),
        ({"base": math.inf}, r"base must be"),
        ({"cap": 0}, r"cap must be .* above 0, got 0"),
        ({"cap": math.inf}, r"cap must be a finite"),
        ({"multiplier": 0.5}, r"multiplier must be .* at least 1, got 0.5"),
        ({"multiplier": math.nan}, r"multiplier must be"),
    ],
)
def test_an_impossible_backoff_is_refused(arguments, message):
    with pytest.raises(PolicyError, match=rf"Backoff\.{message}"):
        Backoff(**arguments)
