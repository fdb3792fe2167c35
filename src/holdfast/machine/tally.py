"""What trip rules count in: how many results of one circuit speak for opening it."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections import deque

Figures = dict[str, float | int]


class Tally(ABC):
    """What one circuit has seen, as far as one rule cares."""

    __slots__ = ()

    @abstractmethod
    def succeed(self, now: float, duration: float) -> bool:
        """Counts a success; True when it counts against the rule all the same (a slow one)."""

    @abstractmethod
    def fail(self, now: float, duration: float) -> bool:
        """Counts a failure; True when it counts against the rule."""

    @abstractmethod
    def tripped(self, now: float) -> bool:
        """Whether the rule says to open."""

    @abstractmethod
    def failures(self, now: float) -> int:
        """How many results that still matter count against the rule."""

    def instants(self, now: float) -> tuple[float, ...]:
        """When the failures that still matter happened, oldest first; none where only their number is kept."""
        return ()

    @abstractmethod
    def calls(self, now: float) -> int:
        """How many results still matter."""

    @abstractmethod
    def figures(self, now: float) -> Figures:
        """The observed numbers beside the rule's thresholds."""


class Streak(Tally):
    """Failures in a row."""

    __slots__ = ("_n", "_streak")

    def __init__(self, n: int) -> None:
        self._n = n
        self._streak = 0

    def succeed(self, now: float, duration: float) -> bool:
        self._streak = 0
        return False

    def fail(self, now: float, duration: float) -> bool:
        self._streak += 1
        return True

    def tripped(self, now: float) -> bool:
        return self._streak >= self._n

    def failures(self, now: float) -> int:
        return self._streak

    calls = failures

    def figures(self, now: float) -> Figures:
        return {"failures": self._streak, "threshold": self._n}


class Failures(Tally):
    """The instants of the last n failures; more could not change the answer."""

    __slots__ = ("_at", "_n", "_window")

    def __init__(self, n: int, window: float) -> None:
        self._n = n
        self._window = window
        self._at: deque[float] = deque(maxlen=n)

    def succeed(self, now: float, duration: float) -> bool:
        return False

    def fail(self, now: float, duration: float) -> bool:
        self._at.append(now)
        return True

    def tripped(self, now: float) -> bool:
        return self.failures(now) >= self._n

    def failures(self, now: float) -> int:
        at, window = self._at, self._window
        while at and now - at[0] > window:
            at.popleft()
        return len(at)

    calls = failures

    def instants(self, now: float) -> tuple[float, ...]:
        self.failures(now)  # drops what has left the window
        return tuple(self._at)

    def figures(self, now: float) -> Figures:
        return {"failures": self.failures(now), "threshold": self._n, "window": self._window}


class LastN(Tally):
    """The last n results as bits, the newest lowest; a set bit is a failure."""

    __slots__ = ("_bits", "_calls", "_k", "_n")

    def __init__(self, k: int, n: int) -> None:
        self._k = k
        self._n = n
        self._bits = 0
        self._calls = 0

    def succeed(self, now: float, duration: float) -> bool:
        self._push(0)
        return False

    def fail(self, now: float, duration: float) -> bool:
        self._push(1)
        return True

    def _push(self, bit: int) -> None:
        n = self._n
        self._bits = (self._bits << 1 | bit) & ((1 << n) - 1)
        if self._calls < n:
            self._calls += 1

    def tripped(self, now: float) -> bool:
        return self._bits.bit_count() >= self._k

    def failures(self, now: float) -> int:
        return self._bits.bit_count()

    def calls(self, now: float) -> int:
        return self._calls

    def figures(self, now: float) -> Figures:
        return {"failures": self.failures(now), "calls": self._calls, "threshold": self._k, "of": self._n}


class _Bucket:
    __slots__ = ("against", "calls", "start")

    def __init__(self, start: float) -> None:
        self.start = start
        self.calls = 0
        self.against = 0


class Buckets(Tally):
    """Calls and bad calls in tenths of the window.

    A bucket starts with the first result after its predecessor's tenth and leaves whole once its start is a
    window old. So a result counts for the whole window at most, and for nine tenths of it at least.

    With `slow`, what takes longer counts against the rule, whether it failed or not; without, what failed.
    """

    __slots__ = ("_buckets", "_min_calls", "_newest", "_r", "_slow", "_start", "_tenth", "_window")

    def __init__(self, r: float, min_calls: int, window: float, slow: float = math.inf) -> None:
        self._r = r
        self._min_calls = min_calls
        self._window = window
        self._tenth = window / 10
        self._slow = slow
        self._start = -math.inf
        self._newest = _Bucket(-math.inf)
        self._buckets: deque[_Bucket] = deque()

    def succeed(self, now: float, duration: float) -> bool:
        if now - self._start >= self._tenth:
            self._turn(now)
        newest = self._newest
        newest.calls += 1
        if duration > self._slow:
            newest.against += 1
            return True
        return False

    def fail(self, now: float, duration: float) -> bool:
        if now - self._start >= self._tenth:
            self._turn(now)
        newest = self._newest
        newest.calls += 1
        if self._slow == math.inf or duration > self._slow:
            newest.against += 1
            return True
        return False

    def _turn(self, now: float) -> None:
        self._prune(now)
        self._start = now
        self._newest = _Bucket(now)
        self._buckets.append(self._newest)

    def _prune(self, now: float) -> None:
        buckets, window = self._buckets, self._window
        while buckets and now - buckets[0].start >= window:
            buckets.popleft()

    def tripped(self, now: float) -> bool:
        calls = self.calls(now)
        return calls >= self._min_calls and self.failures(now) / calls >= self._r

    def failures(self, now: float) -> int:
        self._prune(now)
        return sum(bucket.against for bucket in self._buckets)

    def calls(self, now: float) -> int:
        self._prune(now)
        return sum(bucket.calls for bucket in self._buckets)

    def figures(self, now: float) -> Figures:
        calls, against = self.calls(now), self.failures(now)
        rate = against / calls if calls else 0.0
        judged: Figures = {"failures": against}
        if self._slow < math.inf:
            judged = {"slow": against, "slower_than": self._slow}
        limits: Figures = {"threshold": self._r, "min_calls": self._min_calls, "window": self._window}
        return {"calls": calls, "rate": rate} | judged | limits
