"""The clocks: the machine's own, and the manual one that moves when told."""

from __future__ import annotations

import asyncio
import sys
import threading
import time
from datetime import UTC, timedelta

import pytest

from holdfast import Guard, Hub, Timeout
from holdfast.core.clock import SYSTEM_CLOCK
from holdfast.testing.clock import ManualClock


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


def test_the_machines_clock_tells_monotonic_seconds_and_utc() -> None:
    before = time.monotonic()
    assert before <= SYSTEM_CLOCK.monotonic() <= time.monotonic()
    assert SYSTEM_CLOCK.wall().tzinfo is UTC


def test_the_machines_clock_waits_for_an_event() -> None:
    event = threading.Event()
    assert not SYSTEM_CLOCK.wait(event, 0)
    event.set()
    assert SYSTEM_CLOCK.wait(event, None)


def test_the_machines_clock_waits_however_long_that_may_take() -> None:
    event = threading.Event()
    waiting = threading.Thread(target=SYSTEM_CLOCK.wait, args=(event, float(sys.maxsize)))
    failed: list[object] = []
    before, threading.excepthook = threading.excepthook, failed.append
    try:
        waiting.start()
        event.set()
        waiting.join(20)
    finally:
        threading.excepthook = before
    assert (waiting.is_alive(), failed) == (False, [])


async def test_the_machines_clock_calls_back_on_the_running_loop() -> None:
    called = asyncio.Event()
    SYSTEM_CLOCK.call_at(SYSTEM_CLOCK.monotonic(), called.set)
    await asyncio.wait_for(called.wait(), 5)
    never = SYSTEM_CLOCK.call_at(SYSTEM_CLOCK.monotonic() + 60, lambda: pytest.fail("was cancelled"))
    never.cancel()
    await SYSTEM_CLOCK.asleep(0)


def test_manual_time_stands_still_until_it_is_moved(clock: ManualClock) -> None:
    assert clock.monotonic() == clock.monotonic() == 1000.0
    clock.advance(2.5)
    assert clock.monotonic() == 1002.5


def test_wall_time_moves_with_monotonic_time(clock: ManualClock) -> None:
    before = clock.wall()
    clock.advance(90)
    assert clock.wall() - before == timedelta(seconds=90)
    assert before.tzinfo is UTC


def test_a_sleep_takes_no_real_time_but_moves_the_clock(clock: ManualClock) -> None:
    clock.sleep(3600)
    assert clock.monotonic() == 4600.0
    assert clock.slept == [3600]


def test_a_sleep_fires_the_timers_on_its_way_each_at_its_own_moment(clock: ManualClock) -> None:
    seen = []
    for when in (1005, 1002, 1020):
        clock.call_at(when, lambda: seen.append(clock.monotonic()))
    clock.sleep(10)
    assert seen == [1002, 1005]
    assert clock.monotonic() == 1010


def test_a_cancelled_timer_does_not_fire(clock: ManualClock) -> None:
    timer = clock.call_at(1001, lambda: pytest.fail("was cancelled"))
    timer.cancel()
    clock.advance(5)


def test_timers_at_the_same_moment_fire_in_the_order_they_were_set(clock: ManualClock) -> None:
    seen: list[int] = []
    for number in range(5):
        clock.call_at(1001, lambda number=number: seen.append(number))
    clock.advance(1)
    assert seen == [0, 1, 2, 3, 4]


def test_a_timer_may_set_another_one_that_is_due_as_well(clock: ManualClock) -> None:
    seen = []
    clock.call_at(1001, lambda: clock.call_at(1002, lambda: seen.append(clock.monotonic())))
    clock.advance(5)
    assert seen == [1002]


async def test_an_async_sleep_takes_no_real_time_but_moves_the_clock(clock: ManualClock) -> None:
    await clock.asleep(3600)
    assert clock.monotonic() == 4600.0


async def test_sleepers_wake_in_the_order_of_their_ends(clock: ManualClock) -> None:
    woken = []

    async def sleep(seconds: float) -> None:
        await clock.asleep(seconds)
        woken.append((seconds, clock.monotonic()))

    await asyncio.gather(*(sleep(seconds) for seconds in (30, 10, 20)))
    assert woken == [(10, 1010), (20, 1020), (30, 1030)]


async def test_a_cancelled_sleeper_leaves_nothing_behind(clock: ManualClock) -> None:
    task = asyncio.ensure_future(clock.asleep(100))
    await asyncio.sleep(0)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    await clock.asleep(1)
    assert clock.monotonic() == 1001


async def test_without_auto_a_sleeper_waits_for_the_test_to_move_the_clock() -> None:
    clock = ManualClock(auto=False)
    task = asyncio.ensure_future(clock.asleep(10))
    await clock.advance_async(9)
    assert not task.done()
    await clock.advance_async(1)
    assert task.done()


async def test_advancing_lets_the_tasks_it_wakes_sleep_again_on_the_way() -> None:
    clock, woken = ManualClock(auto=False), []

    async def tick() -> None:
        for _ in range(3):
            await clock.asleep(10)
            woken.append(clock.monotonic())

    task = asyncio.ensure_future(tick())
    await clock.advance_async(100)
    assert woken == [1010, 1020, 1030]
    assert clock.monotonic() == 1100
    await task


def test_without_auto_a_blocked_thread_waits_for_the_test_to_move_the_clock() -> None:
    clock = ManualClock(auto=False)
    thread = threading.Thread(target=clock.sleep, args=(10,))
    thread.start()
    clock.advance(9)
    assert thread.is_alive()
    clock.advance(1)
    thread.join(5)
    assert not thread.is_alive()


def test_waiting_for_an_event_that_never_comes_takes_no_real_time(clock: ManualClock) -> None:
    assert not clock.wait(threading.Event(), 5)
    assert clock.monotonic() == 1005


def test_waiting_for_an_event_that_is_there_takes_no_time_at_all(clock: ManualClock) -> None:
    event = threading.Event()
    event.set()
    assert clock.wait(event, 5)
    assert clock.monotonic() == 1000


def test_an_event_from_another_thread_ends_a_wait() -> None:
    clock, event = ManualClock(auto=False), threading.Event()
    setter = threading.Thread(target=event.set)
    setter.start()
    assert clock.wait(event, 60)
    setter.join()


async def test_a_sleep_that_blocks_the_loop_does_not_fire_its_timers_inside_the_running_task() -> None:
    clock = ManualClock()
    guard = Guard("blocking", Timeout(total=5), clock=clock, telemetry=Hub())

    async def blocks() -> None:
        clock.sleep(20)

    outcome = await guard.arun(blocks)
    assert outcome.late
    await asyncio.sleep(0)  # a stray cancellation would surface here
