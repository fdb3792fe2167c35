"""One half of the demo: callers arrive at a steady rate, whatever becomes of the earlier ones."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable
from random import Random

from holdfast import CircuitState, HeldGuard, Hub, letter_id_of
from holdfast.demo.twice import keeping
from holdfast.demo.twice.dependency import Shop, timetable
from holdfast.demo.twice.half import ORDERS, RATE, Answer, Call, Change, Half
from holdfast.demo.twice.virtual import VirtualClock, run_virtually
from holdfast.letters.events import DrainEnded
from holdfast.telemetry.events import CircuitStateChanged, GuardEvent, LoadShed, RetryScheduled

Ask = Callable[[int], Awaitable[Answer]]


class Witness:
    """Writes down what the guards and the worker report."""

    def __init__(self, now: Callable[[], float]) -> None:
        self._now = now
        self.changes: list[Change] = []
        self.retries: list[float] = []
        self.refusals: Counter[str] = Counter()
        self.rounds = 0

    def on_event(self, event: GuardEvent) -> None:
        match event:
            case CircuitStateChanged():
                self.changes.append(Change(self._now(), CircuitState(event.to_state), event.cause or ""))
            case RetryScheduled():
                self.retries.append(self._now())
            case LoadShed():
                self.refusals[event.reason] += 1
            case DrainEnded():
                self.rounds += event.rounds
            case _:
                pass


def run_half(*, guarded: bool, seed: int, seconds: float) -> Half:
    """Run one half in virtual time; the same arguments give the same half."""
    return run_virtually(_guarded(seed, seconds) if guarded else _bare(seed, seconds))


async def _bare(seed: int, seconds: float) -> Half:
    stretches = timetable(seconds)
    shop = Shop(stretches, seed)

    async def ask(number: int) -> Answer:
        try:
            await (shop.place(number) if _is_order(number) else shop.price(number))
        except ConnectionError:
            return Answer.FAILED
        return Answer.FRESH

    calls = await _load(ask, VirtualClock(), seconds)
    return Half("bare", seed, seconds, stretches, calls, tuple(shop.arrivals), shop.placed)


async def _guarded(seed: int, seconds: float) -> Half:
    clock = VirtualClock()
    stretches = timetable(seconds)
    shop = Shop(stretches, seed)
    witness, hub = Witness(clock.monotonic), Hub(clock=clock)
    hub.register(witness)
    with keeping.opened(VirtualClock(late=keeping.LATE), hub, seconds) as hold:
        ask = _through(shop, *keeping.guards(hold, clock, Random(seed)))
        async with keeping.working(hold, clock):
            calls = await _load(ask, clock, seconds)
        letters = keeping.letters(hold)
    return Half(
        "guarded", seed, seconds, stretches, calls, tuple(shop.arrivals), shop.placed, tuple(witness.changes),
        tuple(witness.retries), dict(sorted(witness.refusals.items())), letters, witness.rounds,
    )  # fmt: skip


def _through(shop: Shop, prices: HeldGuard, orders: HeldGuard) -> Ask:
    price = prices.outcome(shop.price)

    @orders.replayable
    async def place(order_id: int) -> None:
        await shop.place(order_id)

    async def ask(number: int) -> Answer:
        if _is_order(number):
            try:
                await place(number)
            except Exception as error:
                return Answer.FAILED if letter_id_of(error) is None else Answer.KEPT
            return Answer.FRESH
        outcome = await price(number)
        if not outcome.kind.is_success:
            return Answer.FAILED
        return Answer.FALLBACK if "original" in outcome.metadata else Answer.FRESH

    return ask


def _is_order(number: int) -> bool:
    return number % ORDERS == 0


async def _load(ask: Ask, clock: VirtualClock, seconds: float) -> tuple[Call, ...]:
    """An open loop: each call starts at its time, and all are waited for at the end."""

    async def one(number: int) -> Call:
        start = clock.monotonic()
        answer = await ask(number)
        return Call(start, clock.monotonic(), answer, _is_order(number))

    async with asyncio.TaskGroup() as group:
        tasks: list[asyncio.Task[Call]] = []
        for number in range(round(RATE * seconds)):
            await asyncio.sleep(number / RATE - clock.monotonic())
            tasks.append(group.create_task(one(number)))
    return tuple(task.result() for task in tasks)
