"""A rate that many share: never more than it says, and never less than it could."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.errors import PolicyError
from holdfast.machine.rate import Rate, grant

RATES = st.builds(Rate, st.integers(1, 50), st.sampled_from([0.5, 1.0, 7.0]), st.integers(1, 20))
ASKED = st.lists(st.tuples(st.integers(0, 2_000_000), st.integers(1, 30)), min_size=1, max_size=40)


@given(RATES, ASKED)
def test_in_no_span_are_there_more_calls_than_the_rate_and_one_burst(rate: Rate, asked: list[tuple[int, int]]) -> None:
    until, now, made = None, 1_000_000, list[tuple[int, int]]()
    for wait, wanted in asked:
        now += wait
        found = grant(rate, until, now, wanted)
        if found.calls:
            until = found.until
            made.append((now, found.calls))
        assert found.calls <= wanted
    for first in range(len(made)):
        total = 0
        for at, calls in made[first:]:
            total += calls
            assert total <= rate.burst + (at - made[first][0]) / rate.apart


@given(RATES, ASKED)
def test_who_comes_when_he_was_told_gets_one_and_not_before(rate: Rate, asked: list[tuple[int, int]]) -> None:
    until, now = None, 1_000_000
    for wait, wanted in asked:
        now += wait
        found = grant(rate, until, now, wanted)
        if not found.calls:
            assert found.until > now
            assert grant(rate, until, found.until - 1, 1).calls == 0
            now = found.until
            found = grant(rate, until, now, 1)
            assert found.calls == 1
        until = found.until


def test_after_a_pause_a_burst_is_granted_and_then_one_after_the_other() -> None:
    rate = Rate(10, burst=3)
    first = grant(rate, None, 0, 100)
    until, times = first.until, list[int]()
    for now in range(1000, 1_000_001, 1000):  # by somebody who wants one all the time
        found = grant(rate, until, now, 1)
        if found.calls:
            until = found.until
            times.append(now)
    assert (first.calls, times[0]) == (3, 100_000)
    assert {later - sooner for sooner, later in pairwise(times)} == {100_000}


@pytest.mark.parametrize(
    "given",
    [{"calls": 0}, {"calls": -1}, {"calls": True}, {"calls": 2e6}, {"calls": 1, "per": 0}, {"calls": 1, "burst": 0}],
)
def test_what_is_no_rate_is_refused(given: dict[str, Any]) -> None:
    with pytest.raises(PolicyError, match=r"Rate\."):
        Rate(**given)
