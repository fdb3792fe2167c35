"""Sagas by the API."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from uuid import UUID, uuid4

import pytest
from starlette.testclient import TestClient

from holdfast.machine.saga import SagaState
from holdfast.outbox.sagas import sagas as sagas_module
from holdfast.testing.clock import ManualClock
from tests.server.calls import SECRET, Calls, calling
from tests.server.served import asking, kept
from tests.stores import SQL_STORES


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


def stuck(calls: Calls, clock: ManualClock) -> UUID:
    """A saga that is past its pivot, and cannot ship."""
    calls.down.add("ship")
    id = calls.start()
    calls.run(clock, rounds=6)
    return id


@pytest.mark.parametrize("name", SQL_STORES)
def test_pages_of_all_states_follow_each_other_newest_first(tmp_path: Path, name: str) -> None:
    clock = ManualClock()
    with calling(name, tmp_path, clock) as calls, asking(calls.hold) as client:
        made = []
        for n in range(7):
            clock.advance(1)
            made.append(str(calls.start(f"o-{n}")))
            if n % 2:
                calls.run(clock, rounds=4)
        seen: list[str] = []
        after: str | None = None
        for _ in range(4):
            page = client.get("sagas", params={"limit": 2} | ({} if after is None else {"after": after})).json()
            seen += [one["saga_id"] for one in page["items"]]
            after = page["next"]
        assert after is None
        assert seen == made[::-1]


@pytest.mark.parametrize("name", SQL_STORES)
def test_sagas_are_found_by_state_definition_and_subject(tmp_path: Path, name: str) -> None:
    clock = ManualClock()
    with calling(name, tmp_path, clock) as calls, asking(calls.hold) as client:
        done = str(calls.start("o-1"))
        calls.run(clock, rounds=4)
        running = str(calls.start("o-2"))
        for query, found in (
            ({"state": "completed"}, [done]), ({"state": "running", "definition": "order"}, [running]),
            ({"subject_id": "o-1"}, [done]), ({"definition": "zz"}, []), ({"state": "stuck"}, []),
        ):  # fmt: skip
            page = client.get("sagas", params=query).json()
            assert ([one["saga_id"] for one in page["items"]], page["next"]) == (found, None)
        facets = client.get("sagas/facets").json()
        assert (facets["by_state"]["completed"], facets["by_state"]["running"]) == (1, 1)
        assert (facets["definitions"], facets["at_least"]) == (["order"], [])


def test_a_definition_that_is_rare_is_searched_for_in_parts(
    calls: Calls, client: TestClient, clock: ManualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sagas_module, "WINDOW", 2 * len(SagaState))
    for n in range(5):
        clock.advance(1)
        calls.start(f"o-{n}")
    after, pages = None, 0
    while True:
        query = {"definition": "rare"} | ({} if after is None else {"after": after})
        page = client.get("sagas", params=query).json()
        assert page["items"] == []
        after, pages = page["next"], pages + 1
        if after is None:
            break
    assert pages > 2


def test_a_subject_is_found_at_once_however_old_its_saga_is(
    calls: Calls, client: TestClient, clock: ManualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sagas_module, "WINDOW", len(SagaState))
    rare = str(calls.start("rare"))
    for n in range(5):
        clock.advance(1)
        calls.start(f"o-{n}")
    page = client.get("sagas", params={"subject_id": "rare", "state": "running"}).json()
    assert ([one["saga_id"] for one in page["items"]], page["next"]) == ([rare], None)
    assert client.get("sagas", params={"subject_id": "rare", "state": "stuck"}).json()["items"] == []


def test_a_saga_is_shown_with_its_plan_and_calls_and_masked_until_revealed(
    calls: Calls, client: TestClient, clock: ManualClock
) -> None:
    id = calls.start()
    calls.run(clock, rounds=1)
    answer = client.get(f"sagas/{id}")
    shown = answer.json()
    assert [(one["name"], one["state"], one["pivot"]) for one in shown["steps"]] == [
        ("reserve", "done", False), ("charge", "started", True), ("ship", "waiting", False),
    ]  # fmt: skip
    assert shown["steps"][2]["after"] == ["charge"]
    assert [one["step"] for one in shown["entries"]] == ["reserve", "charge"]
    assert SECRET not in answer.text
    seen = client.post(f"sagas/{id}/reveal", json={"reason": "a complaint"}).json()["saga"]
    assert (seen["data"]["password"], seen["steps"][0]["result"]["token"]) == (SECRET, SECRET)


def test_a_running_saga_is_undone_and_one_that_has_ended_is_not(
    calls: Calls, client: TestClient, clock: ManualClock
) -> None:
    id = calls.start()
    calls.run(clock, rounds=1)
    assert client.post(f"sagas/{id}/cancel", json={}).status_code == 422
    undone = client.post(f"sagas/{id}/cancel", json={"reason": "the customer has cancelled"})
    assert (undone.status_code, undone.json()["state"]) == (200, "compensating")
    calls.run(clock, rounds=3)
    shown = client.get(f"sagas/{id}").json()
    assert (shown["state"], shown["steps"][0]["state"]) == ("compensated", "compensated")
    assert [one["direction"] for one in shown["entries"]].count("backward") == 1
    again = client.post(f"sagas/{id}/cancel", json={"reason": "again"})
    assert (again.status_code, again.json()["error"]) == (409, "cannot_cancel")


@pytest.mark.parametrize("name", SQL_STORES)
def test_a_stuck_saga_is_resumed(tmp_path: Path, name: str) -> None:
    clock = ManualClock()
    with calling(name, tmp_path, clock) as calls, asking(calls.hold) as client:
        id = stuck(calls, clock)
        shown = client.get(f"sagas/{id}").json()
        assert (shown["state"], [one["name"] for one in shown["steps"] if one["resolvable"]]) == ("stuck", ["ship"])
        assert {one["act"]: one["possible"] for one in shown["moves"]} == {"cancel": False, "resume": True}
        calls.down.clear()
        assert client.post(f"sagas/{id}/resume", json={"reason": "the dock is open"}).json()["state"] == "running"
        assert client.post(f"sagas/{id}/resume", json={}).status_code == 409
        calls.run(clock, rounds=2)
        assert client.get(f"sagas/{id}").json()["state"] == "completed"


def test_a_step_is_resolved_by_hand_with_a_reason(calls: Calls, client: TestClient, clock: ManualClock) -> None:
    id = stuck(calls, clock)
    assert client.post(f"sagas/{id}/resolve", json={"step": "ship"}).status_code == 422
    body = {"step": "ship", "reason": "shipped by courier"}
    assert client.post(f"sagas/{id}/resolve", json={**body, "step": "dance"}).json()["error"] == "step_not_found"
    assert client.post(f"sagas/{id}/resolve", json={**body, "step": "reserve"}).status_code == 409
    assert client.post(f"sagas/{id}/resolve", json=body).json()["state"] == "completed"
    (said,) = [
        one["says"]
        for one in client.get("audit", params={"type": "operator_acted"}).json()["items"]
        if "courier" in one["says"] and one["payload"]["act"] == "sagas.resolve"
    ][:1]
    assert said == f"local asked to resolve saga {id} step ship: shipped by courier"


def test_without_the_program_sagas_are_seen_and_left_alone(
    calls: Calls, client: TestClient, clock: ManualClock, tmp_path: Path
) -> None:
    id = calls.start()
    with kept("sqlite", tmp_path, url=calls.hold.store.url) as other, asking(other, has_program=False) as stranger:
        shown = stranger.get(f"sagas/{id}").json()
        assert (shown["known"], shown["steps"][0]["after"]) == (False, None)
        assert not any(one["possible"] for one in shown["moves"])
        for act, body in (("cancel", {}), ("resume", {}), ("resolve", {"step": "ship"})):
            answer = stranger.post(f"sagas/{id}/{act}", json={"reason": "x", **body})
            assert (answer.status_code, answer.json()["error"]) == (409, "unknown_definition")
            assert "holdfast serve --app" in answer.json()["message"]


def test_what_is_not_there_is_404_and_what_cannot_be_meant_422(client: TestClient) -> None:
    assert client.get(f"sagas/{uuid4()}").json()["error"] == "saga_not_found"
    assert client.get("sagas/seven").status_code == 422
    for query in ({"state": "lost"}, {"after": "x"}, {"after": f"2026-01-01T00:00:00,{uuid4()}"}, {"subject_id": "\0"}):
        assert client.get("sagas", params=query).status_code == 422
    edge = f"0001-01-01T00:00:00+23:59,{uuid4()}"
    assert client.get("sagas", params={"after": edge}).status_code == 422
    for act in ("cancel", "resume", "reveal"):
        assert client.post(f"sagas/{uuid4()}/{act}", json={"reason": "x"}).status_code == 404


def test_counting_ends_somewhere_and_says_so(
    calls: Calls, client: TestClient, clock: ManualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sagas_module, "COUNTED", 2)
    monkeypatch.setattr("holdfast.server.routes.sagas.COUNTED", 2)
    for _ in range(3):
        calls.start()
        clock.advance(timedelta(seconds=1).total_seconds())
    facets = client.get("sagas/facets").json()
    assert (facets["by_state"]["running"], facets["at_least"]) == (2, ["running"])
