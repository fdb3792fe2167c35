"""The shop, put together."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

from fastapi import FastAPI
from sqlalchemy import func, select

from examples.orders.api import make_api
from examples.orders.broker import Broker, LocalBroker
from examples.orders.consumer import Shipping
from examples.orders.forgetting import register_erasure
from examples.orders.models import Base, Shipment
from examples.orders.outside import Bank, Newsletter, Warehouse
from examples.orders.saga import register_order_saga
from holdfast import Erasure, Holdfast


@dataclass
class Outside:
    """Everybody whom the shop calls."""

    warehouse: Warehouse = field(default_factory=lambda: Warehouse(anchor=2))
    bank: Bank = field(default_factory=lambda: Bank(declines_above=100_00))
    newsletter: Newsletter = field(default_factory=Newsletter)


class Shop:
    """`running` is the shop at work: a worker that makes the calls, and the consumer. `options` go to `Holdfast`."""

    def __init__(self, url: str, outside: Outside, broker: Broker | None = None, **options: Any) -> None:
        self.hold = Holdfast(url, **options)
        Base.metadata.create_all(self.hold.works.engine)
        self.broker: Broker = LocalBroker() if broker is None else broker
        self.hold.publishers.register(self.broker.publisher)
        register_order_saga(self.hold, outside.warehouse, outside.bank)
        self.erasure: Erasure = register_erasure(self.hold, outside.newsletter)
        self.shipping = Shipping(self.hold)
        self.api: FastAPI = make_api(self.hold, self.erasure)

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """In a real shop the worker is a process of its own (`holdfast worker --app …`), and so is the consumer."""
        worker, consumer = self.hold.worker(), asyncio.create_task(self.broker.deliver(self.shipping.handle))
        working = asyncio.create_task(worker.arun())
        try:
            yield
        finally:
            worker.stop()
            await working
            consumer.cancel()
            await asyncio.wait([consumer])
            await self.hold.publishers.close()

    def shipped(self) -> int:
        with self.hold.sessions() as session:
            return session.scalar(select(func.count()).select_from(Shipment)) or 0

    def close(self) -> None:
        self.hold.close()
