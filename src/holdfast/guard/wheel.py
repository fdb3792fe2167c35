"""One queue and one timer for all async calls under the same time limit.

All entries live equally long, so the queue is in order of expiry by itself. A finished call only marks its entry; the
marks leave from the head. A timer per call would cost four times as much as everything else a guard does.
"""

from __future__ import annotations

import asyncio
from collections import deque
from functools import partial
from typing import Any, Final
from weakref import WeakValueDictionary

from holdfast.core.clock import Clock, TimerHandle

# An entry is a plain list, for the same reason as a context link: [task, expiry, cuts, cancellations before],
# and, once it was cut, the timer of a limit that ends later.
Entry = list[Any]
TASK, EXPIRY, FIRED, BEFORE, LATER = range(5)
_CROWDED: Final = 4096


class Wheel:
    """The entries of one event loop.

    `reprieve` is how much later another limit of the same guard ends, for calls that go on after they were cut.
    """

    __slots__ = ("__weakref__", "_clock", "_crowd", "_reprieve", "armed", "loop", "queue")

    def __init__(self, loop: asyncio.AbstractEventLoop | None, clock: Clock, reprieve: float) -> None:
        self.loop = loop
        self.queue: deque[Entry] = deque()
        self.armed: TimerHandle | None = None
        self._clock = clock
        self._crowd = _CROWDED
        self._reprieve = reprieve

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
                _cut(entry)
                if self._reprieve:
                    entry.append(self._clock.call_at(entry[EXPIRY] + self._reprieve, partial(_cut, entry)))
            queue.popleft()


class Wheels:
    """The wheel of each loop that uses a guard; `at` is the one used last.

    A wheel lives as long as its timer is set or somebody holds it. It keeps its loop alive, so an id is one loop's.
    """

    __slots__ = ("_all", "_clock", "_reprieve", "at")

    def __init__(self, clock: Clock, reprieve: float) -> None:
        self._clock = clock
        self._reprieve = reprieve
        self._all: WeakValueDictionary[int, Wheel] = WeakValueDictionary()
        self.at = Wheel(None, clock, reprieve)

    def switch(self, loop: asyncio.AbstractEventLoop) -> Wheel:
        wheel = self._all.get(id(loop))
        if wheel is None:
            wheel = self._all[id(loop)] = Wheel(loop, self._clock, self._reprieve)
        self.at = wheel
        return wheel


def absorbed(entry: Entry, task: asyncio.Task[Any]) -> bool:
    """Whether the cancellation that ended the call was this wheel's own; takes it back if so."""
    if not entry[FIRED]:
        return False
    for timer in entry[LATER:]:
        timer.cancel()
    for _ in range(entry[FIRED] - 1):
        task.uncancel()
    return task.uncancel() <= int(entry[BEFORE])


def _cut(entry: Entry) -> None:
    task = entry[TASK]
    if task is not None:
        entry[FIRED] += 1
        task.cancel()
