"""Guarded transports for httpx2.

client = httpx2.Client(transport=GuardTransport(http_guard("api", Retry(), Breaker(), Timeout(total=10))))
"""

from __future__ import annotations

from typing import Any, ClassVar

from holdfast.integrations._exchange import Rotate, http_guard
from holdfast.integrations._httpx_transport import AsyncHttpxTransport, SyncHttpxTransport, TimedBody

try:
    import httpx2
except ImportError as missing:
    raise ImportError("holdfast.integrations.httpx2 needs httpx2: pip install 'holdfast[httpx2]'") from missing

__all__ = ["AsyncGuardTransport", "GuardTransport", "Rotate", "http_guard"]


class _Body(TimedBody, httpx2.SyncByteStream, httpx2.AsyncByteStream):
    pass


class GuardTransport(SyncHttpxTransport[httpx2.BaseTransport], httpx2.BaseTransport):
    """Runs every request of a Client as one guarded call. See `holdfast.integrations.httpx`, whose twin this is."""

    library: ClassVar[Any] = httpx2
    body = _Body


class AsyncGuardTransport(AsyncHttpxTransport[httpx2.AsyncBaseTransport], httpx2.AsyncBaseTransport):
    """The same for an AsyncClient, on asyncio."""

    library: ClassVar[Any] = httpx2
    body = _Body
