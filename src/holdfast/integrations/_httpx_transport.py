"""What the transports for httpx and httpx2 share: the attempt itself, and bodies that are read after it."""

from __future__ import annotations

import math
from collections.abc import AsyncIterator, Callable, Iterator
from typing import Any, ClassVar, Generic, TypeVar

from holdfast.core.context import current_context
from holdfast.core.deadline import Deadline
from holdfast.errors import GuardTimeout
from holdfast.failover.pool import EndpointPool
from holdfast.guard.driver import CUT, drive
from holdfast.guard.guard import Guard
from holdfast.integrations._exchange import SHORTEST_WAIT_S, Exchange, Rotate, Route, clamped, is_small_failure, moved

W = TypeVar("W")


class TimedBody:
    """A response's body that is read after the guarded call, but still under the deadline of its attempt."""

    def __init__(self, stream: Any, deadline: Deadline, timeouts: dict[str, float], guard: str) -> None:
        self._stream = stream
        self._deadline = deadline
        self._timeouts = timeouts
        self._guard = guard
        self.cut = 0  # counted by the driver

    def __iter__(self) -> Iterator[bytes]:
        self._clamp()
        for chunk in self._stream:
            if self._deadline.expired():
                raise self._too_late()
            yield chunk

    async def __aiter__(self) -> AsyncIterator[bytes]:
        from holdfast.guard.adriver import AsyncDriver

        self._clamp()
        driver, chunks = AsyncDriver(self._deadline.clock), aiter(self._stream)
        while True:
            chunk: Any = await driver.bounded(lambda: anext(chunks, None), self._deadline.at, self)
            if chunk is CUT:
                raise self._too_late()
            if chunk is None:
                return
            yield chunk

    def close(self) -> None:
        self._stream.close()

    async def aclose(self) -> None:
        await self._stream.aclose()

    def _clamp(self) -> None:
        # The library looks at this when it begins to read.
        self._timeouts["read"] = max(SHORTEST_WAIT_S, self._deadline.clamp(self._timeouts["read"]))

    def _too_late(self) -> GuardTimeout:
        return GuardTimeout(self._guard, None, "the time ran out while the response's body was read")


class HttpxTransport(Generic[W]):
    """What the transports for httpx and httpx2 have in common, in both colours. `library` is the module they serve."""

    library: ClassVar[Any]
    body: ClassVar[type[TimedBody]]
    is_async: ClassVar[bool]

    def __init__(
        self,
        guard: Guard,
        *,
        wrapped: W | None = None,
        pool: EndpointPool | None = None,
        rotate: Rotate | str = Rotate.SERVERS,
        proxied: Callable[[str], W] | None = None,
        buffer: bool = False,
    ) -> None:
        self._route = Route(guard, pool, rotate)
        self._tls: Any = None
        self._wrapped: Any = self._connector() if wrapped is None else wrapped
        self._connect = proxied or (lambda proxy: self._connector(proxy=proxy))
        self._proxied: dict[str, Any] = {}
        self._buffer = buffer

    @property
    def transports(self) -> list[Any]:
        """Those that connect: the wrapped one, and one for each proxy used so far."""
        return [self._wrapped, *self._proxied.values()]

    def _connector(self, **options: Any) -> Any:
        if self._tls is None:
            self._tls = self.library.create_ssl_context()  # one for all proxies: each costs milliseconds and a megabyte
        made = self.library.AsyncHTTPTransport if self.is_async else self.library.HTTPTransport
        return made(verify=self._tls, **options)

    async def _exchange(self, request: Any) -> Any:
        repeatable = self._is_repeatable(request.stream)
        exchange = Exchange(self._route, self.is_async, request.method, request.headers, repeatable)
        return await exchange.run(lambda: self._attempt(exchange, request))

    async def _attempt(self, exchange: Exchange, request: Any) -> Any:
        transport, sent = self._through(self._route.proxy), self._addressed(request, self._route.server)
        response = await transport.handle_async_request(sent) if self.is_async else transport.handle_request(sent)
        await exchange.open(response)
        if self._buffer or is_small_failure(response):
            response.stream = self.library.ByteStream(await self._read(response.stream))
        else:
            response.stream = self._timed(response.stream, sent)
        return response

    def _through(self, proxy: str | None) -> Any:
        if proxy is None:
            return self._wrapped
        if proxy not in self._proxied:
            # Two threads may both make one; the loser's has no connections yet.
            self._proxied.setdefault(proxy, self._connect(proxy))
        return self._proxied[proxy]

    def _addressed(self, request: Any, server: str | None) -> Any:
        """The request as this attempt sends it: to the server whose turn it is, within the time that is left."""
        timeouts = request.extensions.get("timeout", {})
        sent = self.library.Request(
            request.method,
            request.url if server is None else moved(str(request.url), server),
            headers=request.headers,
            stream=request.stream,
            extensions={
                **request.extensions,
                "timeout": {which: clamped(timeouts.get(which)) for which in ("connect", "read", "write", "pool")},
            },
        )
        if sent.headers.get("Host") == request.url.netloc.decode():  # and not a name that the caller chose
            sent.headers["Host"] = sent.url.netloc.decode()
        return sent

    async def _read(self, stream: Any) -> bytes:
        if not self.is_async:
            try:
                return b"".join(stream)
            finally:
                stream.close()
        try:
            return b"".join([chunk async for chunk in stream])
        finally:
            await stream.aclose()

    def _timed(self, stream: Any, sent: Any) -> Any:
        ctx = current_context()
        if ctx is None or ctx.deadline.at == math.inf:
            return stream
        return self.body(stream, ctx.deadline, sent.extensions["timeout"], self._route.guard.name)

    def _is_repeatable(self, stream: Any) -> bool:
        if isinstance(stream, self.library.ByteStream):
            return True
        if not hasattr(stream, "fields"):  # a multipart form, which rewinds its files itself
            return False
        files = [field.file for field in stream.fields if hasattr(field, "file")]
        return all(isinstance(file, str | bytes) or getattr(file, "seekable", bool)() for file in files)


class SyncHttpxTransport(HttpxTransport[W]):
    is_async = False

    def handle_request(self, request: Any) -> Any:
        return drive(self._exchange(request))

    def close(self) -> None:
        for transport in self.transports:
            transport.close()


class AsyncHttpxTransport(HttpxTransport[W]):
    is_async = True

    async def handle_async_request(self, request: Any) -> Any:
        return await self._exchange(request)

    async def aclose(self) -> None:
        for transport in self.transports:
            await transport.aclose()
