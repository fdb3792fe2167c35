"""The flaky dependency: a shop's back end with a few workers, behind a load balancer that gives up after a second."""

from __future__ import annotations

import asyncio
import math
from collections import Counter
from dataclasses import dataclass
from random import Random
from typing import Final

WORKERS: Final = 12
PATIENCE: Final = 1.0  # what the load balancer waits for an answer
USUAL: Final = 0.02  # the median of an undisturbed answer
SLOWEST: Final = 0.12  # the undisturbed tail ends here
SPIKE: Final = (0.5, 0.9)


@dataclass(frozen=True, slots=True)
class Spell:
    """A stretch of the run: how long, as a share of it, and what is wrong meanwhile."""

    name: str
    share: float
    begins: str
    errors: float = 0.0
    spikes: float = 0.0
    down: bool = False


SPELLS: Final = (
    Spell("healthy", 0.15, "all is well"),
    Spell("errors", 0.15, "errors begin: 5 % of the calls fail at once", errors=0.05),
    Spell("latency spikes", 0.20, "latency spikes begin: 15 % of the calls take 0.5 to 0.9 s", spikes=0.15),
    Spell("outage", 0.25, "outage begins: no answers, and an error only after 1 s", down=True),
    Spell("recovery", 0.25, "the dependency is back"),
)


@dataclass(frozen=True, slots=True)
class Stretch:
    """A spell placed in time."""

    spell: Spell
    start: float
    end: float


def timetable(seconds: float) -> tuple[Stretch, ...]:
    """The spells of a run of that length, without a gap."""
    placed: list[Stretch] = []
    begun = 0.0
    for spell in SPELLS:
        begun += spell.share
        start = placed[-1].end if placed else 0.0
        placed.append(Stretch(spell, start, round(begun * seconds, 6)))
    return tuple(placed)


class Shop:
    """Answers calls, as well as the timetable lets it; `arrivals` are the times at which a call reached it.

    The luck of a call is its number's own, so it meets the same with and without a guard. `placed` counts how often an
    order was carried out.
    """

    def __init__(self, stretches: tuple[Stretch, ...], seed: int) -> None:
        self._stretches = stretches
        self._seed = seed
        self._luck: dict[int, Random] = {}
        self._workers = asyncio.Semaphore(WORKERS)
        self._now = asyncio.get_running_loop().time
        self.arrivals: list[float] = []
        self.placed: Counter[int] = Counter()

    async def price(self, number: int) -> float:
        """A fresh price. Raises ConnectionError, at once or after `PATIENCE`."""
        return await self._answer(number)

    async def place(self, number: int) -> None:
        """Place an order. Raises ConnectionError as above; then it is not placed."""
        await self._answer(number)
        self.placed[number] += 1

    async def _answer(self, number: int) -> float:
        self.arrivals.append(self._now())
        spell = self._spell()  # a call that reached a dead service stays dead, and so does its place in the queue
        luck = self._luck.setdefault(number, Random(f"{self._seed}/{number}"))
        try:
            async with asyncio.timeout(PATIENCE):
                async with self._workers:
                    return await self._work(spell, luck)
        except TimeoutError:
            raise ConnectionError(f"504: no answer within {PATIENCE:g} s") from None

    async def _work(self, spell: Spell, luck: Random) -> float:
        fails, lags, pace = luck.random(), luck.random(), luck.gauss(0.0, 0.3)
        if spell.down:
            await asyncio.get_running_loop().create_future()  # hangs, and keeps its worker busy
        if fails < spell.errors:
            raise ConnectionError("503: service unavailable")
        spiked = lags < spell.spikes
        await asyncio.sleep(luck.uniform(*SPIKE) if spiked else min(USUAL * math.exp(pace), SLOWEST))
        return 100.0 + pace

    def _spell(self) -> Spell:
        now = self._now()
        return next((s.spell for s in self._stretches if now < s.end), self._stretches[-1].spell)
