"""The API about workers."""

from __future__ import annotations

import os
import socket
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from starlette.testclient import TestClient

from holdfast.store import lease
from holdfast.store.record import evolve
from holdfast.testing.clock import ManualClock
from holdfast.workflows.records import ITEM, SERVING, WORKER
from holdfast.workflows.worker import WorkflowWorker
from tests.server.orders import Shop, shop_on
from tests.server.test_workflows import got


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture(params=["memory", "sqlite", "postgres", "redis"])
def shop(request: pytest.FixtureRequest, tmp_path: Path, clock: ManualClock) -> Iterator[Shop]:
    with shop_on(request.param, tmp_path, clock) as made:
        yield made


@pytest.fixture
def client(shop: Shop, ask: Callable[..., TestClient]) -> TestClient:
    return ask(shop.hold)


@pytest.fixture
def worker(shop: Shop) -> Iterator[WorkflowWorker]:
    made = shop.hold.workflows.worker(queues=["default", "slow"], versions=["2.0"])
    yield made
    made.close()


def test_a_worker_with_nothing_to_do_says_who_it_is_and_what_it_can_do(
    client: TestClient, worker: WorkflowWorker, clock: ManualClock
) -> None:
    assert got(client, "workers")["workers"] == []
    worker.look()
    clock.advance(30)
    (shown,) = got(client, "workers")["workers"]
    assert (shown["state"], shown["host"], shown["pid"]) == ("idle", socket.gethostname(), os.getpid())
    assert (shown["queues"], shown["versions"], shown["in_hand"]) == (["default", "slow"], ["2.0"], 0)
    assert {"charge", "hello"} <= set(shown["tasks"])
    assert shown["since"] <= shown["seen_at"] < got(client, "workers")["now"] < shown["counts_until"]


def test_a_worker_that_was_not_heard_of_for_long_is_late(
    client: TestClient, worker: WorkflowWorker, clock: ManualClock
) -> None:
    worker.look()
    clock.advance(181)
    assert [one["state"] for one in got(client, "workers")["workers"]] == ["late"]


def test_what_a_worker_has_in_hand_is_counted_and_shown(shop: Shop, client: TestClient, worker: WorkflowWorker) -> None:
    worker.look()
    id = shop.order(works=False)
    worker.presence.show()
    store = shop.hold.store
    store.claim(ITEM, (), lambda one: evolve(one, owner=worker.presence.id, due_at=None), by="id", limit=1)
    (shown,) = got(client, "workers")["workers"]
    assert (shown["id"], shown["state"], shown["in_hand"]) == (worker.presence.id, "busy", 1)
    (item,) = got(client, f"workers/{shown['id']}")["items"]
    assert (item["workflow_id"], item["workflow"], item["stage"], item["task"]) == (id, "fulfil", "reserve", "reserve")
    assert got(client, "workers/nobody", 404)["error"] == "worker_not_found"


def test_a_worker_without_a_word_of_what_it_can_do_is_shown_while_it_has_work(
    shop: Shop, client: TestClient, worker: WorkflowWorker
) -> None:
    worker.presence.show()
    (shown,) = got(client, "workers")["workers"]
    assert (shown["pid"], shown["state"], shown["tasks"], shown["seen_at"]) == (os.getpid(), "idle", [], None)
    worker.presence.leave()
    assert got(client, "workers")["workers"] == []


def test_work_of_somebody_who_is_gone_is_not_forgotten(shop: Shop, client: TestClient) -> None:
    shop.order(works=False)
    shop.hold.store.claim(ITEM, (), lambda one: evolve(one, owner="ghost", due_at=None), by="id", limit=1)
    (shown,) = got(client, "workers")["workers"]
    assert (shown["id"], shown["state"], shown["in_hand"]) == ("ghost", "gone", 1)


def test_what_one_process_at_a_time_looks_after_is_shown(shop: Shop, client: TestClient) -> None:
    token = lease.acquire(shop.hold.store, "maintenance", 60)
    assert token is not None
    (shown,) = got(client, "workers")["leases"]
    assert (shown["name"], shown["holder"], shown["term"]) == ("maintenance", token, 1)
    lease.release(shop.hold.store, "maintenance", token)
    assert got(client, "workers")["leases"] == []


def test_rows_of_a_program_that_says_less_are_shown_as_far_as_they_go(
    shop: Shop, client: TestClient, worker: WorkflowWorker
) -> None:
    worker.look()
    (row,) = shop.hold.store.page(SERVING)
    shop.hold.store.sweep(SERVING, (), {"about": None})
    (shown,) = got(client, "workers")["workers"]
    assert (shown["id"], shown["host"], shown["pid"]) == (row.id, "", None)


def test_a_worker_that_was_declared_dead_says_its_new_name(shop: Shop, worker: WorkflowWorker) -> None:
    store = shop.hold.store
    worker.presence.show()
    worker.look()
    before = worker.presence.id
    store.sweep(WORKER, ())
    assert not worker.presence.show()
    worker._shift.serving.declare(shop.hold.workflows.tasks)
    (row,) = store.page(SERVING)
    assert before not in (row.about or "")
    assert worker.presence.id in (row.about or "")
