"""A crew without threads: what a worker wants done waits here until it is told to do the next piece."""

from __future__ import annotations

import asyncio
import sys
import threading
from collections.abc import Callable, Coroutine
from contextvars import Context
from functools import partial
from random import Random
from typing import Any, NamedTuple

from holdfast.core.clock import Clock
from holdfast.workflows.cancel import TaskToken
from holdfast.workflows.crew import Crew
from holdfast.workflows.task_call import TaskCall
from holdfast.workflows.task_context import TaskContext, current_task
from holdfast.workflows.task_loop import TaskLoop
from holdfast.workflows.threads import Alarms, Threads, Timed


class Piece(NamedTuple):
    """Something to be done, and how to leave it undone."""

    work: Callable[[], None]
    drop: Callable[[], None]
    context: Context | None


class InlineCrew(Crew):
    """First come, first served; or in an order that `chance` decides. `ran` hears of every task whose body has run."""

    def __init__(self, chance: Random | None, ran: Callable[[TaskContext], object]) -> None:
        self._chance = chance
        self._ran = ran
        self.stops = (KeyboardInterrupt, *_outcomes())
        self._waiting: list[Piece] = []
        self._loop: asyncio.AbstractEventLoop | None = None
        self.is_closed = False

    def __len__(self) -> int:
        return len(self._waiting)

    def threads(self, name: str, idle_s: float) -> Threads:
        return _InlineThreads(self, name, idle_s)

    def wait(self, event: threading.Event) -> None:
        """Do what was put here last, which is what is waited for, and what follows from it."""
        while not event.is_set():
            self._do(self._waiting.pop())

    def loop(self) -> TaskLoop:
        return _InlineLoop(self)

    def alarms(self, clock: Clock) -> Alarms:
        return _InlineAlarms(self, clock)

    def put(self, piece: Piece) -> None:
        if self.is_closed:
            piece.drop()
        else:
            self._waiting.append(piece)

    def do_one(self) -> None:
        """Do the next piece."""
        at = 0 if self._chance is None else self._chance.randrange(len(self._waiting))
        self._do(self._waiting.pop(at))

    def _do(self, piece: Piece) -> None:
        piece.work()
        task = None if piece.context is None else piece.context.run(current_task)
        if task is not None:
            self._ran(task)

    def event_loop(self) -> asyncio.AbstractEventLoop:
        if self._loop is None:
            self._loop = asyncio.new_event_loop()
        return self._loop

    def close(self) -> None:
        """Leave everything undone, now and later, as a process does that dies."""
        self.is_closed = True
        dropped, self._waiting = self._waiting, []
        for piece in dropped:
            piece.drop()
        if self._loop is not None:
            self._loop.close()
            self._loop = None


def _outcomes() -> tuple[type[BaseException], ...]:
    """What ends a test, where pytest runs it: `pytest.fail`, `skip` and `exit`."""
    pytest: Any = sys.modules.get("pytest")
    return () if pytest is None else tuple([way.Exception for way in (pytest.fail, pytest.skip, pytest.exit)])


class _InlineThreads(Threads):
    def __init__(self, crew: InlineCrew, name: str, idle_s: float) -> None:
        super().__init__(name, idle_s)
        self._crew = crew

    def run(self, work: Callable[[], None], *, patient: bool = False) -> bool:
        call = getattr(work, "__self__", None)
        self._crew.put(Piece(work, _nothing, call.context if isinstance(call, TaskCall) else None))
        return True

    def about_to_be_free(self) -> None:
        pass


class _InlineLoop(TaskLoop):
    def __init__(self, crew: InlineCrew) -> None:
        super().__init__()
        self._crew = crew

    def run(self, work: Coroutine[Any, Any, None], token: TaskToken, context: Context) -> bool:
        self._crew.put(Piece(partial(self._finish, work, token, context), work.close, context))
        return True

    def _finish(self, work: Coroutine[Any, Any, None], token: TaskToken, context: Context) -> None:
        loop = self._crew.event_loop()
        task = loop.create_task(work, context=context)
        forget = token.when_cancelled(lambda: task.cancel())
        try:
            loop.run_until_complete(asyncio.wait((task,)))
        finally:
            forget()
        if not task.cancelled():  # who has cut it has told so
            task.result()


class _InlineAlarms(Alarms):
    """Time limits are timers of the clock: a task that moves it beyond its limit is cut at that moment."""

    def __init__(self, crew: InlineCrew, clock: Clock) -> None:
        super().__init__(clock)
        self._crew = crew
        self._timers = clock

    def watch(self, timed: Timed) -> bool:
        at = timed.at
        self._timers.call_at(at, lambda: self._ring(timed, at))
        return True

    def _ring(self, timed: Timed, at: float) -> None:
        if timed.is_over or self._crew.is_closed:
            return
        if timed.at > at:  # that of what has come in its place
            self.watch(timed)
        else:
            timed.expire(timed.turn)


def _nothing() -> None:
    pass
