"""Rate limiter: at most so many calls per second; refuse the rest or let them wait their turn."""

from __future__ import annotations

import math
import sys
import threading
from collections import OrderedDict
from collections.abc import Callable, Hashable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Final

from holdfast.core.check import check_numbers, check_seconds
from holdfast.core.context import ResilienceContext
from holdfast.core.outcome import Outcome, OutcomeKind
from holdfast.errors import PolicyError, RateLimited
from holdfast.guard.call import Call, Next
from holdfast.machine.bucket import Bucket, PeriodBucket, TokenBucket

MAX_PARTITIONS: Final = 10_000
UNDIVIDED: Final = sys.implementation.name == "cpython" and getattr(sys, "_is_gil_enabled", lambda: True)()
"""Whether lines that call nothing and do not loop run with no other thread in between; a test looks at the opcodes."""
PartitionBy = Callable[[ResilienceContext], Hashable]


@dataclass(frozen=True, slots=True)
class RateLimit:
    """`rate` calls a second, up to `burst` at once. With `per`, `rate` calls in each period of that many seconds.

    `max_wait` lets a call reserve its turn and wait for it; without, a call over the rate is refused. `by` splits the
    limit by a key taken from the context (at most 10,000 keys are remembered, least recently used leave first).
    """

    rate: float
    burst: int | None = None
    per: float | None = None
    max_wait: float | None = None
    by: PartitionBy | None = None
    name: str | None = None
    id: str | None = None

    def __post_init__(self) -> None:
        if self.per is not None and self.burst is not None:
            raise PolicyError(
                f"RateLimit.burst does not go with per, got burst={self.burst!r}; `rate` calls may come at once"
            )
        if not _is_number(self.rate) or not self.rate > 0:
            raise PolicyError(
                f"RateLimit.rate must be a number of calls above 0, got {self.rate!r}; use 0.1 for one in 10 s"
            )
        if self.per is not None and self.rate != int(self.rate):
            raise PolicyError(f"RateLimit.rate must be a whole number with per, got {self.rate!r}; use a longer per")
        if self.burst is not None:
            check_numbers("RateLimit", burst=self.burst)
        if self.per is not None:
            check_seconds("RateLimit.per", self.per, "leave it out for a rate per second")
        if self.by is not None and not callable(self.by):
            raise PolicyError(f"RateLimit.by must be callable, got {self.by!r}; use lambda ctx: ctx.get(TENANT)")
        if self.max_wait is not None and (not _is_number(self.max_wait) or self.max_wait < 0):
            raise PolicyError(
                f"RateLimit.max_wait must be seconds, 0 or more, got {self.max_wait!r}; leave it out to refuse"
            )
        try:
            self.bucket()
        except PolicyError as error:
            raise PolicyError(f"RateLimit: {error}") from None

    def bucket(self) -> Bucket:
        """A full bucket under these limits."""
        if self.per is not None:
            return PeriodBucket(int(self.rate), self.per)
        return TokenBucket(self.rate, 1 if self.burst is None else self.burst)


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)


class LiveBucket:
    """A bucket, or one per key, shared by threads and loops.

    The fused path takes from `bucket` without the lock, in lines that nothing interrupts, unless somebody is `busy`
    with it under the lock.
    """

    __slots__ = ("_parts", "acquire", "bucket", "busy", "policy", "release")

    def __init__(self, policy: RateLimit) -> None:
        self.policy = policy
        self.bucket = policy.bucket()
        self.busy = False
        self._parts: OrderedDict[Hashable, Bucket] = OrderedDict()
        lock = threading.RLock()
        # Bound once, for the fused path too: `with lock` costs twice as much.
        self.acquire, self.release = lock.acquire, lock.release

    @property
    def quick(self) -> str | None:
        """How to take from it without the lock, if that can be done; see `TokenBucket.QUICK`."""
        return TokenBucket.QUICK if UNDIVIDED and type(self.bucket) is TokenBucket else None

    def take_for(self, key: Hashable, now: float, max_wait: float | None) -> float | None:
        """The wait until our turn (nothing is taken if it is None or, without `max_wait`, above 0)."""
        with self._alone():
            bucket = self._part(key)
            return bucket.take(now) if max_wait is None else bucket.reserve(now, max_wait)

    def next_token(self, key: Hashable, now: float) -> float:
        """The seconds until a turn would come; takes nothing."""
        with self._alone():
            bucket = self._part(key)
            wait = bucket.reserve(now, math.inf)
            if wait is None:
                return 0.0
            bucket.cancel(now + wait, now)
            return wait

    def give_back(self, key: Hashable, slot: float, now: float) -> None:
        """Cancel a reserved turn."""
        with self._alone():
            self._part(key).cancel(slot, now)

    def change(self, policy: RateLimit, now: float) -> None:
        """New limits for a limiter in use; the fill level stays where the kind of bucket does."""
        with self._alone():
            self.policy = policy
            self.bucket = self._changed(self.bucket, now)
            for key, bucket in self._parts.items():
                self._parts[key] = self._changed(bucket, now)

    @contextmanager
    def _alone(self) -> Iterator[None]:
        """The lock, and nobody on the fused path. The lock may be held already: a finalizer or a signal handler."""
        self.acquire()
        before, self.busy = self.busy, True
        try:
            yield
        finally:
            self.busy = before
            self.release()

    def _changed(self, bucket: Bucket, now: float) -> Bucket:
        policy = self.policy
        if isinstance(bucket, TokenBucket) and policy.per is None:
            bucket.change(policy.rate, 1 if policy.burst is None else policy.burst, now)
        elif isinstance(bucket, PeriodBucket) and policy.per is not None:
            bucket.change(int(policy.rate), policy.per, now)
        else:
            return policy.bucket()
        return bucket

    def _part(self, key: Hashable) -> Bucket:
        if key is None:
            return self.bucket
        part = self._parts.get(key)
        if part is None:
            part = self._parts[key] = self.policy.bucket()
            if len(self._parts) > MAX_PARTITIONS:
                self._parts.popitem(last=False)
        else:
            self._parts.move_to_end(key)
        return part


class RateLimiterStrategy:
    """Takes a token before each pass. A failed call does not give it back; a cancelled wait does."""

    kind = "rate_limit"
    passes_context = True

    def __init__(
        self,
        name: str = "rate limiter",
        rate_per_s: float = 10.0,
        burst: int = 10,
        *,
        policy: RateLimit | None = None,
        bucket: LiveBucket | None = None,
    ) -> None:
        self.name = name
        self.policy = RateLimit(rate_per_s, burst) if policy is None else policy
        self.bucket = LiveBucket(self.policy) if bucket is None else bucket

    def adopt(self, old: RateLimiterStrategy, now: float) -> None:
        """Go on with the tokens of an older strategy, under this one's limits."""
        self.bucket = old.bucket
        self.bucket.change(self.policy, now)

    async def execute(self, nxt: Next, ctx: ResilienceContext) -> Outcome[Any]:
        call: Call = ctx.call
        if call.replay is None:
            refusal = await self._admit(call, ctx)
            if refusal is not None:
                return refusal
        return await nxt(ctx)

    async def _admit(self, call: Call, ctx: ResilienceContext) -> Outcome[Any] | None:
        try:
            key = None if self.policy.by is None else self.policy.by(ctx)
            hash(key)
        except Exception as fault:  # user code; its failure is the call's failure
            return Outcome(OutcomeKind.TERMINAL_FAILURE, None, fault, None, call.notes())
        now = call.clock.monotonic()
        patience = None if self.policy.max_wait is None else ctx.deadline.clamp(self.policy.max_wait)
        wait = self.bucket.take_for(key, now, patience)
        if wait is None or (patience is None and wait > 0):
            after = self.bucket.next_token(key, now) if wait is None else wait
            error = RateLimited(self.name, after, f"over {self.describe_rate()}")
            return call.refuse(error, self.name)
        if wait > 0:
            try:
                await call.driver.sleep(wait)
            except BaseException:
                self.bucket.give_back(key, now + wait, call.clock.monotonic())
                raise
            call.wait += wait
        return None

    def describe_rate(self) -> str:
        policy = self.policy
        if policy.per is not None:
            return f"{policy.rate:g} calls in {policy.per:g} s"
        return f"{policy.rate:g} calls/s with bursts of {policy.burst or 1}"

    def describe(self) -> str:
        return f"rate limit {self.name!r}: {self.describe_rate()}"
