"""The priority bulkhead: notes 2.6 and the traps of seed 004."""

from __future__ import annotations

import asyncio
import random
import threading
from typing import Any

import pytest

from holdfast.core.context import ResilienceContext, TypedKey, deadline, use_context
from holdfast.core.outcome import OutcomeKind
from holdfast.errors import BulkheadFull, PolicyError
from holdfast.guard.guard import Guard
from holdfast.guard.priority import (
    PRIORITY,
    Priority,
    PriorityBulkhead,
    PriorityBulkheadStrategy,
    PrioritySlots,
    PriorityTicket,
    priority_of,
)
from holdfast.telemetry.events import AttemptCompleted, LoadShed
from holdfast.telemetry.hub import Hub
from holdfast.testing.clock import ManualClock
from tests.guard.colours import Interrupted

INTERACTIVE, WORKFLOW, BACKGROUND = Priority


@pytest.fixture
def path() -> str:
    """A guard with a PriorityBulkhead is never fused."""
    return "fused"


@pytest.fixture
def clock() -> ManualClock:
    """Waiting in a queue takes the time that the test says."""
    return ManualClock(auto=False)


class Crowd:
    """Calls of several classes on one guard, each of which ends when it is told to."""

    def __init__(self, colour: Any, guard: Guard) -> None:
        self.colour = colour
        self.guard = guard
        self.began: list[str] = []
        self.gates: dict[str, Any] = {}
        self.calls: dict[str, Any] = {}

    @property
    def slots(self) -> PrioritySlots:
        return slots_of(self.guard)

    def start(self, name: str, priority: Priority | None = None) -> Any:
        """A call that runs, or waits in the queue."""
        self.gates[name] = self.colour.gate()

        def body() -> Any:
            self.began.append(name)
            yield self.gates[name].wait()
            return name

        bag = {} if priority is None else {PRIORITY: priority}
        known = len(self.began) + self.slots.queued
        with use_context(ResilienceContext("outer", properties=bag)):
            call = self.calls[name] = self.colour.start(self.guard, self.colour.fn(body))
        self.colour.until(lambda: call.done or len(self.began) + self.slots.queued > known)
        return call

    def end(self, name: str) -> None:
        """Let a running call end, and whoever gets its slot begin."""
        expected = len(self.began) + min(1, self.slots.queued)
        self.gates[name].open()
        self.colour.until(lambda: self.calls[name].done and len(self.began) == expected)


def slots_of(guard: Guard) -> PrioritySlots:
    found = guard.plan.first(PriorityBulkheadStrategy)
    assert found is not None
    return found.slots


@pytest.fixture
def crowd(colour: Any, guard_of: Any) -> Any:
    return lambda *policies: Crowd(colour, guard_of(*policies))


def test_a_free_slot_admits_every_class_at_once(crowd: Any) -> None:
    people = crowd(PriorityBulkhead(3, queue=0))
    calls = [people.start(priority.name, priority) for priority in Priority]
    assert people.began == ["INTERACTIVE", "WORKFLOW", "BACKGROUND"]
    for call, priority in zip(calls, Priority, strict=True):
        people.gates[priority.name].open()
        assert call.outcome().value == priority.name
    assert people.slots.running == 0


def test_a_freed_slot_goes_to_the_most_urgent_class_and_within_it_to_the_first(crowd: Any) -> None:
    people = crowd(PriorityBulkhead(1))
    people.start("running", BACKGROUND)
    for name, priority in [
        ("b1", BACKGROUND), ("w1", WORKFLOW), ("i1", INTERACTIVE), ("b2", BACKGROUND), ("i2", INTERACTIVE),
        ("w2", WORKFLOW),
    ]:  # fmt: skip
        people.start(name, priority)
    assert people.began == ["running"]
    for _ in range(6):
        people.end(people.began[-1])
    assert people.began == ["running", "i1", "i2", "w1", "w2", "b1", "b2"]
    people.end("b2")


def test_a_running_call_is_not_interrupted_for_an_urgent_one(crowd: Any) -> None:
    people = crowd(PriorityBulkhead(1))
    slow = people.start("slow", BACKGROUND)
    urgent = people.start("urgent", INTERACTIVE)
    assert not slow.done
    people.end("slow")
    assert slow.outcome().value == "slow"
    people.end("urgent")
    assert urgent.outcome().value == "urgent"


def test_a_call_without_a_class_is_a_workflow_and_interactive_is_not_taken_for_absent(crowd: Any) -> None:
    people = crowd(PriorityBulkhead(1))
    people.start("running")
    people.start("background", BACKGROUND)
    people.start("plain")
    people.start("interactive", INTERACTIVE)
    assert [len(queue) for queue in people.slots.waiting] == [1, 1, 1]
    for _ in range(3):
        people.end(people.began[-1])
    assert people.began == ["running", "interactive", "plain", "background"]
    people.end("background")


def test_the_class_is_read_by_the_key_and_not_by_its_truth() -> None:
    assert priority_of(ResilienceContext("x")) is WORKFLOW
    assert priority_of(ResilienceContext("x", properties={PRIORITY: INTERACTIVE})) is INTERACTIVE
    assert priority_of(ResilienceContext("x", properties={PRIORITY: 2})) is BACKGROUND
    with pytest.raises(ValueError, match="9 is not a valid Priority"):
        priority_of(ResilienceContext("x", properties={PRIORITY: 9}))
    assert TypedKey[int](PRIORITY.name) != PRIORITY


def test_the_queue_limit_holds_per_class(crowd: Any, recorder: Any) -> None:
    people = crowd(PriorityBulkhead(1, queue=1))
    people.guard.telemetry.register(recorder)
    people.start("running")
    for priority in Priority:
        people.start(priority.name, priority)
    refused = people.start("too many", BACKGROUND).outcome()
    assert (refused.kind, refused.reason) == (OutcomeKind.REJECTED, "bulkhead_full")
    assert isinstance(refused.error, BulkheadFull)
    assert "1 running and 1 background calls waiting" in str(refused.error)
    assert [(event.name, event.reason) for event in recorder.of(LoadShed)] == [("x", "bulkhead_full")]
    for _ in range(4):
        people.end(people.began[-1])
    assert people.slots.running == 0


def test_a_queue_of_none_refuses_only_when_busy(crowd: Any) -> None:
    people = crowd(PriorityBulkhead(1, queue=0))
    people.start("running")
    assert people.start("second", INTERACTIVE).outcome().kind is OutcomeKind.REJECTED
    people.end("running")
    third = people.start("third")
    people.end("third")
    assert third.outcome().is_success


def test_a_wait_ends_with_max_wait(colour: Any, clock: ManualClock, crowd: Any) -> None:
    people = crowd(PriorityBulkhead(1, max_wait=5.0))
    people.start("running")
    waiting = people.start("waiting")
    colour.advance(clock, 5.0)
    outcome = waiting.outcome()
    assert (outcome.kind, outcome.reason) == (OutcomeKind.REJECTED, "bulkhead_full")
    assert "within 5 s" in str(outcome.error)
    assert people.slots.queued == 0
    people.end("running")


def test_a_wait_ends_with_the_deadline(colour: Any, clock: ManualClock, crowd: Any) -> None:
    people = crowd(PriorityBulkhead(1))
    people.start("running")
    with deadline(3.0, clock=clock):
        waiting = colour.start(people.guard, colour.fn(["never"]))
    colour.until(lambda: people.slots.queued == 1)
    colour.advance(clock, 3.0)
    outcome = waiting.outcome()
    assert (outcome.kind, outcome.reason, outcome.attempts) == (OutcomeKind.REJECTED, "bulkhead_full", 0)
    assert people.slots.queued == 0
    people.end("running")


def test_wait_and_service_time_are_recorded_apart(colour: Any, clock: ManualClock, crowd: Any, recorder: Any) -> None:
    people = crowd(PriorityBulkhead(1))
    people.guard.telemetry.register(recorder)
    first = people.start("first")
    second = people.start("second")
    colour.advance(clock, 4.0)
    people.end("first")
    first.outcome()
    colour.advance(clock, 1.0)
    people.end("second")
    second.outcome()
    assert [(event.wait, event.service_s) for event in recorder.of(AttemptCompleted)] == [(0.0, 4.0), (4.0, 1.0)]


@pytest.mark.parametrize(
    ("ageing", "expected"), [(None, ["i1", "i2", "b1"]), (10.0, ["b1", "i1", "i2"])], ids=["without", "with"]
)
def test_ageing_keeps_a_stream_of_urgent_calls_from_starving_the_rest(
    colour: Any, clock: ManualClock, crowd: Any, ageing: float | None, expected: list[str]
) -> None:
    people = crowd(PriorityBulkhead(1, ageing=ageing))
    people.start("running")
    people.start("b1", BACKGROUND)
    colour.advance(clock, 20.0)  # two classes up: as urgent as those who come now, and before them
    people.start("i1", INTERACTIVE)
    people.start("i2", INTERACTIVE)
    for _ in range(3):
        people.end(people.began[-1])
    assert people.began[1:] == expected
    people.end(people.began[-1])


def test_ageing_counts_whole_classes(clock: ManualClock) -> None:
    slots = PrioritySlots(1, 10, ageing=10.0)
    assert slots.take()
    waiter = threading.Event()
    tickets = [
        PriorityTicket(Woken(waiter), since, priority) for since, priority in [(0.0, BACKGROUND), (5.0, WORKFLOW)]
    ]
    for ticket in tickets:
        assert slots.enter(ticket)
    slots.give(9.9)
    assert [ticket.granted for ticket in tickets] == [False, True]
    later = PriorityTicket(Woken(waiter), 9.95, WORKFLOW)
    assert slots.enter(later)
    slots.give(10.0)
    assert (tickets[0].granted, later.granted) == (True, False)


class Woken:
    """A waiter whose event loop may be gone."""

    def __init__(self, event: threading.Event, alive: bool = True) -> None:
        self.event = event
        self.alive = alive

    def wake(self) -> bool:
        self.event.set()
        return self.alive


def test_an_interrupted_call_gives_its_slot_back(colour: Any, crowd: Any) -> None:
    people = crowd(PriorityBulkhead(1))
    with pytest.raises(Interrupted):
        colour.run(people.guard, colour.fn([Interrupted()]))
    assert people.slots.running == 0


async def test_a_cancelled_waiter_leaves_no_trace(clock: ManualClock, guard_of: Any) -> None:
    guard = guard_of(PriorityBulkhead(1))
    gate = asyncio.Event()
    running = asyncio.ensure_future(guard.arun(gate.wait))
    await clock.advance_async(0)
    waiting = asyncio.ensure_future(guard.arun(gate.wait))
    await clock.advance_async(0)
    assert slots_of(guard).queued == 1
    waiting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await waiting
    assert (slots_of(guard).queued, slots_of(guard).running) == (0, 1)
    gate.set()
    assert (await running).is_success
    assert slots_of(guard).running == 0


async def test_a_waiter_that_is_handed_the_slot_too_late_passes_it_on(clock: ManualClock, guard_of: Any) -> None:
    guard = guard_of(PriorityBulkhead(1))
    slots = slots_of(guard)
    assert slots.take()

    async def body() -> str:
        return "served"

    first = asyncio.ensure_future(guard.arun(body))
    second = asyncio.ensure_future(guard.arun(body))
    await clock.advance_async(0)
    slots.give(clock.monotonic())  # handed to the first, which has not run yet …
    first.cancel()  # … and never will
    with pytest.raises(asyncio.CancelledError):
        await first
    assert (await second).value == "served"
    assert slots.running == 0


def test_a_slot_handed_to_a_loop_that_is_gone_goes_to_the_next() -> None:
    slots = PrioritySlots(1, 10)
    assert slots.take()
    gone = PriorityTicket(Woken(threading.Event(), alive=False), 0.0, INTERACTIVE)
    here = PriorityTicket(Woken(threading.Event()), 0.0, BACKGROUND)
    assert slots.enter(gone)
    assert slots.enter(here)
    slots.give(1.0)
    assert (here.granted, slots.running, slots.queued) == (True, 1, 0)


def test_a_newcomer_does_not_pass_those_who_wait(crowd: Any) -> None:
    people = crowd(PriorityBulkhead(1))
    people.start("running")
    people.start("first")
    people.start("second")
    people.end("running")
    people.end("first")
    assert people.began == ["running", "first", "second"]
    people.end("second")


def test_a_reload_keeps_slots_and_queue_under_the_new_limits(crowd: Any) -> None:
    people = crowd(PriorityBulkhead(1))
    old = people.start("old")
    waiting = people.start("waiting", BACKGROUND)
    people.guard.replace(PriorityBulkhead(2))
    people.colour.until(lambda: people.began == ["old", "waiting"])
    assert people.slots.running == 2
    people.guard.replace(PriorityBulkhead(1, queue=1, ageing=7.0))
    next_one = people.start("next")
    people.gates["old"].open()
    assert old.outcome().is_success
    assert people.began == ["old", "waiting"]  # one more must leave before there is a slot
    people.end("waiting")
    assert waiting.outcome().is_success
    people.end("next")
    assert next_one.outcome().is_success
    assert (people.slots.running, people.slots.ageing, people.slots.queue_limit) == (0, 7.0, 1)


def test_a_bulkhead_with_another_id_starts_with_slots_of_its_own(crowd: Any) -> None:
    people = crowd(PriorityBulkhead(1, id="a"))
    before = people.slots
    people.guard.replace(PriorityBulkhead(1, id="b"))
    assert people.slots is not before


def test_a_bulkhead_cannot_be_overridden_for_a_block(guard_of: Any) -> None:
    with pytest.raises(PolicyError, match="shared state"):
        with guard_of(PriorityBulkhead(1)).override(PriorityBulkhead(2)):
            pass


def test_the_seed_s_strategy_has_the_seed_s_defaults(colour: Any, guard_of: Any) -> None:
    strategy = PriorityBulkheadStrategy("broker")
    assert (strategy.slots.limit, strategy.slots.queue_limit, strategy.kind) == (1, 32, "bulkhead")
    assert colour.run(guard_of(strategy), colour.fn(["value"])).value == "value"
    assert strategy.describe() == "priority bulkhead 'broker': 1 at once, 32 waiting per class"
    aged = PriorityBulkheadStrategy("broker", 2, 4, ageing=30)
    assert aged.describe() == "priority bulkhead 'broker': 2 at once, 4 waiting per class, one class up every 30 s"


def test_no_slot_is_lost_or_given_twice_under_threads_tasks_and_cancellations() -> None:
    guard = Guard("x", PriorityBulkhead(3, queue=1000), telemetry=Hub())
    lock, level, peak, served = threading.Lock(), 0, 0, 0

    def enter() -> None:
        nonlocal level, peak, served
        with lock:
            level += 1
            served += 1
            peak = max(peak, level)

    def leave() -> None:
        nonlocal level
        with lock:
            level -= 1

    def sync_body() -> None:
        enter()
        leave()

    async def async_body() -> None:
        enter()
        try:
            await asyncio.sleep(0)
        finally:
            leave()

    def in_thread(seed: int) -> None:
        die = random.Random(seed)
        for _ in range(200):
            with use_context(ResilienceContext("outer", properties={PRIORITY: die.choice(list(Priority))})):
                assert guard.run(sync_body).is_success

    async def in_tasks(seed: int) -> None:
        die = random.Random(seed)

        async def one() -> None:
            with use_context(ResilienceContext("outer", properties={PRIORITY: die.choice(list(Priority))})):
                await guard.arun(async_body)

        tasks = [asyncio.ensure_future(one()) for _ in range(300)]
        while not all(task.done() for task in tasks):
            await asyncio.sleep(0)
            if die.random() < 0.3:
                die.choice(tasks).cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    threads = [threading.Thread(target=in_thread, args=(seed,)) for seed in range(2)]
    threads += [threading.Thread(target=lambda seed=seed: asyncio.run(in_tasks(seed))) for seed in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert (slots_of(guard).running, slots_of(guard).queued, level) == (0, 0, 0)
    assert peak <= 3
    assert served >= 400


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"limit": 0}, "PriorityBulkhead.limit"),
        ({"limit": 1, "queue": -1}, "PriorityBulkhead.queue"),
        ({"limit": 1, "max_wait": -1}, "PriorityBulkhead.max_wait"),
        ({"limit": 1, "ageing": 0}, "PriorityBulkhead.ageing must be seconds above 0, got 0"),
        ({"limit": 1, "ageing": float("inf")}, "PriorityBulkhead.ageing"),
    ],
)
def test_an_impossible_priority_bulkhead_is_refused_when_it_is_built(options: dict[str, Any], message: str) -> None:
    with pytest.raises(PolicyError, match=message):
        PriorityBulkhead(**options)
