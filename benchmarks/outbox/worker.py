"""`python -m benchmarks.outbox.worker SIDE SETUP`: measures the contenders of one environment, a request per line."""

import asyncio
import sys
from importlib import import_module
from inspect import iscoroutinefunction
from typing import Any

from benchmarks.bench import Bench, Case, Makers, serve
from benchmarks.outbox.rows import MOST_EVENTS, ROWS
from benchmarks.outbox.setup import Counted, Setup, Watched


class OutboxBench(Bench):
    """Some tasks time themselves, and some are only counted."""

    def __init__(self, makers: Makers) -> None:
        super().__init__(ROWS, makers)

    def fits(self, row: Any, store: str, label: str) -> bool:
        if label == "session":
            return row.key == "enqueue"
        return row.key != "append" or int(label.replace(",", "")) <= MOST_EVENTS

    def figures(self, case: Case, task: Any, samples: int, seconds: float) -> list[float]:
        if isinstance(task, Counted):
            return []
        if isinstance(task, Watched):
            figures = task.figures(samples)
            return asyncio.run(figures) if asyncio.iscoroutine(figures) else figures
        return super().figures(case, task, samples, seconds)

    def counts(self, case: Case, task: Any) -> dict[str, float]:
        counts = task.count
        return asyncio.run(counts()) if iscoroutinefunction(counts) else counts()


if __name__ == "__main__":
    side, setup = sys.argv[1], Setup.from_json(sys.argv[2])
    serve(OutboxBench, lambda: import_module(f"benchmarks.outbox.{side}").contenders(setup))
