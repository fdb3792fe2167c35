"""How a method of a store is measured: prepared calls in a row, the best of several samples."""

import asyncio
import gc
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from inspect import iscoroutinefunction
from time import perf_counter
from typing import Any

SLOW = 2.0


def times(number: int) -> list[None]:
    return [None] * number


@dataclass(frozen=True, slots=True)
class Task:
    """What is timed: `call` with each of the things that `prepare` makes, which is not timed.

    `proof` says of an answer whether the contender did what the row says. Each call's time is divided by `shared`.
    """

    call: Callable[[Any], Any]
    prepare: Callable[[int], Sequence[Any]] = times
    proof: Callable[[Any], bool] = lambda answer: answer is not None
    shared: int = 1

    def check(self, answer: Any) -> None:
        if not self.proof(answer):
            raise AssertionError(f"did not do what the row says, but answered {answer!r}"[:200])


class Stopwatch:
    """Remembers how many calls make a sample of each case."""

    def __init__(self) -> None:
        self._runner = asyncio.Runner()
        self._calls: dict[Any, int] = {}
        self._slow: dict[Any, float] = {}

    def measure(self, case: Any, task: Task, most: int, samples: int, seconds: float) -> list[float]:
        """Microseconds per call, one figure per sample; of a call that takes very long, the first one will do."""
        if case not in self._calls:
            self._calls[case] = self._calibrate(case, task, most, seconds)
        if case in self._slow:
            return [self._slow[case] / task.shared * 1e6]
        calls = self._calls[case]
        return [self.run(task, task.prepare(calls)) / calls / task.shared * 1e6 for _ in range(samples)]

    def is_slow(self, case: Any) -> bool:
        return case in self._slow

    def run(self, task: Task, things: Sequence[Any]) -> float:
        """Seconds for the calls."""
        gc.collect()
        gc.disable()
        try:
            if iscoroutinefunction(task.call):
                return self._runner.run(_in_turn(task, things))
            call, answer = task.call, None
            start = perf_counter()
            for thing in things:
                answer = call(thing)
            took = perf_counter() - start
        finally:
            gc.enable()
        task.check(answer)
        return took

    def _calibrate(self, case: Any, task: Task, most: int, seconds: float) -> int:
        # The first call connects and makes its statements; what it takes says nothing about the others.
        took, calls = self.run(task, task.prepare(1)), 1
        if took > SLOW:
            self._slow[case] = took
            return 1
        while (took := self.run(task, task.prepare(calls))) < seconds / 4 and calls < most:
            calls = min(most, calls * 4)
        return max(1, min(most, int(calls * seconds / took)))


async def _in_turn(task: Task, things: Sequence[Any]) -> float:
    call, answer = task.call, None
    start = perf_counter()
    for thing in things:
        answer = await call(thing)
    took = perf_counter() - start
    task.check(answer)
    return took
