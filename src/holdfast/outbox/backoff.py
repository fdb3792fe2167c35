"""How long to wait before an external call is tried again."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from typing import Final

from pydantic import BaseModel, Field, model_validator

from holdfast.outbox.subject import FROZEN

ATTEMPTS: Final = 8
"""How often a call is made at most, where neither its operation nor its runner says otherwise."""
_NOTHING: Final = timedelta(0)


class BackoffPolicy(BaseModel):
    """Doubles from `base_delay` up to `max_delay`; a claim protects an entry for `lease`, which is renewed while the
    call runs. `jitter` takes up to that share off each delay; without it a schedule can be foretold exactly.
    """

    model_config = FROZEN

    base_delay: timedelta = timedelta(seconds=30)
    lease: timedelta = timedelta(minutes=5)
    max_delay: timedelta = timedelta(hours=1)
    jitter: float = Field(default=0.0, ge=0.0, le=1.0)

    @model_validator(mode="after")
    def _can_work(self) -> BackoffPolicy:
        for name in ("base_delay", "lease"):
            if getattr(self, name) <= _NOTHING:
                raise ValueError(f"BackoffPolicy.{name} must be above 0, got {getattr(self, name)}")
        if self.max_delay < self.base_delay:
            raise ValueError(
                f"BackoffPolicy.max_delay must be at least base_delay ({self.base_delay}), got {self.max_delay}"
            )
        return self

    def delay(self, attempts: int, *, rng: Callable[[], float] | None = None) -> timedelta:
        """The wait before the next try after so many tries.

        Raises ValueError for fewer than one.
        """
        if attempts < 1:
            raise ValueError(f"attempts must be at least 1, got {attempts}")
        # Whatever is doubled this often is beyond any ceiling, and the number stays small.
        doublings = min(attempts - 1, (self.max_delay // self.base_delay).bit_length())
        delay = min(self.base_delay * (1 << doublings), self.max_delay)
        return delay * (1 - self.jitter * rng()) if self.jitter and rng is not None else delay
