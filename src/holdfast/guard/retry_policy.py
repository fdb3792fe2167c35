"""The retry policy as configuration: a frozen, serialisable model that becomes the guard's own policies."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any, Final

from pydantic import BaseModel, ConfigDict, Field, field_validator

from holdfast.core.backoff import BackoffStrategy, Jitter, delay
from holdfast.guard.timeout import Timeout
from holdfast.machine.retry import Retry, RetrySafety

# Above this an attempt number no longer fits a float; every schedule has long reached its cap.
_LAST_STEP: Final = 2**63


class RetryPolicy(BaseModel):
    """How requests are retried. `max_attempts` counts all calls; `timeout` is for the whole request.

    Frozen, comparable and hashable: replace it to change it, running requests keep the one they began with.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    max_attempts: int = Field(default=3, ge=1, le=10)
    backoff_strategy: BackoffStrategy = BackoffStrategy.EXPONENTIAL
    base_delay: float = Field(default=1.0, gt=0, le=60)
    multiplier: float = Field(default=2.0, gt=1, le=10)
    max_backoff_delay: float = Field(default=30.0, gt=0, le=300)
    jitter: bool = False
    retry_status_codes: tuple[int, ...] = (502, 503, 504)
    timeout: float | None = Field(default=None, gt=0, allow_inf_nan=False)
    retry_non_idempotent: bool = False

    @field_validator("retry_status_codes")
    @classmethod
    def _are_server_errors(cls, codes: tuple[int, ...]) -> tuple[int, ...]:
        for code in codes:
            if not 500 <= code <= 599:
                raise ValueError(
                    f"retry_status_codes must be server errors, 500..599, got {code}; "
                    "any other status is an answer and is returned"
                )
        return codes

    def calculate_delay(self, attempt: int, rng: Callable[[], float] = random.random) -> float:
        """The seconds to wait after attempt number `attempt` (0 is the first); never above `max_backoff_delay`.

        Raises ValueError for a negative number.
        """
        if attempt < 0:
            raise ValueError(f"attempt must be 0 or more, got {attempt}; the wait after the first attempt has number 0")
        return delay(
            self.backoff_strategy,
            self.base_delay,
            self.multiplier,
            self.max_backoff_delay,
            self._jitter,
            min(attempt, _LAST_STEP),
            rng,
        )

    def to_retry(self) -> Retry:
        """The guard's retry policy with this schedule. The timeout is a policy of its own: see `policies`."""
        return Retry(
            attempts=self.max_attempts,
            base=self.base_delay,
            cap=self.max_backoff_delay,
            multiplier=self.multiplier,
            backoff=self.backoff_strategy,
            jitter=self._jitter,
            safety=RetrySafety.ALWAYS if self.retry_non_idempotent else RetrySafety.IDEMPOTENT,
        )

    def policies(self, *, abandon: bool = False) -> tuple[Retry] | tuple[Retry, Timeout]:
        """Everything a guard needs for this: `Guard("x", *policy.policies())`. `abandon` is the Timeout's."""
        if self.timeout is None:
            return (self.to_retry(),)
        return self.to_retry(), Timeout(total=self.timeout, abandon=abandon)

    def replaced(self, **changes: Any) -> RetryPolicy:
        """A policy with other values, validated like a new one (`model_copy` does not validate)."""
        return RetryPolicy(**{**self.model_dump(), **changes})

    @property
    def _jitter(self) -> Jitter:
        return Jitter.SPREAD if self.jitter else Jitter.NONE
