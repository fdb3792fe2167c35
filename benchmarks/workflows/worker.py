"""`python -m benchmarks.workflows.worker SIDE SETUP STORE`: measures the contenders of one environment on one store."""

import gc
import sys
from importlib import import_module
from typing import Any

from benchmarks.bench import Bench, Case, Makers, serve
from benchmarks.outbox.setup import Counted, Watched
from benchmarks.workflows.rows import ROWS
from benchmarks.workflows.setup import Setup


class WorkflowBench(Bench):
    """Every task times itself, or is only counted."""

    def __init__(self, setup: Setup, makers: Makers) -> None:
        self._largest = f"{max(setup.kept):,} kept"
        super().__init__(ROWS, makers)

    def fits(self, row: Any, store: str, label: str) -> bool:
        return row.key != "memory" or label == self._largest

    def figures(self, case: Case, task: Any, samples: int, seconds: float) -> list[float]:
        if isinstance(task, Counted):
            return []
        assert isinstance(task, Watched)
        # For everybody, as `holdfast worker` does, which the peers' side cannot import.
        gc.collect()
        gc.freeze()
        gc.set_threshold(10_000, 10, 10)
        found: list[float] = task.figures(samples)
        return found

    def counts(self, case: Case, task: Any) -> dict[str, float]:
        counted: dict[str, float] = task.count()
        return counted


if __name__ == "__main__":
    side, setup, store = sys.argv[1], Setup.from_json(sys.argv[2]), sys.argv[3]
    serve(
        lambda makers: WorkflowBench(setup, makers),
        lambda: import_module(f"benchmarks.workflows.{side}").contenders(setup, store),
    )
