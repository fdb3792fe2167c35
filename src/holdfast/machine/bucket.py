"""Rate limits: a token bucket that refills evenly, and one that refills at once at every period start.

Both are the GCRA in counting form. Instead of a level that is topped up by rounded amounts, a bucket keeps how many
tokens went out since a moment at which it was full; so errors of floating point do not add up.
"""

from __future__ import annotations

import math
from bisect import insort
from typing import ClassVar, Protocol

from holdfast.errors import PolicyError

# A caller that waits exactly the time it was told must find its token, though `now + wait` was rounded on the way.
_SLACK_S = 1e-8


class Bucket(Protocol):
    """What a rate limiter asks of either kind."""

    def take(self, now: float) -> float:
        """Take a token: 0.0 if there was one, else the seconds until the next (nothing is taken)."""
        ...

    def reserve(self, now: float, max_wait: float) -> float | None:
        """Reserve the next free slot: the seconds until it, or None (nothing reserved) if above `max_wait`."""
        ...

    def cancel(self, slot: float, now: float) -> None:
        """Give back the reservation for the moment `slot` (time of reserving + wait), unless it has passed."""
        ...

    def tokens(self, now: float) -> float:
        """The tokens that could be taken at once."""
        ...


class TokenBucket:
    """`rate_per_s` tokens a second, at most `burst` kept. Starts full.

    Reservations are first come, first served: while one is pending, `take` refuses.

    `QUICK` is the beginning of `take` in straight lines, for who writes code: while they run on CPython with its lock,
    no other thread does, since they call nothing and do not loop. "no" stands for all that follows.
    """

    __slots__ = ("_freed", "_spare", "edge", "origin", "rate_per_s", "taken")

    QUICK: ClassVar = """\
refilled = (now - bucket.origin) * bucket.rate_per_s
taken = bucket.taken
if taken <= refilled:
    bucket.origin = now
    bucket.taken = 1.0
elif taken <= refilled + bucket.edge:
    bucket.taken = taken + 1.0
else:
    no
"""

    def __init__(self, rate_per_s: float, burst: float = 1) -> None:
        self.origin = -math.inf  # a moment at which the bucket was full
        # Tokens given out or promised since then; a float, as it is compared with floats in every call.
        self.taken = 0.0
        self._freed: list[float] = []  # cancelled slots, sorted, with later slots still promised
        self._set(rate_per_s, burst)

    def _set(self, rate_per_s: float, burst: float) -> None:
        if not (rate_per_s > 0 and math.isfinite(rate_per_s)):
            raise PolicyError(f"rate_per_s must be a finite number above 0, got {rate_per_s!r}")
        if not (burst >= 1 and math.isfinite(burst)):
            raise PolicyError(f"burst must be a finite number of at least 1, got {burst!r}; use burst=1 for no bursts")
        self.rate_per_s = float(rate_per_s)
        self._spare = burst - 1.0
        self.edge = self._spare + rate_per_s * _SLACK_S

    @property
    def burst(self) -> float:
        return self._spare + 1

    def take(self, now: float) -> float:
        """Take a token: 0.0 if there was one, else the seconds until the next (nothing is taken)."""
        # The same as QUICK, and what follows its "no".
        refilled = (now - self.origin) * self.rate_per_s
        taken = self.taken
        if taken <= refilled:
            self.origin = now
            self.taken = 1.0
            return 0.0
        if taken <= refilled + self.edge:
            self.taken = taken + 1.0
            return 0.0
        if self._freed and (wait := self._freed_wait(now)) is not None:
            if wait == 0.0:
                del self._freed[0]
            return wait
        return (taken - (refilled + self._spare)) / self.rate_per_s

    def reserve(self, now: float, max_wait: float) -> float | None:
        """Reserve the next free slot: the seconds until it, or None (nothing reserved) if above `max_wait`."""
        wait = self._freed_wait(now)
        if wait is not None:
            if wait > max_wait:
                return None
            del self._freed[0]
            return wait
        wait = self._wait(now)
        if wait > max_wait:
            return None
        if self._level(now) >= self.burst:
            self.origin, self.taken = now, 0.0
        self.taken += 1
        return wait

    def cancel(self, slot: float, now: float) -> None:
        """Give back the reservation for the moment `slot` (time of reserving + wait), unless it has passed.

        The next caller gets that very slot: promises already made for later slots cannot move.
        """
        if slot < now - _SLACK_S:
            return
        insort(self._freed, slot)
        half = 0.5 / self.rate_per_s
        # The last slot promised is simply not promised any more, and so on back.
        while self._freed and self._freed[-1] > self._last_slot() - half:
            del self._freed[-1]
            self.taken -= 1

    def tokens(self, now: float) -> float:
        """The tokens that could be taken at once, fractions included."""
        return max(0.0, min(self.burst, self._level(now)))

    def change(self, rate_per_s: float, burst: float, now: float) -> None:
        """Change the limits of a bucket in use: as full, in proportion, as it was; promised slots stay promised."""
        level, old = min(self._level(now), self.burst), self.burst
        self._set(rate_per_s, burst)
        self.origin = now
        self.taken = burst - (level / old * burst if level > 0 else level)
        self._freed.clear()

    def _level(self, now: float) -> float:
        return (now - self.origin) * self.rate_per_s + self._spare + 1 - self.taken

    def _wait(self, now: float) -> float:
        wait = (self.taken - self._spare) / self.rate_per_s - (now - self.origin)
        return wait if wait > _SLACK_S else 0.0

    def _last_slot(self) -> float:
        return self.origin + (self.taken - self._spare - 1) / self.rate_per_s

    def _freed_wait(self, now: float) -> float | None:
        while self._freed and self._freed[0] < now - _SLACK_S:
            del self._freed[0]
        return max(0.0, self._freed[0] - now) if self._freed else None


class PeriodBucket:
    """`permits` tokens in every period of `per` seconds, all of them there when it starts. Starts full.

    Periods follow each other without a gap from the first use on.
    """

    __slots__ = ("_end", "_freed", "_index", "_origin", "_per", "_permits", "_used")

    def __init__(self, permits: int, per: float) -> None:
        self._origin: float | None = None  # start of period 0
        self._index = 0  # the current period
        self._end = -math.inf  # and its end
        self._used = 0  # tokens given out or promised from the current period on
        self._freed: list[int] = []  # periods of cancelled slots, sorted, with later slots still promised
        self._set(permits, per)

    def _set(self, permits: int, per: float) -> None:
        if not permits >= 1:
            raise PolicyError(f"permits must be at least 1, got {permits!r}")
        if not (per > 0 and math.isfinite(per)):
            raise PolicyError(f"per must be a finite number of seconds above 0, got {per!r}")
        self._permits = permits
        self._per = per

    @property
    def rate_per_s(self) -> float:
        return self._permits / self._per

    @property
    def burst(self) -> float:
        return self._permits

    def take(self, now: float) -> float:
        """Take a token: 0.0 if there was one, else the seconds until the next (nothing is taken)."""
        if now >= self._end:
            self._turn(now)
        used = self._used
        if used < self._permits:
            self._used = used + 1
            return 0.0
        period = self._next_period()
        if period > self._index:
            return self._wait(period, now)
        del self._freed[0]
        return 0.0

    def reserve(self, now: float, max_wait: float) -> float | None:
        """Reserve the next free slot: the seconds until it, or None (nothing reserved) if above `max_wait`."""
        if now >= self._end:
            self._turn(now)
        period = self._next_period()
        wait = self._wait(period, now)
        if wait > max_wait:
            return None
        if self._freed:
            del self._freed[0]
        else:
            self._used += 1
        return wait

    def cancel(self, slot: float, now: float) -> None:
        """Give back the reservation for the moment `slot` (time of reserving + wait), unless its period is over."""
        if now >= self._end:
            self._turn(now)
        period = self._period(slot)
        if period < self._index or not self._used:
            return
        insort(self._freed, period)
        while self._freed and self._freed[-1] >= self._index + (self._used - 1) // self._permits:
            del self._freed[-1]
            self._used -= 1

    def tokens(self, now: float) -> float:
        """The tokens left in the period of `now`."""
        if now >= self._end:
            self._turn(now)
        return float(max(0, self._permits - self._used) + self._freed.count(self._index))

    def change(self, permits: int, per: float, now: float) -> None:
        """Change the limits of a bucket in use: a period starts now, as full, in proportion, as the running one."""
        left, old = self.tokens(now), self._permits
        promised = max(0, self._used - old)
        self._set(permits, per)
        self._origin, self._index, self._end = now, 0, now + per
        self._used = permits - int(left * permits / old) + promised
        self._freed.clear()

    def _turn(self, now: float) -> None:
        if self._origin is None:
            self._origin = now
        index = max(self._period(now), self._index)
        self._used = max(0, self._used - (index - self._index) * self._permits)
        self._index = index
        self._end = self._origin + (index + 1) * self._per - _SLACK_S
        while self._freed and self._freed[0] < index:
            del self._freed[0]

    def _period(self, moment: float) -> int:
        assert self._origin is not None
        return int((moment - self._origin + _SLACK_S) // self._per)

    def _next_period(self) -> int:
        return self._freed[0] if self._freed else self._index + self._used // self._permits

    def _wait(self, period: int, now: float) -> float:
        assert self._origin is not None
        return 0.0 if period <= self._index else max(0.0, self._origin + period * self._per - now)


def smooth(rate_per_s: float) -> TokenBucket:
    """One token per interval of 1/rate seconds, none saved up."""
    return TokenBucket(rate_per_s, 1)


def bursty(permits: int, per: float) -> PeriodBucket:
    """`permits` tokens per period, available at once when it starts."""
    return PeriodBucket(permits, per)
