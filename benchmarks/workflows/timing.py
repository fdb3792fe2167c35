"""How what a program does with workflows is timed. Needs no package."""

from collections.abc import Callable
from time import perf_counter

from benchmarks.outbox.setup import Watched


def timed(run: Callable[[], int], repeat: int = 1) -> Watched:
    """Microseconds for each of what `run` says it has done; the first time, which connects, is not taken."""
    warm: list[int] = []

    def figures(samples: int) -> list[float]:
        if not warm:
            warm.append(run())
        found = []
        for _ in range(samples):
            began, done = perf_counter(), 0
            for _ in range(repeat):
                done += run()
            found.append((perf_counter() - began) / done * 1e6)
        return found

    return Watched(figures)
