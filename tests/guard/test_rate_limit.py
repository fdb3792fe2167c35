"""Rate limiter: who gets a token, who waits for a turn, and when to come back."""

from __future__ import annotations

import asyncio
import dis

import pytest

from holdfast import (
    Breaker,
    LoadShed,
    OutcomeKind,
    RateLimit,
    RateLimited,
    RateLimiterStrategy,
    ResilienceContext,
    Retry,
    TypedKey,
    consecutive,
    current_context,
    deadline,
    use_context,
)
from holdfast.guard.rate_limit import UNDIVIDED
from holdfast.testing.clock import ManualClock
from tests.guard.colours import Interrupted

K = OutcomeKind
DOWN = OSError("down")
TENANT = TypedKey[str]("tenant")


@pytest.fixture
def up(colour):
    return colour.fn(["up"])


def kinds(colour, guard, fn, times):
    return [colour.run(guard, fn).kind.value for _ in range(times)]


def test_a_bucket_starts_full(colour, guard_of, up):
    assert kinds(colour, guard_of(RateLimit(1, burst=3)), up, 4) == ["success"] * 3 + ["rejected"]
    assert up.calls == 3


def test_a_refusal_tells_when_the_next_token_comes(colour, guard_of, clock, up):
    guard = guard_of(RateLimit(2, burst=1))
    colour.run(guard, up)
    clock.advance(0.1)
    outcome = colour.run(guard, up)
    assert (outcome.kind, outcome.reason, outcome.attempts) == (K.REJECTED, "rate_limited", 0)
    assert outcome.retry_after == pytest.approx(0.4)
    assert isinstance(outcome.error, RateLimited)
    assert outcome.error.retry_after == outcome.retry_after


def test_a_caller_that_waits_exactly_as_told_finds_its_token(colour, guard_of, clock, up):
    guard = guard_of(RateLimit(3, burst=1))
    for _ in range(20):
        assert colour.run(guard, up).value == "up"
        clock.advance(colour.run(guard, up).retry_after)


def test_tokens_come_back_with_time_up_to_the_burst(colour, guard_of, clock, up):
    guard = guard_of(RateLimit(2, burst=3))
    kinds(colour, guard, up, 3)
    clock.advance(1)
    assert kinds(colour, guard, up, 3) == ["success", "success", "rejected"]
    clock.advance(60)
    assert kinds(colour, guard, up, 4) == ["success"] * 3 + ["rejected"]


def test_smooth_is_one_per_interval(colour, guard_of, clock, up):
    guard = guard_of(RateLimit(10))
    seen = []
    for _ in range(4):
        seen += kinds(colour, guard, up, 2)
        clock.advance(0.1)
    assert seen == ["success", "rejected"] * 4


def test_bursty_is_n_per_period(colour, guard_of, clock, up):
    guard = guard_of(RateLimit(3, per=60))
    assert kinds(colour, guard, up, 4) == ["success"] * 3 + ["rejected"]
    clock.advance(59.9)
    assert colour.run(guard, up).retry_after == pytest.approx(0.1)
    clock.advance(0.1)
    assert kinds(colour, guard, up, 4) == ["success"] * 3 + ["rejected"]


def test_without_max_wait_nobody_queues(colour, guard_of, clock, up):
    guard = guard_of(RateLimit(1))
    kinds(colour, guard, up, 5)
    assert clock.slept == []


def test_with_max_wait_a_call_waits_for_its_turn(colour, guard_of, clock, up):
    guard = guard_of(RateLimit(2, max_wait=10))
    assert kinds(colour, guard, up, 3) == ["success"] * 3
    assert clock.slept == pytest.approx([0.5, 0.5])
    assert clock.monotonic() == pytest.approx(1001)


def test_a_turn_beyond_max_wait_is_refused_and_takes_nothing(guard_of):
    guard = guard_of(RateLimit(1, max_wait=1.5), clock=(clock := ManualClock(auto=False)))

    async def main() -> list[object]:
        async def up() -> float:
            return clock.monotonic()

        await guard.arun(up)
        waiting = [asyncio.ensure_future(guard.arun(up)) for _ in range(3)]
        await clock.advance_async(0)
        done = [task.done() for task in waiting]
        await clock.advance_async(1)
        first = await waiting[0]
        refused = await waiting[1]
        return [done, first.value, refused.reason, refused.retry_after]

    done, first, reason, retry_after = asyncio.run(main())
    assert done == [False, True, True]
    assert first == 1001
    assert reason == "rate_limited"
    assert retry_after == pytest.approx(2)


def test_reserved_turns_are_first_come_first_served(guard_of):
    guard, order = guard_of(RateLimit(1, max_wait=60), clock=(clock := ManualClock(auto=False))), []

    async def main() -> None:
        async def named(name: int) -> None:
            order.append((name, clock.monotonic()))

        tasks = [asyncio.ensure_future(guard.arun(named, name)) for name in range(4)]
        await clock.advance_async(10)
        await asyncio.gather(*tasks)

    asyncio.run(main())
    assert order == [(0, 1000), (1, 1001), (2, 1002), (3, 1003)]


def test_a_cancelled_wait_gives_its_token_back(guard_of):
    guard = guard_of(RateLimit(1, max_wait=60), clock=(clock := ManualClock(auto=False)))

    async def main() -> list[float]:
        async def now() -> float:
            return clock.monotonic()

        await guard.arun(now)
        cancelled = asyncio.ensure_future(guard.acall(now))
        await clock.advance_async(0)
        cancelled.cancel()
        with pytest.raises(asyncio.CancelledError):
            await cancelled
        next_one = asyncio.ensure_future(guard.acall(now))
        await clock.advance_async(10)
        return await next_one

    assert asyncio.run(main()) == 1001


@pytest.mark.parametrize("step", [DOWN, TypeError("bug"), Interrupted()], ids=repr)
def test_a_failed_call_does_not_give_its_token_back(colour, guard_of, up, step):
    guard = guard_of(RateLimit(1, burst=1))
    try:
        colour.run(guard, colour.fn([step]))
    except Interrupted:
        pass
    assert colour.run(guard, up).reason == "rate_limited"


def test_a_retried_call_takes_one_token(colour, guard_of):
    guard = guard_of(RateLimit(1, burst=2), Retry(attempts=5, base=0))
    assert colour.run(guard, colour.fn([DOWN])).attempts == 5
    assert colour.run(guard, colour.fn(["up"])).value == "up"


def test_a_refusal_is_not_retried(colour, guard_of, up):
    guard = guard_of(RateLimit(1), Retry(attempts=5, base=0))
    colour.run(guard, up)
    assert colour.run(guard, up).kind is K.REJECTED
    assert up.calls == 1


def test_a_refusal_is_neutral_for_the_breaker(colour, guard_of, up):
    guard = guard_of(RateLimit(1), Breaker(consecutive(1)))
    kinds(colour, guard, up, 5)
    assert guard.circuit.state == "closed"


def test_a_call_that_an_open_circuit_refuses_has_taken_its_token(colour, guard_of, up):
    guard = guard_of(RateLimit(1, burst=2), Breaker(consecutive(1)))
    colour.run(guard, colour.fn([DOWN]))
    assert colour.run(guard, up).reason == "circuit_open"
    assert colour.run(guard, up).reason == "rate_limited"


def test_a_wait_that_does_not_fit_the_deadline_is_refused_at_once(colour, guard_of, clock, up):
    guard = guard_of(RateLimit(0.1, max_wait=60))
    colour.run(guard, up)
    with deadline(5, clock=clock):
        outcome = colour.run(guard, up)
    assert (outcome.kind, outcome.reason) == (K.REJECTED, "rate_limited")
    assert outcome.retry_after == pytest.approx(10)
    assert clock.slept == []


def test_a_limit_is_split_by_a_key_from_the_context(colour, guard_of, up):
    guard = guard_of(RateLimit(1, by=lambda ctx: ctx.get(TENANT)))

    def call_for(tenant: str) -> str:
        ctx = ResilienceContext("request")
        ctx.set(TENANT, tenant)
        with use_context(ctx):
            return colour.run(guard, up).kind.value

    assert [call_for(name) for name in "aabbc"] == ["success", "rejected", "success", "rejected", "success"]


def test_only_so_many_partitions_are_remembered(colour, guard_of, up):
    keys = iter(range(20_000))
    guard = guard_of(RateLimit(1, by=lambda ctx: next(keys)))
    for _ in range(10_500):
        guard.run(lambda: None)
    [limiter] = guard.plan.strategies
    assert len(limiter.bucket._parts) <= 10_000


def test_a_key_function_that_raises_fails_the_call_and_not_the_program(colour, guard_of, up):
    def broken(ctx):
        raise ValueError("no tenant")

    outcome = colour.run(guard_of(RateLimit(1, by=broken)), up)
    assert outcome.kind is K.TERMINAL_FAILURE
    assert isinstance(outcome.error, ValueError)


def test_a_refusal_is_a_load_shed_with_retry_after(colour, guard_of, up, recorder):
    guard = guard_of(RateLimit(2), name="api")
    colour.run(guard, up)
    guard.telemetry.register(recorder)
    colour.run(guard, up)
    [event] = recorder.of(LoadShed)
    assert (event.name, event.reason) == ("api", "rate_limited")
    assert event.retry_after == pytest.approx(0.5)


def test_a_limiter_may_be_shared_by_instance(colour, guard_of, up):
    shared = RateLimiterStrategy("family", rate_per_s=1, burst=2)
    one, two = guard_of(shared, name="one"), guard_of(shared, name="two")
    assert [colour.run(guard, up).kind.value for guard in (one, two, one)] == ["success", "success", "rejected"]


def test_the_seeds_strategy_allows_ten_at_once_by_default(colour, guard_of, up):
    assert kinds(colour, guard_of(RateLimiterStrategy("api")), up, 11) == ["success"] * 10 + ["rejected"]


CALLS_NOTHING = (
    "LOAD_", "STORE_", "BINARY_OP", "COMPARE_OP", "POP_JUMP_FORWARD_", "POP_JUMP_IF_", "JUMP_FORWARD", "COPY", "SWAP",
)  # fmt: skip


@pytest.mark.parametrize("is_async", [False, True], ids=["sync", "async"])
def test_no_other_thread_runs_while_the_fused_path_takes_a_token(guard_of, is_async):
    # CPython changes threads where a function is called or begins, and where a loop goes round; nowhere else.
    def fn() -> str: ...

    async def afn() -> str: ...

    guarded = guard_of(RateLimit(1.0, burst=3), fused=True)(afn if is_async else fn)
    code = list(dis.get_instructions(guarded))
    if not UNDIVIDED:
        assert "hold_" in guarded.__holdfast_source__
        return
    begins = next(i for i, step in enumerate(code) if step.argval == "busy")
    ends = [i for i, step in enumerate(code) if step.opname == "STORE_ATTR" and step.argval == "taken"]
    assert len(ends) == 2  # from a full bucket, and from what is left of the burst
    for end in ends:
        met = on_the_way(code, begins, end)
        assert {"LOAD_ATTR", "STORE_ATTR", "BINARY_OP"} <= met
        assert not [name for name in met if not name.startswith(CALLS_NOTHING)]


def on_the_way(code, begins, end):
    """The instructions on every way from the first to the last; to leave for `divert` is no such way."""
    offsets = {step.offset: i for i, step in enumerate(code)}
    met, ways = set(), [(begins,)]
    while ways:
        way = ways.pop()
        step = code[way[-1]]
        if way[-1] == end:
            met |= {code[i].opname for i in way}
        elif way[-1] < end and way[-1] not in way[:-1] and not step.opname.startswith(("RETURN", "RAISE")):
            ways += [(*way, offsets[step.argval])] if "JUMP" in step.opname else []
            ways += [(*way, way[-1] + 1)] if step.opname != "JUMP_FORWARD" else []
    return met


def test_the_fused_path_keeps_off_a_bucket_that_somebody_is_busy_with(colour, guard_of):
    guard = guard_of(RateLimit(1.0, burst=3), fused=True)
    limiter = guard.plan.first(RateLimiterStrategy).bucket

    def look():
        return current_context() is not None  # there is one on the general path only

    fn = colour.fn(look)
    assert colour.run(guard, fn).value is False
    with limiter._alone():
        assert colour.run(guard, fn).value is True
    assert colour.run(guard, fn).value is False
    assert colour.run(guard, fn).kind is K.REJECTED
