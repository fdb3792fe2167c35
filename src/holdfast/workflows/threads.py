"""Where calls of a bulkhead run, and who calls them off: threads that come and go, and one that watches the time."""

from __future__ import annotations

import heapq
import threading
from collections.abc import Callable
from itertools import count
from queue import Empty, SimpleQueue
from typing import Final, Protocol

from holdfast.core.clock import Clock

_CROWDED: Final = 256  # entries of the alarms before it is worth to look for finished ones


class Threads:
    """Daemon threads that run work, one piece each at a time; a thread that found none for `idle_s` seconds ends.

    Whoever limits how much is under way limits the number of threads. Idleness is counted in real seconds: it decides
    nothing, and a clock that jumps when somebody waits must not be moved by a thread without work.
    """

    def __init__(self, name: str, idle_s: float) -> None:
        self._name = name
        self._idle_s = idle_s
        self._lock = threading.Lock()
        self._work: SimpleQueue[Callable[[], None] | None] = SimpleQueue()
        self._idle = 0  # threads that are, or soon will be, waiting for work that is not in the queue yet

    def run(self, work: Callable[[], None]) -> bool:
        """Have this done; False when the machine has no thread left for it."""
        with self._lock:
            if self._idle:
                self._idle -= 1
            elif started(self._serve, self._name) is None:
                return False
            self._work.put(work)
        return True

    def about_to_be_free(self) -> None:
        """To be called by work that has nearly ended, so that what follows it finds this thread and starts none."""
        with self._lock:
            self._idle += 1

    def close(self) -> None:
        """Let the idle ones go now."""
        with self._lock:
            idle, self._idle = self._idle, 0
            for _ in range(idle):
                self._work.put(None)

    def _serve(self) -> None:
        while True:
            try:
                work = self._work.get(timeout=self._idle_s)
            except Empty:
                with self._lock:
                    if self._idle == 0:
                        continue  # something was put there for us at this very moment
                    self._idle -= 1
                return
            if work is None:
                return
            work()
            del work  # while it waits for other work a thread must not keep the arguments of the last one alive


class Timed(Protocol):
    """Something that must have ended at an instant."""

    at: float

    @property
    def is_over(self) -> bool: ...
    def expire(self) -> None: ...


class Alarms:
    """One daemon thread that expires what takes too long; it starts when it is needed and ends when nothing is left.

    What ends in time is only marked. Marks are swept out together, for taking each out of the middle, or waking the
    thread for each, would cost more than most calls.
    """

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._lock = threading.Lock()
        self._heap: list[tuple[float, int, Timed]] = []
        self._order = count()
        self._crowd = _CROWDED
        self._changed = threading.Event()
        self._wakes_at: float | None = None  # None: there is no thread

    def __len__(self) -> int:
        return len(self._heap)

    def watch(self, timed: Timed) -> bool:
        """Expire this when its time has come; False when the machine has no thread left to wait for that."""
        with self._lock:
            if len(self._heap) >= self._crowd:
                self._sweep()
            heapq.heappush(self._heap, (timed.at, next(self._order), timed))
            if self._wakes_at is not None:
                if timed.at < self._wakes_at:
                    self._changed.set()
                return True
            self._wakes_at = timed.at
            if started(self._serve, "holdfast-task-alarms") is None:
                self._wakes_at, self._heap = None, []
                return False
        return True

    def close(self) -> None:
        """Let the thread go if everything has ended; else it goes with the last one."""
        with self._lock:
            self._sweep()
            self._changed.set()

    def _sweep(self) -> None:
        self._heap = [entry for entry in self._heap if not entry[2].is_over]
        heapq.heapify(self._heap)
        self._crowd = max(_CROWDED, 2 * len(self._heap))

    def _serve(self) -> None:
        while True:
            late: list[Timed] = []
            with self._lock:
                self._changed.clear()
                now = self._clock.monotonic()
                while self._heap and self._heap[0][0] <= now:
                    late.append(heapq.heappop(self._heap)[2])
                if not self._heap and not late:
                    self._wakes_at = None
                    return
                self._wakes_at = self._heap[0][0] if self._heap else now
            for timed in late:
                timed.expire()
            if not late:
                self._clock.wait(self._changed, self._wakes_at - now)


def started(target: Callable[[], None], name: str) -> threading.Thread | None:
    """A daemon thread at work; None when the machine has none left."""
    thread = threading.Thread(target=target, name=name, daemon=True)
    try:
        thread.start()
    except RuntimeError:  # no memory, no room under the process's limit, or the interpreter is about to end
        return None
    return thread
