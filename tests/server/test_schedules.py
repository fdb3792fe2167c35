"""The API about schedules."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from starlette.testclient import TestClient

from holdfast.testing.clock import ManualClock
from tests.server.orders import SECRET, Shop, shop_on
from tests.server.test_workflows import did, got

NIGHTLY: dict[str, Any] = {"name": "nightly", "workflow": "greet", "cron": "0 3 * * *", "input": {"name": "moon"}}
WHY = {"reason": "not needed any more"}


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture(params=["memory", "sqlite", "postgres"])
def shop(request: pytest.FixtureRequest, tmp_path: Path, clock: ManualClock) -> Iterator[Shop]:
    with shop_on(request.param, tmp_path, clock) as made:
        yield made


@pytest.fixture
def client(shop: Shop, ask: Callable[..., TestClient]) -> TestClient:
    return ask(shop.hold)


def test_a_schedule_is_made_shown_with_its_next_ticks_and_changed(shop: Shop, client: TestClient) -> None:
    made = did(client, "schedules", NIGHTLY)
    assert (made["workflow"], made["kwargs"], made["overdue"]) == ("greet", {"name": "moon"}, False)
    assert [one["name"] for one in got(client, "schedules")] == ["nightly"]
    shown = got(client, "schedules/nightly", number=3)
    assert [at[:16] for at in shown["next"]] == ["2026-01-01T03:00", "2026-01-02T03:00", "2026-01-03T03:00"]
    assert [(one["type"], one["facts"]["by"]) for one in shown["log"]] == [("schedule_made", "local")]
    assert did(client, "schedules", {**NIGHTLY, "cron": "30 4 * * *"})["next_tick"] == "2026-01-01T04:30:00Z"


def test_a_schedule_ticks_no_more_until_it_is_resumed(shop: Shop, client: TestClient) -> None:
    did(client, "schedules", NIGHTLY)
    paused = did(client, "schedules/nightly/pause")
    assert (paused["paused"], paused["next_tick"]) == (True, None)
    assert did(client, "schedules/nightly/resume")["next_tick"] == "2026-01-01T03:00:00Z"


def test_a_schedule_is_run_now_and_names_what_it_started(shop: Shop, client: TestClient) -> None:
    did(client, "schedules", NIGHTLY)
    started = did(client, "schedules/nightly/run")["workflow"]
    assert got(client, f"workflows/{started}")["name"] == "greet"
    assert got(client, "schedules/nightly")["last_run"] == started
    assert did(client, "schedules/nightly/run", status=409)["error"] == "refused"


def test_a_schedule_that_no_worker_looks_after_is_overdue(shop: Shop, client: TestClient, clock: ManualClock) -> None:
    did(client, "schedules", NIGHTLY)
    clock.advance(4 * 3600)
    assert got(client, "schedules")[0]["overdue"]


def test_a_schedule_is_removed_for_a_reason(shop: Shop, client: TestClient) -> None:
    did(client, "schedules", {**NIGHTLY, "name": "a/b c"})
    assert did(client, "schedules/a/b c/remove", status=422)["error"] == "invalid_request"
    assert did(client, "schedules/a/b c/remove", WHY) == {"removed": True}
    assert got(client, "schedules") == []
    assert got(client, "schedules/nightly", 404)["error"] == "schedule_not_found"
    for act in ("pause", "resume", "run"):
        assert did(client, f"schedules/nightly/{act}", status=404)["error"] == "schedule_not_found"
    assert did(client, "schedules/nightly/remove", WHY, 404)["error"] == "schedule_not_found"


def test_the_input_of_a_schedule_is_masked_until_it_is_revealed(shop: Shop, client: TestClient) -> None:
    order = {"order": {"id": 1, "password": SECRET}}
    did(client, "schedules", {**NIGHTLY, "workflow": "fulfil", "input": order})
    assert SECRET not in client.get("schedules/nightly").text
    assert SECRET not in client.get("schedules").text
    assert did(client, "schedules/nightly/reveal", WHY)["kwargs"] == order


@pytest.mark.parametrize(
    ("change", "status", "error"),
    [
        ({"cron": "nonsense"}, 422, "bad_schedule"),
        ({"cron": "0 0 30 2 *"}, 422, "bad_schedule"),
        ({"timezone": "Mars/Olympus"}, 422, "bad_schedule"),
        ({"timezone": "../../etc/passwd"}, 422, "bad_schedule"),
        ({"timezone": "\0"}, 422, "bad_schedule"),
        ({"name": "a\0b"}, 422, "bad_schedule"),
        ({"name": "\ud800"}, 422, None),
        ({"workflow": "nothing"}, 404, "workflow_name_not_found"),
        ({"input": {"nonsense": 1}}, 422, "bad_schedule"),
        ({"overlap": "sometimes"}, 422, "invalid_request"),
        ({"catch_up": 10**12}, 422, "invalid_request"),
    ],
)
def test_a_schedule_that_cannot_be_meant_says_what_is_wrong(
    tmp_path: Path, ask: Callable[..., TestClient], change: dict[str, Any], status: int, error: str | None
) -> None:
    with shop_on("memory", tmp_path) as shop:
        answer = did(ask(shop.hold), "schedules", {**NIGHTLY, **change}, status)
        assert error is None or answer["error"] == error


def test_a_function_that_fails_on_the_input_of_a_schedule_is_no_fault_of_the_server(
    shop: Shop, client: TestClient
) -> None:
    def broken(name: str) -> Any:
        raise ValueError(f"{name} has password=hunter22")

    shop.hold.workflows.add(broken)
    answer = did(client, "schedules", {**NIGHTLY, "workflow": "broken"}, 422)
    assert (answer["error"], answer["message"].partition(": ")[2]) == (
        "bad_input",
        "ValueError: moon has password=***",
    )


def test_without_its_program_a_server_makes_and_runs_none(tmp_path: Path, ask: Callable[..., TestClient]) -> None:
    with shop_on("memory", tmp_path) as shop:
        did(ask(shop.hold), "schedules", NIGHTLY)
        alone = ask(shop.hold, has_program=False)
        assert did(alone, "schedules", NIGHTLY, 409)["error"] == "no_program"
        assert did(alone, "schedules/nightly/run", status=409)["error"] == "no_program"
        assert did(alone, "schedules/nightly/pause")["paused"]
