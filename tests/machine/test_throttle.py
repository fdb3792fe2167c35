import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.errors import PolicyError
from holdfast.machine.throttle import Throttle, ThrottleLedger


def ledger(successes: int = 0, failures: int = 0, now: float = 0.0, **policy: float) -> ThrottleLedger:
    made = ThrottleLedger(Throttle(**policy))  # type: ignore[arg-type]
    for count in range(successes + failures):
        made.record(now, count < successes)
    return made


def test_nothing_is_shed_while_enough_calls_succeed():
    assert ledger(successes=90, failures=10).probability(0.0) == 0
    assert ledger(successes=100).probability(0.0) == 0


def test_the_probability_follows_the_calls_that_are_missing():
    assert ledger(successes=45, failures=55).probability(0.0) == pytest.approx(50 / 101)


def test_the_cap_lets_some_calls_through_so_that_recovery_is_seen():
    assert ledger(failures=1000).probability(0.0) == 0.9


def test_too_few_calls_prove_nothing():
    assert ledger(failures=9).probability(0.0) == 0
    assert ledger(failures=10).probability(0.0) > 0.8
    assert ledger(failures=10, min_executions=11).probability(0.0) == 0


def test_a_draw_below_the_probability_is_shed():
    made = ledger(successes=45, failures=55)
    assert made.shed(0.0, 0.49)
    assert not made.shed(0.0, 0.5)


def test_a_probability_of_zero_sheds_not_even_the_lowest_draw():
    assert not ledger(successes=10).shed(0.0, 0.0)


def test_old_failures_are_forgotten_a_window_later():
    made = ledger(failures=100, window=60)
    assert made.probability(59.9) == 0.9
    assert made.probability(60.0) == 0


def test_a_long_silence_forgets_everything():
    made = ledger(failures=100, window=60)
    assert made.counts(1e9) == (0, 0)
    made.record(1e9, success=True)
    assert made.counts(1e9) == (1, 1)


def test_a_dependency_that_recovers_is_no_longer_shed():
    made = ledger(failures=100, window=10)
    for tenth in range(200):
        made.record(tenth / 10, success=True)
    assert made.probability(20.0) == 0


@given(
    st.lists(st.tuples(st.sampled_from([0.0, 1 / 64, 0.25, 0.5, 1.0, 3.0, 12.0]), st.booleans()), max_size=80),
    st.sampled_from([0.0, 123.25, 1e6]),
)
def test_the_counts_are_those_of_the_slices_younger_than_the_window(events, start):
    made = ThrottleLedger(Throttle(window=10.0, min_executions=0))
    now, seen, origin = start, [], None
    for pause, success in events:
        now += pause
        origin = now if origin is None else origin
        made.record(now, success)
        seen.append((now, success))
        alive = [ok for at, ok in seen if math.floor(now - origin) - math.floor(at - origin) < 10]
        assert made.counts(now) == (len(alive), sum(alive))
        expected = min(0.9, max(0.0, len(alive) - sum(alive) / 0.9) / (len(alive) + 1))
        assert made.probability(now) == pytest.approx(expected)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"threshold": 0}, "threshold must be a success rate above 0 and at most 1, got 0"),
        ({"threshold": 1.5}, "threshold"),
        ({"window": 0}, "window must be a finite number of seconds above 0, got 0"),
        ({"window": math.inf}, "window"),
        ({"cap": 1}, "cap must be 0 or more and below 1, got 1"),
        ({"cap": -0.1}, "cap"),
        ({"min_executions": -1}, "min_executions must be 0 or more, got -1"),
    ],
)
def test_an_impossible_throttle_is_refused(arguments, message):
    with pytest.raises(PolicyError, match=rf"Throttle\.{message}"):
        Throttle(**arguments)
