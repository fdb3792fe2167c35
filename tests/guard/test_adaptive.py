"""The adaptive limit around calls: notes 2.10. How the limit moves is tested with the machine."""

from __future__ import annotations

import asyncio
import random
import threading
from typing import Any

import pytest

from holdfast.core.context import ResilienceContext, deadline, use_context
from holdfast.core.outcome import OutcomeKind
from holdfast.errors import BulkheadFull
from holdfast.guard.adaptive import AdaptiveLimit, AdaptiveLimitStrategy, AdaptiveSlots, LuckyTicket, build
from holdfast.guard.guard import Guard
from holdfast.guard.priority import PRIORITY, Priority
from holdfast.guard.timeout import Timeout
from holdfast.machine.breaker import Breaker
from holdfast.machine.retry import Retry
from holdfast.machine.trip import consecutive
from holdfast.telemetry.events import LoadShed
from holdfast.telemetry.hub import Hub
from holdfast.testing.clock import ManualClock
from tests.guard.colours import Interrupted, Slow

INTERACTIVE, WORKFLOW, BACKGROUND = Priority


@pytest.fixture
def path() -> str:
    """A guard with an AdaptiveLimit is never fused."""
    return "fused"


def fixed(limit: int, **options: Any) -> AdaptiveLimitStrategy:
    """A limit that stays where it is."""
    return AdaptiveLimitStrategy("x", policy=AdaptiveLimit(min=limit, max=limit, initial=limit, **options))


def eager(**options: Any) -> AdaptiveLimitStrategy:
    """A limiter that looks at every call from the second one on."""
    return AdaptiveLimitStrategy("x", policy=AdaptiveLimit(window_min=1e-9, min_samples=1, **options))


def baseline(strategy: AdaptiveLimitStrategy) -> float:
    return strategy.slots.limiter.baseline


class Crowd:
    """Calls that hang until they are told to end."""

    def __init__(self, colour: Any, guard: Guard, strategy: AdaptiveLimitStrategy) -> None:
        self.colour = colour
        self.guard = guard
        self.strategy = strategy
        self.began: list[str] = []
        self.gates: dict[str, Any] = {}
        self.calls: dict[str, Any] = {}

    def start(self, name: str, priority: Priority = WORKFLOW) -> Any:
        self.gates[name] = self.colour.gate()

        def body() -> Any:
            self.began.append(name)
            yield self.gates[name].wait()
            return name

        known = len(self.began) + self.strategy.slots.queued
        with use_context(ResilienceContext("outer", properties={PRIORITY: priority})):
            call = self.calls[name] = self.colour.start(self.guard, self.colour.fn(body))
        self.colour.until(lambda: call.done or len(self.began) + self.strategy.slots.queued > known)
        return call

    def end(self, name: str) -> None:
        expected = len(self.began) + min(1, self.strategy.slots.queued)
        self.gates[name].open()
        self.colour.until(lambda: self.calls[name].done and len(self.began) == expected)

    def end_all(self) -> None:
        for gate in self.gates.values():
            gate.open()
        for call in self.calls.values():
            call.outcome()
        assert (self.strategy.slots.running, self.strategy.slots.queued) == (0, 0)


@pytest.fixture
def crowd(colour: Any, guard_of: Any) -> Any:
    return lambda strategy, **options: Crowd(colour, guard_of(strategy, **options), strategy)


def test_calls_beyond_the_limit_are_refused_when_nothing_may_wait(crowd: Any, recorder: Any) -> None:
    people = crowd(fixed(2))
    people.guard.telemetry.register(recorder)
    people.start("a")
    people.start("b")
    refused = people.start("c", INTERACTIVE).outcome()
    assert (refused.kind, refused.reason, refused.attempts) == (OutcomeKind.REJECTED, "bulkhead_full", 0)
    assert isinstance(refused.error, BulkheadFull)
    assert "2 running, the limit is 2, 0 waiting" in str(refused.error)
    assert [(event.name, event.reason) for event in recorder.of(LoadShed)] == [("x", "bulkhead_full")]
    people.end("a")
    assert not people.start("d").done
    people.end_all()


def test_a_queue_refuses_more_and_more_calls_and_the_least_urgent_first(crowd: Any) -> None:
    people = crowd(fixed(2, queue=(1, 2)))  # the die always shows 0.5
    for name in ("running 1", "running 2", "waiting 1", "waiting 2", "waiting 3"):
        people.start(name)
    assert people.strategy.slots.queued == 3
    assert [people.strategy.slots.reject_rate(priority) for priority in Priority] == [0.0, 0.5, 1.0]
    assert people.start("background", BACKGROUND).outcome().kind is OutcomeKind.REJECTED
    assert not people.start("workflow", WORKFLOW).done
    assert [people.strategy.slots.reject_rate(priority) for priority in Priority] == [1.0, 1.0, 1.0]
    assert people.start("interactive", INTERACTIVE).outcome().kind is OutcomeKind.REJECTED
    people.end_all()


def test_a_freed_slot_goes_to_the_most_urgent_who_waits(crowd: Any) -> None:
    people = crowd(fixed(1, queue=(9, 9)))
    people.start("running")
    people.start("b", BACKGROUND)
    people.start("w", WORKFLOW)
    people.start("i", INTERACTIVE)
    for _ in range(3):
        people.end(people.began[-1])
    assert people.began == ["running", "i", "w", "b"]
    people.end_all()


def test_a_wait_ends_with_the_deadline(colour: Any, guard_of: Any) -> None:
    clock = ManualClock(auto=False)
    strategy = fixed(1, queue=(9, 9))
    people = Crowd(colour, guard_of(strategy, clock=clock), strategy)
    people.start("running")
    with deadline(3.0, clock=clock):
        waiting = colour.start(people.guard, colour.fn(["never"]))
    colour.until(lambda: strategy.slots.queued == 1)
    colour.advance(clock, 3.0)
    outcome = waiting.outcome()
    assert (outcome.kind, outcome.reason) == (OutcomeKind.REJECTED, "bulkhead_full")
    people.end_all()


def test_the_limiter_learns_how_long_answers_take(colour: Any, clock: Any, guard_of: Any) -> None:
    strategy = eager()
    guard = guard_of(strategy)
    for _ in range(2):
        colour.run(guard, colour.fn([Slow(clock, 0.25, "value")]))
    assert baseline(strategy) == 0.25


@pytest.mark.parametrize(
    "kind", [OutcomeKind.TIMEOUT, OutcomeKind.TRANSIENT_FAILURE, OutcomeKind.TERMINAL_FAILURE, OutcomeKind.REJECTED]
)
def test_what_is_no_answer_releases_its_slot_without_a_sample(
    colour: Any, clock: Any, guard_of: Any, kind: OutcomeKind
) -> None:
    strategy = eager()
    guard = guard_of(strategy, result_classifier=lambda _: kind)
    for _ in range(3):
        assert colour.run(guard, colour.fn([Slow(clock, 0.25, "value")])).kind is kind
    assert (baseline(strategy), strategy.slots.running) == (0.0, 0)


def test_a_call_that_was_cut_releases_its_slot_without_a_sample(clock: Any, guard_of: Any) -> None:
    strategy = eager()
    guard = guard_of(Timeout(total=1), strategy)

    async def body() -> None:
        await clock.asleep(60)

    for _ in range(3):
        assert asyncio.run(guard.arun(body)).kind is OutcomeKind.TIMEOUT
    assert (baseline(strategy), strategy.slots.running) == (0.0, 0)


def test_an_interrupted_call_releases_its_slot_without_a_sample(colour: Any, clock: Any, guard_of: Any) -> None:
    strategy = eager()
    guard = guard_of(strategy)
    for _ in range(3):
        with pytest.raises(Interrupted):
            colour.run(guard, colour.fn([Slow(clock, 0.25, Interrupted())]))
    assert (baseline(strategy), strategy.slots.running) == (0.0, 0)


def test_a_refusal_further_in_is_no_sample(colour: Any, clock: Any, guard_of: Any) -> None:
    strategy = eager()
    guard = guard_of(strategy, Breaker(consecutive(1), open_for=1000))
    for _ in range(3):
        colour.run(guard, colour.fn([OSError("down")]))
        clock.advance(1)
    assert baseline(strategy) == 0.0


def test_after_a_retry_only_the_last_attempt_is_the_sample(colour: Any, clock: Any, guard_of: Any) -> None:
    strategy = eager()
    guard = guard_of(strategy, Retry(attempts=2, base=5, jitter="none"))
    for _ in range(2):
        colour.run(guard, colour.fn([OSError("down"), Slow(clock, 0.25, "value")]))
    assert baseline(strategy) == 0.25


class Woken:
    def wake(self) -> bool:
        return True


def test_a_limit_that_grows_admits_more_of_those_who_wait() -> None:
    slots = AdaptiveSlots(AdaptiveLimit(initial=1, window_min=1e-9, min_samples=1, queue=(9, 9)))
    assert slots.take()
    tickets = [LuckyTicket(Woken(), 0.0, WORKFLOW, 0.5) for _ in range(3)]
    assert all(slots.enter(ticket) for ticket in tickets)
    slots.settle(1.0, 0.1, 1)
    assert (slots.limit, [ticket.granted for ticket in tickets]) == (1, [True, False, False])
    slots.settle(2.0, 0.1, 1)
    assert (slots.limit, [ticket.granted for ticket in tickets]) == (2, [True, True, True])
    assert (slots.running, slots.queued) == (2, 0)


def test_a_reload_keeps_what_runs_waits_and_was_learnt(crowd: Any, colour: Any, clock: Any) -> None:
    people = crowd(fixed(1, queue=(9, 9)))
    slots = people.strategy.slots
    people.start("running")
    people.start("waiting")
    changed = fixed(2, queue=(9, 9))
    people.guard.replace(changed)
    assert changed.slots is slots
    colour.until(lambda: people.began == ["running", "waiting"])
    assert (slots.limit, slots.running) == (2, 2)
    people.end_all()


def test_an_adaptive_limit_cannot_be_overridden_for_a_block(guard_of: Any) -> None:
    with pytest.raises(ValueError, match="shared state"):
        with guard_of(fixed(1)).override(fixed(2)):
            pass


def test_no_slot_is_lost_under_threads_tasks_and_cancellations() -> None:
    strategy = fixed(3, queue=(1000, 1000))
    guard = Guard("x", strategy, telemetry=Hub())
    lock, level, peak = threading.Lock(), 0, 0

    def step(by: int) -> None:
        nonlocal level, peak
        with lock:
            level += by
            peak = max(peak, level)

    def sync_body() -> None:
        step(+1)
        step(-1)

    async def async_body() -> None:
        step(+1)
        try:
            await asyncio.sleep(0)
        finally:
            step(-1)

    def in_thread() -> None:
        for _ in range(200):
            assert guard.run(sync_body).is_success

    async def in_tasks(seed: int) -> None:
        die = random.Random(seed)
        tasks = [asyncio.ensure_future(guard.arun(async_body)) for _ in range(300)]
        while not all(task.done() for task in tasks):
            await asyncio.sleep(0)
            if die.random() < 0.3:
                die.choice(tasks).cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    threads = [threading.Thread(target=in_thread) for _ in range(2)]
    threads += [threading.Thread(target=lambda seed=seed: asyncio.run(in_tasks(seed))) for seed in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert (strategy.slots.running, strategy.slots.queued, level) == (0, 0, 0)
    assert peak <= 3


def test_the_policy_builds_one_strategy_named_like_the_guard(guard_of: Any) -> None:
    [made] = build(AdaptiveLimit(), guard_of()._setting)
    assert (made.name, made.kind) == ("x", "adaptive")
    assert made.describe() == "adaptive limit 'x': 20 at once now, 1 to 200, nothing waits"
    queued = AdaptiveLimitStrategy("x", policy=AdaptiveLimit(queue=(2, 3)))
    assert queued.describe() == "adaptive limit 'x': 20 at once now, 1 to 200, 2 to 3 times as many wait"
