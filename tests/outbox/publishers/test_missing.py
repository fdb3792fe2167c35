"""A publisher whose client is not installed says how to install it."""

from __future__ import annotations

import sys
from collections.abc import Callable

import pytest

from holdfast.errors import MissingExtra
from holdfast.outbox.publishers.kafka import KafkaPublisher
from holdfast.outbox.publishers.nats import NatsPublisher
from holdfast.outbox.publishers.rabbitmq import RabbitPublisher
from holdfast.outbox.publishers.redis_streams import RedisStreamsPublisher
from holdfast.outbox.publishers.webhook import WebhookPublisher


@pytest.mark.parametrize(
    ("package", "extra", "make"),
    [
        ("nats", "nats", lambda: NatsPublisher("nats://localhost")),
        ("redis.asyncio", "redis", lambda: RedisStreamsPublisher("redis://localhost")),
        ("aio_pika", "rabbitmq", lambda: RabbitPublisher("amqp://localhost")),
        ("confluent_kafka", "kafka", lambda: KafkaPublisher("localhost:9092")),
        ("httpx", "httpx", lambda: WebhookPublisher("https://shop.example/", "x" * 32)),
    ],
)
def test_a_missing_client_is_named_with_the_line_that_installs_it(
    monkeypatch: pytest.MonkeyPatch, package: str, extra: str, make: Callable[[], object]
):
    monkeypatch.setitem(sys.modules, package, None)
    with pytest.raises(MissingExtra, match=rf"pip install 'holdfast\[{extra}\]'"):
        make()
