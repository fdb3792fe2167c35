"""Virtual time: an event loop that jumps to its next timer instead of waiting for it.

Everything that asyncio times (sleeps, time limits, the guard's timers) runs in order and takes no real time. Threads
take turns with the loop: one that works stops the time, and the loop goes on when the thread is done or waits for
something from the loop. So a run depends on its seed alone.
"""

from __future__ import annotations

import asyncio
import selectors
import threading
from collections.abc import Callable, Coroutine
from concurrent.futures import Future, ThreadPoolExecutor
from contextvars import Context
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import Any, Final, TypeVar, TypeVarTuple

from holdfast.core.clock import TimerHandle

T = TypeVar("T")
Ts = TypeVarTuple("Ts")
EPOCH: Final = datetime(2026, 1, 1, tzinfo=UTC)
TICK: Final = 0.01  # how often a waiting thread looks at its event


class JumpingSelector(selectors.SelectSelector):
    """Where a loop would wait for I/O or the next timer, let the time pass at once. No I/O ever becomes ready."""

    def __init__(self) -> None:
        super().__init__()
        self.now = 0.0

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        if timeout is None:
            raise RuntimeError("everything in this virtual loop waits, and nothing is due that could wake it")
        self.now += max(0.0, timeout)
        return []


class VirtualLoop(asyncio.SelectorEventLoop):
    """An event loop whose time starts at 0 and is the selector's."""

    def __init__(self) -> None:
        self._jumping = JumpingSelector()
        self._owner = threading.get_ident()
        self._turn_is_over = threading.Semaphore(0)
        self._for_thread = False
        self._wanted: asyncio.Task[Any] | None = None
        super().__init__(self._jumping)

    def time(self) -> float:
        return self._jumping.now

    def run_in_executor(self, executor: Any, func: Callable[[*Ts], T], *args: *Ts) -> asyncio.Future[T]:
        """Work in a thread of its own, whatever the executor. It has its turn at once."""
        done: asyncio.Future[T] = self.create_future()

        def work() -> None:
            try:
                settle = partial(done.set_result, func(*args))
            except BaseException as error:
                settle = partial(done.set_exception, error)
            super(VirtualLoop, self).call_soon_threadsafe(lambda: None if done.done() else settle())
            self._turn_is_over.release()

        threading.Thread(target=work, name="virtual", daemon=True).start()
        self._turn_is_over.acquire()
        return done

    def call_soon_threadsafe(
        self, callback: Callable[[*Ts], object], *args: *Ts, context: Context | None = None
    ) -> asyncio.Handle:
        if threading.get_ident() == self._owner:
            return super().call_soon_threadsafe(callback, *args, context=context)
        handle = super().call_soon_threadsafe(self._do_for_thread, callback, args, context=context)
        self._turn_is_over.release()
        return handle

    def create_task(self, coro: Any, **options: Any) -> asyncio.Task[Any]:
        task: asyncio.Task[Any] = super().create_task(coro, **options)
        if self._for_thread:
            self._wanted = task
        return task

    def _do_for_thread(self, callback: Callable[..., object], args: tuple[Any, ...]) -> None:
        """What a thread asked for. Where it is a task, the thread waits until that is done; else it goes on now."""
        self._for_thread = True
        try:
            callback(*args)
        finally:
            self._for_thread = False
            task, self._wanted = self._wanted, None
        if task is None:
            self._give_turn()
        else:
            # Added after the callback that wakes the thread, so that nothing runs between the two.
            task.add_done_callback(self._give_turn)

    def _give_turn(self, _: object = None) -> None:
        self._turn_is_over.acquire()


class VirtualClock:
    """The running loop's time, as the clock that a guard takes. Sleepers wake `late` seconds late, as threads do."""

    def __init__(self, late: float = 0.0) -> None:
        self._loop = asyncio.get_running_loop()
        self._owner = threading.get_ident()
        self._late = late

    def monotonic(self) -> float:
        return self._loop.time()

    def wall(self) -> datetime:
        return EPOCH + timedelta(seconds=self._loop.time())

    async def asleep(self, seconds: float) -> None:
        await asyncio.sleep(seconds + self._late)

    def call_at(self, when: float, callback: Callable[[], object]) -> TimerHandle:
        return self._loop.call_at(when, callback)

    def sleep(self, seconds: float) -> None:
        self._from_thread(self.asleep(seconds))

    def wait(self, event: threading.Event, seconds: float | None) -> bool:
        return self._from_thread(self._until(event, seconds))

    async def _until(self, event: threading.Event, seconds: float | None) -> bool:
        due = None if seconds is None else self.monotonic() + seconds
        while not event.is_set() and (due is None or self.monotonic() < due):  # noqa: ASYNC110  # a thread's event
            await asyncio.sleep(TICK)
        return event.is_set()

    def _from_thread(self, work: Coroutine[Any, Any, T]) -> T:
        if threading.get_ident() == self._owner:
            work.close()
            raise RuntimeError("virtual time moves only in its event loop; use an async function")
        return asyncio.run_coroutine_threadsafe(work, self._loop).result()


class AtOnce(ThreadPoolExecutor):
    """Does what is submitted at once, in the thread that submits it: the time stands still meanwhile."""

    def submit(self, fn: Callable[..., T], /, *args: Any, **kwargs: Any) -> Future[T]:
        done: Future[T] = Future()
        try:
            done.set_result(fn(*args, **kwargs))
        except Exception as error:
            done.set_exception(error)
        return done


def run_virtually(work: Coroutine[Any, Any, T]) -> T:
    """Run `work` in virtual time.

    Raises RuntimeError inside a running event loop, and when everything waits for something that cannot come.
    """
    with asyncio.Runner(loop_factory=VirtualLoop) as runner:
        return runner.run(work)
