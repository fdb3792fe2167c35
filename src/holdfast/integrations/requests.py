"""A guarded adapter for requests.

session = requests.Session()
session.mount("https://", GuardAdapter(http_guard("api", Retry(), Breaker(), Timeout(total=10))))
"""

from __future__ import annotations

from typing import Any

from holdfast.failover.pool import EndpointPool
from holdfast.guard.driver import drive
from holdfast.guard.guard import Guard
from holdfast.integrations._exchange import Exchange, Rotate, Route, clamped, http_guard, is_small_failure, moved

try:
    from requests import PreparedRequest, Response
    from requests.adapters import DEFAULT_POOLBLOCK, DEFAULT_POOLSIZE, HTTPAdapter
    from requests.utils import rewind_body
    from urllib3.util import Timeout
except ImportError as missing:
    raise ImportError("holdfast.integrations.requests needs requests: pip install 'holdfast[requests]'") from missing

__all__ = ["GuardAdapter", "Rotate", "http_guard"]


class GuardAdapter(HTTPAdapter):
    """Runs every request as one guarded call.

    Each attempt goes to an endpoint of `pool` (or of the guard's Failover): another server, or through another proxy,
    as `rotate` says. With servers, mount the adapter on the one name that they share.

    A body that the caller does not stream is read inside the call: one that breaks off is retried, and the total
    timeout covers it. requests has no way to stop a read that trickles; its result is late then, and a GuardTimeout.
    """

    def __init__(
        self,
        guard: Guard,
        *,
        pool: EndpointPool | None = None,
        rotate: Rotate | str = Rotate.SERVERS,
        pool_connections: int = DEFAULT_POOLSIZE,
        pool_maxsize: int = DEFAULT_POOLSIZE,
        pool_block: bool = DEFAULT_POOLBLOCK,
    ) -> None:
        # No max_retries: urllib3's own retries below the guard's would multiply.
        super().__init__(pool_connections, pool_maxsize, pool_block=pool_block)
        self._route = Route(guard, pool, rotate)

    def send(
        self,
        request: PreparedRequest,
        stream: bool = False,
        timeout: Any = None,
        verify: bool | str = True,
        cert: Any = None,
        proxies: Any = None,
    ) -> Response:
        repeatable = _is_rewindable(request) or request.body is None or isinstance(request.body, str | bytes)
        exchange = Exchange(self._route, False, request.method, request.headers, repeatable)
        options = {"stream": stream, "timeout": timeout, "verify": verify, "cert": cert, "proxies": proxies}
        response: Response = drive(exchange.run(lambda: self._attempt(exchange, request, options)))
        return response

    async def _attempt(self, exchange: Exchange, request: PreparedRequest, options: dict[str, Any]) -> Response:
        server, proxy = self._route.server, self._route.proxy
        if _is_rewindable(request):
            rewind_body(request)
        sent = request
        if server is not None:
            sent = request.copy()
            sent.url = moved(request.url or "", server)
        if proxy is not None:
            options = {**options, "proxies": {"http": proxy, "https": proxy}}
        response = super().send(sent, **{**options, "timeout": _clamped(options["timeout"])})
        await exchange.open(response)
        # Cookies and redirects belong to the name that the caller used.
        response.request, response.url = request, request.url or ""
        if not options["stream"] or is_small_failure(response):
            _ = response.content  # requests keeps what was read
        return response


def _is_rewindable(request: PreparedRequest) -> bool:
    """Whether the body is a file; requests notes where it began."""
    return isinstance(getattr(request, "_body_position", None), int)


def _clamped(timeout: Any) -> Any:
    """The caller's timeout under what is left of the guard's time."""
    left = clamped(None)
    if left is None:
        return timeout
    if isinstance(timeout, Timeout):
        bounded = timeout.clone()
        bounded.total = min(left, bounded.total) if isinstance(bounded.total, int | float) else left
        return bounded
    connect, read = timeout if isinstance(timeout, tuple) else (timeout, timeout)
    return Timeout(total=left, connect=connect, read=read)
