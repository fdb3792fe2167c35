"""The worker as a program of its own."""

from __future__ import annotations

import json
import logging
import os
import re
import signal
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from holdfast.app import Holdfast
from holdfast.cli.exits import ExitCode
from holdfast.cli.worker import Journal, Remarks, Signals
from holdfast.letters.bulk import LetterFilter
from tests.cli import shop
from tests.cli.conftest import Run
from tests.databases import DATABASES
from tests.stores import make_url

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


def test_with_the_program_it_makes_the_calls_of_the_outbox_and_tells_of_each(
    run: Run, url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    calling: dict[str, str | None] = {"HOLDFAST_URL": None, "HOLDFAST_APP": shop.CALLING}
    with shop.calling() as hold:
        with hold.sessions.begin() as session:
            sent, slow = (
                str(hold.outbox.put(session, "send", {"order_id": "o-1"}, target="mail", queue=queue))
                for queue in ("default", "slow")
            )
            kept = str(hold.outbox.put(session, "keep", {"order_id": "o-1"}, target="crm"))
        said = [line[20:] for line in run("worker", "--once", env=calling).stdout.splitlines()]
        assert said[1].startswith("outbox claimed default size=2")
        assert any(
            line.startswith(f"outbox called send entry_id={sent} target=mail outcome=succeeded") for line in said
        )
        assert sum(kept in line for line in said) == 1
        assert any(line.startswith(f"outbox parked keep entry_id={kept} target=crm until=2099") for line in said)
        assert not any(slow in line for line in said)
        monkeypatch.setenv(shop.DOWN, "1")
        ended = run("worker", "--once", "--queue", "slow", "--queue", "other", "--json", env=calling)
        events = [json.loads(line) for line in ended.stdout.splitlines()]
        assert [event["event"] for event in events] == [
            "worker", "outbox.claimed", "outbox.called", "outbox.abandoned", "worker",
        ]  # fmt: skip
        assert (events[3]["entry_id"], events[3]["error"]) == (slow, "ConnectionError")
        assert ended.stderr == ""


def test_a_queue_without_the_program_is_wrong_usage(run: Run, hold: Holdfast) -> None:
    assert "--queue needs --app" in run("worker", "--once", "--queue", "slow", code=ExitCode.USAGE).stderr


def test_warnings_go_into_the_journal_unless_the_program_logs_them(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    logger = logging.getLogger("holdfast.outbox")
    monkeypatch.setattr(logging.root, "handlers", [])
    with Remarks(Journal(as_json=True)):
        logger.warning("no wake-ups from %s", "others")
    monkeypatch.setattr(logging.root, "handlers", [logging.NullHandler()])
    with Remarks(Journal(as_json=True)):
        logger.warning("heard elsewhere")
    [line] = capsys.readouterr().out.splitlines()
    assert json.loads(line)["message"] == "no wake-ups from others"


def test_without_the_program_it_says_that_it_only_does_maintenance(run: Run, hold: Holdfast) -> None:
    id = hold.letters.create("payments", "F", expires_at=hold.letters.create("x", "F").created_at).id
    said = run("worker", "--once").stdout
    assert "without --app nothing can be replayed or called here: this worker does maintenance only" in said
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


@pytest.mark.parametrize("once", [("--once",), ()])
@pytest.mark.parametrize("app", [shop.APP, shop.CALLING, None])
@pytest.mark.parametrize("name", [name for name in DATABASES if name != "sqlite"])
def test_a_database_without_tables_is_code_4_and_said_once_before_anything_is_begun(
    run: Run, tmp_path: Path, name: str, app: str | None, once: tuple[str, ...]
) -> None:
    url = make_url(name, tmp_path)
    where: dict[str, str | None] = {"HOLDFAST_URL": None if app else url, "HOLDFAST_APP": app, shop.URL: url}
    ended = run("worker", *once, env=where, code=ExitCode.NO_STORE)
    assert ended.stdout == ""
    [line] = ended.stderr.splitlines()
    assert "has no Holdfast tables; run: holdfast db upgrade" in line


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
@pytest.mark.parametrize("app", [shop.APP, shop.CALLING, None])
def test_a_signal_lets_it_finish_and_ends_it(hold: Holdfast, url: str, number: signal.Signals, app: str | None) -> None:
    where = ["--app", app] if app else ["--url", url]
    with started(*where, **{shop.URL: url}) as worker:
        read_until(worker, "worker started")
        worker.send_signal(number)
        out, error = worker.communicate(timeout=30)
    assert "worker stopped" in out
    assert (worker.returncode, error) == (ExitCode.OK, "")


def test_a_signal_that_comes_before_anybody_waits_is_heard() -> None:
    with Signals() as signals:
        os.kill(os.getpid(), signal.SIGTERM)
        assert signals.wait()
        signals.end()
        assert not signals.wait()


def test_the_outbox_can_be_stopped_while_it_is_being_started(
    run: Run, url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    start = threading.Thread.start

    def start_after_stop(thread: threading.Thread) -> None:
        if thread.name == "holdfast-outbox":
            worker.stop(0)
        start(thread)

    monkeypatch.setattr(threading.Thread, "start", start_after_stop)
    with shop.calling() as hold:
        worker = hold.works.worker()
        worker.start()
        assert worker.stop()


def test_while_it_works_the_collector_does_not_look_at_what_was_there_before(
    failed: Failing, hold: Holdfast, url: str
) -> None:
    failed(1)
    hold.letters.bulk.start(LetterFilter(domain="payments"))
    with started("--app", shop.APP, **{shop.URL: url, shop.STUCK: "1"}) as worker:
        assert worker.stdout is not None
        told = next(line for line in worker.stdout if "stuck" in line)
        worker.kill()
    assert int(told.split()[1]) > 10_000


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
