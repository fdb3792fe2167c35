"""Deadline: an absolute stop time that only ever tightens."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast import Deadline
from holdfast.core.clock import SYSTEM_CLOCK
from holdfast.testing.clock import ManualClock

seconds = st.floats(-1e6, 1e6)


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


def test_a_deadline_counts_down_with_its_clock(clock: ManualClock) -> None:
    deadline = Deadline.after(5, clock)
    assert deadline.remaining() == 5
    clock.advance(3)
    assert deadline.remaining() == 2
    clock.advance(3)
    assert deadline.remaining() == -1


def test_a_negative_time_is_a_deadline_that_has_passed(clock: ManualClock) -> None:
    assert Deadline.after(-1, clock).expired()
    assert Deadline.after(-1, clock).remaining() == -1


def test_a_deadline_with_exactly_nothing_left_has_expired(clock: ManualClock) -> None:
    deadline = Deadline.after(5, clock)
    clock.advance(5)
    assert deadline.expired()


def test_never_has_infinitely_much_left(clock: ManualClock) -> None:
    never = Deadline.never(clock)
    assert never.remaining() == math.inf
    assert not never.expired()
    assert never.clamp(None) == math.inf
    assert never.clamp(3) == 3


def test_clamp_takes_the_shorter_of_local_and_remaining(clock: ManualClock) -> None:
    deadline = Deadline.after(5, clock)
    assert deadline.clamp(2) == 2
    assert deadline.clamp(9) == 5
    assert deadline.clamp(None) == 5


def test_clamp_never_goes_below_zero(clock: ManualClock) -> None:
    passed = Deadline.after(-5, clock)
    assert passed.clamp(2) == 0
    assert passed.clamp(None) == 0
    assert Deadline.after(5, clock).clamp(-2) == 0


def test_an_attempts_deadline_is_never_later_than_its_parent(clock: ManualClock) -> None:
    deadline = Deadline.after(5, clock)
    assert deadline.derive_attempt(2).remaining() == 2
    assert deadline.derive_attempt(9).remaining() == 5
    assert deadline.derive_attempt(9) is deadline


def test_a_deadline_is_frozen(clock: ManualClock) -> None:
    with pytest.raises(AttributeError, match="frozen"):
        Deadline.after(5, clock).at = 7.0


def test_deadlines_at_the_same_moment_of_the_same_clock_are_equal(clock: ManualClock) -> None:
    assert Deadline.after(5, clock) == Deadline.after(5, clock)
    assert hash(Deadline.after(5, clock)) == hash(Deadline.after(5, clock))
    assert Deadline.after(5, clock) != Deadline.after(6, clock)
    assert Deadline.after(5, clock) != Deadline(clock.monotonic() + 5, SYSTEM_CLOCK)


def test_the_machines_clock_is_the_default() -> None:
    assert Deadline.after(60).clock is SYSTEM_CLOCK
    assert 59 < Deadline.after(60).remaining() <= 60
    assert Deadline.never().remaining() == math.inf


def test_a_repr_tells_what_is_left(clock: ManualClock) -> None:
    assert repr(Deadline.after(5, clock)) == "<Deadline in 5.000 s>"
    assert repr(Deadline.never()) == "Deadline.never()"


@given(seconds, seconds)
def test_deriving_never_extends(parent: float, given_: float) -> None:
    clock = ManualClock()
    deadline = Deadline.after(parent, clock)
    assert deadline.derive_attempt(given_).at == min(deadline.at, clock.monotonic() + given_)
    assert deadline.tighten(given_).at == min(deadline.at, given_)
    assert deadline.tighten(None) is deadline


@given(seconds, st.none() | seconds)
def test_a_clamped_time_fits_into_what_is_left(total: float, local: float | None) -> None:
    deadline = Deadline.after(total, ManualClock())
    clamped = deadline.clamp(local)
    assert 0 <= clamped <= max(0.0, deadline.remaining())
    assert local is None or clamped <= max(0.0, local)
