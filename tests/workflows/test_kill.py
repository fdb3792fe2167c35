"""Workers are killed at any moment: every workflow comes to its end, and what is done stays done."""

from __future__ import annotations

import os
import random
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest

from holdfast.core.clock import SYSTEM_CLOCK
from holdfast.machine.workflow import WorkflowStatus
from holdfast.workflows.records import ITEM, KINDS, WORKFLOW
from tests.stores import make_place
from tests.workflows.killed_process import diamond, flows_at

ROOT = Path(__file__).parents[2]
WORKERS, THREADS = 3, 10
STEPS = 7  # of a diamond


@pytest.mark.torture
@pytest.mark.parametrize("name", ["sqlite", "postgres"])
def test_killed_workers_lose_nothing_and_repeat_only_what_was_under_way(
    tmp_path: Path, name: str, seed: int, size: int
) -> None:
    url = make_place(name, tmp_path, KINDS).url
    journal = tmp_path / "journal"
    journal.touch()
    flows = flows_at(url)
    store = flows._store
    number, kills, rng = 25 * size, 5 * size, random.Random(seed)
    runs = [flows.start(diamond, 10 * n) for n in range(number)]
    crew = [_spawn(url, journal) for _ in range(WORKERS)]
    try:
        done = 0
        while (done := _ended(store)) < number:
            if kills and done >= number * (1 - kills / (5 * size + 1)) - number // 2:
                victim = crew.pop(rng.randrange(WORKERS))
                victim.kill()
                victim.wait()
                crew.append(_spawn(url, journal))
                kills -= 1
            SYSTEM_CLOCK.sleep(rng.uniform(0.05, 0.3))
        assert [run.result(0) for run in runs] == [2 * (10 * n + 4) for n in range(number)]
    finally:
        for process in crew:
            process.terminate()
            process.wait()
    assert store.page(ITEM, limit=10) == []
    made = Counter(line.split()[1] for line in journal.read_text().splitlines())
    assert len(made) == STEPS * number
    assert made.total() - len(made) <= THREADS * 5 * size


def _ended(store) -> int:
    counts = store.tally(WORKFLOW, ("status",))
    assert set(counts) <= {(WorkflowStatus.RUNNING.value,), (WorkflowStatus.SUCCEEDED.value,)}, counts
    return counts.get((WorkflowStatus.SUCCEEDED.value,), 0)


def _spawn(url: str, journal: Path) -> subprocess.Popen[bytes]:
    words = [sys.executable, "-m", "tests.workflows.killed_process", url, str(journal)]
    return subprocess.Popen(words, cwd=ROOT, env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)})
