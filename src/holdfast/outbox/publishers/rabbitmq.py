"""Publishing to RabbitMQ, with publisher confirms. It knows no repeated messages: consumers tell them by their id."""

from __future__ import annotations

from typing import Any, Final, NamedTuple

from holdfast.errors import MissingExtra
from holdfast.outbox.publishers.lazy import Lazy
from holdfast.outbox.publishing import Message, Mode, Unroutable

PREFIX: Final = "cloudEvents_"


class _Way(NamedTuple):
    connection: Any
    channel: Any
    exchange: Any


class RabbitPublisher:
    """The topic is the routing key. A message is persistent, and published when the broker has confirmed it.

    `server` is a URL or a connection of aio-pika, which stays the caller's to close. Without `exchange`, the topic is
    the name of a queue. An exchange must exist, unless `ensure_exchange` gives the type (`topic`, `fanout`, …) of a
    durable one to be made. `options` go to `aio_pika.connect`.
    """

    def __init__(
        self,
        server: Any,
        *,
        name: str = "rabbitmq",
        exchange: str = "",
        ensure_exchange: str | None = None,
        mode: Mode = "binary",
        timeout: float = 5.0,
        **options: Any,
    ) -> None:
        self._pika = _pika()
        self.name = name
        self._server = server
        self._exchange = exchange
        self._ensure = ensure_exchange
        self._mode: Mode = mode
        self._timeout = timeout
        self._options = options
        self._lazy = Lazy(self._connect, self._end, _is_open)

    async def publish(self, message: Message) -> None:
        """Raises Unroutable when no queue would get the message."""
        way = await self._lazy.get()
        headers, kind, body = message.form(self._mode, prefix=PREFIX, quoted=False)
        sent = self._pika.Message(
            body,
            headers=headers,
            content_type=kind,
            message_id=message.id,
            type=message.envelope.type,
            timestamp=message.envelope.time,
            delivery_mode=self._pika.DeliveryMode.PERSISTENT,
        )
        try:
            await way.exchange.publish(sent, routing_key=message.topic, mandatory=True, timeout=self._timeout)
        except self._pika.exceptions.PublishError:
            where = f"exchange {self._exchange!r}" if self._exchange else "default exchange"
            raise Unroutable(f"no queue of the {where} takes the routing key {message.topic!r}; bind one") from None

    async def close(self) -> None:
        await self._lazy.close()

    async def _connect(self) -> _Way:
        mine = isinstance(self._server, str)
        connection = self._server
        if mine:
            connection = await self._pika.connect(self._server, timeout=self._timeout, **self._options)
        try:
            channel = await connection.channel(publisher_confirms=True, on_return_raises=True)
            return _Way(connection, channel, await self._open_exchange(channel))
        except BaseException:
            if mine:
                await connection.close()
            raise

    async def _open_exchange(self, channel: Any) -> Any:
        if not self._exchange:
            return channel.default_exchange
        if self._ensure is not None:
            return await channel.declare_exchange(self._exchange, self._ensure, durable=True, timeout=self._timeout)
        return await channel.declare_exchange(self._exchange, passive=True, timeout=self._timeout)

    async def _end(self, way: _Way) -> None:
        await (way.connection if isinstance(self._server, str) else way.channel).close()


def _is_open(way: _Way) -> bool:
    return not way.connection.is_closed and not way.channel.is_closed


def _pika() -> Any:
    try:
        import aio_pika
    except ImportError as error:
        raise MissingExtra("publishing to RabbitMQ needs aio-pika; run: pip install 'holdfast[rabbitmq]'") from error
    return aio_pika
