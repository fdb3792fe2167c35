"""From the outbox to a broker that is restarted meanwhile, and on to a consumer's inbox."""

from __future__ import annotations

import asyncio
import random
from collections import defaultdict
from pathlib import Path
from typing import Any

import nats
import pytest
import sqlalchemy as sa
from sqlalchemy.orm import Session

from holdfast.machine.outbox_entry import OutboxStatus
from holdfast.outbox.envelope import CloudEvent
from holdfast.outbox.inbox import Inbox
from holdfast.outbox.operation import OperationRegistry
from holdfast.outbox.outbox import Outbox
from holdfast.outbox.publishers.memory import InMemoryPublisher
from holdfast.outbox.publishers.nats import NatsPublisher
from holdfast.outbox.publishing import Publisher, Publishers, publish_operation
from holdfast.outbox.resolver import ResolverRegistry
from holdfast.outbox.runner import SagaRunner
from holdfast.testing import ManualClock
from tests.databases import ORDERS, Database, fresh_database
from tests.services import nats as service

KEYS = 10
STREAM = {"name": "ORDERS", "subjects": ["orders.>"]}


class Line:
    """An outbox on SQLite whose messages go to one publisher. Time passes when nothing is due."""

    def __init__(self, database: Database, publisher: Publisher) -> None:
        self.clock = ManualClock()
        publishers = Publishers(publisher)
        operations = OperationRegistry(publish_operation(publishers, max_attempts=1_000_000))
        self.outbox = Outbox(database.sessions, database.tables.outbox, operations=operations, clock=self.clock)
        self.runner = SagaRunner(ResolverRegistry(), self.outbox, None, batch_size=20, clock=self.clock)

    def publish(self, number: int) -> None:
        def work(session: Session) -> None:
            for at in range(number):
                session.execute(ORDERS.insert(), {"id": at + 1})
                self.outbox.publish(session, "orders.created", {"number": at}, key=f"k{at % KEYS}", target="broker")

        self.outbox.run(work)

    async def step(self) -> None:
        if not await self.runner.run_once():
            self.clock.advance(3600)

    def is_done(self) -> bool:
        counts = self.outbox.status_counts()
        return counts[OutboxStatus.SUCCEEDED] == sum(counts.values())


async def stored_in(url: str) -> list[CloudEvent]:
    client = await nats.connect(url)
    streams = client.jsm()
    last = (await streams.stream_info("ORDERS")).state.last_seq
    rows = [await streams.get_msg("ORDERS", number) for number in range(1, last + 1)]
    await client.close()
    return [CloudEvent.from_headers(row.headers or {}, row.data or b"") for row in rows]


@pytest.mark.torture
@pytest.mark.parametrize("crash", [False, True])
async def test_a_broker_restarted_under_load_loses_nothing(tmp_path: Path, crash: bool, seed: int, size: int):
    rng, restarts, number = random.Random(seed), 3 * size, 300 * size
    server = service.private_server("sync_interval: always")
    publisher = NatsPublisher(server.url, name="broker", ensure_stream=STREAM, timeout=0.5)
    with fresh_database("sqlite", tmp_path) as database:
        line = Line(database, publisher)
        line.publish(number)
        restarting: asyncio.Task[None] | None = None
        while not line.is_done():
            await line.step()
            if restarts and (restarting is None or restarting.done()) and rng.random() < 0.3:
                restarts -= 1
                restarting = asyncio.create_task(asyncio.to_thread(server.restart, crash=crash))
        if restarting is not None:
            await restarting
        with database.sessions() as session:
            failed = session.execute(sa.select(sa.func.count()).select_from(database.tables.attempts)).scalar_one()
    await publisher.close()
    events = await stored_in(server.url)
    server.stop()
    assert failed, "no call met the outage"
    assert sorted(event.data["number"] for event in events) == list(range(number))
    _check_order(events)


def _check_order(events: list[CloudEvent]) -> None:
    per_key: dict[Any, list[int]] = defaultdict(list)
    for event in events:
        per_key[event.subject].append(event.data["number"])
    assert all(numbers == sorted(numbers) for numbers in per_key.values())


async def test_what_is_published_twice_is_handled_once(tmp_path: Path):
    """The broker took the message, but its answer was lost: the outbox publishes again, and the inbox notices."""

    class Forgetful(InMemoryPublisher):
        async def publish(self, message: Any) -> None:
            await super().publish(message)
            if len(self.messages) == 1:
                raise ConnectionResetError("the answer was lost")

    publisher = Forgetful(name="broker")
    with fresh_database("sqlite", tmp_path) as database:
        line = Line(database, publisher)
        line.publish(1)
        while not line.is_done():
            await line.step()
        first, second = publisher.messages
        assert first == second
        inbox, handled = Inbox(database.tables, "billing"), []
        for message in publisher.messages:
            with database.sessions() as session, session.begin():
                inbox.handle(session, message.id, lambda _, message=message: handled.append(message.envelope.data))
    assert handled == [{"number": 0}]


async def test_what_is_rolled_back_is_never_published(tmp_path: Path):
    publisher = InMemoryPublisher(name="broker")
    with fresh_database("sqlite", tmp_path) as database:
        line = Line(database, publisher)
        with database.sessions() as session:
            line.outbox.publish(session, "orders.created", {}, target="broker")
            session.rollback()
        await line.step()
        assert publisher.messages == []


async def test_the_message_says_when_it_was_enqueued_and_for_which_key(tmp_path: Path):
    publisher = InMemoryPublisher(name="broker")
    with fresh_database("sqlite", tmp_path) as database:
        line = Line(database, publisher)
        enqueued_at = line.clock.wall()
        with database.sessions() as session, session.begin():
            headers = {"traceparent": "00-1-2-01"}
            entry = line.outbox.publish(
                session, "orders.created", [1, None], key="order-7", target="broker", headers=headers
            )
        await line.step()
    (message,) = publisher.messages
    assert (message.id, message.topic, message.key) == (str(entry), "orders.created", "order-7")
    assert message.envelope.time == enqueued_at
    assert message.envelope.extensions == {"traceparent": "00-1-2-01", "partitionkey": "order-7"}
    assert message.body == b"[1,null]"


async def test_a_message_for_a_publisher_that_is_not_there_yet_waits_for_it(tmp_path: Path):
    publisher = InMemoryPublisher(name="later")
    with fresh_database("sqlite", tmp_path) as database:
        line = Line(database, InMemoryPublisher(name="broker"))
        with database.sessions() as session, session.begin():
            line.outbox.publish(session, "orders.created", {}, target="later")
        for _ in range(30):
            await line.step()
        assert line.outbox.status_counts()[OutboxStatus.ABANDONED] == 0
        operation = line.outbox.operations.find("publish")
        assert operation is not None
        operation.targets.register(publisher)  # type: ignore[union-attr]  # they are Publishers
        while not line.is_done():
            await line.step()
    assert len(publisher.messages) == 1
