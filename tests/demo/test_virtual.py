"""Virtual time, and threads that take turns with it."""

from __future__ import annotations

import asyncio
import threading
import time

import pytest

from holdfast.demo.twice.virtual import EPOCH, VirtualClock, run_virtually


def test_virtual_time_passes_in_order_and_at_once() -> None:
    async def work() -> list[tuple[str, float]]:
        clock, seen = VirtualClock(), []

        async def nap(name: str, seconds: float) -> None:
            await clock.asleep(seconds)
            seen.append((name, clock.monotonic()))

        await asyncio.gather(nap("late", 3600), nap("early", 60))
        return seen

    begun = time.monotonic()
    assert run_virtually(work()) == [("early", 60.0), ("late", 3600.0)]
    assert time.monotonic() - begun < 5


def test_the_time_of_day_moves_with_it() -> None:
    async def work() -> float:
        clock = VirtualClock()
        await clock.asleep(90)
        return (clock.wall() - EPOCH).total_seconds()

    assert run_virtually(work()) == 90


def test_a_virtual_loop_in_which_everything_waits_says_so() -> None:
    async def work() -> None:
        await asyncio.get_running_loop().create_future()

    with pytest.raises(RuntimeError, match="nothing is due"):
        run_virtually(work())


def test_virtual_time_cannot_block_its_own_thread() -> None:
    async def work() -> None:
        VirtualClock().sleep(1)

    with pytest.raises(RuntimeError, match="use an async function"):
        run_virtually(work())


def test_the_time_stands_still_while_a_thread_works() -> None:
    async def work() -> tuple[float, float, float]:
        clock = VirtualClock()
        slow = asyncio.Event()
        asyncio.get_running_loop().call_later(0.001, slow.set)
        took = await asyncio.to_thread(lambda: sum(range(2_000_000)) and clock.monotonic())
        at = clock.monotonic()
        await slow.wait()
        return took, at, clock.monotonic()

    assert run_virtually(work()) == (0.0, 0.0, 0.001)


def test_a_thread_can_sleep_and_wait_in_virtual_time() -> None:
    async def work() -> list[tuple[str, float]]:
        clock, event, seen = VirtualClock(), threading.Event(), []

        def thread() -> None:
            clock.sleep(2)
            seen.append(("slept", clock.monotonic()))
            seen.append((str(clock.wait(event, 1)), clock.monotonic()))
            seen.append((str(clock.wait(event, None)), clock.monotonic()))

        asyncio.get_running_loop().call_at(5.0, event.set)
        await asyncio.to_thread(thread)
        return seen

    seen = run_virtually(work())
    assert [what for what, _ in seen] == ["slept", "False", "True"]
    assert [at for _, at in seen] == pytest.approx([2, 3, 5], abs=0.02)


def test_threads_and_tasks_take_turns_in_the_same_order_every_time() -> None:
    async def work() -> list[str]:
        clock, seen = VirtualClock(), []

        def thread(name: str, step: float) -> None:
            for number in range(5):
                clock.sleep(step)
                seen.append(f"{name}{number}")

        async def task() -> None:
            for number in range(5):
                await clock.asleep(0.1)
                seen.append(f"task{number}")

        await asyncio.gather(asyncio.to_thread(thread, "a", 0.07), asyncio.to_thread(thread, "b", 0.11), task())
        return seen

    first = run_virtually(work())
    assert len(first) == 15
    assert all(run_virtually(work()) == first for _ in range(20))


def test_what_a_thread_raises_reaches_the_task_that_waits_for_it() -> None:
    async def work() -> None:
        await asyncio.to_thread(lambda: 1 / 0)

    with pytest.raises(ZeroDivisionError):
        run_virtually(work())


def test_a_sleeper_on_a_late_clock_wakes_late() -> None:
    async def work() -> float:
        await VirtualClock(late=0.01).asleep(1)
        return VirtualClock().monotonic()

    assert run_virtually(work()) == pytest.approx(1.01)
