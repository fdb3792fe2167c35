"""When a breaker opens: trip rules, and the tallies that they count in.

A rule is a frozen value; `tally()` makes the mutable counter of one circuit. Rules combine; any of them trips
alone. A circuit asks `tripped` only after a result that counts against the rule, so a plain success never
opens it.

    consecutive(n)           n failures in a row
    count(n, window)         n failures within the window, whatever succeeded in between
    ratio(r, min_calls)      a share r of the window's calls failed, once there were min_calls
    k_of_n(k, n)             k of the last n calls failed; n calls need not have been made
    slow_ratio(r, threshold) a share r of the window's calls took longer than the threshold, failed or not
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections import deque
from dataclasses import dataclass
from typing import ClassVar, Literal

from holdfast.errors import PolicyError

HeedsSuccess = Literal["never", "after_failure", "always"]
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

    @abstractmethod
    def calls(self, now: float) -> int:
        """How many results still matter."""

    @abstractmethod
    def figures(self, now: float) -> Figures:
        """The observed numbers beside the rule's thresholds."""


class TripRule(ABC):
    """A condition for opening.

    `heeds_success` says when a success must be counted: never, only after a failure, or always.
    `rate` is set for the rules that also judge half-open probes by their share of bad results.
    """

    __slots__ = ()

    heeds_success: ClassVar[HeedsSuccess]

    @property
    def rate(self) -> float | None:
        return None

    @property
    def span(self) -> float:
        """Seconds after which a result is forgotten; 0 for a rule that does not look at time."""
        return 0.0

    def counts_against(self, failed: bool, duration: float) -> bool:
        """Whether such a result speaks for opening."""
        return failed

    @abstractmethod
    def tally(self) -> Tally:
        """A fresh counter."""


def consecutive(n: int) -> Consecutive:
    """Opens at the n-th failure in a row; a success starts the streak anew, a neutral result does not."""
    return Consecutive(n)


def count(n: int, window: float = 60.0) -> Count:
    """Opens at the n-th failure within `window` seconds, both ends included."""
    return Count(n, window)


def ratio(r: float, min_calls: int = 10, window: float = 60.0) -> Ratio:
    """Opens when at least a share `r` of the window's calls failed, and there were at least `min_calls`."""
    return Ratio(r, min_calls, window)


def k_of_n(k: int, n: int) -> KOfN:
    """Opens as soon as `k` of the last `n` calls failed."""
    return KOfN(k, n)


def slow_ratio(r: float, threshold: float = 60.0, min_calls: int = 10, window: float = 60.0) -> SlowRatio:
    """Opens when at least a share `r` of the window's calls took longer than `threshold` seconds."""
    return SlowRatio(r, threshold, min_calls, window)


@dataclass(frozen=True, slots=True)
class Consecutive(TripRule):
    n: int

    heeds_success: ClassVar[HeedsSuccess] = "after_failure"

    def __post_init__(self) -> None:
        check_whole("consecutive.n", self.n, "use consecutive(1) to open at the first failure")

    def tally(self) -> Tally:
        return _Streak(self)

    def __str__(self) -> str:
        return f"consecutive({self.n})"


@dataclass(frozen=True, slots=True)
class Count(TripRule):
    n: int
    window: float = 60.0

    heeds_success: ClassVar[HeedsSuccess] = "never"

    def __post_init__(self) -> None:
        check_whole("count.n", self.n, "use count(1) to open at the first failure")
        check_seconds("count.window", self.window, "use consecutive(n) to count without a window")

    @property
    def span(self) -> float:
        return self.window

    def tally(self) -> Tally:
        return _Failures(self)

    def __str__(self) -> str:
        return f"count({self.n}, window={self.window:g})"


@dataclass(frozen=True, slots=True)
class Ratio(TripRule):
    r: float
    min_calls: int = 10
    window: float = 60.0

    heeds_success: ClassVar[HeedsSuccess] = "always"

    def __post_init__(self) -> None:
        _check_share("ratio.r", self.r)
        check_whole("ratio.min_calls", self.min_calls, "use min_calls=1 to judge from the first call on")
        check_seconds("ratio.window", self.window, "use k_of_n(k, n) to judge without a window")

    @property
    def rate(self) -> float:
        return self.r

    @property
    def span(self) -> float:
        return self.window

    def tally(self) -> Tally:
        return _Buckets(self)

    def __str__(self) -> str:
        return f"ratio({self.r:g}, min_calls={self.min_calls}, window={self.window:g})"


@dataclass(frozen=True, slots=True)
class KOfN(TripRule):
    k: int
    n: int

    heeds_success: ClassVar[HeedsSuccess] = "always"

    def __post_init__(self) -> None:
        check_whole("k_of_n.k", self.k, "use k=1 to open at the first failure")
        check_whole("k_of_n.n", self.n, "use an n that is at least k")
        if self.k > self.n:
            raise PolicyError(f"k_of_n.k must be at most n = {self.n}, got {self.k}; use k={self.n} or a larger n")

    def tally(self) -> Tally:
        return _LastN(self)

    def __str__(self) -> str:
        return f"k_of_n({self.k}, {self.n})"


@dataclass(frozen=True, slots=True)
class SlowRatio(TripRule):
    r: float
    threshold: float = 60.0
    min_calls: int = 10
    window: float = 60.0

    heeds_success: ClassVar[HeedsSuccess] = "always"

    def __post_init__(self) -> None:
        _check_share("slow_ratio.r", self.r)
        check_seconds("slow_ratio.threshold", self.threshold, "use the longest healthy duration")
        check_whole("slow_ratio.min_calls", self.min_calls, "use min_calls=1 to judge from the first call on")
        check_seconds("slow_ratio.window", self.window, "use window=60")

    @property
    def rate(self) -> float:
        return self.r

    @property
    def span(self) -> float:
        return self.window

    def counts_against(self, failed: bool, duration: float) -> bool:
        return duration > self.threshold

    def tally(self) -> Tally:
        return _Buckets(self)

    def __str__(self) -> str:
        return (
            f"slow_ratio({self.r:g}, threshold={self.threshold:g}, min_calls={self.min_calls}, window={self.window:g})"
        )


class _Streak(Tally):
    __slots__ = ("_rule", "_streak")

    def __init__(self, rule: Consecutive) -> None:
        self._rule = rule
        self._streak = 0

    def succeed(self, now: float, duration: float) -> bool:
        self._streak = 0
        return False

    def fail(self, now: float, duration: float) -> bool:
        self._streak += 1
        return True

    def tripped(self, now: float) -> bool:
        return self._streak >= self._rule.n

    def failures(self, now: float) -> int:
        return self._streak

    calls = failures

    def figures(self, now: float) -> Figures:
        return {"failures": self._streak, "threshold": self._rule.n}


class _Failures(Tally):
    """The instants of the last n failures; more could not change the answer."""

    __slots__ = ("_at", "_rule")

    def __init__(self, rule: Count) -> None:
        self._rule = rule
        self._at: deque[float] = deque(maxlen=rule.n)

    def succeed(self, now: float, duration: float) -> bool:
        return False

    def fail(self, now: float, duration: float) -> bool:
        self._at.append(now)
        return True

    def tripped(self, now: float) -> bool:
        return self.failures(now) >= self._rule.n

    def failures(self, now: float) -> int:
        at, window = self._at, self._rule.window
        while at and now - at[0] > window:
            at.popleft()
        return len(at)

    calls = failures

    def figures(self, now: float) -> Figures:
        return {"failures": self.failures(now), "threshold": self._rule.n, "window": self._rule.window}


class _LastN(Tally):
    """The last n results as bits, the newest lowest; a set bit is a failure."""

    __slots__ = ("_bits", "_calls", "_rule")

    def __init__(self, rule: KOfN) -> None:
        self._rule = rule
        self._bits = 0
        self._calls = 0

    def succeed(self, now: float, duration: float) -> bool:
        self._push(0)
        return False

    def fail(self, now: float, duration: float) -> bool:
        self._push(1)
        return True

    def _push(self, bit: int) -> None:
        n = self._rule.n
        self._bits = (self._bits << 1 | bit) & ((1 << n) - 1)
        if self._calls < n:
            self._calls += 1

    def tripped(self, now: float) -> bool:
        return self._bits.bit_count() >= self._rule.k

    def failures(self, now: float) -> int:
        return self._bits.bit_count()

    def calls(self, now: float) -> int:
        return self._calls

    def figures(self, now: float) -> Figures:
        rule = self._rule
        return {"failures": self.failures(now), "calls": self._calls, "threshold": rule.k, "of": rule.n}


class _Bucket:
    __slots__ = ("against", "calls", "start")

    def __init__(self, start: float) -> None:
        self.start = start
        self.calls = 0
        self.against = 0


class _Buckets(Tally):
    """Calls and bad calls in tenths of the window.

    A bucket starts with the first result after its predecessor's tenth and leaves whole once its start is a
    window old. So a result counts for the whole window at most, and for nine tenths of it at least.
    """

    __slots__ = ("_buckets", "_newest", "_rule", "_slow", "_start", "_tenth")

    def __init__(self, rule: Ratio | SlowRatio) -> None:
        self._rule = rule
        self._tenth = rule.window / 10
        # What takes longer counts against the rule, whether it failed or not; infinite where only failures count.
        self._slow = rule.threshold if isinstance(rule, SlowRatio) else math.inf
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
        buckets, window = self._buckets, self._rule.window
        while buckets and now - buckets[0].start >= window:
            buckets.popleft()

    def tripped(self, now: float) -> bool:
        calls = self.calls(now)
        return calls >= self._rule.min_calls and self.failures(now) / calls >= self._rule.r

    def failures(self, now: float) -> int:
        self._prune(now)
        return sum(bucket.against for bucket in self._buckets)

    def calls(self, now: float) -> int:
        self._prune(now)
        return sum(bucket.calls for bucket in self._buckets)

    def figures(self, now: float) -> Figures:
        rule, calls, against = self._rule, self.calls(now), self.failures(now)
        rate = against / calls if calls else 0.0
        judged: Figures = {"failures": against}
        if isinstance(rule, SlowRatio):
            judged = {"slow": against, "slower_than": rule.threshold}
        limits: Figures = {"threshold": rule.r, "min_calls": rule.min_calls, "window": rule.window}
        return {"calls": calls, "rate": rate} | judged | limits


def check_whole(field: str, value: object, fix: str) -> None:
    """Refuses anything but an int of at least 1. Raises PolicyError."""
    if isinstance(value, bool) or not isinstance(value, int) or value < 1:
        raise PolicyError(f"{field} must be a whole number of at least 1, got {value!r}; {fix}")


def check_seconds(field: str, value: object, fix: str) -> None:
    """Refuses anything but a finite number of seconds above 0. Raises PolicyError."""
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 < value < math.inf:
        raise PolicyError(f"{field} must be a finite number of seconds above 0, got {value!r}; {fix}")


def _check_share(field: str, value: object) -> None:
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 < value <= 1:
        raise PolicyError(f"{field} must be above 0 and at most 1, got {value!r}; use 0.5 to open at half")
