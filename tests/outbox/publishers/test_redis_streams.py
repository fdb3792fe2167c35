"""Publishing to a real Redis."""

from __future__ import annotations

from collections.abc import AsyncIterator
from datetime import timedelta

import pytest
import redis
from redis.asyncio import Redis

from holdfast.errors import PolicyError
from holdfast.outbox.envelope import CloudEvent
from holdfast.outbox.publishers.redis_streams import RedisStreamsPublisher
from tests.outbox.publishers.messages import a_message
from tests.services import redis as service

TOPIC = "orders.created"


class Stream:
    """What is in the stream."""

    def __init__(self, url: str) -> None:
        self.url = url
        self.client = service.server().client(url)

    def entries(self) -> list[dict[str, str]]:
        rows = self.client.xrange(TOPIC)
        return [{name.decode(): value.decode() for name, value in fields.items()} for _, fields in rows]

    def events(self) -> list[CloudEvent]:
        return [
            CloudEvent.from_headers(fields, fields["data"].encode(), prefix="ce_", quoted=False)
            for fields in self.entries()
        ]


@pytest.fixture
def stream() -> Stream:
    return Stream(service.server().fresh())


@pytest.fixture
async def publisher(stream: Stream) -> AsyncIterator[RedisStreamsPublisher]:
    publisher = RedisStreamsPublisher(stream.url)
    yield publisher
    await publisher.close()


async def test_a_consumer_reads_the_envelope_that_was_published(stream: Stream, publisher: RedisStreamsPublisher):
    message = a_message(TOPIC)
    await publisher.publish(message)
    assert stream.events() == [message.envelope]
    assert stream.entries()[0]["ce_id"] == message.id


async def test_the_structured_form_has_the_id_as_a_field_too(stream: Stream):
    publisher = RedisStreamsPublisher(stream.url, mode="structured")
    message = a_message(TOPIC)
    await publisher.publish(message)
    await publisher.close()
    assert stream.entries()[0]["ce_id"] == message.id
    assert stream.events() == [message.envelope]


async def test_a_repeated_message_is_added_once(stream: Stream, publisher: RedisStreamsPublisher):
    message, other = a_message(TOPIC), a_message(TOPIC)
    for one in (message, message, other, message):
        await publisher.publish(one)
    assert stream.events() == [message.envelope, other.envelope]


async def test_what_is_remembered_of_a_message_ends_with_the_window(stream: Stream):
    publisher = RedisStreamsPublisher(stream.url, window=timedelta(minutes=5))
    message = a_message(TOPIC)
    await publisher.publish(message)
    (seen,) = stream.client.keys("{orders.created}:published:*")
    assert 0 < stream.client.pttl(seen) <= 300_000
    stream.client.delete(seen)
    await publisher.publish(message)
    await publisher.close()
    assert len(stream.events()) == 2


async def test_a_message_that_could_not_be_added_does_not_count_as_sent(
    stream: Stream, publisher: RedisStreamsPublisher
):
    stream.client.set(TOPIC, "no stream")
    message = a_message(TOPIC)
    with pytest.raises(redis.ResponseError, match="WRONGTYPE"):
        await publisher.publish(message)
    stream.client.delete(TOPIC)
    await publisher.publish(message)
    assert stream.events() == [message.envelope]


async def test_a_stream_is_kept_about_as_long_as_asked(stream: Stream):
    publisher = RedisStreamsPublisher(stream.url, max_length=100)
    for _ in range(400):
        await publisher.publish(a_message(TOPIC))
    await publisher.close()
    assert 100 <= stream.client.xlen(TOPIC) < 400


async def test_a_client_of_the_callers_is_used_and_stays_open(stream: Stream):
    client = Redis.from_url(stream.url)
    publisher = RedisStreamsPublisher(client)
    await publisher.publish(a_message(TOPIC))
    await publisher.close()
    assert await client.ping()
    await client.aclose()


async def test_a_restarted_server_is_published_to_again():
    server = service.private_server()
    publisher = RedisStreamsPublisher(server.url)
    message = a_message(TOPIC)
    await publisher.publish(message)
    server.stop()
    with pytest.raises(redis.ConnectionError):
        await publisher.publish(a_message(TOPIC))
    server.start()
    await publisher.publish(message)
    assert server.client().xlen(TOPIC) == 1
    await publisher.close()
    server.stop()


def test_a_window_or_length_that_cannot_work_is_refused():
    with pytest.raises(PolicyError, match="window must be above 0"):
        RedisStreamsPublisher("redis://localhost", window=timedelta(0))
    with pytest.raises(PolicyError, match="max_length must be at least 1, got 0"):
        RedisStreamsPublisher("redis://localhost", max_length=0)
