"""`python -m benchmarks.store.worker SIDE SETUP`: measures the contenders of one environment, a request per line."""

import gc
import json
import sys
from functools import partial
from importlib import import_module
from typing import Any

from benchmarks.store.counting import Counts, RedisMonitor, SqliteTrace
from benchmarks.store.measure import Stopwatch, Task
from benchmarks.store.rows import BY_KEY, ROWS, SHARED_ROWS, Row
from benchmarks.store.setup import Setup
from benchmarks.worker import describe, say

CALLS = 10
Makers = dict[str, dict[str, "partial[Any]"]]
PLACES = {"ours": "small", "grown": "grown", "floor": "floor"}


class Bench:
    """The contenders of one side, made when they are first asked for."""

    def __init__(self, setup: Setup, makers: Makers) -> None:
        self._setup = setup
        self._makers = makers
        self._made: dict[tuple[str, str], Any] = {}
        self._tasks: dict[tuple[str, str, str], Task] = {}
        self._trace = SqliteTrace()
        self._stopwatch = Stopwatch()

    def cases(self) -> list[tuple[str, str, str]]:
        return [
            (row.key, store, label)
            for row in ROWS
            for store in row.stores
            for label, maker in self._makers.get(store, {}).items()
            if hasattr(maker.func, row.method) and fits(row, store, label)
        ]

    def answer(self, request: dict[str, Any]) -> dict[str, Any]:
        if "open" in request:
            return {"errors": self._open(request["open"])}
        key, store, label = case = tuple(request["case"])
        task = self._task(*case)
        if request.get("count"):
            return {"counts": self._count(task, key, store, label)}
        return {
            "figures": self._stopwatch.measure(case, task, BY_KEY[key].most, request["samples"], request["seconds"])
        }

    def _open(self, stores: list[str]) -> dict[str, str]:
        """Make the contenders of these stores, and with them their letters; what went wrong."""
        errors = {}
        for store in stores:
            for label, maker in self._makers.get(store, {}).items():
                try:
                    self._made[store, label] = maker()
                except Exception as error:
                    errors[f"{label} on {store}"] = describe(error)
        gc.collect()
        gc.freeze()  # what is in memory for good is not looked at before every sample
        return errors

    def _task(self, key: str, store: str, label: str) -> Task:
        if (store, label) not in self._made:
            self._made[store, label] = self._makers[store][label]()
        if (key, store, label) not in self._tasks:
            self._tasks[key, store, label] = getattr(self._made[store, label], BY_KEY[key].method)()
        return self._tasks[key, store, label]

    def _count(self, task: Task, key: str, store: str, label: str) -> dict[str, float]:
        """What one call sends, over some of them."""
        slow = self._stopwatch.is_slow((key, store, label))
        if not slow:
            self._stopwatch.run(task, task.prepare(1))
        things = task.prepare(1 if slow else min(CALLS, BY_KEY[key].most))
        place = PLACES.get(label, "peers")
        counter = self._trace if store == "sqlite" else RedisMonitor(self._setup.url(store, place))
        counts: Counts = counter.count(lambda: self._stopwatch.run(task, things))
        return {what: number / len(things) for what, number in counts.items()}


def fits(row: Row, store: str, label: str) -> bool:
    if label == "grown":
        return store in row.grows
    return label != "unshared" or row in SHARED_ROWS


def serve(side: str, setup: Setup) -> None:
    complaint, makers = "", {}
    try:
        makers = import_module(f"benchmarks.store.{side}").contenders(setup)
    except Exception as error:
        complaint = describe(error)
    bench = Bench(setup, makers)
    say({"cases": bench.cases(), "complaint": complaint})
    for line in sys.stdin:
        try:
            say(bench.answer(json.loads(line)))
        except Exception as error:
            say({"error": describe(error)})


if __name__ == "__main__":
    serve(sys.argv[1], Setup.from_json(sys.argv[2]))
