"""Acting on single letters."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from holdfast.app import Holdfast
from holdfast.cli.exits import ExitCode
from holdfast.cli.filters import os_user
from tests.cli import shop
from tests.cli.conftest import Run

Answer = Callable[..., Any]
Failing = Callable[[int], list[str]]
WITH_APP: dict[str, str | None] = {"HOLDFAST_URL": None, "HOLDFAST_APP": shop.APP}
DOWN: dict[str, str | None] = {**WITH_APP, shop.DOWN: "1"}


def test_a_retry_calls_the_programs_function_again(run: Run, failed: Failing, hold: Holdfast) -> None:
    [id] = failed(1)
    result = run("letters", "retry", id, env=WITH_APP)
    assert result.stdout.splitlines() == [
        "ID                        OUTCOME    STATUS    ATTEMPT",
        f"{id}  succeeded  resolved        1",
    ]
    letter = hold.letters.get_by_id(id)
    assert letter is not None
    assert (letter.status, letter.resolution_type, letter.resolved_by_id) == ("resolved", "manual_replay", os_user())


def test_a_retry_that_fails_is_code_1_and_says_why(answer: Answer, failed: Failing) -> None:
    [id] = failed(1)
    [result] = answer("letters", "retry", id, env=DOWN, code=ExitCode.FAILED)["results"]
    assert (result["outcome"], result["status"], result["attempt"]) == ("failed", "pending", 1)
    assert "refused" in result["reason"]


def test_a_retry_without_the_program_is_refused_and_uses_no_attempt(run: Run, failed: Failing, hold: Holdfast) -> None:
    [id] = failed(1)
    error = run("letters", "retry", id, code=ExitCode.FAILED).stderr
    assert "give --app module:attribute" in error
    assert hold.letters.get_by_id(id).retry_count == 0  # type: ignore[union-attr]


def test_a_retry_of_several_does_all_and_tells_of_the_unknown(answer: Answer, failed: Failing) -> None:
    ids = failed(2)
    said = answer("letters", "retry", *ids, ids[0], "nope", env=WITH_APP, code=ExitCode.NOT_FOUND)
    assert [(one["id"], one["outcome"]) for one in said["results"]] == [(id, "succeeded") for id in ids]
    assert said["not_found"] == ["nope"]


def test_a_redrive_gives_a_letter_that_requires_review_a_new_budget(run: Run, failed: Failing, hold: Holdfast) -> None:
    [id] = failed(1)
    hold.letters.update_status(id, "requires_review")
    assert "skipped" in run("letters", "retry", id, env=WITH_APP, code=ExitCode.FAILED).stdout
    assert "succeeded" in run("letters", "force-redrive", id, env=WITH_APP).stdout
    letter = hold.letters.get_by_id(id)
    assert letter is not None
    assert letter.metadata["force_redrive_count"] == 1


@pytest.mark.parametrize(
    ("command", "status", "how"), [("resolve", "resolved", "manual"), ("reject", "rejected", "rejected")]
)
def test_an_operator_settles_letters_with_a_note(
    run: Run, answer: Answer, filed: Callable[..., str], hold: Holdfast, command: str, status: str, how: str
) -> None:
    first, second = filed(), filed()
    run("letters", command, first, "--note", "paid by hand", "--by", "ann")
    letter = hold.letters.get_by_id(first)
    assert letter is not None
    assert (letter.status, letter.resolution_type, letter.resolution_note, letter.resolved_by_id) == (
        status, how, "paid by hand", "ann",
    )  # fmt: skip
    said = answer("letters", command, second, "nope", code=ExitCode.NOT_FOUND)
    assert said == {"status": status, "changed": [second], "not_found": ["nope"]}


def test_a_paused_domain_replays_nothing_until_it_is_resumed(run: Run, failed: Failing) -> None:
    [id] = failed(1)
    run("letters", "pause", "payments", "--reason", "provider migrates", "--by", "ann")
    told = run("letters", "retry", id, env=WITH_APP, code=ExitCode.FAILED).stderr
    assert told == f"{id}: replay of 'payments' is paused by ann: provider migrates\n"
    assert run("letters", "resume", "payments").stdout == "replay of payments goes on\n"
    assert run("letters", "resume", "payments").stderr == "replay of payments was not paused\n"
    run("letters", "retry", id, env=WITH_APP)
