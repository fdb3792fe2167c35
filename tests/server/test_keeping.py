"""What is done with can be archived, purged and pruned by the API: what was agreed to, and no more."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from starlette.testclient import TestClient

from holdfast import Holdfast
from holdfast.audit.event import AuditEventType
from holdfast.server.routes import agreeing, letter_keeping
from tests.outbox.entries import enqueue, make_entry
from tests.server.orders import ORDER, Shop
from tests.server.served import file

OPERATOR_ACTED = AuditEventType.OPERATOR_ACTED
WHY: dict[str, Any] = {"reason": "the quarter is over"}


@pytest.fixture(autouse=True)
def two_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(agreeing, "AT_ONCE", 2)
    monkeypatch.setattr(letter_keeping, "AT_ONCE", 2)


def archived(hold: Holdfast, number: int) -> list[str]:
    ids = file(hold, number)
    for id in ids:
        hold.letters.update_status(id, "archived")
    return ids


def acted(hold: Holdfast, act: str) -> list[dict[str, Any]]:
    """What the trail says of an act that somebody asked for."""
    asked = [dict(one.event.payload) for one in hold.audit.page(limit=100) if one.event.event_type == OPERATOR_ACTED]
    return [one for one in asked if one["act"] == act]


def test_resolved_letters_are_archived_some_at_a_time(hold: Holdfast, client: TestClient) -> None:
    for id in file(hold, 3):
        hold.letters.mark_as_resolved(id, "manual")
    assert client.post("letters/archive", json={}).json() == {"archived": 0, "more": False}
    assert client.get("letters/archive/preview").json() == {"matched": 0}
    assert client.get("letters/archive/preview", params={"older_than_days": 0}).json() == {"matched": 3}
    body = {"older_than_days": 0, **WHY}
    assert client.post("letters/archive", json=body).json() == {"archived": 2, "more": True}
    assert client.post("letters/archive", json=body).json() == {"archived": 1, "more": False}
    assert hold.letters.count(status="archived") == 3
    assert {one["reason"] for one in acted(hold, "letters.archive")} == {"", "the quarter is over"}


def test_archived_letters_are_purged_as_many_as_were_counted(hold: Holdfast, client: TestClient) -> None:
    archived(hold, 5)
    (waiting,) = file(hold)
    assert client.get("letters/purge/preview", params={"older_than_days": 0}).json() == {"matched": 5}
    assert client.get("letters/purge/preview", params={"older_than_days": 1}).json() == {"matched": 0}
    body = {"older_than_days": 0, "expected": 5, **WHY}
    assert client.post("letters/purge", json=body).json() == {"deleted": 2, "left": 3}
    archived(hold, 3)  # nobody has agreed to those
    assert client.post("letters/purge", json=body | {"expected": 3, "goes_on": True}).json()["left"] == 1
    last = client.post("letters/purge", json=body | {"expected": 1, "goes_on": True})
    assert last.json() == {"deleted": 1, "left": 0}
    assert hold.letters.count(status="archived") == 3
    assert hold.letters.get_by_id(waiting) is not None


def test_nothing_is_purged_where_the_number_is_another_by_now(hold: Holdfast, client: TestClient) -> None:
    archived(hold, 3)
    refused = client.post("letters/purge", json={"older_than_days": 0, "expected": 2, **WHY})
    told = refused.json()
    assert (refused.status_code, told["error"], told["details"]) == (409, "count_changed", {"matched": 3})
    assert hold.letters.count() == 3
    assert [one["on_expected"] for one in acted(hold, "letters.purge")] == ["2"]


def test_letters_are_purged_by_their_ids_together_or_not_at_all(hold: Holdfast, client: TestClient) -> None:
    ids, (waiting,) = archived(hold, 2), file(hold)
    mixed = client.post("letters/purge", json={"ids": [*ids, waiting], "expected": 3, **WHY})
    assert (mixed.status_code, hold.letters.count()) == (422, 3)
    assert f"letter {waiting} is pending" in mixed.json()["message"]
    assert client.post("letters/purge", json={"ids": ids, "expected": 1, **WHY}).json()["error"] == "count_changed"
    done = client.post("letters/purge", json={"ids": [*ids, "nobody"], "expected": 2, **WHY})
    assert (done.json(), hold.letters.count()) == ({"deleted": 2, "left": 0}, 1)
    assert all(ids[0] in one["on_ids"] for one in acted(hold, "letters.purge"))


@pytest.mark.parametrize(
    "body",
    [
        {"expected": 0}, {"ids": ["a"], "older_than_days": 0, "expected": 0}, {"older_than_days": -1, "expected": 0},
        {"older_than_days": 10**9, "expected": 0}, {"older_than_days": 0}, {"older_than_days": 0, "expected": -1},
    ],
    ids=str,
)  # fmt: skip
def test_a_purge_says_what_and_how_many(client: TestClient, body: dict[str, Any]) -> None:
    assert client.post("letters/purge", json={**body, **WHY}).status_code == 422


@pytest.mark.parametrize("path", ["letters/purge", "outbox/prune", "workflows/prune"])
def test_whoever_deletes_for_good_says_why(client: TestClient, path: str) -> None:
    what = {"before": "2026-01-01T00:00:00Z"} if path == "workflows/prune" else {"older_than_days": 0}
    asked = client.post(path, json={**what, "expected": 0})
    assert asked.status_code == 422
    assert "reason" in asked.text


def test_entries_that_succeeded_are_counted_and_pruned(hold: Holdfast, client: TestClient) -> None:
    now = datetime.now(UTC)
    for at in range(3):
        done = {"status": "succeeded", "last_attempt_at": now - timedelta(days=at)}
        enqueue(hold.outbox, make_entry(f"s{at}", at=now - timedelta(days=at), **done))
    enqueue(hold.outbox, make_entry("w", at=now))
    counted = client.get("outbox/counts").json()
    (queue,) = counted["queues"]
    assert (counted["by_status"]["succeeded"], counted["by_status"]["pending"]) == (3, 1)
    assert queue["by_status"] == counted["by_status"]
    assert queue["oldest_due"] is not None
    assert client.get("outbox/prune/preview", params={"older_than_days": 1}).json() == {"matched": 2}
    wrong = client.post("outbox/prune", json={"older_than_days": 1, "expected": 3, **WHY})
    assert wrong.json()["error"] == "count_changed"
    done = client.post("outbox/prune", json={"older_than_days": 1, "expected": 2, **WHY})
    assert done.json() == {"deleted": 2, "left": 0}
    assert client.get("outbox/counts").json()["by_status"]["succeeded"] == 1
    assert [one["on_older_than_days"] for one in acted(hold, "outbox.prune")] == ["1", "1"]


def test_workflows_that_ended_are_counted_and_pruned(hold: Holdfast, client: TestClient) -> None:
    Shop(hold)
    ids = [hold.workflows.start("fulfil", **ORDER).id for _ in range(4)]
    for id in ids[:3]:
        hold.workflows.cancel(id)
    later = "2999-01-01T00:00:00Z"
    assert client.get("workflows/prune/preview", params={"before": "2000-01-01T00:00:00Z"}).json()["matched"] == 0
    assert client.get("workflows/prune/preview", params={"before": later}).json() == {"matched": 3, "kept": {}}
    body = {"before": later, "expected": 3, **WHY}
    assert client.post("workflows/prune", json=body | {"expected": 4}).json()["error"] == "count_changed"
    assert client.post("workflows/prune", json=body).json() == {"deleted": 2, "left": 1}
    assert client.post("workflows/prune", json=body | {"expected": 1, "goes_on": True}).json()["left"] == 0
    assert [one["id"] for one in client.get("workflows").json()["items"]] == ids[3:]
    naive = client.post("workflows/prune", json=body | {"before": "2999-01-01T00:00:00"})
    assert (naive.status_code, naive.json()["error"]) == (422, "time_without_offset")
