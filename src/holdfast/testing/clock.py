"""A clock that moves when told: tests of waiting that do not wait."""

from __future__ import annotations

import heapq
import math
import sys
import threading
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from itertools import count
from typing import Any, Final

_EPOCH: Final = datetime(2026, 1, 1, tzinfo=UTC)
_GRACE_S: Final = 0.5  # what another thread gets to set an event before an automatic clock jumps
_SETTLE_HOPS: Final = 8  # turns of the event loop that let ready tasks run before time moves
_PATIENCE_S: Final = 10.0  # real seconds to wait for another thread


class ManualTimer:
    """A callback due at a moment of the manual clock."""

    __slots__ = ("callback", "cancelled")

    def __init__(self, callback: Callable[[], object]) -> None:
        self.callback = callback
        self.cancelled = False

    def cancel(self) -> None:
        self.cancelled = True


class ManualClock:
    """Time as a test wants it.

    With `auto` (the default) a sleep takes no time: the clock jumps to its end, firing what is due on the way. Without,
    sleepers wait until the test calls `advance` (or `await advance_async`). `slept` lists the sleeps asked for.
    """

    def __init__(self, start: float = 1000.0, *, auto: bool = True) -> None:
        self._now = start
        self._start = start
        self._auto = auto
        self._timers: list[tuple[float, int, ManualTimer]] = []
        self._order = count()
        self._sleepers: list[float] = []
        self._blocked = 0
        self._changed = threading.Condition()
        self._pump_turn = 0
        self.slept: list[float] = []

    def monotonic(self) -> float:
        return self._now

    def wall(self) -> datetime:
        return _EPOCH + timedelta(seconds=self._now - self._start)

    def advance(self, seconds: float) -> None:
        """Move on, firing every timer that comes due, each at its own moment.

        Raises ValueError for a negative time.
        """
        self._move_to(self._now + _forwards(seconds))

    async def advance_async(self, seconds: float) -> None:
        """Move on, and let the tasks that this wakes run."""
        import asyncio

        end = self._now + _forwards(seconds)
        for _ in range(_SETTLE_HOPS):
            await asyncio.sleep(0)
        while self._timers and self._timers[0][0] <= end:
            self._move_to(self._timers[0][0])
            for _ in range(_SETTLE_HOPS):
                await asyncio.sleep(0)
        self._move_to(max(end, self._now))
        for _ in range(_SETTLE_HOPS):
            await asyncio.sleep(0)

    @property
    def sleepers(self) -> int:
        """How many threads and tasks wait for this clock to move."""
        return self._blocked + len(self._sleepers)

    def wait_for_sleepers(self, count: int = 1) -> None:
        """Block until so many wait for this clock, so that `advance` finds them: for threads that the test started.

        Raises AssertionError when they do not come within ten real seconds.
        """
        with self._changed:
            if not self._changed.wait_for(lambda: self.sleepers >= count, _PATIENCE_S):
                raise AssertionError(f"waited {_PATIENCE_S:g} s for {count} sleepers, saw {self.sleepers}")

    def sleep(self, seconds: float) -> None:
        self.slept.append(seconds)
        if not self._auto:
            self._block_until(self._now + seconds, threading.Event())
            return
        loop = _running_loop()
        if loop is None:
            self.advance(seconds)
            return
        # A thread that blocks its event loop does not run the loop's timers: they fire when it is the loop's turn.
        self._now += _forwards(seconds)
        loop.call_soon(self._move_to, self._now)

    def wait(self, event: threading.Event, seconds: float | None) -> bool:
        if event.is_set() or seconds is None:
            return event.wait(60)
        until = self._now + seconds
        if not self._auto:
            return self._block_until(until, event)
        # Somebody may be about to set it; if nobody can, or does within a moment of real time, the clock jumps.
        alone = threading.active_count() == 1
        if not alone and self._block_until(until, event, _GRACE_S):
            return True
        self._move_to(max(until, self._now))
        return event.is_set()

    async def asleep(self, seconds: float) -> None:
        import asyncio

        self.slept.append(seconds)
        loop = asyncio.get_running_loop()
        woken = loop.create_future()
        until = self._now + seconds
        timer = self.call_at(until, lambda: None if woken.done() else woken.set_result(None))
        heapq.heappush(self._sleepers, until)
        if self._auto:
            self._start_pump(loop)
        try:
            await woken
        finally:
            timer.cancel()
            self._sleepers.remove(until)
            heapq.heapify(self._sleepers)

    def call_at(self, when: float, callback: Callable[[], object]) -> ManualTimer:
        timer = ManualTimer(callback)
        heapq.heappush(self._timers, (when, next(self._order), timer))
        return timer

    def _start_pump(self, loop: Any) -> None:
        self._pump_turn += 1  # an older pump stops: two of them would move time twice
        self._pump(loop, _SETTLE_HOPS, self._pump_turn)

    def _pump(self, loop: Any, hops: int, turn: int) -> None:
        """Once the loop has nothing else to do, jump to the next timer, as long as anybody sleeps."""
        if turn != self._pump_turn or not self._sleepers:
            return
        if hops:
            loop.call_soon(self._pump, loop, hops - 1, turn)
            return
        self._drop_cancelled()
        if self._timers:
            self._move_to(max(self._now, self._timers[0][0]))
            self._start_pump(loop)

    def _drop_cancelled(self) -> None:
        while self._timers and self._timers[0][2].cancelled:
            heapq.heappop(self._timers)

    def _move_to(self, moment: float) -> None:
        while self._timers and self._timers[0][0] <= moment:
            when, _, timer = heapq.heappop(self._timers)
            if not timer.cancelled:
                self._now = max(self._now, when)
                timer.callback()
        with self._changed:
            self._now = max(self._now, moment)
            self._changed.notify_all()

    def _block_until(self, moment: float, event: threading.Event, patience: float = math.inf) -> bool:
        # The event belongs to somebody else and cannot wake the condition, hence the short real wait.
        with self._changed:
            self._blocked += 1
            self._changed.notify_all()
            try:
                while not event.is_set() and self._now < moment and patience > 0:
                    self._changed.wait(0.005)
                    patience -= 0.005
            finally:
                self._blocked -= 1
        return event.is_set()


FakeClock = ManualClock


def _running_loop() -> Any:
    asyncio = sys.modules.get("asyncio")
    if asyncio is None:
        return None
    try:
        return asyncio.get_running_loop()
    except RuntimeError:
        return None


def _forwards(seconds: float) -> float:
    if not seconds >= 0:
        raise ValueError(f"time moves forwards only, got {seconds!r}; make another ManualClock to begin anew")
    return seconds
