"""`holdfast workflow describe`, `stranded` and `fork`; and the dead letters of workflows on the command line."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest
from click.testing import Result

from holdfast.app import Holdfast
from holdfast.cli.exits import ExitCode
from tests.cli import shop
from tests.cli.test_workflow import APP, ENV, ORDER, work

Run = Callable[..., Result]


@pytest.fixture
def answer(run: Run) -> Callable[..., Any]:
    return lambda *args, **options: json.loads(run("workflow", *args, "--json", **options).stdout)


def test_what_a_workflow_guarantees_is_said_by_name_or_id(own: Holdfast, run: Run, answer: Any) -> None:
    told = answer("describe", "fulfil", env=ENV)
    assert (told["name"], told["effect"]) == ("fulfil", "at_least_once")
    assert {one["stage"]: one["effect"] for one in told["steps"]}["wait_signal"] == "pure"
    id = own.workflows.start("fulfil", **ORDER).id
    assert answer("describe", id) == told
    shown = run("workflow", "describe", id).stdout
    assert "undeclared" in shown
    assert "some may happen again" in " ".join(shown.split())
    error = run("workflow", "describe", "nope", code=ExitCode.NOT_FOUND).stderr
    assert "there is no workflow 'nope'" in error


def test_what_each_step_guarantees_can_be_read_in_80_columns(own: Holdfast, run: Run, answer: Any) -> None:
    shown = run("workflow", "describe", "fulfil", env=ENV).stdout
    assert "…" not in shown
    assert max(map(len, shown.splitlines())) <= 80
    said = " ".join(shown.split())
    told = answer("describe", "fulfil", env=ENV)
    assert told["words"] in said
    for step in told["steps"]:
        effect = step["effect"] or "undeclared"
        assert f"{effect} {step['words']}" in said
        assert f"{step['stage']} {step['task']} {effect}" in said


def test_what_no_worker_can_take_is_shown_with_the_reason(own: Holdfast, run: Run, answer: Any) -> None:
    assert "all that is due can be taken" in run("workflow", "stranded").stderr
    id = own.workflows.start("fulfil", **ORDER).id
    assert {one["reason"] for one in answer("stranded")["items"]} == {"no worker is there"}
    assert [one["stranded"] for one in answer("list")["items"]] == ["no worker is there"]
    for command in (("stranded",), ("list",), ("show", id)):
        assert "no worker is there" in run("workflow", *command).stdout
    work(own)
    assert "no worker is there" not in run("workflow", "show", id).stdout


def test_a_run_is_forked_from_a_stage(own: Holdfast, run: Run, answer: Any) -> None:
    id = own.workflows.start("fulfil", **ORDER).id
    assert "only one that has ended" in run("workflow", "fork", id, "--from", "pack", code=ExitCode.FAILED).stderr
    own.workflows.skip(id, "wait_signal")
    work(own)
    made = answer("fork", id, "--from", "pack", "--context", '{"order": {"id": 8}}', "--key", "fix", "--by", "ann")
    forked = own.workflows.workflow(made["id"])
    assert (made["status"], forked.forked_from, forked.context) == ("RUNNING", (id, "pack"), {"order": {"id": 8}})
    work(own)
    assert own.workflows.get(made["id"]).result(0) == "box 8, receipt 7"
    again = run("workflow", "fork", id, "--from", "pack", "--context", '{"order": {"id": 8}}', "--key", "fix")
    assert again.stdout == f"workflow {made['id']} is SUCCEEDED\n"
    with_code = answer("fork", id, "--from", "ship", "--with", "fulfil", env=ENV)
    assert with_code["status"] == "RUNNING"


@pytest.mark.parametrize(
    ("args", "says", "code"),
    [
        (("--from", "pock"), "has no stage 'pock'", ExitCode.NOT_FOUND),
        (("--from", "pack", "--context", "[]"), "--context must be", ExitCode.USAGE),
        (("--from", "pack", "--context", "{"), "must be JSON", ExitCode.USAGE),
        (("--from", "pack", "--context", '{"no": 1}'), "there is no input 'no'", ExitCode.FAILED),
        (
            ("--from", "pack", "--with", "nope", "--app", APP),
            "no workflow 'nope' is known; there are fulfil;",
            ExitCode.NOT_FOUND,
        ),
        (("--from", "pack", "--with", "nope"), "give --app", ExitCode.USAGE),
    ],
)
def test_what_cannot_be_forked_is_said(own: Holdfast, run: Run, args: Any, says: str, code: ExitCode) -> None:
    id = own.workflows.start("fulfil", **ORDER).id
    own.workflows.cancel(id)
    assert says in run("workflow", "fork", id, *args, code=code).stderr


def test_the_letter_of_a_workflow_is_replayed_without_the_program(
    own: Holdfast,
    run: Run,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    id = own.workflows.start("fulfil", **ORDER).id
    monkeypatch.setenv(shop.DOWN, "1")
    work(own)
    monkeypatch.delenv(shop.DOWN)
    (letter,) = own.letters.find(entity_id=id)
    done = run("letters", "retry", letter.id)
    assert "started" in done.stdout
    assert f"workflow {id} runs again" in done.stderr
    own.workflows.skip(id, "wait_signal")
    work(own)
    assert own.workflows.get(id).result(0) == "box 7, receipt 7"
    assert "resolved" in run("letters", "show", letter.id).stdout
