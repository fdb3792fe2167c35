"""The worker as a program of its own."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from holdfast.app import Holdfast
from holdfast.cli.exits import ExitCode
from holdfast.letters.bulk import LetterFilter
from tests.cli import shop
from tests.cli.conftest import Run

ROOT = Path(__file__).parents[2]
Failing = Callable[[int], list[str]]


def test_once_does_what_is_due_and_says_so_line_by_line(run: Run, failed: Failing, hold: Holdfast) -> None:
    [id] = failed(1)
    hold.letters.bulk.start(LetterFilter(domain="payments"))
    said = run("worker", "--once", env={"HOLDFAST_URL": None, "HOLDFAST_APP": shop.APP}).stdout
    lines = [re.sub(r"^\d{4}-\d\d-\d\d \d\d:\d\d:\d\d ", "", line) for line in said.splitlines()]
    assert lines[0].startswith("worker started store=sqlite:///")
    assert any(line.startswith(f"replayed payments letter_id={id} outcome=succeeded") for line in lines)
    assert hold.letters.count(status="resolved") == 1


def test_without_the_program_it_says_that_it_only_does_maintenance(run: Run, hold: Holdfast) -> None:
    id = hold.letters.create("payments", "F", expires_at=hold.letters.create("x", "F").created_at).id
    said = run("worker", "--once").stdout
    assert "without --app nothing can be replayed here: this worker does maintenance only" in said
    assert "maintenance ran expired=1" in said
    assert hold.letters.get_by_id(id).status == "expired"  # type: ignore[union-attr]


def test_json_is_a_document_per_line(run: Run, failed: Failing, hold: Holdfast) -> None:
    failed(1)
    hold.letters.bulk.start(LetterFilter(domain="payments"))
    said = run("worker", "--once", "--json", env={"HOLDFAST_URL": None, "HOLDFAST_APP": shop.APP}).stdout
    events = [json.loads(line) for line in said.splitlines()]
    assert [event["event"] for event in events] == ["worker", "letter.replayed", "letter.bulk_changed", "worker"]
    assert all(event["at"].endswith("Z") for event in events)


def test_a_store_that_is_not_there_is_code_4(run: Run) -> None:
    run("worker", "--once", "--url", "redis://127.0.0.1:1/0", code=ExitCode.NO_STORE)


def started(*args: str, **env: str) -> subprocess.Popen[str]:
    """A worker in a process of its own."""
    command = [sys.executable, "-m", "holdfast", "worker", *args]
    return subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, cwd=ROOT, env={**os.environ, **env}
    )


def read_until(worker: subprocess.Popen[str], words: str) -> None:
    assert worker.stdout is not None
    assert any(words in line for line in worker.stdout), f"it ended without {words!r}"


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
@pytest.mark.parametrize("app", [True, False])
def test_a_signal_lets_it_finish_and_ends_it(hold: Holdfast, url: str, number: signal.Signals, app: bool) -> None:
    where = ["--app", shop.APP] if app else ["--url", url]
    with started(*where, **{shop.URL: url}) as worker:
        read_until(worker, "worker started")
        worker.send_signal(number)
        out, error = worker.communicate(timeout=30)
    assert "worker stopped" in out
    assert (worker.returncode, error) == (ExitCode.OK, "")


def test_a_second_signal_ends_it_now_and_the_letter_keeps_its_lease(failed: Failing, hold: Holdfast, url: str) -> None:
    [id] = failed(1)
    hold.letters.bulk.start(LetterFilter(domain="payments"))
    with started("--app", shop.APP, **{shop.URL: url, shop.STUCK: "1"}) as worker:
        read_until(worker, "stuck")
        worker.send_signal(signal.SIGTERM)
        read_until(worker, "a second signal ends it now")
        worker.send_signal(signal.SIGTERM)
        assert worker.wait(timeout=30) == ExitCode.ABORTED
    assert hold.letters.get_by_id(id).status == "replaying"  # type: ignore[union-attr]
