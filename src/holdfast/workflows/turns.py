"""Whose turn it is among workflows: one with a long backlog leaves half of what a worker takes to the others.

Items are claimed in the order in which they are due. Where a whole claim is filled by a few workflows, the next one
looks past them first. That reads all that they have waiting, so it may take a twentieth of the time at most.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Final, NamedTuple

from holdfast.core.clock import Clock
from holdfast.store.port import Store
from holdfast.store.query import Where, outside
from holdfast.workflows.records import ITEM, ItemRecord

CROWD: Final = 4
"""Who has more than this part of a claim fills it."""
SPARING: Final = 20
"""How many times as long as the last look past a crowd took it is until the next."""


class Crowd(NamedTuple):
    """Workflows that have filled the last claim, and when to look past them again."""

    workflows: tuple[str, ...]
    look_at: float
    odd: bool = False
    """Whether the odd one of the next claim is for the others."""


class Turns:
    """Claims items for a worker, and remembers who has filled the last claim of each place."""

    def __init__(self, store: Store, clock: Clock) -> None:
        self._store = store
        self._clock = clock
        self._crowds: dict[tuple[str, int, str], Crowd] = {}

    def claim(
        self, place: tuple[str, int, str], where: Where, take: Callable[[ItemRecord], ItemRecord | None], limit: int
    ) -> list[ItemRecord]:
        """Up to `limit` items of a place: a queue, a priority and a type. Raises StoreError."""
        crowd, found = self._crowds.get(place), list[ItemRecord]()
        look_at, odd = float("-inf"), False
        if crowd is not None:
            look_at, odd = crowd.look_at, crowd.odd
            began = self._clock.monotonic()
            if began >= look_at:
                found = self._past(crowd, where, take, (limit + crowd.odd) // 2)
                ended = self._clock.monotonic()
                look_at, odd = ended + SPARING * (ended - began), not crowd.odd
        if len(found) < limit:
            found += self._store.claim(ITEM, where, take, limit=limit - len(found))
        if len(found) < limit:
            self._crowds.pop(place, None)  # nobody waits
        else:
            most = Counter(item.workflow for item in found)
            filled = tuple(sorted(one for one, number in most.items() if CROWD * number > limit))
            self._crowds[place] = Crowd(filled, look_at, odd)
        return found

    def _past(
        self, crowd: Crowd, where: Where, take: Callable[[ItemRecord], ItemRecord | None], limit: int
    ) -> list[ItemRecord]:
        if not crowd.workflows or not limit:
            return []
        others = (*where, outside("workflow", crowd.workflows))
        if not self._store.page(ITEM, others, by="due_at", limit=1):
            return []  # a claim that finds nothing would be a transaction for nothing
        return self._store.claim(ITEM, others, take, limit=limit)
