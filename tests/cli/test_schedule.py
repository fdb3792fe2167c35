"""`holdfast workflow schedule`, and what the other commands show of workflows that start and wait for each other."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from click.testing import Result

from holdfast.app import Holdfast
from holdfast.cli.exits import ExitCode
from tests.cli import conftest, shop

Run = Callable[..., Result]
ENV: dict[str, str | None] = {"HOLDFAST_APP": "tests.cli.shop:reporting", "HOLDFAST_URL": None}
DAILY = ("schedule", "add", "nightly", "report", "--cron", "0 3 * * *", "--input", '{"day": "monday"}')


@pytest.fixture
def own(url: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[Holdfast]:
    monkeypatch.setenv(shop.URL, url)
    with shop.reporting() as own:
        own.workflows.counts()
        yield own


@pytest.fixture
def run(run: conftest.Run) -> Run:
    return lambda *args, env=ENV, **options: run("workflow", *args, env=env, **options)


@pytest.fixture
def answer(run: Run) -> Callable[..., Any]:
    return lambda *args, **options: json.loads(run(*args, "--json", **options).stdout)


def work(own: Holdfast) -> None:
    worker = own.workflows.worker()
    worker.run_once()
    worker.close()


def test_what_a_schedule_did_is_shown_without_secrets(own: Holdfast, run: Run) -> None:
    order = {"order": {"id": 7, "password": "hunter2"}}
    own.workflows.schedules.add("nightly", "fulfil", order, cron="0 3 * * *", by="ann")
    shown = run("schedule", "show", "nightly", env={**ENV, "COLUMNS": "300"}).stdout
    assert "schedule_made" in shown
    assert "hunter2" not in shown


def test_a_list_of_schedules_has_80_columns(own: Holdfast, run: Run) -> None:
    for name, cron, zone in (("nightly", "0 3 * * *", "UTC"), ("work", "*/15 8-18 * * 1-5", "Europe/Berlin")):
        own.workflows.schedules.add(name, "fulfil", {"order": {"id": 7}}, cron=cron, timezone=zone)
        own.workflows.schedules.run(name)
    shown = run("schedule", "list").stdout.splitlines()
    assert max(map(len, shown)) <= 80
    assert shown[0].split() == ["NAME", "WORKFLOW", "CRON", "NEXT", "IN", "NOTE"]
    assert [line.split()[0] for line in shown[1:]] == ["nightly", "work"]
    assert "*/15 8-18 * * 1-5" in shown[2]
    assert "TIMEZONE" in run("schedule", "list", env={**ENV, "COLUMNS": "160"}).stdout


def test_a_schedule_is_added_shown_and_listed(own: Holdfast, run: Run, answer: Any) -> None:
    assert "there are no schedules" in run("schedule", "list").stderr
    said = run(*DAILY, "--timezone", "Europe/Berlin", "--overlap", "queue", "--catch-up", "2").stdout
    assert "schedule 'nightly' ticks next at" in said
    assert "03:00:00 CE" in said
    (one,) = answer("schedule", "list")["items"]
    assert (one["name"], one["workflow"], one["overlap"], one["catch_up"]) == ("nightly", "report", "queue", 2)
    assert one["kwargs"] == {"day": "monday"}
    assert "nightly" in run("schedule", "list").stdout
    shown = run("schedule", "show", "nightly").stdout
    assert "Europe/Berlin" in shown
    assert "schedule_made" in shown
    document = answer("schedule", "show", "nightly")
    assert len(document["next"]) == 3
    assert [entry["type"] for entry in document["log"]] == ["schedule_made"]
    assert len(run("schedule", "next", "nightly", "-n", "7").stdout.splitlines()) == 7
    assert len(answer("schedule", "next", "nightly")["next"]) == 5


def test_a_schedule_is_paused_resumed_run_and_deleted(own: Holdfast, run: Run, answer: Any) -> None:
    run(*DAILY)
    assert "schedule 'nightly' is paused" in run("schedule", "pause", "nightly").stdout
    assert "paused" in run("schedule", "list").stdout
    assert "it is paused" in run("schedule", "next", "nightly").stderr
    assert answer("schedule", "resume", "nightly")["paused"] is False
    id = answer("schedule", "run", "nightly")["workflow"]
    assert own.workflows.get(id).status == "RUNNING"
    assert f"{id} is RUNNING" in run("schedule", "run", "nightly", code=ExitCode.FAILED).stderr
    assert "deleted" in run("schedule", "delete", "nightly").stdout
    assert own.workflows.schedules.all() == []


def test_what_cannot_be_scheduled_says_why(own: Holdfast, run: Run) -> None:
    def refused(*words: str, code: ExitCode = ExitCode.USAGE) -> str:
        return run("schedule", "add", "s", *words, code=code).stderr

    assert "bad minute" in refused("report", "--cron", "61 * * * *", "--input", '["x"]')
    assert "no time zone 'Nowhere'" in refused(
        "report", "--cron", "@daily", "--timezone", "Nowhere", "--input", '["x"]'
    )
    assert "day" in refused("report", "--cron", "@daily")
    assert "must be JSON" in refused("report", "--cron", "@daily", "--input", "{")
    assert "no workflow 'nothing'" in refused("nothing", "--cron", "@daily", code=ExitCode.NOT_FOUND)
    for verb in ("show", "pause", "resume", "delete", "run", "next"):
        assert "no schedule 'other'" in run("schedule", verb, "other", code=ExitCode.NOT_FOUND).stderr


def test_to_add_or_run_a_schedule_the_program_is_needed_and_to_look_it_is_not(
    own: Holdfast, run: Run, url: str
) -> None:
    run(*DAILY)
    bare = {"HOLDFAST_APP": None, "HOLDFAST_URL": url}
    assert "give --app" in run(*DAILY, env=bare, code=ExitCode.USAGE).stderr
    assert "give --app" in run("schedule", "run", "nightly", env=bare, code=ExitCode.USAGE).stderr
    assert "nightly" in run("schedule", "list", env=bare).stdout


def test_a_workflow_is_shown_with_those_that_it_has_started(own: Holdfast, run: Run, answer: Any) -> None:
    parent = own.workflows.start("report", day="monday").id
    work(own)
    (child,) = answer("list", "--parent", parent)["items"]
    assert (child["name"], child["parent"]) == ("collect", parent)
    wide = {**ENV, "COLUMNS": "160"}
    shown = run("show", parent, env=wide).stdout
    assert "workflows that it has started" in shown
    assert shown.count(child["id"]) == 2  # the stage waits for it
    assert f"waits for workflow {child['id']}" in run("graph", parent, env=wide).stdout
    assert parent in run("show", child["id"]).stdout
    own.workflows.signal(child["id"], "figures", 7)
    work(own)
    log = run("log", parent).stdout
    assert "child_started" in log
    assert answer("show", parent)["status"] == "SUCCEEDED"


def test_a_workflow_that_waits_for_its_turn_is_shown_with_its_place(own: Holdfast, run: Run, answer: Any) -> None:
    ids = [own.workflows.start("report", day=day).id for day in "abc"]
    found = {one["id"]: one["place"] for one in answer("list", "--pipeline", "report")["items"]}
    assert found == {ids[0]: None, ids[1]: 1, ids[2]: 2}
    assert "number 2 in line of pipeline 'report'" in run("show", ids[2]).stdout
    assert "report, 1 at once" in run("show", ids[0]).stdout
    assert "number 1 in line" in run("list", env={**ENV, "COLUMNS": "160"}).stdout
    assert answer("show", ids[1])["place"] == 1
