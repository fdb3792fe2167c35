"""How long it takes from an enqueue until the call begins, one at a time, with a worker that waits."""

import threading
from collections.abc import Callable, Iterator
from statistics import median
from time import perf_counter, sleep

GAP_S = 0.01
"""Between two enqueues, so that the worker waits again."""


class Started:
    """Notes when a call begins."""

    def __init__(self) -> None:
        self.at = 0.0
        self._heard = threading.Event()

    def note(self) -> None:
        self.at = perf_counter()
        self._heard.set()

    def medians(self, put: Callable[[int], object], number: int, samples: int) -> list[float]:
        """Microseconds from before an enqueue until its call, the median of so many, for each sample."""
        return [median(self._each(put, number)) for _ in range(samples)]

    def _each(self, put: Callable[[int], object], number: int) -> Iterator[float]:
        for at in range(number):
            sleep(GAP_S)
            self._heard.clear()
            start = perf_counter()
            put(at)
            if not self._heard.wait(10):
                raise TimeoutError("the call did not begin")
            yield (self.at - start) * 1e6
