"""How many reads are worked on at once.

Beyond what a server can do, most are told at once to come back, and those that are let in are answered soon. A line
without an end would have everybody wait for answers that nobody wants any more.
"""

from __future__ import annotations

import asyncio
from typing import Final

from starlette.types import ASGIApp, Receive, Scope, Send

from holdfast.server.identity import PROBES, path_of
from holdfast.server.problems import answer

RETRY_AFTER_S: Final = 1
_STREAM: Final = "/api/v1/events"


class CrowdShield:
    """At most `at_once` reads are worked on, and `waiting` wait for their turn, none for longer than `patience_s`.

    Whoever comes then, or has waited so long, gets 503 with Retry-After. Changes are not held up: they are few, and
    may wait for the program's own functions. Neither are probes, which say whether the server lives, streams of
    events, and the console's files, which are in memory.
    """

    def __init__(self, app: ASGIApp, at_once: int, waiting: int, patience_s: float) -> None:
        self._app = app
        self._slots = asyncio.Semaphore(at_once)
        self._most = waiting
        self._patience_s = patience_s
        self._waiting = 0

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if not _is_work(scope):
            await self._app(scope, receive, send)
        elif not await self._has_a_turn():
            said = "more is asked of the server than it can do; ask again in a moment"
            headers = {"Retry-After": str(RETRY_AFTER_S)}
            await answer(503, "overloaded", said, {"retry_after": RETRY_AFTER_S}, headers)(scope, receive, send)
        else:
            try:
                await self._app(scope, receive, send)
            finally:
                self._slots.release()

    async def _has_a_turn(self) -> bool:
        if not self._slots.locked():
            return await self._slots.acquire()
        if self._waiting >= self._most:
            return False
        self._waiting += 1
        try:
            async with asyncio.timeout(self._patience_s):
                return await self._slots.acquire()
        except TimeoutError:
            return False
        finally:
            self._waiting -= 1


def _is_work(scope: Scope) -> bool:
    if scope["type"] != "http" or scope["method"] not in ("GET", "HEAD"):
        return False
    path = path_of(scope)
    return path == "/metrics" or (path.startswith("/api/") and path not in PROBES and path != _STREAM)
