"""Dead letters by the API."""

from __future__ import annotations

import json
import threading
from collections import Counter
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from starlette.testclient import TestClient

from holdfast import Breaker, Holdfast, Retry
from holdfast.machine.dead_letter import LETTER
from holdfast.testing.clock import ManualClock
from tests.server.served import asking, file, kept, program
from tests.stores import STORES

HOSTILE = (
    "'; DROP TABLE letter; --",
    "<script>alert(1)</script>",
    "\u202eevil",
    "x" * 5000,
    "%00",
    "\0",
    "😀",
    "..",
    "",
)


@pytest.mark.parametrize("name", STORES)
def test_pages_follow_each_other_and_every_letter_is_on_one(tmp_path: Path, name: str) -> None:
    with kept(name, tmp_path) as hold, asking(hold) as client:
        ids = file(hold, 7)
        file(hold, 2, "stock")
        seen: list[str] = []
        after: str | None = None
        for _ in range(4):
            query: dict[str, str] = {"domain": "payments", "limit": "2"} | ({} if after is None else {"after": after})
            page = client.get("letters", params=query).json()
            seen += [one["id"] for one in page["items"]]
            after = page["next"]
        assert after is None
        assert sorted(seen) == sorted(ids)


@pytest.mark.parametrize("name", STORES)
def test_facets_keep_the_alternatives_of_a_choice(tmp_path: Path, name: str) -> None:
    with kept(name, tmp_path) as hold, asking(hold) as client:
        file(hold, 3)
        (other,) = file(hold, 1, "stock", failure_type="TIMEOUT")
        hold.letters.update_status(other, "resolved")
        assert client.get("letters/facets").json()["by_status"] == {"pending": 3, "resolved": 1}
        chosen = client.get("letters/facets", params={"status": "pending"}).json()
        assert chosen["by_domain"] == {"payments": 3}
        assert chosen["by_status"] == {"pending": 3, "resolved": 1}
        assert chosen["by_failure_type"] == {"MAX_RETRIES_CONNECTIONERROR": 3}
        assert client.get("letters/facets", params={"domain": "stock"}).json()["by_failure_type"] == {"TIMEOUT": 1}


def test_a_letter_is_shown_with_its_attempts_and_what_a_replay_would_meet(hold: Holdfast, client: TestClient) -> None:
    charged = program(hold)
    (id,) = file(hold, request_data={"function": "charge", "args": {"order_id": "o9"}, "password": "hunter2"})
    shown = client.get(f"letters/{id}").json()
    assert shown["request_data"]["password"] == "***"
    assert "attempt_token" not in shown
    assert (shown["replay"]["possible"], shown["replay"]["here"], shown["replay"]["way"]) == (True, True, "clear")
    answer = client.post(f"letters/{id}/replay", json={})
    assert answer.status_code == 200, answer.text
    assert answer.json()["outcome"] == "succeeded"
    assert charged == ["o9"]
    shown = client.get(f"letters/{id}").json()
    assert [one["outcome"] for one in shown["attempts"]] == ["succeeded"]
    assert "token" not in shown["attempts"][0]
    assert (shown["replay"]["possible"], shown["replay"]["reason"]) == (False, "it is resolved")
    assert shown["resolved_by_id"] == "local"


def test_only_reveal_shows_what_is_masked_and_the_trail_says_who_and_why(hold: Holdfast, client: TestClient) -> None:
    (id,) = file(hold, request_data={"password": "hunter2"})
    assert "hunter2" not in client.get(f"letters/{id}").text
    assert client.post(f"letters/{id}/reveal", json={}).status_code == 422
    assert client.post(f"letters/{id}/reveal", json={"reason": "  "}).status_code == 422
    revealed = client.post(f"letters/{id}/reveal", json={"reason": "a customer asks"})
    assert revealed.json()["letter"]["request_data"] == {"password": "hunter2"}
    (noted,) = hold.audit.read("operator:local")
    assert (noted.payload["act"], noted.payload["reason"]) == ("letters.reveal", "a customer asks")
    assert (noted.payload["on_id"], noted.payload["right"]) == (id, "letters:reveal")


@pytest.mark.parametrize(
    ("act", "status", "how"),
    [("resolve", "resolved", "manual"), ("discard", "rejected", "rejected"), ("review", "reviewing", "")],
)
def test_an_operators_word_is_kept_with_the_letter(
    hold: Holdfast, client: TestClient, act: str, status: str, how: str
) -> None:
    (id,) = file(hold)
    answer = client.post(f"letters/{id}/{act}", json={"reason": "refunded by hand"})
    assert answer.status_code == 200, answer.text
    shown = answer.json()
    assert (shown["status"], shown["resolution_type"], shown["resolution_note"]) == (status, how, "refunded by hand")
    again = client.post(f"letters/{id}/{act}", json={"reason": "once more"})
    assert (again.status_code, again.json()["error"]) == (409, f"already_{status}")


def test_a_letter_that_was_put_aside_can_be_put_back(hold: Holdfast, client: TestClient) -> None:
    (id,) = file(hold)
    client.post(f"letters/{id}/discard", json={"reason": "a mistake"})
    assert client.post(f"letters/{id}/reopen", json={}).status_code == 422
    assert client.post(f"letters/{id}/reopen", json={"reason": "it was needed"}).json()["status"] == "pending"


def test_a_deleted_letter_is_gone_but_not_while_it_is_replayed(hold: Holdfast, client: TestClient) -> None:
    held, free = file(hold, 2)
    assert hold.letters.try_acquire_for_replay(held, 3) is not None
    refused = client.post(f"letters/{held}/delete", json={"reason": "tidy up"})
    assert (refused.status_code, refused.json()["error"]) == (409, "letter_in_flight")
    assert client.post(f"letters/{free}/delete", json={"reason": "tidy up"}).json() == {"changed": True}
    gone = client.get(f"letters/{free}")
    assert (gone.status_code, gone.json()["error"]) == (404, "letter_not_found")


@pytest.mark.parametrize("act", ["replay", "resolve", "discard", "review", "reopen", "reveal", "delete"])
@pytest.mark.parametrize("id", ["nothing", "%00", "%F0%9F%98%80", "..%2f.."])
def test_an_unknown_letter_is_not_found(client: TestClient, act: str, id: str) -> None:
    answer = client.post(f"letters/{id}/{act}", json={"reason": "why not"})
    assert answer.status_code == 404
    assert answer.headers["content-type"] == "application/problem+json"


@pytest.mark.parametrize("name", ["sqlite", "postgres"])
@pytest.mark.parametrize("filter", ["domain", "failure_type", "entity_type", "entity_id", "user_id"])
def test_hostile_filters_find_nothing_and_break_nothing(tmp_path: Path, name: str, filter: str) -> None:
    with kept(name, tmp_path) as hold, asking(hold) as client:
        file(hold)
        for text in HOSTILE:
            for path in ("letters", "letters/fingerprints"):
                answer = client.get(path, params={filter: text})
                assert (answer.status_code, answer.json()["items"]) == (200, []), (text, answer.text)


@pytest.mark.parametrize(
    "query",
    [
        {"status": "lost"}, {"limit": 0}, {"limit": 501}, {"after": "nonsense"}, {"after": "\0"}, {"after": "zz.1"},
        {"created_from": "yesterday"}, {"created_from": "2026-01-01T00:00:00"}, {"user_id": "9" * 5000},
        {"created_to": "0001-01-01T00:00:00+14:00"},
    ],
)  # fmt: skip
def test_what_cannot_be_meant_is_refused(client: TestClient, query: dict[str, str]) -> None:
    answer = client.get("letters", params=query)
    assert answer.status_code == 422, answer.text
    assert answer.json()["message"]


def test_errors_are_grouped_by_what_stays_the_same(hold: Holdfast, client: TestClient) -> None:
    for n in range(5):
        file(hold, error_message=f"TimeoutError: order o{n} took {n}.5s")
    file(hold, error_message="HTTP 503 from the bank")
    file(hold, error_message="HTTP 404 from the bank")
    found = client.get("letters/fingerprints").json()
    assert (found["looked_at"], found["is_all"]) == (7, True)
    first = found["items"][0]
    assert (first["message"], first["count"]) == ("TimeoutError: order <id> took <n>", 5)
    assert first["example"] == "TimeoutError: order o4 took 4.5s"
    assert len(first["sample"]) == 5
    assert first["oldest"] < first["newest"]
    assert Counter(one["count"] for one in found["items"]) == {5: 1, 1: 2}


def test_grouping_says_that_it_did_not_look_at_all(hold: Holdfast, client: TestClient) -> None:
    file(hold, 2005)
    found = client.get("letters/fingerprints").json()
    assert (found["looked_at"], found["is_all"], found["items"][0]["count"]) == (1000, False, 1000)


def test_domains_say_whether_their_letters_may_go(tmp_path: Path) -> None:
    with kept("sqlite", tmp_path) as hold, asking(hold) as client:
        hold.guard("payments", Retry(attempts=1), Breaker(), dead_letter=True).replayable(name="charge")(print)
        file(hold, 2)
        file(hold, 1, "stock")
        client.post("letters/domains/pause", json={"domain": "stock", "reason": "the stock is counted"})
        found = {one["domain"]: one for one in client.get("letters/domains").json()["items"]}
        payments, stock = found["payments"], found["stock"]
        assert (payments["pending"], payments["way"], payments["replayed_here"]) == (2, "clear", True)
        assert (stock["way"], stock["paused"], stock["paused_by"]) == ("barred", True, "local")
        assert stock["pause_reason"] == "the stock is counted"
        assert not stock["replayed_here"]
        hold.breakers.atomic_force_open("payments", "maintenance", "ops")
        hold.breakers.sharing.sync()
        (first,) = client.get("letters/domains", params={"limit": 1}).json()["items"]
        assert (first["domain"], first["way"]) == ("payments", "barred")
        assert client.post("letters/domains/resume", json={"domain": "stock"}).json() == {"changed": True}
        assert client.post("letters/domains/resume", json={"domain": "stock"}).json() == {"changed": False}


def test_domains_come_in_pages(hold: Holdfast, client: TestClient) -> None:
    for name in ("a", "b", "c"):
        file(hold, 1, name)
    first = client.get("letters/domains", params={"limit": 2}).json()
    rest = client.get("letters/domains", params={"limit": 2, "after": first["next"]}).json()
    assert [one["domain"] for one in first["items"] + rest["items"]] == ["a", "b", "c"]
    assert rest["next"] is None


def test_statistics_and_retention_come_from_the_store(tmp_path: Path) -> None:
    clock = ManualClock()
    with kept("sqlite", tmp_path, clock=clock) as hold, asking(hold) as client:
        ids = file(hold, 3)
        hold.letters.mark_as_resolved(ids[0], "manual")
        clock.advance(timedelta(days=31).total_seconds())
        figures = client.get("letters/statistics").json()
        assert (figures["total"], figures["pending_by_domain"]) == (3, {"payments": 2})
        kept_for = client.get("letters/retention").json()
        assert (kept_for["archive_after_days"], kept_for["resolved_older_than_30_days"]) == (30, 1)
        assert kept_for["active"] == 2


@pytest.mark.parametrize("name", ["sqlite", "postgres"])
def test_fifty_replays_of_one_letter_at_once_have_one_effect(tmp_path: Path, name: str) -> None:
    with kept(name, tmp_path) as hold, asking(hold) as client:
        charged = program(hold)
        (id,) = file(hold)
        ready, outcomes = threading.Barrier(50), []

        def ask() -> None:
            ready.wait()
            answer = client.post(f"letters/{id}/replay", json={"force": False})
            outcomes.append((answer.status_code, answer.json().get("outcome")))

        threads = [threading.Thread(target=ask) for _ in range(50)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(60)
        assert charged == ["o0"]
        assert {status for status, _ in outcomes} == {200}
        assert Counter(outcome for _, outcome in outcomes) == {"succeeded": 1, "skipped": 49}
        assert len(hold.letters.get_attempts(id)) == 1


def test_what_this_process_cannot_replay_is_handed_to_a_worker_that_can(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path / 'shop.db'}"
    with kept("sqlite", tmp_path, url) as server, asking(server, has_program=False) as client:
        id, other = file(server, 2)
        shown = client.get(f"letters/{id}").json()["replay"]
        assert (shown["possible"], shown["here"]) == (True, False)
        answer = client.post(f"letters/{id}/replay", json={"reason": "the bank is back"})
        assert answer.status_code == 202
        operation = answer.json()
        assert (operation["total"], operation["state"], operation["requested_by"]) == (1, "pending", "local")
        again = client.post(f"letters/{id}/replay", json={})
        assert (again.status_code, again.json()["id"]) == (202, operation["id"])

        with kept("sqlite", tmp_path, url) as shop:
            charged = program(shop)
            shop.letters.worker().run_once()
        assert charged == ["o0"]
        assert client.get(f"bulk/{operation['id']}").json()["state"] == "done"
        assert client.get(f"letters/{id}").json()["status"] == "resolved"
        assert client.get(f"letters/{other}").json()["status"] == "pending"
        refused = client.post(f"letters/{id}/replay", json={})
        assert (refused.status_code, refused.json()["error"]) == (409, "not_replayable")


@pytest.mark.parametrize("name", STORES)
def test_an_operation_on_one_letter_finds_that_one_on_every_store(tmp_path: Path, name: str) -> None:
    with kept(name, tmp_path) as hold, asking(hold) as client:
        ids = file(hold, 3)
        operation = client.post(f"letters/{ids[1]}/replay", json={}).json()
        charged = program(hold)
        hold.letters.worker().run_once()
        assert charged == ["o1"]
        assert client.get(f"bulk/{operation['id']}").json()["succeeded"] == 1


def test_a_letter_that_requires_review_is_handed_over_only_by_force(hold: Holdfast, client: TestClient) -> None:
    (id,) = file(hold)
    hold.letters.update_status(id, "requires_review")
    refused = client.post(f"letters/{id}/replay", json={})
    assert refused.status_code == 409
    assert "force" in refused.json()["message"]
    assert client.post(f"letters/{id}/replay", json={"force": True}).json()["action"] == "force_replay"


def test_bodies_with_fields_that_nobody_knows_are_refused(hold: Holdfast, client: TestClient) -> None:
    (id,) = file(hold)
    bodies: list[Any] = [{"force": "perhaps"}, {"forse": True}, [], 7, None, {"reason": "x" * 501}]
    for body in bodies:
        answer = client.post(f"letters/{id}/replay", content=json.dumps(body))
        assert answer.status_code == 422, body
    lone = client.post(f"letters/{id}/resolve", content=b'{"reason": "\\ud800"}')
    assert lone.status_code == 422
    assert hold.store.get(LETTER, (id,))[0] is not None
