"""One queue and one timer for all async calls under the same time limit.

All entries live equally long, so the queue is in order of expiry by itself. A finished call only marks its entry; the
marks leave from the head. A timer per call would cost four times as much as everything else a guard does.
"""

from __future__ import annotations

import asyncio
from collections import deque
from typing import Any, Final
from weakref import WeakValueDictionary

from holdfast.core.clock import Clock, TimerHandle

# An entry is a plain list, for the same reason as a context link: [task, expiry, fired, cancellations before].
Entry = list[Any]
TASK, EXPIRY, FIRED, BEFORE = range(4)
_CROWDED: Final = 4096


class Wheel:
    """The entries of one event loop."""

    __slots__ = ("__weakref__", "_clock", "_crowd", "armed", "loop", "queue")

    def __init__(self, loop: asyncio.AbstractEventLoop | None, clock: Clock) -> None:
        self.loop = loop
        self.queue: deque[Entry] = deque()
        self.armed: TimerHandle | None = None
        self._clock = clock
        self._crowd = _CROWDED

    def arm(self) -> None:
        """Set the timer for the entry that expires first."""
        self.armed = self._clock.call_at(self.queue[0][EXPIRY], self._expire)

    def sweep(self, entry: Entry) -> None:
        """Take a finished call out."""
        entry[TASK] = None
        queue = self.queue
        while queue and queue[0][TASK] is None:
            queue.popleft()
        if len(queue) > self._crowd:
            # One long call at the head holds back many finished ones; drop them here, at amortised constant cost.
            live = [kept for kept in queue if kept[TASK] is not None]
            queue.clear()
            queue.extend(live)
            self._crowd = max(_CROWDED, 2 * len(live))

    def _expire(self) -> None:
        now, queue = self._clock.monotonic(), self.queue
        self.armed = None
        while queue:
            entry = queue[0]
            task = entry[TASK]
            if task is not None:
                if entry[EXPIRY] > now:
                    self.arm()
                    return
                entry[FIRED] = True
                task.cancel()
            queue.popleft()


class Wheels:
    """The wheel of each loop that uses a guard; `at` is the one used last.

    A wheel lives as long as its timer is set or somebody holds it. It keeps its loop alive, so an id is one loop's.
    """

    __slots__ = ("_all", "_clock", "at")

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._all: WeakValueDictionary[int, Wheel] = WeakValueDictionary()
        self.at = Wheel(None, clock)

    def switch(self, loop: asyncio.AbstractEventLoop) -> Wheel:
        wheel = self._all.get(id(loop))
        if wheel is None:
            wheel = self._all[id(loop)] = Wheel(loop, self._clock)
        self.at = wheel
        return wheel


def absorbed(entry: Entry, task: asyncio.Task[Any]) -> bool:
    """Whether the cancellation that ended the call was this wheel's own; takes it back if so."""
    if not entry[FIRED]:
        return False
    return task.uncancel() <= int(entry[BEFORE])
