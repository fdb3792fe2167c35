"""Retry at its edges: hints that ask for too much, refusals that are certain, and a budget that is asked directly."""

from __future__ import annotations

import pytest

from holdfast import (
    Breaker,
    Budget,
    BudgetExhausted,
    CircuitState,
    OutcomeKind,
    PolicyError,
    Retry,
    RetryScheduled,
    RetryStrategy,
    Timeout,
    Verdict,
    consecutive,
    http_classifier,
)
from tests.guard.colours import Slow

K = OutcomeKind
DOWN = OSError("down")


class Later(OSError):
    """An error that says when to come back."""

    def __init__(self, seconds: float) -> None:
        super().__init__("later")
        self.retry_after = seconds


class Response:
    def __init__(self, status: int, after: str) -> None:
        self.status_code = status
        self.headers = {"Retry-After": after}


# Hints.


def test_a_hint_longer_than_the_longest_one_stops_the_retrying(colour, guard_of, clock):
    fn = colour.fn([Later(61), "up"])
    outcome = colour.run(guard_of(Retry(attempts=3, longest_hint=60)), fn)
    assert (outcome.kind, outcome.stopped_by, outcome.attempts) == (K.TRANSIENT_FAILURE, "retry_after", 1)
    assert outcome.retry_after == 61  # the caller may know better
    assert (fn.calls, clock.slept) == (1, [])


def test_a_hint_exactly_as_long_as_the_longest_one_is_heeded(colour, guard_of, clock):
    assert colour.run(guard_of(Retry(attempts=3, longest_hint=60)), colour.fn([Later(60), "up"])).value == "up"
    assert clock.monotonic() == 1060


def test_a_hint_of_five_minutes_is_heeded_by_default_and_a_longer_one_is_not(colour, guard_of, clock):
    guard = guard_of(Retry(attempts=2))
    assert colour.run(guard, colour.fn([Later(300), "up"])).value == "up"
    assert colour.run(guard, colour.fn([Later(300.1), "up"])).stopped_by == "retry_after"


def test_a_long_retry_after_header_stops_the_retrying_and_the_response_stays_readable(colour, guard_of, clock):
    guard = guard_of(Retry(attempts=3), result_classifier=http_classifier)
    busy = Response(503, "3600")
    outcome = colour.run(guard, colour.fn([busy]))
    assert (outcome.stopped_by, outcome.retry_after) == ("retry_after", 3600)
    assert outcome.metadata["result"] is busy
    assert clock.slept == []


def test_a_long_hint_of_the_classifier_stops_the_retrying(colour, guard_of):
    guard = guard_of(Retry(attempts=3), classify=lambda _: Verdict(K.TRANSIENT_FAILURE, retry_after=1e9))
    assert colour.run(guard, colour.fn([DOWN])).stopped_by == "retry_after"


def test_a_longest_hint_of_nothing_stops_at_any_request_to_come_back_later(colour, guard_of, clock):
    guard = guard_of(Retry(attempts=3, longest_hint=0))
    assert colour.run(guard, colour.fn([Later(0.1), "up"])).stopped_by == "retry_after"
    assert colour.run(guard, colour.fn([Later(0), "up"])).value == "up"


def test_the_longest_hint_does_not_bound_our_own_backoff(colour, guard_of, clock):
    guard = guard_of(Retry(attempts=2, base=20, jitter="none", longest_hint=1))
    assert colour.run(guard, colour.fn([DOWN, "up"])).value == "up"
    assert clock.monotonic() == 1020


def test_a_long_hint_of_the_last_attempt_stops_nothing(colour, guard_of):
    outcome = colour.run(guard_of(Retry(attempts=1)), colour.fn([Later(1e6)]))
    assert (outcome.stopped_by, outcome.retry_after) == (None, 1e6)


def test_a_negative_longest_hint_is_refused():
    with pytest.raises(PolicyError, match=r"Retry\.longest_hint .* got -1; use 0"):
        Retry(longest_hint=-1)


# Refusals that are certain.


def test_a_circuit_that_opens_ends_the_retrying_without_a_wait(colour, guard_of, clock):
    fn = colour.fn([DOWN])
    guard = guard_of(Retry(attempts=5, base=10, jitter="none"), Breaker(consecutive(1), open_for=30))
    outcome = colour.run(guard, fn)
    assert (outcome.reason, outcome.attempts, outcome.retry_after) == ("circuit_open", 1, 30)
    assert outcome.error.__cause__ is DOWN
    assert (fn.calls, clock.slept, clock.monotonic()) == (1, [], 1000)


def test_a_hint_is_not_waited_for_either_if_the_circuit_will_still_be_open(colour, guard_of, clock):
    guard = guard_of(Retry(attempts=5), Breaker(consecutive(1), open_for=30))
    assert colour.run(guard, colour.fn([Later(29)])).reason == "circuit_open"
    assert clock.slept == []


def test_a_wait_that_ends_when_the_circuit_is_due_is_made_and_its_attempt_is_the_probe(colour, guard_of, clock):
    guard = guard_of(Retry(attempts=2, base=30, jitter="none"), Breaker(consecutive(1), open_for=30))
    outcome = colour.run(guard, colour.fn([DOWN, "up"]))
    assert (outcome.value, outcome.attempts) == ("up", 2)
    assert guard.circuit.state is CircuitState.CLOSED
    assert clock.monotonic() == 1030


def test_with_a_closed_circuit_the_backoff_is_waited(colour, guard_of, clock):
    guard = guard_of(Retry(attempts=2, base=10, jitter="none"), Breaker(consecutive(2), open_for=30))
    assert colour.run(guard, colour.fn([DOWN, "up"])).value == "up"
    assert clock.monotonic() == 1010


def test_the_retry_that_is_refused_at_once_is_told_without_a_wait(colour, guard_of, recorder):
    told = []
    guard = guard_of(
        Retry(attempts=5, base=10, jitter="none", on_retry=lambda number, _, wait: told.append((number, wait))),
        Breaker(consecutive(1), open_for=30),
    )
    guard.telemetry.register(recorder)
    colour.run(guard, colour.fn([DOWN]))
    assert [(event.attempt, event.wait) for event in recorder.of(RetryScheduled)] == told == [(0, 0)]


def test_a_wait_that_the_total_limit_forbids_is_a_timeout_even_if_the_circuit_would_refuse(colour, guard_of, clock):
    guard = guard_of(
        Retry(attempts=5, base=10, jitter="none"), Breaker(consecutive(1), open_for=30), Timeout(total=5)
    )  # fmt: skip
    outcome = colour.run(guard, colour.fn([Slow(clock, 1, DOWN)]))
    assert (outcome.kind, outcome.error.__cause__) == (K.TIMEOUT, DOWN)
    assert clock.monotonic() == 1001


# The budget.


def budget_of(*given):
    return RetryStrategy(policy=Retry(budget=Budget(*given))).budget


def test_a_budget_that_is_asked_directly_raises_when_it_is_exhausted():
    budget = budget_of(0.0, 1)
    budget.acquire("batch")
    with pytest.raises(BudgetExhausted) as caught:
        budget.acquire("batch")
    assert (caught.value.reason, caught.value.guard) == ("budget_exhausted", "batch")
    assert "1 retries among 0 calls" in str(caught.value)


def test_a_retry_that_ends_gives_its_share_of_the_budget_back():
    budget = budget_of(0.0, 1)
    for _ in range(3):
        budget.acquire()
        budget.end_retry()
    assert budget.figures().inflight == 0


def test_a_refused_request_takes_nothing_from_the_budget():
    budget = budget_of(0.0, 1)
    budget.acquire()
    with pytest.raises(BudgetExhausted):
        budget.acquire()
    assert budget.figures().inflight == 1


def test_a_guard_under_an_exhausted_budget_raises_the_callers_own_error(colour, guard_of):
    guard = guard_of(Retry(attempts=3, base=0, budget=Budget(0.0, 1)))
    [retry] = guard.plan.strategies
    retry.budget.acquire()
    fn = colour.fn([DOWN])
    outcome = colour.run(guard, fn)
    assert (outcome.error, outcome.stopped_by, fn.calls) == (DOWN, "budget", 1)
    with pytest.raises(OSError, match="down"):
        colour.call(guard, fn)
