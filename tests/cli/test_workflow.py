"""`holdfast workflow`, on the database of a shop whose orders are workflows."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest
from click.testing import CliRunner, Result

from holdfast import TransientError, current_task, task, wait_signal, workflow
from holdfast.app import Holdfast
from holdfast.cli.exits import ExitCode
from holdfast.cli.root import root
from holdfast.cli.workflow_rows import log_rows
from holdfast.workflows.history import LogEntry
from holdfast.workflows.messages import CancelWorkflow
from holdfast.workflows.records import ITEM
from tests.cli import conftest, shop
from tests.cli.test_terminal import in_terminal

Run = Callable[..., Result]
APP = "tests.cli.shop:fulfilling"
ENV: dict[str, str | None] = {"HOLDFAST_APP": APP, "HOLDFAST_URL": None}
ORDER = {"order": {"id": 7, "password": "hunter2"}}


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
    assert [one["id"] for one in page["items"]] == [second]
    assert [one["id"] for one in answer("list", "--after", page["next"])["items"]] == [first]
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
    assert [(one["ref"], one["status"]) for one in full["stages"]] == [
        ("pack", "SUCCEEDED"), ("charge", "SUCCEEDED"), ("wait_signal", "SUSPENDED"), ("ship", "NOT_STARTED"),
    ]  # fmt: skip
    one = run("show", started, "--stage", "charge").stdout
    assert '"receipt": 7' in one
    for text in (shown, json.dumps(full), one, run("show", started, "--stage", "charge", "--json").stdout):
        assert "hunter2" not in text
        assert "t0p" not in text


def test_what_a_stage_waits_for_is_said(own: Holdfast, run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    id = own.workflows.start("fulfil", **ORDER).id
    shown = run("show", id).stdout
    assert shown.count("waits for a worker") == 3
    assert "1 transaction; " in shown
    monkeypatch.setenv(shop.DOWN, "1")
    work(own)
    shown = run("show", id).stdout
    assert "PermanentError: refused" in shown
    assert "TERMINAL" in run("show", id, "--stage", "charge").stdout


def test_a_stage_that_succeeded_in_the_end_is_not_shown_with_the_error_that_it_had(own: Holdfast, run: Run) -> None:
    @task
    def shaky() -> str:
        attempt = current_task()
        if attempt is not None and attempt.attempt == 1:
            raise TransientError("the line was busy", retry_after=0)
        return "done"

    id = own.workflows.start(workflow(name="shaky")(lambda: shaky())).id
    work(own)
    work(own)
    assert "SUCCEEDED" in run("graph", id).stdout
    assert "the line was busy" not in run("show", id).stdout + run("graph", id).stdout
    assert "the line was busy" in run("show", id, "--stage", "shaky").stdout
    assert "the line was busy" in run("log", id, "--json").stdout


def test_times_in_a_log_are_told_in_few_digits(own: Holdfast, run: Run) -> None:
    @task
    def busy() -> None:
        raise TransientError("busy", retry_after=1 / 3)

    later = own.workflows.start(workflow(name="later")(lambda: wait_signal("go", timeout=3 * 86400))).id
    retried = own.workflows.start(workflow(name="retried")(lambda: busy())).id
    work(own)
    assert "delay 3 d 0 h," in run("log", later).stdout
    assert "delay 333 ms," in run("log", retried).stdout


def test_a_log_tells_the_day_where_it_is_of_more_than_one() -> None:
    noon = datetime(2026, 1, 31, 12, tzinfo=UTC)
    first, later = LogEntry(1, noon, "one", None, {}), LogEntry(2, noon + timedelta(days=1), "two", None, {})
    assert [row[1] for row in log_rows([first])] == ["12:00:00.000"]
    assert [row[1] for row in log_rows([first, later])] == ["01-31 12:00:00", "02-01 12:00:00"]


def test_an_input_that_the_body_cannot_take_is_told_as_that(own: Holdfast, run: Run) -> None:
    env: dict[str, str | None] = {"HOLDFAST_APP": "tests.cli.shop:looking"}
    no = ExitCode.FAILED
    story = "workflow 'charge_one' does not take this input: KeyError: 'id'"
    assert story in run("start", "charge_one", "--input", "[{}]", env=env, code=no).stderr
    daily = ("--cron", "@daily", "--input", "[{}]")
    assert story in run("schedule", "add", "s", "charge_one", *daily, env=env, code=no).stderr
    given = '{"order": {"id": 7}, "idempotency_key": "k"}'
    assert "--key KEY gives one" in run("start", "fulfil", "--input", given, env=env, code=ExitCode.USAGE).stderr


def test_the_log_is_shown_and_how_it_stood_at_a_number_of_it(started: str, run: Run, answer: Any) -> None:
    lines = run("log", started).stdout.splitlines()
    assert lines[0].split() == ["SEQ", "AT", "WHAT", "STAGE", "FACTS"]
    assert "workflow_started" in lines[1]
    [suspended] = [line.split() for line in lines if "stage_suspended" in line]
    assert suspended[3:6] == ["wait_signal", "waits_for", "approved,"]
    entries = answer("log", started, "--after", "1")["items"]
    assert {one["seq"] for one in entries}.isdisjoint({0, 1})
    assert "there are more: --after 1" in run("log", started, "--limit", "1").stderr
    then = answer("show", started, "--at", "1")
    assert (then["status"], then["stages"]["ship"]["status"]) == ("RUNNING", "NOT_STARTED")
    said = run("show", started, "--stage", "chrage", code=ExitCode.NOT_FOUND).stderr
    assert "workflow 'fulfil' has no stage 'chrage'; there are charge, pack, ship, wait_signal" in said
    assert "there is no 99" in run("show", started, "--at", "99", code=ExitCode.NOT_FOUND).stderr


def test_the_graph_is_drawn_here_or_into_a_file(started: str, run: Run, tmp_path: Path) -> None:
    text = run("graph", started).stdout
    assert [line.split()[0] for line in text.splitlines()[1:]] == ["✓", "│", "├─╯", "│", "├─╯", "○"]
    file = tmp_path / "order.svg"
    assert run("graph", started, "--out", str(file)).stdout == ""
    assert ElementTree.fromstring(file.read_text()).tag.endswith("svg")
    assert run("graph", started, "--out", "-").stdout.startswith("<svg ")
    nowhere = tmp_path / "nowhere" / "order.svg"
    said = run("graph", started, "--out", str(nowhere), code=ExitCode.USAGE).stderr
    assert said == f"holdfast: cannot write to {nowhere}: No such file or directory\n"


@pytest.mark.parametrize("name", ["order.png", "order.JPG", "order.v2.pdf"])
def test_a_file_whose_name_says_that_it_is_no_svg_is_not_written(
    started: str, run: Run, tmp_path: Path, name: str
) -> None:
    file = tmp_path / name
    said = run("graph", started, "--out", str(file), code=ExitCode.USAGE).stderr
    assert said.startswith(f"holdfast: the picture is an SVG, got --out {file}; write it to {file.with_suffix('.svg')}")
    assert f"make a {file.suffix.lower()} of it" in said
    assert not file.exists()


def test_nothing_that_is_printed_is_wider_than_the_terminal(started: str, run: Run) -> None:
    for command in ("list", f"show {started}", f"log {started}", f"graph {started}", f"show {started} --stage charge"):
        assert max(map(len, run(*command.split()).stdout.splitlines())) <= 80, command


def test_a_workflow_is_started_by_name_once_per_key(own: Holdfast, run: Run, answer: Any) -> None:
    given = ("start", "fulfil", "--input", json.dumps(ORDER), "--key", "order-7")
    said = run(*given, env=ENV).stdout
    [found] = own.workflows.find()
    assert said == f"workflow {found.id} is RUNNING\n"
    assert answer(*given, env=ENV)["id"] == found.id
    by_place = answer("start", "fulfil", "--input", '[{"id": 8}]', env=ENV)["id"]
    assert own.workflows.workflow(by_place).context == {"order": {"id": 8}}


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
    kept = run("signal", started, "later")
    assert kept.stdout == "'later' is kept until a stage waits for it\n"
    assert kept.stderr == "at this moment wait_signal waits for signal 'approved'\n"
    assert answer("signal", started, "approved", "--value", '{"by": "ann"}')["taken"] is True
    work(own)
    assert own.workflows.get(started).result(0) == "box 7, receipt 7"
    assert "SUCCEEDED" in run("signal", started, "approved", code=ExitCode.FAILED).stderr


def test_a_workflow_is_approved_or_rejected_by_name(own: Holdfast, started: str, run: Run, answer: Any) -> None:
    assert run("reject", started).stdout == "'approval' is kept until a stage waits for it\n"
    assert "no stage 'nowhere'" in run("approve", started, "--stage", "nowhere", code=ExitCode.NOT_FOUND).stderr
    said = answer("approve", started, "--name", "approved", "--stage", "wait_signal", "--by", "ann", "--comment", "ok")
    assert said == {"id": started, "signal": "approved", "taken": True}
    left = own.workflows.workflow(started).stage("wait_signal").outputs["result"]
    assert left == {"approved": True, "user": "ann", "comment": "ok"}
    work(own)
    assert "SUCCEEDED" in run("approve", started, code=ExitCode.FAILED).stderr


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
    assert run("resume", started, "--reason", "fed").stdout == f"workflow {started} is RUNNING\n"
    assert "paused by" not in run("show", started).stdout
    assert "reason fed" in run("log", started).stdout


def test_what_has_failed_is_retried_and_stages_are_restarted_or_skipped(
    own: Holdfast, run: Run, answer: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    id = own.workflows.start("fulfil", **ORDER).id
    assert "no stage of it has failed" in run("retry", id, code=ExitCode.FAILED).stderr
    monkeypatch.setenv(shop.DOWN, "1")
    work(own)
    monkeypatch.delenv(shop.DOWN)
    assert run("retry", id, "--reason", "it is up").stdout == f"workflow {id} is RUNNING\n"
    run("skip", id, "wait_signal", "--reason", "he said yes", "--by", "ann")
    assert "manual: skipped by ann: he said yes" in run("show", id).stdout
    work(own)
    assert own.workflows.get(id).result(0) == "box 7, receipt 7"
    assert answer("restart", id, "pack", "--reason", "wrong box")["status"] == "RUNNING"
    assert answer("cancel", id, "--stage", "pack", "--reason", "no box")["status"] == "CANCELED"
    given = [one.facts["reason"] for one in own.workflows.log(id) if "by" in one.facts]
    assert given == ["it is up", "he said yes", "wrong box", "no box"]
    assert "has no stage 'pock'" in run("restart", id, "pock", code=ExitCode.NOT_FOUND).stderr


@pytest.mark.parametrize(
    "command", ["show", "log", "graph", "watch", "cancel", "pause", "resume", "retry", "signal", "approve", "reject"]
)
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


@pytest.fixture
def dead(own: Holdfast) -> str:
    """A message for a workflow that is not there."""
    message = CancelWorkflow(execution_id="none", message_id="lost-1", max_attempts=1)
    own.workflows.queue.push(message)
    work(own)
    return message.message_id


def test_dead_items_are_listed_and_shown(dead: str, run: Run, answer: Any) -> None:
    shown = run("dead", "list").stdout
    assert "CancelWorkflow" in shown
    assert "there is no workflow" in shown
    listed = answer("dead", "list", "none")
    assert (listed["count"], [one["id"] for one in listed["items"]]) == (1, [dead])
    assert answer("dead", "list", "other") == {"count": 0, "items": [], "next": None}
    assert run("dead", "list", "other").stderr.strip() == "there are no dead items"
    found = answer("dead", "show", dead)
    assert (found["type"], found["attempts"], found["payload"]["execution_id"]) == ("CancelWorkflow", 1, "none")
    assert "tries" in run("dead", "show", dead).stdout
    assert "is no cursor" in run("dead", "list", "--after", "x", code=ExitCode.USAGE).stderr


def test_who_has_more_dead_items_than_are_shown_is_told_so(own: Holdfast, run: Run, answer: Any) -> None:
    for number in range(3):
        own.workflows.queue.push(CancelWorkflow(execution_id="none", message_id=f"lost-{number}", max_attempts=1))
    work(own)
    page = answer("dead", "list", "--limit", "2")
    told = run("dead", "list", "--limit", "2").stderr.strip()
    assert (len(page["items"]), told) == (2, f"there are more, 3 in all: --after {page['next']}")
    rest = answer("dead", "list", "--limit", "2", "--after", page["next"])
    assert (len(rest["items"]), rest["next"]) == (1, None)


def test_a_dead_item_is_replayed(dead: str, own: Holdfast, run: Run) -> None:
    assert run("dead", "replay", dead).stdout.strip() == f"replayed: {dead}"
    assert (own.workflows.dead.count(), own.workflows.queue.size()) == (0, 1)
    assert "no dead item" in run("dead", "replay", dead, code=ExitCode.NOT_FOUND).stderr


def test_a_dead_item_is_discarded_after_a_yes(dead: str, own: Holdfast, run: Run, answer: Any) -> None:
    assert "dry run" in run("dead", "discard", dead).stderr
    assert own.workflows.dead.count() == 1
    assert answer("dead", "discard", dead, "--yes") == {"discarded": [dead]}
    assert own.workflows.dead.count() == 0


def test_a_workflow_that_lacks_something_is_taken_up(started: str, own: Holdfast, run: Run, answer: Any) -> None:
    assert "nothing is missing; looked at 1 workflow under way" in run("recover").stderr
    own.store.sweep(ITEM, ())
    found = answer("recover")
    assert (found["looked_at"], [one["status"] for one in found["results"]]) == (1, ["recovered"])
    own.store.sweep(ITEM, ())
    assert "recovered" in run("recover", started).stdout
    assert "there is no workflow nobody" in run("recover", "nobody", code=ExitCode.NOT_FOUND).stderr


def test_finalizers_are_listed_without_secrets_and_run_again(
    own: Holdfast, run: Run, answer: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert "no finalizers match" in run("finalizers").stderr
    id = own.workflows.start("fulfil", order={"id": 7}).id
    monkeypatch.setenv(shop.DOWN, "yes")
    work(own)
    for _ in range(3):
        own.workflows.finalizers.execute(f"{id}.pack")
    [one] = answer("finalizers", id, "--state", "failed")["items"]
    assert (one["name"], one["stage"], one["state"], one["last_error"]) == (
        "tidy", "pack", "FAILED", "OSError: the table is locked",
    )  # fmt: skip
    assert one["args"]["order"] == 7
    assert "hunter2" not in str(one)
    listed = run("finalizers")
    *facts, age, error = listed.stdout.splitlines()[1].split()[1:]
    assert (facts, age[-1], error) == (["pack", "tidy", "FAILED", "4"], "s", "OSError…")
    assert "finalize ID" in listed.stderr
    assert "1 FAILED" in run("show", id).stdout
    assert "finalizer_ended" in run("log", id).stdout
    monkeypatch.delenv(shop.DOWN)
    assert "1 finalizer will be run" in run("finalize", one["id"], "--by", "ann").stdout
    assert "already" in run("finalize", one["id"], code=ExitCode.FAILED).stderr
    work(own)
    assert "1 DONE" in run("show", id).stdout
    assert "there is no finalizer what" in run("finalize", "what", code=ExitCode.NOT_FOUND).stderr
    assert "there is no workflow what" in run("finalizers", "what", code=ExitCode.NOT_FOUND).stderr


def test_old_workflows_are_deleted_after_a_yes(own: Holdfast, run: Run, answer: Any, started: str) -> None:
    old = own.workflows.start("fulfil", order={"id": 8}).id
    own.workflows.cancel(old)
    work(own)
    assert "0 workflows would be deleted" in run("prune", "--older-than", "30d").stdout
    future = "2999-01-01T00:00"
    assert answer("prune", "--older-than", future) == {"matched": 1, "kept": {}, "pruned": 0}
    assert "1 workflow would be deleted" in run("prune", "--older-than", future, "--dry-run", "--yes").stdout
    assert "deleted 1 workflow" in run("prune", "--older-than", future, "--yes").stdout
    assert [one["id"] for one in answer("list")["items"]] == [started]
    assert "is no time" in run("prune", "--older-than", "long", code=ExitCode.USAGE).stderr


def test_a_worker_tells_of_tasks_and_workflows(own: Holdfast, monkeypatch: pytest.MonkeyPatch, url: str) -> None:
    id = own.workflows.start("fulfil", order={"id": 7}).id
    own.workflows.signal(id, "approved")
    result = CliRunner().invoke(root, ["worker", "--once"], env={**ENV, shop.URL: url})
    assert result.exit_code == 0, result.output
    told = [line[20:] for line in result.stdout.splitlines()]
    assert f"workflow task began charge workflow_id={id} stage=charge attempt=1" in told
    assert f"workflow task charge workflow_id={id} stage=charge outcome=succeeded attempt=1" in told
    assert f"workflow moved fulfil workflow_id={id} status=SUCCEEDED" in told
    assert f"workflow finalizer tidy workflow_id={id} stage=pack state=DONE attempt=1" in told


def test_a_worker_runs_the_tasks_in_processes_of_their_own_if_it_is_told_to(own: Holdfast, url: str) -> None:
    id = own.workflows.start("fulfil", order={"id": 7}).id
    own.workflows.signal(id, "approved")
    apart = {**ENV, shop.URL: url, "HOLDFAST_ISOLATION_MODE": "process"}
    result = CliRunner().invoke(root, ["worker", "--once"], env=apart)
    assert result.exit_code == 0, result.output
    assert f"workflow moved fulfil workflow_id={id} status=SUCCEEDED" in result.stdout


def test_a_worker_tells_of_a_workflow_that_fails(own: Holdfast, url: str) -> None:
    id = own.workflows.start("fulfil", order={"id": 7}).id
    result = CliRunner().invoke(root, ["worker", "--once", "--json"], env={**ENV, shop.URL: url, shop.DOWN: "yes"})
    documents = [json.loads(line) for line in result.stdout.splitlines()]
    [failed] = [one for one in documents if one.get("outcome") == "failed"]
    assert (failed["event"], failed["operation_key"], failed["workflow_id"]) == ("workflow.task", "charge", id)
    assert failed["error"] == "PermanentError: refused"
    [ended] = [one for one in documents if one["event"] == "workflow.moved"]
    assert (ended["status"], ended["reason"]) == ("TERMINAL", "refused")
