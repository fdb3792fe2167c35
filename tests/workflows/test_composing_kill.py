"""Workers are killed while workflows start others, wait for their turn, and are started by schedules."""

from __future__ import annotations

import os
import random
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import datetime, timedelta
from pathlib import Path

import pytest

from holdfast.core.clock import SYSTEM_CLOCK
from holdfast.store.query import among, equal
from holdfast.workflows.records import ITEM, KINDS, PIPELINE, WAITING, WORKFLOW
from holdfast.workflows.workflows import Workflows
from tests.stores import make_place
from tests.workflows.composing_process import LIMIT, flows_at, outer, tick

ROOT = Path(__file__).parents[2]
PLACES = ["sqlite", "postgres"]
PATIENCE_S = 60.0


@contextmanager
def crew(url: str, number: int) -> Iterator[list[subprocess.Popen[bytes]]]:
    processes = [_spawn(url) for _ in range(number)]
    try:
        yield processes
    finally:
        for process in processes:
            process.terminate()
            process.wait()


def kill_one(url: str, processes: list[subprocess.Popen[bytes]], rng: random.Random) -> None:
    victim = processes.pop(rng.randrange(len(processes)))
    victim.kill()
    victim.wait()
    processes.append(_spawn(url))


@pytest.mark.torture
@pytest.mark.parametrize("name", PLACES)
def test_killed_workers_lose_no_workflow_that_others_started(tmp_path: Path, name: str, seed: int, size: int) -> None:
    url = make_place(name, tmp_path, KINDS).url
    flows, rng, number = flows_at(url), random.Random(seed), 8 * size
    store = flows._store
    runs = [flows.start(outer, n) for n in range(number)]
    kills, give_up = 4 * size, SYSTEM_CLOCK.monotonic() + PATIENCE_S * size
    with crew(url, 3) as processes:
        while (left := _left(flows)) > 0:
            assert SYSTEM_CLOCK.monotonic() < give_up, store.tally(WORKFLOW, ("status", "name"))
            assert _running_inner(flows) <= LIMIT
            if kills and left <= number * kills // (4 * size):
                kill_one(url, processes, rng)
                kills -= 1
            SYSTEM_CLOCK.sleep(rng.uniform(0.02, 0.1))
        assert [run.result(0) for run in runs] == [2 * (n + 2) + 2 for n in range(number)]
    assert store.tally(WORKFLOW, ("name",)) == {("outer",): number, ("inner",): 3 * number}
    line = store.get(PIPELINE, ["inner"])[0]
    assert line is not None
    assert (line.running, store.page(WAITING), store.page(ITEM)) == (0, [], [])


@pytest.mark.torture
@pytest.mark.parametrize("name", PLACES)
def test_four_processes_fire_each_tick_once_while_they_are_killed(
    tmp_path: Path, name: str, seed: int, size: int
) -> None:
    url = make_place(name, tmp_path, KINDS).url
    flows, rng = flows_at(url), random.Random(seed)
    flows.schedule("often", tick, cron="* * * * * *", catch_up=1000, overlap="queue")
    wanted, killed = 3 * size, 0
    give_up = SYSTEM_CLOCK.monotonic() + PATIENCE_S * size
    with crew(url, 4) as processes:
        while (done := flows.counts().get("SUCCEEDED", 0)) < wanted:
            assert SYSTEM_CLOCK.monotonic() < give_up, flows.counts()
            if done > killed:
                kill_one(url, processes, rng)
                killed += 1
            SYSTEM_CLOCK.sleep(rng.uniform(0.02, 0.1))
        flows.schedules.delete("often")
    fired = [entry.facts for entry in flows.schedules.log("often", limit=1000) if entry.type == "tick_fired"]
    ticks = [datetime.fromisoformat(facts["tick"]) for facts in fired]
    assert ticks == [ticks[0] + timedelta(seconds=n) for n in range(len(ticks))]  # none is missed, none comes twice
    runs = Counter(facts["run"] for facts in fired)
    assert set(runs.values()) == {1}
    assert sum(flows._store.tally(WORKFLOW, ("status",)).values()) == len(ticks)


def _left(flows: Workflows) -> int:
    where = (*equal(name="outer"), among("status", ("RUNNING", "NOT_STARTED")))
    assert flows._store.page(WORKFLOW, (among("status", ("TERMINAL", "CANCELED", "STOPPED")),)) == []
    return sum(flows._store.tally(WORKFLOW, ("status",), where).values())


def _running_inner(flows: Workflows) -> int:
    where = (*equal(name="inner"), among("status", ("RUNNING",)))
    return sum(flows._store.tally(WORKFLOW, ("status",), where).values())


def _spawn(url: str) -> subprocess.Popen[bytes]:
    words = [sys.executable, "-m", "tests.workflows.composing_process", url]
    return subprocess.Popen(words, cwd=ROOT, env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)})
