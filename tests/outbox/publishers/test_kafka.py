"""Publishing to the mock cluster that is built into Kafka's own client."""

from __future__ import annotations

import asyncio
import time
import uuid
from collections.abc import AsyncIterator
from typing import Any

import pytest
from confluent_kafka import OFFSET_BEGINNING, Consumer, Producer, TopicPartition

from holdfast.errors import ResolverError
from holdfast.outbox.envelope import CloudEvent
from holdfast.outbox.publishers.kafka import KafkaPublisher
from holdfast.outbox.publishing import PublishError
from tests.outbox.publishers.messages import a_message


class Cluster:
    """A mock cluster, which lives in a client and as long as that."""

    def __init__(self) -> None:
        self._client = Producer({"test.mock.num.brokers": 1, "bootstrap.servers": "ignored", "log_level": 0})
        self.servers = ",".join(str(one).split("/")[0] for one in self._client.list_topics().brokers.values())
        self.topic = f"t{uuid.uuid4().hex[:12]}"

    def records(self, number: int, patience: float = 20) -> list[Any]:
        """The first so many records of the topic."""
        consumer = Consumer({"bootstrap.servers": self.servers, "group.id": uuid.uuid4().hex, "log_level": 0})
        partitions = consumer.list_topics(self.topic).topics[self.topic].partitions
        consumer.assign([TopicPartition(self.topic, one, OFFSET_BEGINNING) for one in partitions])
        found: list[Any] = []
        give_up = time.monotonic() + patience
        while len(found) < number and time.monotonic() < give_up:
            record = consumer.poll(0.5)
            if record is not None and record.error() is None:
                found.append(record)
        consumer.close()
        return found


@pytest.fixture(scope="module")
def cluster() -> Cluster:
    return Cluster()


@pytest.fixture
async def publisher(cluster: Cluster) -> AsyncIterator[KafkaPublisher]:
    cluster.topic = f"t{uuid.uuid4().hex[:12]}"
    publisher = KafkaPublisher(cluster.servers)
    yield publisher
    await publisher.close()


def event_of(record: Any) -> CloudEvent:
    headers = {name: value.decode() for name, value in record.headers()}
    return CloudEvent.from_headers(headers, record.value(), prefix="ce_", quoted=False)


async def test_a_consumer_reads_the_envelope_that_was_published(cluster: Cluster, publisher: KafkaPublisher):
    message = a_message(cluster.topic)
    await publisher.publish(message)
    (record,) = cluster.records(1)
    assert event_of(record) == message.envelope
    assert record.key() == b"order-7"
    assert dict(record.headers())["ce_id"] == message.id.encode()


async def test_the_structured_form_holds_the_whole_envelope(cluster: Cluster, publisher: KafkaPublisher):
    structured = KafkaPublisher(cluster.servers, mode="structured")
    message = a_message(cluster.topic, ordering_key=None)
    await structured.publish(message)
    await structured.close()
    (record,) = cluster.records(1)
    assert event_of(record) == message.envelope
    assert record.key() is None


async def test_messages_of_a_key_keep_their_order(cluster: Cluster, publisher: KafkaPublisher):
    messages = [a_message(cluster.topic, {"number": number}) for number in range(20)]
    for message in messages:
        await publisher.publish(message)
    records = cluster.records(20)
    assert len({record.partition() for record in records}) == 1
    assert [event_of(record).id for record in records] == [message.id for message in messages]


async def test_a_repeated_message_has_the_same_id_for_the_consumer_to_see(cluster: Cluster, publisher: KafkaPublisher):
    message = a_message(cluster.topic)
    await publisher.publish(message)
    await publisher.publish(message)
    assert [event_of(record).id for record in cluster.records(2)] == [message.id, message.id]


async def test_waiting_for_the_report_does_not_block_the_loop(cluster: Cluster, publisher: KafkaPublisher):
    beats = 0

    async def beat() -> None:
        nonlocal beats
        while True:
            beats += 1
            await asyncio.sleep(0)

    beating = asyncio.ensure_future(beat())
    await asyncio.gather(*(publisher.publish(a_message(cluster.topic)) for _ in range(50)))
    beating.cancel()
    assert beats > 10


async def test_a_message_that_is_too_large_is_given_up(cluster: Cluster, publisher: KafkaPublisher):
    with pytest.raises(ResolverError, match="MSG_SIZE_TOO_LARGE"):
        await publisher.publish(a_message(cluster.topic, "x" * 2_000_000))


async def test_a_server_that_cannot_be_reached_is_an_error():
    publisher = KafkaPublisher("127.0.0.1:9", timeout=0.3)
    with pytest.raises(PublishError, match="_MSG_TIMED_OUT"):
        await publisher.publish(a_message())
    await publisher.close()


async def test_a_producer_of_the_callers_is_used(cluster: Cluster, publisher: KafkaPublisher):
    producer = Producer({"bootstrap.servers": cluster.servers, "log_level": 0})
    lent = KafkaPublisher(producer)
    await lent.publish(a_message(cluster.topic))
    await lent.close()
    assert len(cluster.records(1)) == 1


def test_a_publisher_works_on_one_loop_after_another(cluster: Cluster):
    cluster.topic = f"t{uuid.uuid4().hex[:12]}"
    publisher = KafkaPublisher(cluster.servers)

    async def publish() -> None:
        await publisher.publish(a_message(cluster.topic))
        await publisher.close()

    asyncio.run(publish())
    asyncio.run(publish())
    assert len(cluster.records(2)) == 2
