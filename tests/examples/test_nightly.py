"""The books of `examples/nightly.py`: what they promise, and that their story can be told."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from examples.nightly import BRANCHES, Books, Nights
from holdfast import Holdfast, WorkflowStatus
from holdfast.testing import ManualClock

ROOT = Path(__file__).parents[2]
S = WorkflowStatus
STORY = (
    "Sat 28 Mar, 02:30 CET: 1775 taken",
    "Sun 29 Mar, 03:00 CEST: 1775 taken",
    "Tue 31 Mar, 02:30 CEST: TERMINAL",
    "close_branch is TERMINAL: Mitte does not answer",
    "1775 taken; asked again: ['Mitte']",
)


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
def books(tmp_path: Path, clock: ManualClock) -> Iterator[Books]:
    with Holdfast(f"sqlite:///{tmp_path / 'books.db'}", clock=clock, background=False) as hold:
        yield Books(hold)


@pytest.fixture
def nights(books: Books, clock: ManualClock) -> Iterator[Nights]:
    nights = Nights(books, clock)
    yield nights
    nights.close()


def test_each_night_has_one_run_and_each_run_a_workflow_per_branch(books: Books, nights: Nights) -> None:
    for _ in range(3):
        nights.pass_one()
    runs = books.flows.find(name="close_books")
    assert [run.status for run in runs] == [S.SUCCEEDED] * 3
    assert [len(books.flows.find(parent=run.id)) for run in runs] == [len(BRANCHES)] * 3


def test_a_night_that_failed_is_taken_up_where_it_failed(books: Books, nights: Nights) -> None:
    books.away.add("Altona")
    nights.pass_one()
    assert books.last.status is S.TERMINAL
    books.away.clear()
    books.asked.clear()
    books.flows.retry(books.last.id)
    nights.work()
    assert books.last.result(0) == 1775
    assert books.asked == ["Altona"]


def test_the_story_is_told(tmp_path: Path) -> None:
    told = {**os.environ, "PYTHONPATH": os.pathsep.join([str(ROOT), *sys.path])}
    command = [sys.executable, "-m", "examples.nightly"]
    done = subprocess.run(command, cwd=tmp_path, env=told, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    assert not list(tmp_path.iterdir()), "an example leaves nothing behind"
    places = [done.stdout.find(words) for words in STORY]
    assert -1 not in places, done.stdout
    assert places == sorted(places)
