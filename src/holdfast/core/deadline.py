"""An absolute stop time that travels down a call tree and only ever tightens."""

from __future__ import annotations

import math
from typing import Any, NoReturn

from holdfast.core.clock import SYSTEM_CLOCK, Clock


class Deadline:
    """A frozen monotonic instant; `at` may be infinite."""

    __slots__ = ("at", "clock")

    at: float
    clock: Clock

    def __init__(self, at: float, clock: Clock = SYSTEM_CLOCK) -> None:
        object.__setattr__(self, "at", at)
        object.__setattr__(self, "clock", clock)

    @classmethod
    def after(cls, seconds: float, clock: Clock = SYSTEM_CLOCK) -> Deadline:
        """The instant `seconds` from now; negative means already expired."""
        return cls(clock.monotonic() + seconds, clock)

    @classmethod
    def never(cls, clock: Clock = SYSTEM_CLOCK) -> Deadline:
        return cls(math.inf, clock)

    def remaining(self) -> float:
        """Seconds left; negative once it has passed, infinite if it never will."""
        return self.at - self.clock.monotonic()

    def expired(self) -> bool:
        return self.remaining() <= 0

    def clamp(self, local: float | None) -> float:
        """A local timeout cut to what is left, at least 0; None asks for all that is left."""
        remaining = self.remaining()
        return max(0.0, remaining if local is None else min(local, remaining))

    def derive_attempt(self, seconds: float) -> Deadline:
        """The budget of one attempt: `seconds` from now, but never later than this deadline."""
        return self.tighten(self.clock.monotonic() + seconds)

    def tighten(self, at: float | None) -> Deadline:
        """The earlier of this deadline and the instant `at`; itself when nothing tightens."""
        return self if at is None or at >= self.at else Deadline(at, self.clock)

    def __setattr__(self, name: str, value: object) -> NoReturn:
        raise AttributeError("a Deadline is frozen; make a tighter one with derive_attempt()")

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Deadline) and other.at == self.at and other.clock is self.clock

    def __hash__(self) -> int:
        return hash(self.at)

    def __copy__(self) -> Deadline:
        return self

    def __deepcopy__(self, memo: object) -> Deadline:
        return self

    def __reduce__(self) -> tuple[Any, ...]:
        # Another process has another monotonic clock: what travels is the time that is left.
        return Deadline.after, (self.remaining(),)

    def __repr__(self) -> str:
        return "Deadline.never()" if self.at == math.inf else f"<Deadline in {self.remaining():.3f} s>"
