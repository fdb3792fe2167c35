"""Numbers about dead letters for metrics sinks, read when somebody asks for them.

    PrometheusCollector(hub=hold.telemetry, readings=letter_readings(hold.letters, hold.breakers))

Of the whole store: letter.entries{domain,status}, letter.created{domain}, letter.oldest.seconds{domain} (how long the
pending letter that has waited longest has waited), letter.paused{domain}, and breaker.state{name} (0 closed, 1
half-open, 2 open) and breaker.pinned{name} if the breakers are given. Of this process: letter.evicted, letter.ingested,
letter.buffered, letter.spool.bytes, letter.capacity. What is captured and replayed here is counted by its events,
without this.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import TYPE_CHECKING, Final

from holdfast.breakers.metrics import stored_readings
from holdfast.core.check import check_seconds
from holdfast.core.clock import SYSTEM_CLOCK, Clock
from holdfast.machine.dead_letter import LETTER, PENDING
from holdfast.machine.drain import DOMAIN, is_paused
from holdfast.store.query import equal
from holdfast.telemetry.measure import MAX_AGE_S, Fresh, Reading, kept_values

if TYPE_CHECKING:
    from holdfast.breakers.repository import CircuitBreakerStateRepository
    from holdfast.letters.letters import Letters
    from holdfast.store.port import Store

MOST_DOMAINS: Final = 100
"""Of so many domains, those with the most letters, the age of the oldest is asked: each is a look into an index."""


def letter_readings(
    letters: Letters,
    breakers: CircuitBreakerStateRepository | None = None,
    *,
    max_age: float = MAX_AGE_S,
    clock: Clock = SYSTEM_CLOCK,
) -> tuple[Reading, ...]:
    """What to hand to a sink as `readings`. The store is asked at most every `max_age` seconds, and only then.

    Raises PolicyError for an age that is not above 0.
    """
    check_seconds("letter_readings.max_age", max_age, f"use {MAX_AGE_S:g}")
    store, box = letters.store, letters.box
    standing: Fresh[dict[tuple[str, ...], int]] = Fresh(
        lambda: store.tally(LETTER, ("domain", "status")), max_age, clock
    )
    entries = kept_values(lambda: (standing() or {}).items(), max_age, clock)
    created = kept_values(lambda: store.tally(LETTER, ("domain",), arrivals=True).items(), max_age, clock)
    oldest = kept_values(lambda: _oldest(store, standing() or {}), max_age, clock, max)
    paused = kept_values(lambda: _paused(store), max_age, clock, max)
    readings = (
        Reading("letter.entries", "Dead letters in the store", ("domain", "status"), entries),
        Reading("letter.created", "Dead letters that ever came into the store", ("domain",), created, grows=True),
        Reading("letter.oldest.seconds", "How long the oldest pending letter has waited", ("domain",), oldest),
        Reading("letter.paused", "1 for each domain whose replay is paused", ("domain",), paused),
        Reading("letter.evicted", "Dead letters that this process let go for others", (),
                lambda: {(): box.room.evicted}, grows=True),
        Reading("letter.ingested", "Dead letters that this process read back from the spool", (),
                lambda: {(): box.counts["ingested"]}, grows=True),
        Reading("letter.buffered", "Dead letters of this process that wait to be written", (),
                lambda: {(): len(box.buffer)}),
        Reading("letter.spool.bytes", "What waits in the spool file of this process", (),
                lambda: {(): 0 if box.spool is None else box.spool.size()}),
        Reading("letter.capacity", "How many dead letters this process lets the store have", (),
                lambda: {(): box.room.capacity.total}),
    )  # fmt: skip
    return readings if breakers is None else (*readings, *stored_readings(breakers, max_age, clock))


def _oldest(store: Store, standing: dict[tuple[str, ...], int]) -> Iterator[tuple[tuple[str, ...], float]]:
    pending = Counter({domain: number for (domain, status), number in standing.items() if status == PENDING})
    now = store.now()
    for domain, _ in pending.most_common(MOST_DOMAINS):
        for first in store.page(LETTER, equal(domain=domain, status=PENDING), by="created_at", limit=1):
            yield (domain,), max(0, now - first.created_at) / 1e6


def _paused(store: Store) -> list[tuple[tuple[str, ...], float]]:
    now = store.now()
    return [((one.id,), 1.0) for one in store.page(DOMAIN, limit=1000) if is_paused(one, now)]
