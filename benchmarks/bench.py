"""A process that measures what its contenders make ready: a request per line in, figures or counts per line out."""

import gc
import json
import sys
from collections.abc import Callable, Iterable
from functools import partial
from typing import Any

from benchmarks.store.measure import Stopwatch, Task
from benchmarks.worker import describe, say

Case = tuple[str, str, str]
Makers = dict[str, dict[str, "partial[Any]"]]


class Bench:
    """The contenders of one side by store and label, made when they are first asked for."""

    def __init__(self, rows: Iterable[Any], makers: Makers) -> None:
        self.rows = {row.key: row for row in rows}
        self.stopwatch = Stopwatch()
        self._makers = makers
        self._made: dict[tuple[str, str], Any] = {}
        self._tasks: dict[Case, Task] = {}

    def fits(self, row: Any, store: str, label: str) -> bool:
        """Whether a contender that has the row's method is measured in it."""
        return True

    def figures(self, case: Case, task: Any, samples: int, seconds: float) -> list[float]:
        return self.stopwatch.measure(case, task, self.rows[case[0]].most, samples, seconds)

    def counts(self, case: Case, task: Any) -> dict[str, float]:
        raise NotImplementedError

    def cases(self) -> list[Case]:
        return [
            (row.key, store, label)
            for row in self.rows.values()
            for store in row.stores
            for label, maker in self._makers.get(store, {}).items()
            if hasattr(maker.func, row.method) and self.fits(row, store, label)
        ]

    def answer(self, request: dict[str, Any]) -> dict[str, Any]:
        if "open" in request:
            return {"errors": self._open(request["open"])}
        key, store, label = case = tuple(request["case"])
        task = self._task(key, store, label)
        if request.get("count"):
            return {"counts": self.counts(case, task)}
        return {"figures": self.figures(case, task, request["samples"], request["seconds"])}

    def _open(self, stores: list[str]) -> dict[str, str]:
        """Make the contenders of these stores, and with them what they hold; what went wrong."""
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
            self._tasks[key, store, label] = getattr(self._made[store, label], self.rows[key].method)()
        return self._tasks[key, store, label]


def serve(make: Callable[[Makers], Bench], contenders: Callable[[], Makers]) -> None:
    """Answer requests until there are no more."""
    complaint, makers = "", {}
    try:
        makers = contenders()
    except Exception as error:
        complaint = describe(error)
    bench = make(makers)
    say({"cases": bench.cases(), "complaint": complaint})
    for line in sys.stdin:
        try:
            say(bench.answer(json.loads(line)))
        except Exception as error:
            say({"error": describe(error)})
