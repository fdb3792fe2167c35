"""A worker is killed before its stage is over, and while it cleans up: another one does what is left."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from holdfast.core.clock import SYSTEM_CLOCK
from holdfast.machine.finalizer import FinalizerState
from holdfast.machine.workflow import WorkflowStatus
from holdfast.workflows.records import ITEM, KINDS
from tests.stores import make_place
from tests.workflows.finalized_process import errand, flows_at

ROOT = Path(__file__).parents[2]
PATIENCE_S = 60.0


@pytest.mark.parametrize("name", ["sqlite", "postgres"])
@pytest.mark.parametrize("hangs", [True, False])
def test_finalizers_run_though_their_process_was_killed(tmp_path: Path, name: str, hangs: bool) -> None:
    url = make_place(name, tmp_path, KINDS).url
    journal = tmp_path / "journal"
    journal.touch()
    flows = flows_at(url)
    run = flows.start(errand, hangs)
    first = _spawn(url, journal, "first")
    try:
        _wait_for(lambda: ("borrowed" if hangs else "dies") in journal.read_text())
    finally:
        first.kill()
        first.wait()
    assert flows.finalizers.pending() == [f"{run.id}.borrow"]
    second = _spawn(url, journal, "second")
    try:
        _wait_for(lambda: not flows.finalizers.pending())
        _wait_for(lambda: not flows._store.page(ITEM, limit=1))
    finally:
        second.terminate()
        second.wait()
    assert run.status is WorkflowStatus.SUCCEEDED
    assert journal.read_text().splitlines()[-2:] == ["gave back tools", "stands in"]
    assert {one.state for one in flows.finalizers.find(run.id)} == {FinalizerState.DONE}
    [named] = [one for one in flows.finalizers.find(run.id) if one.name == "give_back"]
    assert named.attempts == (1 if hangs else 2)


def _wait_for(reached: Callable[[], bool]) -> None:
    until = SYSTEM_CLOCK.monotonic() + PATIENCE_S
    while not reached():
        assert SYSTEM_CLOCK.monotonic() < until, "it never came to that"
        SYSTEM_CLOCK.sleep(0.05)


def _spawn(url: str, journal: Path, role: str) -> subprocess.Popen[bytes]:
    words = [sys.executable, "-m", "tests.workflows.finalized_process", url, str(journal), role]
    return subprocess.Popen(words, cwd=ROOT, env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)})
