"""What a call holds comes back exactly once: slots, budgets, locks, tokens and contexts, however the call ends."""

from __future__ import annotations

import asyncio
import contextvars
import gc
import sys
import threading
import types
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from holdfast import (
    Breaker,
    Bulkhead,
    CircuitState,
    CircuitStateChanged,
    Evidence,
    Fallback,
    Guard,
    Hub,
    OutcomeKind,
    PriorityBulkhead,
    RateLimit,
    Retry,
    Throttle,
    Timeout,
    TypedKey,
    count,
    current_context,
    deadline,
    remaining_time,
)
from holdfast.core.context import CURRENT
from holdfast.guard.circuit import LiveCircuit
from holdfast.testing.clock import ManualClock
from tests.garbage import garbage_of
from tests.guard.colours import PATIENCE_S, Recorder, SyncColour, reached

K = OutcomeKind
DOWN = OSError("down")
CLOSED, OPEN, HALF_OPEN = CircuitState.CLOSED, CircuitState.OPEN, CircuitState.HALF_OPEN


def strategy_of(guard: Guard, kind: str) -> Any:
    [found] = [strategy for strategy in guard.plan.strategies if strategy.kind == kind]
    return found


def in_use(guard: Guard) -> int:
    return strategy_of(guard, "bulkhead").slots.in_use


def in_flight(guard: Guard) -> tuple[int, ...]:
    """What the retry budget believes to be under way: calls and retries."""
    return tuple(strategy_of(guard, "retry").budget.figures()[:2])


async def never() -> None:
    await asyncio.get_running_loop().create_future()


def tasks_of_a_dead_loop(guard: Guard, fn: Callable[..., Any], number: int) -> list[asyncio.Task[Any]]:
    """Calls that were under way when somebody closed their loop, as a worker does that stops in a hurry."""
    tasks: list[asyncio.Task[Any]] = []

    async def begin() -> None:
        tasks.extend(asyncio.ensure_future(guard.arun(fn)) for _ in range(number))
        for _ in range(5):
            await asyncio.sleep(0)

    def live() -> None:
        loop = asyncio.new_event_loop()
        loop.set_exception_handler(lambda loop, context: None)  # "Task was destroyed but it is pending!"
        loop.run_until_complete(begin())
        loop.close()

    contextvars.Context().run(live)
    return tasks


@pytest.fixture
def unraisable(monkeypatch: pytest.MonkeyPatch) -> list[BaseException | None]:
    """What dying coroutines could not raise. The context that a dead loop's task ran in is gone with it."""
    seen: list[BaseException | None] = []
    monkeypatch.setattr(sys, "unraisablehook", lambda args: seen.append(args.exc_value))
    return seen


# Waiters whose event loop is gone.


QUEUES = [
    pytest.param(Bulkhead, lambda guard: strategy_of(guard, "bulkhead").slots.in_use, 1500, id="bulkhead"),
    pytest.param(PriorityBulkhead, lambda guard: guard.plan.strategies[0].slots.running, 1500, id="priority"),
]


@pytest.mark.parametrize(("bulkhead", "taken", "many"), QUEUES)
def test_a_waiter_whose_loop_has_closed_gives_its_slot_back_once(guard_of, bulkhead, taken, many, unraisable):
    guard = guard_of(bulkhead(1, queue=9))
    waiters = []
    guard.call(lambda: waiters.extend(tasks_of_a_dead_loop(guard, never, 3)))
    assert taken(guard) == 0
    waiters.clear()
    gc.collect()
    assert taken(guard) == 0
    assert guard.call(lambda: taken(guard)) == 1


@pytest.mark.parametrize(("bulkhead", "taken", "many"), QUEUES)
def test_a_slot_finds_the_one_live_waiter_behind_many_dead_ones(guard_of, bulkhead, taken, many, unraisable):
    guard = guard_of(bulkhead(1, queue=2000))
    waiters: list[Any] = []
    served: list[str] = []
    slots = guard.plan.strategies[0].slots

    def queued() -> int:
        return slots.queued if bulkhead is PriorityBulkhead else len(slots.waiting)

    behind = threading.Thread(target=lambda: served.append(guard.call(lambda: "served")), daemon=True)

    def hold() -> None:
        waiters.extend(tasks_of_a_dead_loop(guard, never, many))
        behind.start()
        SyncColour().until(lambda: queued() == many + 1)

    guard.call(hold)
    behind.join(PATIENCE_S)
    assert served == ["served"]
    assert (taken(guard), queued()) == (0, 0)
    waiters.clear()
    gc.collect()
    assert taken(guard) == 0


# Locks and the garbage collector, which may run anywhere: also where a lock of ours is held.


class Dropped:
    """Garbage whose end makes a guarded call, as the end of a collected coroutine does."""

    def __init__(self, last_words: Callable[[], object]) -> None:
        self.last_words = last_words
        self.itself = self  # only the collector finds it

    def __del__(self) -> None:
        self.last_words()


LOCKS = {
    "breaker": (Breaker(count(9, window=60)), lambda guard: guard.circuit._lock),
    "budget": (Retry(attempts=2, base=0, budget=0.2), lambda guard: strategy_of(guard, "retry").budget._lock),
    "throttle": (Throttle(), lambda guard: guard.plan.strategies[0].throttle._lock),
    "priority": (PriorityBulkhead(2), lambda guard: guard.plan.strategies[0].slots._lock),
    "hub": (Retry(attempts=1), lambda guard: guard.telemetry._lock),
    "meter": (Retry(attempts=1), lambda guard: guard.telemetry.meter(guard.name)._lock),
}


@pytest.mark.parametrize("which", LOCKS)
def test_a_collection_that_ends_a_call_while_a_lock_is_held_does_not_deadlock(guard_of, which):
    policy, lock_of = LOCKS[which]
    guard = guard_of(policy)
    lock, ended = lock_of(guard), []

    def last_words() -> None:
        guard.run(_raise, DOWN)
        guard.telemetry.switch(False)
        guard.telemetry.flush()
        ended.append(True)

    def collect() -> None:
        with lock:
            Dropped(last_words)
            gc.collect()

    thread = threading.Thread(target=collect, daemon=True)
    thread.start()
    thread.join(1.5)
    assert not thread.is_alive()
    assert ended == [True]


def test_a_rate_limiter_that_is_asked_by_the_collector_does_not_deadlock(guard_of):
    guard = guard_of(RateLimit(10))
    bucket, ended = strategy_of(guard, "rate_limit").bucket, []

    def collect() -> None:
        bucket.acquire()
        try:
            Dropped(lambda: ended.append(guard.run(lambda: "up").value))
            gc.collect()
        finally:
            bucket.release()

    thread = threading.Thread(target=collect, daemon=True)
    thread.start()
    thread.join(1.5)
    assert ended == ["up"]


def test_a_waiter_that_is_collected_while_the_queue_is_locked_leaves_it(guard_of, unraisable):
    guard = guard_of(Bulkhead(1, queue=9))
    slots, ended = strategy_of(guard, "bulkhead").slots, []

    def collect() -> None:
        waiters = tasks_of_a_dead_loop(guard, never, 3)
        with slots._lock:
            waiters.clear()
            gc.collect()
        ended.append((slots.in_use, len(slots.waiting)))

    thread = threading.Thread(target=collect, daemon=True)
    thread.start()
    thread.join(1.5)
    assert ended == [(0, 0)]


def _raise(error: BaseException) -> None:
    raise error


# Calls that end in unusual places.


def test_a_hub_that_is_switched_off_during_a_call_does_not_keep_its_slot(colour, guard_of):
    guard = guard_of(Bulkhead(1), Retry(attempts=2, base=0, budget=0.2))

    def switch_off_and_fail():
        guard.telemetry.switch(True)
        raise DOWN

    colour.run(guard, colour.fn(switch_off_and_fail))
    guard.telemetry.switch(False)
    assert (in_use(guard), in_flight(guard)) == (0, (0, 0))
    assert colour.run(guard, colour.fn(["up"])).value == "up"


def test_a_hub_that_is_switched_off_ignores_an_expired_deadline(colour, guard_of, clock):
    guard = guard_of(Retry(attempts=2))
    guard.telemetry.switch(True)
    with deadline(-1, clock=clock):
        assert colour.run(guard, colour.fn(["up"])).value == "up"


@types.coroutine
def _suspended() -> Iterator[None]:
    yield


def test_a_coroutine_that_is_closed_in_another_context_gives_everything_back():
    guard = Guard("x", Bulkhead(1), Retry(attempts=2, base=0, budget=0.2), clock=ManualClock(), telemetry=Hub())

    @guard
    async def waits() -> None:
        await _suspended()

    work = waits()
    contextvars.Context().run(work.send, None)
    assert (in_use(guard), in_flight(guard)) == (1, (1, 0))
    contextvars.Context().run(work.close)
    assert (in_use(guard), in_flight(guard)) == (0, (0, 0))


def test_a_call_that_its_closed_loop_left_behind_gives_everything_back(guard_of, unraisable):
    guard = guard_of(Bulkhead(1), Retry(attempts=2, base=0, budget=0.2))
    for _ in range(2):
        tasks = tasks_of_a_dead_loop(guard, never, 1)
        assert (in_use(guard), in_flight(guard)) == (1, (1, 0))
        tasks.clear()
        gc.collect()
        assert (in_use(guard), in_flight(guard)) == (0, (0, 0))


def test_an_async_call_outside_of_any_loop_leaks_nothing(guard_of):
    guard = guard_of(Bulkhead(1), Timeout(total=1), Retry(attempts=2, base=0, budget=0.2))
    with pytest.raises((RuntimeError, StopIteration)):
        guard.arun(_up).send(None)
    assert (in_use(guard), in_flight(guard)) == (0, (0, 0))


async def test_an_async_call_in_a_loop_but_outside_of_any_task_leaks_nothing(guard_of):
    guard = guard_of(Bulkhead(1), Timeout(total=1), Retry(attempts=2, base=0, budget=0.2))
    loop = asyncio.get_running_loop()
    ended: asyncio.Future[type[BaseException]] = loop.create_future()

    def without_task() -> None:
        try:
            guard.arun(_up).send(None)
        except BaseException as error:
            ended.set_result(type(error))

    loop.call_soon(without_task)
    assert issubclass(await ended, (RuntimeError, StopIteration))
    assert (in_use(guard), in_flight(guard)) == (0, (0, 0))


async def _up() -> str:
    return "up"


async def test_one_deadline_object_may_be_used_by_two_tasks_at_once(clock):
    shared, gates = deadline(5, clock=clock), [asyncio.Event(), asyncio.Event()]

    async def use(number: int) -> tuple[float | None, Any]:
        async with shared:
            gates[1 - number].set()
            await gates[number].wait()
            left = remaining_time()
            for _ in range(number * 3):
                await asyncio.sleep(0)
        return left, CURRENT.get()

    assert await asyncio.gather(use(0), use(1)) == [(5, None), (5, None)]


# Abandoned threads.


def test_a_call_that_may_be_abandoned_keeps_one_layer_of_retries(guard_of):
    outer = guard_of(Retry(attempts=3, base=0), Timeout(total=5, abandon=True), name="outer")
    inner = guard_of(Retry(attempts=3, base=0), name="inner")
    tried = []

    def fail() -> None:
        tried.append(1)
        raise DOWN

    outer.run(lambda: inner.call(fail))
    assert len(tried) == 3


KEY = TypedKey[int]("stray")


class Peek:
    """Notes the property once the rest of the call has ended, and then `ready` is set."""

    kind = "custom"
    passes_context = True

    def __init__(self) -> None:
        self.ended, self.ready = threading.Event(), threading.Event()
        self.seen: list[int | None] = []

    async def execute(self, nxt, ctx):
        outcome = await nxt(ctx)
        self.ended.set()
        assert self.ready.wait(PATIENCE_S)
        self.seen.append(ctx.get(KEY))
        return outcome


def test_what_an_abandoned_thread_writes_into_its_context_stays_there(guard_of, clock):
    begun, peek = threading.Event(), Peek()

    def stray() -> None:
        begun.set()
        assert peek.ended.wait(PATIENCE_S)
        context = current_context()
        assert context is not None
        context.set(KEY, 7)
        peek.ready.set()

    def move() -> None:
        assert begun.wait(PATIENCE_S)
        clock.advance(5)

    mover = threading.Thread(target=move)
    mover.start()
    outcome = guard_of(Timeout(attempt=5, abandon=True), peek).run(stray)
    mover.join(PATIENCE_S)
    assert (outcome.kind, peek.seen) == (K.TIMEOUT, [None])


def test_what_a_thread_in_time_writes_into_its_context_is_the_calls(guard_of):
    peek = Peek()
    peek.ready.set()
    guard_of(Timeout(attempt=5, abandon=True), peek).run(lambda: current_context().set(KEY, 7))
    assert peek.seen == [7]


# Retries that defer to an outer layer.


def test_an_outer_guard_that_never_retries_lets_the_inner_one_retry(colour, guard_of):
    outer, inner = guard_of(Retry(attempts=1), name="outer"), guard_of(Retry(attempts=3, base=0), name="inner")
    fn = colour.fn([DOWN])

    def body():
        return (yield colour.inner_call(inner, fn))

    colour.run(outer, colour.fn(body))
    assert fn.calls == 3


async def test_a_background_task_that_outlives_a_call_does_not_defer_to_it(guard_of):
    outer, inner = guard_of(Retry(attempts=2, base=0), name="outer"), guard_of(Retry(attempts=3, base=0), name="inner")
    begin, tried = asyncio.Event(), []

    async def fail() -> None:
        tried.append(1)
        raise DOWN

    async def background() -> Any:
        await begin.wait()
        return await inner.arun(fail)

    async def handle() -> asyncio.Task[Any]:
        return asyncio.create_task(background())

    task = await outer.acall(handle)
    begin.set()
    outcome = await task
    assert (len(tried), outcome.stopped_by) == (3, None)


# Circuits: what they tell, how long they stay open, and whom they refuse.


class Interrupting(Recorder):
    """Is interrupted by the first event."""

    def on_event(self, event):
        super().on_event(event)
        if len(self.events) == 1:
            raise KeyboardInterrupt


class QuietlyInterrupting(Interrupting):
    """The same beside the fused path."""

    quiet = True

    def on_calls(self, operation_key, kind, durations):
        pass


@pytest.mark.parametrize("listener", [Interrupting, QuietlyInterrupting], ids=["loud", "quiet"])
def test_an_interrupted_listener_still_hears_what_the_circuit_does_later(guard_of, clock, listener):
    listener = listener()
    listener.wants = (CircuitStateChanged,)
    guard = guard_of(Breaker(count(1, window=60), open_for=10))
    guard.telemetry.register(listener)
    with pytest.raises(KeyboardInterrupt):
        guard.call(_raise, DOWN)
    clock.advance(10)
    assert guard.call(lambda: "up") == "up"
    told = [(event.from_state, event.to_state) for event in listener.of(CircuitStateChanged)]
    assert told == [(CLOSED, OPEN), (OPEN, HALF_OPEN), (HALF_OPEN, CLOSED)]


def growing_circuit(clock: ManualClock) -> LiveCircuit:
    """Stays open for 10 s, 20 s after one failed round, 30 s after two."""
    policy = Breaker(count(1, window=60), open_for=lambda rounds: 10.0 * (rounds + 1))
    return LiveCircuit("x", policy, clock, Hub(clock=clock))


def fail(circuit: LiveCircuit, clock: ManualClock) -> None:
    circuit.finish(circuit.admit(clock.monotonic()), Evidence.FAILURE, clock.monotonic())


def test_a_restored_circuit_asks_open_for_about_the_rounds_it_was_restored_with(clock):
    circuit = growing_circuit(clock)
    snapshot = {"state": "open", "control": "auto", "remaining_open": 35.0, "rounds": 3}
    assert circuit.restore(snapshot, 0.0, clock.monotonic())
    assert circuit.next_test == clock.monotonic() + 35  # within the 40 s of round 3, not cut to the 10 s of round 0


def test_each_relapse_asks_open_for_about_its_own_round(clock):
    circuit = growing_circuit(clock)
    opened_for = []
    for _ in range(4):
        fail(circuit, clock)
        opened_for.append(circuit.outage.opened_for)
        clock.advance(opened_for[-1])
    assert opened_for == [10, 20, 30, 40]


def test_a_half_open_circuit_that_is_tripped_by_hand_keeps_its_round(clock):
    circuit = growing_circuit(clock)
    fail(circuit, clock)
    clock.advance(10)
    fail(circuit, clock)
    clock.advance(20)
    circuit.admit(clock.monotonic())
    assert (circuit.state, circuit.rounds) == (HALF_OPEN, 1)
    circuit.trip(clock.monotonic())
    assert circuit.outage.opened_for == 10 * (circuit.rounds + 1)


def test_open_for_is_never_asked_while_the_circuit_is_locked(clock):
    blocked = []

    def open_for(rounds: int) -> float:
        if circuits:
            other = threading.Thread(target=circuits[0].look, args=("peek",), daemon=True)
            other.start()
            other.join(0.5)
            blocked.append(other.is_alive())
        return 10.0 * (rounds + 1)

    circuits: list[LiveCircuit] = []
    circuits.append(LiveCircuit("x", Breaker(count(1, window=60), open_for=open_for), clock, Hub(clock=clock)))
    for seconds in (10, 20, 30):
        fail(circuits[0], clock)
        clock.advance(seconds)
    assert circuits[0].rounds == 2
    assert blocked
    assert not any(blocked)


async def test_waiters_that_find_the_circuit_open_are_refused_as_such_and_before_newcomers(guard_of):
    guard = guard_of(Bulkhead(1, queue=2), Breaker(count(1, window=60)))
    gate, log = asyncio.Event(), []

    async def first() -> None:
        await gate.wait()
        raise DOWN

    async def one(name: str, fn: Callable[..., Any]) -> None:
        log.append((name, (await guard.arun(fn)).reason))

    tasks = [asyncio.create_task(one("first", first))]
    await reached(lambda: in_use(guard) == 1)
    tasks += [asyncio.create_task(one(name, _up)) for name in ("second", "third")]
    await reached(lambda: len(strategy_of(guard, "bulkhead").slots.waiting) == 2)
    gate.set()
    for _ in range(6):
        tasks.append(asyncio.create_task(one("newcomer", _up)))
        await asyncio.sleep(0)
    await asyncio.gather(*tasks)
    refused = [(name, "circuit_open") for name in ("second", "third", *["newcomer"] * 6)]
    assert log == [("first", None), *refused]
    assert in_use(guard) == 0


async def test_two_limits_that_end_one_call_together_still_count_for_the_breaker(path):
    clock = ManualClock(auto=False)
    limits = Timeout(total=2, attempt=1.9999)
    guard = Guard(
        "x", limits, Retry(attempts=2, base=0), Breaker(count(1, window=60)),
        clock=clock, telemetry=Hub(clock=clock), fused=path == "fused",
    )  # fmt: skip
    task = asyncio.create_task(guard.arun(never))
    for _ in range(5):
        await asyncio.sleep(0)
    clock.advance(5)  # both fire before the task can run
    outcome = await task
    assert (outcome.kind, guard.circuit.state) == (K.TIMEOUT, OPEN)


def test_a_refusal_tells_which_rule_opened_the_circuit(colour, guard_of):
    guard = guard_of(Breaker(count(1, window=60)))
    colour.run(guard, colour.fn([DOWN]))
    outcome = colour.run(guard, colour.fn(["up"]))
    assert (outcome.reason, outcome.metadata["rule"]) == ("circuit_open", str(count(1, window=60)))


# Memory: the collector has nothing to do after a call.


ENDINGS = {
    "interrupted": ((Retry(attempts=2, base=0),), {}, KeyboardInterrupt),
    "fallback": ((Fallback(value=1),), {}, OSError),
    "failed": ((Retry(attempts=2, base=0), Bulkhead(2), Breaker(count(10**6, window=1))), {}, OSError),
}


@pytest.mark.parametrize("ending", ENDINGS)
@pytest.mark.parametrize("form", ["call", "decorated"])
def test_a_call_that_does_not_succeed_leaves_no_reference_cycle(guard_of, ending, form):
    policies, options, error = ENDINGS[ending]
    guard = guard_of(*policies, **options)

    def fail() -> None:
        raise error

    guarded = guard(fail) if form == "decorated" else lambda: guard.call(fail)

    def action() -> None:
        try:
            guarded()
        except BaseException:
            pass

    assert garbage_of(action) == 0


def test_a_passthrough_exception_leaves_no_reference_cycle(guard_of):
    guard = guard_of(Retry(attempts=2, base=0), passthrough=OSError)

    def action() -> None:
        try:
            guard.call(_raise_new)
        except OSError:
            pass

    assert garbage_of(action) == 0


def _raise_new() -> None:
    raise OSError


def test_a_cancelled_call_leaves_no_reference_cycle(guard_of):
    guard = guard_of(Timeout(total=9), Retry(attempts=2, base=0), Bulkhead(2), Breaker(count(10**6, window=1)))

    async def cancelled() -> None:
        task = asyncio.ensure_future(guard.acall(never))
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        task.cancel()
        try:
            await task
        except asyncio.CancelledError:
            pass

    with asyncio.Runner() as runner:
        assert garbage_of(lambda: runner.run(cancelled())) == 0
    assert in_use(guard) == 0


def test_a_guarded_function_that_is_dropped_leaves_no_reference_cycle(guard_of):
    guard = guard_of(Retry(attempts=2))

    def action() -> None:
        def local(x: int) -> int:
            return x

        guard(local)(1)

    assert garbage_of(action) == 0
