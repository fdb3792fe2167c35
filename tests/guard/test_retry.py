"""Retry: when another attempt is made, after how long, and what stops it."""

from __future__ import annotations

from typing import Any

import pytest

from holdfast import (
    IDEMPOTENT,
    AttemptCompleted,
    Budget,
    Fallback,
    Guard,
    OutcomeKind,
    PolicyError,
    ResilienceContext,
    Retry,
    RetryDeferred,
    RetrySafety,
    RetryScheduled,
    Timeout,
    Verdict,
    deadline,
    use_context,
)
from tests.guard.colours import Interrupted, Slow, SyncColour

K = OutcomeKind
DOWN = OSError("down")


class Hinted(OSError):
    def __init__(self, retry_after: Any) -> None:
        super().__init__("come back later")
        self.retry_after = retry_after


class Answer:
    """A result that must be closed when nobody will read it."""

    def __init__(self, ok: bool, headers: dict[str, str] | None = None) -> None:
        self.ok = ok
        self.headers = headers or {}
        self.closed = 0

    def close(self) -> None:
        self.closed += 1


def judge(answer: Answer) -> K:
    return K.SUCCESS if answer.ok else K.TRANSIENT_FAILURE


def test_a_transient_failure_is_retried_until_it_succeeds(colour, guard_of):
    fn = colour.fn([DOWN, DOWN, "up"])
    outcome = colour.run(guard_of(Retry(attempts=3, base=0)), fn)
    assert (outcome.kind, outcome.value, outcome.attempts) == (K.SUCCESS, "up", 3)
    assert fn.calls == 3


def test_a_timeout_raised_by_the_function_is_retried(colour, guard_of):
    fn = colour.fn([TimeoutError("slow"), "up"])
    assert colour.run(guard_of(Retry(attempts=2, base=0)), fn).value == "up"


def test_three_attempts_are_three_calls(colour, guard_of):
    fn = colour.fn([DOWN])
    outcome = colour.run(guard_of(Retry(attempts=3, base=0)), fn)
    assert (outcome.kind, outcome.attempts, fn.calls) == (K.TRANSIENT_FAILURE, 3, 3)
    assert outcome.error is DOWN
    assert outcome.stopped_by is None


def test_one_attempt_is_no_retry(colour, guard_of):
    fn = colour.fn([DOWN, "up"])
    assert colour.run(guard_of(Retry(attempts=1)), fn).kind is K.TRANSIENT_FAILURE
    assert fn.calls == 1


def test_unlimited_attempts_go_on(colour, guard_of):
    fn = colour.fn([DOWN] * 99 + ["up"])
    outcome = colour.run(guard_of(Retry(attempts=None, base=0)), fn)
    assert (outcome.value, outcome.attempts) == ("up", 100)


def test_a_terminal_failure_is_not_retried(colour, guard_of):
    fn = colour.fn([TypeError("bug"), "up"])
    outcome = colour.run(guard_of(Retry(attempts=3, base=0)), fn)
    assert (outcome.kind, fn.calls) == (K.TERMINAL_FAILURE, 1)


def test_a_partial_result_is_not_retried(colour, guard_of):
    fn = colour.fn([[1, 2]])
    outcome = colour.run(guard_of(Retry(attempts=3, base=0), result_classifier=lambda _: K.PARTIAL), fn)
    assert (outcome.kind, outcome.value, fn.calls) == (K.PARTIAL, [1, 2], 1)


def test_a_terminal_failure_after_a_transient_one_ends_the_retrying(colour, guard_of):
    fn = colour.fn([DOWN, TypeError("bug"), "up"])
    outcome = colour.run(guard_of(Retry(attempts=5, base=0)), fn)
    assert (outcome.kind, outcome.attempts, fn.calls) == (K.TERMINAL_FAILURE, 2, 2)


def test_an_interruption_is_not_retried(colour, guard_of):
    fn = colour.fn([DOWN, Interrupted(), "up"])
    with pytest.raises(Interrupted):
        colour.run(guard_of(Retry(attempts=5, base=0)), fn)
    assert fn.calls == 2


@pytest.mark.parametrize(
    ("policy", "waits"),
    [
        (Retry(attempts=5, base=1, multiplier=3, cap=100, jitter="none"), [1, 3, 9, 27]),
        (Retry(attempts=5, base=1, backoff="linear", jitter="none"), [1, 2, 3, 4]),
        (Retry(attempts=5, base=1, backoff="fixed", jitter="none"), [1, 1, 1, 1]),
        (Retry(attempts=5, base=1, cap=5, jitter="none"), [1, 2, 4, 5]),
        (Retry(attempts=5, base=1, jitter="full"), [0.5, 1, 2, 4]),
        (Retry(attempts=5, base=1, jitter="equal"), [0.75, 1.5, 3, 6]),
        (Retry(attempts=5, base=1, jitter="proportional"), [1, 2, 4, 8]),
        (Retry(attempts=5, base=1, jitter="decorrelated"), [2, 3.5, 5.75, 9.125]),
    ],
    ids=lambda value: f"{value.backoff}-{value.jitter}-{value.cap:g}" if isinstance(value, Retry) else "",
)
def test_the_waits_between_attempts_follow_the_schedule(colour, guard_of, clock, policy, waits):
    colour.run(guard_of(policy), colour.fn([DOWN]))
    assert clock.slept == waits


def test_jitter_never_takes_a_wait_above_the_cap(colour, guard_of, clock):
    policy = Retry(attempts=4, base=10, cap=10, jitter="proportional")
    colour.run(guard_of(policy, rng=lambda: 0.999), colour.fn([DOWN]))
    assert clock.slept == [10, 10, 10]


def test_the_thousandth_retry_does_not_overflow(colour, guard_of, clock):
    policy = Retry(attempts=1200, base=0.1, cap=0.1, multiplier=10, jitter="none")
    assert colour.run(guard_of(policy), colour.fn([DOWN])).attempts == 1200
    assert set(clock.slept) == {0.1}


def test_retry_waits_half_a_second_with_full_jitter_by_default(colour, guard_of, clock):
    outcome = colour.run(guard_of(Retry()), colour.fn([DOWN]))
    assert outcome.attempts == 3
    assert clock.slept == [0.25, 0.5]


def test_a_zero_delay_uses_no_timer(colour, guard_of, clock):
    colour.run(guard_of(Retry(attempts=3, base=0)), colour.fn([DOWN]))
    assert clock.slept == []


def test_a_hint_of_the_error_replaces_the_delay(colour, guard_of, clock):
    outcome = colour.run(guard_of(Retry(attempts=2, base=1, cap=2, jitter="none")), colour.fn([Hinted(7.5), "up"]))
    assert outcome.value == "up"
    assert clock.slept == [7.5]


@pytest.mark.parametrize("hint", [None, -1, float("nan"), "soon"])
def test_without_a_usable_hint_the_delay_is_computed(colour, guard_of, clock, hint):
    colour.run(guard_of(Retry(attempts=2, base=1, jitter="none")), colour.fn([Hinted(hint), "up"]))
    assert clock.slept == [1]


def test_a_hint_of_zero_means_at_once(colour, guard_of, clock):
    colour.run(guard_of(Retry(attempts=2, base=1, jitter="none")), colour.fn([Hinted(0), "up"]))
    assert clock.slept == []


def test_a_hint_of_the_classifier_replaces_the_delay(colour, guard_of, clock):
    guard = guard_of(Retry(attempts=2, base=1), classify=lambda _: Verdict(K.TRANSIENT_FAILURE, retry_after=4))
    colour.run(guard, colour.fn([DOWN, "up"]))
    assert clock.slept == [4]


def test_a_retry_after_header_of_a_result_replaces_the_delay(colour, guard_of, clock):
    steps = [Answer(False, {"Retry-After": "11"}), Answer(True)]
    assert colour.run(guard_of(Retry(attempts=2), result_classifier=judge), colour.fn(steps)).value is steps[1]
    assert clock.slept == [11]


def test_a_delay_that_does_not_fit_fails_at_once_without_sleeping(colour, guard_of, clock):
    fn = colour.fn([DOWN])
    with deadline(3, clock=clock):
        outcome = colour.run(guard_of(Retry(attempts=3, base=4, jitter="none")), fn)
    assert (outcome.kind, outcome.stopped_by, fn.calls) == (K.TRANSIENT_FAILURE, "deadline", 1)
    assert outcome.error is DOWN
    assert clock.monotonic() == 1000


def test_a_delay_exactly_as_long_as_the_rest_does_not_fit(colour, guard_of, clock):
    with deadline(4, clock=clock):
        outcome = colour.run(guard_of(Retry(attempts=3, base=4, jitter="none")), colour.fn([DOWN]))
    assert (outcome.stopped_by, outcome.attempts) == ("deadline", 1)


def test_a_hint_longer_than_the_rest_of_the_time_ends_the_retrying(colour, guard_of, clock):
    with deadline(4, clock=clock):
        outcome = colour.run(guard_of(Retry(attempts=3, base=0)), colour.fn([Hinted(60), "up"]))
    assert (outcome.stopped_by, outcome.attempts) == ("deadline", 1)


def test_intermediate_results_are_closed_and_the_returned_one_is_not(colour, guard_of):
    steps = [Answer(False), Answer(False), Answer(True)]
    outcome = colour.run(guard_of(Retry(attempts=3, base=0), result_classifier=judge), colour.fn(steps))
    assert outcome.value is steps[2]
    assert [answer.closed for answer in steps] == [1, 1, 0]


def test_the_last_failed_result_is_handed_over_open(colour, guard_of):
    steps = [Answer(False), Answer(False)]
    outcome = colour.run(guard_of(Retry(attempts=2, base=0), result_classifier=judge), colour.fn(steps))
    assert outcome.kind is K.TRANSIENT_FAILURE
    assert outcome.metadata["result"] is steps[1]
    assert [answer.closed for answer in steps] == [1, 0]


def test_a_result_that_says_it_timed_out_is_closed_before_the_next_attempt(colour, guard_of):
    steps = [Answer(False), Answer(True)]
    guard = guard_of(Retry(attempts=2, base=0), result_classifier=lambda a: K.SUCCESS if a.ok else K.TIMEOUT)
    assert colour.run(guard, colour.fn(steps)).value is steps[1]
    assert [answer.closed for answer in steps] == [1, 0]


def test_a_late_result_is_closed_before_the_next_attempt(guard_of, clock):
    steps = [Answer(True), Answer(True)]
    fn = SyncColour().fn([Slow(clock, 6, steps[0]), steps[1]])
    assert guard_of(Retry(attempts=2, base=0), Timeout(attempt=5)).run(fn).value is steps[1]
    assert [answer.closed for answer in steps] == [1, 0]


async def test_an_async_close_is_awaited(clock, guard_of):
    class AsyncAnswer(Answer):
        async def aclose(self) -> None:
            self.closed += 1

        def close(self) -> None:
            pytest.fail("the async form has precedence in an async call")

    steps = [AsyncAnswer(False), AsyncAnswer(True)]
    answers = iter(steps)

    async def fn() -> Answer:
        return next(answers)

    await guard_of(Retry(attempts=2, base=0), result_classifier=judge).arun(fn)
    assert [answer.closed for answer in steps] == [1, 0]


def test_a_result_that_cannot_be_closed_does_not_fail_the_call(colour, guard_of):
    class Stubborn(Answer):
        def close(self) -> None:
            raise OSError("already gone")

    steps = [Stubborn(False), Answer(True)]
    outcome = colour.run(guard_of(Retry(attempts=2, base=0), result_classifier=judge), colour.fn(steps))
    assert outcome.value is steps[1]


def test_on_retry_gets_the_failed_attempt_its_outcome_and_the_wait(colour, guard_of):
    seen = []
    policy = Retry(attempts=3, base=1, jitter="none", on_retry=lambda *told: seen.append(told))
    colour.run(guard_of(policy), colour.fn([DOWN, TimeoutError("slow"), "up"]))
    assert [(number, outcome.kind, wait) for number, outcome, wait in seen] == [
        (0, K.TRANSIENT_FAILURE, 1),
        (1, K.TIMEOUT, 2),
    ]


def test_on_retry_is_not_told_of_the_last_failure(colour, guard_of):
    seen = []
    policy = Retry(attempts=2, base=0, on_retry=lambda *told: seen.append(told))
    colour.run(guard_of(policy), colour.fn([DOWN]))
    assert len(seen) == 1


def test_an_on_retry_that_raises_never_reaches_the_call(colour, guard_of):
    def broken(*told: object) -> None:
        raise ValueError("listener bug")

    assert colour.run(guard_of(Retry(attempts=2, base=0, on_retry=broken)), colour.fn([DOWN, "up"])).value == "up"


def not_idempotent() -> Any:
    ctx = ResilienceContext("request")
    ctx.set(IDEMPOTENT, False)
    return use_context(ctx)


def test_a_call_that_is_not_idempotent_is_made_once(colour, guard_of):
    fn = colour.fn([DOWN, "up"])
    with not_idempotent():
        outcome = colour.run(guard_of(Retry(attempts=3, base=0)), fn)
    assert (outcome.kind, outcome.stopped_by, fn.calls) == (K.TRANSIENT_FAILURE, "not_idempotent", 1)
    assert outcome.error is DOWN


def test_a_call_that_is_not_idempotent_is_retried_if_it_was_never_sent(colour, guard_of):
    fn = colour.fn([ConnectionRefusedError("no connection"), "up"])
    with not_idempotent():
        assert colour.run(guard_of(Retry(attempts=3, base=0)), fn).value == "up"


def test_safety_always_lifts_the_rule(colour, guard_of):
    with not_idempotent():
        outcome = colour.run(guard_of(Retry(attempts=3, base=0, safety="always")), colour.fn([DOWN, "up"]))
    assert outcome.value == "up"


def test_safety_if_not_sent_retries_only_what_never_left(colour, guard_of):
    guard = guard_of(Retry(attempts=3, base=0, safety=RetrySafety.IF_NOT_SENT))
    assert colour.run(guard, colour.fn([ConnectionRefusedError("no"), "up"])).value == "up"
    assert colour.run(guard, colour.fn([DOWN, "up"])).stopped_by == "not_idempotent"


def test_safety_never_makes_one_attempt(colour, guard_of):
    fn = colour.fn([ConnectionRefusedError("no"), "up"])
    assert colour.run(guard_of(Retry(attempts=3, base=0, safety="never")), fn).stopped_by == "not_idempotent"
    assert fn.calls == 1


def test_two_retry_layers_in_one_guard_are_a_build_error(guard_of):
    with pytest.raises(PolicyError, match="two Retry policies"):
        guard_of(Retry(), Retry(attempts=2))


def nested(colour, outer, inner, fn):
    def body():
        value = yield colour.inner_call(inner, fn)
        return value

    return colour.run(outer, colour.fn(body))


def test_a_nested_retry_makes_one_attempt_and_leaves_the_rest_to_the_outer_one(colour, guard_of):
    fn = colour.fn([DOWN])
    inner = guard_of(Retry(attempts=4, base=0), name="inner")
    outcome = nested(colour, guard_of(Retry(attempts=3, base=0), name="outer"), inner, fn)
    assert (outcome.attempts, fn.calls) == (3, 3)


def test_a_nested_retry_tells_to_whom_it_defers(colour, guard_of, recorder):
    inner = guard_of(Retry(attempts=4, base=0), name="inner")
    inner.telemetry.register(recorder)
    nested(colour, guard_of(Retry(attempts=2, base=0), name="outer"), inner, colour.fn([DOWN]))
    assert [(event.operation_key, event.to) for event in recorder.of(RetryDeferred)] == [("inner", "outer")] * 2


def test_a_nested_retry_of_another_domain_retries_by_itself(colour, guard_of):
    fn = colour.fn([DOWN])
    inner = guard_of(Retry(attempts=4, base=0, domain="disk"), name="inner")
    outcome = nested(colour, guard_of(Retry(attempts=3, base=0), name="outer"), inner, fn)
    assert (outcome.attempts, fn.calls) == (3, 12)


def test_a_retry_two_guards_further_down_defers_as_well(colour, guard_of):
    fn = colour.fn([DOWN])
    inner, middle = guard_of(Retry(attempts=4, base=0), name="inner"), guard_of(name="middle")

    def body():
        value = yield colour.inner_call(inner, fn)
        return value

    nested(colour, guard_of(Retry(attempts=3, base=0), name="outer"), middle, colour.fn(body))
    assert fn.calls == 3


def test_a_guard_beside_a_retry_retries_by_itself(colour, guard_of):
    fn = colour.fn([DOWN])
    inner = guard_of(Retry(attempts=4, base=0), name="inner")
    nested(colour, guard_of(name="outer"), inner, fn)
    assert fn.calls == 4


def test_a_fallback_of_the_outer_guard_is_outside_of_its_retry(colour, guard_of):
    fn = colour.fn([DOWN])
    inner = guard_of(Retry(attempts=4, base=0), name="inner")

    def answer():
        return colour.inner(inner, fn)

    outer = guard_of(Retry(attempts=2, base=0), Fallback(answer), name="outer")
    assert colour.run(outer, colour.fn([DOWN])).value.attempts == 4


def test_the_health_gate_returns_the_previous_outcome(colour, guard_of):
    fn = colour.fn([DOWN, "up"])
    outcome = colour.run(guard_of(Retry(attempts=3, base=0, health=lambda: False)), fn)
    assert (outcome.kind, outcome.stopped_by, fn.calls) == (K.TRANSIENT_FAILURE, "health_gate", 1)
    assert outcome.error is DOWN


def test_the_health_gate_is_not_asked_before_the_first_attempt(colour, guard_of):
    asked = []
    guard = guard_of(Retry(attempts=3, base=0, health=lambda: asked.append(1) or True))
    assert colour.run(guard, colour.fn(["up"])).value == "up"
    assert asked == []
    assert colour.run(guard, colour.fn([DOWN, "up"])).value == "up"
    assert asked == [1]


def test_a_health_gate_that_raises_does_not_stop_the_retrying(colour, guard_of):
    def broken() -> bool:
        raise ValueError("no idea")

    assert colour.run(guard_of(Retry(attempts=2, base=0, health=broken)), colour.fn([DOWN, "up"])).value == "up"


def test_an_exhausted_budget_ends_with_the_last_outcome(colour, guard_of):
    fn = colour.fn([DOWN, "up"])
    outcome = colour.run(guard_of(Retry(attempts=3, base=0, budget=Budget(0.0, 0))), fn)
    assert (outcome.kind, outcome.stopped_by) == (K.SUCCESS, None)  # nothing in flight: one retry is always allowed


def test_retries_in_flight_exhaust_the_budget_for_others(colour, guard_of):
    guard = guard_of(Retry(attempts=2, base=0, budget=Budget(max_rate=0.4, min_concurrency=1)))
    second = colour.fn([DOWN, "up"])

    def while_retrying():
        outcome = yield colour.inner(guard, second)
        return outcome

    # One retry in flight among two executions is more than 0.4 of them.
    inner_guard_call = colour.run(guard, colour.fn([DOWN, while_retrying]))
    inner = inner_guard_call.value
    assert second.calls == 1
    assert inner.stopped_by in ("nested", "budget")


def test_a_budget_is_whole_again_after_every_call(colour, guard_of):
    guard = guard_of(Retry(attempts=3, base=0, budget=0.2))
    fn = colour.fn([DOWN, Interrupted()])
    for _ in range(5):
        fn.calls = 0
        with pytest.raises(Interrupted):
            colour.run(guard, fn)
    for _ in range(5):
        colour.run(guard, colour.fn([DOWN, "up"]))
    [retry] = [strategy for strategy in guard.plan.strategies if strategy.kind == "retry"]
    figures = retry.budget.figures()
    assert (figures.executions, figures.inflight) == (0, 0)


def test_raising_mode_raises_the_original_exception_with_the_attempts_attached(colour, guard_of):
    error = OSError("down")
    with pytest.raises(OSError, match="down") as caught:
        colour.call(guard_of(Retry(attempts=3, base=0)), colour.fn([error]))
    assert caught.value is error
    [note] = caught.value.__notes__
    assert "holdfast" in note
    assert "attempt" in note
    assert "3" in note


def test_the_outcome_lists_every_attempt_with_wait_and_service_time(colour, guard_of, clock):
    guard = guard_of(Retry(attempts=3, base=1, jitter="none"))
    outcome = colour.run(
        guard, colour.fn([Slow(clock, 4, DOWN), Slow(clock, 5, TimeoutError("slow")), TypeError("bug")])
    )
    trail = outcome.metadata["trail"]
    assert [attempt.number for attempt in trail] == [0, 1, 2]
    assert [attempt.kind for attempt in trail] == [K.TRANSIENT_FAILURE, K.TIMEOUT, K.TERMINAL_FAILURE]
    assert [attempt.service for attempt in trail] == [4, 5, 0]
    assert [attempt.delay for attempt in trail] == [0, 1, 2]


def test_every_retry_and_every_attempt_is_an_event(colour, guard_of, recorder):
    guard = guard_of(Retry(attempts=3, base=1, jitter="none"))
    guard.telemetry.register(recorder)
    colour.run(guard, colour.fn([DOWN, DOWN, "up"]))
    assert [(event.attempt, event.wait) for event in recorder.of(RetryScheduled)] == [(0, 1), (1, 2)]
    assert [(event.number, event.outcome) for event in recorder.of(AttemptCompleted)] == [
        (0, K.TRANSIENT_FAILURE),
        (1, K.TRANSIENT_FAILURE),
        (2, K.SUCCESS),
    ]


def test_a_running_call_keeps_the_policy_it_started_with(colour, guard_of):
    guard: Guard = guard_of(Retry(attempts=3, base=0))
    fn = colour.fn([lambda: guard.replace(Retry(attempts=1)) or fail(), DOWN, "up"])
    assert colour.run(guard, fn).value == "up"
    assert colour.run(guard, colour.fn([DOWN])).attempts == 1


def fail() -> None:
    raise DOWN


def test_an_attempt_that_takes_the_rest_of_the_time_is_the_last_one(colour, guard_of, clock):
    guard = guard_of(Retry(attempts=5, base=1, jitter="none"), Timeout(total=10))
    fn = colour.fn([Slow(clock, 4, DOWN), Slow(clock, 4.5, DOWN), "up"])
    outcome = colour.run(guard, fn)
    assert (outcome.kind, outcome.attempts, fn.calls) == (K.TIMEOUT, 2, 2)
    assert outcome.error.__cause__ is DOWN
