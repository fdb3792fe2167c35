"""How long the calls of each type take: whether they are quick, or so light that one thread makes them all."""

from __future__ import annotations

from typing import Final

from holdfast.workflows.execution import BulkheadLimits

QUICK_S: Final = 0.02
AHEAD_S: Final = 0.32
"""For how long there should be calls for each slot here, of a type whose calls are quick."""
AHEAD: Final = 160
"""And how many at most: what is around a call takes time as well."""
LIGHT_S: Final = 0.0002
"""A call that takes less is made by the thread that made the one before it: to call another one takes longer."""


class Pace:
    """Is told of the end of each call."""

    def __init__(self, limits: BulkheadLimits) -> None:
        self._limits = limits
        self._usual: dict[str, float] = {}
        self._least: dict[str, float] = {}
        self.ends = 0
        """How many calls have ended."""

    def note_end(self, type: str, run_s: float) -> None:
        """Whoever calls it holds the lock of what is at hand."""
        self.ends += 1
        if run_s:
            pace = self._usual.get(type, run_s)
            self._usual[type] = pace + (run_s - pace) / 8
            # How long it takes when nobody else is in the way.
            least = self._least.get(type, run_s)
            self._least[type] = min(run_s, least + (run_s - least) / 8)

    def ahead(self, type: str) -> int:
        """How many calls are worth having, of a type whose calls are known to be quick; 0 of any other."""
        pace = self._usual.get(type)
        if pace is None or pace >= QUICK_S:
            return 0
        return self._limits.get_bulkhead(type).max_concurrent * min(AHEAD, int(AHEAD_S / pace))

    def is_light(self, type: str) -> bool:
        return self._least.get(type, LIGHT_S) < LIGHT_S
