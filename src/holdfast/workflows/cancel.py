"""How a task learns that nobody wants its result any more. A thread cannot be ended from outside; it has to look."""

from __future__ import annotations

import threading
from asyncio import CancelledError
from collections.abc import Callable
from contextvars import ContextVar

from holdfast.core.clock import SYSTEM_CLOCK, Clock

TOKEN: ContextVar[TaskToken | None] = ContextVar("holdfast_task_token", default=None)


class TaskToken:
    """Says whether the task that holds it should stop: its time ran out, its workflow was cancelled, the worker ends.

    `reason` is empty until then.
    """

    __slots__ = ("_callbacks", "_clock", "_event", "_lock", "cancelled", "reason")

    def __init__(self, clock: Clock = SYSTEM_CLOCK) -> None:
        self.cancelled = False
        self.reason = ""
        self._clock = clock
        self._lock = threading.Lock()
        self._event: threading.Event | None = None
        self._callbacks: list[Callable[[], object]] | None = None

    def raise_if_cancelled(self) -> None:
        """Raises asyncio.CancelledError, in sync tasks too: no guard retries it, and no `except Exception` eats it."""
        if self.cancelled:
            raise CancelledError(self.reason)

    def wait(self, seconds: float | None = None) -> bool:
        """Block until the task should stop; False when the time ran out first. A task sleeps with it."""
        with self._lock:
            if self._event is None:
                self._event = threading.Event()
                if self.cancelled:
                    self._event.set()
        return self._clock.wait(self._event, seconds)

    def when_cancelled(self, callback: Callable[[], object]) -> Callable[[], None]:
        """Call this when the task should stop, at once if it should already; the answer takes the request back.

        It is called in the thread that cancels, and must be quick.
        """
        with self._lock:
            if not self.cancelled:
                self._callbacks = [*(self._callbacks or ()), callback]
                return lambda: self._forget(callback)
        callback()
        return lambda: None

    def cancel(self, reason: str) -> None:
        """Ask the task to stop. The first reason stays."""
        with self._lock:
            if self.cancelled:
                return
            self.reason = reason
            self.cancelled = True
            callbacks, self._callbacks = self._callbacks, None
            if self._event is not None:
                self._event.set()
        for callback in callbacks or ():
            callback()

    def _forget(self, callback: Callable[[], object]) -> None:
        with self._lock:
            if self._callbacks and callback in self._callbacks:
                self._callbacks.remove(callback)


def current_task_token() -> TaskToken:
    """The token of the task that asks; outside of one, a token that nobody cancels."""
    return TOKEN.get() or TaskToken()
