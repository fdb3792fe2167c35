"""Who is asking: a token, a session's cookie, the program's own answer, or, where nobody has to say, this machine.

A request that shows a token is judged by the token alone. One that comes through a proxy is never from this machine.
"""

from __future__ import annotations

import logging
import re
import secrets
from collections.abc import Callable
from typing import Final, NamedTuple

from starlette.concurrency import run_in_threadpool
from starlette.requests import HTTPConnection
from starlette.types import ASGIApp, Receive, Scope, Send

from holdfast.access.access import Access
from holdfast.access.rights import ROLES, Identity, Role
from holdfast.access.sessions import Session
from holdfast.core.addresses import is_loopback
from holdfast.core.clock import SYSTEM_CLOCK, Clock
from holdfast.errors import HoldfastError
from holdfast.server.callers import FORWARDED, Callers
from holdfast.server.problems import answer, translated

_LOG: Final = logging.getLogger("holdfast.server")
LOCAL: Final = Identity("local", ROLES[Role.ADMIN], "loopback")
COOKIE: Final = "holdfast"
SECURE_COOKIE: Final = f"__Host-{COOKIE}"
PROBES: Final = frozenset({"/api/v1/health", "/api/v1/ready"})
"""Asked by machines, and answered also while the store, which knows who is who, is away."""
_PROTO_HTTPS: Final = re.compile(r"(?:^|[;,\s])proto=\"?https\b")
_LOOK_EVERY_S: Final = 5.0

Identify = Callable[[HTTPConnection], Identity | None]
"""A program's own answer to who asks, in a thread; None: Holdfast is to find out."""


class Caller(NamedTuple):
    """Who asks, the session that says so, and what a request that changes something must repeat."""

    identity: Identity | None
    session: Session | None
    csrf: str


class Identifier:
    """Writes down who asks: `identity`, `session` and `csrf` in the request's state, and `identify_again` for answers
    that take so long that it may change.

    `required` of None: once there are accounts. While it is not required, whoever is on this machine is `local`.
    `https` of None: as each request says, see `is_https`.
    """

    def __init__(
        self,
        app: ASGIApp,
        access: Access,
        *,
        required: bool | None = None,
        identify: Identify | None = None,
        https: bool | None = None,
        callers: Callers | None = None,
        clock: Clock = SYSTEM_CLOCK,
    ) -> None:
        self._app = app
        self._access = access
        self._callers = Callers() if callers is None else callers
        self._required = required
        self._https = https
        self._hook = identify
        self._clock = clock
        self._looked_at: float | None = None
        self._csrf = secrets.token_urlsafe(24)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http" or path_of(scope) in PROBES:
            await self._app(scope, receive, send)
            return
        request = HTTPConnection(scope)
        https = is_https(request) if self._https is None else self._https
        shown, cookie = request.headers.getlist("authorization"), session_cookie(request, https)
        try:
            caller = await self._find(request, shown, cookie)
        except HoldfastError as error:  # no route is there yet that would translate it
            found = translated(error)
            assert found is not None
            _LOG.warning("nobody could be identified: %s", found.message)
            told = "who asks cannot be found out now; the server's log says why"  # not to somebody unknown
            await answer(found.status, found.error, told, headers=found.headers)(scope, receive, send)
            return
        self._callers.note(scope, caller.identity)
        # A state of its own: what an application around this one keeps there is not ours.
        known = {
            **caller._asdict(), "sign_in_required": self._required is True, "https": https,
            "identify_again": lambda: self._identify(request, shown, cookie).identity,
        }  # fmt: skip
        await self._app({**scope, "state": {**scope.get("state", {}), **known}}, receive, send)

    async def _find(self, request: HTTPConnection, shown: list[str], cookie: str | None) -> Caller:
        if self._hook is None and not shown and cookie is None and not self._is_time():
            return self._unknown(request)
        return await run_in_threadpool(self._identify, request, shown, cookie)

    def _identify(self, request: HTTPConnection, shown: list[str], cookie: str | None) -> Caller:
        self._look()
        if self._hook is not None and (known := self._hook(request)) is not None:
            return Caller(known, None, self._csrf)
        if shown:
            scheme, _, token = shown[0].partition(" ")
            is_bearer = len(shown) == 1 and scheme.lower() == "bearer"
            return Caller(self._access.identify_token(token.strip()) if is_bearer else None, None, self._csrf)
        session = None if cookie is None else self._access.find_session(cookie)
        if session is not None:
            return Caller(session.identity, session, session.csrf)
        return self._unknown(request)

    def _unknown(self, request: HTTPConnection) -> Caller:
        is_local = self._required is not True and is_on_this_machine(request)
        return Caller(LOCAL if is_local else None, None, self._csrf)

    def _is_time(self) -> bool:
        now = self._clock.monotonic()
        return self._required is None and (self._looked_at is None or now - self._looked_at >= _LOOK_EVERY_S)

    def _look(self) -> None:
        """Whether somebody was given an account meanwhile. Once that is so, it stays so."""
        if self._is_time():
            now = self._clock.monotonic()
            if self._access.has_accounts:
                self._required = True
            self._looked_at = now  # not before: until there is an answer, nobody is let in without one


def path_of(scope: Scope) -> str:
    """The path below where the app is mounted."""
    path, root = str(scope["path"]), str(scope.get("root_path", ""))
    return path.removeprefix(root) if root and path.startswith(root) else path


def is_https(request: HTTPConnection) -> bool:
    """Whether the browser speaks https: to us, or to a proxy before us, as that or the page's own origin says.

    Who says so without need gets less: over https the plain cookie does not count.
    """
    headers = request.headers
    said = ",".join(headers.getlist("x-forwarded-proto")).lower().split(",")
    forwarded = ",".join(headers.getlist("forwarded")).lower()
    return (
        request.url.scheme == "https"
        or headers.get("origin", "").startswith("https://")
        or "https" in (one.strip() for one in said)
        or _PROTO_HTTPS.search(forwarded) is not None
    )


def session_cookie(request: HTTPConnection, https: bool) -> str | None:
    """The value of the session's cookie. Over https only that which no other host could have set."""
    cookies = request.cookies
    value = cookies.get(SECURE_COOKIE)
    return value if value is not None or https else cookies.get(COOKIE)


def is_on_this_machine(request: HTTPConnection) -> bool:
    """Whether the request was made here, and not handed on by a proxy that is here."""
    if request.client is None or any(name in request.headers for name in FORWARDED):
        return False
    return is_loopback(request.client.host)
