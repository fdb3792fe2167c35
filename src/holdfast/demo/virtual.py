"""Virtual time: an event loop that jumps to its next timer instead of waiting for it.

Everything that asyncio times (sleeps, time limits, the guard's timers) runs in order and takes no real time, so a run
depends on its seed alone.
"""

from __future__ import annotations

import asyncio
import selectors
import threading
from collections.abc import Callable, Coroutine
from datetime import UTC, datetime, timedelta
from typing import Any, Final, NoReturn, TypeVar

from holdfast.core.clock import TimerHandle

T = TypeVar("T")
_EPOCH: Final = datetime(2026, 1, 1, tzinfo=UTC)


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
        self.jumping = JumpingSelector()
        super().__init__(self.jumping)

    def time(self) -> float:
        return self.jumping.now


class VirtualClock:
    """The running loop's time, as the clock that a guard takes."""

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()

    def monotonic(self) -> float:
        return self._loop.time()

    def wall(self) -> datetime:
        return _EPOCH + timedelta(seconds=self._loop.time())

    async def asleep(self, seconds: float) -> None:
        await asyncio.sleep(seconds)

    def call_at(self, when: float, callback: Callable[[], object]) -> TimerHandle:
        return self._loop.call_at(when, callback)

    def sleep(self, seconds: float) -> NoReturn:
        raise RuntimeError("virtual time moves only in its event loop; use an async function")

    def wait(self, event: threading.Event, seconds: float | None) -> NoReturn:
        self.sleep(0.0 if seconds is None else seconds)


def run_virtually(work: Coroutine[Any, Any, T]) -> T:
    """Run `work` in virtual time.

    Raises RuntimeError inside a running event loop, and when everything waits for something that cannot come.
    """
    with asyncio.Runner(loop_factory=VirtualLoop) as runner:
        return runner.run(work)
