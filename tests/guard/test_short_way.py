"""Zero-wait retries stay on the fused path while they fail plainly; what is not plain leaves it, with its trail.

Every test runs on the general path as well, and in both colours.
"""

from __future__ import annotations

import asyncio
import traceback
from typing import Any

import pytest

from holdfast import (
    AttemptCompleted,
    Breaker,
    Budget,
    CallCompleted,
    CallInterrupted,
    CircuitState,
    CircuitStateChanged,
    Guard,
    InMemoryMetrics,
    OutcomeKind,
    Retry,
    consecutive,
    count,
    current_context,
)
from holdfast.core.context import CURRENT
from holdfast.guard.call import IDEMPOTENT
from holdfast.guard.short_way import MAX_STEPS
from tests.garbage import garbage_of
from tests.guard.colours import Interrupted, reached

K = OutcomeKind
PROMPT = Retry(attempts=3, base=0)


class Hinted(OSError):
    retry_after = 2.0


def kinds(outcome: Any) -> list[OutcomeKind]:
    return [attempt.kind for attempt in outcome.metadata["trail"]]


def test_three_failures_at_once_keep_their_trail(colour, guard_of):
    outcome = colour.run(guard_of(PROMPT), colour.fn([OSError("one"), TimeoutError(), OSError("three")]))
    assert (outcome.kind, outcome.attempts, str(outcome.error)) == (K.TRANSIENT_FAILURE, 3, "three")
    assert kinds(outcome) == [K.TRANSIENT_FAILURE, K.TIMEOUT, K.TRANSIENT_FAILURE]
    assert [attempt.number for attempt in outcome.metadata["trail"]] == [0, 1, 2]


def test_a_success_after_failures_keeps_their_trail_and_is_counted_once(colour, guard_of, clock):
    guard, metrics = guard_of(PROMPT), InMemoryMetrics()
    guard.telemetry.register(metrics)
    outcome = colour.run(guard, colour.fn([OSError, OSError, "up"]))
    assert (outcome.value, outcome.attempts) == ("up", 3)
    assert kinds(outcome) == [K.TRANSIENT_FAILURE, K.TRANSIENT_FAILURE, K.SUCCESS]
    assert metrics.snapshot()["call_count"] == 1


def test_each_attempt_has_a_time_of_its_own(colour, guard_of, clock):
    def body():
        yield colour.sleep(clock, 2)
        raise OSError

    outcome = colour.run(guard_of(PROMPT), colour.fn(body))
    assert [(a.wait, a.delay, a.service) for a in outcome.metadata["trail"]] == [(0, 0, 2)] * 3


def test_the_exception_is_raised_with_its_story(colour, guard_of):
    with pytest.raises(OSError, match="down") as caught:
        colour.call(guard_of(PROMPT), colour.fn([TimeoutError(), KeyError(), OSError("down")]))
    assert caught.value.__notes__ == ["holdfast: 3 attempts (TimeoutError, KeyError, OSError)"]


def test_a_hint_after_two_plain_failures_is_waited_for_and_no_attempt_is_lost(colour, guard_of, clock):
    fn = colour.fn([OSError, Hinted, OSError])
    outcome = colour.run(guard_of(PROMPT), fn)
    assert (fn.calls, outcome.attempts, clock.slept) == (3, 3, [2.0])
    assert [attempt.delay for attempt in outcome.metadata["trail"]] == [0, 0, 2.0]


def test_the_last_attempts_hint_is_told(colour, guard_of):
    assert colour.run(guard_of(PROMPT), colour.fn([OSError, OSError, Hinted])).retry_after == 2.0


class Own(OSError):
    """A type of the user's own."""


class Sealed(OSError):
    def __setattr__(self, name, value):
        raise AttributeError(name)

    def add_note(self, note):
        raise TypeError("sealed")


def test_an_error_of_the_users_own_type_is_retried_like_any_other(colour, guard_of):
    with pytest.raises(Own) as caught:
        colour.call(guard_of(PROMPT), colour.fn([Own, OSError, Own]))
    assert caught.value.__notes__ == ["holdfast: 3 attempts (Own, OSError, Own)"]


@pytest.mark.parametrize("attempt", [0, 1])
def test_an_attribute_that_was_set_on_a_plain_error_is_heeded(colour, guard_of, clock, attempt):
    later = OSError("later")
    later.retry_after = 3.0
    steps = [OSError(), OSError(), "up"]
    steps[attempt] = later
    outcome = colour.run(guard_of(PROMPT), colour.fn(steps))
    assert (outcome.value, outcome.attempts, clock.slept) == ("up", 3, [3.0])


def test_a_note_that_is_there_stays_and_the_story_is_told_once(colour, guard_of):
    down = OSError("down")
    down.add_note("by the user")
    for _ in range(2):
        with pytest.raises(OSError, match="down"):
            colour.call(guard_of(PROMPT), colour.fn([down]))
    assert down.__notes__ == ["by the user", "holdfast: 3 attempts (OSError, OSError, OSError)"]


def test_an_error_that_takes_no_notes_is_raised_all_the_same(colour, guard_of):
    with pytest.raises(Sealed):
        colour.call(guard_of(PROMPT), colour.fn([Sealed]))


def test_a_terminal_failure_ends_the_call_at_once_and_has_no_story(colour, guard_of):
    fn = colour.fn([TypeError("bug")])
    with pytest.raises(TypeError) as caught:
        colour.call(guard_of(PROMPT), fn)
    assert (fn.calls, hasattr(caught.value, "__notes__")) == (1, False)


def test_the_raised_exception_shows_the_guard_once(colour, guard_of):
    def fail():
        raise OSError

    async def afail():
        raise OSError

    guarded = guard_of(PROMPT, fused=True)(afail if colour.is_async else fail)
    with pytest.raises(OSError) as caught:  # noqa: PT011  # any will do
        colour.plain(guarded)
    names = [frame.name for frame in traceback.extract_tb(caught.value.__traceback__)]
    assert names.count("guarded") == 1
    assert names[-1] == ("afail" if colour.is_async else "fail")


def test_types_without_end_do_not_fill_the_memory(colour, guard_of):
    guard = guard_of(PROMPT, fused=True)
    for number in range(MAX_STEPS):
        made = type(f"Made{number}", (OSError,), {})
        assert colour.run(guard, colour.fn([made])).attempts == 3
    assert steps_of(guard.plan.short_way.first) <= MAX_STEPS + 1
    outcome = colour.run(guard, colour.fn([type("Late", (OSError,), {}), KeyError, "up"]))
    assert (outcome.value, kinds(outcome)) == ("up", [K.TRANSIENT_FAILURE, K.TRANSIENT_FAILURE, K.SUCCESS])


def steps_of(step: Any) -> int:
    return 1 + sum(steps_of(after) for after in step.values())


def test_an_interrupt_in_a_listener_leaves_no_context_behind(colour, guard_of):
    guard = guard_of(Retry(attempts=5, base=0), Breaker(consecutive(2)))

    class Impatient:
        quiet, wants = True, (CircuitStateChanged,)

        def on_event(self, event):
            raise Interrupted

    guard.telemetry.register(Impatient())

    def body():
        seen = CURRENT.get()
        try:
            yield colour.inner(guard, colour.fn([OSError]))
        except Interrupted:
            return CURRENT.get() is seen

    assert colour.run(guard_of(name="around"), colour.fn(body)).value is True


def test_a_retry_below_another_one_defers_to_it(colour, guard_of):
    outer, inner = guard_of(PROMPT, name="outer"), guard_of(PROMPT, name="inner")
    fn, outcomes = colour.fn([OSError]), []

    def body():
        outcomes.append((yield colour.inner(inner, fn)))
        raise OSError

    colour.run(outer, colour.fn(body))
    assert fn.calls == 3
    assert [(outcome.attempts, outcome.stopped_by) for outcome in outcomes] == [(1, "nested")] * 3


def test_a_retry_of_another_domain_below_makes_all_its_attempts(colour, guard_of):
    outer, inner = guard_of(PROMPT, name="outer"), guard_of(Retry(attempts=2, base=0, domain="other"), name="inner")
    fn = colour.fn([OSError])

    def body():
        return (yield colour.inner_call(inner, fn))

    assert colour.run(outer, colour.fn(body)).attempts == 3
    assert fn.calls == 6


def test_a_budget_below_that_is_used_up_ends_the_retrying_above(colour, guard_of):
    spent = Retry(attempts=2, base=0, domain="other", budget=Budget(0.0, 0))
    outer, inner = guard_of(PROMPT, name="outer"), guard_of(spent, name="inner")
    inner.plan.strategies[0].budget.acquire()
    fn = colour.fn([OSError])

    def body():
        return (yield colour.inner_call(inner, fn))

    outcome = colour.run(outer, colour.fn(body))
    assert (fn.calls, outcome.attempts, outcome.stopped_by) == (1, 1, "budget")


def test_a_refusal_from_below_is_not_retried(colour, guard_of):
    shut = guard_of(Breaker(consecutive(1)), name="shut")
    shut.circuit.command("isolate")

    def body():
        return (yield colour.inner_call(shut, colour.fn(["up"])))

    outer = colour.fn(body)
    outcome = colour.run(guard_of(PROMPT, name="outer"), outer)
    assert (outer.calls, outcome.kind, outcome.reason) == (1, K.REJECTED, "circuit_open")


@pytest.mark.parametrize("attempt", [1, 2])
def test_a_function_that_says_it_must_not_run_twice_is_not_run_again(colour, guard_of, attempt):
    def body():
        if fn.calls == attempt:
            current_context().set(IDEMPOTENT, False)
        raise OSError

    fn = colour.fn(body)
    outcome = colour.run(guard_of(PROMPT), fn)
    assert (fn.calls, outcome.stopped_by) == (attempt, "not_idempotent")


def test_all_attempts_share_one_context(colour, guard_of):
    seen = []

    def body():
        seen.append(current_context().call_id)
        raise OSError

    colour.run(guard_of(PROMPT), colour.fn(body))
    assert len(set(seen)) == 1
    assert len(seen) == 3
    assert CURRENT.get() is None


def test_a_circuit_that_opens_between_attempts_ends_the_retrying(colour, guard_of):
    guard = guard_of(Retry(attempts=5, base=0), Breaker(count(2, window=60)))
    fn = colour.fn([OSError("one"), OSError("two")])
    outcome = colour.run(guard, fn)
    assert (fn.calls, outcome.kind, outcome.reason, outcome.attempts) == (2, K.REJECTED, "circuit_open", 2)
    assert str(outcome.error.__cause__) == "two"
    assert guard.circuit.state is CircuitState.OPEN


def test_a_breaker_counts_every_attempt(colour, guard_of):
    guard = guard_of(PROMPT, Breaker(count(9, window=60)))
    colour.run(guard, colour.fn([OSError]))
    colour.run(guard, colour.fn([OSError, TypeError]))
    assert guard.circuit.look("failure_count") == 4


def test_a_success_after_a_failure_ends_the_streak(colour, guard_of):
    guard = guard_of(PROMPT, Breaker(consecutive(3)))
    for _ in range(3):
        assert colour.run(guard, colour.fn([OSError, OSError, "up"])).value == "up"


@pytest.mark.parametrize("attempt", [1, 2, 3])
def test_who_begins_to_listen_during_an_attempt_hears_of_all_of_them(colour, guard_of, recorder, attempt):
    guard = guard_of(PROMPT)

    def body():
        if fn.calls == attempt:
            guard.telemetry.register(recorder)
        raise OSError

    fn = colour.fn(body)
    colour.run(guard, fn)
    assert [(event.number, event.last) for event in recorder.of(AttemptCompleted)] == [
        (0, False),
        (1, False),
        (2, True),
    ]
    assert [event.attempts for event in recorder.of(CallCompleted)] == [3]


def test_who_begins_to_listen_during_a_retry_hears_of_its_success(colour, guard_of, recorder):
    guard = guard_of(PROMPT)

    def body():
        if fn.calls == 1:
            raise OSError
        guard.telemetry.register(recorder)
        return "up"

    fn = colour.fn(body)
    assert colour.run(guard, fn).value == "up"
    assert [event.outcome for event in recorder.of(CallCompleted)] == [K.SUCCESS]


def test_a_guard_that_is_replaced_during_an_attempt_finishes_under_its_old_policy(colour, guard_of):
    guard = guard_of(PROMPT)

    def body():
        guard.replace(Retry(attempts=1))
        raise OSError

    assert colour.run(guard, colour.fn(body)).attempts == 3


def test_an_interrupt_in_a_retry_goes_through_and_counts_nothing(colour, guard_of, recorder):
    guard, metrics = guard_of(PROMPT, Breaker(consecutive(9))), InMemoryMetrics()
    guard.telemetry.register(metrics)

    def body():
        if fn.calls == 1:
            raise OSError
        guard.telemetry.register(recorder)
        raise Interrupted

    fn = colour.fn(body)
    with pytest.raises(Interrupted):
        colour.run(guard, fn)
    assert (fn.calls, metrics.snapshot()["call_count"], CURRENT.get()) == (2, 0, None)
    assert [event.reason for event in recorder.of(CallInterrupted)] == ["interrupted"]
    assert [event.number for event in recorder.of(AttemptCompleted)] == [0]


def test_a_passthrough_exception_in_a_retry_goes_through(colour, guard_of):
    fn = colour.fn([OSError, KeyError])
    with pytest.raises(KeyError) as caught:
        colour.call(guard_of(PROMPT, passthrough=KeyError), fn)
    assert fn.calls == 2
    assert not hasattr(caught.value, "__notes__")


def test_a_sync_call_that_gets_a_coroutine_in_a_retry_says_so(guard_of):
    async def meant() -> None: ...

    calls = iter([OSError, meant])

    def fn():
        step = next(calls)
        if step is OSError:
            raise step
        return step()

    with pytest.raises(TypeError, match="is async"):
        guard_of(PROMPT).run(fn)
    assert CURRENT.get() is None


async def test_a_cancellation_in_a_retry_goes_through(guard_of):
    calls = []

    async def fn() -> None:
        calls.append(1)
        if len(calls) == 1:
            raise OSError
        await asyncio.get_running_loop().create_future()

    task = asyncio.create_task(guard_of(PROMPT).arun(fn))
    await reached(lambda: len(calls) == 2)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert len(calls) == 2


STORIES: dict[str, tuple[dict[str, Any], list[Any]]] = {
    "exhausted": ({}, [OSError, OSError, OSError]),
    "recovered": ({}, [OSError, OSError, "up"]),
    "hinted": ({}, [OSError, Hinted, OSError]),
    "interrupted": ({}, [OSError, Interrupted]),
    "passed": ({"passthrough": KeyError}, [OSError, KeyError]),
    "terminal": ({}, [OSError, TypeError]),
}


@pytest.mark.parametrize("story", STORIES)
@pytest.mark.parametrize("form", ["outcome", "value"])
@pytest.mark.parametrize("more", [(), (Breaker(count(10**6, window=1)),), (Breaker(consecutive(2), open_for=0.001),)])
def test_attempts_at_once_leave_no_reference_cycle(guard_of, clock, story, form, more):
    options, steps = STORIES[story]
    guard: Guard = guard_of(PROMPT, *more, **options)

    def step(steps: Any) -> str:
        end = next(steps)
        if end == "up":
            return "up"
        raise end

    async def astep(steps: Any) -> str:
        return step(steps)

    guarded, aguarded = (guard(step), guard(astep)) if form == "value" else (guard.outcome(step), guard.outcome(astep))

    def action() -> None:
        clock.advance(1)
        try:
            guarded(iter(steps))
        except BaseException:
            pass

    async def aaction() -> None:
        clock.advance(1)
        try:
            await aguarded(iter(steps))
        except BaseException:
            pass

    assert garbage_of(action) == 0
    with asyncio.Runner() as runner:
        assert garbage_of(lambda: runner.run(aaction())) == 0
