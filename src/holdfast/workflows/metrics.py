"""Numbers about workflows and their workers for metrics sinks, read when somebody asks for them.

    PrometheusCollector(hub=hold.telemetry, readings=workflow_readings(hold.store))

All of the whole store: workflow.runs{status}, workflow.lag.seconds{queue} (how long the due work that has waited
longest has waited), workflow.stranded{queue} (due work that no worker can take), workflow.dead (items that nobody
could do), workflow.workers{queue} (workers that stay and take from it), workflow.schedules.late.seconds.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import Final

from holdfast.core.check import check_seconds
from holdfast.core.clock import SYSTEM_CLOCK, Clock
from holdfast.store.codec import from_json
from holdfast.store.port import Store
from holdfast.store.query import Condition, equal
from holdfast.telemetry.measure import MAX_AGE_S, Fresh, Reading, kept_values
from holdfast.workflows.records import ITEM, MESSAGE, SCHEDULE, SERVING, WORKFLOW, ServingRecord
from holdfast.workflows.serving import stranded_numbers

DEFAULT_QUEUE: Final = "default"
PRIORITIES: Final = (-1, 0, 1)
MOST_WORKERS: Final = 1000
Found = Iterator[tuple[tuple[str, ...], float]]


def workflow_readings(store: Store, *, max_age: float = MAX_AGE_S, clock: Clock = SYSTEM_CLOCK) -> tuple[Reading, ...]:
    """What to hand to a sink as `readings`. The store is asked at most every `max_age` seconds, and only then.

    Raises PolicyError for an age that is not above 0.
    """
    check_seconds("workflow_readings.max_age", max_age, f"use {MAX_AGE_S:g}")
    serving: Fresh[list[ServingRecord]] = Fresh(lambda: _serving(store), max_age, clock)
    numbers: Fresh[Counter[str]] = Fresh(lambda: stranded_numbers(store), max_age, clock)

    def queues() -> list[str]:
        offered = (queue for one in serving() or () for queue in from_json(one.queues))
        return sorted({DEFAULT_QUEUE, *offered, *(numbers() or ())})

    def lags() -> Found:
        now = store.now()
        for queue in queues():
            heads = [_first_due(store, queue, priority) for priority in PRIORITIES]
            yield (queue,), max(0, now - min((at for at in heads if at is not None), default=now)) / 1e6

    def workers() -> Found:
        for queue in queues():
            yield (queue,), sum(queue in from_json(one.queues) for one in serving() or ())

    def stranded() -> Found:
        for queue in queues():
            yield (queue,), (numbers() or Counter[str]())[queue]

    return (
        Reading("workflow.runs", "Workflows in the store", ("status",),
                kept_values(lambda: store.tally(WORKFLOW, ("status",)).items(), max_age, clock)),
        Reading("workflow.lag.seconds", "How long the oldest due work has waited", ("queue",),
                kept_values(lags, max_age, clock, max)),
        Reading("workflow.stranded", "Due work that no worker can take", ("queue",),
                kept_values(stranded, max_age, clock)),
        Reading("workflow.dead", "Items that nobody could do", (),
                kept_values(lambda: [((), _dead(store))], max_age, clock)),
        Reading("workflow.workers", "Workers that take work from the queue", ("queue",),
                kept_values(workers, max_age, clock)),
        Reading("workflow.schedules.late.seconds", "How long the schedule that is due longest has waited", (),
                kept_values(lambda: [((), _late(store))], max_age, clock)),
    )  # fmt: skip


def _serving(store: Store) -> list[ServingRecord]:
    return store.page(SERVING, (Condition("due_at", ">", store.now()),), by="id", limit=MOST_WORKERS)


def _first_due(store: Store, queue: str, priority: int) -> int | None:
    """When the work that is due first became due, as workers ask for it: by an index for each priority."""
    where = (*equal(queue=queue, priority=priority), Condition("due_at", "<=", store.now()))
    return next((one.due_at for one in store.page(ITEM, where, by="due_at", limit=1)), None)


def _dead(store: Store) -> float:
    return float(sum(store.tally(MESSAGE, (), (Condition("dead_at", "is set"),)).values()))


def _late(store: Store) -> float:
    now = store.now()
    first = store.page(SCHEDULE, (Condition("due_at", "<=", now),), by="due_at", limit=1)
    return max(0, now - (first[0].due_at or now)) / 1e6 if first else 0.0
