"""The event loop that async tasks run on: one thread, made when the first of them comes."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Coroutine
from contextvars import Context
from functools import partial
from typing import Any

from holdfast.workflows.cancel import TaskToken
from holdfast.workflows.threads import started


class TaskLoop:
    """Runs coroutines for callers that do not wait for them."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._tasks = 0
        self._is_closing = False

    def run(self, work: Coroutine[Any, Any, None], token: TaskToken, context: Context) -> bool:
        """Run the coroutine until it ends or its token cuts it; False when the machine has no thread left for that."""
        with self._lock:
            loop = self._loop
            if loop is None:
                loop = asyncio.new_event_loop()
                if started(partial(_serve, loop), "holdfast-task-loop") is None:
                    loop.close()
                    work.close()
                    return False
                self._loop = loop
            self._tasks += 1
        loop.call_soon_threadsafe(self._begin, loop, work, token, context)
        return True

    def close(self) -> None:
        """End the loop as soon as nothing runs on it; it starts again when it is needed."""
        with self._lock:
            self._is_closing = True
            self._stop_if_unused()

    def _begin(
        self,
        loop: asyncio.AbstractEventLoop,
        work: Coroutine[Any, Any, None],
        token: TaskToken,
        context: Context,
    ) -> None:
        task = loop.create_task(work, context=context)
        # A loop keeps the order: the cut comes after the first step, in which the coroutine has looked at its token.
        forget = token.when_cancelled(lambda: _cut(loop, task))

        def ended(_: asyncio.Task[None]) -> None:
            forget()
            with self._lock:
                self._tasks -= 1
                self._stop_if_unused()

        task.add_done_callback(ended)

    def _stop_if_unused(self) -> None:
        if self._is_closing and not self._tasks:
            self._is_closing = False
            if self._loop is not None:
                self._loop.call_soon_threadsafe(self._loop.stop)
                self._loop = None


def _serve(loop: asyncio.AbstractEventLoop) -> None:
    asyncio.set_event_loop(loop)
    try:
        loop.run_forever()
        loop.run_until_complete(loop.shutdown_asyncgens())
    finally:
        loop.close()


def _cut(loop: asyncio.AbstractEventLoop, task: asyncio.Task[None]) -> None:
    try:
        loop.call_soon_threadsafe(task.cancel)
    except RuntimeError:
        pass  # it ended at this moment, and its loop with it
