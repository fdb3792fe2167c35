"""What an attempt's event says, who publishes a context, and that no lock is held while the user's code runs."""

from __future__ import annotations

import functools
from datetime import timedelta

import pytest

from holdfast import (
    AttemptCompleted,
    Breaker,
    Bulkhead,
    Cache,
    CallCompleted,
    CircuitState,
    CircuitStateChanged,
    Fallback,
    OutcomeKind,
    RateLimit,
    Retry,
    Severity,
    Timeout,
    consecutive,
    current_context,
)
from tests.guard.colours import Slow

K = OutcomeKind
DOWN = OSError("down")


def told(recorder, *fields):
    return [tuple(getattr(event, field) for field in fields) for event in recorder.of(AttemptCompleted)]


# Attempts.


def test_attempts_tell_their_delay_their_error_and_whether_one_follows(colour, guard_of, clock, recorder):
    guard = guard_of(Retry(attempts=4, base=1, jitter="none"), name="op")
    guard.telemetry.register(recorder)
    colour.run(guard, colour.fn([DOWN, Slow(clock, 3, TimeoutError("slow")), "up"]))
    assert told(recorder, "number", "outcome", "delay", "service_s", "error_type", "handled", "last") == [
        (0, K.TRANSIENT_FAILURE, 0, 0, "OSError", True, False),
        (1, K.TIMEOUT, 1, 3, "TimeoutError", True, False),
        (2, K.SUCCESS, 2, 0, None, False, True),
    ]
    assert told(recorder, "wait", "endpoint", "policy_id") == [(0, None, "op")] * 3
    assert [severity for (severity,) in told(recorder, "severity")] == [
        Severity.WARNING, Severity.WARNING, Severity.INFO,
    ]  # fmt: skip


def test_the_attempt_before_a_refusal_is_the_last_one(colour, guard_of, recorder):
    guard = guard_of(Retry(attempts=5, base=0), Breaker(consecutive(2)))
    guard.telemetry.register(recorder)
    assert colour.run(guard, colour.fn([DOWN])).reason == "circuit_open"
    assert told(recorder, "number", "last", "severity") == [(0, False, Severity.WARNING), (1, True, Severity.ERROR)]


def test_an_attempt_that_is_told_late_says_when_its_retry_was_decided_on(colour, guard_of, clock, recorder):
    guard = guard_of(Retry(attempts=2, base=3, jitter="none"), Breaker(consecutive(9)))
    guard.telemetry.register(recorder)
    began = clock.wall()
    colour.run(guard, colour.fn([Slow(clock, 2, DOWN), DOWN]))
    assert told(recorder, "number", "last", "at") == [
        (0, False, began + timedelta(seconds=2)),
        (1, True, began + timedelta(seconds=5)),
    ]


def test_the_last_failure_is_the_loud_one(colour, guard_of, recorder):
    guard = guard_of(Retry(attempts=3, base=0))
    guard.telemetry.register(recorder)
    colour.run(guard, colour.fn([DOWN]))
    assert told(recorder, "handled", "last", "severity") == [
        (True, False, Severity.WARNING),
        (True, False, Severity.WARNING),
        (True, True, Severity.ERROR),
    ]


@pytest.mark.parametrize(
    ("step", "judge", "said"),
    [
        ("up", None, (K.SUCCESS, False, True, None, Severity.INFO)),
        ("some", lambda _: K.PARTIAL, (K.PARTIAL, False, True, None, Severity.INFO)),
        (TypeError("bug"), None, (K.TERMINAL_FAILURE, True, True, "TypeError", Severity.ERROR)),
        ("bad", lambda _: K.TERMINAL_FAILURE, (K.TERMINAL_FAILURE, True, True, None, Severity.ERROR)),
    ],
    ids=["success", "partial", "bug", "bad result"],
)
def test_a_single_attempt_is_the_last_one_and_handled_if_it_is_a_failure(colour, guard_of, recorder, step, judge, said):
    guard = guard_of(Retry(attempts=3, base=0), result_classifier=judge)
    guard.telemetry.register(recorder)
    colour.run(guard, colour.fn([step]))
    assert told(recorder, "outcome", "handled", "last", "error_type", "severity") == [said]


def test_an_attempt_that_was_cut_is_a_timeout_without_an_error_of_its_own(colour, guard_of, clock, recorder):
    guard = guard_of(Retry(attempts=2, base=0), Timeout(attempt=5))
    guard.telemetry.register(recorder)
    colour.run(guard, colour.fn([Slow(clock, 60, DOWN), "up"]))
    if colour.is_async:  # a sync function comes to its own end
        assert told(recorder, "outcome", "service_s", "error_type") == [(K.TIMEOUT, 5, None), (K.SUCCESS, 0, None)]
    else:
        assert told(recorder, "outcome", "service_s", "error_type")[0] == (K.TRANSIENT_FAILURE, 60, "OSError")


def test_an_attempt_whose_retry_was_stopped_is_the_last_one(colour, guard_of, recorder):
    guard = guard_of(Retry(attempts=3, base=0, health=lambda: False))
    guard.telemetry.register(recorder)
    colour.run(guard, colour.fn([DOWN]))
    assert told(recorder, "last", "severity") == [(True, Severity.ERROR)]


def test_all_events_of_a_call_carry_its_id(colour, guard_of, recorder):
    guard = guard_of(Retry(attempts=3, base=0))
    guard.telemetry.register(recorder)
    colour.run(guard, colour.fn([DOWN]))
    [completed] = recorder.of(CallCompleted)
    assert {event.call_id for event in recorder.events} == {completed.call_id}
    assert len(completed.call_id) == 12


def test_the_wait_for_a_slot_belongs_to_the_first_attempt_and_the_backoff_to_the_second(
    colour, guard_of, clock, recorder
):
    guard, gate = guard_of(Retry(attempts=2, base=0.5, jitter="none"), Bulkhead(1, queue=1)), colour.gate()
    guard.telemetry.register(recorder)
    slots = guard.plan.strategies[0].slots

    def hold():
        yield gate.wait()

    holder = colour.enter(guard, colour.fn(hold))
    waiter = colour.start(guard, colour.fn([DOWN, "up"]))
    colour.until(lambda: len(slots.waiting) == 1)
    clock.advance(7)
    gate.open()
    holder.outcome()
    assert waiter.outcome().value == "up"
    call_id = next(event.call_id for event in recorder.of(AttemptCompleted) if event.error_type == "OSError")
    mine = [event for event in recorder.of(AttemptCompleted) if event.call_id == call_id]
    assert [(event.wait, event.delay) for event in mine] == [(7, 0), (0, 0.5)]


# The context.


ADMITTING = [(), (Breaker(),), (Bulkhead(1),), (RateLimit(10),), (Fallback(value=0),), (Breaker(), Bulkhead(1))]


@pytest.mark.parametrize("policies", ADMITTING, ids=lambda given: "+".join(type(p).__name__ for p in given) or "none")
def test_a_guard_that_only_admits_shows_no_context_of_its_own(colour, guard_of, policies):
    guard = guard_of(*policies, fused=True)
    assert colour.call(guard, colour.fn(lambda: (current_context(),))) == (None,)


@pytest.mark.parametrize("policies", ADMITTING, ids=lambda given: "+".join(type(p).__name__ for p in given) or "none")
def test_a_guard_that_is_told_to_shows_its_context_always(colour, guard_of, policies):
    ctx = colour.call(guard_of(*policies, context="always", name="op"), colour.fn(lambda: current_context()))
    assert (ctx.operation_key, len(ctx.call_id)) == ("op", 12)


@pytest.mark.parametrize("policy", [Retry(), Timeout(total=5), Timeout(attempt=5)], ids=["retry", "total", "attempt"])
def test_a_guard_that_bounds_or_repeats_shows_its_context(colour, guard_of, policy):
    ctx = colour.call(guard_of(policy, name="op"), colour.fn(lambda: current_context()))
    assert ctx.operation_key == "op"


def test_inside_a_guard_that_only_admits_the_callers_context_is_seen(colour, guard_of):
    outer, inner = guard_of(Retry(), name="outer", fused=True), guard_of(Breaker(), name="inner", fused=True)

    def body():
        key = yield colour.inner_call(inner, colour.fn(lambda: current_context().operation_key))
        return key

    assert colour.call(outer, colour.fn(body)) == "outer"


@pytest.mark.parametrize("always", [True, False], ids=["inner always", "inner as ever"])
def test_a_call_below_a_guard_that_only_admits_still_knows_who_called(colour, guard_of, recorder, always):
    outer = guard_of(Retry(), name="outer")
    middle = guard_of(Breaker(), name="middle", context="always" if always else True)
    inner = guard_of(Timeout(total=5), name="inner")

    def leaf():
        return current_context().parent_call_id

    def between():
        seen = yield colour.inner_call(inner, colour.fn(leaf))
        return current_context().call_id, seen

    def body():
        seen = yield colour.inner_call(middle, colour.fn(between))
        return seen

    around, parent = colour.call(outer, colour.fn(body))
    assert parent == around


# Generators.


def test_no_form_of_decoration_takes_a_generator_function(guard_of):
    def rows(_=None):
        yield 1

    async def arows(_=None):
        yield 1

    guard = guard_of(Retry(), Timeout(total=5))
    for fn in (rows, arows, functools.partial(rows, 1)):
        for decorate in (guard, guard.outcome):
            with pytest.raises(TypeError, match=r"is a generator.* guard what it calls instead"):
                decorate(fn)


# No lock is held while the user's code runs: all of it may use the same guard again.


def test_the_users_own_functions_may_use_the_guard_that_calls_them(guard_of):
    entered = []

    def again(where):
        if where not in entered:
            entered.append(where)
            assert guard.run(lambda: "inner").value == "inner"
            assert guard.circuit.look("peek") is None

    def callback(where, answer=None):
        def function(*_, **__):
            again(where)
            return answer

        return function

    guard = guard_of(
        Retry(attempts=2, base=0, budget=0.5, health=callback("health", True), on_retry=callback("on_retry")),
        Breaker(consecutive(9)),
        Bulkhead(9, queue=9),
        RateLimit(99, burst=99, by=callback("by", "key")),
        Fallback(callback("fallback", "spare")),
        Cache(60, key=callback("key")),
        classify=callback("classify", K.TRANSIENT_FAILURE),
        result_classifier=callback("result_classifier", K.SUCCESS),
    )
    guard.telemetry.register(lambda event: again(type(event).__name__))
    assert guard.run(_down).value == "spare"
    assert {"health", "on_retry", "by", "fallback", "key", "classify", "result_classifier"} <= set(entered)
    assert {"AttemptCompleted", "CallCompleted", "FellBack", "RetryScheduled"} <= set(entered)


def _down():
    raise DOWN


def test_a_listener_of_the_circuit_may_command_it(colour, guard_of, clock):
    guard = guard_of(Breaker(consecutive(1)))

    def close_again(event):
        if isinstance(event, CircuitStateChanged) and event.to_state == "open":
            guard.circuit.command("close")

    guard.telemetry.register(close_again)
    colour.run(guard, colour.fn([DOWN]))
    assert guard.circuit.state is CircuitState.CLOSED
