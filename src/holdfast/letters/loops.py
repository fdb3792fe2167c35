"""Coroutines called from threads: on a loop that was lent to us, or on one of our own that starts when it is needed."""

from __future__ import annotations

import asyncio
import os
import threading
from collections.abc import Coroutine
from typing import Any, Final, TypeVar

T = TypeVar("T")


class Loops:
    """Runs coroutines to their end for threads that wait for them."""

    RAISED: Final = (Exception, SystemExit, asyncio.CancelledError)
    """What ends an attempt and not the worker: one letter whose function leaves the program must not stop all others.
    """

    def __init__(self) -> None:
        self._lent: asyncio.AbstractEventLoop | None = None
        self._own: asyncio.AbstractEventLoop | None = None
        self._thread: threading.Thread | None = None
        self._lock = threading.Lock()
        self._users = 0
        self._is_closing = False
        self._process = os.getpid()

    def lend(self, loop: asyncio.AbstractEventLoop | None) -> None:
        """Use this running loop from now on; None: one of our own."""
        self._lent = loop

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        """The coroutine's result. It sees the context variables of the calling thread."""
        loop = self._lent
        if loop is not None and not loop.is_closed() and loop is not _running():
            return asyncio.run_coroutine_threadsafe(work, loop).result()
        try:
            return asyncio.run_coroutine_threadsafe(work, self._start()).result()
        finally:
            with self._lock:
                self._users -= 1
                is_last = self._is_closing and not self._users
            if is_last:
                self.close()

    def close(self) -> None:
        """End our own loop, as soon as nothing runs on it; it starts again when it is needed."""
        with self._lock:
            self._is_closing = self._users > 0
            if self._is_closing:
                return  # another thread waits for what it runs there, and would wait for ever
            loop, thread, self._own, self._thread = self._own, self._thread, None, None
        if loop is not None and thread is not None:
            loop.call_soon_threadsafe(loop.stop)
            thread.join()
            loop.close()

    def _start(self) -> asyncio.AbstractEventLoop:
        if self._process != os.getpid():  # a forked child has the loop, and not the thread that runs it
            self._process, self._lock = os.getpid(), threading.Lock()
            self._own, self._thread, self._users, self._is_closing = None, None, 0, False
        with self._lock:
            if self._own is None:
                self._own = asyncio.new_event_loop()
                self._thread = threading.Thread(target=self._own.run_forever, name="holdfast-replay-loop", daemon=True)
                self._thread.start()
            self._users += 1
            return self._own


def _running() -> asyncio.AbstractEventLoop | None:
    try:
        return asyncio.get_running_loop()
    except RuntimeError:
        return None
