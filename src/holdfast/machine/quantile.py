"""A moving quantile over the last durations, for delays that follow the dependency's own speed."""

from __future__ import annotations

import math
from bisect import bisect_left, insort
from collections import deque

from holdfast.errors import PolicyError


class MovingQuantile:
    """The last `size` durations in order of value and of age."""

    __slots__ = ("_ages", "_size", "_values")

    def __init__(self, size: int = 200) -> None:
        if not size >= 1:
            raise PolicyError(f"MovingQuantile size must be at least 1, got {size!r}")
        self._size = size
        self._ages: deque[float] = deque()
        self._values: list[float] = []

    def record(self, duration: float) -> None:
        """Add a duration and forget the oldest beyond `size`; what is not a finite time of 0 or more is ignored."""
        if not 0 <= duration < math.inf:
            return
        if len(self._ages) == self._size:
            oldest = self._ages.popleft()
            del self._values[bisect_left(self._values, oldest)]
        self._ages.append(duration)
        insort(self._values, duration)

    def quantile(self, q: float) -> float | None:
        """The smallest recorded duration that at least a share `q` of them do not exceed; None without any."""
        if not 0 <= q <= 1:
            raise ValueError(f"a quantile lies between 0 and 1, got {q!r}")
        count = len(self._values)
        if not count:
            return None
        # 0.07 * 100 is slightly above 7; rounding first keeps the rank from slipping to 8.
        return self._values[max(0, math.ceil(round(q * count, 9)) - 1)]

    def ready(self, min_samples: int) -> bool:
        """Whether enough durations were recorded to trust the quantile."""
        return len(self._values) >= min_samples

    def __len__(self) -> int:
        return len(self._values)
