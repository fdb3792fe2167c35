"""An adaptive concurrency limit: it grows while calls are as fast as ever and shrinks when they start to queue.

Vegas-style: the queue in front of the dependency is estimated from how much slower recent calls are than the slowly
moving baseline. As the baseline creeps up under lasting overload, a second opinion comes from whether more calls in
flight still bring more throughput.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, fields
from typing import Final

from holdfast.core.check import check_numbers
from holdfast.errors import PolicyError

_MEDIAN_OF: Final = 5
_SMOOTHING_AGE: Final = 5
_WARMUP: Final = 10
_MOST_SAMPLES: Final = 2048
_BASELINE_FALL: Final = 0.3
_SHORTEST_S: Final = 1e-9


@dataclass(frozen=True, slots=True)
class AdaptiveLimit:
    """Bounds and pace of the limit.

    A window closes after `window_min` to `window_max` seconds (twice the fastest call between them) once it has
    `min_samples`. The limit stays below `ceiling_factor` times the calls in flight, less for many. With
    `queue=(2, 3)` waiting calls are refused more and more from 2 to 3 times the limit; None queues nothing.
    """

    min: int = 1
    max: int = 200
    initial: int = 20
    window_min: float = 1.0
    window_max: float = 30.0
    min_samples: int = 50
    quantile: float = 0.9
    baseline_age: int = 300
    correlation_size: int = 20
    ceiling_factor: float = 5.0
    ceiling_decay: float = 1.0
    queue: tuple[float, float] | None = None

    def __post_init__(self) -> None:
        check_numbers("AdaptiveLimit", **{f.name: getattr(self, f.name) for f in fields(self) if f.name != "queue"})
        _require(self.min >= 1, "min", self.min, "at least 1")
        _require(self.max >= self.min, "max", self.max, f"at least min, which is {self.min}")
        _require(self.min <= self.initial <= self.max, "initial", self.initial, f"from {self.min} to {self.max}")
        _require(self.window_min > 0, "window_min", self.window_min, "above 0")
        _require(self.window_max >= self.window_min, "window_max", self.window_max, "at least window_min")
        _require(self.min_samples >= 1, "min_samples", self.min_samples, "at least 1")
        _require(0 < self.quantile <= 1, "quantile", self.quantile, "above 0 and at most 1")
        _require(self.baseline_age >= 1, "baseline_age", self.baseline_age, "at least 1")
        _require(self.correlation_size >= 2, "correlation_size", self.correlation_size, "at least 2")
        _require(self.ceiling_factor >= 1, "ceiling_factor", self.ceiling_factor, "at least 1")
        _require(self.ceiling_decay >= 0, "ceiling_decay", self.ceiling_decay, "0 or more")
        if self.queue is not None:
            begin, end = self.queue
            _require(0 <= begin <= end, "queue", self.queue, "(start, maximum) with 0 <= start <= maximum")

    def ceiling(self, inflight: int) -> float:
        """The highest limit worth having with so many calls in flight: room for bursts, yet soon lowered."""
        factor = self.ceiling_factor - self.ceiling_decay * math.log10(max(1, inflight))
        return max(1.0, factor) * inflight


def _require(holds: bool, field: str, value: object, wanted: str) -> None:
    if not holds:
        raise PolicyError(f"AdaptiveLimit.{field} must be {wanted}, got {value!r}")


class Limiter:
    """The limit of this moment, moved by the durations of finished calls."""

    __slots__ = (
        "_baseline", "_limit", "_medians", "_min_rtt", "_peak", "_recent", "_rtts", "_seen", "_stride", "_trend",
        "_window_end", "policy",
    )  # fmt: skip

    _rtts: list[float]
    _seen: int
    _stride: int
    _peak: int
    _min_rtt: float

    def __init__(self, policy: AdaptiveLimit) -> None:
        self.policy = policy
        self._limit = float(policy.initial)
        self._medians: deque[float] = deque(maxlen=_MEDIAN_OF)
        self._recent = _Average(_SMOOTHING_AGE)
        self._baseline = _Average(policy.baseline_age, _BASELINE_FALL)
        self._trend: deque[tuple[float, float, float]] = deque(maxlen=policy.correlation_size)
        self._window_end: float | None = None
        self._clear_window()

    @property
    def limit(self) -> int:
        """How many calls may be in flight."""
        return int(self._limit)

    @property
    def baseline(self) -> float:
        """The duration in seconds that recent calls are compared with; 0 before the first window."""
        return self._baseline.value

    def ceiling(self, inflight: int) -> float:
        """The highest limit worth having with so many calls in flight."""
        return self.policy.ceiling(inflight)

    def sample(self, now: float, rtt: float, inflight: int, dropped: bool = False) -> bool:
        """Note a finished call: its seconds, and the calls in flight when it began, itself included.

        A dropped call (timed out, cancelled) says nothing about speed and is not counted. Returns whether the limit
        has changed.
        """
        if dropped or not 0 <= rtt < math.inf:
            return False
        if self._window_end is None:
            self._window_end = now + self.policy.window_min
        self._seen += 1
        self._peak = max(self._peak, inflight)
        self._min_rtt = min(self._min_rtt, rtt)
        if self._seen % self._stride == 0:
            self._keep(rtt)
        if now < self._window_end or self._seen < self.policy.min_samples:
            return False
        before = self.limit
        self._close_window(now)
        return self.limit != before

    def reject_rate(self, queued: int) -> float:
        """The share of calls to refuse when the limit is reached and `queued` wait already."""
        if self.policy.queue is None:
            return 1.0
        begin, end = (factor * self.limit for factor in self.policy.queue)
        if queued >= end:
            return 1.0
        return (queued - begin) / (end - begin) if queued > begin else 0.0

    def change(self, policy: AdaptiveLimit) -> None:
        """Go on under another policy: what was learnt stays, the limit moves into the new bounds."""
        self.policy = policy
        self._limit = min(max(self._limit, policy.min), policy.max)
        self._trend = deque(self._trend, maxlen=policy.correlation_size)
        self._baseline.age = policy.baseline_age

    def _keep(self, rtt: float) -> None:
        if len(self._rtts) == _MOST_SAMPLES:
            # A busy window keeps every second sample, then every fourth: bounded memory, no randomness.
            del self._rtts[::2]
            self._stride *= 2
        self._rtts.append(rtt)

    def _close_window(self, now: float) -> None:
        self._rtts.sort()
        rank = math.ceil(round(self.policy.quantile * len(self._rtts), 9))
        self._medians.append(self._rtts[max(0, rank - 1)])
        recent = max(_SHORTEST_S, self._recent.add(sorted(self._medians)[len(self._medians) // 2]))
        self._move(recent, self._baseline.add(recent), self._peak)
        span = min(max(2 * self._min_rtt, self.policy.window_min), self.policy.window_max)
        self._window_end = now + span
        self._clear_window()

    def _clear_window(self) -> None:
        self._rtts = []
        self._seen = 0
        self._stride = 1
        self._peak = 0
        self._min_rtt = math.inf

    def _move(self, recent: float, baseline: float, inflight: int) -> None:
        policy, limit = self.policy, self._limit
        self._trend.append((inflight, inflight / recent, recent))
        scale = math.log10(limit)
        step = max(1.0, scale)
        queue = math.ceil(limit * (1 - baseline / recent))
        saturated = inflight >= self.limit
        if queue > max(2.0, 6 * scale) or (saturated and overloaded(self._trend)):
            wanted = limit - step
        elif queue < max(1.0, 3 * scale):
            wanted = limit + step
        else:
            wanted = limit
        # Headroom beyond the ceiling is given up step by step, not at the first quiet window.
        wanted = min(wanted, max(policy.ceiling(inflight), limit - step))
        self._limit = min(max(wanted, policy.min), policy.max)


class _Average:
    """An exponentially weighted mean with the plain mean of its first values as start.

    With `fall`, it follows lower values at that weight: the fastest times seen are the honest baseline, and one learnt
    during overload must not outlive it.
    """

    __slots__ = ("_count", "_fall", "age", "value")

    def __init__(self, age: int, fall: float = 0.0) -> None:
        self.age = age
        self.value = 0.0
        self._fall = fall
        self._count = 0

    def add(self, value: float) -> float:
        self._count = min(self._count + 1, _WARMUP + 1)
        weight = 1 / self._count if self._count <= _WARMUP else 2 / (self.age + 1)
        if value < self.value:
            weight = max(weight, self._fall)
        self.value += weight * (value - self.value)
        return self.value


def overloaded(trend: Sequence[tuple[float, float, float]]) -> bool:
    """Whether more calls in flight no longer help, by records of (inflight, throughput, duration).

    Throughput falls as load rises; or duration rises with load and throughput hardly follows, or hardly moves.
    """
    if len(trend) < _WARMUP:
        return False
    loads, throughputs, durations = (list(column) for column in zip(*trend, strict=True))
    follows = correlation(loads, throughputs)
    if follows < 0:
        return True
    return correlation(loads, durations) > 0.5 and (follows < 0.3 or variation(throughputs) < 0.2)


def correlation(xs: Sequence[float], ys: Sequence[float]) -> float:
    """Pearson's coefficient, from -1 to 1; 0 when either does not vary."""
    x_mean, y_mean = sum(xs) / len(xs), sum(ys) / len(ys)
    x_spread = sum((x - x_mean) ** 2 for x in xs)
    y_spread = sum((y - y_mean) ** 2 for y in ys)
    # Rounding alone makes constant values appear to vary a little.
    if x_spread <= 1e-18 * x_mean**2 * len(xs) or y_spread <= 1e-18 * y_mean**2 * len(ys):
        return 0.0
    shared = sum((x - x_mean) * (y - y_mean) for x, y in zip(xs, ys, strict=True))
    return shared / (math.sqrt(x_spread) * math.sqrt(y_spread))


def variation(values: Sequence[float]) -> float:
    """The standard deviation relative to the mean."""
    mean = sum(values) / len(values)
    if mean == 0:
        return 0.0
    return math.sqrt(sum((value - mean) ** 2 for value in values) / len(values)) / abs(mean)


def class_rate(rate: float, priority: int, classes: int) -> float:
    """One priority class's part of a reject rate: the least urgent (classes - 1) is refused whole before the next."""
    return min(1.0, max(0.0, rate * classes - (classes - 1 - priority)))
