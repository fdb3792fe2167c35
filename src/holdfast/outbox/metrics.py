"""Numbers about the outbox and sagas for metrics sinks, read when somebody asks for them.

    PrometheusCollector(hub=hold.telemetry, readings=outbox_readings(hold.outbox))

Of the whole database: outbox.entries{status}, outbox.lag.seconds{queue} (how long the entry that has waited longest for
its call has waited), outbox.paused{queue}, saga.runs{definition,state}. What is called here is counted by its events,
without this.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import sqlalchemy as sa

from holdfast.core.check import check_seconds
from holdfast.core.clock import SYSTEM_CLOCK, Clock
from holdfast.outbox.draft import DEFAULT_QUEUE
from holdfast.telemetry.measure import MAX_AGE_S, Reading, kept_values

if TYPE_CHECKING:
    from holdfast.outbox.outbox import Outbox


def outbox_readings(
    outbox: Outbox,
    *,
    queues: Sequence[str] = (DEFAULT_QUEUE,),
    max_age: float = MAX_AGE_S,
    clock: Clock = SYSTEM_CLOCK,
) -> tuple[Reading, ...]:
    """What to hand to a sink as `readings`. The database is asked at most every `max_age` seconds, and only then.

    Raises PolicyError for an age that is not above 0.
    """
    check_seconds("outbox_readings.max_age", max_age, f"use {MAX_AGE_S:g}")
    entries = kept_values(
        lambda: (((str(status),), number) for status, number in outbox.status_counts().items()), max_age, clock
    )
    lags = kept_values(lambda: (((one,), outbox.lag(one).total_seconds()) for one in queues), max_age, clock, max)
    paused = kept_values(lambda: (((one.queue,), 1.0) for one in outbox.paused()), max_age, clock, max)
    sagas = kept_values(lambda: _sagas(outbox), max_age, clock)
    return (
        Reading("outbox.entries", "Outbox entries in the database", ("status",), entries),
        Reading("outbox.lag.seconds", "How long the oldest due entry has waited", ("queue",), lags),
        Reading("outbox.paused", "1 for each queue that is paused", ("queue",), paused),
        Reading("saga.runs", "Sagas in the database", ("definition", "state"), sagas),
    )


def _sagas(outbox: Outbox) -> list[tuple[tuple[str, str], float]]:
    row = outbox.tables.sagas.c
    counted = sa.select(row.definition, row.state, sa.func.count()).group_by(row.definition, row.state)
    found = outbox.run(lambda session: session.execute(counted).all())
    return [((definition, state), float(number)) for definition, state, number in found]
