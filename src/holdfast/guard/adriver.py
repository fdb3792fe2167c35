"""The asyncio half of the driver seam. Imported only when an async call is made."""

from __future__ import annotations

import asyncio
from asyncio import get_running_loop
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from contextvars import copy_context
from typing import TYPE_CHECKING, Any, TypeVar

from holdfast.core.clock import Clock
from holdfast.guard.driver import CUT, Cuttable, _Cut

if TYPE_CHECKING:
    from concurrent.futures import Executor

T = TypeVar("T")


class AsyncDriver:
    """Suspends the calling task. Holds no loop: one driver serves every loop that uses the guard."""

    __slots__ = ("clock",)

    is_async = True

    def __init__(self, clock: Clock) -> None:
        self.clock = clock

    async def sleep(self, seconds: float) -> None:
        await self.clock.asleep(seconds)

    async def offload(self, work: Callable[[], T], threads: Callable[[], Executor]) -> T:
        done = threads().submit(copy_context().run, work)
        waiter = LoopWaiter()
        done.add_done_callback(lambda _: waiter.wake())
        await waiter.future  # a caller that is cancelled meanwhile does not undo the work, nor does the end of its loop
        return done.result()

    def waiter(self) -> LoopWaiter:
        return LoopWaiter()

    def park(self, waiter: LoopWaiter, seconds: float | None) -> Awaitable[bool]:
        return waiter.future if seconds is None else self._park(waiter, seconds)

    async def _park(self, waiter: LoopWaiter, seconds: float) -> bool:
        timer = self.clock.call_at(self.clock.monotonic() + seconds, waiter.expire)
        try:
            return await waiter.future
        finally:
            timer.cancel()

    async def bounded(
        self, work: Callable[[], Awaitable[T]], until: float, call: Cuttable, abandon: bool = False
    ) -> T | _Cut:
        task = asyncio.current_task()
        if task is None:
            raise RuntimeError("an async time limit needs a running asyncio task")
        scope = CutScope(task, call)
        timer = self.clock.call_at(until, scope.fire)
        try:
            result = await work()
        except asyncio.CancelledError:
            if scope.absorbs():
                return CUT
            raise
        finally:
            timer.cancel()
        # The work swallowed our cancellation, which the caller sees by the time; one of somebody else's goes on.
        if scope.fired and not scope.absorbs():
            raise asyncio.CancelledError
        return result

    def start(self, work: Callable[[], Coroutine[Any, Any, Any]]) -> TaskBranch:
        return TaskBranch(work)

    async def first_done(self, branches: Sequence[TaskBranch], seconds: float | None) -> None:
        any_done = LoopWaiter()
        for branch in branches:
            branch.task.add_done_callback(any_done.wake_with)
        try:
            await self.park(any_done, seconds)
        finally:
            for branch in branches:
                branch.task.remove_done_callback(any_done.wake_with)

    async def cancel(self, branches: Sequence[TaskBranch]) -> None:
        for branch in branches:
            branch.task.cancel()
        if branches:
            await asyncio.wait([branch.task for branch in branches])


class CutScope:
    """Tells our own cancellation of a task from everybody else's."""

    __slots__ = ("_before", "_call", "_task", "fired")

    def __init__(self, task: asyncio.Task[Any], call: Cuttable) -> None:
        self._task = task
        self._call = call
        self._before = task.cancelling()
        self.fired = False

    def fire(self) -> None:
        self.fired = True
        self._call.cut += 1
        self._task.cancel()

    def absorbs(self) -> bool:
        """Take back our cancellation; False when we made none or somebody else cancelled the task as well."""
        if not self.fired:
            return False
        self._call.cut -= 1
        return self._task.uncancel() <= self._before


class LoopWaiter:
    """Wakes a task from any thread."""

    __slots__ = ("_loop", "future", "granted")

    def __init__(self) -> None:
        self._loop = loop = get_running_loop()
        self.granted = False
        self.future: asyncio.Future[bool] = loop.create_future()

    def wake(self) -> bool:
        try:
            if get_running_loop() is self._loop:
                if not self.future.done():
                    self.future.set_result(True)
                return True
        except RuntimeError:
            pass  # called from a thread without a loop
        try:
            self._loop.call_soon_threadsafe(self._settle, True)
        except RuntimeError:
            return False
        return True

    def wake_with(self, _: object) -> None:
        self._settle(True)

    def expire(self) -> None:
        self._settle(False)

    def _settle(self, woken: bool) -> None:
        if not self.future.done():
            self.future.set_result(woken)


class TaskBranch:
    """A run of the call in a task of its own."""

    __slots__ = ("task",)

    def __init__(self, work: Callable[[], Coroutine[Any, Any, Any]]) -> None:
        self.task: asyncio.Task[Any] = asyncio.ensure_future(work())

    @property
    def done(self) -> bool:
        return self.task.done()

    def result(self) -> Any:
        return self.task.result()
