"""How many reads are worked on at once, whose turn it is, and who can be answered together.

Beyond what a server can do, most are told at once to come back, and those that are let in are answered soon. A line
without an end would have everybody wait for answers that nobody wants any more.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Hashable, Sequence
from typing import Final

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from holdfast.core.clock import SYSTEM_CLOCK, Clock
from holdfast.server.callers import Callers
from holdfast.server.identity import PROBES, path_of
from holdfast.server.lines import Lines
from holdfast.server.problems import MEDIA_TYPE, document

RETRY_AFTER_S: Final = 1
MOST_SHARING: Final = 1_000
SHARED: Final = frozenset({
    "overview", "guards", "breakers", "pools", "letters", "bulk", "outbox", "sagas", "workflows", "schedules",
    "workers", "audit",
})  # fmt: skip
"""Resources whose reads may be answered together. What is not named here is worked out for everyone alone."""
_STREAM: Final = "/api/v1/events"


def _refusal() -> Sequence[Message]:
    said = "more is asked of the server than it can do; ask again in a moment"
    body = json.dumps(document(503, "overloaded", said, {"retry_after": RETRY_AFTER_S})).encode()
    headers = [
        (b"content-type", MEDIA_TYPE.encode()), (b"content-length", str(len(body)).encode()),
        (b"retry-after", str(RETRY_AFTER_S).encode()),
    ]  # fmt: skip
    start = {"type": "http.response.start", "status": 503, "headers": headers}
    return start, {"type": "http.response.body", "body": body}


REFUSAL: Final = _refusal()
"""Made once: while there are very many of them, it is their cost that decides how much else is done."""


class Answer:
    """What all who asked the same will get. `messages` stay None when it was not to be had."""

    def __init__(self) -> None:
        self.is_there = asyncio.Event()
        self.messages: Sequence[Message] | None = None


class CrowdShield:
    """At most `at_once` reads are worked on, and `waiting` wait for their turn, none for longer than `patience_s`.

    Each caller has a line, and who has had least of late is next (`Lines`). Whoever finds no place, or has waited so
    long, gets 503 with Retry-After. Changes are not held up: they are few, and may wait for the program's own
    functions. Neither are probes, which say whether the server lives, streams of events, and the console's files, which
    are in memory.

    With `shares`, a request that is the same as one that waits, to the last header, and comes from the same address,
    gets its answer: all of it, from who asks to the last byte, is found out after both came. So nobody sees anything
    older than they would have seen alone, and nobody sees what was meant for somebody else.
    """

    def __init__(
        self,
        app: ASGIApp,
        at_once: int,
        waiting: int,
        patience_s: float,
        *,
        callers: Callers | None = None,
        shares: bool = True,
        clock: Clock = SYSTEM_CLOCK,
    ) -> None:
        self._app = app
        self._places = at_once
        self._lines: Lines[asyncio.Future[bool]] = Lines(waiting)
        self._patience_s = patience_s
        self._callers = Callers() if callers is None else callers
        self._shares = shares
        self._clock = clock
        self._asked: dict[Hashable, Answer] = {}
        self._sharing = 0

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        path = path_of(scope) if scope["type"] == "http" else ""
        if not _is_work(scope, path):
            await self._app(scope, receive, send)
            return
        question = _question(scope) if self._shares and _resource(path) in SHARED else None
        if question is None:
            await self._alone(scope, receive, send)
            return
        found = self._asked.get(question)
        messages: Sequence[Message] | None
        if found is None:
            messages = await self._first(question, scope, receive)
        elif self._sharing < MOST_SHARING:
            messages = await self._share(found)
        else:
            messages = REFUSAL
        if messages is None:  # the one that it waited for has failed, or has gone away
            await self._alone(scope, receive, send)
        else:
            await _tell(messages, send)

    async def _alone(self, scope: Scope, receive: Receive, send: Send) -> None:
        caller = self._callers.of(scope)
        if not await self._has_a_turn(caller):
            await _tell(REFUSAL, send)
            return
        began = self._clock.monotonic()
        try:
            await self._app(scope, receive, send)
        finally:
            self._done(caller, began)

    async def _first(self, question: Hashable, scope: Scope, receive: Receive) -> Sequence[Message]:
        """Find the answer, for all who ask the same before it is begun."""
        answer = self._asked[question] = Answer()
        messages: list[Message] = []

        async def keep(message: Message) -> None:
            messages.append(message)

        caller = self._callers.of(scope)
        try:
            if not await self._has_a_turn(caller):
                answer.messages = REFUSAL
                return REFUSAL
            # Who asks from now on may have changed something meanwhile, and is to see it.
            del self._asked[question]
            began = self._clock.monotonic()
            try:
                await self._app(scope, receive, keep)
            finally:
                self._done(caller, began)
            answer.messages = messages
            return messages
        finally:
            if self._asked.get(question) is answer:
                del self._asked[question]
            answer.is_there.set()

    async def _share(self, answer: Answer) -> Sequence[Message] | None:
        self._sharing += 1
        try:
            await answer.is_there.wait()
        finally:
            self._sharing -= 1
        return answer.messages

    async def _has_a_turn(self, caller: str) -> bool:
        if self._places > 0:
            self._places -= 1
            return True
        loop = asyncio.get_running_loop()
        turn: asyncio.Future[bool] = loop.create_future()
        gone = self._lines.enter(caller, turn)
        if gone is turn:
            return False
        if gone is not None:
            _settle(gone, False)
        over = loop.call_later(self._patience_s, _settle, turn, False)
        try:
            return await turn
        except asyncio.CancelledError:
            if turn.done() and not turn.cancelled() and turn.result():
                self._next()  # it was called just when it went away
            raise
        finally:
            over.cancel()
            self._lines.leave(caller, turn)

    def _done(self, caller: str, began: float) -> None:
        now = self._clock.monotonic()
        self._lines.charge(caller, now - began, now)
        self._next()

    def _next(self) -> None:
        """Give the place to whoever is next, if anybody is."""
        while (turn := self._lines.call(self._clock.monotonic())) is not None:
            if _settle(turn, True):
                return
        self._places += 1


async def _tell(messages: Sequence[Message], send: Send) -> None:
    for message in messages:
        await send({**message})  # what is around this adds its headers to it


def _settle(turn: asyncio.Future[bool], has_turn: bool) -> bool:
    """Whether it was open until now."""
    if turn.done():
        return False
    turn.set_result(has_turn)
    return True


def _is_work(scope: Scope, path: str) -> bool:
    if scope["type"] != "http" or scope["method"] not in ("GET", "HEAD"):
        return False
    return path == "/metrics" or (path.startswith("/api/") and path not in PROBES and path != _STREAM)


def _resource(path: str) -> str:
    """What a path below /api/v1 is about."""
    return path.removeprefix("/api/v1/").partition("/")[0] if path.startswith("/api/v1/") else ""


def _question(scope: Scope) -> Hashable:
    """All that an answer can depend on. The port it is asked from is not part of it."""
    client = scope.get("client")
    return (
        scope["method"], scope["path"], scope.get("root_path", ""), scope.get("query_string", b""),
        scope.get("scheme", "http"), None if client is None else client[0], tuple(map(tuple, scope["headers"])),
    )  # fmt: skip
