"""Workers are killed at any moment: every workflow comes to its end, and what is done stays done."""

from __future__ import annotations

import os
import random
import subprocess
import sys
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest
import sqlalchemy as sa

from holdfast.backends.sql import migrate
from holdfast.core.clock import SYSTEM_CLOCK
from holdfast.machine.workflow import WorkflowStatus
from holdfast.workflows.records import WORKFLOW
from tests.stores import make_url
from tests.workflows import killed_ledger
from tests.workflows.killed_ledger import ENTRIES, books, hold_at

ROOT = Path(__file__).parents[2]
WORKERS = 3
Process = subprocess.Popen[bytes]


@pytest.mark.torture
@pytest.mark.parametrize("name", ["sqlite", "postgres"])
def test_what_commits_with_its_step_happens_exactly_once_however_often_workers_are_killed(
    tmp_path: Path, name: str, seed: int, size: int
) -> None:
    url = make_url(name, tmp_path)
    if name != "sqlite":
        migrate.upgrade(url)
    number, kills, rng = 20 * size, 5 * size, random.Random(seed)
    with hold_at(url) as hold:
        with hold.sessions() as session, session.begin():
            ENTRIES.create(session.connection())
        runs = [hold.workflows.start(books, n) for n in range(number)]
        _work_and_kill(hold.store, number, kills, rng, lambda: _spawn("killed_ledger", url))
        assert [run.result(0) for run in runs] == [n + killed_ledger.STEPS for n in range(number)]
        with hold.sessions() as session:
            keys = Counter(session.scalars(sa.select(ENTRIES.c.key)))
            told = session.scalar(sa.select(sa.func.count()).select_from(hold.tables.outbox))
    assert (len(keys), keys.total(), told) == (number * killed_ledger.STEPS,) * 3


def _work_and_kill(store, number: int, kills: int, rng: random.Random, spawn: Callable[[], Process]) -> None:
    """Let workers end so many workflows, and kill some of them meanwhile."""
    crew, planned = [spawn() for _ in range(WORKERS)], kills
    try:
        while (done := _ended(store)) < number:
            if kills and done >= number * (1 - kills / (planned + 1)) - number // 2:
                victim = crew.pop(rng.randrange(WORKERS))
                victim.kill()
                victim.wait()
                crew.append(spawn())
                kills -= 1
            SYSTEM_CLOCK.sleep(rng.uniform(0.05, 0.3))
    finally:
        for process in crew:
            process.terminate()
            process.wait()


def _ended(store) -> int:
    counts = store.tally(WORKFLOW, ("status",))
    assert set(counts) <= {(WorkflowStatus.RUNNING.value,), (WorkflowStatus.SUCCEEDED.value,)}, counts
    return counts.get((WorkflowStatus.SUCCEEDED.value,), 0)


def _spawn(module: str, *words: str) -> Process:
    command = [sys.executable, "-m", f"tests.workflows.{module}", *words]
    return subprocess.Popen(command, cwd=ROOT, env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)})
