import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.errors import PolicyError
from holdfast.machine.quantile import MovingQuantile


def of(*durations: float, size: int = 200) -> MovingQuantile:
    made = MovingQuantile(size)
    for duration in durations:
        made.record(duration)
    return made


def test_the_quantile_is_one_of_the_durations():
    tenths = of(*(n / 10 for n in range(1, 11)))
    assert [tenths.quantile(q) for q in (0, 0.1, 0.5, 0.9, 0.95, 1)] == [0.1, 0.1, 0.5, 0.9, 1.0, 1.0]


def test_rounding_does_not_shift_the_rank():
    hundredths = of(*range(1, 101))
    assert [hundredths.quantile(n / 100) for n in range(1, 101)] == list(range(1, 101))


def test_without_durations_there_is_no_quantile():
    assert of().quantile(0.5) is None
    assert not of().ready(1)


def test_it_is_ready_with_enough_samples():
    assert of(1, 2, 3).ready(3)
    assert not of(1, 2, 3).ready(4)


def test_only_the_last_durations_count():
    assert of(9, 9, 9, 1, 2, 3, size=3).quantile(1) == 3


def test_what_is_no_duration_is_ignored():
    assert len(of(math.nan, -1, math.inf)) == 0


@given(st.lists(st.floats(0, 1e6), min_size=1, max_size=80), st.integers(1, 20), st.floats(0, 1))
def test_at_least_the_share_lies_at_or_below_the_quantile_and_less_without_it(durations, size, q):
    made, last = of(*durations, size=size), sorted(durations[-size:])
    value = made.quantile(q)
    assert len(made) == len(last)
    assert value in last
    assert sum(each <= value for each in last) >= q * len(last) - 1e-8
    assert sum(each < value for each in last) < max(q * len(last), 1) + 1e-8


@pytest.mark.parametrize("q", [-0.1, 1.1, math.nan])
def test_a_quantile_lies_between_nothing_and_everything(q):
    with pytest.raises(ValueError, match="between 0 and 1"):
        of(1.0).quantile(q)


def test_a_window_holds_something():
    with pytest.raises(PolicyError, match="size must be at least 1, got 0"):
        MovingQuantile(0)
