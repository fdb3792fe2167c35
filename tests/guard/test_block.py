"""The block form: a guard's attempts as a loop, with everything the guard does to a call."""

from __future__ import annotations

import asyncio
import gc
import traceback
from typing import Any

import pytest

from holdfast.core.context import CURRENT, current_context, deadline, remaining_time
from holdfast.core.outcome import OutcomeKind
from holdfast.errors import CircuitOpen, DeadlineExpired, GuardTimeout, OutcomeError, PolicyError, RateLimited
from holdfast.guard.bulkhead import Bulkhead, BulkheadStrategy
from holdfast.guard.fallback import Fallback
from holdfast.guard.guard import Guard
from holdfast.guard.hedge import Hedge
from holdfast.guard.rate_limit import RateLimit
from holdfast.guard.timeout import Timeout
from holdfast.machine.breaker import Breaker
from holdfast.machine.retry import Retry
from holdfast.machine.trip import consecutive
from holdfast.telemetry.events import AttemptCompleted, CallCompleted, CallInterrupted
from holdfast.telemetry.hub import Hub
from holdfast.telemetry.metrics import InMemoryMetrics
from holdfast.testing.clock import ManualClock
from tests.garbage import garbage_of
from tests.guard.colours import Interrupted, Slow

K = OutcomeKind
DOWN = OSError("down")


@pytest.fixture
def hub(clock: ManualClock) -> Hub:
    return Hub(clock=clock)


@pytest.fixture
def guarded(clock: ManualClock, hub: Hub) -> Any:
    def make(*policies: Any, **options: Any) -> Guard:
        return Guard("x", *policies, **{"clock": clock, "telemetry": hub, "rng": lambda: 0.5, **options})

    return make


def run_block(colour: Any, guard: Guard, fn: Any) -> Any:
    """Run `fn` as the body of a guarded loop; what the loop came to."""
    attempts = guard.attempts()
    if not colour.is_async:
        for attempt in attempts:
            with attempt:
                attempt.result = fn(attempt) if getattr(fn, "takes_attempt", False) else fn()
        return attempts.outcome

    async def main() -> None:
        async for attempt in attempts:
            with attempt:
                attempt.result = await (fn(attempt) if getattr(fn, "takes_attempt", False) else fn())

    colour.plain(main)
    return attempts.outcome


def watching(colour: Any, body: Any) -> Any:
    """A body that is given its attempt."""
    fn = colour.fn(body)
    fn.takes_attempt = True
    return fn


def test_a_block_that_succeeds_runs_once(colour, guarded):
    fn = colour.fn(["done"])
    outcome = run_block(colour, guarded(Retry()), fn)
    assert (outcome.kind, outcome.value, outcome.attempts) == (K.SUCCESS, "done", 1)
    assert fn.calls == 1


def test_a_block_is_repeated_until_it_succeeds(colour, guarded, clock):
    fn = colour.fn([DOWN, DOWN, "done"])
    outcome = run_block(colour, guarded(Retry(attempts=3, base=2, jitter="none")), fn)
    assert (outcome.kind, outcome.attempts) == (K.SUCCESS, 3)
    assert clock.slept == [2, 4]


def test_attempts_are_numbered_from_zero(colour, guarded):
    numbers = []

    def body(attempt: Any) -> None:
        numbers.append(attempt.number)
        if attempt.number < 2:
            raise DOWN

    run_block(colour, guarded(Retry(attempts=3, base=0)), watching(colour, body))
    assert numbers == [0, 1, 2]


def test_the_last_failure_is_raised_as_itself_with_its_story(colour, guarded):
    error = OSError("down for good")
    fn = colour.fn([error])
    with pytest.raises(OSError, match="down for good") as raised:
        run_block(colour, guarded(Retry(attempts=3, base=0)), fn)
    assert raised.value is error
    assert fn.calls == 3
    assert any("3 attempts" in note for note in error.__notes__)


def test_the_traceback_of_a_failure_shows_the_block_and_not_the_strategies(colour, guarded):
    with pytest.raises(OSError) as raised:  # noqa: PT011
        run_block(colour, guarded(Retry(attempts=2, base=0), Breaker(), Timeout(total=5)), colour.fn([OSError("down")]))
    files = {frame.filename.rpartition("/")[2] for frame in traceback.extract_tb(raised.value.__traceback__)}
    assert files & {"call.py", "retry.py", "circuit.py", "timeout.py", "block.py"} == set()


def test_a_refusal_is_raised_before_the_block_runs(colour, guarded):
    guard = guarded(Retry(attempts=2, base=0), Breaker(consecutive(1)))
    with pytest.raises(CircuitOpen):
        run_block(colour, guard, colour.fn([DOWN]))
    fn = colour.fn(["never"])
    with pytest.raises(CircuitOpen) as raised:
        run_block(colour, guard, fn)
    assert fn.calls == 0
    assert raised.value.__cause__ is DOWN


def test_a_loop_that_was_refused_is_over(guarded):
    guard = guarded(Breaker())
    guard.circuit.command("isolate")
    loop = iter(guard.attempts())
    with pytest.raises(CircuitOpen):
        next(loop)
    assert list(loop) == []


def test_a_circuit_that_opens_between_attempts_ends_the_loop(colour, guarded):
    fn = colour.fn([DOWN])
    with pytest.raises(CircuitOpen) as raised:
        run_block(colour, guarded(Retry(attempts=5, base=0), Breaker(consecutive(2))), fn)
    assert fn.calls == 2
    assert raised.value.__cause__ is DOWN


def test_a_rate_limit_applies_to_blocks(colour, guarded):
    guard = guarded(RateLimit(1, burst=1))
    run_block(colour, guard, colour.fn([1]))
    with pytest.raises(RateLimited):
        run_block(colour, guard, colour.fn([1]))


def test_an_expired_deadline_refuses_a_block(colour, guarded, clock):
    fn = colour.fn(["never"])
    with deadline(-1, clock=clock), pytest.raises(DeadlineExpired):
        run_block(colour, guarded(Retry()), fn)
    assert fn.calls == 0


def test_an_attempt_knows_what_is_left_of_its_time(colour, guarded, clock):
    seen = []

    def body(attempt: Any) -> None:
        seen.append((attempt.remaining, remaining_time()))
        clock.advance(1)
        seen.append((attempt.remaining, remaining_time()))

    run_block(colour, guarded(Timeout(total=10, attempt=4)), watching(colour, body))
    assert seen == [(4, 4), (3, 3)]


def test_an_attempt_without_a_limit_has_all_the_time(colour, guarded):
    seen = []
    run_block(colour, guarded(Retry()), watching(colour, lambda attempt: seen.append(attempt.remaining)))
    assert seen == [float("inf")]


def test_a_block_that_takes_too_long_is_a_timeout(colour, guarded, clock):
    with pytest.raises(GuardTimeout):
        run_block(colour, guarded(Timeout(total=2)), colour.fn([Slow(clock, 5, "late")]))


def test_an_attempt_that_takes_too_long_is_repeated(colour, guarded, clock):
    guard = guarded(Timeout(attempt=2), Retry(attempts=2, base=0))
    fn = colour.fn([Slow(clock, 5), "in time"])
    assert run_block(colour, guard, fn).value == "in time"
    assert fn.calls == 2


async def test_an_async_block_is_cut_at_its_limit_and_the_task_lives_on(guarded, clock):
    began, ended = clock.monotonic(), []
    with pytest.raises(GuardTimeout):
        async for attempt in guarded(Timeout(total=2)).attempts():
            with attempt:
                try:
                    await clock.asleep(60)
                finally:
                    ended.append(clock.monotonic() - began)
    assert ended == [2]
    task = asyncio.current_task()
    assert task is not None
    assert task.cancelling() == 0
    await asyncio.sleep(0)


async def test_the_total_limit_also_ends_a_pause_between_attempts(guarded, clock):
    guard = guarded(Timeout(total=5), Retry(attempts=9, base=1, cap=3, jitter="none"))
    began = clock.monotonic()
    with pytest.raises(GuardTimeout) as raised:
        async for attempt in guard.attempts():
            with attempt:
                raise DOWN
    assert clock.monotonic() - began <= 5
    assert raised.value.__cause__ is DOWN


async def test_a_time_limit_does_not_cancel_code_beside_the_block(guarded, clock):
    done = []
    with pytest.raises(GuardTimeout) as raised:
        async for attempt in guarded(Timeout(total=5), Retry(attempts=9, base=1, jitter="none")).attempts():
            with attempt:
                raise DOWN
            await clock.asleep(60)
            done.append(clock.monotonic())
    assert len(done) == 1
    assert raised.value.__cause__ is DOWN
    task = asyncio.current_task()
    assert task is not None
    assert task.cancelling() == 0


async def test_time_spent_before_the_block_counts_but_is_not_cut(guarded, clock):
    began, cut = clock.monotonic(), []
    with pytest.raises(GuardTimeout):
        async for attempt in guarded(Timeout(total=5)).attempts():
            await clock.asleep(60)
            with attempt:
                try:
                    await clock.asleep(60)
                finally:
                    cut.append(clock.monotonic() - began)
    assert cut == [60]
    await asyncio.sleep(0)


async def test_a_block_that_does_not_wait_after_its_time_is_late_and_harms_nobody(guarded, clock):
    with pytest.raises(GuardTimeout):
        async for attempt in guarded(Timeout(total=5)).attempts():
            await clock.asleep(60)
            with attempt:
                pass
    await clock.asleep(1)
    await asyncio.sleep(0)


async def test_a_cancelled_block_is_neither_repeated_nor_counted(guarded, hub, recorder):
    hub.register(recorder)
    guard = guarded(Retry(), Breaker(consecutive(1)), Bulkhead(1), Timeout(total=60))
    turns = []

    async def work() -> None:
        async for attempt in guard.attempts():
            with attempt:
                turns.append(attempt.number)
                await asyncio.Event().wait()

    task = asyncio.ensure_future(work())
    await asyncio.sleep(0)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert turns == [0]
    assert slots(guard).in_use == 0
    assert guard.circuit.look("failure_count") == 0
    assert [event.reason for event in recorder.of(CallInterrupted)] == ["cancelled"]


async def test_a_task_that_is_cancelled_between_attempts_gives_everything_back(hub):
    clock = ManualClock(auto=False)
    guard = Guard("x", Retry(base=10, jitter="none"), Bulkhead(1), clock=clock, telemetry=hub)

    async def work() -> None:
        async for attempt in guard.attempts():
            with attempt:
                raise DOWN

    task = asyncio.ensure_future(work())
    await clock.advance_async(1)
    assert slots(guard).in_use == 1
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert slots(guard).in_use == 0


def test_an_interruption_passes_and_gives_everything_back(colour, guarded):
    guard = guarded(Retry(), Bulkhead(1), Breaker(consecutive(1)), Fallback(value="fallback"))
    fn = colour.fn([Interrupted()])
    with pytest.raises(Interrupted):
        run_block(colour, guard, fn)
    assert fn.calls == 1
    assert slots(guard).in_use == 0
    assert guard.circuit.look("failure_count") == 0


def test_a_passthrough_exception_passes_untouched(colour, guarded):
    error = KeyError("signal")
    fn = colour.fn([error])
    with pytest.raises(KeyError) as raised:
        run_block(colour, guarded(Retry(), Fallback(value=1), passthrough=(KeyError,)), fn)
    assert raised.value is error
    assert fn.calls == 1


def test_a_terminal_failure_is_not_repeated(colour, guarded):
    fn = colour.fn([TypeError("a bug")])
    with pytest.raises(TypeError):
        run_block(colour, guarded(Retry()), fn)
    assert fn.calls == 1


def test_a_fallback_ends_the_loop_in_peace(colour, guarded):
    outcome = run_block(colour, guarded(Retry(attempts=2, base=0), Fallback(value="fallback")), colour.fn([DOWN]))
    assert outcome.value == "fallback"
    assert outcome.metadata["original"].error is DOWN


def test_a_result_may_be_judged(colour, guarded):
    guard = guarded(Retry(attempts=3, base=0), result_classifier=lambda n: K.SUCCESS if n > 1 else K.TRANSIENT_FAILURE)
    outcome = run_block(colour, guard, colour.fn([1, 2]))
    assert (outcome.value, outcome.attempts) == (2, 2)
    with pytest.raises(OutcomeError):
        run_block(colour, guard, colour.fn([1]))


def test_the_context_is_visible_in_the_block_and_gone_after_it(colour, guarded):
    keys = []
    run_block(colour, guarded(Retry()), colour.fn(lambda: keys.append(current_context().operation_key)))
    assert keys == ["x"]
    assert CURRENT.get() is None


def test_a_guard_inside_a_block_defers_its_retries(colour, guarded):
    inner, fn = guarded(Retry(attempts=3, base=0)), colour.fn([DOWN])

    def body():
        yield colour.inner_call(inner, fn)

    with pytest.raises(OSError, match="down"):
        run_block(colour, guarded(Retry(attempts=2, base=0)), colour.fn(body))
    assert fn.calls == 2


def test_the_trail_tells_how_long_each_block_took(colour, guarded, clock):
    guard = guarded(Retry(attempts=2, base=2, jitter="none"), Fallback(value=0))
    outcome = run_block(colour, guard, colour.fn([Slow(clock, 3, DOWN), Slow(clock, 1, DOWN)]))
    trail = outcome.metadata["original"].metadata["trail"]
    assert [(attempt.delay, attempt.service) for attempt in trail] == [(0, 3), (2, 1)]


def test_attempts_and_calls_are_reported_like_those_of_a_function(colour, guarded, hub, recorder):
    hub.register(recorder)
    run_block(colour, guarded(Retry(attempts=3, base=0)), colour.fn([DOWN, "done"]))
    assert [event.outcome for event in recorder.of(AttemptCompleted)] == [K.TRANSIENT_FAILURE, K.SUCCESS]
    assert [event.outcome for event in recorder.of(CallCompleted)] == [K.SUCCESS]


def test_a_custom_strategy_surrounds_the_block(colour, guarded):
    log = []

    class Tracer:
        async def execute(self, nxt: Any, ctx: Any) -> Any:
            log.append("before")
            outcome = await nxt()
            log.append(outcome.kind.value)
            return outcome

    run_block(colour, guarded(Tracer()), colour.fn(lambda: log.append("block")))
    assert log == ["before", "block", "success"]


def test_an_override_applies_to_a_block(colour, guarded):
    guard, fn = guarded(Retry(attempts=3, base=0)), colour.fn([DOWN])
    with guard.override(Retry(attempts=1)), pytest.raises(OSError, match="down"):
        run_block(colour, guard, fn)
    assert fn.calls == 1


def test_a_replaced_policy_applies_to_the_next_loop(colour, guarded):
    guard, fn = guarded(Retry(attempts=1)), colour.fn([DOWN])
    guard.replace(Retry(attempts=2, base=0))
    with pytest.raises(OSError, match="down"):
        run_block(colour, guard, fn)
    assert fn.calls == 2


def test_a_switched_off_hub_makes_it_a_plain_block(colour, guarded, hub):
    hub.switch(off=True)
    fn = colour.fn([DOWN])
    with pytest.raises(OSError, match="down"):
        run_block(colour, guarded(Retry(base=0)), fn)
    assert fn.calls == 1


def test_hedging_is_refused_because_a_block_cannot_run_twice_at_a_time(colour, guarded):
    with pytest.raises(PolicyError, match="cannot run twice"):
        run_block(colour, guarded(Hedge()), colour.fn([1]))


def test_abandoning_is_refused_in_a_sync_loop_only(colour, guarded):
    guard = guarded(Timeout(total=5, abandon=True))
    if colour.is_async:
        assert run_block(colour, guard, colour.fn([1])).value == 1
        return
    with pytest.raises(PolicyError, match="abandon"):
        run_block(colour, guard, colour.fn([1]))


def test_returning_from_the_block_is_a_success(colour, guarded, hub):
    metrics = InMemoryMetrics()
    hub.register(metrics)
    guard = guarded(Retry(), Bulkhead(1), Breaker(), Timeout(total=5))

    def fetch() -> str:
        for attempt in guard.attempts():
            with attempt:
                return "fetched"
        raise AssertionError

    async def afetch() -> str:
        async for attempt in guard.attempts():
            with attempt:
                return "fetched"
        raise AssertionError

    assert colour.plain(afetch if colour.is_async else fetch) == "fetched"
    assert slots(guard).in_use == 0
    assert CURRENT.get() is None
    assert metrics.snapshot()["counts_by_operation_outcome"] == {"x/success": 1}


def test_returning_too_late_is_a_timeout_all_the_same(guarded, clock):
    def fetch() -> str:
        for attempt in guarded(Timeout(total=1)).attempts():
            with attempt:
                clock.advance(2)
                return "late"
        raise AssertionError

    with pytest.raises(GuardTimeout):
        fetch()


def leave_sync(guard: Guard, how: str) -> None:
    for attempt in guard.attempts():
        if how == "break before the block":
            break
        with attempt:
            if how == "break in the block":
                break
            if how == "fail first":
                raise DOWN
        if how == "raise after the block":
            raise LookupError


async def leave_async(guard: Guard, how: str) -> None:
    async for attempt in guard.attempts():
        if how == "break before the block":
            break
        async with attempt:
            if how == "break in the block":
                break
        if how == "raise after the block":
            raise LookupError


@pytest.mark.parametrize("how", ["break before the block", "break in the block", "raise after the block"])
def test_leaving_the_loop_early_gives_everything_back(colour, guarded, how):
    guard = guarded(Retry(), Bulkhead(1), Breaker(consecutive(1)), Timeout(total=60, attempt=5))
    try:
        if colour.is_async:
            colour.plain(leave_async, guard, how)
        else:
            leave_sync(guard, how)
    except LookupError:
        pass
    assert slots(guard).in_use == 0
    assert CURRENT.get() is None
    assert guard.circuit.look("failure_count") == 0
    assert run_block(colour, guard, colour.fn(["again"])).value == "again"


async def test_leaving_an_async_loop_early_takes_effect_at_once(guarded):
    guard = guarded(Bulkhead(1), Timeout(total=60))
    async for _ in guard.attempts():
        break
    assert slots(guard).in_use == 0
    assert CURRENT.get() is None


def test_a_probe_that_is_given_up_returns_its_permit(guarded, clock):
    guard = guarded(Breaker(consecutive(1), open_for=30))
    with pytest.raises(OSError, match="down"):
        leave_sync(guard, "fail first")
    clock.advance(30)
    leave_sync(guard, "break before the block")
    leave_sync(guard, "break in the block")
    assert guard.circuit.state == "closed"


def test_a_deadline_between_the_loop_and_the_attempt_does_not_outlive_them(guarded, clock):
    guard = guarded(Retry(attempts=2, base=0))

    def fetch() -> float:
        for attempt in guard.attempts():
            with deadline(2, clock=clock), attempt:
                return remaining_time()
        raise AssertionError

    assert fetch() == 2
    assert CURRENT.get() is None
    for attempt in guard.attempts():
        with deadline(2, clock=clock), attempt:
            pass
    assert CURRENT.get() is None


def test_the_surrounding_context_comes_back_after_the_loop(colour, guarded, clock):
    with deadline(9, clock=clock):
        around = CURRENT.get()
        run_block(colour, guarded(Retry()), colour.fn([1]))
        assert CURRENT.get() is around
    assert CURRENT.get() is None


def test_an_attempt_that_is_passed_over_is_an_error(guarded):
    guard = guarded(Retry(), Bulkhead(1))
    with pytest.raises(RuntimeError, match="with attempt"):
        for _ in guard.attempts():
            pass
    assert slots(guard).in_use == 0


def test_an_attempt_can_be_entered_once(guarded):
    for attempt in guarded(Retry()).attempts():
        with attempt:
            pass
        with pytest.raises(RuntimeError, match="entered once"), attempt:
            pass


def test_a_loop_that_never_begins_holds_nothing(colour, guarded):
    guard = guarded(Retry(), Bulkhead(1))
    attempts = guard.attempts()
    loop = attempts.__aiter__() if colour.is_async else iter(attempts)
    del loop
    gc.collect()
    assert slots(guard).in_use == 0


def test_the_same_attempts_can_be_looped_over_again(guarded):
    attempts = guarded(Retry(attempts=2, base=0)).attempts()
    for _ in range(2):
        numbers = []
        for attempt in attempts:
            with attempt:
                numbers.append(attempt.number)
                if attempt.number == 0:
                    raise DOWN
        assert numbers == [0, 1]


def test_a_strategy_that_really_suspends_needs_an_async_loop(guarded):
    class Suspending:
        async def execute(self, nxt: Any, ctx: Any) -> Any:
            await asyncio.sleep(0)
            return await nxt(ctx)

    guard = guarded(Bulkhead(1), Suspending())
    with pytest.raises(RuntimeError, match="async for"):
        for attempt in guard.attempts():
            with attempt:
                pass
    assert slots(guard).in_use == 0
    assert CURRENT.get() is None


async def test_blocks_of_many_tasks_share_a_bulkhead_and_leak_no_slot(clock, hub):
    guard = Guard("x", Bulkhead(3, queue=100), Retry(attempts=2, base=0), telemetry=hub)
    running = peak = 0

    async def work(number: int) -> None:
        nonlocal running, peak
        async for attempt in guard.attempts():
            with attempt:
                running += 1
                peak = max(peak, running)
                try:
                    await asyncio.sleep(0)
                    if number % 3 == 0 and attempt.number == 0:
                        raise DOWN
                finally:
                    running -= 1

    tasks = [asyncio.ensure_future(work(number)) for number in range(60)]
    for task in tasks[::7]:
        asyncio.get_running_loop().call_soon(task.cancel)
    results = await asyncio.gather(*tasks, return_exceptions=True)
    assert {type(result) for result in results} == {type(None), asyncio.CancelledError}
    assert peak == 3
    assert slots(guard).in_use == 0


def test_a_failed_attempt_leaves_no_cycle_behind(guarded):
    guard = guarded(Retry(attempts=3, base=0), Breaker(consecutive(1000)), Timeout(total=5))

    def fetch() -> None:
        for attempt in guard.attempts():
            with attempt:
                raise OSError("down")

    def fail() -> None:
        try:
            fetch()
        except OSError:
            pass

    assert garbage_of(fail, runs=20) < 20


def slots(guard: Guard) -> Any:
    bulkhead = guard.plan.first(BulkheadStrategy)
    assert bulkhead is not None
    return bulkhead.slots
