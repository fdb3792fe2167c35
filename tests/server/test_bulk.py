"""Bulk operations by the API."""

from __future__ import annotations

import subprocess
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from starlette.testclient import TestClient

from holdfast import Holdfast
from tests.server.served import asking, file, kept, program
from tests.stores import STORES

ROOT = Path(__file__).parents[2]
LETTERS = 2000


def previewed(client: TestClient, action: str = "replay", **filter: Any) -> dict[str, Any]:
    answer = client.post("bulk/preview", json={"action": action, "filter": filter})
    assert answer.status_code == 200, answer.text
    found: dict[str, Any] = answer.json()
    return found


def started(client: TestClient, preview: dict[str, Any], reason: str = "the bank is back") -> dict[str, Any]:
    body = {"action": preview["action"], "filter": preview["filter"], "confirm_count": preview["total"]}
    answer = client.post("bulk", json={**body, "reason": reason})
    assert answer.status_code == 202, answer.text
    begun: dict[str, Any] = answer.json()
    return begun


@pytest.mark.parametrize("name", STORES)
def test_what_fails_after_the_preview_is_no_part_of_the_operation(tmp_path: Path, name: str) -> None:
    with kept(name, tmp_path) as hold, asking(hold) as client:
        charged = program(hold)
        file(hold, 4)
        file(hold, 2, "stock")
        preview = previewed(client, domain="payments")
        assert (preview["total"], preview["by_domain"], preview["by_status"]) == (4, {"payments": 4}, {"pending": 4})
        assert [one["domain"] for one in preview["sample"]] == ["payments"] * 4
        assert preview["filter"] == {"domain": "payments", "created_to": preview["snapshot"]}
        (later,) = file(hold, entity_id="later")
        begun = started(client, preview)
        assert (begun["state"], begun["total"], begun["reason"]) == ("pending", 4, "the bank is back")
        hold.letters.worker().run_once()
        done = client.get(f"bulk/{begun['id']}").json()
        assert (done["state"], done["done"], done["succeeded"]) == ("done", 4, 4)
        assert done["rate_per_s"] > 0
        assert done["eta_s"] is None
        assert sorted(charged) == ["o0", "o1", "o2", "o3"]
        assert client.get(f"letters/{later}").json()["status"] == "pending"


def test_a_count_that_has_changed_starts_nothing_and_says_the_new_one(hold: Holdfast, client: TestClient) -> None:
    ids = file(hold, 3)
    preview = previewed(client, domain="payments")
    hold.letters.mark_as_resolved(ids[0], "manual")
    body = {"action": "replay", "filter": preview["filter"], "confirm_count": 3, "reason": "all of them"}
    answer = client.post("bulk", json=body)
    assert (answer.status_code, answer.json()["error"]) == (409, "count_changed")
    assert answer.json()["details"] == {"total": 2, "confirmed": 3}
    assert client.get("bulk").json()["items"] == []


@pytest.mark.parametrize(("action", "status"), [("resolve", "resolved"), ("discard", "rejected")])
def test_what_needs_no_program_is_done_by_the_server_itself(tmp_path: Path, action: str, status: str) -> None:
    with kept("sqlite", tmp_path) as hold, asking(hold, has_program=False) as client:
        ids = file(hold, 3)
        done = started(client, previewed(client, action, domain="payments"), "refunded by hand")
        assert (done["state"], done["succeeded"]) == ("done", 3)
        letter = client.get(f"letters/{ids[0]}").json()
        assert (letter["status"], letter["resolution_note"], letter["resolved_by_id"]) == (
            status,
            "refunded by hand",
            "local",
        )


def test_an_operation_that_was_aborted_stays_so(hold: Holdfast, client: TestClient) -> None:
    file(hold, 2)
    begun = started(client, previewed(client))
    assert client.post(f"bulk/{begun['id']}/abort", json={}).status_code == 422
    aborted = client.post(f"bulk/{begun['id']}/abort", json={"reason": "a wrong filter"}).json()
    assert (aborted["state"], aborted["note"]) == ("aborted", "aborted by local")
    again = client.post(f"bulk/{begun['id']}/abort", json={"reason": "really"})
    assert (again.status_code, again.json()["error"]) == (409, "operation_over")


@pytest.mark.parametrize("name", STORES)
def test_operations_come_in_pages_and_by_state(tmp_path: Path, name: str) -> None:
    with kept(name, tmp_path) as hold, asking(hold) as client:
        file(hold, 1)
        ids = [started(client, previewed(client))["id"] for _ in range(3)]
        client.post(f"bulk/{ids[0]}/abort", json={"reason": "a wrong filter"})
        first = client.get("bulk", params={"limit": 2}).json()
        rest = client.get("bulk", params={"limit": 2, "after": first["next"]}).json()
        assert [one["id"] for one in first["items"] + rest["items"]] == ids[::-1]
        assert [one["id"] for one in client.get("bulk", params={"state": "aborted"}).json()["items"]] == ids[:1]


@pytest.mark.parametrize("path", ["bulk/nothing", "bulk/%00", "bulk/%F0%9F%98%80"])
def test_an_unknown_operation_is_not_found(client: TestClient, path: str) -> None:
    assert client.get(path).status_code == 404
    assert client.post(f"{path}/abort", json={"reason": "why not"}).status_code == 404


@pytest.mark.parametrize(
    "body",
    [
        {}, [], {"action": "destroy"}, {"action": "replay", "filter": {"colour": "red"}},
        {"action": "replay", "filter": {"status": "lost"}}, {"action": "replay", "filter": {"user_id": True}},
        {"action": "replay", "filter": {"created_to": "2026-01-01T00:00:00"}},
        {"action": "replay", "filter": {"created_from": "0001-01-01T00:00:00+14:00"}},
        {"action": "replay", "filter": {"domain": "x" * 1001}},
    ],
)  # fmt: skip
def test_what_cannot_be_meant_is_refused(client: TestClient, body: Any) -> None:
    for path in ("bulk/preview", "bulk"):
        more = {"reason": "why not", "confirm_count": 0} if path == "bulk" and isinstance(body, dict) else {}
        answer = client.post(path, json={**body, **more} if isinstance(body, dict) else body)
        assert answer.status_code == 422, answer.text


@pytest.mark.parametrize("name", ["sqlite", "postgres"])
def test_hostile_filters_match_nothing_and_break_nothing(tmp_path: Path, name: str) -> None:
    with kept(name, tmp_path) as hold, asking(hold) as client:
        file(hold)
        for text in ("'; DROP TABLE letter; --", "\0", "\u202e", "😀", "", "%"):
            for field in ("id", "domain", "failure_type", "entity_type", "entity_id", "user_id"):
                assert previewed(client, **{field: text})["total"] == 0
        assert previewed(client, user_id=10**30)["total"] == 0
        assert previewed(client, created_from="9999-12-31T23:59:59Z")["total"] == 0
        assert previewed(client)["total"] == 1


def test_a_preview_leaves_nothing_in_the_trail(hold: Holdfast, client: TestClient) -> None:
    file(hold)
    preview = previewed(client)
    assert hold.audit.read("operator:local") == ()
    started(client, preview)
    (noted,) = hold.audit.read("operator:local")
    assert (noted.payload["act"], noted.payload["reason"]) == ("bulk.start", "the bank is back")


def test_an_operation_whose_worker_was_killed_is_finished_by_another(tmp_path: Path) -> None:
    url, effects = f"sqlite:///{tmp_path / 'shop.db'}", tmp_path / "effects"
    with kept("sqlite", tmp_path, url) as hold, asking(hold, has_program=False) as client:
        file(hold, LETTERS)
        begun = started(client, previewed(client, domain="payments"))
        assert begun["total"] == LETTERS
        command = [sys.executable, "-m", "tests.server.bulk_worker", url, str(effects)]
        with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True) as worker:
            assert worker.stdout is not None
            for _ in range(LETTERS // 3):
                assert worker.stdout.readline()
            worker.kill()
        midway = client.get(f"bulk/{begun['id']}").json()
        assert midway["state"] == "running"
        assert 0 < midway["done"] < LETTERS
        assert subprocess.run(command, cwd=ROOT, stdout=subprocess.DEVNULL, timeout=120).returncode == 0
        done = client.get(f"bulk/{begun['id']}").json()
        assert (done["state"], done["failed"]) == ("done", 0)
        counts = client.get("letters/facets").json()["by_status"]
        # What the killed worker had in its hands is perhaps taken again once its lease has run out, and left pending.
        assert counts["resolved"] >= LETTERS - 50
        assert sum(counts.values()) == LETTERS
        made = Counter(effects.read_text().split())
        assert sum(made.values()) - len(made) <= 50  # only those were done twice
        assert len(made) == LETTERS
