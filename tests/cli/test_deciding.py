"""Looking at letters by what they have in common, and deciding about single ones; of a store and of a server."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from holdfast.app import Holdfast
from holdfast.cli.exits import ExitCode
from tests.cli.conftest import Run, lines
from tests.cli.served import served

Answer = Callable[..., Any]
Filed = Callable[..., str]


@pytest.fixture(params=["store", "server"])
def where(request: pytest.FixtureRequest, hold: Holdfast, url: str) -> Iterator[list[str]]:
    if request.param == "store":
        yield ["--url", url]
        return
    with served(hold, has_program=False) as at:
        yield ["--url", at]


def status(hold: Holdfast, id: str) -> str:
    letter = hold.letters.get_by_id(id)
    return "gone" if letter is None else letter.status


def test_a_letter_is_reviewed_and_put_back(
    run: Run, answer: Answer, hold: Holdfast, filed: Filed, where: list[str]
) -> None:
    id = filed()
    assert lines(run("letters", "review", id, *where))[1].split() == [id, "reviewing"]
    assert status(hold, id) == "reviewing"
    assert "--reason" in run("letters", "reopen", id, *where, code=ExitCode.USAGE).stderr
    assert answer("letters", "reopen", id, "--reason", "it was the network", *where) == {
        "changed": {id: "pending"}, "not_found": [],
    }  # fmt: skip
    again = run("letters", "reopen", id, "--reason", "x", *where, code=ExitCode.FAILED)
    assert "is pending already" in again.stderr
    missing = run("letters", "review", "none", id, *where, code=ExitCode.NOT_FOUND)
    assert missing.stderr == "holdfast: there is no letter none\n"
    assert status(hold, id) == "reviewing"


def test_a_letter_is_deleted_after_a_yes(run: Run, hold: Holdfast, filed: Filed, where: list[str]) -> None:
    id = filed()
    assert "dry run" in run("letters", "delete", id, "--reason", "erasure", *where).stderr
    assert status(hold, id) == "pending"
    said = lines(run("letters", "delete", id, "--reason", "erasure", "--yes", "--by", "ann", *where))
    assert said[1].split() == [id, "deleted"]
    assert status(hold, id) == "gone"
    [event] = [
        one.event for one in hold.audit.newest(limit=5).events if one.event.payload.get("act") == "letters.delete"
    ]
    assert (event.payload["reason"], event.payload["on_id"]) == ("erasure", id)
    run("letters", "delete", id, "--reason", "erasure", "--yes", *where, code=ExitCode.NOT_FOUND)


def test_domains_say_whether_their_letters_may_go(
    run: Run, answer: Answer, hold: Holdfast, filed: Filed, where: list[str]
) -> None:
    assert run("letters", "domains", *where).stderr == "there are no letters\n"
    filed("payments")
    filed("stock")
    hold.letters.pause("stock", by="ann", reason="provider is down")
    wide = {"COLUMNS": "160"}
    _, payments, stock = lines(run("letters", "domains", *where, env=wide))
    assert payments.split()[:3] == ["payments", "1", "1"]
    assert "provider is down" in stock
    page = answer("letters", "domains", "--limit", "1", *where)
    assert [one["domain"] for one in page["items"]] == ["payments"]
    rest = answer("letters", "domains", "--after", page["next"], *where)
    assert [one["domain"] for one in rest["items"]] == ["stock"]


def test_errors_that_are_the_same_but_for_their_numbers_are_one(
    run: Run, answer: Answer, filed: Filed, where: list[str]
) -> None:
    for number in range(3):
        filed(error_message=f"order {number} was refused", user_id="7")
    filed("stock", error_message="no answer")
    first, second = answer("letters", "errors", *where)["items"]
    assert (first["count"], first["message"], second["count"]) == (3, "order <n> was refused", 1)
    assert lines(run("letters", "errors", *where))[1].split()[:2] == ["3", "payments"]
    assert len(answer("letters", "errors", "--user", '"7"', *where)["items"]) == 1
    assert answer("letters", "errors", "--user", "7", *where)["items"] == []


def test_retention_says_how_full_it_is(run: Run, answer: Answer, filed: Filed, where: list[str]) -> None:
    filed()
    assert answer("letters", "retention", *where)["active"] == 1
    shown = lines(run("letters", "retention", *where))
    assert shown[0].split()[:2] == ["active", "1"]
    assert [line.split(maxsplit=2)[2] for line in shown if line.startswith(("archived after", "deleted after"))] == [
        "30 days, from when they were resolved", "90 days, from when they were resolved",
    ]  # fmt: skip


def test_on_a_store_without_a_trail_it_is_done_and_logged(
    run: Run, answer: Answer, tmp_path: Any, caplog: pytest.LogCaptureFixture
) -> None:
    from tests.stores import make_url

    url = make_url("redis", tmp_path)
    with Holdfast(url) as hold:
        id = hold.letters.create("payments", "F").id
        assert answer("letters", "review", id, "--by", "ann", "--url", url)["changed"] == {id: "reviewing"}
    assert "letters.review" in caplog.text
    assert "ann" in caplog.text


@pytest.mark.parametrize("command", ["letters domains", "outbox facets", "workers list", "audit list"])
def test_a_store_that_is_away_is_one_line(run: Run, command: str) -> None:
    away = run(*command.split(), "--url", "postgresql://u:p4ss@127.0.0.1:1/x", code=ExitCode.NO_STORE)
    assert away.stderr.count("\n") == 1
    assert "p4ss" not in away.output


def test_without_fastapi_it_says_what_to_install(run: Run, hold: Holdfast, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "fastapi", None)
    assert "pip install 'holdfast[cli]'" in run("workers", "list", code=ExitCode.NO_STORE).stderr
    assert "no letters match" in run("letters", "list").stderr
