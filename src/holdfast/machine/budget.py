"""A retry budget: retries and hedges may only be a share of the work in flight, so they cannot feed an outage."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

from holdfast.core.check import check_numbers
from holdfast.errors import PolicyError


@dataclass(frozen=True, slots=True)
class Budget:
    """Refuse a retry once `min_concurrency` are in flight and they exceed `max_rate` of the executions in flight."""

    max_rate: float = 0.2
    min_concurrency: int = 3

    def __post_init__(self) -> None:
        check_numbers("Budget", max_rate=self.max_rate, min_concurrency=self.min_concurrency)
        if not 0 <= self.max_rate <= 1:
            raise PolicyError(
                f"Budget.max_rate must be a share between 0 and 1, got {self.max_rate!r}; use 0.2 for one retry in five"
            )
        if not self.min_concurrency >= 0:
            raise PolicyError(
                f"Budget.min_concurrency must be 0 or more, got {self.min_concurrency!r}; "
                "use 0 to let the rate alone decide"
            )

    @classmethod
    def of(cls, value: Budget | float) -> Budget:
        """A budget as it is, or the one with that `max_rate`."""
        return value if isinstance(value, Budget) else cls(max_rate=value)


class BudgetFigures(NamedTuple):
    """What a budget decision rests on. `rate` is retries per execution in flight, 0 when nothing is."""

    executions: int
    inflight: int
    rate: float
    max_rate: float
    min_concurrency: int


class BudgetLedger:
    """Counts the executions in flight and, among them, the retries and hedges."""

    __slots__ = ("executions", "inflight", "policy")

    def __init__(self, policy: Budget) -> None:
        self.policy = policy
        self.executions = 0
        self.inflight = 0

    def begin_execution(self) -> None:
        self.executions += 1

    def end_execution(self) -> None:
        self.executions -= 1

    def exhausted(self) -> bool:
        """Whether a retry would be refused now."""
        inflight = self.inflight
        # Multiplied, not divided: with no execution in flight any retry in flight is too many.
        return inflight >= self.policy.min_concurrency and inflight > self.policy.max_rate * self.executions

    def try_begin_retry(self) -> bool:
        """Begin a retry or hedge; False, and nothing begun, when the budget is exhausted."""
        if self.exhausted():
            return False
        self.inflight += 1
        return True

    def end_retry(self) -> None:
        self.inflight -= 1

    def figures(self) -> BudgetFigures:
        """The numbers of this moment."""
        rate = self.inflight / self.executions if self.executions else 0.0
        return BudgetFigures(self.executions, self.inflight, rate, self.policy.max_rate, self.policy.min_concurrency)
