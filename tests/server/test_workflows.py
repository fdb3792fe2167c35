"""The API about workflows, over a shop whose orders are workflows."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any
from urllib.parse import quote
from xml.etree import ElementTree

import pytest
from starlette.testclient import TestClient

from holdfast import task, while_loop, workflow
from holdfast.server.routes import workflow_search
from holdfast.store.port import Swap
from holdfast.store.record import evolve
from holdfast.testing.clock import ManualClock
from holdfast.workflows.ids import TAKEN
from holdfast.workflows.records import ITEM
from tests.server.orders import ORDER, SECRET, Shop, shop_on, wide

STORES = ("memory", "sqlite", "postgres")
WHY = {"reason": "a customer asked"}


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture(params=STORES)
def shop(request: pytest.FixtureRequest, tmp_path: Path, clock: ManualClock) -> Iterator[Shop]:
    """The shop on every store, at a time that stands still."""
    with shop_on(request.param, tmp_path, clock) as made:
        yield made


@pytest.fixture
def small(tmp_path: Path, clock: ManualClock) -> Iterator[Shop]:
    """The shop in memory, where the store does not matter."""
    with shop_on("memory", tmp_path, clock) as made:
        yield made


@pytest.fixture
def client(shop: Shop, ask: Callable[..., TestClient]) -> TestClient:
    return ask(shop.hold)


@pytest.fixture
def near(small: Shop, ask: Callable[..., TestClient]) -> TestClient:
    return ask(small.hold)


def got(client: TestClient, path: str, code: int = 200, /, **query: Any) -> Any:
    answer = client.get(path, params=query)
    assert answer.status_code == code, answer.text
    return answer.json()


def did(client: TestClient, path: str, body: Any = None, status: int = 200) -> Any:
    # Not `json=`: that cannot say what a hostile client can.
    content = json.dumps({} if body is None else body)
    answer = client.post(path, content=content, headers={"Content-Type": "application/json"})
    assert answer.status_code == status, answer.text
    return answer.json()


def test_workflows_are_listed_newest_first_filtered_and_page_by_page(
    shop: Shop, client: TestClient, clock: ManualClock
) -> None:
    ids = []
    for number in range(5):
        clock.advance(60)
        ids.append(shop.order(number, works=False))
    greeted = shop.hold.workflows.start("greet").id
    page = got(client, "workflows", limit=2, name="fulfil")
    assert [one["id"] for one in page["items"]] == [ids[4], ids[3]]
    rest = got(client, "workflows", limit=10, name="fulfil", after=page["next"])
    assert ([one["id"] for one in rest["items"]], rest["next"]) == ([ids[2], ids[1], ids[0]], None)
    assert [one["id"] for one in got(client, "workflows", name="greet")["items"]] == [greeted]
    shop.hold.workflows.cancel(ids[0], "no")
    found = got(client, "workflows", status=["CANCELED", "TERMINAL"])["items"]
    assert [(one["id"], one["status"], one["reason"]) for one in found] == [(ids[0], "CANCELED", "no")]
    since = page["items"][1]["created_at"]
    assert len(got(client, "workflows", since=since)["items"]) == 3
    assert got(client, "workflows", application="elsewhere") == {"items": [], "next": None}


@pytest.mark.parametrize(
    ("query", "wanted"),
    [
        ({"name": "fulfil", "status": ["CANCELED"]}, {0, 5, 10}),
        ({"name": "greet", "status": ["CANCELED", "RUNNING"]}, {11}),
        ({"name": "fulfil", "application": "elsewhere"}, set()),
        ({"application": "", "status": ["CANCELED"]}, {0, 5, 10}),
    ],
)
def test_several_conditions_are_looked_for_in_steps_that_lead_to_all_of_them(
    shop: Shop, client: TestClient, monkeypatch: pytest.MonkeyPatch, query: dict[str, Any], wanted: set[int]
) -> None:
    monkeypatch.setattr(workflow_search, "AT_ONCE", 2)
    monkeypatch.setattr(workflow_search, "MOST_LOOKED", 4)
    ids = [shop.order(number, works=False) for number in range(11)] + [shop.hold.workflows.start("greet").id]
    for number in (0, 5, 10):
        shop.hold.workflows.cancel(ids[number], "no")
    found, after = [], None
    while True:
        page = got(client, "workflows", **query, limit=1, **({} if after is None else {"after": after}))
        found += [one["id"] for one in page["items"]]
        after = page["next"]
        if after is None:
            break
    assert found == [ids[number] for number in sorted(wanted, reverse=True)]


@pytest.mark.parametrize(
    "query",
    [{"status": "GONE"}, {"after": "nonsense"}, {"since": "2026-01-01T00:00:00"}, {"limit": 0}, {"limit": 501}],
)
def test_what_no_list_can_be_asked_is_refused_as_invalid(near: TestClient, query: dict[str, Any]) -> None:
    assert got(near, "workflows", 422, **query)["status"] == 422


def test_facets_count_by_status_and_name_what_there_is_and_what_can_be_started(shop: Shop, client: TestClient) -> None:
    shop.order(works=False)
    shop.hold.workflows.cancel(shop.order(works=False), "no")
    shop.hold.workflows.known.pop("greet")
    assert got(client, "workflows/facets") == {
        "by_status": {"RUNNING": 1, "CANCELED": 1}, "names": ["fulfil"], "startable": ["fulfil"],
    }  # fmt: skip


def test_a_workflow_is_shown_with_everything_that_an_operator_decides_by(shop: Shop, client: TestClient) -> None:
    id = shop.order()
    shown = got(client, f"workflows/{id}")
    assert (shown["status"], shown["name"], shown["context"]["order"]) == (
        "RUNNING",
        "fulfil",
        {"id": 7, "password": "***"},
    )
    stages = {one["ref"]: one for one in shown["stages"]}
    assert {ref: one["status"] for ref, one in stages.items()} == {
        "reserve": "SUCCEEDED", "charge": "SUCCEEDED", "wait_signal": "SUSPENDED", "ship": "NOT_STARTED",
    }  # fmt: skip
    waits = stages["wait_signal"]["waits"]
    assert (waits["kind"], waits["words"]) == ("signal", "waits for signal 'approve'")
    assert stages["ship"]["after"] == ["charge", "wait_signal"]
    assert shown["guarantees"]["effect"] == "at_least_once"
    assert (shown["parent"], shown["children"], shown["is_paused"], shown["place"]) == (None, [], False, None)
    assert SECRET not in client.get(f"workflows/{id}").text


def test_a_stage_is_shown_with_what_it_got_and_left_and_its_secrets_masked(shop: Shop, client: TestClient) -> None:
    id = shop.order()
    shown = got(client, f"workflows/{id}/stages/reserve")
    assert shown["outputs"]["result"] == {"shelf": "A7", "token": "***"}
    assert [one["attempt"] for one in shown["tasks"]] == [1]
    assert got(client, f"workflows/{id}/stages/nowhere", 404)["error"] == "stage_not_found"
    assert got(client, "workflows/nowhere/stages/reserve", 404)["error"] == "workflow_not_found"


def test_work_that_nobody_can_take_says_so_in_the_list_and_at_its_stage(shop: Shop, client: TestClient) -> None:
    id = shop.order(works=False)
    (stuck,) = got(client, "workflows/stranded")
    assert (stuck["workflow_id"], stuck["stage"], stuck["reason"]) == (id, "reserve", "no worker is there")
    stage = got(client, f"workflows/{id}")["stages"][0]
    assert (stage["stranded"], stage["waits"]["kind"]) == ("no worker is there", "worker")


def test_the_log_comes_in_pages_that_never_split_a_transaction(shop: Shop, client: TestClient) -> None:
    id = shop.order()
    whole = got(client, f"workflows/{id}/log")
    assert whole["next"] is None
    items, after = [], 0
    while True:
        page = got(client, f"workflows/{id}/log", after=after, limit=1)
        items += page["items"]
        if page["next"] is None:
            break
        after = int(page["next"])
    assert items == whole["items"]
    assert items[0]["type"] == "workflow_started"
    assert got(client, "workflows/nowhere/log", 404)["error"] == "workflow_not_found"


def test_any_moment_of_the_past_can_be_seen(shop: Shop, client: TestClient) -> None:
    id = shop.order()
    last = got(client, f"workflows/{id}")["version"]
    assert got(client, f"workflows/{id}/at/0")["status"] == "NOT_STARTED"
    first, now = got(client, f"workflows/{id}/at/1"), got(client, f"workflows/{id}/at/{last}")
    assert (first["stages"]["reserve"]["status"], now["stages"]["charge"]["status"]) == ("RUNNING", "SUCCEEDED")
    assert got(client, f"workflows/{id}/at/{last + 1}", 404)["error"] == "seq_not_found"
    assert got(client, f"workflows/{id}/at/{10**18}", 422)["error"] == "invalid_request"


def test_the_graph_has_a_place_for_each_stage_and_a_way_for_each_edge(shop: Shop, client: TestClient) -> None:
    id = shop.order()
    drawn = got(client, f"workflows/{id}/graph")
    layers = {node["ref"]: node["place"]["layer"] for node in drawn["nodes"]}
    assert layers == {"reserve": 0, "charge": 1, "wait_signal": 2, "ship": 3}
    edges = {(edge["source"], edge["target"]): edge["state"] for edge in drawn["edges"]}
    assert edges["reserve", "charge"] == "taken"
    assert edges["wait_signal", "ship"] == "open"
    assert all(len(edge["way"]) >= 2 for edge in drawn["edges"])


def test_the_picture_is_svg_that_may_load_and_run_nothing(small: Shop, near: TestClient) -> None:
    id = small.order()
    answer = near.get(f"workflows/{id}/graph.svg")
    assert answer.headers["content-type"].startswith("image/svg+xml")
    assert "sandbox" in answer.headers["content-security-policy"]
    assert ElementTree.fromstring(answer.text).tag.endswith("svg")


def test_two_hundred_stages_are_drawn_and_two_thousand_say_that_they_are_not(small: Shop, near: TestClient) -> None:
    many, most = small.hold.workflows.start(wide(200)), small.hold.workflows.start(wide(2000))
    drawn = got(near, f"workflows/{many.id}/graph")
    assert (drawn["drawn"], len(drawn["nodes"])) == (True, 200)
    left = got(near, f"workflows/{most.id}/graph")
    assert (left["drawn"], left["stages"], left["nodes"]) == (False, 2000, [])
    assert got(near, f"workflows/{most.id}/graph.svg", 409)["error"] == "too_many_stages"
    assert len(got(near, f"workflows/{most.id}")["stages"]) == 2000


def test_the_timeline_tells_calls_waits_and_new_attempts(shop: Shop, client: TestClient, clock: ManualClock) -> None:
    shop.refuses = True
    id = shop.order()
    clock.advance(5)
    shop.refuses = False
    shop.work()
    clock.advance(30)
    lanes = {lane["stage"]: lane for lane in got(client, f"workflows/{id}/timeline")["lanes"]}
    bars = [(bar["kind"], bar["attempt"], bar["outcome"]) for bar in lanes["charge"]["bars"]]
    assert bars == [("run", 1, "retried"), ("wait", 1, "retried"), ("run", 2, "SUCCEEDED")]
    assert "the bank is away" in lanes["charge"]["bars"][1]["note"]
    waits = lanes["wait_signal"]
    assert (waits["end"], waits["bars"][-1]["kind"], waits["bars"][-1]["note"]) == (None, "wait", "signal approve")
    assert lanes["reserve"]["status"] == "SUCCEEDED"


def test_the_timeline_tells_a_call_from_the_wait_for_a_worker(
    shop: Shop, client: TestClient, clock: ManualClock
) -> None:
    def bars(stage: str) -> list[tuple[str, str]]:
        lanes = {lane["stage"]: lane for lane in got(client, f"workflows/{id}/timeline")["lanes"]}
        return [(bar["kind"], bar["note"]) for bar in lanes[stage]["bars"]]

    id = shop.order(works=False)
    clock.advance(60)
    assert bars("reserve") == [("wait", "a worker")]
    did(client, f"workflows/{id}/pause", WHY)
    assert bars("reserve") == [("wait", "to be resumed")]
    did(client, f"workflows/{id}/resume", WHY)
    [held] = shop.hold.store.claim(ITEM, (), lambda item: evolve(item, owner="ann", due_at=None), limit=1)
    assert bars("reserve") == [("run", "")]
    due = evolve(held, owner=None, due_at=shop.hold.store.now())
    shop.hold.store.commit([Swap(ITEM, held, due)])
    shop.refuses = True
    shop.work()
    assert [kind for kind, _ in bars("charge")] == ["run", "wait"], "the next attempt is not made yet"
    clock.advance(5)
    assert [kind for kind, _ in bars("charge")] == ["run", "wait", "wait"]


def test_the_timeline_has_a_lane_for_each_round_of_a_loop(small: Shop, near: TestClient) -> None:
    @task
    def less(left: int) -> int:
        return left - 1

    run = small.hold.workflows.start(workflow(name="count")(lambda: while_loop("value > 0", less, 2)))
    small.work()
    lanes = got(near, f"workflows/{run.id}/timeline")["lanes"]
    assert [(lane["incarnation"], lane["status"]) for lane in lanes if lane["stage"] == "less"] == [
        (1, "SUCCEEDED"), (2, "SUCCEEDED"),
    ]  # fmt: skip
    ends = [[(bar["kind"], bar["outcome"]) for bar in lane["bars"]] for lane in lanes if "loop" in lane["stage"]]
    assert {*map(tuple, ends)} == {(("run", "SUCCEEDED"),)}


def test_a_restarted_stage_has_a_lane_for_each_of_its_lives(shop: Shop, client: TestClient, clock: ManualClock) -> None:
    id = shop.order()
    did(client, f"workflows/{id}/signal", {"name": "approve"})
    shop.work()
    did(client, f"workflows/{id}/stages/charge/restart", WHY)
    clock.advance(1)
    shop.work()
    lanes = [(lane["stage"], lane["incarnation"]) for lane in got(client, f"workflows/{id}/timeline")["lanes"]]
    assert lanes.count(("charge", 1)) == lanes.count(("charge", 2)) == 1
    assert ("reserve", 2) not in lanes
    assert shop.charged == [7, 7]


def test_a_workflow_is_started_by_its_name_once_for_each_key(shop: Shop, client: TestClient) -> None:
    body = {"name": "fulfil", "input": ORDER, "idempotency_key": "order-7"}
    first, second = did(client, "workflows", body, 201), did(client, "workflows", body, 201)
    assert first["id"] == second["id"]
    taken = did(client, "workflows", {**body, "input": {"order": {"id": 8}}}, 409)
    assert taken["error"] == "key_taken"
    shop.work()
    assert shop.charged == [7]


@pytest.mark.parametrize(
    ("body", "status", "error"),
    [
        ({"name": "nothing"}, 404, "workflow_name_not_found"),
        ({"name": "fulfil", "input": {"nonsense": 1}}, 422, "bad_input"),
        ({"name": "fulfil", "input": {"order": 1, "idempotency_key": "in the wrong place"}}, 422, "bad_input"),
        ({"name": "fulfil", "input": [1, 2, 3]}, 422, "bad_input"),
        ({"name": "greet", "input": "text"}, 422, "invalid_request"),
        ({"name": "greet", "unknown": 1}, 422, "invalid_request"),
        ({}, 422, "invalid_request"),
    ],
)
def test_a_start_that_cannot_be_meant_says_what_is_wrong(
    near: TestClient, body: dict[str, Any], status: int, error: str
) -> None:
    answer = did(near, "workflows", body, status)
    assert answer["error"] == error
    assert "holdfast.workflows" not in answer["message"]


def test_a_program_whose_function_fails_on_the_input_is_no_fault_of_the_server(small: Shop, near: TestClient) -> None:
    def broken(order: dict[str, Any]) -> Any:
        return order["missing"]

    small.hold.workflows.add(broken)
    answer = did(near, "workflows", {"name": "broken", "input": ORDER}, 422)
    assert answer["error"] == "bad_input"
    assert "KeyError" in answer["message"]


def test_what_a_function_of_the_program_says_of_its_failure_is_masked(small: Shop, near: TestClient) -> None:
    def away(order: Any = None) -> Any:
        raise ConnectionError(f"postgresql://shop:{SECRET}@db/shop refused")

    small.hold.workflows.add(away)
    started = did(near, "workflows", {"name": "away", "input": ORDER}, 422)
    described = got(near, "workflows/describe", 422, name="away")
    for answer in (started, described):
        assert SECRET not in answer["message"]
        assert "ConnectionError: postgresql://" in answer["message"]
    assert "holdfast workflow describe away --input" in described["message"]


def test_who_asks_for_a_stage_that_is_not_there_is_told_of_some_that_are(small: Shop, near: TestClient) -> None:
    run = small.hold.workflows.start(wide(50))
    message = got(near, f"workflows/{run.id}/stages/nowhere", 404)["message"]
    assert message.endswith(" and 30 more")


def test_no_workflow_can_have_the_address_of_something_else(small: Shop, near: TestClient) -> None:
    ways = [path.split("/") for path in got(near, "openapi.json")["paths"] if path.startswith("/api/v1/workflows/")]
    assert {way[4] for way in ways} - {"{id}"} == TAKEN - {".", ".."}


@pytest.mark.parametrize("id", ["order 7", "a?b#c", "x" * 191, "Größe 7", "prune7"])
def test_a_workflow_is_found_and_steered_by_an_id_of_its_programs_own(small: Shop, near: TestClient, id: str) -> None:
    small.hold.workflows.start(replace(wide(2), id=id))
    way = f"workflows/{quote(id, safe='')}"
    assert got(near, way)["id"] == id
    assert did(near, f"{way}/cancel", WHY)["id"] == id


@pytest.mark.parametrize(
    ("act", "body"),
    [
        ("stages/nowhere/restart", WHY),
        ("stages/nowhere/skip", WHY),
        ("stages/nowhere/cancel", WHY),
        ("signal", {"name": "approve", "stage": "nowhere"}),
        ("fork", {"stage": "nowhere"}),
        ("reveal", {**WHY, "stage": "nowhere"}),
    ],
)
def test_whatever_is_asked_of_a_stage_that_is_not_there_is_answered_alike(
    small: Shop, near: TestClient, act: str, body: dict[str, Any]
) -> None:
    run = small.hold.workflows.start(wide(50))
    small.work()
    told = did(near, f"workflows/{run.id}/{act}", body, 404)
    assert (told["error"], told["message"].endswith(" and 30 more")) == ("stage_not_found", True)
    assert did(near, f"workflows/nowhere/{act}", body, 404)["error"] == "workflow_not_found"


def test_without_its_program_a_server_shows_and_steers_workflows_and_starts_none(
    small: Shop, ask: Callable[..., TestClient]
) -> None:
    alone, id = ask(small.hold, has_program=False), small.order()
    refused = did(alone, "workflows", {"name": "greet"}, 409)
    assert (refused["error"], "--app" in refused["message"]) == ("no_program", True)
    assert got(alone, f"workflows/{id}")["status"] == "RUNNING"
    assert did(alone, f"workflows/{id}/pause")["status"] == "PAUSED"


def test_a_workflow_is_held_by_somebody_and_goes_on(shop: Shop, client: TestClient) -> None:
    id = shop.order(works=False)
    assert did(client, f"workflows/{id}/pause", {"reason": "stocktaking"})["status"] == "PAUSED"
    shop.work()
    shown = got(client, f"workflows/{id}")
    assert (shown["is_paused"], shown["paused"]["paused_by"], shown["paused"]["reason"]) == (
        True,
        "local",
        "stocktaking",
    )
    assert shown["stages"][0]["waits"]["kind"] == "hold"
    assert did(client, f"workflows/{id}/resume")["status"] == "RUNNING"
    shop.work()
    assert shop.charged == [7]


def test_a_canceled_workflow_names_who_did_it_and_why(shop: Shop, client: TestClient) -> None:
    id = shop.order()
    assert did(client, f"workflows/{id}/cancel", status=422)["error"] == "invalid_request"
    assert did(client, f"workflows/{id}/cancel", WHY)["status"] == "CANCELED"
    shown = got(client, f"workflows/{id}")
    assert (shown["canceled_by"], shown["reason"]) == ("local", "a customer asked")
    assert did(client, f"workflows/{id}/cancel", WHY, 409)["error"] == "ended_already"
    assert did(client, f"workflows/{id}/pause", status=409)["error"] == "refused"


def test_what_failed_is_retried_with_the_key_that_it_had(shop: Shop, client: TestClient, clock: ManualClock) -> None:
    shop.refuses = True
    id = shop.order()
    clock.advance(5)
    shop.work()
    shown = got(client, f"workflows/{id}")
    assert shown["status"] == "TERMINAL"
    assert "the bank is away" in next(one["note"] for one in shown["stages"] if one["ref"] == "charge")
    shop.refuses = False
    assert did(client, f"workflows/{id}/retry", {"reason": "the bank is back"})["status"] == "RUNNING"
    assert [one["facts"]["reason"] for one in _by_hand(client, id)] == ["the bank is back"]
    shop.work()
    assert shop.charged == [7]
    assert did(client, f"workflows/{id}/retry", status=409)["error"] == "refused"


@pytest.mark.parametrize(("act", "approved"), [("approve", True), ("reject", False)])
def test_whoever_is_signed_in_approves_or_rejects_under_his_own_name(
    shop: Shop, client: TestClient, act: str, approved: bool
) -> None:
    id = shop.order()
    assert did(client, f"workflows/{id}/{act}", {"comment": "early"}) == {"taken": False}
    assert did(client, f"workflows/{id}/{act}", {"stage": "nowhere"}, 404)["error"] == "stage_not_found"
    assert did(client, f"workflows/{id}/{act}", {"name": "approve", "user": "boss"}, 422)["error"] == "invalid_request"
    assert did(client, f"workflows/{id}/{act}", {"name": "approve", "comment": "fine"}) == {"taken": True}
    left = shop.hold.workflows.workflow(id).stage("wait_signal").outputs["result"]
    who = got(client, "session")["name"]
    assert left == {"approved": approved, "user": who, "comment": "fine"}


def test_a_signal_is_taken_by_the_stage_that_waits_or_kept(shop: Shop, client: TestClient) -> None:
    id = shop.order()
    assert did(client, f"workflows/{id}/signal", {"name": "other", "value": 1}) == {"taken": False}
    assert did(client, f"workflows/{id}/signal", {"name": "approve", "value": {"by": "ann"}}) == {"taken": True}
    shop.work()
    assert got(client, f"workflows/{id}")["status"] == "SUCCEEDED"
    assert did(client, f"workflows/{id}/signal", {"name": "approve"}, 409)["error"] == "refused"


def test_a_stage_is_skipped_or_canceled_by_hand_with_a_reason(shop: Shop, client: TestClient) -> None:
    first, second = shop.order(1), shop.order(2)
    assert did(client, f"workflows/{first}/stages/wait_signal/skip", status=422)["error"] == "invalid_request"
    did(client, f"workflows/{first}/stages/wait_signal/skip", WHY)
    shop.work()
    assert got(client, f"workflows/{first}")["status"] == "SUCCEEDED"
    did(client, f"workflows/{second}/stages/wait_signal/cancel", WHY)
    stages = {one["ref"]: one["status"] for one in got(client, f"workflows/{second}")["stages"]}
    assert stages["wait_signal"] == "CANCELED"
    assert did(client, f"workflows/{first}/stages/charge/skip", WHY, 409)["error"] == "refused"


def test_what_has_ended_already_is_not_canceled_and_says_so(shop: Shop, client: TestClient) -> None:
    id = shop.order()
    stage = did(client, f"workflows/{id}/stages/reserve/cancel", WHY, 409)
    assert stage["error"] == "ended_already"
    assert f"stage 'reserve' of workflow {id} is SUCCEEDED already" in stage["message"]
    shop.hold.workflows.cancel(id)
    for ref in ("reserve", "wait_signal", "charge"):  # also what has never begun
        told = did(client, f"workflows/{id}/stages/{ref}/cancel", WHY, 409)
        assert (told["error"], " already; only what has not ended" in told["message"]) == ("ended_already", True)
    assert [one.type for one in shop.hold.workflows.log(id) if one.type == "cancel_asked"] == []


def test_why_an_operator_did_something_is_in_the_log_of_the_workflow(shop: Shop, client: TestClient) -> None:
    id, other = shop.order(1), shop.order(2)
    for act in ("pause", "resume", "stages/reserve/restart", "stages/wait_signal/skip"):
        did(client, f"workflows/{id}/{act}", WHY)
    did(client, f"workflows/{other}/stages/wait_signal/cancel", WHY)
    told = [(one["type"], one["facts"]["reason"]) for one in _by_hand(client, id) + _by_hand(client, other)]
    kinds = ("workflow_paused", "workflow_resumed", "restarted", "skip_asked", "cancel_asked")
    assert told == [(kind, WHY["reason"]) for kind in kinds]


def _by_hand(client: TestClient, id: str) -> list[dict[str, Any]]:
    return [one for one in got(client, f"workflows/{id}/log")["items"] if "by" in one["facts"]]


def test_a_fork_takes_over_what_came_before_its_stage(shop: Shop, client: TestClient) -> None:
    id = shop.order()
    assert did(client, f"workflows/{id}/fork", {"stage": "charge"}, 409)["error"] == "refused"
    did(client, f"workflows/{id}/signal", {"name": "approve"})
    shop.work()
    made = did(client, f"workflows/{id}/fork", {"stage": "charge", "context": {"order": {"id": 8}}}, 201)
    shown = got(client, f"workflows/{made['id']}")
    assert shown["forked_from"] == [id, "charge"]
    assert {one["ref"]: one["status"] for one in shown["stages"]}["reserve"] == "SUCCEEDED"
    shop.work()
    assert shop.charged == [7, 8]
    assert did(client, f"workflows/{id}/fork", {"stage": "charge", "workflow": "nothing"}, 404)
    assert (
        did(client, f"workflows/{id}/fork", {"stage": "charge", "context": {"nonsense": 1}}, 422)["error"]
        == "bad_input"
    )


def test_secrets_are_revealed_to_who_gives_a_reason(shop: Shop, client: TestClient) -> None:
    id = shop.order()
    assert did(client, f"workflows/{id}/reveal", status=422)["error"] == "invalid_request"
    shown = did(client, f"workflows/{id}/reveal", {**WHY, "stage": "reserve"})
    assert shown["context"]["order"]["password"] == SECRET
    assert shown["stage"]["outputs"]["result"]["token"] == SECRET
    assert did(client, f"workflows/{id}/reveal", {**WHY, "stage": "nowhere"}, 404)["error"] == "stage_not_found"


def test_who_did_what_to_which_stage_and_why_is_in_the_trail(
    tmp_path: Path, clock: ManualClock, ask: Callable[..., TestClient]
) -> None:
    with shop_on("sqlite", tmp_path, clock) as shop:
        id, client = shop.order(), ask(shop.hold)
        did(client, f"workflows/{id}/stages/wait_signal/skip", WHY)
        (event,) = shop.hold.audit.read("operator:local")
        assert event.payload["act"] == "workflows.skip"
        assert (event.payload["on_id"], event.payload["on_stage"]) == (id, "wait_signal")
        assert event.payload["reason"] == "a customer asked"


def test_dead_items_are_listed_revealed_replayed_and_discarded(shop: Shop, client: TestClient) -> None:
    id = shop.order()
    shop.bury("m/0", "m/1")
    page = got(client, "workflows/dead", limit=1)
    assert (page["items"][0]["type"], page["next"] is not None) == ("CancelWorkflow", True)
    both = [page["items"][0], *got(client, "workflows/dead", after=page["next"])["items"]]
    assert {one["id"] for one in both} == {"m/0", "m/1"}
    assert did(client, "workflows/dead/m/0/reveal", WHY)["id"] == "m/0"
    assert did(client, "workflows/dead/m/0/replay") == {"changed": True}
    assert did(client, "workflows/dead/m/0/replay", status=404)["error"] == "dead_item_not_found"
    assert did(client, "workflows/dead/m/1/discard", WHY) == {"changed": True}
    assert got(client, "workflows/dead") == {"items": [], "next": None}
    assert got(client, "workflows/dead", workflow=id) == {"items": [], "next": None}
    assert got(client, "workflows/dead", 422, after="zz.zz")["error"] == "invalid_value"


def test_a_finalizer_that_failed_is_shown_and_run_again(small: Shop, near: TestClient) -> None:
    id = small.spool()
    (shown,) = got(near, f"workflows/{id}")["finalizers"]
    assert (shown["state"], "busy" in shown["last_error"]) == ("FAILED", True)
    small.holds_files = False
    assert did(near, f"workflows/finalizers/{shown['id']}/run") == {"changed": True}
    small.work()
    assert got(near, f"workflows/{id}")["finalizers"][0]["state"] == "DONE"
    assert did(near, "workflows/finalizers/nowhere/run", status=404)["error"] == "finalizer_not_found"


def test_a_workflow_in_which_something_is_missing_is_recovered(small: Shop, near: TestClient) -> None:
    id = small.order(works=False)
    assert did(near, f"workflows/{id}/recover")["status"] == "skipped"
    small.hold.store.sweep(ITEM, ())
    assert did(near, f"workflows/{id}/recover")["status"] == "recovered"
    small.work()
    assert small.charged == [7]
    assert did(near, "workflows/nowhere/recover", status=404)["error"] == "workflow_not_found"


def test_a_workflow_that_another_has_started_names_it_and_is_named(small: Shop, near: TestClient) -> None:
    greet = small.hold.workflows.known["greet"]

    @workflow
    def party() -> Any:
        return greet("all")

    small.hold.workflows.add(party)
    id = small.hold.workflows.start("party").id
    small.work()
    (child,) = got(near, f"workflows/{id}")["children"]
    assert (child["name"], child["parent"]) == ("greet", id)
    assert got(near, f"workflows/{child['id']}")["parent"] == id
    assert [one["id"] for one in got(near, "workflows", parent=id)["items"]] == [child["id"]]


HOSTILE = ["\0", "a\0b", "\ud800", "%00", "../..", "'; DROP TABLE x; --", "<script>", "𝕊", "x" * 5000, " ", "%2F", "#"]


@pytest.mark.parametrize("text", HOSTILE)
def test_hostile_texts_are_answered_and_never_break_anything(shop: Shop, client: TestClient, text: str) -> None:
    id = shop.order()
    sent = text.encode("utf-8", "replace").decode()
    for name in ("name", "application", "parent", "pipeline", "after", "since", "status"):
        assert client.get("workflows", params={name: sent}).status_code in (200, 422), name
    for path in ("workflows/{}", "workflows/{}/log", "workflows/{}/graph", "workflows/" + id + "/stages/{}"):
        status = client.get(path.format(quote(sent, safe=""))).status_code
        assert status in (200, 307, 404, 422), (path, status)
    for act, body in {
        "signal": {"name": text, "value": text},
        "approve": {"name": text, "comment": text},
        "fork": {"stage": text, "context": {text: text}},
        "pause": {"reason": text},
        "cancel": {"reason": text},
    }.items():
        answer = client.post(
            f"workflows/{id}/{act}",
            content=json.dumps(body),
            headers={"Content-Type": "application/json"},
        )
        assert answer.status_code < 500, (act, answer.text)


def test_numbers_that_nobody_can_mean_are_answered(small: Shop, near: TestClient) -> None:
    id = small.order()
    for path in (f"workflows/{id}/at/-1", f"workflows/{id}/at/{10**30}", f"workflows/{id}/log?after={10**30}"):
        assert near.get(path).status_code == 422
    deep: Any = 1
    for _ in range(200):
        deep = [deep]
    assert near.post(f"workflows/{id}/signal", json={"name": "approve", "value": deep}).status_code == 422
    assert near.post("workflows", json={"name": "greet", "input": {"name": 10**400}}).status_code in (201, 422)
