"""The scripted dependency."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from typing import Any

import pytest

from holdfast import Guard, Retry, Timeout
from holdfast.testing import Answer, Flaky, ManualClock, Received, Slow
from tests.guard.colours import Colour


def dress(colour: Colour, flaky: Flaky) -> Callable[..., Any]:
    return flaky.async_ if colour.is_async else flaky


def test_a_script_is_followed_and_its_last_step_repeats(colour: Colour) -> None:
    error = ConnectionError("down")
    flaky = Flaky(error, KeyError, "up")
    fn = dress(colour, flaky)
    with pytest.raises(ConnectionError) as raised:
        colour.plain(fn)
    assert raised.value is error
    with pytest.raises(KeyError):
        colour.plain(fn)
    assert [colour.plain(fn) for _ in range(3)] == ["up"] * 3


def test_calls_are_remembered_with_their_arguments(colour: Colour) -> None:
    flaky = Flaky(None)
    colour.plain(dress(colour, flaky), 1, unit="s")
    assert flaky.calls == [Received((1,), {"unit": "s"})]
    assert flaky.calls[0].kwargs == {"unit": "s"}


def test_a_guard_retries_it(colour: Colour, guard_of: Callable[..., Guard]) -> None:
    flaky = Flaky(OSError("down"), OSError("down"), "up")
    assert colour.call(guard_of(Retry(attempts=3, base=0)), dress(colour, flaky), "url") == "up"
    assert [call.args for call in flaky.calls] == [("url",)] * 3


def test_a_guard_decorates_it(colour: Colour, guard_of: Callable[..., Guard]) -> None:
    flaky = Flaky(OSError("down"), "up", name="fetch")
    decorated = guard_of(Retry(attempts=3, base=0))(dress(colour, flaky))
    assert colour.plain(decorated, "url", verbose=True) == "up"
    assert flaky.calls[1] == (("url",), {"verbose": True})


def test_a_slow_step_takes_its_time_on_the_clock(colour: Colour, clock: ManualClock) -> None:
    flaky = Flaky(Slow(5, Slow(2, OSError("late"))), Slow(1, "ok"), clock=clock)
    fn = dress(colour, flaky)
    with pytest.raises(OSError, match="late"):
        colour.plain(fn)
    assert colour.plain(fn) == "ok"
    assert clock.slept == [5, 2, 1]


def test_a_slow_step_runs_into_a_timeout(colour: Colour, guard_of: Callable[..., Guard], clock: ManualClock) -> None:
    guard = guard_of(Timeout(total=3))
    assert colour.run(guard, dress(colour, Flaky(Slow(5, "late"), clock=clock))).kind == "timeout"


def test_a_callable_step_gets_the_arguments(colour: Colour) -> None:
    flaky = Flaky(lambda a, b: a + b)
    assert colour.plain(dress(colour, flaky), 2, b=3) == 5


async def test_an_async_step_is_awaited_in_the_async_form() -> None:
    async def double(number: int) -> int:
        await asyncio.sleep(0)
        return 2 * number

    assert await Flaky(double).async_(4) == 8


def test_an_answer_is_given_as_it_is(colour: Colour) -> None:
    error = OSError("found in the log")
    flaky = Flaky(Answer(error), Answer(len), Answer(Slow(1)))
    fn = dress(colour, flaky)
    assert [colour.plain(fn) for _ in range(3)] == [error, len, Slow(1)]


def test_a_cycle_starts_over(colour: Colour) -> None:
    flaky = Flaky("a", "b", cycle=True)
    fn = dress(colour, flaky)
    assert [colour.plain(fn) for _ in range(5)] == ["a", "b", "a", "b", "a"]


def test_a_reset_starts_over() -> None:
    flaky = Flaky("a", "b")
    assert [flaky(), flaky()] == ["a", "b"]
    flaky.reset()
    assert flaky.calls == []
    assert flaky() == "a"


def test_both_forms_share_one_script() -> None:
    flaky = Flaky("a", "b", "c")
    assert [flaky(), asyncio.run(flaky.async_()), flaky()] == ["a", "b", "c"]
    assert repr(flaky) == "<Flaky flaky, called 3 times>"


def test_an_exception_that_repeats_does_not_grow() -> None:
    flaky, depths = Flaky(OSError("down")), []
    for _ in range(5):
        with pytest.raises(OSError, match="down") as raised:
            flaky()
        depths.append(len(raised.traceback))
    assert len(set(depths)) == 1


def test_threads_take_different_steps() -> None:
    flaky, got = Flaky(*range(400)), []
    threads = [threading.Thread(target=lambda: got.extend(flaky() for _ in range(100))) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(got) == list(range(400))


def test_an_empty_script_is_refused() -> None:
    with pytest.raises(ValueError, match="at least one step"):
        Flaky()


def test_slowness_without_a_clock_is_refused() -> None:
    with pytest.raises(ValueError, match="clock=manual_clock"):
        Flaky("ok", Slow(1))
