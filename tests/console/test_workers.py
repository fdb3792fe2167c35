"""Workers in a browser."""

from __future__ import annotations

import os
import socket
from collections.abc import Iterator

import pytest
from playwright.sync_api import expect

from holdfast import Holdfast
from holdfast.store import lease
from holdfast.store.record import evolve
from holdfast.workflows.records import ITEM
from holdfast.workflows.worker import WorkflowWorker
from tests.console.holding import both
from tests.console.visiting import NARROW, Visit, sticks_out
from tests.server.orders import Shop

HERE = f"{socket.gethostname()} · {os.getpid()}"


@pytest.fixture
def shop(hold: Holdfast) -> Shop:
    return Shop(hold)


@pytest.fixture
def worker(shop: Shop) -> Iterator[WorkflowWorker]:
    made = shop.hold.workflows.worker(queues=["default", "slow"], ttl_s=600)
    yield made
    made.close()


def test_without_workers_the_page_says_how_to_start_one(visit: Visit) -> None:
    page = visit("/workers")
    expect(page.get_by_role("heading", name="No worker is there")).to_be_visible()
    expect(page.get_by_text("holdfast worker --app")).to_be_visible()


@both
def test_a_worker_shows_where_it_is_what_it_can_do_and_what_it_has_in_hand(
    shop: Shop, visit: Visit, worker: WorkflowWorker
) -> None:
    worker.look()
    id = shop.order(works=False)
    worker.presence.show()
    store = shop.hold.store
    store.claim(ITEM, (), lambda one: evolve(one, owner=worker.presence.id, due_at=None), by="id", limit=1)
    page = visit("/workers")
    row = page.get_by_role("table", name="Workers").locator("tbody tr")
    expect(row).to_contain_text(HERE)
    expect(row).to_contain_text("busy")
    row.get_by_role("link").click()
    expect(page.get_by_text("default, slow")).to_be_visible()
    expect(page.get_by_text("charge", exact=True)).to_be_visible()
    page.get_by_role("table", name="In hand").get_by_role("link", name="fulfil").click()
    expect(page).to_have_url(f"{visit.url}/workflows/{id}?stage=reserve")
    expect(page.get_by_role("link", name=worker.presence.id).first).to_be_visible()


def test_what_one_at_a_time_looks_after_and_what_is_stranded_are_told(shop: Shop, visit: Visit) -> None:
    lease.acquire(shop.hold.store, "maintenance", 60)
    shop.order(works=False)
    page = visit("/workers")
    expect(page.get_by_role("table", name="Leases")).to_contain_text("maintenance")
    page.get_by_role("link", name="Work that nobody can take").click()
    expect(page.get_by_role("table", name="Stranded work")).to_contain_text("no worker is there")


def test_an_unknown_worker_is_said_to_be_none(visit: Visit) -> None:
    visit.allows(404)
    expect(visit("/workers/nobody").get_by_text("there is no worker 'nobody'")).to_be_visible()


def test_nothing_sticks_out_where_there_is_little_room(visit: Visit, worker: WorkflowWorker) -> None:
    worker.look()
    for path in ("/workers", f"/workers/{worker.presence.id}"):
        page = visit(path, viewport=NARROW, shade="dark")
        page.locator(".card").first.wait_for()
        assert sticks_out(page) == 0, path
