"""Publishing to a real NATS JetStream."""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import AsyncIterator
from typing import Any

import nats
import pytest

from holdfast.errors import ResolverError
from holdfast.outbox.envelope import CloudEvent
from holdfast.outbox.publishers.nats import NatsPublisher
from holdfast.outbox.publishing import Unroutable
from tests.outbox.publishers.messages import a_message
from tests.services import nats as service


class Stream:
    """A stream of a test's own, and what is in it."""

    def __init__(self, client: Any, name: str) -> None:
        self.client = client
        self.name = name
        self.topic = f"{name}.created"

    @property
    def config(self) -> dict[str, Any]:
        return {"name": self.name, "subjects": [f"{self.name}.>"]}

    async def messages(self) -> list[Any]:
        """All of them, in order."""
        streams = self.client.jsm()
        state = (await streams.stream_info(self.name)).state
        return [await streams.get_msg(self.name, number) for number in range(1, state.last_seq + 1)]


@pytest.fixture
async def stream() -> AsyncIterator[Stream]:
    client = await nats.connect(service.server().url)
    yield Stream(client, f"s{uuid.uuid4().hex[:12]}")
    await client.close()


@pytest.fixture
async def publisher(stream: Stream) -> AsyncIterator[NatsPublisher]:
    publisher = NatsPublisher(service.server().url, ensure_stream=stream.config)
    yield publisher
    await publisher.close()


async def test_a_consumer_reads_the_envelope_that_was_published(stream: Stream, publisher: NatsPublisher):
    message = a_message(stream.topic)
    await publisher.publish(message)
    (got,) = await stream.messages()
    assert got.data == message.body
    assert got.headers["Nats-Msg-Id"] == message.id
    assert CloudEvent.from_headers(got.headers, got.data) == message.envelope


async def test_the_structured_form_holds_the_whole_envelope(stream: Stream):
    publisher = NatsPublisher(service.server().url, ensure_stream=stream.config, mode="structured")
    message = a_message(stream.topic)
    await publisher.publish(message)
    await publisher.close()
    (got,) = await stream.messages()
    assert CloudEvent.from_headers(got.headers, got.data) == message.envelope


async def test_a_repeated_message_is_stored_once(stream: Stream, publisher: NatsPublisher):
    message, other = a_message(stream.topic), a_message(stream.topic)
    for one in (message, message, other, message):
        await publisher.publish(one)
    assert [one.headers["Nats-Msg-Id"] for one in await stream.messages()] == [message.id, other.id]


async def test_a_subject_that_no_stream_takes_is_an_error_that_says_so():
    publisher = NatsPublisher(service.server().url)
    with pytest.raises(Unroutable, match=r"no JetStream stream takes the subject 'nowhere\.at\.all'; make one"):
        await publisher.publish(a_message("nowhere.at.all"))
    await publisher.close()


async def test_a_topic_that_is_no_subject_is_given_up(publisher: NatsPublisher):
    with pytest.raises(ResolverError, match="cannot take a message on 'two words'"):
        await publisher.publish(a_message("two words"))


async def test_a_stream_that_exists_is_left_as_it_is(stream: Stream):
    await stream.client.jsm().add_stream(**stream.config, max_msgs=10)
    publisher = NatsPublisher(service.server().url, ensure_stream={**stream.config, "max_msgs": 99})
    await publisher.publish(a_message(stream.topic))
    await publisher.close()
    assert (await stream.client.jsm().stream_info(stream.name)).config.max_msgs == 10


async def test_a_client_of_the_callers_is_used_and_stays_open(stream: Stream):
    publisher = NatsPublisher(stream.client, ensure_stream=stream.config)
    await publisher.publish(a_message(stream.topic))
    await publisher.close()
    assert stream.client.is_connected
    assert len(await stream.messages()) == 1


async def test_calls_at_the_same_time_are_each_acknowledged(stream: Stream, publisher: NatsPublisher):
    await asyncio.gather(*(publisher.publish(a_message(stream.topic)) for _ in range(50)))
    got = await stream.messages()
    assert len(got) == 50


async def test_a_server_that_cannot_be_reached_is_an_error_and_then_forgotten():
    server = service.private_server()
    server.stop()
    publisher = NatsPublisher(server.url, ensure_stream={"name": "S", "subjects": ["orders.>"]}, timeout=0.3)
    with pytest.raises((OSError, nats.errors.Error)):
        await publisher.publish(a_message())
    server.start()
    await publisher.publish(a_message())
    await publisher.close()
    server.stop()


def test_a_publisher_works_on_one_loop_after_another():
    server = service.private_server()
    publisher = NatsPublisher(server.url, ensure_stream={"name": "S", "subjects": ["orders.>"]})

    async def publish() -> None:
        await publisher.publish(a_message())
        await publisher.close()

    asyncio.run(publish())
    asyncio.run(publish())
    server.stop()
