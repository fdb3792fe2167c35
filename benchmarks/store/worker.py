"""`python -m benchmarks.store.worker SIDE SETUP`: measures the contenders of one environment, a request per line."""

import sys
from importlib import import_module
from typing import Any

from benchmarks.bench import Bench, Case, Makers, serve
from benchmarks.store.counting import Counts, RedisMonitor, SqliteTrace
from benchmarks.store.measure import Task
from benchmarks.store.rows import ROWS, SHARED_ROWS
from benchmarks.store.setup import Setup

CALLS = 10
PLACES = {"ours": "small", "grown": "grown", "floor": "floor"}


class StoreBench(Bench):
    """Counts what a call sends, too."""

    def __init__(self, setup: Setup, makers: Makers) -> None:
        super().__init__(ROWS, makers)
        self._setup = setup
        self._trace = SqliteTrace()

    def fits(self, row: Any, store: str, label: str) -> bool:
        if label == "grown":
            return store in row.grows
        if label == "raw":
            return bool(row.key == "page")
        return label != "unshared" or row in SHARED_ROWS

    def counts(self, case: Case, task: Task) -> dict[str, float]:
        """What one call sends, over some of them."""
        key, store, label = case
        slow = self.stopwatch.is_slow(case)
        if not slow:
            self.stopwatch.run(task, task.prepare(1))
        things = task.prepare(1 if slow else min(CALLS, self.rows[key].most))
        place = PLACES.get(label, "peers")
        counter = self._trace if store == "sqlite" else RedisMonitor(self._setup.url(store, place))
        counts: Counts = counter.count(lambda: self.stopwatch.run(task, things))
        return {what: number / len(things) for what, number in counts.items()}


if __name__ == "__main__":
    side, setup = sys.argv[1], Setup.from_json(sys.argv[2])
    serve(
        lambda makers: StoreBench(setup, makers),
        lambda: import_module(f"benchmarks.store.{side}").contenders(setup),
    )
