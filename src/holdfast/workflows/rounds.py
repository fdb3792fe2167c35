"""What a worker looks after now and then, besides its work."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

RECOVER_S: Final = 60.0
"""How often to look for items whose owner has no row, and for workflows that lack one."""
Part = Callable[[], int]
"""Looks after something; whether, or how much, there is to claim now."""


class Rounds:
    """Has each part done once in `every_s` seconds: all of them at first, then one by one, so that who has nothing to
    do never asks much at a time."""

    def __init__(self, *parts: Part, every_s: float = RECOVER_S) -> None:
        self._parts = parts
        self._every_s = every_s
        self._due: list[float] | None = None

    def do_due(self, at: float) -> int:
        """Do what is due at a time of the caller's clock; what there is to claim now. Raises StoreError."""
        if self._due is None:
            share = self._every_s / len(self._parts)
            self._due = [at + number * share - self._every_s for number in range(1, len(self._parts) + 1)]
        freed = 0
        for number, part in enumerate(self._parts):
            if at >= self._due[number]:
                # Where it was late, as for a first time, its turn stays what it is.
                self._due[number] += self._every_s * (1 + (at - self._due[number]) // self._every_s)
                freed += part()
        return freed
