"""Threads and event loops together on one guard: exact counts, nothing leaked, nothing told twice."""

from __future__ import annotations

import asyncio
import random
import sys
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from holdfast import (
    Breaker,
    Budget,
    Bulkhead,
    CircuitState,
    CircuitStateChanged,
    Guard,
    GuardEvent,
    InMemoryMetrics,
    OutcomeKind,
    RateLimit,
    Retry,
    Timeout,
    consecutive,
    count,
    k_of_n,
    ratio,
)
from holdfast.core.clock import SYSTEM_CLOCK
from holdfast.testing.clock import ManualClock
from tests.guard.colours import Recorder

K = OutcomeKind
DOWN = OSError("down")
THREADS, LOOPS = 3, 2

pytestmark = pytest.mark.torture


@pytest.fixture(autouse=True)
def restless() -> Iterator[None]:
    """Threads take turns as often as the interpreter can, so that races show."""
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    yield
    sys.setswitchinterval(before)


def at_once(*jobs: Callable[[], Any]) -> list[Any]:
    """Run every job in a thread of its own, started together; their results in order."""
    results: list[Any] = [None] * len(jobs)
    failures: list[BaseException] = []
    start = threading.Barrier(len(jobs))

    def run(index: int, job: Callable[[], Any]) -> None:
        try:
            start.wait(30)
            results[index] = job()
        except BaseException as error:  # handed to the test
            failures.append(error)

    threads = [threading.Thread(target=run, args=(index, job), daemon=True) for index, job in enumerate(jobs)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(90)
        assert not thread.is_alive(), "a thread hangs"
    if failures:
        raise failures[0]
    return results


def everywhere(guard: Guard, sync: Callable[[], Any], loop: Callable[[], Any], calls: int) -> list[Any]:
    """`calls` guarded calls by each of several threads, and as tasks of each of several loops: all outcomes."""

    def in_thread() -> list[Any]:
        return [guard.run(sync) for _ in range(calls)]

    def in_loop() -> list[Any]:
        async def main() -> list[Any]:
            return await asyncio.gather(*(guard.arun(loop) for _ in range(calls)))

        return asyncio.run(main())

    parts = at_once(*[in_thread] * THREADS, *[in_loop] * LOOPS)
    return [outcome for part in parts for outcome in part]


def strategy(guard: Guard, kind: str) -> Any:
    return next(each for each in guard.plan.strategies if each.kind == kind)


class Transitions:
    """Listens to circuits without making the hub loud."""

    quiet = True
    wants = (CircuitStateChanged,)

    def __init__(self) -> None:
        self.seen: list[CircuitStateChanged] = []
        self._busy = threading.Lock()

    def on_event(self, event: GuardEvent) -> None:
        assert isinstance(event, CircuitStateChanged)
        assert self._busy.acquire(blocking=False), "two threads tell of transitions at once"
        try:
            self.seen.append(event)
        finally:
            self._busy.release()

    def check(self, guard: Guard) -> None:
        """Every transition once, in order, and none missing."""
        state = "closed"
        for event in self.seen:
            assert event.from_state == state
            assert event.to_state != state
            state = event.to_state
        assert state == guard.circuit.state.value
        assert len(self.seen) == guard.circuit.generation - 1
        assert guard.telemetry.listener_failures == 0


class Gauge:
    """How many are inside at once."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self.inside = self.most = self.total = 0

    def __enter__(self) -> None:
        with self._lock:
            self.inside += 1
            self.total += 1
            self.most = max(self.most, self.inside)

    def __exit__(self, *_: object) -> None:
        with self._lock:
            self.inside -= 1


@pytest.fixture
def numbers() -> Callable[[], int]:
    lock, numbers = threading.Lock(), iter(range(10**9))

    def number() -> int:
        with lock:
            return next(numbers)

    return number


def test_every_call_is_counted_exactly_once(guard_of, numbers, size):
    guard, metrics = (
        guard_of(Retry(attempts=3, base=0), Breaker(count(10**6)), Bulkhead(64, queue=10**6)),
        InMemoryMetrics(),
    )
    guard.telemetry.register(metrics)

    def body() -> int:
        number = numbers()
        if number % 5 == 0:
            raise TypeError("bug")
        if number % 7 == 0:
            raise DOWN
        return number

    async def abody() -> int:
        await asyncio.sleep(0)
        return body()

    outcomes = everywhere(guard, body, abody, 1000 * size)
    assert sum(outcome.attempts for outcome in outcomes) == numbers()
    kinds = Counter(f"x/{outcome.kind.value}" for outcome in outcomes)
    seen = metrics.snapshot()
    assert seen["counts_by_operation_outcome"] == dict(kinds)
    assert seen["call_count"] == len(outcomes) == 1000 * size * (THREADS + LOOPS)
    values = [outcome.value for outcome in outcomes if outcome.is_success]
    assert len(values) == len(set(values))


def test_no_failure_is_lost_by_the_breaker(guard_of, size):
    guard = guard_of(Breaker(count(10**6, window=3600)))

    def bad() -> None:
        raise DOWN

    async def abad() -> None:
        raise DOWN

    outcomes = everywhere(guard, bad, abad, 300 * size)
    assert guard.circuit.look("failure_count") == len(outcomes)


def test_no_success_is_lost_by_a_ratio(guard_of, size):
    guard = guard_of(Breaker(ratio(0.9, min_calls=10**6, window=3600)))

    async def up() -> None: ...

    outcomes = everywhere(guard, lambda: None, up, 300 * size)
    [figures] = guard.circuit.look("figures")["rules"].values()
    assert (figures["calls"], figures["failures"]) == (len(outcomes), 0)


@pytest.mark.parametrize("rule", [consecutive(3), k_of_n(2, 3), ratio(0.4, min_calls=3)], ids=str)
def test_each_transition_is_told_once_and_in_order(guard_of, rule, seed, size):
    guard = guard_of(Breaker(rule, open_for=1e-6), clock=SYSTEM_CLOCK)
    heard, dice = Transitions(), random.Random(seed)
    guard.telemetry.register(heard)

    def body() -> None:
        if dice.random() < 0.5:
            raise DOWN

    async def abody() -> None:
        await asyncio.sleep(0)
        body()

    everywhere(guard, body, abody, 1000 * size)
    assert len(heard.seen) > 10
    heard.check(guard)


def test_loud_listeners_hear_one_completion_per_call_and_every_transition(guard_of, seed):
    recorder, dice = Recorder(), random.Random(seed)
    guard = guard_of(Retry(attempts=2, base=0), Breaker(consecutive(2), open_for=1e-6), clock=SYSTEM_CLOCK)
    guard.telemetry.register(recorder)

    def body() -> None:
        if dice.random() < 0.5:
            raise DOWN

    async def abody() -> None:
        body()

    outcomes = everywhere(guard, body, abody, 100)
    names = Counter(recorder.names())
    assert names["CallCompleted"] == len(outcomes)
    assert names["LoadShed"] == sum(outcome.kind is K.REJECTED for outcome in outcomes)
    assert names["AttemptCompleted"] == sum(outcome.attempts for outcome in outcomes)
    assert names["CircuitStateChanged"] == guard.circuit.generation - 1


@pytest.mark.parametrize(("successes", "probes"), [(1, 1), (4, 2)])
def test_never_more_probes_run_than_allowed(guard_of, successes, probes, size):
    clock = ManualClock()
    guard = guard_of(Breaker(consecutive(1), open_for=30, successes=successes, probes=probes), clock=clock)
    gauge = Gauge()

    def bad() -> None:
        raise DOWN

    def probe() -> None:
        with gauge:
            threading.Event().wait(0.001)

    async def aprobe() -> None:
        with gauge:
            await asyncio.sleep(0.001)

    for _ in range(4 * size):
        guard.run(bad)
        assert guard.circuit.state is CircuitState.OPEN
        clock.advance(30)
        closed = threading.Event()

        def in_thread(closed: threading.Event = closed) -> int:
            made = 0
            while not closed.is_set() and guard.circuit.state is not CircuitState.CLOSED:
                made += guard.run(probe).is_success
            closed.set()
            return made

        def in_loop() -> int:
            async def main() -> int:
                made = 0
                while guard.circuit.state is not CircuitState.CLOSED:
                    outcomes = await asyncio.gather(*(guard.arun(aprobe) for _ in range(4)))
                    made += sum(outcome.is_success for outcome in outcomes)
                    await asyncio.sleep(0)
                return made

            return asyncio.run(main())

        before = gauge.total
        at_once(in_thread, in_thread, in_loop, in_loop)
        # Who comes after the last probe finds a closed circuit; until then only probes are let in.
        assert gauge.total - before >= successes
        guard.circuit.command("reset")
    assert gauge.inside == 0
    assert probes_most(guard, clock, probes) <= probes


def probes_most(guard: Guard, clock: ManualClock, probes: int) -> int:
    """Hold every probe that is admitted, from everywhere at once, and count them."""

    def bad() -> None:
        raise DOWN

    guard.run(bad)
    clock.advance(30)
    release, gauge = threading.Event(), Gauge()
    refused = threading.Semaphore(0)

    def hold() -> None:
        with gauge:
            release.wait(30)

    async def ahold() -> None:
        with gauge:
            while not release.is_set():  # noqa: ASYNC110  # the event is another thread's
                await asyncio.sleep(0.001)

    def note(outcome: Any) -> None:
        if outcome.kind is K.REJECTED:
            refused.release()

    def in_thread() -> None:
        note(guard.run(hold))

    def in_loop() -> None:
        async def one() -> None:
            note(await guard.arun(ahold))

        async def main() -> None:
            await asyncio.gather(*(one() for _ in range(5)))

        asyncio.run(main())

    def let_go() -> None:
        for _ in range(4 + 2 * 5 - probes):
            assert refused.acquire(timeout=30), "somebody was neither refused nor a probe"
        release.set()

    at_once(*[in_thread] * 4, *[in_loop] * 2, let_go)
    return gauge.most


def test_a_bulkhead_never_runs_more_than_its_limit_and_gets_every_slot_back(guard_of, size):
    guard, gauge = guard_of(Bulkhead(4, queue=10**6), clock=SYSTEM_CLOCK), Gauge()

    def body() -> None:
        with gauge:
            pass

    async def abody() -> None:
        with gauge:
            await asyncio.sleep(0)

    outcomes = everywhere(guard, body, abody, 1000 * size)
    assert {outcome.kind for outcome in outcomes} == {K.SUCCESS}
    assert gauge.total == len(outcomes)
    assert gauge.most <= 4
    slots = strategy(guard, "bulkhead").slots
    assert (slots.in_use, len(slots.waiting)) == (0, 0)


def test_a_bulkhead_without_a_queue_runs_or_refuses_everybody(guard_of, size):
    guard, gauge = guard_of(Bulkhead(2)), Gauge()

    def body() -> None:
        with gauge:
            pass

    async def abody() -> None:
        with gauge:
            await asyncio.sleep(0)

    outcomes = everywhere(guard, body, abody, 1000 * size)
    kinds = Counter(outcome.kind for outcome in outcomes)
    assert set(kinds) <= {K.SUCCESS, K.REJECTED}
    assert kinds[K.SUCCESS] == gauge.total
    assert gauge.most <= 2
    assert strategy(guard, "bulkhead").slots.in_use == 0


def test_a_rate_limit_admits_exactly_its_tokens(guard_of):
    guard = guard_of(RateLimit(1, burst=500))

    async def up() -> None: ...

    outcomes = everywhere(guard, lambda: None, up, 300)
    assert Counter(outcome.kind for outcome in outcomes) == {K.SUCCESS: 500, K.REJECTED: 1000}


def random_body(dice: random.Random) -> Any:
    """An async function that takes a few turns of the loop and ends in one way or another."""

    async def body() -> str:
        for _ in range(dice.randrange(4)):
            await asyncio.sleep(0)
        end = dice.random()
        if end < 0.2:
            raise DOWN
        if end < 0.25:
            raise TypeError("bug")
        return "up"

    return body


async def cancelling(guard: Guard, calls: int, dice: random.Random, body: Any, batch: int = 200) -> Counter[str]:
    """Make calls in batches and cancel some of them at random moments; checks who was cancelled by whom."""
    ends: Counter[str] = Counter()
    for _ in range(0, calls, batch):

        async def one() -> Any:
            outcome = await guard.arun(body)
            await asyncio.sleep(0)  # a cancellation of ours that was left behind would come out here
            return outcome

        tasks = [asyncio.ensure_future(one()) for _ in range(batch)]
        cancelled: set[asyncio.Task[Any]] = set()
        while pending := [task for task in tasks if not task.done()]:
            for task in dice.sample(pending, min(len(pending), dice.randrange(8))):
                if task.cancel():
                    cancelled.add(task)
            await asyncio.sleep(0)
        for task in tasks:
            assert task.cancelled() == (task in cancelled), "a cancellation was swallowed or invented"
            ends["cancelled" if task.cancelled() else task.result().kind.value] += 1
    return ends


def nothing_is_held(guard: Guard) -> None:
    slots = strategy(guard, "bulkhead").slots
    assert (slots.in_use, len(slots.waiting), len(slots.free)) == (0, 0, slots.limit)
    budget = strategy(guard, "retry").budget.figures()
    assert (budget.executions, budget.inflight) == (0, 0)
    assert guard.circuit.look("figures").get("probes_held", 0) == 0


def test_random_cancellation_of_ten_thousand_calls_leaks_nothing(guard_of, seed, size):
    guard = guard_of(
        Bulkhead(8, queue=10**6),
        Retry(attempts=3, base=0, budget=Budget(0.5, 3)),
        Breaker(consecutive(4), open_for=1e-9, successes=2),
        clock=SYSTEM_CLOCK,
    )
    dice = random.Random(seed)
    ends = asyncio.run(cancelling(guard, 10_000 * size, dice, random_body(dice)))
    assert sum(ends.values()) == 10_000 * size
    assert ends["cancelled"] > 500
    assert ends["success"] > 500
    nothing_is_held(guard)


def test_random_cancellation_in_several_loops_beside_threads_leaks_nothing(guard_of, seed, size):
    guard = guard_of(
        Bulkhead(6, queue=10**6),
        Retry(attempts=2, base=0, budget=Budget(0.5, 3)),
        Breaker(ratio(0.9, min_calls=50), open_for=1e-9),
        clock=SYSTEM_CLOCK,
    )

    def loop(number: int) -> Callable[[], Counter[str]]:
        dice = random.Random(seed + number)
        return lambda: asyncio.run(cancelling(guard, 3000 * size, dice, random_body(dice), batch=100))

    def thread() -> Counter[str]:
        dice, ends = random.Random(seed), Counter()

        def body() -> str:
            if dice.random() < 0.2:
                raise DOWN
            return "up"

        for _ in range(2000 * size):
            ends[guard.run(body).kind.value] += 1
        return ends

    ends = sum(at_once(loop(1), loop(2), thread, thread), Counter())
    assert sum(ends.values()) == 10_000 * size
    nothing_is_held(guard)


def test_limits_and_cancellations_race_without_being_mistaken_for_each_other(guard_of, seed, size):
    """Thousands of tasks under limits of a few milliseconds, in several loops, cancelled around the same time."""
    guard = guard_of(
        Bulkhead(10**6),
        Retry(attempts=2, base=0, budget=Budget(0.5, 3)),
        Breaker(count(10**6)),
        Timeout(total=0.016, attempt=0.008),
        clock=SYSTEM_CLOCK,
    )

    def loop(number: int) -> Callable[[], Counter[str]]:
        dice = random.Random(seed + number)

        async def body() -> str:
            await asyncio.sleep(dice.random() * 0.016)
            return "up"

        async def one(cancel_after: float | None) -> str:
            async def work() -> Any:
                outcome = await guard.arun(body)
                await asyncio.sleep(0)
                task = asyncio.current_task()
                assert task is not None
                assert task.cancelling() == 0
                return outcome

            task, was = asyncio.ensure_future(work()), []
            if cancel_after is not None:
                asyncio.get_running_loop().call_later(cancel_after, lambda: was.append(task.cancel()))
            try:
                outcome = await task
            except asyncio.CancelledError:
                assert was == [True]
                return "cancelled"
            assert True not in was
            return str(outcome.kind.value)

        async def main() -> Counter[str]:
            whens = [dice.choice([None, dice.random() * 0.016]) for _ in range(1200 * size)]
            ends: Counter[str] = Counter()
            for start in range(0, len(whens), 200):
                ends.update(await asyncio.gather(*(one(when) for when in whens[start : start + 200])))
            return ends

        return lambda: asyncio.run(main())

    ends = sum(at_once(loop(1), loop(2)), Counter())
    assert sum(ends.values()) == 2400 * size
    assert set(ends) <= {"success", "timeout", "cancelled"}
    assert min(ends["timeout"], ends["cancelled"]) > 50
    nothing_is_held(guard)


def test_a_guard_does_not_keep_the_loops_it_has_served(guard_of):
    import gc
    import weakref

    guard = guard_of(Timeout(total=60), Bulkhead(3, queue=3), Retry(), clock=SYSTEM_CLOCK)

    async def up() -> str:
        return "up"

    fetch, loops = guard(up), []
    for _ in range(20):
        loop = asyncio.new_event_loop()
        loop.run_until_complete(fetch())
        loop.run_until_complete(guard.arun(up))
        loop.close()
        loops.append(weakref.ref(loop))
    del loop
    gc.collect()
    assert sum(loop() is not None for loop in loops) <= 2  # the one used last may stay


def test_reloading_while_everybody_calls_keeps_slots_and_counts(guard_of, numbers, size):
    guard, metrics, stop = (
        guard_of(Bulkhead(4, queue=10**6), Retry(attempts=2, base=0)),
        InMemoryMetrics(),
        threading.Event(),
    )
    guard.telemetry.register(metrics)

    async def up() -> int:
        await asyncio.sleep(0)
        return numbers()

    def reload() -> None:
        for number in iter_until(stop):
            guard.replace(Bulkhead(1 + number % 5, queue=10**6), Retry(attempts=1 + number % 3, base=0))

    reloader = threading.Thread(target=reload)
    reloader.start()
    try:
        outcomes = everywhere(guard, numbers, up, 300 * size)
    finally:
        stop.set()
        reloader.join(30)
    assert {outcome.kind for outcome in outcomes} == {K.SUCCESS}
    assert metrics.snapshot()["call_count"] == len(outcomes)
    slots = strategy(guard, "bulkhead").slots
    assert (slots.in_use, slots.debt, len(slots.waiting)) == (0, 0, 0)


def iter_until(stop: threading.Event) -> Iterator[int]:
    number = 0
    while not stop.wait(0.001):
        number += 1
        yield number
