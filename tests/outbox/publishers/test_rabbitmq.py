"""Publishing to a real RabbitMQ, where there is one."""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import AsyncIterator
from typing import Any

import aio_pika
import pytest

from holdfast.outbox.envelope import CloudEvent
from holdfast.outbox.publishers.rabbitmq import PREFIX, RabbitPublisher
from holdfast.outbox.publishing import Unroutable
from tests.outbox.publishers.messages import AT, a_message
from tests.services import rabbitmq as service

pytestmark = pytest.mark.skipif(not service.AVAILABLE, reason=service.REASON)


class Queue:
    """A queue of a test's own, and what is in it."""

    def __init__(self, channel: Any, queue: Any) -> None:
        self.channel = channel
        self.queue = queue
        self.name: str = queue.name

    async def messages(self) -> list[Any]:
        found = []
        while (got := await self.queue.get(fail=False, no_ack=True)) is not None:
            found.append(got)
        return found


@pytest.fixture
async def queue() -> AsyncIterator[Queue]:
    connection = await aio_pika.connect(service.server().url)
    channel = await connection.channel()
    queue = await channel.declare_queue(f"q{uuid.uuid4().hex[:12]}", durable=True)
    yield Queue(channel, queue)
    await queue.delete(if_unused=False, if_empty=False)
    await connection.close()


@pytest.fixture
async def publisher() -> AsyncIterator[RabbitPublisher]:
    publisher = RabbitPublisher(service.server().url)
    yield publisher
    await publisher.close()


def event_of(got: Any) -> CloudEvent:
    return CloudEvent.from_headers(got.headers, got.body, content_type=got.content_type, prefix=PREFIX, quoted=False)


async def test_a_consumer_reads_the_envelope_that_was_published(queue: Queue, publisher: RabbitPublisher):
    message = a_message(queue.name)
    await publisher.publish(message)
    (got,) = await queue.messages()
    assert event_of(got) == message.envelope
    assert got.body == message.body
    assert got.message_id == message.id
    assert got.delivery_mode == aio_pika.DeliveryMode.PERSISTENT
    assert got.timestamp == AT.replace(microsecond=0)


async def test_the_structured_form_holds_the_whole_envelope(queue: Queue):
    publisher = RabbitPublisher(service.server().url, mode="structured")
    message = a_message(queue.name)
    await publisher.publish(message)
    await publisher.close()
    (got,) = await queue.messages()
    assert event_of(got) == message.envelope


async def test_a_repeated_message_has_the_same_id_for_the_consumer_to_see(queue: Queue, publisher: RabbitPublisher):
    message = a_message(queue.name)
    await publisher.publish(message)
    await publisher.publish(message)
    assert [got.message_id for got in await queue.messages()] == [message.id, message.id]


async def test_an_unroutable_message_is_an_error_and_the_next_one_goes_through(
    queue: Queue, publisher: RabbitPublisher
):
    with pytest.raises(Unroutable, match="no queue of the default exchange takes the routing key 'nowhere'"):
        await publisher.publish(a_message("nowhere"))
    await publisher.publish(a_message(queue.name))
    assert len(await queue.messages()) == 1


async def test_an_exchange_routes_by_the_topic(queue: Queue):
    name = f"x{uuid.uuid4().hex[:12]}"
    publisher = RabbitPublisher(service.server().url, exchange=name, ensure_exchange="topic")
    with pytest.raises(Unroutable, match=f"exchange '{name}'"):
        await publisher.publish(a_message("orders.created"))
    await queue.queue.bind(name, "orders.*")
    await publisher.publish(a_message("orders.created"))
    await publisher.close()
    assert len(await queue.messages()) == 1


async def test_an_exchange_that_is_not_there_is_an_error_until_it_is(queue: Queue):
    name = f"x{uuid.uuid4().hex[:12]}"
    publisher = RabbitPublisher(service.server().url, exchange=name)
    with pytest.raises(aio_pika.exceptions.ChannelNotFoundEntity):
        await publisher.publish(a_message("orders.created"))
    await queue.channel.declare_exchange(name, "fanout")
    await queue.queue.bind(name)
    await publisher.publish(a_message("orders.created"))
    await publisher.close()
    assert len(await queue.messages()) == 1


async def test_a_connection_of_the_callers_is_used_and_stays_open(queue: Queue):
    connection = await aio_pika.connect_robust(service.server().url)
    publisher = RabbitPublisher(connection)
    await publisher.publish(a_message(queue.name))
    await publisher.close()
    assert not connection.is_closed
    await connection.close()
    assert len(await queue.messages()) == 1


async def test_calls_at_the_same_time_are_each_confirmed(queue: Queue, publisher: RabbitPublisher):
    good = [a_message(queue.name) for _ in range(30)]
    bad = [a_message("nowhere") for _ in range(10)]
    mixed = [one for pair in zip(good, [*bad, *[None] * 20], strict=True) for one in pair if one is not None]
    answers = await asyncio.gather(*(publisher.publish(one) for one in mixed), return_exceptions=True)
    failed = {one.id for one, answer in zip(mixed, answers, strict=True) if isinstance(answer, Unroutable)}
    assert failed == {one.id for one in bad}
    assert {got.message_id for got in await queue.messages()} == {one.id for one in good}


async def test_a_restarted_server_has_what_was_confirmed_and_takes_more():
    server = service.private_server()
    connection = await aio_pika.connect(server.url)
    await (await connection.channel()).declare_queue("orders", durable=True)
    await connection.close()
    publisher = RabbitPublisher(server.url, timeout=30)
    first, second = a_message("orders"), a_message("orders")
    await publisher.publish(first)
    server.stop()
    with pytest.raises((aio_pika.exceptions.AMQPError, OSError)):
        await publisher.publish(second)
    server.start()
    await publisher.publish(second)
    await publisher.close()
    connection = await aio_pika.connect(server.url)
    channel = await connection.channel()
    got = await Queue(channel, await channel.declare_queue("orders", durable=True)).messages()
    await connection.close()
    server.stop()
    assert [one.message_id for one in got] == [first.id, second.id]
