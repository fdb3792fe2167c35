"""Outcomes in words: why a call came out as it did."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any, Final

from holdfast.core.classify import retry_after_hint
from holdfast.core.outcome import Outcome, OutcomeKind, StoppedBy, describe_error
from holdfast.errors import GuardRejected, GuardTimeout
from holdfast.guard.circuit import CircuitBreakerStrategy
from holdfast.guard.describe import Guarded, counted, line_of
from holdfast.guard.plan import Plan
from holdfast.guard.retry import RetryStrategy
from holdfast.guard.timeout import TimeoutStrategy


@dataclass(frozen=True, slots=True)
class Explanation:
    """Why a call came out as it did: the rule that decided, its numbers, and when the call would pass.

    `reason` is a stable code: that of the refusal, what stopped the retrying, or the kind of the outcome. `numbers` are
    those of now, not of the call. `cause` is the error behind it, `original` the outcome that a fallback replaced.
    """

    guard: str
    outcome: OutcomeKind
    reason: str
    summary: str
    rule: str | None = None
    passes: str | None = None
    retry_after: float | None = None
    cause: str | None = None
    numbers: dict[str, Any] = field(default_factory=dict)
    attempts: tuple[str, ...] = ()
    original: Explanation | None = None

    def as_dict(self) -> dict[str, Any]:
        """Plain values for JSON."""
        return {
            "guard": self.guard,
            "outcome": self.outcome.value,
            "reason": self.reason,
            "summary": self.summary,
            "rule": self.rule,
            "passes": self.passes,
            "retry_after": self.retry_after,
            "cause": self.cause,
            "numbers": self.numbers,
            "attempts": list(self.attempts),
            "original": None if self.original is None else self.original.as_dict(),
        }

    def __str__(self) -> str:
        lines = [f"{self.guard}: {self.summary}"]
        if self.rule is not None:
            lines.append(f"  rule: {self.rule}")
        if self.cause is not None:
            lines.append(f"  cause: {self.cause}")
        if self.numbers:
            lines.append(f"  now: {_shown(self.numbers)}")
        if self.passes is not None:
            lines.append(f"  would pass: {self.passes}")
        lines += [f"  {attempt}" for attempt in self.attempts]
        if self.original is not None:
            lines += [f"  {line}" for line in str(self.original).splitlines()]
        return "\n".join(lines)


def explain(guard: Guarded, outcome: Outcome[Any]) -> Explanation:
    """Why this outcome of the guard's came about."""
    plan = guard.plan_in_context()
    facts: dict[str, Any] = {"guard": guard.name, "outcome": outcome.kind, "reason": outcome.kind.value}
    facts |= {"retry_after": outcome.retry_after, "attempts": tuple(_story(outcome))}
    original = outcome.metadata.get("original")
    if isinstance(original, Outcome):
        facts |= _replaced(outcome) | {"original": explain(guard, original), "attempts": ()}
    elif outcome.kind is OutcomeKind.REJECTED:
        facts |= _refused(plan, outcome)
    elif outcome.kind is OutcomeKind.TIMEOUT and isinstance(outcome.error, GuardTimeout):
        facts |= _timed_out(plan, outcome)
    elif outcome.kind.has_value:
        how = "at the first attempt" if outcome.attempts <= 1 else f"at attempt {outcome.attempts}"
        facts["summary"] = f"{'succeeded' if outcome.is_success else 'gave a partial result'} {how}"
    else:
        facts |= _stopped(plan, outcome)
    return Explanation(**facts)


def _story(outcome: Outcome[Any]) -> Iterator[str]:
    """A line per attempt."""
    for attempt in outcome.metadata.get("trail", ()):
        text = f"attempt {attempt.number + 1}: {attempt.kind.value} in {attempt.service:.3g} s"
        if attempt.endpoint is not None:
            text += f" at {attempt.endpoint}"
        if attempt.delay:
            text += f", after a wait of {attempt.delay:.3g} s"
        if attempt.wait:
            text += f", queued for {attempt.wait:.3g} s"
        if attempt.error is not None:
            text += f": {describe_error(attempt.error)}"
            hint = retry_after_hint(attempt.error)
            if hint is not None:
                text += f" (asks to be retried after {hint:.3g} s)"
        yield text


def _replaced(outcome: Outcome[Any]) -> dict[str, Any]:
    if outcome.is_success:
        return {"reason": "fallback", "summary": "the fallback answered in place of this outcome:"}
    failed = "" if outcome.error is None else f" ({describe_error(outcome.error)})"
    return {"reason": "fallback", "summary": f"the fallback failed{failed} in place of this outcome:"}


def _refused(plan: Plan, outcome: Outcome[Any]) -> dict[str, Any]:
    error, reason = outcome.error, outcome.reason or "rejected"
    name, detail = (error.guard, error.detail) if isinstance(error, GuardRejected) else ("", outcome.detail)
    before = f"after {counted(outcome.attempts, 'attempt')}" if outcome.attempts else "before the function ran"
    why = _REFUSALS.get(reason, "{name!r} said no").format(name=name)
    told = f" ({detail})" if detail else ""
    facts: dict[str, Any] = {"reason": reason, "summary": f"refused {before}: {why}{told}"}
    if outcome.retry_after is not None:
        facts["passes"] = f"{outcome.retry_after:.3g} s after the refusal"
    if error is not None and error.__cause__ is not None:
        facts["cause"] = describe_error(error.__cause__)
    strategy = next((s for s in plan.strategies if _refuses(s, name, reason)), None)
    if strategy is not None:
        facts["rule"] = line_of(strategy)
    explained = _BY_REASON.get(reason)
    return facts if explained is None else facts | explained(strategy, outcome, plan)


def _refuses(strategy: Any, name: str, reason: str) -> bool:
    """Whether it is this strategy's refusal. A breaker may have been given a circuit of another name."""
    if getattr(strategy, "kind", "custom") not in _REFUSERS.get(reason, ()):
        return False
    owners = (strategy, getattr(strategy, "pool", None), getattr(strategy, "circuit", None))
    return any(getattr(owner, "name", None) == name for owner in owners)


def _by_circuit(strategy: Any, outcome: Outcome[Any], plan: Plan) -> dict[str, Any]:
    if not isinstance(strategy, CircuitBreakerStrategy) or strategy.circuit is None:
        return {}
    numbers = strategy.circuit.look("figures")
    rule = outcome.metadata.get("rule") or numbers.get("rule")
    line = line_of(strategy) if rule is None else f"{rule}, of {line_of(strategy)}"
    return {"rule": line, "numbers": numbers, "passes": _when_circuit_passes(numbers)}


def _when_circuit_passes(numbers: dict[str, Any]) -> str:
    if numbers["control"] == "isolated":
        return "once an operator closes, resets or enables the circuit"
    if numbers["state"] == "closed" or numbers["control"] != "auto":
        return "now, the circuit admits calls again"
    if numbers["state"] == "half_open":
        return "once the probes that are under way have settled well"
    left = numbers["remaining_open"]
    return f"in {left:.3g} s, as a probe" if left else "now, as a probe"


def _by_slots(strategy: Any, outcome: Outcome[Any], plan: Plan) -> dict[str, Any]:
    facts: dict[str, Any] = {"passes": "as soon as a slot or a place in the queue is free"}
    slots = getattr(strategy, "slots", None)
    if slots is not None:
        running = slots.in_use if hasattr(slots, "in_use") else slots.running
        waiting = slots.queued if hasattr(slots, "queued") else len(slots.waiting)
        facts["numbers"] = {"limit": slots.limit, "running": running, "waiting": waiting}
    return facts


def _by_throttle(strategy: Any, outcome: Outcome[Any], plan: Plan) -> dict[str, Any]:
    facts: dict[str, Any] = {"passes": "by chance, and surely once enough calls succeed"}
    throttle = getattr(strategy, "throttle", None)
    if throttle is not None:
        facts["numbers"] = throttle.figures(plan.clock.monotonic())._asdict()
    return facts


def _by_deadline(strategy: Any, outcome: Outcome[Any], plan: Plan) -> dict[str, Any]:
    return {"rule": "the caller's deadline", "passes": "with a deadline that has not passed"}


_REFUSALS: Final[dict[str, str]] = {
    "circuit_open": "circuit {name!r} lets no calls through",
    "bulkhead_full": "{name!r} has no room",
    "rate_limited": "{name!r} has no token",
    "deadline_expired": "too late",
    "budget_exhausted": "the retry budget of {name!r} is used up",
    "throttled": "{name!r} sheds a share of the calls",
    "pool_exhausted": "no endpoint of {name!r} may be called",
}
_REFUSERS: Final[dict[str, tuple[str, ...]]] = {
    "circuit_open": ("breaker",),
    "bulkhead_full": ("bulkhead", "adaptive"),
    "rate_limited": ("rate_limit",),
    "throttled": ("throttle",),
    "pool_exhausted": ("failover",),
}
_BY_REASON: Final[dict[str, Callable[[Any, Outcome[Any], Plan], dict[str, Any]]]] = {
    "circuit_open": _by_circuit,
    "bulkhead_full": _by_slots,
    "throttled": _by_throttle,
    "deadline_expired": _by_deadline,
}


def _timed_out(plan: Plan, outcome: Outcome[Any]) -> dict[str, Any]:
    error = outcome.error
    assert isinstance(error, GuardTimeout)
    limit = "" if error.limit is None else f" (limit {error.limit:.3g} s)"
    how = "the function was cut off"
    if outcome.late:
        how = "what it returned is in metadata['result']"
    elif outcome.metadata.get("started") is False:
        how = "the function was not started"
    elif outcome.attempts and "another attempt" in error.detail:
        how = "the next wait would have outlasted it"
    return {
        "summary": f"{error.detail or 'the time ran out'}{limit}: {how}",
        "rule": _limit_of(plan, error.limit),
        "cause": error.__cause__ and describe_error(error.__cause__),
    }


def _limit_of(plan: Plan, seconds: float | None) -> str | None:
    """The limit that ran out. A call may have been noticed a little after its time."""
    if seconds is None:
        return "the caller's deadline"
    limits = [s for s in plan.strategies if isinstance(s, TimeoutStrategy) and s.timeout_s <= seconds]
    return line_of(max(limits, key=lambda limit: limit.timeout_s)) if limits else None


_STOPPED: Final[dict[StoppedBy, str]] = {
    "deadline": "the next wait would have outlasted the deadline",
    "budget": "too large a share of the calls in flight were retries already",
    "nested": "a call around this one retries the same failure domain, so this one left it to that",
    "health_gate": "the health check says that the dependency is down",
    "not_idempotent": "the call is not known to be safe to repeat",
    "retry_after": "the dependency asks to be left alone for longer than the policy's longest_hint",
}


def _stopped(plan: Plan, outcome: Outcome[Any]) -> dict[str, Any]:
    retry = plan.first(RetryStrategy)
    made = f"failed after {counted(outcome.attempts, 'attempt')}"
    rule = None if retry is None else line_of(retry)
    stopped = outcome.stopped_by
    if stopped is not None:
        facts: dict[str, Any] = {"reason": stopped, "summary": f"{made}: {_STOPPED[stopped]}", "rule": rule}
        if stopped == "budget" and retry is not None and retry.budget is not None:
            facts["numbers"] = retry.budget.figures()._asdict()
        return facts
    if not outcome.kind.is_retryable:
        why = "this kind of failure is not retried"
    elif retry is None:
        why = "the guard has no retry"
    else:
        why = "no attempts are left"
    return {"summary": f"{made}, {outcome.detail or outcome.kind.value}: {why}", "rule": rule}


def _shown(numbers: dict[str, Any]) -> str:
    """Numbers in one line, without those that say nothing."""
    told = []
    for name, value in numbers.items():
        if isinstance(value, dict):
            told += [f"{inner} {_shown(figures)}" for inner, figures in value.items()]
        elif value or name in _TELLING:
            told.append(f"{name} {value:.4g}" if isinstance(value, float) else f"{name} {value}")
    return ", ".join(told)


_TELLING: Final = frozenset({"failures", "successes", "waiting", "running"})  # also when they are 0
