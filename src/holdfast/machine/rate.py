"""A rate that many processes share: how many calls may be made now, by one number that all of them know.

The number is a time, `until`: that up to which calls were granted, as if each took its share of the time. A call is
granted while that is no further ahead than a burst allows.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

from holdfast.core.check import check_seconds
from holdfast.errors import PolicyError


@dataclass(frozen=True, slots=True)
class Rate:
    """`calls` in `per` seconds, evenly; up to `burst` of them at once after a pause."""

    calls: float
    per: float = 1.0
    burst: int = 1

    def __post_init__(self) -> None:
        check_seconds("Rate.per", self.per, "use 1 for a rate per second")
        calls: object = self.calls
        if isinstance(calls, bool) or not isinstance(calls, int | float) or not 0 < calls <= 1e6 * self.per:
            story = f"Rate.calls must be above 0 and at most a million a second, got {self.calls!r}"
            raise PolicyError(f"{story}; use 1 and a longer per for a slow rate")
        if type(self.burst) is not int or not 1 <= self.burst <= 1_000_000:
            raise PolicyError(f"Rate.burst must be a whole number from 1 to a million, got {self.burst!r}; use 1")

    @property
    def apart(self) -> int:
        """Microseconds between two calls."""
        return max(1, round(self.per * 1e6 / self.calls))


class Grant(NamedTuple):
    """So many calls, and the new `until`; of none, when the next one can be had."""

    calls: int
    until: int


def grant(rate: Rate, until: int | None, now: int, wanted: int) -> Grant:
    """Up to so many calls at this time, in microseconds; `until` is None where none was ever granted."""
    ahead = now if until is None else max(now, until)
    calls = min(wanted, rate.burst - -(-(ahead - now) // rate.apart))
    if calls <= 0:
        return Grant(0, ahead - (rate.burst - 1) * rate.apart)
    return Grant(calls, ahead + calls * rate.apart)
