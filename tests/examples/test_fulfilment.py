"""The orders of `examples/fulfilment`: what they promise, and that their story can be told."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from examples.fulfilment.orders import TWO_DAYS_S, Orders
from examples.fulfilment.outside import Outside
from holdfast import Holdfast, WorkflowRun, WorkflowStatus
from holdfast.testing import ManualClock

ROOT = Path(__file__).parents[2]
S = WorkflowStatus
STORY = (
    "there is one workflow",
    "charge SUCCEEDED, wait_signal SUSPENDED, pack NOT_STARTED",
    "the workflow goes on: charge SUCCEEDED, wait_signal SUCCEEDED, pack RUNNING",
    "box of anchor to Pier 7, 400.00 paid, shipped",
    "charge: asked 1, done 1",
    "pack: asked 2, done 1",
    "ship: asked 1, done 1",
)


class Visit:
    """A shop with one worker, which works when it is told to."""

    def __init__(self, folder: Path) -> None:
        self.clock = ManualClock()
        self.outside = Outside(folder)
        self.hold = Holdfast(f"sqlite:///{folder / 'shop.db'}", clock=self.clock, background=False)
        self.orders = Orders(self.outside)
        self.flows = self.orders.known_to(self.hold)
        self.worker = self.flows.worker()

    def order(self, cents: int) -> WorkflowRun:
        """Order, and let the worker do what can be done."""
        order: dict[str, Any] = {"id": "o-1", "item": "rope", "cents": cents, "address": "Pier 7"}
        run = self.flows.start(self.orders.fulfil, order)
        self.worker.run_once()
        return run


@pytest.fixture
def visit(tmp_path: Path) -> Iterator[Visit]:
    visit = Visit(tmp_path)
    yield visit
    visit.worker.close()
    visit.hold.close()


def test_a_cheap_order_is_shipped_at_once(visit: Visit) -> None:
    run = visit.order(9_00)
    assert run.result(0) == "box of rope to Pier 7, 9.00 paid, shipped"
    assert list(visit.flows.stages(run.id)) == ["charge", "pack", "label", "ship"]


def test_a_dear_order_waits_for_a_word(visit: Visit) -> None:
    run = visit.order(900_00)
    assert (run.status, visit.outside.asked("pack")) == (S.RUNNING, 0)
    assert visit.flows.signal(run.id, "approved")
    visit.worker.run_once()
    assert run.result(0) == "box of rope to Pier 7, 900.00 paid, shipped"


def test_an_order_that_nobody_approves_is_not_shipped(visit: Visit) -> None:
    run = visit.order(900_00)
    visit.clock.advance(TWO_DAYS_S)
    visit.worker.run_once()
    assert (run.status, visit.outside.asked("ship")) == (S.TERMINAL, 0)
    assert visit.flows.stages(run.id)["ship"] is S.SKIPPED


def test_the_story_is_told(tmp_path: Path) -> None:
    told = {**os.environ, "PYTHONPATH": os.pathsep.join([str(ROOT), *sys.path])}
    command = [sys.executable, "-m", "examples.fulfilment"]
    done = subprocess.run(command, cwd=tmp_path, env=told, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    assert "Traceback" not in done.stderr
    assert not list(tmp_path.iterdir()), "an example leaves nothing behind"
    assert all(words in done.stdout for words in STORY), done.stdout
