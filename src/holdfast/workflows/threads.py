"""Where calls of a bulkhead run, and who calls them off: threads that come and go, and one that watches the time."""

from __future__ import annotations

import heapq
import threading
from collections import deque
from collections.abc import Callable
from itertools import count
from typing import Final, Protocol

from holdfast.core.clock import Clock, TimerHandle

_SOON_S: Final = 0.05
_CROWDED: Final = 256  # entries of the alarms before it is worth to look for finished ones


class Threads:
    """Daemon threads that run work, one piece each at a time; a thread that found none for `idle_s` seconds ends.

    Whoever limits how much is under way limits the number of threads. Work that follows from work is done by the thread
    that put it there, if it comes back in time: a thread that is called takes longer than most of what it is called
    for. One is called at a time, and calls the next one when there is more. Idleness is counted in real seconds: it
    decides nothing, and a clock that jumps when somebody waits must not be moved by a thread without work.

    Threads that do next to nothing at a time are slower than one of them, since they wait for each other all the time.
    Work that is `patient` waits for a thread that is at work already, and whoever says so has to `hurry` it, should
    that thread not come.
    """

    def __init__(self, name: str, idle_s: float) -> None:
        self._name = name
        self._idle_s = idle_s
        self._lock = threading.Lock()
        self._work: deque[Callable[[], None]] = deque()
        self._asleep: list[threading.Lock] = []  # of each thread without work, the lock that it waits for
        self._is_called = False  # somebody is on his way to the queue
        self._returning = 0  # threads that will look into the queue in a moment
        self._busy = 0  # threads that are at work
        self._patient = False
        self._dismissed: set[threading.Lock] = set()
        self._here = threading.local()

    def run(self, work: Callable[[], None], *, patient: bool = False) -> bool:
        """Have this done; False when the machine has no thread left for it."""
        with self._lock:
            self._work.append(work)
            self._patient = patient
            if not self.is_behind or (patient and self._busy) or self._call_one():
                return True
            self._work.pop()
            return False

    @property
    def is_behind(self) -> bool:
        """Whether work waits that no thread is about to look for."""
        return len(self._work) > self._returning

    def hurry(self) -> None:
        """Call a thread for work that has waited for one."""
        with self._lock:
            if self.is_behind:
                self._call_one()

    def about_to_be_free(self) -> None:
        """To be called by work that has nearly ended, so that what follows it finds this thread and starts none."""
        with self._lock:
            self._returning += 1
        self._here.returns = True

    def takes_longer(self) -> None:
        """To be called by work that was about to be free, and is not: what waits for this thread is others' now."""
        if getattr(self._here, "returns", False):
            self._here.returns = False
            with self._lock:
                self._returning -= 1
                if self.is_behind:
                    self._call_one()

    def follows(self) -> bool:
        """Whether there is more to do for the thread that asks, as soon as it is free."""
        return bool(self._work) and getattr(self._here, "returns", False)

    def close(self) -> None:
        """Let the idle ones go now."""
        with self._lock:
            self._dismissed.update(self._asleep)
            while self._asleep:
                self._asleep.pop().release()

    def _call_one(self) -> bool:
        """Have a thread come, unless one is coming. We hold the lock."""
        if not self._is_called:
            if self._asleep:
                self._asleep.pop().release()
            elif started(self._serve, self._name) is None:
                return False
            self._is_called = True
        return True

    def _serve(self) -> None:
        called = threading.Lock()
        called.acquire()
        with self._lock:
            self._is_called = False
            self._busy += 1
        while True:
            with self._lock:
                if self._here.__dict__.pop("returns", False):
                    self._returning -= 1
                work = self._work.popleft() if self._work else None
                if work is None:
                    self._asleep.append(called)
                    self._busy -= 1
                elif self.is_behind and not self._patient:
                    self._call_one()
            if work is not None:
                self._do(work)
            elif not self._sleep(called):
                return
            del work  # while it waits for other work a thread must not keep the arguments of the last one alive

    def _do(self, work: Callable[[], None]) -> None:
        try:
            work()
        except BaseException:
            self.takes_longer()  # for ever: this thread ends
            with self._lock:
                self._busy -= 1
            raise

    def _sleep(self, called: threading.Lock) -> bool:
        """Wait until there is work; False when there was none for long, or none is wanted any more."""
        is_called = called.acquire(timeout=self._idle_s)
        with self._lock:
            if not is_called and called in self._asleep:
                self._asleep.remove(called)
                return False
            if called in self._dismissed:
                self._dismissed.remove(called)
                return False
            self._is_called = False
            self._busy += 1
        if not is_called:
            called.acquire()  # somebody called at this very moment
        return True


class Timed(Protocol):
    """Something that must have ended at an instant."""

    at: float

    @property
    def is_over(self) -> bool: ...
    @property
    def turn(self) -> int:
        """Another number, and another time, for what has come in its place."""
        ...

    def expire(self, turn: int) -> None: ...


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
            late: list[tuple[Timed, int]] = []
            with self._lock:
                self._changed.clear()
                now = self._clock.monotonic()
                while self._heap and self._heap[0][0] <= now:
                    timed = heapq.heappop(self._heap)[2]
                    turn = timed.turn
                    if timed.at <= now:
                        late.append((timed, turn))
                    else:  # that of what has come in its place
                        heapq.heappush(self._heap, (timed.at, next(self._order), timed))
                if not self._heap and not late:
                    self._wakes_at = None
                    return
                self._wakes_at = self._heap[0][0] if self._heap else now
            for timed, turn in late:
                timed.expire(turn)
            with self._lock:
                for timed, _ in late:
                    if not timed.is_over:  # it had just ended, and something else has come in its place, or is about to
                        heapq.heappush(self._heap, (max(timed.at, now + _SOON_S), next(self._order), timed))
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


class Unhurried:
    """A clock that those who watch time limits do not move: a manual one jumps when somebody waits."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self.monotonic = clock.monotonic
        self.wall = clock.wall
        self.sleep = clock.sleep
        self.asleep = clock.asleep

    def wait(self, event: threading.Event, seconds: float | None) -> bool:
        until = None if seconds is None else self.monotonic() + seconds
        while not event.wait(0.01):
            if until is not None and self.monotonic() >= until:
                return False
        return True

    def call_at(self, when: float, callback: Callable[[], object]) -> TimerHandle:
        return self._clock.call_at(when, callback)
