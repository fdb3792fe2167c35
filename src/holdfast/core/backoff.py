"""How long to wait before the next attempt: growth, jitter, cap."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum

from holdfast.errors import PolicyError


class BackoffStrategy(StrEnum):
    """How the wait grows from attempt to attempt."""

    EXPONENTIAL = "exponential"
    LINEAR = "linear"
    FIXED = "fixed"


class Jitter(StrEnum):
    """How a wait of d seconds is spread, so that callers that failed together do not return together."""

    NONE = "none"
    FULL = "full"  # U(0, d)
    EQUAL = "equal"  # d/2 + U(0, d/2)
    PROPORTIONAL = "proportional"  # d * U(0.75, 1.25)
    DECORRELATED = "decorrelated"  # U(base, 3 * previous wait), whatever the strategy
    SPREAD = "spread"  # d * U(0.5, 1.5)


# A jittered wait is d * (low + width * draw).
_LOW_AND_WIDTH: dict[str, tuple[float, float]] = {
    Jitter.NONE: (1.0, 0.0),
    Jitter.FULL: (0.0, 1.0),
    Jitter.EQUAL: (0.5, 0.5),
    Jitter.PROPORTIONAL: (0.75, 0.5),
    Jitter.SPREAD: (0.5, 1.0),
}


def delay(
    strategy: str,
    base: float,
    multiplier: float,
    cap: float,
    jitter: str,
    k: int,
    rng: Callable[[], float],
    previous: float | None = None,
) -> float:
    """The seconds to wait before call k + 2, so k = 0 comes before the second call; never above `cap`.

    `rng` draws from [0, 1); `previous` is the wait before this one, read by decorrelated jitter only.
    """
    if base <= 0:
        return 0.0
    if jitter == Jitter.DECORRELATED:
        top = max(base, 3.0 * (base if previous is None else previous))
        return min(base + (min(top, max(base, cap)) - base) * rng(), cap)
    # Growth saturates at the cap before the jitter: jitter on a number far above the cap would always be cut
    # to the cap itself, and every caller would come back at the same moment.
    wait = min(_growth(strategy, base, multiplier, k), cap)
    if jitter == Jitter.NONE:
        return wait
    low, width = _LOW_AND_WIDTH[jitter]
    return min(wait * (low + width * rng()), cap)


def _growth(strategy: str, base: float, multiplier: float, k: int) -> float:
    if strategy == BackoffStrategy.FIXED:
        return base
    if strategy == BackoffStrategy.LINEAR:
        return base * (k + 1)
    try:
        return base * float(multiplier) ** k
    except OverflowError:
        return math.inf


@dataclass(frozen=True, slots=True)
class Backoff:
    """A wait schedule in seconds. Names of strategy and jitter may be given as plain strings."""

    strategy: BackoffStrategy | str = BackoffStrategy.EXPONENTIAL
    base: float = 0.5
    multiplier: float = 2.0
    cap: float = 30.0
    jitter: Jitter | str = Jitter.FULL

    def __post_init__(self) -> None:
        object.__setattr__(self, "strategy", _choice("strategy", BackoffStrategy, self.strategy))
        object.__setattr__(self, "jitter", _choice("jitter", Jitter, self.jitter))
        if not (_is_number(self.base) and self.base >= 0):
            raise PolicyError(
                f"Backoff.base must be a finite number of seconds, 0 or more, got {self.base!r}; use base=0 for no wait"
            )
        if not (_is_number(self.cap) and self.cap > 0):
            raise PolicyError(
                f"Backoff.cap must be a finite number of seconds above 0, got {self.cap!r}; use base=0 for no wait"
            )
        if not (_is_number(self.multiplier) and self.multiplier >= 1):
            raise PolicyError(
                f"Backoff.multiplier must be a finite number of at least 1, got {self.multiplier!r}; "
                "use strategy='fixed' for a constant wait"
            )

    def delay(self, k: int, rng: Callable[[], float], previous: float | None = None) -> float:
        """The seconds to wait before call k + 2; see `holdfast.core.backoff.delay`."""
        if not self.base:
            return 0.0
        return delay(self.strategy, self.base, self.multiplier, self.cap, self.jitter, k, rng, previous)

    def longest(self, k: int) -> float:
        """The longest wait that `delay(k, ...)` can give, for worst-case figures."""
        if self.jitter == Jitter.DECORRELATED:
            return 0.0 if not self.base else min(_growth("exponential", self.base, 3.0, k + 1), self.cap)
        return delay(self.strategy, self.base, self.multiplier, self.cap, self.jitter, k, lambda: 1.0)


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)


def _choice(field: str, kinds: type[StrEnum], name: str) -> StrEnum:
    try:
        return kinds(name)
    except ValueError:
        choices = ", ".join(kinds)
        raise PolicyError(f"Backoff.{field} must be one of {choices}, got {name!r}") from None
