"""When a breaker opens: trip rules.

A rule is a frozen value; `tally()` makes the mutable counter of one circuit (`machine/tally.py`). Rules combine;
any of them trips alone. A circuit asks `tripped` only after a result that counts against the rule, so a plain
success never opens it.

    consecutive(n)           n failures in a row
    count(n, window)         n failures within the window, whatever succeeded in between
    ratio(r, min_calls)      a share r of the window's calls failed, once there were min_calls
    k_of_n(k, n)             k of the last n calls failed; n calls need not have been made
    slow_ratio(r, threshold) a share r of the window's calls took longer than the threshold, failed or not
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import ClassVar, Literal

from holdfast.core.check import check_seconds, check_whole
from holdfast.errors import PolicyError
from holdfast.machine.tally import Buckets, Failures, LastN, Streak, Tally

HeedsSuccess = Literal["never", "after_failure", "always"]


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
        return Streak(self.n)

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
        return Failures(self.n, self.window)

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
        return Buckets(self.r, self.min_calls, self.window)

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
        return LastN(self.k, self.n)

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
        return Buckets(self.r, self.min_calls, self.window, self.threshold)

    def __str__(self) -> str:
        return (
            f"slow_ratio({self.r:g}, threshold={self.threshold:g}, min_calls={self.min_calls}, window={self.window:g})"
        )


def _check_share(field: str, value: object) -> None:
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 < value <= 1:
        raise PolicyError(f"{field} must be above 0 and at most 1, got {value!r}; use 0.5 to open at half")
