"""The shop of `examples/orders`: what it promises, and that its story can be told."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
import sqlalchemy as sa

from examples.orders.models import Customer, Order
from examples.orders.ordering import BROKER, place
from examples.orders.outside import Bank, Warehouse
from examples.orders.shop import Outside, Shop
from holdfast import InMemoryPublisher, SagaState
from holdfast.testing import ManualClock
from tests.services.nats import private_server

ROOT = Path(__file__).parents[2]
STORY = (
    "confirmed; reserve done, charge done",
    "asked 2 times, and charged 4000 cents",
    "0 new entries in the outbox",
    "cancelled; reserve done, charge CardDeclined, refund done, release done",
    "cancelled; reserve OutOfStock, release done",
    "does not know her",
    "erasure_external_verified",
    "intact",
)


class Kept:
    """A broker that keeps what it is told: tests deliver it themselves."""

    copies = 1

    def __init__(self) -> None:
        self.publisher = InMemoryPublisher(name=BROKER)

    async def deliver(self, handle: object) -> None:
        raise AssertionError("nothing is delivered by itself here")

    @property
    def topics(self) -> list[str]:
        return [message.topic for message in self.publisher.messages]


class Visit:
    """A shop, somebody who visits it, and time that passes when nothing else is left to do."""

    def __init__(self, url: str) -> None:
        self.clock = ManualClock()
        self.outside = Outside(Warehouse(anchor=2), Bank(declines_above=100_00))
        self.broker = Kept()
        self.shop = Shop(url, self.outside, self.broker, clock=self.clock, background=False)
        self.web = httpx.AsyncClient(transport=httpx.ASGITransport(self.shop.api), base_url="http://shop")
        self.runner = self.shop.hold.runner()

    async def customer(self) -> str:
        found = (await self.web.post("/customers", json={"email": "ann@example.org"})).json()["id"]
        self.outside.newsletter.readers.add(found)
        return str(found)

    async def order(self, customer_id: str, *, cents: int = 40_00, item: str = "anchor", reference: str = "r") -> Any:
        wanted = {"reference": reference, "customer_id": customer_id, "address": "Pier 7", "item": item, "cents": cents}
        return await self.web.post("/orders", json=wanted)

    async def status(self, order_id: str) -> str:
        return str((await self.web.get(f"/orders/{order_id}")).json()["status"])

    async def work(self) -> None:
        """Make calls until none is left."""
        for _ in range(100):
            counts = self.shop.hold.outbox.status_counts()
            if not sum(number for status, number in counts.items() if status not in ("succeeded", "abandoned")):
                return
            if not await self.runner.run_once():
                self.clock.advance(1)
        raise AssertionError("there is always something left to call")

    def calls(self, order_id: str) -> list[tuple[str, str]]:
        [saga] = self.shop.hold.sagas.find(subject_id=order_id)
        return [(str(one.operation), str(one.status)) for one in self.shop.hold.sagas.history(saga.saga_id)]

    def saga_state(self, order_id: str) -> SagaState:
        [saga] = self.shop.hold.sagas.find(subject_id=order_id)
        return saga.state


Buys = Callable[..., Awaitable[str]]


@pytest.fixture
def visit(tmp_path: Path) -> Iterator[Visit]:
    visit = Visit(f"sqlite:///{tmp_path / 'shop.db'}")
    yield visit
    visit.shop.close()


@pytest.fixture
def buys(visit: Visit) -> Buys:
    """Somebody who orders and waits; the order's id."""

    async def buy(**wanted: Any) -> str:
        accepted = await visit.order(await visit.customer(), **wanted)
        await visit.work()
        return str(accepted.json()["id"])

    return buy


async def test_an_order_is_paid_for_confirmed_and_announced_in_order(visit: Visit, buys: Buys) -> None:
    order_id = await buys()
    assert await visit.status(order_id) == "confirmed"
    assert visit.saga_state(order_id) == SagaState.COMPLETED
    assert visit.broker.topics == ["orders.placed", "orders.confirmed"]
    assert list(visit.outside.bank.charged.values()) == [40_00]


async def test_a_transaction_that_is_rolled_back_publishes_nothing(visit: Visit) -> None:
    customer_id = await visit.customer()
    order = Order(reference="r", customer_id=customer_id, address="Pier 7", item="anchor", quantity=1, cents=1)
    with pytest.raises(ZeroDivisionError), visit.shop.hold.sessions.begin() as session:
        place(visit.shop.hold, session, order)
        raise ZeroDivisionError
    await visit.work()
    assert sum(visit.shop.hold.outbox.status_counts().values()) == 0
    assert visit.shop.hold.sagas.find() == ()
    assert (visit.broker.topics, visit.outside.bank.calls) == ([], 0)


async def test_a_second_click_is_refused_and_leaves_nothing_behind(visit: Visit) -> None:
    customer_id = await visit.customer()
    await visit.order(customer_id)
    before = visit.shop.hold.outbox.status_counts()
    assert (await visit.order(customer_id)).status_code == 409
    assert visit.shop.hold.outbox.status_counts() == before


async def test_nobody_orders_for_a_customer_who_is_not_there(visit: Visit) -> None:
    assert (await visit.order("nobody")).status_code == 404
    assert (await visit.web.get("/orders/none")).status_code == 404


async def test_shipping_acts_once_on_a_message_that_comes_twice(visit: Visit, buys: Buys) -> None:
    await buys()
    for message in [*visit.broker.publisher.messages, *visit.broker.publisher.messages]:
        visit.shop.shipping.handle(message.envelope)
    assert (visit.shop.shipping.handled, visit.shop.shipping.repeated) == (2, 2)
    assert visit.shop.shipped() == 1


async def test_a_lost_answer_is_asked_for_again_and_charges_once(visit: Visit, buys: Buys) -> None:
    visit.outside.bank.lose_answers(2)
    order_id = await buys()
    assert await visit.status(order_id) == "confirmed"
    assert visit.outside.bank.calls == 3
    assert list(visit.outside.bank.charged.values()) == [40_00]


async def test_a_declined_card_undoes_the_order_in_reverse(visit: Visit, buys: Buys) -> None:
    order_id = await buys(cents=400_00)
    assert visit.calls(order_id) == [
        ("reserve", "succeeded"),
        ("charge", "abandoned"),
        ("refund", "succeeded"),
        ("release", "succeeded"),
    ]
    assert visit.saga_state(order_id) == SagaState.COMPENSATED
    assert await visit.status(order_id) == "cancelled"
    assert visit.broker.topics == ["orders.placed", "orders.cancelled"]
    assert visit.outside.warehouse.stock["anchor"] == 2
    assert not visit.outside.bank.charged


async def test_goods_that_are_missing_cancel_the_order_before_anybody_pays(visit: Visit, buys: Buys) -> None:
    order_id = await buys(item="chain")
    assert visit.calls(order_id) == [("reserve", "abandoned"), ("release", "succeeded")]
    assert await visit.status(order_id) == "cancelled"
    assert visit.outside.bank.calls == 0


async def test_an_erased_customer_is_gone_everywhere_and_the_trail_proves_it(visit: Visit) -> None:
    customer_id = await visit.customer()
    order_id = (await visit.order(customer_id)).json()["id"]
    await visit.work()
    answer = await visit.web.delete(f"/customers/{customer_id}")
    assert (answer.status_code, answer.json()) == (202, {"rows": {"orders": 1, "customers": 1}, "external": 1})
    await visit.work()

    with visit.shop.hold.sessions() as session:
        assert session.get(Customer, customer_id) is None
        order = session.get_one(Order, order_id)
        assert (order.customer_id, order.address, order.status) == (None, "erased", "confirmed")
    assert customer_id not in visit.outside.newsletter.readers
    assert (await visit.web.get(f"/customers/{customer_id}/trail")).json() == [
        "erasure_requested",
        "erasure_step_succeeded",
        "erasure_step_succeeded",
        "erasure_local_completed",
        "erasure_step_succeeded",
        "erasure_completed",
        "erasure_external_verified",
    ]
    assert all(visit.shop.hold.audit.verify_all())


async def test_a_trail_that_somebody_has_changed_says_so(visit: Visit) -> None:
    customer_id = await visit.customer()
    await visit.web.delete(f"/customers/{customer_id}")
    events = visit.shop.hold.tables.audit_events
    with visit.shop.hold.sessions.begin() as session:
        session.execute(sa.update(events).values(subject_ref="somebody else"))
    assert not all(visit.shop.hold.audit.verify_all())


def tell(folder: Path, *arguments: str) -> str:
    """Run the story as a reader does; what it says."""
    command = [sys.executable, "-m", "examples.orders", *arguments]
    told = {**os.environ, "PYTHONPATH": str(ROOT), "PYTHONWARNINGS": "error::ResourceWarning"}
    done = subprocess.run(command, cwd=folder, env=told, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    assert "Traceback" not in done.stderr
    assert not list(folder.iterdir()), "an example leaves nothing behind"
    return done.stdout


def test_the_story_is_told_on_sqlite_alone(tmp_path: Path) -> None:
    told = tell(tmp_path)
    assert all(words in told for words in STORY), told
    assert "2 messages, 2 repeated, 1 shipment" in told


def test_the_story_is_the_same_with_nats(tmp_path: Path) -> None:
    server = private_server()
    try:
        told = tell(tmp_path, "--nats", server.url)
    finally:
        server.stop()
    assert all(words in told for words in STORY), told
    assert "2 messages, 0 repeated, 1 shipment" in told
