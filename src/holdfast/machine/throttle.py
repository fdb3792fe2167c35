"""An adaptive throttle: the more of the recent calls failed, the larger the share that is shed before it starts."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Final

from holdfast.core.check import check_numbers
from holdfast.errors import PolicyError

_BUCKETS: Final = 10


@dataclass(frozen=True, slots=True)
class Throttle:
    """Shed once fewer than `threshold` of the calls in the last `window` seconds succeed, at most `cap` of them.

    Below `min_executions` in the window nothing is shed.
    """

    threshold: float = 0.9
    window: float = 60.0
    cap: float = 0.9
    min_executions: int = 10

    def __post_init__(self) -> None:
        check_numbers(
            "Throttle",
            threshold=self.threshold,
            window=self.window,
            cap=self.cap,
            min_executions=self.min_executions,
        )
        if not 0 < self.threshold <= 1:
            raise PolicyError(
                f"Throttle.threshold must be a success rate above 0 and at most 1, got {self.threshold!r}"
            )
        if not (self.window > 0 and math.isfinite(self.window)):
            raise PolicyError(f"Throttle.window must be a finite number of seconds above 0, got {self.window!r}")
        if not 0 <= self.cap < 1:
            raise PolicyError(
                f"Throttle.cap must be 0 or more and below 1, got {self.cap!r}; at 1 no call could ever show recovery"
            )
        if not self.min_executions >= 0:
            raise PolicyError(f"Throttle.min_executions must be 0 or more, got {self.min_executions!r}")


class ThrottleLedger:
    """Counts executions and successes in ten slices of the window; a slice leaves whole once it began a window ago."""

    __slots__ = (
        "_executions",
        "_index",
        "_origin",
        "_slice_end",
        "_slices",
        "_successes",
        "_width",
        "policy",
    )

    def __init__(self, policy: Throttle) -> None:
        self.policy = policy
        self._width = policy.window / _BUCKETS
        self._origin = 0.0
        self._index = -1  # the current slice, counted from the origin; -1 before the first record
        self._slice_end = -math.inf
        self._slices = [[0, 0] for _ in range(_BUCKETS)]  # executions, successes
        self._executions = 0
        self._successes = 0

    def record(self, now: float, success: bool) -> None:
        """Count one execution that ended."""
        if now >= self._slice_end:
            self._turn(now)
        current = self._slices[self._index % _BUCKETS]
        current[0] += 1
        self._executions += 1
        if success:
            current[1] += 1
            self._successes += 1

    def probability(self, now: float) -> float:
        """The share of calls to shed at this moment, between 0 and the cap."""
        if now >= self._slice_end:
            self._turn(now)
        executions, policy = self._executions, self.policy
        if executions < policy.min_executions:
            return 0.0
        missing = executions - self._successes / policy.threshold
        return min(policy.cap, missing / (executions + 1)) if missing > 0 else 0.0

    def shed(self, now: float, draw: float) -> bool:
        """Whether to shed this call, given a random `draw` from [0, 1)."""
        return draw < self.probability(now)

    def counts(self, now: float) -> tuple[int, int]:
        """Executions and successes in the window."""
        if now >= self._slice_end:
            self._turn(now)
        return self._executions, self._successes

    def _turn(self, now: float) -> None:
        if self._index < 0:
            self._origin, self._index = now, 0
        index = max(self._index, int((now - self._origin) / self._width))
        for passed in range(self._index + 1, min(index, self._index + _BUCKETS) + 1):
            leaving = self._slices[passed % _BUCKETS]
            self._executions -= leaving[0]
            self._successes -= leaving[1]
            leaving[0] = leaving[1] = 0
        self._index = index
        self._slice_end = self._origin + (index + 1) * self._width
