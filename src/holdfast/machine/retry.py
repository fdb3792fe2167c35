"""Whether to try again, and after how long: the `Retry` policy and its pure decision."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, fields
from enum import StrEnum
from typing import Any, Final

from holdfast.core.backoff import Backoff, BackoffStrategy, Jitter
from holdfast.core.check import check_numbers
from holdfast.core.outcome import Outcome, OutcomeKind, StoppedBy
from holdfast.errors import PolicyError
from holdfast.machine.budget import Budget


class RetrySafety(StrEnum):
    """Which calls may be made twice."""

    NEVER = "never"
    IF_NOT_SENT = "if_not_sent"  # only when the request surely never left
    IDEMPOTENT = "idempotent"  # that, and every call that is not declared non-idempotent
    ALWAYS = "always"


ANY_DOMAIN: Final = "default"


@dataclass(frozen=True, slots=True)
class Retry:
    """Try again while the outcome is retryable. `attempts` counts all calls, the first included; None is unlimited.

    `budget` bounds the share of retries among the calls in flight (a rate or a `Budget`). `domain` names the failure
    domain: below a call that retries the same domain, this policy makes one attempt and defers to it. `health` is
    asked before every further attempt; False means that the dependency is known to be down.
    """

    attempts: int | None = 3
    base: float = 0.5
    cap: float = 30.0
    multiplier: float = 2.0
    backoff: BackoffStrategy | str = BackoffStrategy.EXPONENTIAL
    jitter: Jitter | str = Jitter.FULL
    budget: Budget | float | None = None
    safety: RetrySafety | str = RetrySafety.IDEMPOTENT
    domain: str = ANY_DOMAIN
    longest_hint: float = 300.0
    health: Callable[[], bool] | None = None
    on_retry: Callable[[int, Outcome[Any], float], object] | None = None
    id: str | None = None
    schedule: Backoff = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        put = object.__setattr__
        if isinstance(self.attempts, bool) or not (self.attempts is None or isinstance(self.attempts, int)):
            raise PolicyError(
                f"Retry.attempts must be a whole number of calls or None for unlimited, got {self.attempts!r}"
            )
        if self.attempts is not None and self.attempts < 1:
            raise PolicyError(f"Retry.attempts must be at least 1, got {self.attempts}; use attempts=1 for no retry")
        try:
            put(self, "safety", RetrySafety(self.safety))
        except ValueError:
            names = ", ".join(RetrySafety)
            raise PolicyError(f"Retry.safety must be one of {names}, got {self.safety!r}") from None
        check_numbers("Retry", longest_hint=self.longest_hint)
        if not self.longest_hint >= 0:
            raise PolicyError(
                f"Retry.longest_hint must be seconds, 0 or more, got {self.longest_hint!r}; "
                "use 0 to stop at any request to come back later"
            )
        if not self.domain or not isinstance(self.domain, str):
            raise PolicyError(f"Retry.domain must be a name, got {self.domain!r}; leave it out for the default domain")
        try:
            schedule = Backoff(self.backoff, self.base, self.multiplier, self.cap, self.jitter)
        except PolicyError as error:
            raise PolicyError(
                str(error).replace("Backoff.strategy", "Retry.backoff").replace("Backoff.", "Retry.")
            ) from None
        put(self, "backoff", schedule.strategy)
        put(self, "jitter", schedule.jitter)
        put(self, "schedule", schedule)
        if isinstance(self.budget, int | float):
            put(self, "budget", Budget.of(self.budget))
        elif self.budget is not None and not isinstance(self.budget, Budget):
            raise PolicyError(f"Retry.budget must be a share or a Budget, got {self.budget!r}; use 0.2 for one in five")
        for name in ("health", "on_retry"):
            if (given := getattr(self, name)) is not None and not callable(given):
                raise PolicyError(f"Retry.{name} must be callable, got {given!r}; leave it out for none")

    def describe(self) -> str:
        calls = "unlimited attempts" if self.attempts is None else f"{self.attempts} attempt{'s' * (self.attempts > 1)}"
        jitter = "no" if self.jitter == Jitter.NONE else self.jitter
        text = f"{calls}, {self.backoff} from {self.base:g} s to {self.cap:g} s, {jitter} jitter"
        return text if self.budget is None else f"{text}, {self.budget}"

    def longest_waits(self) -> float:
        """The sum of all waits at their longest; infinite for unlimited attempts."""
        if self.attempts is None:
            return float("inf")
        return sum(self.schedule.longest(k) for k in range(self.attempts - 1))


RETRY_FIELDS: Final = tuple(f.name for f in fields(Retry) if f.init)


def is_last(policy: Retry, made: int, kind: OutcomeKind) -> bool:
    """Whether an outcome of that kind stands after `made` calls: it is not retryable, or attempts are used up."""
    return made == policy.attempts or not kind.is_retryable


def repeats_at_once(policy: Retry) -> bool:
    """Whether another attempt never waits and nobody is asked about it, as far as the policy goes."""
    asked = (policy.budget, policy.health, policy.on_retry) != (None, None, None)
    return not policy.base and not asked and policy.safety in (RetrySafety.IDEMPOTENT, RetrySafety.ALWAYS)


def next_step(
    policy: Retry,
    made: int,
    outcome: Outcome[Any],
    rng: Callable[[], float],
    previous_wait: float | None,
    remaining: float,
    safe: bool,
) -> float | StoppedBy | None:
    """What follows call number `made` (1 for the first) and its outcome.

    A number: the seconds to wait before another attempt. None: the outcome stands by itself (success, not retryable,
    or attempts used up). A word: what prevents a retry that was due. Budget, health and an outer retry layer are asked
    by the caller, for they change with time.
    """
    if is_last(policy, made, outcome.kind) or outcome.metadata.get("stopped_by") == "budget":
        return None
    if remaining <= 0:
        return "deadline"  # whatever else would forbid it: a limit of the guard's own names the result then
    if not safe:
        return "not_idempotent"
    hint = outcome.retry_after
    if hint is None or hint < 0:
        # Only an endpoint that has failed this call needs a rest; failover notes whether the next attempt meets one.
        revisits = outcome.metadata.get("revisits", True)
        wait = policy.schedule.delay(made - 1, rng, previous_wait) if revisits else 0.0
    elif hint <= policy.longest_hint:
        wait = hint
    else:
        return "retry_after"
    # Sleeping away what is left would only delay the same failure.
    if wait >= remaining:
        return "deadline"
    return wait
