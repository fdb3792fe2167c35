"""Bulk operations: seen before they are done, kept in the store, followed to their end."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from holdfast.app import Holdfast
from holdfast.cli.exits import ExitCode
from holdfast.cli.filters import os_user
from holdfast.letters.bulk import LetterFilter
from tests.cli import shop
from tests.cli.conftest import Run, lines

Answer = Callable[..., Any]
Filed = Callable[..., str]
Failing = Callable[[int], list[str]]
WITH_APP: dict[str, str | None] = {"HOLDFAST_URL": None, "HOLDFAST_APP": shop.APP}


def test_without_yes_it_shows_what_it_would_touch_and_does_nothing(run: Run, filed: Filed, hold: Holdfast) -> None:
    first, second = filed(), filed("payments", "F", error_message="")
    filed("notification")
    result = run("letters", "bulk", "resolve", "--domain", "payments")
    assert lines(result) == [
        "2 letters would be touched (domain payments)",
        "",
        "BY      VALUE     LETTERS",
        "domain  payments        2",
        "status  pending         2",
        "",
        "the oldest of them",
        "ID                        STATUS   DOMAIN    ERROR",
        f"{first}  pending  payments  ConnectionError: refused",
        f"{second}  pending  payments  F",
    ]
    assert result.stderr == "dry run: nothing was done; --yes does it\n"
    assert hold.letters.count(status="pending") == 3
    assert hold.letters.bulk.find() == []


def test_a_dry_run_in_json_says_that_nothing_was_started(answer: Answer, filed: Filed) -> None:
    id = filed()
    assert answer("letters", "bulk", "replay") == {
        "action": "replay",
        "filter": {},
        "started": None,
        "total": 1,
        "by_domain": {"payments": 1},
        "by_status": {"pending": 1},
        "sample": [id],
    }


@pytest.mark.parametrize(("action", "status"), [("resolve", "resolved"), ("discard", "rejected")])
def test_what_needs_no_program_is_done_here(
    answer: Answer, filed: Filed, hold: Holdfast, action: str, status: str
) -> None:
    for _ in range(3):
        filed()
    filed("notification")
    done = answer("letters", "bulk", action, "--domain", "payments", "--yes", "--reason", "paid by hand")
    assert (done["state"], done["total"], done["succeeded"], done["failed"]) == ("done", 3, 3, 0)
    assert (done["requested_by"], done["reason"]) == (os_user(), "paid by hand")
    assert done["filter"] == {"domain": "payments"}
    assert hold.letters.count(status=status) == 3
    assert hold.letters.count(status="pending") == 1


def test_a_bulk_replay_runs_here_with_the_program(run: Run, failed: Failing, hold: Holdfast) -> None:
    failed(5)
    shown = run("letters", "bulk", "replay", "--yes", env=WITH_APP).stdout
    assert "done       5 of 5\n" in shown
    assert hold.letters.count(status="resolved") == 5


def test_a_bulk_replay_with_failures_is_code_1(answer: Answer, failed: Failing) -> None:
    failed(2)
    down = {**WITH_APP, shop.DOWN: "1"}
    done = answer("letters", "bulk", "replay", "--yes", env=down, code=ExitCode.FAILED)
    assert (done["state"], done["succeeded"], done["failed"]) == ("done", 0, 2)


def test_letters_that_nobody_can_replay_are_skipped_and_code_1(answer: Answer, filed: Filed, hold: Holdfast) -> None:
    filed("notification")
    done = answer("letters", "bulk", "replay", "--yes", env=WITH_APP, code=ExitCode.FAILED)
    assert (done["state"], done["succeeded"], done["skipped"]) == ("done", 0, 1)
    assert hold.letters.count(status="pending") == 1


def test_a_detached_replay_prints_its_id_and_waits_for_a_worker(
    run: Run, answer: Answer, failed: Failing, hold: Holdfast
) -> None:
    failed(2)
    id = run("letters", "bulk", "replay", "--yes", "--detach").stdout.splitlines()[-1]
    assert answer("letters", "bulk", "status", id)["state"] == "pending"
    run("worker", "--once", env=WITH_APP)
    assert answer("letters", "bulk", "status", id)["state"] == "done"
    assert hold.letters.count(status="resolved") == 2


def test_a_worker_without_the_program_leaves_a_replay_to_others(
    run: Run, answer: Answer, failed: Failing, hold: Holdfast
) -> None:
    failed(1)
    begun = hold.letters.bulk.start(LetterFilter())
    run("worker", "--once")
    assert answer("letters", "bulk", "status", begun.id)["state"] == "pending"


def test_operations_are_listed_carried_on_and_aborted(
    run: Run, answer: Answer, failed: Failing, hold: Holdfast
) -> None:
    failed(1)
    first = hold.letters.bulk.start(LetterFilter(), requested_by="ann")
    second = hold.letters.bulk.start(LetterFilter(domain="payments"), requested_by="bob")
    assert lines(run("letters", "bulk", "list")) == [
        "ID                        ACTION  STATE    DONE  FAILED  AGE  BY",
        f"{second.id}  replay  pending   0/1       0   0s  bob",
        f"{first.id}  replay  pending   0/1       0   0s  ann",
    ]
    assert "note       aborted by eve\n" in run("letters", "bulk", "abort", first.id, "--by", "eve").stdout
    assert "is over already: aborted" in run("letters", "bulk", "abort", first.id, code=ExitCode.FAILED).stderr
    assert answer("letters", "bulk", "run", second.id, env=WITH_APP)["state"] == "done"
    assert [one["id"] for one in answer("letters", "bulk", "list", "--state", "done")["items"]] == [second.id]


@pytest.mark.parametrize("command", ["status", "abort", "run"])
def test_an_unknown_operation_is_code_3(run: Run, hold: Holdfast, command: str) -> None:
    run("letters", "bulk", command, "nope", code=ExitCode.NOT_FOUND)


def test_nothing_that_matches_starts_nothing(run: Run, hold: Holdfast) -> None:
    assert run("letters", "bulk", "discard", "--yes").stdout == "0 letters would be touched (no filter)\n"
    assert hold.letters.bulk.find() == []
