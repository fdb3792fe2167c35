"""Numbers about the outbox, sagas and the audit trail for metrics sinks, read when somebody asks for them.

    PrometheusCollector(hub=hold.telemetry, readings=outbox_readings(hold.outbox))

Of the whole database: outbox.entries{queue,status} of all that has not succeeded, outbox.rows with what has,
outbox.lag.seconds{queue} (how long the entry that has waited longest for its call has waited), outbox.paused{queue},
saga.runs{definition,state}, audit.events (how many the chains of the trail have). What is called here is counted by its
events, without this.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Final

import sqlalchemy as sa
from sqlalchemy.orm import Session

from holdfast.core.check import check_seconds
from holdfast.core.clock import SYSTEM_CLOCK, Clock
from holdfast.machine.outbox_entry import OutboxStatus
from holdfast.outbox.draft import DEFAULT_QUEUE
from holdfast.telemetry.measure import MAX_AGE_S, Fresh, Reading, kept_values

if TYPE_CHECKING:
    from holdfast.outbox.outbox import Outbox

SHOWN: Final = tuple(str(status) for status in OutboxStatus if status is not OutboxStatus.SUCCEEDED)
"""What is counted by queue, from indexes that hold these rows alone: what has succeeded may be millions."""
Standing = dict[tuple[str, str], float]


def outbox_readings(
    outbox: Outbox,
    *,
    queues: Sequence[str] = (DEFAULT_QUEUE,),
    max_age: float = MAX_AGE_S,
    clock: Clock = SYSTEM_CLOCK,
) -> tuple[Reading, ...]:
    """What to hand to a sink as `readings`. The database is asked at most every `max_age` seconds, and only then.

    These `queues` are told of in any case, others while they have entries. Raises PolicyError for an age that is not
    above 0.
    """
    check_seconds("outbox_readings.max_age", max_age, f"use {MAX_AGE_S:g}")
    standing: Fresh[Standing] = Fresh(lambda: _standing(outbox, queues), max_age, clock)

    def lags() -> list[tuple[tuple[str, ...], float]]:
        known = dict.fromkeys((*queues, *(queue for queue, _ in standing() or {})))
        return [((one,), outbox.lag(one).total_seconds()) for one in known]

    paused = kept_values(lambda: (((one.queue,), 1.0) for one in outbox.paused()), max_age, clock, max)
    rows = kept_values(lambda: [((), _count(outbox, sa.select(sa.func.count()), outbox.tables.outbox))], max_age, clock)
    return (
        Reading("outbox.entries", "Outbox entries that have not succeeded", ("queue", "status"),
                kept_values(lambda: (standing() or {}).items(), max_age, clock)),
        Reading("outbox.rows", "All outbox entries in the database", (), rows),
        Reading("outbox.lag.seconds", "How long the oldest due entry has waited", ("queue",),
                kept_values(lags, max_age, clock, max)),
        Reading("outbox.paused", "1 for each queue that is paused", ("queue",), paused),
        Reading("saga.runs", "Sagas in the database", ("definition", "state"),
                kept_values(lambda: _sagas(outbox), max_age, clock)),
        Reading("audit.events", "Events in the chains of the audit trail", (),
                kept_values(lambda: [((), _chained(outbox))], max_age, clock)),
    )  # fmt: skip


def _standing(outbox: Outbox, queues: Sequence[str]) -> Standing:
    row = outbox.tables.outbox.c
    grouped = sa.select(row.queue, row.status, sa.func.count()).group_by(row.queue, row.status)
    abandoned = row.status == str(OutboxStatus.ABANDONED)
    parts = [grouped.where(one) for one in (row.fresh_at.is_not(None), row.gate_at.is_not(None), abandoned)]

    def work(session: Session) -> Standing:
        found: Counter[tuple[str, str]] = Counter()
        for part in parts:
            for queue, status, number in session.execute(part):
                found[queue, status] += number
        known = dict.fromkeys((*queues, *(queue for queue, _ in found)))
        return {(queue, status): float(found[queue, status]) for queue in known for status in SHOWN}

    return outbox.run(work)


def _sagas(outbox: Outbox) -> list[tuple[tuple[str, str], float]]:
    row = outbox.tables.sagas.c
    counted = sa.select(row.definition, row.state, sa.func.count()).group_by(row.definition, row.state)
    found = outbox.run(lambda session: session.execute(counted).all())
    return [((definition, state), float(number)) for definition, state, number in found]


def _chained(outbox: Outbox) -> float:
    heads = outbox.tables.chain_heads
    return _count(outbox, sa.select(sa.func.coalesce(sa.func.sum(heads.c.seq), 0)), heads)


def _count(outbox: Outbox, asked: sa.Select[Any], table: sa.Table) -> float:
    found: Any = outbox.run(lambda session: session.execute(asked.select_from(table)).scalar())
    return float(found or 0)
