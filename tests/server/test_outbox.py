"""The outbox by the API."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest
from starlette.testclient import TestClient

from holdfast.audit.searching import search
from holdfast.machine.outbox_entry import OutboxStatus
from holdfast.outbox import searching
from holdfast.testing.clock import ManualClock
from tests.server.calls import SECRET, Calls, calling
from tests.server.served import asking, kept
from tests.stores import SQL_STORES

HOSTILE = ("'; DROP TABLE holdfast_outbox; --", "<script>alert(1)</script>", "\u202eevil", "x" * 5000, "\0", "😀", "")
FILTERS = ("operation", "target", "subject_id", "key", "queue", "error")


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
def calls(tmp_path: Path, clock: ManualClock) -> Iterator[Calls]:
    with calling("sqlite", tmp_path, clock) as calls:
        yield calls


@pytest.fixture
def client(calls: Calls) -> Iterator[TestClient]:
    with asking(calls.hold) as client:
        yield client


def ids(answer: Any) -> list[str]:
    return [one["entry_id"] for one in answer.json()["items"]]


@pytest.mark.parametrize("name", SQL_STORES)
def test_pages_follow_each_other_newest_first_and_every_entry_is_on_one(tmp_path: Path, name: str) -> None:
    with calling(name, tmp_path) as calls, asking(calls.hold) as client:
        made = [str(calls.put()) for _ in range(7)]
        seen: list[str] = []
        after: str | None = None
        for _ in range(4):
            page = client.get("outbox", params={"limit": 2} | ({} if after is None else {"after": after}))
            seen += ids(page)
            after = page.json()["next"]
        assert after is None
        assert seen == made[::-1]


@pytest.mark.parametrize("name", SQL_STORES)
def test_entries_are_found_by_each_filter(tmp_path: Path, name: str) -> None:
    clock = ManualClock()
    with calling(name, tmp_path, clock) as calls, asking(calls.hold) as client:
        lost = str(calls.give_up(clock, subject_id="ann", key="k", queue="default"))
        calls.put("pay", queue="slow")
        wanted = {
            "status": "abandoned", "operation": "mail", "target": "-", "subject_id": "ann", "key": "k",
            "error": "ConnectionError",
        }  # fmt: skip
        assert ids(client.get("outbox", params=wanted)) == [lost]
        for field, value in wanted.items():
            assert lost in ids(client.get("outbox", params={field: value}))
            assert ids(client.get("outbox", params={**wanted, field: "pending" if field == "status" else "zz"})) == []
        assert len(ids(client.get("outbox", params={"queue": "slow"}))) == 1
        assert len(ids(client.get("outbox", params={"status": "pending"}))) == 1


def test_a_rare_thing_is_searched_for_in_parts_and_found(
    calls: Calls, client: TestClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(searching, "search", partial(search, window=3))
    rare = str(calls.put("pay"))
    for _ in range(7):
        calls.put()
    after, pages = None, []
    while True:
        page = client.get("outbox", params={"operation": "pay"} | ({} if after is None else {"after": after}))
        pages.append(ids(page))
        after = page.json()["next"]
        if after is None:
            break
    assert pages == [[], [], [rare]]


def test_payloads_results_and_headers_are_masked_until_somebody_reveals_them(calls: Calls, client: TestClient) -> None:
    id = calls.put("mail", headers={"authorization": SECRET, "traceparent": "00-1"})
    calls.run()
    shown = client.get(f"outbox/{id}")
    assert shown.json()["payload"]["order"] == 7
    assert SECRET not in shown.text
    assert SECRET not in client.get("outbox").text
    assert client.post(f"outbox/{id}/reveal", json={"reason": " "}).status_code == 422
    seen = client.post(f"outbox/{id}/reveal", json={"reason": "the customer asks"}).json()["entry"]
    assert (seen["payload"]["password"], seen["result"]["token"]) == (SECRET, SECRET)
    assert "claim_token" not in seen
    (event,) = client.get("audit", params={"type": "operator_acted"}).json()["items"]
    assert event["says"] == f"local asked to reveal outbox entry {id}: the customer asks"


def test_of_an_unknown_operation_only_the_names_are_shown(calls: Calls, client: TestClient, tmp_path: Path) -> None:
    id = calls.put("mail")
    with kept("sqlite", tmp_path, url=calls.hold.store.url) as other, asking(other, has_program=False) as stranger:
        shown = stranger.get(f"outbox/{id}").json()
        assert shown["known"] is False
        assert {*shown["payload"]} == {"order", "to", "password"}
        assert 7 not in shown["payload"].values()
        refused = stranger.post(f"outbox/{id}/cancel", json={"reason": "no more mail"})
        assert refused.status_code == 409
        assert "holdfast serve --app" in refused.json()["message"]


@pytest.mark.parametrize("name", SQL_STORES)
def test_an_abandoned_entry_is_requeued_once_and_called(tmp_path: Path, name: str) -> None:
    clock = ManualClock()
    with calling(name, tmp_path, clock) as calls, asking(calls.hold) as client:
        id = calls.give_up(clock)
        shown = client.get(f"outbox/{id}").json()
        assert [one["outcome"] for one in shown["history"]] == ["failed", "abandoned"]
        assert {one["act"]: one["possible"] for one in shown["moves"]} == {
            "requeue": True, "cancel": False, "verify": False,
        }  # fmt: skip
        assert any(one["event_type"] == "operation_failed" for one in shown["events"])
        back = client.post(f"outbox/{id}/requeue", json={"reason": "the relay is up"})
        assert (back.status_code, back.json()["status"], back.json()["attempts"]) == (200, "pending", 0)
        again = client.post(f"outbox/{id}/requeue", json={})
        assert (again.status_code, again.json()["error"]) == (409, "cannot_requeue")
        calls.run(clock, rounds=1)
        assert client.get(f"outbox/{id}").json()["status"] == "succeeded"


def test_an_entry_that_lost_what_it_needs_is_not_requeued(calls: Calls, client: TestClient, clock: ManualClock) -> None:
    id = calls.give_up(clock, "pay")
    answer = client.post(f"outbox/{id}/requeue", json={})
    assert (answer.status_code, answer.json()["error"]) == (409, "cannot_requeue")
    assert "scrubbed" in answer.json()["message"]


def test_a_waiting_entry_is_cancelled_and_says_why_in_the_trail(calls: Calls, client: TestClient) -> None:
    id = calls.put()
    assert client.post(f"outbox/{id}/cancel", json={}).status_code == 422
    gone = client.post(f"outbox/{id}/cancel", json={"reason": "sent by hand"}).json()
    assert (gone["status"], gone["last_error"]) == ("abandoned", "Cancelled")
    assert client.post(f"outbox/{id}/cancel", json={"reason": "again"}).status_code == 409
    said = {one["says"] for one in client.get("audit", params={"subject": "operator:local"}).json()["items"]}
    assert f"local asked to cancel outbox entry {id}: sent by hand" in said
    assert f"local could not cancel outbox entry {id} (ProblemError)" in said


def test_a_denied_success_is_asked_about_again(calls: Calls, client: TestClient) -> None:
    id = calls.put()
    calls.run()
    assert client.post(f"outbox/{id}/verify", json={}).status_code == 409
    table = calls.hold.tables.outbox
    with calls.hold.sessions.begin() as session:
        session.execute(table.update().values(verification="failed"))
    assert client.get("outbox", params={"verification": "failed"}).json()["items"][0]["entry_id"] == str(id)
    asked = client.post(f"outbox/{id}/verify", json={}).json()
    assert asked["verification"] == "pending"
    assert client.post(f"outbox/{id}/verify", json={}).json()["message"] == "it is asked about already"


def test_many_are_requeued_only_if_their_number_was_confirmed(
    calls: Calls, client: TestClient, clock: ManualClock
) -> None:
    lost = {str(calls.give_up(clock, subject_id=f"s{n}")) for n in range(3)}
    scrubbed = str(calls.give_up(clock, "pay"))
    other = str(calls.give_up(clock, queue="default", key="other"))
    preview = client.get("outbox/requeue/preview", params={"operation": "mail"}).json()
    assert preview == {"matched": 4, "calls": [{"operation": "mail", "target": "-", "entries": 4, "known": True}]}
    wrong = client.post("outbox/requeue", json={"operation": "mail", "expected": 3, "reason": "relay is up"})
    assert (wrong.status_code, wrong.json()["details"]["matched"]) == (409, 4)
    assert len(ids(client.get("outbox", params={"status": "abandoned"}))) == 5
    done = client.post("outbox/requeue", json={"expected": 5, "reason": "relay is up"}).json()
    assert (done["requeued"], done["next"]) == (4, None)
    assert [one["entry_id"] for one in done["refused"]] == [scrubbed]
    assert {*ids(client.get("outbox", params={"status": "pending"}))} == lost | {other}


def test_many_of_an_unknown_operation_are_left_alone(
    calls: Calls, tmp_path: Path, client: TestClient, clock: ManualClock
) -> None:
    calls.give_up(clock)
    with kept("sqlite", tmp_path, url=calls.hold.store.url) as other, asking(other, has_program=False) as stranger:
        preview = stranger.get("outbox/requeue/preview").json()
        assert [one["known"] for one in preview["calls"]] == [False]
        answer = stranger.post("outbox/requeue", json={"expected": 1, "reason": "try"})
        assert (answer.status_code, answer.json()["error"]) == (409, "unknown_operation")


@pytest.mark.parametrize("name", SQL_STORES)
def test_a_queue_is_paused_and_resumed_and_its_lag_is_seen(tmp_path: Path, name: str) -> None:
    clock = ManualClock()
    with calling(name, tmp_path, clock) as calls, asking(calls.hold) as client:
        calls.put(queue="slow/er")
        clock.advance(30)
        assert client.post("outbox/queues/pause", json={"queue": "slow/er", "reason": "storm"}).json()["changed"]
        assert not client.post("outbox/queues/pause", json={"queue": "slow/er", "reason": "x"}).json()["changed"]
        facets = client.get("outbox/facets").json()
        slow = next(one for one in facets["queues"] if one["queue"] == "slow/er")
        assert (slow["waiting"], slow["paused"], slow["paused_by"], slow["paused_reason"]) == (
            1,
            True,
            "local",
            "storm",
        )
        assert slow["lag_s"] == pytest.approx(30, abs=0.01)
        assert client.post("outbox/queues/resume", json={"queue": "slow/er"}).json() == {"changed": True}
        assert client.post("outbox/queues/resume", json={"queue": "slow/er"}).json() == {"changed": False}


@pytest.mark.parametrize("name", SQL_STORES)
def test_facets_count_each_status_and_name_what_entries_are_about(tmp_path: Path, name: str) -> None:
    clock = ManualClock()
    with calling(name, tmp_path, clock) as calls, asking(calls.hold) as client:
        calls.put("ship", target="dock")
        calls.run(clock, rounds=1)
        calls.give_up(clock)
        calls.put()
        facets = client.get("outbox/facets").json()
        assert facets["by_status"] == {
            **dict.fromkeys(map(str, OutboxStatus), 0),
            "succeeded": 1,
            "abandoned": 1,
            "pending": 1,
        }
        assert facets["at_least"] == []
        assert {"mail", "ship"} <= {*facets["operations"]}
        assert {"-", "dock"} <= {*facets["targets"]}
        assert facets["errors"] == ["ConnectionError"]


def test_counting_ends_somewhere_and_says_so(calls: Calls, client: TestClient, monkeypatch: pytest.MonkeyPatch) -> None:
    for _ in range(4):
        calls.put()
    calls.run()
    monkeypatch.setattr(searching, "COUNTED", 3)
    facets = client.get("outbox/facets").json()
    assert (facets["by_status"]["succeeded"], facets["at_least"]) == (3, ["succeeded"])
    for _ in range(4):
        calls.put()
    facets = client.get("outbox/facets").json()
    assert (facets["by_status"]["pending"], facets["by_status"]["succeeded"]) == (3, 0)
    assert {"pending", "succeeded"} <= {*facets["at_least"]}


def test_what_is_not_there_is_404_and_what_cannot_be_meant_422(client: TestClient) -> None:
    assert client.get(f"outbox/{uuid4()}").json()["error"] == "entry_not_found"
    assert client.get("outbox/seven").status_code == 422
    assert client.get("outbox", params={"status": "lost"}).status_code == 422
    assert client.get("outbox", params={"after": "x"}).status_code == 422
    for act in ("requeue", "cancel", "verify", "reveal"):
        assert client.post(f"outbox/{uuid4()}/{act}", json={"reason": "x"}).status_code == 404
    for queue in ('"\\ud800"', '"\\u0000"', '""', "7", "null"):
        body = f'{{"queue": {queue}, "reason": "x"}}'
        answer = client.post("outbox/queues/pause", content=body, headers={"content-type": "application/json"})
        assert answer.status_code == 422


@pytest.mark.parametrize("name", SQL_STORES)
def test_hostile_filters_are_answered_and_never_an_error_of_the_server(tmp_path: Path, name: str) -> None:
    with calling(name, tmp_path) as calls, asking(calls.hold) as client:
        for text in HOSTILE:
            for field in FILTERS:
                assert client.get("outbox", params={field: text}).status_code in (200, 422)
                assert client.get("outbox/requeue/preview", params={field: text}).status_code in (200, 422)


@pytest.mark.parametrize("name", ["memory", "redis"])
def test_a_store_without_outbox_says_what_to_use(tmp_path: Path, name: str) -> None:
    with kept(name, tmp_path) as hold, asking(hold) as client:
        for path in ("outbox", "outbox/facets", "sagas", "sagas/facets", "audit", "audit/status", "audit/streams"):
            answer = client.get(path)
            assert (answer.status_code, answer.json()["error"]) == (409, "not_configured")
            assert "SQL database" in answer.json()["message"]
