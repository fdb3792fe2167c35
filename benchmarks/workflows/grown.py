"""Holdfast with more and more: upstreams of one join, and workflows that are done."""

import gc
from functools import cache
from resource import getpagesize
from time import perf_counter

from benchmarks.outbox.setup import Counted, Watched
from benchmarks.workflows.ours import Ours, fan, single
from benchmarks.workflows.setup import Setup

SOME = 500


class Fan:
    """Out to so many stages, and in again."""

    def __init__(self, setup: Setup, store: str, size: int) -> None:
        self._ours = _ours(setup, store)
        self._size = size

    def wide(self) -> Watched:
        workflow, size = fan(self._size), self._size
        return self._ours.timed(lambda: self._ours.run_one(workflow, 2 * size, size))


class Kept:
    """So many workflows that are done, and `SOME` more."""

    def __init__(self, setup: Setup, store: str, size: int) -> None:
        self._ours = _ours(setup, store)
        self._sizes = setup.kept
        self._size = size

    def kept(self) -> Watched:
        def figures(samples: int) -> list[float]:
            with self._ours.working():
                while (left := self._size - sum(self._ours.flows.counts().values())) > 0:
                    self._run(min(left, 1000))
                self._ours.resident.setdefault(self._size, resident())
                found = []
                for _ in range(samples):
                    began = perf_counter()
                    self._run(SOME)
                    found.append((perf_counter() - began) / SOME * 1e6)
            return found

        return Watched(figures)

    def memory(self) -> Counted:
        """What the process has grown by for each workflow, since it had done the fewest."""

        def count() -> dict[str, float]:
            seen, fewest, most = self._ours.resident, min(self._sizes), max(self._sizes)
            return {"bytes": max(0.0, (seen[most] - seen[fewest]) / (most - fewest))}

        return Counted(count)

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
