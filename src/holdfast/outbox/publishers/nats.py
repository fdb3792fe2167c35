"""Publishing to NATS JetStream, which drops a message whose id it has seen within the stream's duplicate window."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping, Sequence
from typing import Any, Final

from holdfast.errors import MissingExtra, ResolverError
from holdfast.outbox.publishers.lazy import Lazy
from holdfast.outbox.publishing import Message, Mode, PublishError, Unroutable

MESSAGE_ID: Final = "Nats-Msg-Id"
_log: Final = logging.getLogger("holdfast")


class NatsPublisher:
    """The topic is the subject, and a stream must take it; the message is published when the stream has stored it.

    `server` is a URL, several, or a connected client of nats-py, which stays the caller's to close. `ensure_stream`
    are fields of a `StreamConfig`, such as `{"name": "ORDERS", "subjects": ["orders.>"]}`: made if no stream has the
    name, and left as it is if one has. `options` go to `nats.connect`.
    """

    def __init__(
        self,
        server: Any,
        *,
        name: str = "nats",
        ensure_stream: Mapping[str, Any] | None = None,
        mode: Mode = "binary",
        timeout: float = 5.0,
        **options: Any,
    ) -> None:
        self._nats = _nats()
        self.name = name
        self._stream = ensure_stream
        self._mode: Mode = mode
        self._timeout = timeout
        self._options = options
        self._given = None if isinstance(server, str | Sequence) else server
        self._servers = [server] if isinstance(server, str) else server
        self._lazy = Lazy(self._connect, self._end, lambda client: self._given is not None or not client.is_closed)

    async def publish(self, message: Message) -> None:
        """Raises Unroutable when no stream takes the topic, ResolverError for one that is no subject."""
        client = await self._lazy.get()
        if not client.is_connected:
            # The client would keep the message for later, when nobody waits for its answer any longer.
            raise PublishError("not connected to NATS; the client is connecting anew")
        headers, kind, body = message.form(self._mode)
        headers = {**headers, "content-type": kind, MESSAGE_ID: message.id}
        try:
            await client.jetstream(timeout=self._timeout).publish(message.topic, body, headers=headers)
        except self._nats.js.errors.NoStreamResponseError:
            fix = "make one, or give ensure_stream"
            raise Unroutable(f"no JetStream stream takes the subject {message.topic!r}; {fix}") from None
        except (self._nats.errors.BadSubjectError, self._nats.errors.MaxPayloadError) as error:
            raise ResolverError(f"NATS cannot take a message on {message.topic!r}: {error}") from error

    async def close(self) -> None:
        await self._lazy.close()

    async def _connect(self) -> Any:
        client = self._given
        if client is None:
            client = self._nats.NATS()
            usual = {"max_reconnect_attempts": -1, "reconnect_time_wait": 0.5, "ping_interval": 10, "error_cb": _note}
            try:
                # Without a limit of its own it would try for ever, and nobody would see that.
                async with asyncio.timeout(self._timeout):
                    await client.connect(self._servers, **{**usual, **self._options})
            except BaseException:
                await client.close()
                raise
        if self._stream is not None:
            await self._ensure(client.jsm(), self._stream)
        return client

    async def _ensure(self, streams: Any, wanted: Mapping[str, Any]) -> None:
        try:
            await streams.stream_info(wanted["name"])
        except self._nats.js.errors.NotFoundError:
            await streams.add_stream(**wanted)

    async def _end(self, client: Any) -> None:
        if self._given is None:
            await client.close()


async def _note(error: Exception) -> None:
    _log.debug("NATS: %s", error)


def _nats() -> Any:
    try:
        import nats
        import nats.js.errors
    except ImportError as error:
        raise MissingExtra("publishing to NATS needs nats-py; run: pip install 'holdfast[nats]'") from error
    return nats
