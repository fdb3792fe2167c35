"""Two brokers: one in this process, and NATS. A broker is a publisher, and `deliver` hands a consumer its messages."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any, Final, Protocol

from examples.orders.ordering import BROKER
from holdfast import CloudEvent, Message, Publisher

Handle = Callable[[CloudEvent], object]
STREAM: Final[dict[str, Any]] = {"name": "ORDERS", "subjects": ["orders.>"]}


class Broker(Protocol):
    publisher: Publisher
    copies: int
    """How often it delivers each message when nothing goes wrong."""

    async def deliver(self, handle: Handle) -> None:
        """Hand over one message after the other, until this is cancelled."""
        ...


class LocalBroker:
    """Delivers every message twice, as any broker does on a bad day."""

    name = BROKER
    copies = 2

    def __init__(self) -> None:
        self.publisher: Publisher = self
        self._waiting: asyncio.Queue[CloudEvent] = asyncio.Queue()

    async def publish(self, message: Message) -> None:
        for _ in range(self.copies):
            self._waiting.put_nowait(message.envelope)

    async def deliver(self, handle: Handle) -> None:
        while True:
            await asyncio.to_thread(handle, await self._waiting.get())


class NatsBroker:
    """JetStream. It drops repeated messages by their ids for two minutes; the inbox does for a week."""

    copies = 1

    def __init__(self, url: str) -> None:
        from holdfast.outbox.publishers.nats import NatsPublisher

        self._url = url
        self.publisher: Publisher = NatsPublisher(url, name=BROKER, ensure_stream=STREAM)

    async def deliver(self, handle: Handle) -> None:
        import nats

        async with await nats.connect(self._url) as client:
            stream = client.jetstream()
            await stream.add_stream(**STREAM)
            messages = await stream.subscribe("orders.>", durable="shipping", manual_ack=True)
            async for one in messages.messages:
                headers = one.headers or {}
                event = CloudEvent.from_headers(headers, one.data, content_type=headers["content-type"])
                await asyncio.to_thread(handle, event)
                await one.ack()  # only now: a consumer that dies before is told again
