"""Time as a port. Decisions use `monotonic`; records carry `wall`; only drivers call the rest.

The asynchronous half imports asyncio when it is first used, so a sync program never loads it.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Protocol


class TimerHandle(Protocol):
    """A pending callback that can be called off."""

    def cancel(self) -> None: ...


class Clock(Protocol):
    """Everything that knows what time it is, or waits."""

    def monotonic(self) -> float:
        """Seconds that never run backwards; the zero is arbitrary."""
        ...

    def wall(self) -> datetime:
        """The time of day, in UTC."""
        ...

    def sleep(self, seconds: float) -> None:
        """Block this thread."""
        ...

    async def asleep(self, seconds: float) -> None:
        """Suspend this task."""
        ...

    def wait(self, event: threading.Event, seconds: float | None) -> bool:
        """Block this thread until the event is set; False when the time ran out first."""
        ...

    def call_at(self, when: float, callback: Callable[[], object]) -> TimerHandle:
        """Run `callback` on the running event loop at the monotonic time `when`."""
        ...


class SystemClock:
    """The machine's own clock."""

    __slots__ = ()

    monotonic = staticmethod(time.monotonic)

    def sleep(self, seconds: float) -> None:
        time.sleep(seconds)

    def wall(self) -> datetime:
        return datetime.now(UTC)

    async def asleep(self, seconds: float) -> None:
        import asyncio

        await asyncio.sleep(seconds)

    def wait(self, event: threading.Event, seconds: float | None) -> bool:
        # Locks refuse to wait for longer than some centuries, and whoever watches the time of others would end there.
        return event.wait(None if seconds is None else min(seconds, threading.TIMEOUT_MAX))

    def call_at(self, when: float, callback: Callable[[], object]) -> TimerHandle:
        import asyncio

        # asyncio's loops count with time.monotonic, but only promise it through loop.time().
        loop = asyncio.get_running_loop()
        return loop.call_at(loop.time() + (when - time.monotonic()), callback)


SYSTEM_CLOCK = SystemClock()
