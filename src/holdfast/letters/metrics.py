"""Numbers about dead letters for metrics sinks, read when somebody asks for them.

    PrometheusCollector(hub=hold.telemetry, readings=letter_readings(hold.letters, hold.breakers))

Of the whole store: letter.entries{domain,status}, letter.created{domain}, and breaker.state{name} (0 closed, 1
half-open, 2 open) if the breakers are given. Of this process: letter.evicted, letter.ingested, letter.buffered.
What is captured and replayed here is counted by its events, without this.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from holdfast.core.check import check_seconds
from holdfast.core.clock import SYSTEM_CLOCK, Clock
from holdfast.machine.dead_letter import LETTER
from holdfast.telemetry.measure import MAX_AGE_S, Reading, kept_values

if TYPE_CHECKING:
    from holdfast.breakers.repository import CircuitBreakerStateRepository
    from holdfast.letters.letters import Letters

STATES: Final = {"closed": 0.0, "half_open": 1.0, "open": 2.0}


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
    entries = kept_values(lambda: store.tally(LETTER, ("domain", "status")).items(), max_age, clock)
    created = kept_values(lambda: store.tally(LETTER, ("domain",), arrivals=True).items(), max_age, clock)
    readings = (
        Reading("letter.entries", "Dead letters in the store", ("domain", "status"), entries),
        Reading("letter.created", "Dead letters that ever came into the store", ("domain",), created, grows=True),
        Reading("letter.evicted", "Dead letters that this process let go for others", (),
                lambda: {(): box.room.evicted}, grows=True),
        Reading("letter.ingested", "Dead letters that this process read back from the spool", (),
                lambda: {(): box.counts["ingested"]}, grows=True),
        Reading("letter.buffered", "Dead letters of this process that wait to be written", (),
                lambda: {(): len(box.buffer)}),
    )  # fmt: skip
    if breakers is None:
        return readings
    known = breakers
    states = kept_values(
        lambda: (((state.service_name,), STATES[state.state]) for state in known.get_all_states()), max_age, clock, max
    )
    return (*readings, Reading("breaker.state", "0 closed, 1 half-open, 2 open, in the store", ("name",), states))
