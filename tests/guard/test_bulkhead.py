"""Bulkhead: who gets a slot, who waits for one, and that every slot comes back."""

from __future__ import annotations

import asyncio
import threading
from contextvars import copy_context

import pytest

from holdfast import (
    AttemptCompleted,
    Breaker,
    Bulkhead,
    BulkheadFull,
    BulkheadStrategy,
    LoadShed,
    OutcomeKind,
    Retry,
    Timeout,
    consecutive,
    deadline,
    slow_ratio,
)
from holdfast.testing.clock import ManualClock
from tests.guard.colours import AsyncColour, Interrupted, Slow, reached

K = OutcomeKind
DOWN = OSError("down")


@pytest.fixture
def clock() -> ManualClock:
    """Time stands still: waiters of other threads must not move it."""
    return ManualClock(auto=False)


def slots_of(guard):
    [bulkhead] = [strategy for strategy in guard.plan.strategies if strategy.kind == "bulkhead"]
    return bulkhead.slots


class Holders:
    """Calls that hold a slot until they are told to go."""

    def __init__(self, colour, guard):
        self.colour = colour
        self.guard = guard
        self.gates = []
        self.handles = []

    def enter(self, number=1):
        slots = slots_of(self.guard)
        for _ in range(number):
            gate, name = self.colour.gate(), len(self.gates)

            def body(gate=gate, name=name):
                yield gate.wait()
                return name

            self.gates.append(gate)
            self.handles.append(self.colour.start(self.guard, self.colour.fn(body)))
            wanted = name + 1
            self.colour.until(lambda wanted=wanted: slots.in_use + len(slots.waiting) >= wanted)

    def leave(self):
        for gate, handle in zip(self.gates, self.handles, strict=True):
            gate.open()
            handle.outcome()


@pytest.fixture
def held(colour):
    """Makes holders, and lets them all go at the end."""
    made = []

    def make(guard, number):
        holders = Holders(colour, guard)
        made.append(holders)
        holders.enter(number)
        return holders

    yield make
    for holders in made:
        holders.leave()


def test_a_call_in_an_idle_bulkhead_is_admitted_at_once(colour, guard_of):
    guard = guard_of(Bulkhead(2))
    assert [colour.run(guard, colour.fn(["up"])).value for _ in range(5)] == ["up"] * 5
    assert slots_of(guard).in_use == 0


def test_without_a_queue_it_refuses_only_when_busy(colour, guard_of, held):
    guard = guard_of(Bulkhead(2, queue=0))
    held(guard, 1)
    fn = colour.fn(["up"])
    assert colour.run(guard, fn).value == "up"
    held(guard, 1)
    outcome = colour.run(guard, fn)
    assert (outcome.kind, outcome.reason, outcome.attempts) == (K.REJECTED, "bulkhead_full", 0)
    assert isinstance(outcome.error, BulkheadFull)
    assert fn.calls == 1


def test_raising_mode_raises_bulkhead_full_with_the_name(colour, guard_of, held):
    guard = guard_of(Bulkhead(1), name="pay")
    held(guard, 1)
    with pytest.raises(BulkheadFull) as caught:
        colour.call(guard, colour.fn(["up"]))
    assert caught.value.guard == "pay"


def test_a_free_slot_admits_at_once_even_with_no_time_to_wait(colour, guard_of):
    guard = guard_of(Bulkhead(1, queue=1, max_wait=0))
    assert colour.run(guard, colour.fn(["up"])).value == "up"


def test_a_waiter_gets_the_slot_when_it_comes_free(colour, guard_of):
    guard = guard_of(Bulkhead(1, queue=1))
    holders = Holders(colour, guard)
    holders.enter()
    waiter = colour.start(guard, colour.fn(["up"]))
    colour.until(lambda: len(slots_of(guard).waiting) == 1)
    assert not waiter.done
    holders.leave()
    assert waiter.outcome().value == "up"
    assert slots_of(guard).in_use == 0


def test_a_full_queue_refuses_at_once(colour, guard_of):
    guard = guard_of(Bulkhead(1, queue=1))
    holders = Holders(colour, guard)
    holders.enter(2)
    assert colour.run(guard, colour.fn(["up"])).reason == "bulkhead_full"
    holders.leave()
    assert colour.run(guard, colour.fn(["up"])).value == "up"


def test_waiters_are_served_first_come_first_served(colour, guard_of):
    guard, order = guard_of(Bulkhead(1, queue=10)), []
    holders = Holders(colour, guard)
    holders.enter()
    waiters = []
    for number in range(5):
        waiters.append(colour.start(guard, colour.fn([lambda number=number: order.append(number)])))
        colour.until(lambda number=number: len(slots_of(guard).waiting) == number + 1)
    holders.leave()
    for waiter in waiters:
        waiter.outcome()
    assert order == [0, 1, 2, 3, 4]


def test_a_newcomer_does_not_barge_in_before_a_waiter(guard_of):
    guard, order = guard_of(Bulkhead(1, queue=10)), []

    async def main() -> None:
        gate = asyncio.Event()

        async def named(name: str) -> None:
            order.append(name)

        holder = asyncio.ensure_future(guard.arun(gate.wait))
        await asyncio.sleep(0)
        waiter = asyncio.ensure_future(guard.arun(named, "waiter"))
        await asyncio.sleep(0)
        gate.set()
        await reached(lambda: not slots_of(guard).waiting)
        # The slot has been handed over, but the waiter has not run yet.
        await asyncio.gather(holder, waiter, guard.arun(named, "newcomer"))

    asyncio.run(main())
    assert order == ["waiter", "newcomer"]


def test_a_wait_is_bounded_by_max_wait(colour, guard_of, clock, held):
    guard = guard_of(Bulkhead(1, queue=1, max_wait=5))
    held(guard, 1)
    waiter = colour.start(guard, colour.fn(["up"]))
    colour.until(lambda: len(slots_of(guard).waiting) == 1)
    colour.advance(clock, 4.9)
    assert not waiter.done
    colour.advance(clock, 0.1)
    assert waiter.outcome().reason == "bulkhead_full"
    assert len(slots_of(guard).waiting) == 0


def test_a_wait_is_bounded_by_the_callers_deadline_and_then_refused(colour, guard_of, clock, held):
    guard = guard_of(Bulkhead(1, queue=1))
    held(guard, 1)
    with deadline(5, clock=clock):
        waiter = colour.start(guard, colour.fn(["up"]))
    colour.until(lambda: len(slots_of(guard).waiting) == 1)
    colour.advance(clock, 5)
    outcome = waiter.outcome()
    assert (outcome.kind, outcome.reason, outcome.attempts) == (K.REJECTED, "bulkhead_full", 0)
    assert len(slots_of(guard).waiting) == 0


def test_a_wait_is_bounded_by_the_total_limit_and_then_refused(colour, guard_of, clock):
    shared = BulkheadStrategy("shared", 1, 1)
    guard = guard_of(shared, Timeout(total=5))
    holders = Holders(colour, guard_of(shared))
    holders.enter()
    waiter = colour.start(guard, colour.fn(["up"]))
    colour.until(lambda: len(slots_of(guard).waiting) == 1)
    colour.advance(clock, 5)
    outcome = waiter.outcome()
    assert (outcome.kind, outcome.reason, outcome.attempts) == (K.REJECTED, "bulkhead_full", 0)
    holders.leave()


def test_a_cancellation_together_with_the_limit_of_a_wait_stays_a_cancellation(guard_of, clock):
    with asyncio.Runner() as runner:
        colour = AsyncColour(runner)
        shared = BulkheadStrategy("shared", 1, 1)
        guard = guard_of(shared, Timeout(total=5))
        holders = Holders(colour, guard_of(shared))
        holders.enter()
        waiter = colour.start(guard, colour.fn(["up"]))
        clock.advance(5)
        waiter.task.cancel()
        with pytest.raises(asyncio.CancelledError):
            waiter.outcome()
        assert len(slots_of(guard).waiting) == 0
        holders.leave()
        assert slots_of(guard).in_use == 0


def test_a_refused_waiter_never_ran_and_is_neutral_for_the_breaker(colour, guard_of, clock, held):
    guard = guard_of(Bulkhead(1, queue=0), Breaker(consecutive(1)))
    held(guard, 1)
    assert colour.run(guard, colour.fn(["up"])).kind is K.REJECTED
    assert guard.circuit.state == "closed"


@pytest.mark.parametrize("step", [DOWN, TypeError("bug"), Interrupted(), KeyError("passed through")], ids=repr)
def test_a_slot_comes_back_however_the_call_ends(colour, guard_of, step):
    guard = guard_of(Bulkhead(1), passthrough=(KeyError,))
    for _ in range(3):
        try:
            colour.run(guard, colour.fn([step]))
        except (Interrupted, KeyError):
            pass
        assert slots_of(guard).in_use == 0
    assert colour.run(guard, colour.fn(["up"])).value == "up"


def test_a_slot_comes_back_when_an_async_function_is_given_to_a_sync_call(guard_of):
    async def fn() -> None: ...

    guard = guard_of(Bulkhead(1))
    for _ in range(3):
        with pytest.raises(TypeError, match="async"):
            guard.call(fn)
    assert slots_of(guard).in_use == 0
    assert guard.call(lambda: "up") == "up"


def test_a_slot_comes_back_from_a_call_that_was_retried_or_refused_later(colour, guard_of):
    guard = guard_of(Bulkhead(1), Retry(attempts=5, base=0), Breaker(consecutive(2)))
    assert colour.run(guard, colour.fn([DOWN])).reason == "circuit_open"
    assert colour.run(guard, colour.fn([DOWN])).reason == "circuit_open"
    assert slots_of(guard).in_use == 0


def test_a_retried_call_holds_one_slot_through_all_its_attempts(colour, guard_of):
    guard, seen = guard_of(Bulkhead(2), Retry(attempts=3, base=0)), []

    def attempt() -> None:
        seen.append(slots_of(guard).in_use)
        raise DOWN

    colour.run(guard, colour.fn([attempt]))
    assert seen == [1, 1, 1]


def test_a_slot_comes_back_from_a_call_that_was_cut(guard_of):
    clock = ManualClock()
    guard = guard_of(Bulkhead(1), Timeout(total=5), clock=clock)
    for _ in range(3):
        assert asyncio.run(guard.arun(clock.asleep, 60)).kind is K.TIMEOUT
        assert slots_of(guard).in_use == 0


def test_a_cancelled_call_returns_its_slot(guard_of):
    guard = guard_of(Bulkhead(1))

    async def main() -> None:
        holder = asyncio.ensure_future(guard.arun(asyncio.sleep, 60))
        await asyncio.sleep(0)
        assert slots_of(guard).in_use == 1
        holder.cancel()
        with pytest.raises(asyncio.CancelledError):
            await holder

    asyncio.run(main())
    assert slots_of(guard).in_use == 0


def test_a_cancelled_waiter_leaves_no_trace(guard_of):
    with asyncio.Runner() as runner:
        colour = AsyncColour(runner)
        guard = guard_of(Bulkhead(1, queue=1))
        holders = Holders(colour, guard)
        holders.enter()
        waiter = colour.start(guard, colour.fn(["never"]))
        waiter.cancel()
        with pytest.raises(asyncio.CancelledError):
            waiter.outcome()
        assert len(slots_of(guard).waiting) == 0
        holders.leave()
        assert slots_of(guard).in_use == 0
        assert colour.run(guard, colour.fn(["up"])).value == "up"


def test_a_cancelled_waiter_that_had_been_handed_the_slot_passes_it_on(guard_of):
    guard = guard_of(Bulkhead(1, queue=2))

    async def main() -> str:
        gate = asyncio.Event()

        async def up() -> str:
            return "up"

        holder = asyncio.ensure_future(guard.arun(gate.wait))
        await asyncio.sleep(0)
        first = asyncio.ensure_future(guard.arun(up))
        await asyncio.sleep(0)
        second = asyncio.ensure_future(guard.acall(up))
        await asyncio.sleep(0)
        gate.set()
        await reached(lambda: len(slots_of(guard).waiting) == 1)
        first.cancel()  # the slot is its own, but it has not woken yet
        with pytest.raises(asyncio.CancelledError):
            await first
        await holder
        return await asyncio.wait_for(second, 5)

    assert asyncio.run(main()) == "up"
    assert slots_of(guard).in_use == 0


def test_a_sync_holder_wakes_an_async_waiter(guard_of):
    guard = guard_of(Bulkhead(1, queue=1))
    release, inside = threading.Event(), threading.Event()

    def hold() -> None:
        inside.set()
        release.wait(10)

    holder = threading.Thread(target=guard.run, args=(hold,))
    holder.start()
    inside.wait(10)

    async def main() -> str:
        async def up() -> str:
            return "up"

        waiter = asyncio.ensure_future(guard.acall(up))
        await reached(lambda: bool(slots_of(guard).waiting))
        release.set()
        return await asyncio.wait_for(waiter, 5)

    assert asyncio.run(main()) == "up"
    holder.join()


def test_an_async_holder_wakes_a_sync_waiter(guard_of):
    guard, got = guard_of(Bulkhead(1, queue=1)), []

    async def main() -> None:
        async def hold() -> None:
            waiter.start()
            await reached(lambda: bool(slots_of(guard).waiting), pause=0.0005)

        await guard.acall(hold)

    waiter = threading.Thread(target=lambda: got.append(guard.call(lambda: "up")))
    asyncio.run(main())
    waiter.join(5)
    assert got == ["up"]


def test_a_waiter_whose_loop_has_died_does_not_keep_the_slot(guard_of):
    guard = guard_of(Bulkhead(1, queue=2))
    release, inside = threading.Event(), threading.Event()

    def hold() -> None:
        inside.set()
        release.wait(10)

    holder = threading.Thread(target=guard.run, args=(hold,))
    holder.start()
    inside.wait(10)
    loop = asyncio.new_event_loop()
    context = copy_context()
    abandoned = loop.create_task(guard.arun(asyncio.sleep, 0), context=context)
    loop.run_until_complete(asyncio.sleep(0))
    assert len(slots_of(guard).waiting) == 1
    loop.close()
    release.set()
    holder.join()
    assert guard.run(lambda: "up").value == "up"
    abandoned._log_destroy_pending = False
    context.run(abandoned.get_coro().close)


def test_limits_grow_live(colour, guard_of):
    guard = guard_of(Bulkhead(1, queue=2))
    holders = Holders(colour, guard)
    holders.enter(3)
    assert len(slots_of(guard).waiting) == 2
    slots_of(guard).change(3, 2)
    colour.until(lambda: len(slots_of(guard).waiting) == 0)
    assert slots_of(guard).in_use == 3
    holders.leave()
    assert slots_of(guard).in_use == 0


def test_shrinking_waits_for_slots_to_drain(colour, guard_of):
    guard = guard_of(Bulkhead(3))
    holders = Holders(colour, guard)
    holders.enter(3)
    slots_of(guard).change(1, 0)
    assert slots_of(guard).in_use == 3
    holders.leave()
    assert slots_of(guard).in_use == 0
    again = Holders(colour, guard)
    again.enter(1)
    assert colour.run(guard, colour.fn(["up"])).reason == "bulkhead_full"
    again.leave()


def test_the_wait_for_a_slot_and_the_service_time_are_recorded_apart(colour, guard_of, clock, recorder):
    guard = guard_of(Bulkhead(1, queue=1))
    guard.telemetry.register(recorder)
    holders = Holders(colour, guard)
    holders.enter()
    waiter = colour.start(guard, colour.fn([Slow(clock, 2, "up")]))
    colour.until(lambda: len(slots_of(guard).waiting) == 1)
    colour.advance(clock, 3)
    holders.leave()
    colour.until(lambda: len(clock.slept) == 1)
    colour.advance(clock, 2)
    assert waiter.outcome().value == "up"
    waited = recorder.of(AttemptCompleted)[-1]
    assert (waited.wait, waited.service_s) == (3, 2)


def waited_ten_seconds(colour, guard, clock, fn):
    """The outcome of a call that got its slot after ten seconds."""
    holders = Holders(colour, guard)
    holders.enter()
    waiter = colour.start(guard, fn)
    colour.until(lambda: len(slots_of(guard).waiting) == 1)
    clock.advance(10)
    holders.leave()
    return waiter.outcome()


def test_the_wait_for_a_slot_is_no_part_of_an_attempt_that_failed(colour, guard_of, clock):
    outcome = waited_ten_seconds(colour, guard_of(Bulkhead(1, queue=1)), clock, colour.fn([TypeError("bug")]))
    [attempt] = outcome.metadata["trail"]
    assert (attempt.wait, attempt.service) == (10, 0)


def test_the_wait_for_a_slot_does_not_make_the_dependency_slow(colour, guard_of, clock):
    guard = guard_of(Bulkhead(1, queue=1), Breaker(slow_ratio(0.6, threshold=2, min_calls=2)))
    assert waited_ten_seconds(colour, guard, clock, colour.fn(["up"])).value == "up"
    assert guard.circuit.state == "closed"


def test_a_refusal_is_a_load_shed_with_its_reason(colour, guard_of, held, recorder):
    guard = guard_of(Bulkhead(1))
    held(guard, 1)
    guard.telemetry.register(recorder)
    colour.run(guard, colour.fn(["up"]))
    assert [event.reason for event in recorder.of(LoadShed)] == ["bulkhead_full"]


def test_a_bulkhead_may_be_shared_by_instance(colour, guard_of, held):
    shared = BulkheadStrategy("pool", max_concurrent=1, max_queued=0)
    one, two = guard_of(shared, name="one"), guard_of(shared, name="two")
    held(one, 1)
    assert colour.run(two, colour.fn(["up"])).reason == "bulkhead_full"


def test_the_seeds_strategy_queues_thirty_two_by_default(guard_of):
    slots = slots_of(guard_of(BulkheadStrategy("pool")))
    assert (slots.limit, slots.queue_limit) == (1, 32)
