"""What the manual clock offers to tests; as a clock it is tested in `tests/core/test_clock.py`."""

from __future__ import annotations

import asyncio
import math
import threading

import pytest

from holdfast import Guard, Hub, Retry
from holdfast.testing import FakeClock, Flaky, ManualClock


def test_it_is_known_as_a_fake_clock_too() -> None:
    assert FakeClock is ManualClock


@pytest.mark.parametrize("seconds", [-1, -0.001, math.nan])
async def test_time_does_not_move_backwards(seconds: float) -> None:
    clock = ManualClock()
    with pytest.raises(ValueError, match="forwards only"):
        clock.advance(seconds)
    with pytest.raises(ValueError, match="forwards only"):
        await clock.advance_async(seconds)
    assert clock.monotonic() == 1000


def test_a_test_waits_until_its_threads_sleep_and_then_wakes_them() -> None:
    clock = ManualClock(auto=False)
    guard = Guard("x", Retry(attempts=2, base=5, jitter="none"), clock=clock, telemetry=Hub())
    outcomes: list[str] = []
    work = [
        threading.Thread(target=lambda: outcomes.append(guard.call(Flaky(OSError("down"), "up")))) for _ in range(2)
    ]
    for thread in work:
        thread.start()
    clock.wait_for_sleepers(2)
    assert (clock.sleepers, outcomes) == (2, [])
    clock.advance(5)
    for thread in work:
        thread.join()
    assert (clock.sleepers, outcomes) == (0, ["up", "up"])


async def test_sleeping_tasks_are_sleepers_too() -> None:
    clock = ManualClock(auto=False)
    task = asyncio.ensure_future(clock.asleep(5))
    await asyncio.sleep(0)
    clock.wait_for_sleepers(1)
    await clock.advance_async(5)
    assert (task.done(), clock.sleepers) == (True, 0)


def test_sleepers_that_do_not_come_fail_the_test(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("holdfast.testing.clock._PATIENCE_S", 0.0)
    with pytest.raises(AssertionError, match="waited 0 s for 1 sleepers, saw 0"):
        ManualClock(auto=False).wait_for_sleepers()
