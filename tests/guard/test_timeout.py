"""Timeouts and deadlines: what is cut, what is late, and which limit names the result."""

from __future__ import annotations

import asyncio
import math
import threading
from typing import Any

import pytest

from holdfast import (
    Breaker,
    Bulkhead,
    CircuitBreakerStrategy,
    DeadlineExpired,
    Fallback,
    GuardTimeout,
    LoadShed,
    OutcomeKind,
    RateLimit,
    Retry,
    TimedOut,
    Timeout,
    TimeoutStrategy,
    consecutive,
    current_context,
    deadline,
    remaining_time,
)
from holdfast.core.clock import SYSTEM_CLOCK
from holdfast.testing.clock import ManualClock
from tests.guard.colours import Slow

K = OutcomeKind
DOWN = OSError("down")
LIMITS = [Timeout(total=5), Timeout(attempt=5)]
kinds_of_limit = pytest.mark.parametrize("limit", LIMITS, ids=["total", "attempt"])


@kinds_of_limit
def test_a_call_within_its_time_is_untouched(colour, guard_of, clock, limit):
    outcome = colour.run(guard_of(limit), colour.fn([Slow(clock, 4.9, "up")]))
    assert (outcome.kind, outcome.value, outcome.attempts) == (K.SUCCESS, "up", 1)


@kinds_of_limit
def test_a_call_exactly_as_long_as_its_limit_is_in_time(guard_of, clock, limit):
    # Only sync: a timer and a sleep that end at the same moment have no order.
    def fn() -> str:
        clock.sleep(5)
        return "up"

    assert guard_of(limit).run(fn).value == "up"


@kinds_of_limit
def test_a_call_over_its_time_is_a_timeout_with_a_timeout_error(colour, guard_of, clock, limit):
    outcome = colour.run(guard_of(limit), colour.fn([Slow(clock, 60, "up")]))
    assert outcome.kind is K.TIMEOUT
    assert isinstance(outcome.error, GuardTimeout)
    assert isinstance(outcome.error, TimeoutError)
    assert outcome.attempts == 1


@kinds_of_limit
def test_raising_mode_raises_the_timeout(colour, guard_of, clock, limit):
    with pytest.raises(TimeoutError) as caught:
        colour.call(guard_of(limit, name="pay"), colour.fn([Slow(clock, 60, "up")]))
    assert isinstance(caught.value, GuardTimeout)
    assert "pay" in str(caught.value)


@kinds_of_limit
async def test_an_async_call_is_cut_at_its_limit(guard_of, clock, limit):
    ended = []

    async def fn() -> None:
        try:
            await clock.asleep(60)
        finally:
            ended.append(clock.monotonic())

    assert (await guard_of(limit).arun(fn)).kind is K.TIMEOUT
    assert ended == [1005]
    task = asyncio.current_task()
    assert task is not None
    assert task.cancelling() == 0


@kinds_of_limit
def test_a_late_sync_result_is_a_timeout_that_keeps_the_value(guard_of, clock, limit):
    def fn() -> str:
        clock.sleep(60)
        return "late"

    outcome = guard_of(limit).run(fn)
    assert (outcome.kind, outcome.late, outcome.metadata["result"]) == (K.TIMEOUT, True, "late")
    assert outcome.value is None


@kinds_of_limit
async def test_an_async_result_that_could_not_be_cut_is_late(guard_of, clock, limit):
    async def fn() -> str:
        try:
            await clock.asleep(60)
        except asyncio.CancelledError:
            await clock.asleep(1)
        return "late"

    outcome = await guard_of(limit).arun(fn)
    assert (outcome.kind, outcome.late, outcome.metadata["result"]) == (K.TIMEOUT, True, "late")
    task = asyncio.current_task()
    assert task is not None
    assert task.cancelling() == 0


@pytest.mark.parametrize("limit", [Timeout(total=0.002), Timeout(attempt=0.002)], ids=["total", "attempt"])
def test_an_async_function_that_blocks_its_loop_is_late_and_leaves_no_cancellation_behind(guard_of, limit):
    async def main() -> Any:
        async def blocks() -> str:
            end = SYSTEM_CLOCK.monotonic() + 0.004
            while SYSTEM_CLOCK.monotonic() < end:
                pass
            return "late"

        outcome = await guard_of(limit, clock=SYSTEM_CLOCK).arun(blocks)
        for _ in range(3):
            await asyncio.sleep(0.001)
        return outcome

    outcome = asyncio.run(main())
    assert (outcome.kind, outcome.late) == (K.TIMEOUT, True)


def test_a_late_sync_failure_stays_the_failure_it_is(guard_of, clock):
    def fn() -> str:
        clock.sleep(60)
        raise DOWN

    outcome = guard_of(Timeout(total=5)).run(fn)
    assert outcome.error is DOWN
    assert not outcome.late


def test_a_timeout_publishes_its_deadline_in_the_context(colour, guard_of, clock):
    def body():
        yield colour.sleep(clock, 1)
        ctx = current_context()
        assert ctx is not None
        return remaining_time(), ctx.deadline.remaining()

    assert colour.call(guard_of(Timeout(total=10, attempt=4)), colour.fn(body)) == (3, 3)
    assert colour.call(guard_of(Timeout(total=10)), colour.fn(body)) == (9, 9)
    assert colour.call(guard_of(context="always"), colour.fn(body)) == (math.inf, math.inf)


def test_each_attempt_has_a_deadline_of_its_own_within_the_total(colour, guard_of, clock):
    seen = []

    def body():
        seen.append(remaining_time())
        yield colour.sleep(clock, 3)
        raise DOWN

    colour.run(guard_of(Timeout(total=10, attempt=4), Retry(attempts=3, base=1, jitter="none")), colour.fn(body))
    assert seen == [4, 4, 1]


@pytest.mark.parametrize(("outer", "inner", "left"), [(5, 9, 5), (9, 5, 5), (5, 5, 5)])
def test_a_nested_call_never_outlives_its_parent(colour, guard_of, outer, inner, left):
    parent, child = guard_of(Timeout(total=outer), name="parent"), guard_of(Timeout(total=inner), name="child")

    def body():
        value = yield colour.inner_call(child, colour.fn(lambda: remaining_time()))
        return value

    assert colour.call(parent, colour.fn(body)) == left


def test_an_ambient_deadline_alone_ends_a_running_call(colour, guard_of, clock):
    fn = colour.fn([Slow(clock, 60, "up")])
    with deadline(5, clock=clock):
        outcome = colour.run(guard_of(), fn)
    assert outcome.kind is K.TIMEOUT
    assert isinstance(outcome.error, TimeoutError)
    if colour.is_async:
        assert clock.monotonic() == 1005
    else:
        assert outcome.late


def test_an_ambient_deadline_on_another_clock_ends_a_running_call(colour, guard_of, clock):
    other = ManualClock(start=77)
    with deadline(5, clock=other):
        assert colour.run(guard_of(), colour.fn([Slow(clock, 60, "up")])).kind is K.TIMEOUT


def test_an_expired_deadline_refuses_the_call_before_it_runs(colour, guard_of, clock):
    fn = colour.fn(["up"])
    with deadline(-1, clock=clock):
        outcome = colour.run(guard_of(Retry(), Breaker(), Timeout(total=5)), fn)
    assert (outcome.kind, outcome.reason, outcome.attempts, fn.calls) == (K.REJECTED, "deadline_expired", 0, 0)
    assert isinstance(outcome.error, DeadlineExpired)


def test_an_expired_deadline_is_shed_exactly_once(colour, guard_of, clock, recorder):
    guard = guard_of(Retry())
    guard.telemetry.register(recorder)
    with deadline(0, clock=clock):
        colour.run(guard, colour.fn(["up"]))
    assert [event.reason for event in recorder.of(LoadShed)] == ["deadline_expired"]
    assert recorder.names() == ["LoadShed", "CallCompleted"]


def test_the_guards_own_limit_names_the_result_with_the_last_error_as_cause(colour, guard_of, clock):
    guard = guard_of(Timeout(total=5), Retry(attempts=9, base=3, jitter="none", backoff="fixed"))
    outcome = colour.run(guard, colour.fn([DOWN]))
    assert (outcome.kind, outcome.attempts) == (K.TIMEOUT, 2)
    assert isinstance(outcome.error, GuardTimeout)
    assert outcome.error.__cause__ is DOWN
    assert clock.monotonic() == 1003


def test_the_callers_deadline_that_prevents_a_retry_leaves_the_last_outcome(colour, guard_of, clock):
    guard = guard_of(Timeout(total=50), Retry(attempts=9, base=3, jitter="none", backoff="fixed"))
    with deadline(5, clock=clock):
        outcome = colour.run(guard, colour.fn([DOWN]))
    assert (outcome.kind, outcome.attempts, outcome.stopped_by) == (K.TRANSIENT_FAILURE, 2, "deadline")
    assert outcome.error is DOWN


def test_a_cut_attempt_keeps_the_last_real_error_as_cause(colour, guard_of, clock):
    guard = guard_of(Timeout(total=5), Retry(attempts=9, base=0))
    outcome = colour.run(guard, colour.fn([DOWN, Slow(clock, 60, "up")]))
    assert (outcome.kind, outcome.attempts) == (K.TIMEOUT, 2)
    assert outcome.error.__cause__ is DOWN


def test_an_attempt_over_its_time_is_retried(colour, guard_of, clock):
    fn = colour.fn([Slow(clock, 60, "slow"), "up"])
    outcome = colour.run(guard_of(Timeout(attempt=5), Retry(attempts=2, base=0)), fn)
    assert (outcome.value, outcome.attempts, fn.calls) == ("up", 2, 2)


def test_an_attempt_over_its_time_counts_against_the_breaker(colour, guard_of, clock):
    guard = guard_of(Timeout(attempt=5), Breaker(consecutive(1)))
    assert colour.run(guard, colour.fn([Slow(clock, 60, "slow")])).kind is K.TIMEOUT
    assert guard.circuit.state == "open"


def test_a_total_limit_that_cuts_the_call_counts_against_the_breaker(colour, guard_of, clock):
    guard = guard_of(Timeout(total=5), Breaker(consecutive(1)))
    assert colour.run(guard, colour.fn([Slow(clock, 60, "slow")])).kind is K.TIMEOUT
    if colour.is_async:
        assert guard.circuit.state == "open"


def test_backoff_lives_under_the_total_limit(colour, guard_of, clock):
    colour.run(guard_of(Timeout(total=5), Retry(attempts=9, base=10, jitter="none")), colour.fn([DOWN]))
    assert clock.monotonic() == 1000


def test_a_reserved_turn_lives_under_the_total_limit(colour, guard_of, clock):
    guard = guard_of(Timeout(total=5), RateLimit(0.1, max_wait=60))
    assert colour.run(guard, colour.fn(["up"])).value == "up"
    outcome = colour.run(guard, colour.fn(["up"]))
    assert (outcome.kind, outcome.reason) == (K.REJECTED, "rate_limited")
    assert clock.monotonic() == 1000


def test_the_wait_for_a_slot_lives_under_the_total_limit(colour, guard_of, clock):
    guard, gate = guard_of(Timeout(total=5), Bulkhead(1, queue=5)), colour.gate()

    def body():
        yield gate.wait()

    holder = colour.enter(guard, colour.fn(body))
    colour.until(lambda: strategy(guard, "bulkhead").slots.in_use == 1)
    clock.advance(4)  # the holder's own limit is reached before the waiter's
    waiter = colour.start(guard, colour.fn(["up"]))
    colour.until(lambda: len(strategy(guard, "bulkhead").slots.waiting) == 1)
    if colour.is_async:
        colour.advance(clock, 1)
        assert holder.outcome().kind is K.TIMEOUT
        assert waiter.outcome().value == "up"
    else:
        colour.advance(clock, 5)
        assert waiter.outcome().kind in (K.REJECTED, K.TIMEOUT)
        gate.open()
        assert holder.outcome().kind is K.TIMEOUT
    assert strategy(guard, "bulkhead").slots.in_use == 0


def test_a_fallback_is_ended_by_the_callers_deadline(colour, guard_of, clock):
    guard = guard_of(Fallback(colour.fn([Slow(clock, 60, "spare")])))
    with deadline(5, clock=clock):
        outcome = colour.run(guard, colour.fn([DOWN]))
    assert outcome.kind is K.TIMEOUT
    if colour.is_async:
        assert clock.monotonic() == 1005


def strategy(guard, kind):
    [found] = [each for each in guard.plan.strategies if each.kind == kind]
    return found


class Late:
    """A strategy that uses up time before it goes on."""

    kind = "custom"

    def __init__(self, clock, seconds):
        self.clock = clock
        self.seconds = seconds

    async def execute(self, nxt, ctx):
        self.clock.advance(self.seconds)
        return await nxt()


def test_a_timeout_with_no_time_left_does_not_call_and_says_so(guard_of, clock):
    def fn() -> None:
        pytest.fail("no time was left")

    with deadline(5, clock=clock):
        outcome = guard_of(Late(clock, 6), Breaker(consecutive(1)), Timeout(attempt=3)).run(fn)
    assert outcome.kind is K.TIMEOUT
    assert outcome.metadata["started"] is False
    assert outcome.attempts == 0


def test_a_timeout_that_never_started_is_neutral_for_the_breaker(guard_of, clock):
    guard = guard_of(Late(clock, 6), Breaker(consecutive(1)), Timeout(attempt=3))
    with deadline(5, clock=clock):
        guard.run(lambda: None)
    assert guard.circuit.state == "closed"
    assert guard.circuit.look("failure_count") == 0


def test_an_abandoned_sync_call_returns_on_time(clock, path, guard_of):
    release, ran_in = threading.Event(), []

    def fn() -> str:
        ran_in.append(threading.current_thread())
        release.wait(10)
        return "too late"

    guard = guard_of(Timeout(total=5, abandon=True))
    mover = threading.Thread(target=lambda: (_wait_for(lambda: ran_in), clock.advance(5)))
    mover.start()
    outcome = guard.run(fn)
    mover.join()
    assert (outcome.kind, outcome.late) == (K.TIMEOUT, False)
    assert ran_in[0] is not threading.current_thread()
    assert strategy(guard, "timeout").strays == 1
    release.set()
    ran_in[0].join(5)
    assert strategy(guard, "timeout").strays == 0


def _wait_for(condition):
    from tests.guard.colours import SyncColour

    SyncColour().until(lambda: bool(condition()))


def test_an_abandoned_attempt_counts_as_one_and_its_late_end_changes_nothing(guard_of, clock):
    release, ran = threading.Event(), []

    def fn() -> str:
        ran.append(threading.current_thread())
        if len(ran) == 1:
            release.wait(10)
            raise DOWN
        return "up"

    guard = guard_of(Timeout(attempt=5, abandon=True), Retry(attempts=2, base=0), Breaker(consecutive(9)))
    mover = threading.Thread(target=lambda: (_wait_for(lambda: ran), clock.advance(5)))
    mover.start()
    outcome = guard.run(fn)
    mover.join()
    release.set()
    ran[0].join(5)
    assert (outcome.value, outcome.attempts) == ("up", 2)
    assert guard.circuit.look("failure_count") == 0  # one timeout, and then a success


def test_a_call_that_was_abandoned_every_time_tells_how_often_it_ran(guard_of, clock):
    release, ran = threading.Event(), []

    def fn() -> None:
        ran.append(threading.current_thread())
        release.wait(10)

    guard = guard_of(Timeout(attempt=5, abandon=True), Retry(attempts=2, base=0))
    mover = threading.Thread(target=lambda: [(_wait_for(lambda n=n: len(ran) > n), clock.advance(5)) for n in range(2)])
    mover.start()
    outcome = guard.run(fn)
    mover.join()
    release.set()
    for thread in ran:
        thread.join(5)
    assert (outcome.kind, outcome.attempts) == (K.TIMEOUT, 2)
    assert [attempt.kind for attempt in outcome.metadata["trail"]] == [K.TIMEOUT, K.TIMEOUT]


def test_an_abandoned_call_that_is_quick_enough_is_an_ordinary_one(guard_of, clock):
    assert guard_of(Timeout(total=5, abandon=True)).run(lambda: "up").value == "up"
    assert guard_of(Timeout(total=5, abandon=True)).run(lambda: 1 / 0).detail == "ZeroDivisionError: division by zero"


def test_an_abandoned_call_sees_the_callers_context(guard_of, clock):
    guard = guard_of(Timeout(total=5, abandon=True), name="op")
    seen = guard.call(lambda: (current_context().operation_key, remaining_time()))
    assert seen == ("op", 5)


def test_an_abandoned_async_call_is_cut_like_any_other(clock, guard_of):
    async def fn() -> None:
        await clock.asleep(60)

    assert asyncio.run(guard_of(Timeout(total=5, abandon=True)).arun(fn)).kind is K.TIMEOUT


def test_a_timeout_is_an_event(colour, guard_of, clock, recorder):
    guard = guard_of(Timeout(total=5))
    guard.telemetry.register(recorder)
    colour.run(guard, colour.fn([Slow(clock, 60, "slow")]))
    [event] = recorder.of(TimedOut)
    assert event.limit == 5


@pytest.mark.parametrize("more", [(), (Retry(),), (Retry(), Breaker())], ids=["alone", "retry", "breaker"])
def test_who_begins_to_listen_during_a_call_hears_of_its_timeout_once(colour, guard_of, clock, recorder, more):
    guard = guard_of(Timeout(total=5), *more)

    def body():
        guard.telemetry.register(recorder)
        yield colour.sleep(clock, 60)

    outcome = colour.run(guard, colour.fn(body))
    assert [(event.kind, event.limit) for event in recorder.of(TimedOut)] == [("total", 5)]
    assert str(outcome.error).startswith("x: the total time ran out")


def test_the_seeds_strategy_bounds_a_call(colour, guard_of, clock):
    outcome = colour.run(guard_of(TimeoutStrategy(timeout_s=5)), colour.fn([Slow(clock, 60, "slow")]))
    assert outcome.kind is K.TIMEOUT


def test_the_callers_cancellation_is_not_mistaken_for_a_limit(clock, path, guard_of):
    async def main() -> None:
        guard = guard_of(Timeout(total=5))
        task = asyncio.ensure_future(guard.arun(clock.asleep, 60))
        await asyncio.sleep(0)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    asyncio.run(main())


def test_a_cancellation_together_with_the_limit_stays_a_cancellation(clock, path, guard_of):
    frozen = ManualClock(auto=False)

    async def main() -> None:
        guard = guard_of(Timeout(total=5), clock=frozen)
        task = asyncio.ensure_future(guard.arun(frozen.asleep, 60))
        await asyncio.sleep(0)
        frozen.advance(5)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    asyncio.run(main())


def test_a_timeout_inside_asyncios_own_timeout_leaves_that_one_intact(clock, path, guard_of):
    async def main() -> str:
        guard = guard_of(Timeout(total=5))
        async with asyncio.timeout(30):
            outcome = await guard.arun(clock.asleep, 60)
            assert outcome.kind is K.TIMEOUT
            await asyncio.sleep(0)
        return "done"

    assert asyncio.run(main()) == "done"


def test_asyncios_own_timeout_around_a_guard_cuts_it(clock, path, guard_of):
    async def main() -> None:
        guard = guard_of(Timeout(total=5))
        with pytest.raises(TimeoutError) as caught:
            async with asyncio.timeout(0):
                await guard.arun(asyncio.sleep, 60)
        assert not isinstance(caught.value, GuardTimeout)

    asyncio.run(main())


def test_one_guard_with_a_limit_serves_many_loops_one_after_another(clock, path, guard_of):
    guard = guard_of(Timeout(total=5), Breaker(consecutive(9)))
    assert [asyncio.run(guard.arun(clock.asleep, 60)).kind for _ in range(3)] == [K.TIMEOUT] * 3
    assert isinstance(strategy(guard, "breaker"), CircuitBreakerStrategy)
    assert guard.circuit.look("failure_count") == 3


@pytest.mark.parametrize("gives_in_at", [2, 3])
def test_a_function_that_goes_on_after_its_attempt_was_cut_is_cut_again_by_the_total(guard_of, clock, gives_in_at):
    guard = guard_of(Timeout(total=9, attempt=4), Retry(attempts=3))
    cuts: list[float] = []

    async def stubborn() -> str:
        until = clock.monotonic() + 60
        while (left := until - clock.monotonic()) > 0:
            try:
                await clock.asleep(left)
            except asyncio.CancelledError:
                cuts.append(clock.monotonic())
                if len(cuts) == gives_in_at:
                    raise
        return "late"

    async def main() -> Any:
        outcome = await guard.arun(stubborn)
        assert (task := asyncio.current_task()) is not None
        assert task.cancelling() == 0
        return outcome

    began = clock.monotonic()
    outcome = asyncio.run(main())
    assert (outcome.kind, outcome.error.limit) == (K.TIMEOUT, 9)
    assert [at - began for at in cuts] == [4, 9]
    assert clock.monotonic() - began == (9 if gives_in_at == 2 else 60)
