"""`holdfast workflow`, on the database of a shop whose orders are workflows."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest
from click.testing import Result

from holdfast.app import Holdfast
from holdfast.cli.exits import ExitCode
from tests.cli import conftest, shop
from tests.cli.test_terminal import in_terminal

Run = Callable[..., Result]
APP = "tests.cli.shop:fulfilling"
ENV: dict[str, str | None] = {"HOLDFAST_APP": APP, "HOLDFAST_URL": None}
ORDER = {"order": {"id": 7, "password": "hunter2"}}


@pytest.fixture
def own(url: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[Holdfast]:
    """The shop itself."""
    monkeypatch.setenv(shop.URL, url)
    with shop.fulfilling() as own:
        own.workflows.counts()
        yield own


@pytest.fixture
def run(run: conftest.Run) -> Run:
    return lambda *args, **options: run("workflow", *args, **options)


@pytest.fixture
def answer(run: Run) -> Callable[..., Any]:
    return lambda *args, **options: json.loads(run(*args, "--json", **options).stdout)


@pytest.fixture
def started(own: Holdfast) -> str:
    """An order that is paid and packed, and waits for a yes."""
    id = own.workflows.start("fulfil", **ORDER).id
    work(own)
    return id


def work(own: Holdfast) -> None:
    worker = own.workflows.worker()
    worker.run_once()
    worker.close()


def test_workflows_are_listed_newest_first_and_page_by_page(own: Holdfast, run: Run, answer: Any) -> None:
    assert "no workflows match" in run("list").stderr
    first, second = (own.workflows.start("fulfil", order={"id": number}).id for number in (1, 2))
    page = answer("list", "--limit", "1")
    assert [one["id"] for one in page["workflows"]] == [second]
    assert [one["id"] for one in answer("list", "--after", page["next"])["workflows"]] == [first]
    own.workflows.cancel(first, "changed my mind")
    title, line = run("list", "--status", "canceled", "--name", "fulfil", "--since", "1h").stdout.splitlines()
    assert title.split() == ["ID", "NAME", "STATUS", "AGE", "TOOK", "REASON"]
    assert line.startswith(f"{first}  fulfil  CANCELED")
    assert line.endswith("changed my mind")
    assert answer("counts") == {"by_status": {"RUNNING": 1, "CANCELED": 1}}
    assert "is no cursor" in run("list", "--after", "what", code=ExitCode.USAGE).stderr


def test_one_workflow_is_shown_with_its_stages_and_without_secrets(started: str, run: Run, answer: Any) -> None:
    shown = run("show", started).stdout
    assert "2 of 4 have ended" in shown
    assert "waits for signal 'approved'" in shown
    full = answer("show", started)
    assert [(one["ref_id"], one["status"]) for one in full["stages"]] == [
        ("pack", "SUCCEEDED"), ("charge", "SUCCEEDED"), ("wait_signal", "SUSPENDED"), ("ship", "NOT_STARTED"),
    ]  # fmt: skip
    one = run("show", started, "--stage", "charge").stdout
    assert '"receipt": 7' in one
    for text in (shown, json.dumps(full), one, run("show", started, "--stage", "charge", "--json").stdout):
        assert "hunter2" not in text
        assert "t0p" not in text


def test_what_a_stage_waits_for_is_said(own: Holdfast, run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    id = own.workflows.start("fulfil", **ORDER).id
    assert run("show", id).stdout.count("waits for a worker") == 3
    monkeypatch.setenv(shop.DOWN, "1")
    work(own)
    shown = run("show", id).stdout
    assert "PermanentError: refused" in shown
    assert "TERMINAL" in run("show", id, "--stage", "charge").stdout


def test_the_log_is_shown_and_how_it_stood_at_a_number_of_it(started: str, run: Run, answer: Any) -> None:
    lines = run("log", started).stdout.splitlines()
    assert lines[0].split() == ["SEQ", "AT", "WHAT", "STAGE", "FACTS"]
    assert "workflow_started" in lines[1]
    assert any("stage_suspended   wait_signal  waits_for approved" in line for line in lines)
    entries = answer("log", started, "--after", "1")["entries"]
    assert {one["seq"] for one in entries}.isdisjoint({0, 1})
    assert "there are more: --after 1" in run("log", started, "--limit", "1").stderr
    then = answer("show", started, "--at", "1")
    assert (then["status"], then["stages"]["ship"]["status"]) == ("RUNNING", "NOT_STARTED")
    assert "there is no 99" in run("show", started, "--at", "99", code=ExitCode.NOT_FOUND).stderr


def test_the_graph_is_drawn_here_or_into_a_file(started: str, run: Run, tmp_path: Path) -> None:
    text = run("graph", started).stdout
    assert [line.split()[0] for line in text.splitlines()[1:]] == ["✓", "│", "├─╯", "│", "├─╯", "○"]
    file = tmp_path / "order.svg"
    assert run("graph", started, "--out", str(file)).stdout == ""
    assert ElementTree.fromstring(file.read_text()).tag.endswith("svg")
    assert run("graph", started, "--out", "-").stdout.startswith("<svg ")


def test_nothing_that_is_printed_is_wider_than_the_terminal(started: str, run: Run) -> None:
    for command in ("list", f"show {started}", f"log {started}", f"graph {started}", f"show {started} --stage charge"):
        assert max(map(len, run(*command.split()).stdout.splitlines())) <= 80, command


def test_a_workflow_is_started_by_name_once_per_key(own: Holdfast, run: Run, answer: Any) -> None:
    given = ("start", "fulfil", "--input", json.dumps(ORDER), "--key", "order-7")
    said = run(*given, env=ENV).stdout
    [found] = own.workflows.find()
    assert said == f"workflow {found.id} is RUNNING\n"
    assert answer(*given, env=ENV)["id"] == found.id
    assert answer("start", "fulfil", "--input", '[{"id": 8}]', env=ENV)["context"] == {"order": {"id": 8}}


@pytest.mark.parametrize(
    ("args", "says", "code"),
    [
        (("fulfil", "--input", "{"), "--input must be JSON", ExitCode.USAGE),
        (("fulfil", "--input", "7"), "must be {…} or […], got 7", ExitCode.USAGE),
        (("fulfil", "--input", "{}"), "missing a required argument: 'order'", ExitCode.FAILED),
        (("full", "--input", "{}"), "no workflow 'full' is known; there are fulfil", ExitCode.NOT_FOUND),
    ],
)
def test_what_cannot_be_started_is_said(own: Holdfast, run: Run, args: Any, says: str, code: int) -> None:
    assert says in run("start", *args, code=code, env=ENV).stderr
    assert own.workflows.find() == []


def test_to_start_needs_the_program(own: Holdfast, run: Run) -> None:
    assert "give --app" in run("start", "fulfil", code=ExitCode.USAGE).stderr


def test_a_signal_lets_a_stage_go_on_or_is_kept(own: Holdfast, started: str, run: Run, answer: Any) -> None:
    assert run("signal", started, "later").stdout == "'later' is kept until a stage waits for it\n"
    assert answer("signal", started, "approved", "--value", '{"by": "ann"}')["taken"] is True
    work(own)
    assert own.workflows.get(started).result(0) == "box 7, receipt 7"
    assert "SUCCEEDED" in run("signal", started, "approved", code=ExitCode.FAILED).stderr


def test_a_workflow_is_cancelled_once(own: Holdfast, started: str, run: Run) -> None:
    assert run("cancel", started, "--reason", "no stock", "--by", "ann").stdout == f"workflow {started} is CANCELED\n"
    assert "is CANCELED already" in run("cancel", started, code=ExitCode.FAILED).stderr
    shown = run("show", started).stdout
    assert "no stock" in shown
    assert "ann" in shown


def test_a_workflow_is_paused_and_resumed(own: Holdfast, run: Run) -> None:
    started = own.workflows.start("fulfil", **ORDER).id
    assert run("pause", started, "--by", "ann", "--reason", "lunch").stdout == f"workflow {started} is PAUSED\n"
    shown = run("show", started).stdout
    assert "paused by  ann" in shown
    assert ": lunch" in shown
    assert shown.count("  held") == 3
    assert run("resume", started).stdout == f"workflow {started} is RUNNING\n"
    assert "paused by" not in run("show", started).stdout


def test_what_has_failed_is_retried_and_stages_are_restarted_or_skipped(
    own: Holdfast, run: Run, answer: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    id = own.workflows.start("fulfil", **ORDER).id
    assert "no stage of it has failed" in run("retry", id, code=ExitCode.FAILED).stderr
    monkeypatch.setenv(shop.DOWN, "1")
    work(own)
    monkeypatch.delenv(shop.DOWN)
    assert run("retry", id).stdout == f"workflow {id} is RUNNING\n"
    run("skip", id, "wait_signal")
    work(own)
    assert own.workflows.get(id).result(0) == "box 7, receipt 7"
    assert answer("restart", id, "pack")["status"] == "RUNNING"
    assert "has no stage 'pock'" in run("restart", id, "pock", code=ExitCode.NOT_FOUND).stderr


@pytest.mark.parametrize("command", ["show", "log", "graph", "watch", "cancel", "pause", "resume", "retry", "signal"])
def test_what_is_not_there_is_said(hold: Holdfast, run: Run, command: str) -> None:
    more = ("go",) if command == "signal" else ()
    assert "there is no workflow nope" in run(command, "nope", *more, code=ExitCode.NOT_FOUND).stderr


def test_without_a_terminal_watching_prints_the_log_to_its_end(own: Holdfast, started: str, run: Run) -> None:
    """A worker goes on with it meanwhile."""

    def go_on() -> None:
        own.workflows.signal(started, "approved")
        work(own)

    other = threading.Thread(target=go_on)
    other.start()
    lines = run("watch", started).stdout.splitlines()
    other.join()
    assert "workflow_started" in lines[0]
    assert "workflow_ended" in lines[-2]
    assert lines[-1] == f"workflow {started} is SUCCEEDED"
    documents = [json.loads(line) for line in run("watch", started, "--json").stdout.splitlines()]
    assert [one["type"] for one in documents] == [one.type for one in own.workflows.log(started)]


def test_watching_one_that_fails_ends_with_code_1_and_its_reason(
    own: Holdfast, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(shop.DOWN, "1")
    id = own.workflows.start("fulfil", **ORDER).id
    work(own)
    assert run("watch", id, code=ExitCode.FAILED).stdout.endswith(f"workflow {id} is TERMINAL: refused\n")


def test_in_a_terminal_the_stages_are_shown_as_they_go_on(own: Holdfast, started: str, url: str) -> None:
    own.workflows.signal(started, "approved")
    work(own)
    seen, code = in_terminal("workflow", "watch", started, "--url", url, NO_COLOR="1")
    assert "fulfil  SUCCEEDED  4 of 4 stages" in seen
    assert seen.endswith(f"workflow {started} is SUCCEEDED\n")
    assert code == ExitCode.OK


def test_looking_at_a_database_without_the_program_is_enough(started: str, run: Run) -> None:
    env: dict[str, str | None] = {"HOLDFAST_APP": None}
    assert "charge" in run("show", started, env=env).stdout
    run("signal", started, "approved", env=env)
