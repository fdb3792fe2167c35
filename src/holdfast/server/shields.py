"""What is kept out, whoever asks: foreign names, other sites' requests, too much, too often. One class for each.

`protect` puts them in order. Headers are the outermost, so that every answer has them, also one about a failure.
"""

from __future__ import annotations

import hmac
import math
from collections.abc import Iterable, Sequence
from typing import Any, Final
from urllib.parse import urlsplit

from fastapi import FastAPI
from starlette.datastructures import Headers
from starlette.requests import HTTPConnection
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from holdfast.access.access import Access
from holdfast.access.rights import Identity
from holdfast.access.serving import Limits as Limits
from holdfast.access.throttle import Throttle
from holdfast.core.addresses import is_loopback, neighbourhood
from holdfast.core.clock import SYSTEM_CLOCK, Clock
from holdfast.server.callers import Callers
from holdfast.server.crowd import CrowdShield
from holdfast.server.identity import Identifier, Identify, path_of
from holdfast.server.problems import answer

CSRF_HEADER: Final = "X-Holdfast-CSRF"
SAFE: Final = frozenset({"GET", "HEAD", "OPTIONS"})
OWN_HOSTS: Final = ("127.0.0.1", "localhost", "[::1]")
ANY_HOST: Final = "*"
HEADERS: Final = {
    "Content-Security-Policy": (
        "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; font-src 'self'; "
        "connect-src 'self'; base-uri 'none'; form-action 'self'; frame-ancestors 'none'"
    ),
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Permissions-Policy": "camera=(), display-capture=(), geolocation=(), microphone=(), payment=(), usb=()",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "X-Frame-Options": "DENY",
}
_ADDED: Final = tuple((name.lower().encode(), value.encode()) for name, value in HEADERS.items())


def protect(
    app: FastAPI,
    access: Access,
    *,
    required: bool | None = None,
    hosts: Sequence[str] = (),
    identify: Identify | None = None,
    https: bool | None = None,
    limits: Limits | None = None,
    shares: bool = True,
) -> None:
    """Say who asks, and keep out what nobody should ask. `shares`: see CrowdShield; not with a program's own hooks,
    which may look at what we do not know of.
    """
    limits, clock, callers = Limits() if limits is None else limits, access.clock, Callers()
    # The last one added is the first one asked.
    app.add_middleware(SizeShield, most=limits.body_bytes)
    app.add_middleware(CsrfShield)
    app.add_middleware(RateShield, reads=Throttle(*limits.reads), changes=Throttle(*limits.changes), clock=clock)
    app.add_middleware(
        Identifier, access=access, required=required, identify=identify, https=https, callers=callers, clock=clock
    )
    app.add_middleware(
        CrowdShield, at_once=limits.at_once, waiting=limits.waiting, patience_s=limits.patience_s, callers=callers,
        shares=shares and identify is None, clock=clock,
    )  # fmt: skip
    app.add_middleware(AddressShield, throttle=Throttle(*limits.address), clock=clock)
    app.add_middleware(HostShield, hosts=hosts)
    made = app.build_middleware_stack

    # Starlette answers what nobody has caught outside of all that is added to it.
    def build() -> ASGIApp:
        return HeaderShield(made())

    app.build_middleware_stack = build  # type: ignore[method-assign]


class HeaderShield:
    """Tells browsers to load, embed and keep nothing that they should not."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        is_kept = not path_of(scope).startswith("/api")

        async def send_with_headers(message: Message) -> None:
            if message["type"] == "http.response.start":
                given = [(name, value) for name, value in message["headers"] if is_kept or name != b"cache-control"]
                names = {name for name, _ in given}
                given += [added for added in _ADDED if added[0] not in names]  # a route may be stricter
                if not is_kept:
                    given.append((b"cache-control", b"no-store"))
                message["headers"] = given
            await send(message)

        await self._app(scope, receive, send_with_headers)


class HostShield:
    """Refuses names that are not the server's: a page whose name was made to lead here is not let in."""

    def __init__(self, app: ASGIApp, hosts: Iterable[str] = ()) -> None:
        self._app = app
        self._hosts = {_bare(host) for host in (*OWN_HOSTS, *hosts)}

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http" and ANY_HOST not in self._hosts:
            given = [value for name, value in scope["headers"] if name == b"host"]
            if len(given) != 1 or _bare(given[0].decode("latin-1")) not in self._hosts:
                said = "the server is not known by this name; name it when it is started: --allow-host"
                await answer(400, "unknown_host", said)(scope, receive, send)
                return
        await self._app(scope, receive, send)


class AddressShield:
    """So many requests from one other machine, which may have a whole IPv6 network, before anything is looked up."""

    def __init__(self, app: ASGIApp, throttle: Throttle, clock: Clock = SYSTEM_CLOCK) -> None:
        self._app = app
        self._throttle = throttle
        self._clock = clock

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        address = _address(scope)
        is_bounded = scope["type"] == "http" and not is_loopback(address)
        if is_bounded and (wait := self._throttle.take(neighbourhood(address), self._clock.monotonic())):
            await _too_many(wait)(scope, receive, send)
            return
        await self._app(scope, receive, send)


class RateShield:
    """So many requests from one identity, or from one address that nobody is known at."""

    def __init__(self, app: ASGIApp, reads: Throttle, changes: Throttle, clock: Clock = SYSTEM_CLOCK) -> None:
        self._app = app
        self._reads = reads
        self._changes = changes
        self._clock = clock

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        identity = _identity(scope)
        if scope["type"] == "http" and (identity is None or identity.via != "loopback"):
            throttle = self._reads if scope["method"] in SAFE else self._changes
            key = f"address {neighbourhood(_address(scope))}" if identity is None else f"{identity.via} {identity.name}"
            if wait := throttle.take(key, self._clock.monotonic()):
                await _too_many(wait)(scope, receive, send)
                return
        await self._app(scope, receive, send)


class CsrfShield:
    """Refuses changes that another site's page could have asked a browser for.

    A token is sent by a program that was told to; anything else a browser may add by itself.
    """

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http" and scope["method"] not in SAFE:
            request, identity = HTTPConnection(scope), _identity(scope)
            is_token = identity is not None and identity.via == "token"
            if not is_token and not _is_own_origin(request):
                await answer(403, "foreign_origin", "another site's page asked for this")(scope, receive, send)
                return
            # Nobody may change anything; who signs in is asked for the header by the route.
            if identity is not None and not is_token and not _repeats(request, scope["state"]["csrf"]):
                said = f"send the header {CSRF_HEADER} with the csrf value of GET /api/v1/session, or use a token"
                await answer(403, "csrf", said)(scope, receive, send)
                return
        await self._app(scope, receive, send)


class SizeShield:
    """Refuses bodies above a size, also where nobody has said how long they are."""

    def __init__(self, app: ASGIApp, most: int) -> None:
        self._app = app
        self._most = most

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http" or scope["method"] in SAFE:
            await self._app(scope, receive, send)
            return
        said = Headers(scope=scope).get("content-length", "0")
        messages = None if said.isdecimal() and int(said) > self._most else await self._read(receive)
        if messages is None:
            text = f"the request is larger than {self._most} bytes; send less at a time"
            await answer(413, "too_large", text, headers={"Connection": "close"})(scope, receive, send)
            return

        async def receive_again() -> Message:
            return messages.pop(0) if messages else await receive()

        await self._app(scope, receive_again, send)

    async def _read(self, receive: Receive) -> list[Message] | None:
        """The whole body, as one message, so that nothing begins before it is known to fit; None if it does not."""
        body = bytearray()
        while True:
            message = await receive()
            if message["type"] != "http.request":
                return [message]
            body += message.get("body", b"")
            if len(body) > self._most:
                return None
            if not message.get("more_body", False):
                return [{"type": "http.request", "body": bytes(body), "more_body": False}]


def _bare(host: str) -> str:
    """The name without its port, in small letters."""
    host = host.strip().lower()
    name, colon, port = host.rpartition(":")
    return name.rstrip(".") if colon and (port.isdecimal() or not port) and not name.endswith(":") else host.rstrip(".")


def _address(scope: Scope) -> str:
    client = scope.get("client")
    return "" if client is None else str(client[0])


def _identity(scope: Scope) -> Identity | None:
    found: Identity | None = scope.get("state", {}).get("identity")
    return found


def _too_many(wait: float) -> Any:
    seconds = max(1, math.ceil(wait))
    return answer(
        429, "too_many_requests", f"too many requests; go on in {seconds} s", {"retry_after": round(wait, 3)},
        headers={"Retry-After": str(seconds)},
    )  # fmt: skip


def _is_own_origin(request: HTTPConnection) -> bool:
    """Whether what a browser says of where the request comes from, if it says anything, is this server.

    Schemes are not compared: a proxy may have taken the encryption off.
    """
    site, origin = request.headers.get("sec-fetch-site"), request.headers.get("origin")
    if site is not None and site not in ("same-origin", "none"):
        return False
    if origin is None:
        return True
    try:
        netloc = urlsplit(origin).netloc
    except ValueError:
        return False
    return bool(netloc) and _with_port(netloc, origin) == _with_port(request.headers.get("host", ""), origin)


def _with_port(host: str, origin: str) -> str:
    usual = ":443" if origin.startswith("https:") else ":80"
    return host.lower().removesuffix(usual)


def _repeats(request: HTTPConnection, csrf: str) -> bool:
    return hmac.compare_digest(request.headers.get(CSRF_HEADER, "").encode(), csrf.encode())
