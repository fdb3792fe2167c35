"""Fallback: an answer for when there is none."""

from __future__ import annotations

import asyncio

import pytest

from holdfast import (
    Breaker,
    CallCompleted,
    Fallback,
    FallbackStrategy,
    FellBack,
    OutcomeKind,
    RateLimit,
    Retry,
    Timeout,
    consecutive,
    deadline,
)
from tests.guard.colours import Interrupted, Slow

K = OutcomeKind
DOWN = OSError("down")


def test_a_success_is_left_alone(colour, guard_of):
    outcome = colour.run(guard_of(Fallback(value="spare")), colour.fn(["up"]))
    assert (outcome.value, outcome.detail) == ("up", None)


@pytest.mark.parametrize("error", [DOWN, TimeoutError("slow"), TypeError("bug")], ids=repr)
def test_a_failure_of_any_kind_is_answered_with_the_value(colour, guard_of, error):
    outcome = colour.run(guard_of(Fallback(value="spare")), colour.fn([error]))
    assert (outcome.kind, outcome.value, outcome.detail) == (K.SUCCESS, "spare", "fallback value")
    assert outcome.metadata["original"].error is error


def test_none_is_a_fallback_value(colour, guard_of):
    outcome = colour.run(guard_of(Fallback(value=None)), colour.fn([DOWN]))
    assert (outcome.kind, outcome.value) == (K.SUCCESS, None)


def test_raising_mode_returns_the_fallback_value(colour, guard_of):
    assert colour.call(guard_of(Fallback(value="spare")), colour.fn([DOWN])) == "spare"


def test_a_function_without_arguments_is_called(colour, guard_of):
    assert colour.call(guard_of(Fallback(lambda: "spare")), colour.fn([DOWN])) == "spare"


def test_a_function_of_the_calls_colour_is_called(colour, guard_of):
    assert colour.call(guard_of(Fallback(colour.fn(lambda *_: "spare"))), colour.fn([DOWN])) == "spare"


def test_a_function_may_take_the_outcome(colour, guard_of):
    guard = guard_of(Fallback(lambda outcome: (outcome.kind, outcome.error, outcome.attempts)))
    assert colour.call(guard, colour.fn([DOWN])) == (K.TRANSIENT_FAILURE, DOWN, 1)


def test_an_async_function_is_awaited_in_an_async_call(guard_of):
    async def spare(outcome):
        await asyncio.sleep(0)
        return outcome.detail

    async def down():
        raise DOWN

    assert asyncio.run(guard_of(Fallback(spare)).acall(down)) == "OSError: down"


def test_an_async_function_in_a_sync_call_is_a_failure_that_says_so(guard_of):
    async def spare():
        return "spare"

    def down():
        raise DOWN

    outcome = guard_of(Fallback(spare)).run(down)
    assert outcome.is_failure
    assert isinstance(outcome.error, TypeError)
    assert "async" in str(outcome.error)


def test_a_refusal_is_left_alone_unless_asked_for(colour, guard_of):
    for policy, expected in [(Fallback(value="spare"), None), (Fallback(value="spare", rejected=True), "spare")]:
        guard = guard_of(policy, RateLimit(1))
        colour.run(guard, colour.fn(["up"]))
        outcome = colour.run(guard, colour.fn(["up"]))
        assert outcome.value == expected
        assert outcome.kind is (K.REJECTED if expected is None else K.SUCCESS)


def test_an_open_circuit_is_answered_when_asked_for(colour, guard_of):
    guard = guard_of(Fallback(lambda outcome: outcome.reason, rejected=True), Breaker(consecutive(1)))
    colour.run(guard, colour.fn([DOWN]))
    assert colour.call(guard, colour.fn(["up"])) == "circuit_open"


def test_a_partial_result_is_left_alone_unless_asked_for(colour, guard_of):
    for policy, expected in [(Fallback(value="spare"), "half"), (Fallback(value="spare", partial=True), "spare")]:
        guard = guard_of(policy, result_classifier=lambda _: K.PARTIAL)
        assert colour.run(guard, colour.fn(["half"])).value == expected


def test_a_fallback_that_raises_is_a_transient_failure_with_the_original_as_cause(colour, guard_of):
    def broken():
        raise LookupError("no spare either")

    outcome = colour.run(guard_of(Fallback(broken)), colour.fn([DOWN]))
    assert outcome.kind is K.TRANSIENT_FAILURE
    assert isinstance(outcome.error, LookupError)
    assert outcome.error.__cause__ is DOWN
    assert outcome.metadata["original"].error is DOWN


def test_a_fallback_that_raises_raises_its_own_error_in_raising_mode(colour, guard_of):
    with pytest.raises(LookupError) as caught:
        colour.call(guard_of(Fallback(colour.fn([LookupError("none")]))), colour.fn([DOWN]))
    assert caught.value.__cause__ is DOWN


def test_a_fallback_comes_after_all_retries(colour, guard_of):
    fn = colour.fn([DOWN])
    outcome = colour.run(guard_of(Fallback(value="spare"), Retry(attempts=3, base=0)), fn)
    assert (outcome.value, outcome.attempts, fn.calls) == ("spare", 3, 3)


def test_a_timeout_of_the_guard_is_answered(colour, guard_of, clock):
    guard = guard_of(Fallback(value="spare"), Timeout(total=5))
    assert colour.run(guard, colour.fn([Slow(clock, 60, "up")])).value == "spare"


def test_an_interruption_is_not_answered(colour, guard_of):
    spare = colour.fn(["spare"])
    with pytest.raises(Interrupted):
        colour.run(guard_of(Fallback(spare)), colour.fn([Interrupted()]))
    assert spare.calls == 0


def test_a_passthrough_exception_is_not_answered(colour, guard_of):
    spare = colour.fn(["spare"])
    with pytest.raises(KeyError):
        colour.run(guard_of(Fallback(spare), passthrough=(KeyError,)), colour.fn([KeyError("mine")]))
    assert spare.calls == 0


def test_a_fallback_is_interrupted_by_an_outer_limit(colour, guard_of, clock):
    outer = guard_of(Timeout(total=5), name="outer")
    guard = guard_of(Fallback(colour.fn([Slow(clock, 60, "spare")])))
    down = colour.fn([DOWN])

    def body():
        value = yield colour.inner_call(guard, down)
        return value

    assert colour.run(outer, colour.fn(body)).kind is K.TIMEOUT
    if colour.is_async:
        assert clock.monotonic() == 1005


def test_a_fallback_does_not_run_the_breaker_or_the_retry(colour, guard_of):
    guard = guard_of(Fallback(colour.fn([LookupError("none")])), Retry(attempts=2, base=0), Breaker(consecutive(9)))
    colour.run(guard, colour.fn([DOWN]))
    assert guard.circuit.look("failure_count") == 2


def test_a_refused_deadline_is_not_answered(colour, guard_of, clock):
    spare = colour.fn(["spare"])
    with deadline(-1, clock=clock):
        assert colour.run(guard_of(Fallback(spare, rejected=True)), colour.fn(["up"])).reason == "deadline_expired"
    assert spare.calls == 0


def test_falling_back_is_an_event_and_the_call_completes_as_a_success(colour, guard_of, recorder):
    guard = guard_of(Fallback(value="spare"))
    guard.telemetry.register(recorder)
    colour.run(guard, colour.fn([DOWN]))
    assert [(event.outcome, event.succeeded) for event in recorder.of(FellBack)] == [(K.TRANSIENT_FAILURE, True)]
    assert [event.outcome for event in recorder.of(CallCompleted)] == [K.SUCCESS]


def test_a_fallback_that_raises_is_an_event_too(colour, guard_of, recorder):
    guard = guard_of(Fallback(colour.fn([LookupError("none")])))
    guard.telemetry.register(recorder)
    colour.run(guard, colour.fn([DOWN]))
    assert [(event.outcome, event.succeeded) for event in recorder.of(FellBack)] == [(K.TRANSIENT_FAILURE, False)]


def test_the_seeds_strategy_takes_a_function(colour, guard_of):
    assert colour.call(guard_of(FallbackStrategy(lambda: "spare")), colour.fn([DOWN])) == "spare"
