"""Holdfast with more and more: upstreams of one join, and workflows that are done."""

import gc
from functools import cache
from resource import getpagesize
from time import perf_counter

from benchmarks.outbox.setup import Counted, Watched
from benchmarks.workflows.ours import Ours, fan, single
from benchmarks.workflows.setup import KEPT, Setup

SOME = 250
TURNS = 4
AT_ONCE = 1_000
"""Few upstreams, and few workflows, are done so often that a sample is not over at once."""


class Fan:
    """Out to so many stages, and in again."""

    def __init__(self, setup: Setup, store: str, size: int) -> None:
        self._ours = _ours(setup, store)
        self._size = size

    def wide(self) -> Watched:
        workflow, size = fan(self._size), self._size
        repeat = max(1, AT_ONCE // size)
        return self._ours.timed(lambda: self._ours.run_one(workflow, 2 * size, size), repeat)


class Kept:
    """A database in which so many workflows were done by this process; each size has one, so that all sizes can be
    asked in turns.
    """

    def __init__(self, setup: Setup, store: str, size: int) -> None:
        self._ours = Ours(setup, store, KEPT[setup.kept.index(size)])
        self._size = size
        self._grown = 0.0

    def kept(self) -> Watched:
        def figures(samples: int) -> list[float]:
            with self._ours.working():
                self._fill()
                return [self._timed(SOME) for _ in range(samples * TURNS)]

        return Watched(figures)

    def memory(self) -> Counted:
        """What the process has grown by for each workflow, after the first tenth of them: until then it is the
        allocator that takes what it will need.
        """

        def count() -> dict[str, float]:
            with self._ours.working():
                self._fill()
            return {"bytes": max(0.0, self._grown)}

        return Counted(count)

    def _fill(self) -> None:
        done = sum(self._ours.flows.counts().values())
        first, before = self._size // 10, 0
        while done < self._size:
            aim = first if done < first else self._size
            self._run(min(aim - done, AT_ONCE))
            done = sum(self._ours.flows.counts().values())
            if done == first:
                before = resident()
            elif done == self._size:
                self._grown = (resident() - before) / (done - first)

    def _timed(self, number: int) -> float:
        began = perf_counter()
        self._run(number)
        return (perf_counter() - began) / number * 1e6

    def _run(self, number: int) -> None:
        for run in self._ours.flows.start_many(single, [(0,)] * number):
            run.result(300)


@cache
def _ours(setup: Setup, store: str) -> Ours:
    return Ours(setup, store)


def resident() -> int:
    """Bytes of memory that the process has."""
    gc.collect()
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * getpagesize()
