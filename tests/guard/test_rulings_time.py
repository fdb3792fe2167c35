"""Time limits at their edges: which one is named, what becomes of results nobody gets, and threads left behind."""

from __future__ import annotations

import threading

import pytest

from holdfast import (
    CallCompleted,
    Hub,
    OutcomeKind,
    ResiliencePipelineBuilder,
    Retry,
    TimedOut,
    Timeout,
    deadline,
)
from holdfast.testing.clock import ManualClock
from tests.guard.colours import Slow, SyncColour

K = OutcomeKind
DOWN = OSError("down")


class Answer:
    """A result that holds something, like a response and its connection."""

    def __init__(self) -> None:
        self.closed = 0

    def close(self) -> None:
        self.closed += 1


# The limit that is named.


@pytest.mark.parametrize(
    ("limits", "kinds"),
    [
        (Timeout(total=5), [("total", 5)]),
        (Timeout(attempt=2), [("attempt", 2)]),
        (Timeout(total=5, attempt=2), [("attempt", 2)]),
        (Timeout(total=2, attempt=2), [("total", 2)]),
    ],
    ids=["total", "attempt", "the tighter one", "equal ones"],
)
def test_an_event_names_the_limit_that_ended_the_call(colour, guard_of, clock, recorder, limits, kinds):
    guard = guard_of(limits)
    guard.telemetry.register(recorder)
    assert colour.run(guard, colour.fn([Slow(clock, 60, "slow")])).kind is K.TIMEOUT
    assert [(event.kind, event.limit) for event in recorder.of(TimedOut)] == kinds


@pytest.mark.parametrize(
    "policies", [(), (Timeout(total=7),), (Timeout(total=7, attempt=6),)], ids=["alone", "total", "both"]
)
def test_a_callers_deadline_that_is_tighter_is_the_one_that_is_named(colour, guard_of, clock, recorder, policies):
    guard = guard_of(*policies)
    guard.telemetry.register(recorder)
    with deadline(5, clock=clock):
        outcome = colour.run(guard, colour.fn([Slow(clock, 60, "slow")]))
    assert outcome.kind is K.TIMEOUT
    assert [(event.kind, event.limit) for event in recorder.of(TimedOut)] == [("deadline", None)]


def test_each_attempt_over_its_time_is_an_event_of_its_own(colour, guard_of, clock, recorder):
    guard = guard_of(Timeout(total=9, attempt=2), Retry(attempts=3, base=0))
    guard.telemetry.register(recorder)
    colour.run(guard, colour.fn([Slow(clock, 3, "slow")]))
    assert [event.kind for event in recorder.of(TimedOut)] == ["attempt"] * 3


def test_a_total_limit_that_forbids_another_attempt_is_named_too(colour, guard_of, clock, recorder):
    guard = guard_of(Timeout(total=5), Retry(attempts=3, base=9, jitter="none"))
    guard.telemetry.register(recorder)
    assert colour.run(guard, colour.fn([DOWN])).kind is K.TIMEOUT
    assert [(event.kind, event.limit) for event in recorder.of(TimedOut)] == [("total", 5)]


def test_a_limit_declared_after_the_retry_of_a_pipeline_is_the_attempts(clock, recorder):
    hub = Hub(clock=clock)
    hub.register(recorder)
    pipeline = ResiliencePipelineBuilder("p", clock=clock, telemetry=hub).timeout(10).retry(2, 0).timeout(2).build()
    pipeline.execute_sync(lambda: clock.sleep(3))
    assert [event.kind for event in recorder.of(TimedOut)] == ["attempt", "attempt"]


# Results that nobody gets.


def judged(_: object) -> OutcomeKind:
    return K.TRANSIENT_FAILURE


def test_a_result_that_the_total_limit_discards_is_closed(colour, guard_of, clock):
    answer = Answer()
    guard = guard_of(Timeout(total=5), Retry(attempts=3, base=9, jitter="none"), result_classifier=judged)
    outcome = colour.run(guard, colour.fn(lambda: answer))
    assert (outcome.kind, answer.closed) == (K.TIMEOUT, 1)
    assert "result" not in outcome.metadata


def test_a_result_that_the_callers_deadline_leaves_to_him_stays_open(colour, guard_of, clock):
    answer = Answer()
    guard = guard_of(Retry(attempts=3, base=9, jitter="none"), result_classifier=judged)
    with deadline(5, clock=clock):
        outcome = colour.run(guard, colour.fn(lambda: answer))
    assert (outcome.kind, outcome.stopped_by) == (K.TRANSIENT_FAILURE, "deadline")
    assert outcome.metadata["result"] is answer
    assert answer.closed == 0


def test_a_late_result_that_the_caller_can_still_read_stays_open(guard_of, clock):
    answer = Answer()

    def late() -> Answer:
        clock.sleep(6)
        return answer

    outcome = guard_of(Timeout(total=5)).run(late)
    assert (outcome.late, outcome.metadata["result"], answer.closed) == (True, answer, 0)


# Threads left behind. Their time moves only when the test says so, however slow the machine is.


@pytest.fixture
def still() -> ManualClock:
    return ManualClock(auto=False)


class Stuck:
    """A function that hangs in its thread until it is let go."""

    def __init__(self, *results: object) -> None:
        self.threads: list[threading.Thread] = []
        self._results = list(results)
        self._release = threading.Event()

    def __call__(self) -> object:
        result = self._results[min(len(self.threads), len(self._results) - 1)]
        self.threads.append(threading.current_thread())
        assert self._release.wait(10)
        if isinstance(result, Exception):
            raise result
        return result

    def let_go(self) -> None:
        self._release.set()
        for thread in self.threads:
            thread.join(10)


def abandoned(guard, clock, stuck, seconds, times=1):
    """The outcome of a call that the clock overtakes as often as it hangs."""
    before = len(stuck.threads)

    def overtake() -> None:
        for number in range(1, times + 1):
            SyncColour().until(lambda number=number: len(stuck.threads) == before + number)
            clock.advance(seconds)

    mover = threading.Thread(target=overtake)
    mover.start()
    outcome = guard.run(stuck)
    mover.join(10)
    return outcome


@pytest.mark.parametrize("limits", [{"total": 5}, {"attempt": 5}], ids=["total", "attempt"])
def test_stray_threads_are_counted_until_they_end(guard_of, still, limits):
    guard, stuck = guard_of(Timeout(**limits, abandon=True), clock=still), Stuck("late")
    [limit] = guard.plan.strategies
    for strays in (1, 2, 3):
        abandoned(guard, still, stuck, 5)
        assert limit.strays == strays
    stuck.let_go()
    assert limit.strays == 0


def test_a_call_that_ends_in_time_leaves_no_stray(guard_of):
    guard = guard_of(Timeout(total=5, abandon=True))
    assert guard.run(lambda: "up").value == "up"
    assert guard.run(lambda: 1 / 0).kind is K.TRANSIENT_FAILURE
    assert guard.plan.strategies[0].strays == 0


@pytest.mark.parametrize("late", ["late", OSError("late")], ids=["result", "error"])
def test_an_abandoned_call_made_one_attempt_and_its_late_end_does_not_touch_the_trail(guard_of, still, recorder, late):
    guard, stuck = guard_of(Timeout(total=5, abandon=True), clock=still), Stuck(late)
    guard.telemetry.register(recorder)
    outcome = abandoned(guard, still, stuck, 5)
    [attempt] = outcome.metadata["trail"]
    assert (outcome.kind, outcome.attempts, outcome.metadata["abandoned"]) == (K.TIMEOUT, 1, True)
    assert (attempt.kind, attempt.number, attempt.service, attempt.error) == (K.TIMEOUT, 0, 5, None)
    told = recorder.names()
    stuck.let_go()
    assert outcome.metadata["trail"] == [attempt]
    assert (attempt.kind, attempt.service, attempt.error) == (K.TIMEOUT, 5, None)
    assert recorder.names() == told  # nothing is heard of a call that has completed
    assert [event.attempts for event in recorder.of(CallCompleted)] == [1]


def test_every_abandoned_attempt_is_in_the_trail_and_each_leaves_its_stray(guard_of, still):
    guard = guard_of(Timeout(attempt=5, abandon=True), Retry(attempts=3, base=0), clock=still)
    stuck = Stuck("late")
    outcome = abandoned(guard, still, stuck, 5, times=3)
    limit = guard.plan.strategies[-1]
    trail = [(attempt.number, attempt.kind) for attempt in outcome.metadata["trail"]]
    assert (outcome.attempts, trail, limit.strays) == (3, [(0, K.TIMEOUT), (1, K.TIMEOUT), (2, K.TIMEOUT)], 3)
    stuck.let_go()
    assert limit.strays == 0
    assert [attempt.kind for attempt in outcome.metadata["trail"]] == [K.TIMEOUT] * 3
