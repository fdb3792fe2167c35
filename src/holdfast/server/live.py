"""What has just happened, for pages that are open: rare events of this process, and a word when the store has changed.

Each has a number, so that a page that was away asks for what it missed. Nothing here is on the way of a guarded call:
calls are not told of, only what becomes of guards, letters, entries and workflows.
"""

from __future__ import annotations

import asyncio
import json
import secrets
import threading
from collections import deque
from collections.abc import AsyncIterator, Callable
from itertools import islice
from typing import Any, ClassVar, Final, NamedTuple

from starlette.concurrency import run_in_threadpool

from holdfast.access.events import AccountChanged
from holdfast.app import Holdfast
from holdfast.store.port import Subscription
from holdfast.telemetry.events import AttemptCompleted, CallCompleted, GuardEvent, LoadShed

KEPT: Final = 1000
MOST_STREAMS: Final = 100
_BEAT_S: Final = 5.0
_BREATH_S: Final = 0.1  # between what is sent: a busy store is a few words a second, and not one for each commit
LOOK_EVERY_S: Final = 5.0
"""How long a stream may go on for somebody who is no longer allowed to hear it, if nothing else tells."""
_TOPICS: Final = {  # what stores call them; the outbox's is `outbox.wake.topic_of`, which needs SQLAlchemy
    "letters": "letters", "breakers": "breakers", "workflows": "workflows", "outbox holdfast_outbox": "outbox",
}  # fmt: skip
_FREQUENT: Final = (CallCompleted, AttemptCompleted, LoadShed)


class Message(NamedTuple):
    """`topic` is what a page listens for: letters, breakers, outbox, workflows, or event."""

    number: int
    topic: str
    data: str


class Live:
    """The last messages, and who waits for more.

    Of the store only the last word on each topic is kept: a page asks what is new, so a second word replaces one that
    it has not heard. Then a busy store does not push out what was told of this process.
    """

    quiet: ClassVar[bool] = True  # or every guarded call would make an event for it

    def __init__(self, hold: Holdfast) -> None:
        self._hold = hold
        self._run = secrets.token_hex(8)
        self._lock = threading.Lock()
        self._events: deque[Message] = deque()
        self._words: dict[str, Message] = {}
        self._number = self._dropped = 0
        self._waiting: set[Callable[[], object]] = set()
        self._subscriptions: list[Subscription] = []
        self._is_open = False
        self._clock = hold.access.clock
        self._accounts = 0  # how often they were changed

    def open(self) -> None:
        """Begin to listen; again is nothing."""
        with self._lock:
            if self._is_open:
                return
            self._is_open = True
        self._hold.telemetry.register(self)
        for told, topic in _TOPICS.items():
            self._subscriptions.append(self._hold.store.subscribe(told, self._changed(topic)))

    def close(self) -> None:
        """Stop listening, and end the streams."""
        with self._lock:
            self._is_open = False
            waiting = tuple(self._waiting)
        self._hold.telemetry.unregister(self)
        while self._subscriptions:
            self._subscriptions.pop().close()
        for wake in waiting:
            wake()

    def on_event(self, event: GuardEvent) -> None:
        """An event of this process."""
        if isinstance(event, AccountChanged):
            self._accounts += 1
        if not isinstance(event, _FREQUENT):
            self.tell("event", event.as_dict())

    def tell(self, topic: str, data: Any) -> None:
        """Send a message to whoever listens."""
        text = json.dumps(data, default=str)
        with self._lock:
            self._number += 1
            self._keep(Message(self._number, topic, text))
            waiting = tuple(self._waiting)
        for wake in waiting:
            wake()

    def since(self, number: int) -> list[Message] | None:
        """The messages after that one; None if some of them are no longer kept."""
        with self._lock:
            if number > self._number or number < self._dropped:
                return None
            return sorted(one for one in (*self._events, *self._words.values()) if one.number > number)

    def recent(self, limit: int = 100) -> list[dict[str, Any]]:
        """The last events of this process, the newest first."""
        with self._lock:
            found = list(islice(reversed(self._events), limit))
        return [{"number": one.number, **json.loads(one.data)} for one in found]

    @property
    def is_full(self) -> bool:
        return len(self._waiting) >= MOST_STREAMS

    async def stream(self, last: str | None, is_allowed: Callable[[], bool] = lambda: True) -> AsyncIterator[str]:
        """Server-sent events from after `last`, which is the id of the last one that was seen.

        `is_allowed` is asked in a thread, again and again, and before what follows on a change of accounts: once it
        says no, the stream ends.
        """
        self.open()  # an app that is mounted in another one has no start of its own
        loop, news = asyncio.get_running_loop(), asyncio.Event()

        def wake() -> None:
            try:
                loop.call_soon_threadsafe(news.set)
            except RuntimeError:
                pass  # the loop has ended, and with it the stream

        number, missed = self._position(last)
        looked_at, accounts = self._clock.monotonic(), self._accounts
        with self._lock:
            self._waiting.add(wake)
        try:
            yield f"retry: 2000\nevent: {'reset' if missed else 'hello'}\nid: {self._run}-{number}\ndata: {{}}\n\n"
            while self._is_open:
                news.clear()
                now = self._clock.monotonic()
                if now - looked_at >= LOOK_EVERY_S or accounts != self._accounts:
                    looked_at, accounts = now, self._accounts
                    if not await run_in_threadpool(is_allowed):
                        return
                found = self.since(number)
                if found is None:
                    number = self._number
                    yield f"event: reset\nid: {self._run}-{number}\ndata: {{}}\n\n"
                    continue
                for one in found:
                    number = one.number
                    yield f"event: {one.topic}\nid: {self._run}-{one.number}\ndata: {one.data}\n\n"
                if found:
                    await asyncio.sleep(_BREATH_S)
                    continue
                try:
                    await asyncio.wait_for(news.wait(), _BEAT_S)
                except TimeoutError:
                    yield ": still here\n\n"
        finally:
            with self._lock:
                self._waiting.discard(wake)

    def _position(self, last: str | None) -> tuple[int, bool]:
        """Where to go on, and whether something between was missed: another run of the server, or too long ago."""
        run, _, number = (last or "").rpartition("-")
        if not last:
            return self._number, False
        if run != self._run or not number.isdecimal() or self.since(int(number)) is None:
            return self._number, True
        return int(number), False

    def _keep(self, message: Message) -> None:
        if message.topic != "event":
            self._words[message.topic] = message
            return
        self._events.append(message)
        if len(self._events) > KEPT:
            self._dropped = self._events.popleft().number

    def _changed(self, topic: str) -> Callable[[], None]:
        return lambda: self.tell(topic, {})
