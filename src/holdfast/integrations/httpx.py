"""Guarded transports for httpx.

client = httpx.Client(transport=GuardTransport(http_guard("api", Retry(), Breaker(), Timeout(total=10))))
"""

from __future__ import annotations

from typing import Any, ClassVar

from holdfast.integrations._exchange import Rotate, http_guard
from holdfast.integrations._httpx_transport import AsyncHttpxTransport, SyncHttpxTransport, TimedBody

try:
    import httpx
except ImportError as missing:
    raise ImportError("holdfast.integrations.httpx needs httpx: pip install 'holdfast[httpx]'") from missing

__all__ = ["AsyncGuardTransport", "GuardTransport", "Rotate", "http_guard"]


class _Body(TimedBody, httpx.SyncByteStream, httpx.AsyncByteStream):
    pass


class GuardTransport(SyncHttpxTransport[httpx.BaseTransport], httpx.BaseTransport):
    """Runs every request of a Client as one guarded call.

    Each attempt goes to an endpoint of `pool` (or of the guard's Failover): another server, or through another proxy,
    as `rotate` says. With servers, mount the transport on the one name that they share. `wrapped` makes the
    connections; those through a proxy come from `proxied`, which gets the proxy's URL.

    A body is read after the guarded call, still under the deadline of its attempt. With `buffer` it is read inside,
    so that one that breaks off is retried; leave that off for streams.
    """

    library: ClassVar[Any] = httpx
    body = _Body


class AsyncGuardTransport(AsyncHttpxTransport[httpx.AsyncBaseTransport], httpx.AsyncBaseTransport):
    """The same for an AsyncClient, on asyncio."""

    library: ClassVar[Any] = httpx
    body = _Body
