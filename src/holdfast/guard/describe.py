"""Guards in words: what one is made of, and what a call of it may cost at worst."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol

from holdfast.guard.plan import Plan
from holdfast.guard.retry import RetryStrategy
from holdfast.guard.timeout import TimeoutStrategy


class Guarded(Protocol):
    """A guard or a pipeline."""

    name: str

    def plan_in_context(self) -> Plan: ...


class Concern(NamedTuple):
    """Something that a guard may have been meant to do otherwise: the rule, what is so, and what to do about it."""

    rule: str
    what: str
    fix: str


@dataclass(frozen=True, slots=True)
class Description:
    """The composition of a guard. `order` is outermost first; `max_calls` and `max_seconds` may be infinite.

    `max_seconds` is what the guard allows. A sync function that does not read `remaining_time()` cannot be cut and may
    take longer, unless its timeout abandons it.
    """

    name: str
    order: tuple[str, ...]
    max_calls: float
    max_seconds: float
    warnings: tuple[str, ...] = ()

    def as_dict(self) -> dict[str, Any]:
        """Plain values for JSON; None stands for infinite."""
        return {
            "name": self.name,
            "order": list(self.order),
            "max_calls": _finite(self.max_calls),
            "max_seconds": _finite(self.max_seconds),
            "warnings": list(self.warnings),
        }

    def __str__(self) -> str:
        calls = "any number of calls" if self.max_calls == math.inf else f"at most {counted(self.max_calls, 'call')}"
        time = "no time limit" if self.max_seconds == math.inf else f"at most {self.max_seconds:.4g} s"
        lines = [f"{self.name}: {calls}, {time}"]
        lines += [f"  {number}. {line}" for number, line in enumerate((*self.order, "the call"), 1)]
        return "\n".join(lines + [f"  warning: {warning}" for warning in self.warnings])


def describe(guard: Guarded) -> Description:
    """What a guard or pipeline does around a call, and what a call may cost at worst.

    A strategy of your own may offer `worst_case(calls, seconds)`, which gets the figures of what is inside it and
    returns those with itself around.
    """
    strategies = guard.plan_in_context().strategies
    calls: float = 1
    seconds = math.inf
    for strategy in reversed(strategies):
        calls, seconds = _worst_case(strategy, calls, seconds)
    keeper = guard.plan_in_context().setting.keeper
    kept = () if keeper is None else (keeper.describe(),)
    order = (*kept, *map(line_of, strategies))
    return Description(guard.name, order, calls, seconds, tuple(f"{one.what}; {one.fix}" for one in concerns(guard)))


def line_of(strategy: Any) -> str:
    """One line about a strategy, in its own words if it has any."""
    return str(strategy.describe()) if hasattr(strategy, "describe") else f"custom: {type(strategy).__name__}"


def _worst_case(strategy: Any, calls: float, seconds: float) -> tuple[float, float]:
    """The figures of a strategy around something that makes so many calls in so many seconds."""
    if hasattr(strategy, "worst_case"):
        calls, seconds = strategy.worst_case(calls, seconds)
        return calls, seconds
    match getattr(strategy, "kind", "custom"):
        case "timeout" | "attempt_timeout":
            return calls, min(seconds, strategy.timeout_s)
        case "retry":
            attempts = _attempts(strategy)
            return calls * attempts, seconds * attempts + strategy.policy.longest_waits()
        case "hedge":
            runs, delay = 1 + strategy.policy.max_hedged, strategy.policy.delay
            return calls * runs, seconds * runs if delay < 0 else seconds + delay * (runs - 1)
        case "bulkhead" | "adaptive":
            return calls, seconds + _longest_queueing(strategy)
        case "rate_limit":
            return calls, seconds + (strategy.policy.max_wait or 0.0)
    return calls, seconds


def _attempts(retry: RetryStrategy) -> float:
    return math.inf if retry.policy.attempts is None else retry.policy.attempts


def _longest_queueing(strategy: Any) -> float:
    if strategy.kind == "adaptive":
        return 0.0 if strategy.policy.queue is None else math.inf
    if strategy.slots.queue_limit == 0:
        return 0.0
    return math.inf if strategy.max_wait is None else float(strategy.max_wait)


def concerns(guard: Guarded) -> Iterator[Concern]:
    """What may be meant otherwise in the composition of a guard."""
    strategies = guard.plan_in_context().strategies
    kinds = [getattr(strategy, "kind", "custom") for strategy in strategies]
    retry = next((strategy for strategy in strategies if isinstance(strategy, RetryStrategy)), None)
    at = len(strategies) if retry is None else strategies.index(retry)
    total = min((s.timeout_s for s in strategies[:at] if isinstance(s, TimeoutStrategy)), default=math.inf)
    timed = any(isinstance(strategy, TimeoutStrategy) for strategy in strategies)
    if retry is not None and _attempts(retry) > 1:
        yield from _retry_concerns(retry, strategies[at + 1 :], total, timed)
    elif not timed:
        yield Concern("no-timeout", "no timeout: a call that hangs is never ended", "add Timeout(total=...)")
    for index, strategy in enumerate(strategies):
        bounded = any(isinstance(outer, TimeoutStrategy) for outer in strategies[:index])
        if kinds[index] in ("bulkhead", "adaptive") and not bounded and _longest_queueing(strategy) == math.inf:
            what = f"{strategy.name!r} queues without a time limit"
            yield Concern("endless-queue", what, "add Timeout(total=...) or max_wait")
    if "breaker" in kinds[:at] and retry is not None:
        what = "the breaker is outside the retry: it counts calls, not attempts, and does not end the retrying"
        yield Concern("breaker-outside", what, "leave the order out")
    if "hedge" in kinds:
        what = "hedging runs a call more than once at a time"
        yield Concern("hedging", what, "use it only for idempotent calls")
    if any(kind == "chaos" and s.policy.enabled is not False for kind, s in zip(kinds, strategies, strict=True)):
        yield Concern("chaos", "chaos is switched on", "switch it off in production")


def _retry_concerns(retry: RetryStrategy, inside: tuple[Any, ...], total: float, timed: bool) -> Iterator[Concern]:
    attempts = _attempts(retry)
    if not timed:
        what = "retry without a timeout: an attempt that hangs is never ended nor retried"
        yield Concern("no-timeout", what, "add Timeout(attempt=...)")
    if attempts == math.inf and total == math.inf:
        what = "unlimited attempts and no total time: it may retry for ever"
        yield Concern("endless-retry", what, "add Timeout(total=...)")
    elif total == math.inf:
        what = "only a total time bounds the waits that a dependency asks for (Retry-After)"
        yield Concern("unbounded-waits", what, "add Timeout(total=...)")
    seconds = math.inf
    for strategy in reversed(inside):
        _, seconds = _worst_case(strategy, 1, seconds)
    needed = seconds * attempts + retry.policy.longest_waits()
    if total < needed < math.inf:
        what = f"the total of {total:g} s may end before all {attempts} attempts: they need up to {needed:.4g} s"
        yield Concern("attempts-cut", what, "allow more time, or fewer attempts")


def counted(number: float, noun: str) -> str:
    """`3 calls`, `1 call`."""
    return f"{number:g} {noun}{'s' * (number != 1)}"


def _finite(value: float) -> float | None:
    return None if value == math.inf else value
