"""The guarded half's own: guards over one store, a file of SQLite that is gone afterwards, and the worker."""

from __future__ import annotations

import asyncio
import tempfile
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from datetime import datetime
from pathlib import Path
from random import Random
from typing import Any, Final

from holdfast import (
    Breaker,
    BulkheadStrategy,
    CircuitBreakerStrategy,
    Fallback,
    HeldGuard,
    Holdfast,
    Hub,
    RecoveryPolicy,
    Retry,
    Timeout,
    WorkerPolicy,
    consecutive,
)
from holdfast.demo.twice.half import Letter
from holdfast.demo.twice.virtual import EPOCH, AtOnce, VirtualClock

FAILURES_TO_OPEN: Final = 5
OPEN_FOR: Final = 0.5
SETTLE: Final = 0.3  # of the half: so long a failure rests that no breaker refused
LATE: Final = 0.01  # by so much the worker oversleeps; callers come more often, so it is one of them who probes
LONGEST_DRAIN: Final = 120.0
FILE: Final = "holdfast-demo.db"


@contextmanager
def opened(clock: VirtualClock, hub: Hub, seconds: float) -> Iterator[Holdfast]:
    """A Holdfast on an SQLite file that is gone afterwards."""
    with tempfile.TemporaryDirectory(prefix="holdfast-demo-") as folder:
        url = f"sqlite:///{Path(folder, FILE)}"
        # Threads come in any order: so letters are written and replayed one by one, and the breaker is this process's.
        recovery = RecoveryPolicy(concurrency=1, settle_s=SETTLE * seconds)
        own: dict[str, Any] = {"background": False, "clock": clock, "telemetry": hub}
        with Holdfast(url, recovery=recovery, durable=False, **own) as hold:  # a power failure may have this file
            hold.letters.box.writers = AtOnce  # type: ignore[method-assign]  # what would be a pool of threads
            yield hold


def guards(hold: Holdfast, clock: VirtualClock, luck: Random) -> tuple[HeldGuard, HeldGuard]:
    """One for prices, one for orders, with one breaker: both call the same shop.

    A program would leave out `clock`, `rng` and `shared`.
    """
    retry, limit = Retry(attempts=3, base=0.05, cap=0.2), Timeout(total=0.6, attempt=0.15)
    breaker = CircuitBreakerStrategy("shop", policy=Breaker(consecutive(FAILURES_TO_OPEN), open_for=OPEN_FOR))
    room = BulkheadStrategy("shop", 12, 8)
    own: dict[str, Any] = {"clock": clock, "rng": luck.random, "shared": False}
    last_known = Fallback(value=99.5, rejected=True)
    prices = hold.guard("prices", retry, breaker, limit, room, last_known, **own)
    orders = hold.guard("orders", retry, breaker, limit, room, dead_letter=True, **own)
    return prices, orders


@asynccontextmanager
async def working(hold: Holdfast, clock: VirtualClock) -> AsyncIterator[None]:
    """Run the worker meanwhile, and at the end until nothing is left to do."""
    worker = hold.worker(WorkerPolicy(poll_s=0.25, idle_s=0.25))
    draining = asyncio.create_task(worker.arun())
    try:
        yield
        give_up = clock.monotonic() + LONGEST_DRAIN
        while clock.monotonic() < give_up and _unfinished(hold):  # noqa: ASYNC110  # the store calls nobody
            await asyncio.sleep(0.1)
    finally:
        worker.stop()
        await draining


def letters(hold: Holdfast) -> tuple[Letter, ...]:
    """What the store tells of the orders that failed, oldest first."""
    found: list[Letter] = []
    page = hold.letters.find(domain="orders")
    while page:
        for letter in page:
            tries = tuple(_moment(attempt.started_at) for attempt in hold.letters.get_attempts(letter.id))
            placed = None if letter.resolved_at is None else _moment(letter.resolved_at)
            assert letter.created_at is not None
            found.append(Letter(_moment(letter.created_at), tries, placed))
        page = hold.letters.find(domain="orders", after=page[-1].cursor)
    return tuple(sorted(found))


def _unfinished(hold: Holdfast) -> int:
    return sum(hold.letters.count(status=status) for status in ("pending", "replaying"))


def _moment(at: datetime) -> float:
    return (at - EPOCH).total_seconds()
