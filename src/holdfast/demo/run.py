"""One half of the demo: callers arrive at a steady rate, whatever becomes of the earlier ones."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from enum import StrEnum
from random import Random
from typing import Final, NamedTuple

from holdfast import Breaker, Bulkhead, CircuitState, Fallback, Guard, Hub, Retry, Timeout, consecutive
from holdfast.demo.dependency import PriceService, Request, Stretch, timetable
from holdfast.demo.virtual import VirtualClock, run_virtually
from holdfast.telemetry.events import CircuitStateChanged, GuardEvent, LoadShed, RetryScheduled

RATE: Final = 120  # calls per second
FAILURES_TO_OPEN: Final = 5
OPEN_FOR: Final = 0.5


class Answer(StrEnum):
    """What a caller got."""

    FRESH = "fresh"
    FALLBACK = "fallback"
    FAILED = "failed"


class Call(NamedTuple):
    """One call as its caller saw it."""

    start: float
    end: float
    answer: Answer

    @property
    def took(self) -> float:
        return self.end - self.start


class Change(NamedTuple):
    """The breaker moved."""

    at: float
    state: CircuitState
    cause: str


@dataclass(frozen=True, slots=True)
class Half:
    """Everything that happened in one half."""

    name: str
    seed: int
    seconds: float
    stretches: tuple[Stretch, ...]
    calls: tuple[Call, ...]
    arrivals: tuple[float, ...]
    changes: tuple[Change, ...]
    retries: tuple[float, ...]
    refusals: dict[str, int]

    @property
    def outage(self) -> Stretch:
        return next(stretch for stretch in self.stretches if stretch.spell.down)


class Witness:
    """Writes down what the guard reports."""

    def __init__(self, now: Callable[[], float]) -> None:
        self._now = now
        self.changes: list[Change] = []
        self.retries: list[float] = []
        self.refusals: Counter[str] = Counter()

    def on_event(self, event: GuardEvent) -> None:
        match event:
            case CircuitStateChanged():
                self.changes.append(Change(self._now(), CircuitState(event.to_state), event.cause or ""))
            case RetryScheduled():
                self.retries.append(self._now())
            case LoadShed():
                self.refusals[event.reason] += 1
            case _:
                pass


def price_guard(clock: VirtualClock, hub: Hub, luck: Random) -> Guard:
    """The guard of the second half. In a program the last three arguments would be left out."""
    return Guard(
        "prices",
        Retry(attempts=3, base=0.05, cap=0.2),
        Breaker(consecutive(FAILURES_TO_OPEN), open_for=OPEN_FOR),
        Timeout(total=0.6, attempt=0.15),
        Bulkhead(12, queue=8),
        Fallback(value=99.5, rejected=True),  # the last known price
        clock=clock,
        telemetry=hub,
        rng=luck.random,
    )


def run_half(*, guarded: bool, seed: int, seconds: float) -> Half:
    """Run one half in virtual time; the same arguments give the same half."""
    return run_virtually(_half(guarded, seed, seconds))


async def _half(guarded: bool, seed: int, seconds: float) -> Half:
    clock = VirtualClock()
    stretches = timetable(seconds)
    service = PriceService(stretches)
    witness = Witness(clock.monotonic)
    ask = _bare(service)
    if guarded:
        hub = Hub(clock=clock)
        hub.register(witness)
        ask = _guarded(service, price_guard(clock, hub, Random(seed)))
    calls = await _load(ask, clock, seed, seconds)
    return Half(
        "guarded" if guarded else "bare",
        seed,
        seconds,
        stretches,
        tuple(calls),
        tuple(service.arrivals),
        tuple(witness.changes),
        tuple(witness.retries),
        dict(sorted(witness.refusals.items())),
    )


Ask = Callable[[Request], Awaitable[Answer]]


def _bare(service: PriceService) -> Ask:
    async def ask(request: Request) -> Answer:
        try:
            await service.price(request)
        except ConnectionError:
            return Answer.FAILED
        return Answer.FRESH

    return ask


def _guarded(service: PriceService, guard: Guard) -> Ask:
    price = guard.outcome(service.price)

    async def ask(request: Request) -> Answer:
        outcome = await price(request)
        if not outcome.kind.is_success:
            return Answer.FAILED
        return Answer.FALLBACK if "original" in outcome.metadata else Answer.FRESH

    return ask


async def _load(ask: Ask, clock: VirtualClock, seed: int, seconds: float) -> list[Call]:
    """An open loop: each call starts at its time, and all are waited for at the end."""

    async def one(number: int) -> Call:
        start = clock.monotonic()
        answer = await ask(Request(number, Random(f"{seed}/{number}")))
        return Call(start, clock.monotonic(), answer)

    async with asyncio.TaskGroup() as group:
        tasks: list[asyncio.Task[Call]] = []
        for number in range(round(RATE * seconds)):
            await asyncio.sleep(number / RATE - clock.monotonic())
            tasks.append(group.create_task(one(number)))
    return [task.result() for task in tasks]
