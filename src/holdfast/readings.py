"""Every figure that an operator alarms on, from one `Holdfast`: what the server's `/metrics` shows.

    PrometheusCollector(
        hub=hold.telemetry, registry=registry, readings=readings(hold), expected=expected(hold)
    )

The names and what they mean are in docs/telemetry.md, alarms on them in docs/runbook.md. Asking is cheap: counts come
from counters and indexes, ages from the first row of an index, and the store is not asked again for `max_age` seconds,
nor for 20 times as long as it took.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import product
from typing import TYPE_CHECKING, Final

from holdfast.breakers.metrics import breaker_readings
from holdfast.core.check import check_seconds
from holdfast.core.clock import SYSTEM_CLOCK, Clock
from holdfast.errors import ConfigurationError, MissingExtra, StoreError
from holdfast.letters.events import HOWS, LetterKept
from holdfast.letters.metrics import letter_readings
from holdfast.machine.saga import SagaState
from holdfast.telemetry.measure import MAX_AGE_S, Expected, Fresh, Measure, Reading
from holdfast.workflows.events import WorkflowMoved
from holdfast.workflows.metrics import workflow_readings

if TYPE_CHECKING:
    from holdfast.app import Holdfast
    from holdfast.store.port import Store

_ENDS: Final = ("SUCCEEDED", "TERMINAL", "CANCELED")


def readings(hold: Holdfast, *, max_age: float = MAX_AGE_S, clock: Clock = SYSTEM_CLOCK) -> tuple[Reading, ...]:
    """What to hand to a sink: of letters, breakers and workflows, and on a SQL database of outbox, sagas and audit.

    Raises PolicyError for an age that is not above 0.
    """
    check_seconds("readings.max_age", max_age, f"use {MAX_AGE_S:g}")
    return (
        _store_reading(hold.store, max_age, clock),
        *letter_readings(hold.letters, max_age=max_age, clock=clock),
        *breaker_readings(hold.breakers, max_age=max_age, clock=clock),
        *workflow_readings(hold.store, max_age=max_age, clock=clock),
        *_outbox(hold, max_age, clock),
    )


def expected(hold: Holdfast) -> Expected:
    """What may yet be counted of what the program has defined: letters of its guards, its workflows and its sagas."""
    try:
        workflows = hold.workflows
    except ConfigurationError:
        workflows = None
    try:
        sagas = hold.sagas
    except (ConfigurationError, MissingExtra):
        sagas = None

    def series() -> Iterator[tuple[Measure, tuple[str, ...]]]:
        domains = {guard.domain for guard in hold.guards.values() if guard.dead_letter is not None}
        yield from ((LetterKept.measure, pair) for pair in product(sorted(domains), HOWS))
        if workflows is not None:
            yield from ((WorkflowMoved.measure, pair) for pair in product(list(workflows.known), _ENDS))
        if sagas is not None:
            from holdfast.outbox.events import SagaMoved

            names = [one.name for one in sagas.definitions]
            yield from ((SagaMoved.measure, pair) for pair in product(names, map(str, SagaState)))

    return series


def _outbox(hold: Holdfast, max_age: float, clock: Clock) -> tuple[Reading, ...]:
    """Nothing where the store is no database that can have an outbox."""
    try:
        outbox = hold.outbox
    except (ConfigurationError, MissingExtra):
        return ()
    from holdfast.outbox.metrics import outbox_readings  # needs SQLAlchemy, as the outbox does

    return outbox_readings(outbox, max_age=max_age, clock=clock)


def _store_reading(store: Store, max_age: float, clock: Clock) -> Reading:
    def answers() -> float:
        try:
            store.ping()
        except StoreError:
            return 0.0
        return 1.0

    fresh = Fresh(answers, max_age, clock)
    return Reading("store.up", "1 while the store answers", (), lambda: {(): fresh() or 0.0})
