"""Numbers about shared breakers for metrics sinks, read when somebody asks for them.

    PrometheusCollector(hub=hold.telemetry, readings=breaker_readings(hold.breakers))

Of the whole store: breaker.state{name} (0 closed, 1 half-open, 2 open), breaker.pinned{name} (1 while an operator holds
it). Of this process: breaker.sharing.connected, breaker.alone (breakers that decide without the others now).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from holdfast.core.check import check_seconds
from holdfast.core.clock import SYSTEM_CLOCK, Clock
from holdfast.store.codec import instant
from holdfast.telemetry.measure import MAX_AGE_S, Fresh, Reading, kept_values

if TYPE_CHECKING:
    from holdfast.breakers.breakers import Breakers
    from holdfast.breakers.data import CircuitBreakerStateData
    from holdfast.breakers.repository import CircuitBreakerStateRepository

STATES: Final = {"closed": 0.0, "half_open": 1.0, "open": 2.0}


def breaker_readings(
    breakers: Breakers, *, max_age: float = MAX_AGE_S, clock: Clock = SYSTEM_CLOCK
) -> tuple[Reading, ...]:
    """What to hand to a sink as `readings`. The store is asked at most every `max_age` seconds, and only then.

    Raises PolicyError for an age that is not above 0.
    """
    check_seconds("breaker_readings.max_age", max_age, f"use {MAX_AGE_S:g}")
    sharing = breakers.sharing
    return (
        *stored_readings(breakers, max_age, clock),
        Reading("breaker.sharing.connected", "1 while breakers are shared through the store", (),
                lambda: {(): float(sharing.is_connected)} if sharing.status().shared else {}),
        Reading("breaker.alone", "Shared breakers of this process that decide alone now", (),
                lambda: {(): float(len(sharing.status().alone))}),
    )  # fmt: skip


def stored_readings(breakers: CircuitBreakerStateRepository, max_age: float, clock: Clock) -> tuple[Reading, ...]:
    """Those of the whole store, which is asked once for all of them."""
    found: Fresh[list[CircuitBreakerStateData]] = Fresh(breakers.get_all_states, max_age, clock)

    def pins() -> list[tuple[tuple[str, ...], float]]:
        now = instant(breakers.store.now())
        return [((one.service_name,), 1.0) for one in found() or () if one.pin_active(now)]

    states = kept_values(
        lambda: [((one.service_name,), STATES[one.state]) for one in found() or ()], max_age, clock, max
    )
    return (
        Reading("breaker.state", "0 closed, 1 half-open, 2 open, in the store", ("name",), states),
        Reading("breaker.pinned", "1 for each breaker that an operator holds", ("name",),
                kept_values(pins, max_age, clock, max)),
    )  # fmt: skip
