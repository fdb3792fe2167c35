"""The same commands, on a server instead of a store."""

from __future__ import annotations

import json
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import closing
from datetime import UTC, datetime
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any

import pytest

from holdfast.app import Holdfast
from holdfast.cli.exits import ExitCode
from holdfast.server.routes import agreeing
from tests.cli import shop
from tests.cli.conftest import Run, lines
from tests.cli.served import served
from tests.outbox.entries import enqueue, make_entry

Answer = Callable[..., Any]
Filed = Callable[..., str]


@pytest.fixture
def at(hold: Holdfast) -> Iterator[str]:
    """The address of a server without the program."""
    with served(hold, has_program=False) as url:
        yield url


def test_letters_are_listed_and_shown_as_from_the_store(
    run: Run, answer: Answer, hold: Holdfast, filed: Filed, at: str
) -> None:
    ids = [filed(request_data={"token": "s3cret", "n": n}, user_id="7") for n in range(3)]
    filed("stock", user_id=7)
    for command in (
        ["letters", "list", "--domain", "payments"], ["letters", "show", ids[0]], ["letters", "facets"],
        ["letters", "list", "--user", '"7"'], ["letters", "list", "--limit", "2"], ["letters", "stats"],
        ["letters", "list", "--since", "1h"], ["letters", "attempts", ids[1]],
    ):  # fmt: skip
        assert lines(run(*command, "--url", at)) == lines(run(*command)), command
        assert answer(*command, "--url", at) == answer(*command), command
    assert "s3cret" not in run("letters", "show", ids[0], "--url", at).stdout
    page = answer("letters", "list", "--limit", "2", "--url", at)
    rest = answer("letters", "list", "--after", page["next"], "--url", at)
    assert [one["id"] for one in rest["items"]] == ids[1::-1]


def test_more_letters_than_a_page_of_the_server_has_are_fetched_page_by_page(
    answer: Answer, hold: Holdfast, at: str
) -> None:
    hold.letters.create_many({"domain": "payments", "failure_type": "F"} for _ in range(603))
    found = answer("letters", "list", "--limit", "602", "--url", at)
    assert len({one["id"] for one in found["items"]}) == 602
    assert found["next"] is not None


def test_letters_are_resolved_and_rejected_with_a_note(run: Run, hold: Holdfast, filed: Filed, at: str) -> None:
    one, other = filed(), filed()
    assert "--note" in run("letters", "resolve", one, "--url", at, code=ExitCode.USAGE).stderr
    run("letters", "resolve", one, "--note", "refunded by hand", "--url", at)
    run("letters", "reject", other, "--note", "a duplicate", "--url", at)
    assert [hold.letters.get_by_id(id).status for id in (one, other)] == ["resolved", "rejected"]  # type: ignore[union-attr]
    assert hold.letters.get_by_id(one).resolved_by_id == "local"  # type: ignore[union-attr]
    missing = run("letters", "resolve", "nowhere", "--note", "x", "--url", at, code=ExitCode.NOT_FOUND)
    assert missing.stderr == "holdfast: there is no letter nowhere\n"


def test_a_letter_is_replayed_by_the_server_that_knows_how(
    run: Run, url: str, failed: Callable[[int], list[str]], hold: Holdfast
) -> None:
    [id] = failed(1)
    with shop.make() as own, served(own) as at:
        said = lines(run("letters", "retry", id, "--url", at))
    assert said[1].split() == [id, "succeeded", "resolved", "1"]


def test_a_letter_that_the_server_cannot_replay_is_handed_to_the_workers(
    answer: Answer, failed: Callable[[int], list[str]], hold: Holdfast, at: str
) -> None:
    [id] = failed(1)
    [result] = answer("letters", "retry", id, "--url", at)["results"]
    assert result["outcome"] == "started"
    assert result["reason"].startswith("handed to the program's workers, as operation ")
    assert len(hold.letters.bulk.find()) == 1


def test_a_domain_is_paused_and_resumed(run: Run, hold: Holdfast, at: str) -> None:
    run("letters", "pause", "payments", "--reason", "provider is down", "--minutes", "5", "--url", at)
    assert hold.letters.replayer.gates.standing("payments").reason.endswith("by local: provider is down")
    assert run("letters", "resume", "payments", "--url", at).stdout == "replay of payments goes on\n"
    assert "was not paused" in run("letters", "resume", "payments", "--url", at).stderr


def test_breakers_are_seen_and_steered(run: Run, answer: Answer, hold: Holdfast, at: str) -> None:
    said = run("breakers", "force-open", "payments", "--reason", "provider is down", "--ttl", "10", "--url", at).stdout
    assert said == f"payments is held open for 10 min, in every process on {at}\n"
    assert lines(run("breakers", "list", "--url", at)) == lines(run("breakers", "list"))
    assert answer("breakers", "show", "payments", "--url", at) == answer("breakers", "show", "payments")
    assert answer("breakers", "list", "--open", "--url", at)["items"][0]["controlled_by_id"] == "local"
    run("breakers", "clear", "payments", "--url", at)
    run("breakers", "reset", "payments", "--url", at)
    assert hold.breakers.get_by_service_name("payments").state == "closed"  # type: ignore[union-attr]
    run("breakers", "force-close", "payments", "--reason", "known to be well", "--url", at)
    run("breakers", "show", "none", "--url", at, code=ExitCode.NOT_FOUND)
    run("breakers", "reset", "none", "--url", at, code=ExitCode.NOT_FOUND)


def test_workflows_are_listed_counted_and_sent_signals(run: Run, answer: Answer, own: Holdfast) -> None:
    run_of = own.workflows.start("fulfil", {"id": 7})
    own.workflows.worker().run_once()
    with served(own) as at:
        for command in (["workflow", "list"], ["workflow", "counts"], ["workflow", "log", run_of.id]):
            assert answer(*command, "--url", at) == answer(*command), command
        assert run_of.id in run("workflow", "list", "--url", at).stdout
        assert lines(run("workflow", "counts", "--url", at)) == lines(run("workflow", "counts"))
        assert answer("workflow", "list", "--status", "SUCCEEDED", "--url", at)["items"] == []
        assert answer("workflow", "signal", run_of.id, "approved", "--url", at)["taken"] is True
        run("workflow", "signal", "none", "approved", "--url", at, code=ExitCode.NOT_FOUND)
        other = own.workflows.start("fulfil", {"id": 8})
        own.workflows.worker().run_once()
        word = ["workflow", "reject", other.id, "--name", "approved", "--comment", "no", "--by", "somebody else"]
        assert answer(*word, "--url", at)["taken"] is True
        left = own.workflows.workflow(other.id).stage("wait_signal").outputs["result"]
        assert (left["approved"], left["comment"], left["user"] == "somebody else") == (False, "no", False)
        run("workflow", "approve", "none", "--url", at, code=ExitCode.NOT_FOUND)


def test_workflows_are_steered(run: Run, own: Holdfast, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(shop.DOWN, "1")
    held, failed = (own.workflows.start("fulfil", {"id": number}).id for number in (1, 2))
    with served(own) as at:

        def said(*command: str) -> str:
            return run("workflow", *command, "--url", at).stdout

        assert said("pause", held, "--reason", "look at it") == f"workflow {held} is PAUSED\n"
        assert said("resume", held, "--reason", "all is well") == f"workflow {held} is RUNNING\n"
        assert said("cancel", held, "--reason", "wrong order") == f"workflow {held} is CANCELED\n"
        assert own.workflows.record(held).reason == "wrong order"
        again = run("workflow", "cancel", held, "--url", at, code=ExitCode.FAILED)
        assert f"workflow {held} is CANCELED already" in again.stderr
        own.workflows.worker().run_once()
        assert own.workflows.get(failed).status == "TERMINAL"
        monkeypatch.delenv(shop.DOWN)
        assert said("retry", failed, "--reason", "bank is back") == f"workflow {failed} is RUNNING\n"
        assert said("skip", failed, "ship", "--reason", "it was fetched") == f"workflow {failed} is RUNNING\n"
        own.workflows.worker().run_once()
        assert said("restart", failed, "charge", "--reason", "wrong sum") == f"workflow {failed} is RUNNING\n"
        paused = json.loads(said("pause", failed, "--json"))
        assert (paused["id"], paused["status"]) == (failed, "PAUSED")
        assert said("cancel", failed, "--stage", "ship", "--reason", "no") == f"workflow {failed} is PAUSED\n"
        told = [one.facts.get("reason") for id in (held, failed) for one in own.workflows.log(id) if "by" in one.facts]
        given = ["look at it", "all is well", "wrong order", "bank is back", "it was fetched", "wrong sum", None, "no"]
        assert told == given
        assert "by local, reason no" in said("log", failed)
        for nothing in ("none", "stranded", "a/b"):
            told = run("workflow", "pause", nothing, "--url", at, code=ExitCode.NOT_FOUND).stderr
            assert f"there is no workflow {nothing}; `holdfast workflow list` shows them" in told
        run("workflow", "restart", failed, "nowhere", "--url", at, code=ExitCode.NOT_FOUND)


def test_old_letters_are_archived_and_purged_after_a_yes(
    run: Run, answer: Answer, hold: Holdfast, filed: Filed, at: str
) -> None:
    ids = [filed() for _ in range(3)]
    for id in ids:
        hold.letters.mark_as_resolved(id, "manual")
    assert answer("letters", "archive", "--url", at) == {"archived": 0}
    would = answer("letters", "archive", "--older-than", "0", "--dry-run", "--url", at)
    assert would == {"matched": 3, "archived": 0}
    assert run("letters", "archive", "--older-than", "0", "--url", at).stdout == "archived 3 letters\n"
    asked = run("letters", "purge", "--older-than", "0", "--url", at)
    assert asked.stdout == "3 archived letters would be deleted\n"
    assert asked.stderr == "dry run: nothing was done; --yes does it\n"
    assert hold.letters.count() == 3
    purge = ["letters", "purge", "--yes", "--reason", "the quarter is over", "--url", at]
    assert answer(*purge, ids[0]) == {"matched": 1, "purged": 1}
    assert answer(*purge, "--older-than", "0") == {"matched": 2, "purged": 2}
    assert hold.letters.count() == 0
    told = [one.event.payload for one in hold.audit.page() if one.event.payload["act"] == "letters.purge"]
    assert [one["reason"] for one in told] == ["the quarter is over"] * 2
    waiting = filed()
    assert "is pending" in run(*purge, waiting, code=ExitCode.FAILED).stderr
    run(*purge, "nobody", code=ExitCode.NOT_FOUND)


def test_entries_are_counted_and_pruned_as_in_the_store(
    run: Run, answer: Answer, hold: Holdfast, at: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(agreeing, "AT_ONCE", 2)
    now = datetime.now(UTC)
    for number in range(5):
        enqueue(hold.outbox, make_entry(f"s{number}", at=now, status="succeeded", last_attempt_at=now))
    enqueue(hold.outbox, make_entry("w", at=now, queue="slow"))
    assert lines(run("outbox", "counts", "--url", at)) == lines(run("outbox", "counts"))
    remote, local = (answer("outbox", "counts", *where) for where in (["--url", at], []))
    assert remote["by_status"] == local["by_status"]
    assert [(one["queue"], one["oldest_due"]) for one in remote["queues"]] == [
        (one["queue"], one["oldest_due"]) for one in local["queues"]
    ]
    prune = ["outbox", "prune", "--older-than", "0", "--url", at]
    assert run(*prune).stdout == "5 succeeded entries would be deleted\n"
    assert answer(*prune, "--yes", "--dry-run") == {"matched": 5, "pruned": 0}
    assert answer(*prune, "--yes") == {"matched": 5, "pruned": 5}
    assert answer(*prune, "--yes") == {"matched": 0, "pruned": 0}


def test_old_workflows_are_deleted_after_a_yes(run: Run, answer: Answer, own: Holdfast) -> None:
    ended, running = (own.workflows.start("fulfil", {"id": number}).id for number in (1, 2))
    own.workflows.cancel(ended)
    with served(own) as at:
        prune = ["workflow", "prune", "--older-than", "2999-01-01T00:00", "--url", at]
        assert run(*prune).stdout == "1 workflow would be deleted\n"
        assert answer(*prune, "--yes") == {"matched": 1, "kept": {}, "pruned": 1}
        assert [one["id"] for one in answer("workflow", "list", "--url", at)["items"]] == [running]


@pytest.mark.parametrize(
    "command",
    [
        ["letters", "compressed", "summary"], ["db", "info"], ["worker", "--once"], ["serve", "--port", "0"],
        ["workflow", "recover"], ["workflow", "finalizers"],
    ],
    ids=" ".join,
)  # fmt: skip
def test_what_a_server_is_not_asked_says_so_and_does_nothing(run: Run, at: str, command: list[str]) -> None:
    error = run(*command, "--url", at, code=ExitCode.USAGE).stderr
    assert f"{at} is a server, and this command needs the store itself" in error


def test_a_token_says_who_asks(run: Run, hold: Holdfast, filed: Filed, tmp_path: Path) -> None:
    id = filed()
    hold.access.add_user("ann", "correct horse battery", "admin")
    file = tmp_path / "token"
    looks, steers = (hold.access.create_token(role, role=role)[1] for role in ("viewer", "operator"))
    with served(hold) as at:
        error = run("letters", "list", "--url", at, code=ExitCode.USAGE).stderr
        assert "HOLDFAST_TOKEN" in error
        assert id in run("letters", "list", "--url", at, env={"HOLDFAST_TOKEN": looks}).stdout
        denied = run("letters", "reject", id, "--note", "x", "--url", at, env={"HOLDFAST_TOKEN": looks}, code=1).stderr
        assert "letters:operate" in denied
        file.write_text(f"{steers}\n")
        run("letters", "reject", id, "--note", "x", "--url", at, "--token-file", str(file))
        assert hold.letters.get_by_id(id).resolved_by_id.startswith("token:operator")  # type: ignore[union-attr]
        missing = run("letters", "list", "--url", at, "--token-file", str(tmp_path / "no"), code=ExitCode.USAGE).stderr
        assert "cannot read the token from" in missing


class Other(BaseHTTPRequestHandler):
    """A web server that is not Holdfast's, and would like to have tokens."""

    seen: list[str | None] = []  # noqa: RUF012  # what all of them were sent
    answer: tuple[int, dict[str, str], bytes] = (200, {}, b"<html>")

    def do_GET(self) -> None:
        Other.seen.append(self.headers.get("Authorization"))
        status, headers, body = Other.answer
        self.send_response(status)
        for name, value in headers.items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *args: Any) -> None:
        pass


@pytest.fixture
def other() -> Iterator[str]:
    Other.seen.clear()
    server = HTTPServer(("127.0.0.1", 0), Other)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    yield f"http://127.0.0.1:{server.server_port}"
    server.shutdown()
    thread.join()
    server.server_close()


def test_another_web_server_is_told_apart(run: Run, other: str, monkeypatch: pytest.MonkeyPatch) -> None:
    assert "is not Holdfast's" in run("letters", "facets", "--url", other, code=ExitCode.USAGE).stderr
    monkeypatch.setattr(Other, "answer", (404, {}, b"not here"))
    assert "there is no Holdfast at" in run("letters", "facets", "--url", other, code=ExitCode.USAGE).stderr
    monkeypatch.setattr(Other, "answer", (503, {}, json.dumps({"error": "store_away", "message": "no store"}).encode()))
    assert run("letters", "facets", "--url", other, code=ExitCode.NO_STORE).stderr == "holdfast: no store\n"


def test_a_token_is_sent_to_nobody_else(run: Run, at: str, other: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Other, "answer", (302, {"Location": f"{other}/elsewhere"}, b""))
    error = run("letters", "facets", "--url", other, env={"HOLDFAST_TOKEN": "hf_x"}, code=ExitCode.FAILED).stderr
    assert error == f"holdfast: {other} answers with status 302\n"
    assert Other.seen == ["Bearer hf_x"]


def test_a_server_that_does_not_answer_is_one_line(run: Run) -> None:
    with closing(socket.create_server(("127.0.0.1", 0))) as taken:
        port = taken.getsockname()[1]
    error = run("breakers", "list", "--url", f"http://127.0.0.1:{port}", code=ExitCode.NO_STORE).stderr
    assert error.startswith(f"holdfast: http://127.0.0.1:{port} does not answer: ")
    assert error.count("\n") == 1
