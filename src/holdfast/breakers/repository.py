"""The states of circuit breakers on any store. Each method is one atomic step; `machine/breaker_record.py` decides."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime
from typing import Any, Final

from holdfast.breakers.data import (
    CircuitBreakerCloseAttempt,
    CircuitBreakerOpenAttempt,
    CircuitBreakerStateData,
    state_data,
)
from holdfast.core.clock import Clock
from holdfast.errors import Conflict
from holdfast.machine import breaker_record as machine
from holdfast.machine.breaker import CLOSED, OPEN
from holdfast.machine.breaker_record import BREAKER, TOPIC, BreakerRecord
from holdfast.store.change import change
from holdfast.store.codec import clean_text, maybe_micros, micros, to_json
from holdfast.store.port import FOREVER, Delete, Store
from holdfast.store.query import Condition, equal

_MOST_SEEN: Final = 1000
Step = Callable[[BreakerRecord, int], BreakerRecord | None]


class CircuitBreakerStateRepository:
    """Circuit-breaker states by service name.

    A name that is not stored gives None or False; the methods that say so create it. Pins are heeded here, so callers
    need not. Without a clock, times are the store's.
    """

    def __init__(self, store: Store, clock: Clock | None = None) -> None:
        self.store = store
        self._clock = clock
        self._seen: dict[str, BreakerRecord] = {}

    def get_or_create(self, service_name: str) -> CircuitBreakerStateData:
        """The state, made closed if there was none; concurrent creators get the same one."""
        return state_data(self._make(service_name, lambda record, now: None)[1])

    def get_by_service_name(self, service_name: str) -> CircuitBreakerStateData | None:
        record = self._read(service_name)
        return None if record is None else state_data(record)

    def update_state(
        self,
        service_name: str,
        state: str,
        failure_count: int | None = None,
        success_count: int | None = None,
        opened_at: datetime | None = None,
        last_failure_at: datetime | None = None,
        half_open_request_count: int | None = None,
        reset_half_open_count: bool = False,
    ) -> bool:
        """Any state from any state; None keeps a value. False if there is no such breaker.

        `reset_half_open_count` wins over the count and clears the watermark. Closing clears `opened_at`.

        Raises ValueError for a state that is none.
        """
        to = machine.known_state(state)
        opened, failed = maybe_micros(opened_at), maybe_micros(last_failure_at)
        counts = failure_count, success_count, opened, failed, half_open_request_count, reset_half_open_count
        return self._update(service_name, lambda record, now: machine.set_state(record, now, to, *counts)) is not None

    def update_metadata(self, service_name: str, metadata: dict[str, Any]) -> bool:
        """Replace what the caller keeps with the state. False if there is no such breaker."""
        text = to_json(metadata)
        return self._update(service_name, lambda record, now: machine.annotate(record, now, text)) is not None

    def record_failure(self, service_name: str, *, generation: int | None = None) -> CircuitBreakerStateData:
        """Count a failure; the state stays. With `generation`, one that began in an older one is ignored."""
        _, after = self._make(service_name, lambda record, now: machine.count_failure(record, now, generation))
        return state_data(after)

    def record_success(self, service_name: str, *, generation: int | None = None) -> CircuitBreakerStateData:
        """Count a success; the state stays. With `generation`, one that began in an older one is ignored."""
        _, after = self._make(service_name, lambda record, now: machine.count_success(record, now, generation))
        return state_data(after)

    def record_success_with_close_check(
        self, service_name: str, success_threshold: int, *, generation: int | None = None
    ) -> CircuitBreakerCloseAttempt:
        """Count a success; half-open, the one that reaches the threshold closes. `did_close` for that caller only."""
        before, after = self._make(
            service_name, lambda record, now: machine.succeed(record, now, success_threshold, generation)
        )
        return CircuitBreakerCloseAttempt(state_data(after), _became(before, after, CLOSED))

    def record_failure_with_open_check(
        self, service_name: str, failure_threshold: int, *, generation: int | None = None
    ) -> CircuitBreakerOpenAttempt:
        """Count a failure; the one that reaches the threshold opens, half-open any. `did_open` for that caller only."""
        before, after = self._make(
            service_name, lambda record, now: machine.fail(record, now, failure_threshold, generation)
        )
        return CircuitBreakerOpenAttempt(state_data(after), _became(before, after, OPEN))

    def set_manual_control(
        self,
        service_name: str,
        state: str,
        controlled_by_id: int | str | None = None,
        reason: str = "",
        expires_at: datetime | None = None,
    ) -> bool:
        """Pin the breaker to a state, until `expires_at` or until the pin is cleared.

        Raises ValueError for a state that is none.
        """
        to, who, until = machine.known_state(state), _who(controlled_by_id), maybe_micros(expires_at)
        self._make(service_name, lambda record, now: machine.pin(record, now, to, who, _text(reason), until))
        return True

    def clear_manual_control(self, service_name: str, preserve_reason: bool = False) -> bool:
        """Leave the breaker to itself; state and counters stay. False if there is no such breaker."""
        return self._update(service_name, lambda record, now: machine.unpin(record, now, preserve_reason)) is not None

    def clear_expired_pins(self) -> int:
        """Clear the flag of pins that have run out; they were ignored since then anyway. How many there were."""
        now = self._now()
        due = (Condition("due_at", "<=", now),)
        lifted = 0
        while some := self.store.claim(BREAKER, due, lambda pin: machine.lift_expired_pin(pin, now), limit=500):
            lifted += len(some)
        return lifted

    def get_all_states(self) -> list[CircuitBreakerStateData]:
        """Every breaker, by name."""
        return [state_data(record) for record in self.store.page(BREAKER, limit=FOREVER)]

    def get_open_states(self, limit: int | None = None) -> list[CircuitBreakerStateData]:
        """Open breakers, the one that opened first at the beginning; before it those of which nobody knows when."""
        most = FOREVER if limit is None else max(0, limit)
        if most == 0:
            return []
        found = self.store.page(BREAKER, equal(state=OPEN.value), by="open_order", limit=most)
        return [state_data(record) for record in found]

    def reset(self, service_name: str) -> bool:
        """Closed, as if nothing had ever happened. False if there is no such breaker."""
        return self._update(service_name, machine.reset) is not None

    def delete_state(self, service_name: str) -> bool:
        """Forget the breaker; whether there was one."""
        while (record := self._read(service_name)) is not None:
            try:
                self.store.commit([Delete(BREAKER, record)], wake=TOPIC)
            except Conflict:
                continue
            return True
        return False

    def atomic_force_open(
        self,
        service_name: str,
        reason: str = "",
        controlled_by_id: int | str | None = None,
        ttl_minutes: int | None = 90,
    ) -> tuple[bool, str, str]:
        """Pin the breaker open, for `ttl_minutes` (None, 0 or less: until cleared): (True, state before, "open")."""
        who, why = _who(controlled_by_id), _text(reason)
        before, after = self._make(
            service_name,
            lambda record, now: machine.pin(record, now, OPEN, who, why, machine.expiry(now, ttl_minutes)),
        )
        return True, before.state, after.state

    def atomic_force_close(
        self,
        service_name: str,
        reason: str = "",
        controlled_by_id: int | str | None = None,
        *,
        ttl_minutes: int | None = None,
    ) -> tuple[bool, str, str]:
        """Pin the breaker closed with empty counters, by default until cleared: (True, state before, "closed")."""
        who, why = _who(controlled_by_id), _text(reason)
        before, after = self._make(
            service_name,
            lambda record, now: machine.force_close(record, now, who, why, machine.expiry(now, ttl_minutes)),
        )
        return True, before.state, after.state

    def atomic_reset(
        self, service_name: str, reason: str = "", controlled_by_id: int | str | None = None
    ) -> tuple[bool, str, str]:
        """As `reset`, and keep the reason: (True, state before, "closed"), or (False, "", "") if there is none.

        Who did it belongs to the event; the breaker is nobody's afterwards.
        """
        done = self._update(service_name, lambda record, now: machine.reset(record, now, _text(reason)))
        return (False, "", "") if done is None else (True, done[0].state, done[1].state)

    def try_acquire_half_open_slot(
        self,
        service_name: str,
        limit: int,
        stuck_timeout_seconds: float,
        *,
        recovery_timeout_seconds: float | None = None,
    ) -> tuple[bool, str, str]:
        """A slot for a trial call: (granted, state before, state after). An open breaker becomes half-open.

        Never more than `limit` slots in one window; a full one that is older than the stuck timeout begins anew. With
        `recovery_timeout_seconds`, a breaker that has not been open for that long refuses, in the same atomic step.
        """
        stuck = _micros_of(stuck_timeout_seconds)
        recovery = None if recovery_timeout_seconds is None else _micros_of(recovery_timeout_seconds)
        granted = False

        def ask(record: BreakerRecord, now: int) -> BreakerRecord | None:
            nonlocal granted
            granted, after = machine.try_trial(record, now, limit, stuck, recovery)
            return after

        before, after = self._make(service_name, ask)
        return granted, before.state, after.state

    def release_half_open_slot(self, service_name: str, generation: int) -> bool:
        """Give a slot back after a trial that told nothing; False when its window is over."""
        done = self._update(service_name, lambda record, now: machine.give_back_trial(record, now, generation))
        return done is not None and done[0] is not done[1]

    def reset_half_open_count(self, service_name: str) -> None:
        """Empty the half-open window; the state stays."""
        self._update(service_name, machine.empty_window)

    def _now(self) -> int:
        return self.store.now() if self._clock is None else micros(self._clock.wall())

    def _read(self, service_name: str) -> BreakerRecord | None:
        if not isinstance(service_name, str):
            return None
        return self.store.get(BREAKER, (clean_text(service_name),))[0]

    def _update(self, service_name: str, step: Step) -> tuple[BreakerRecord, BreakerRecord] | None:
        """The record before and after one atomic step, the same if the machine left it alone; None if there is none."""
        if not isinstance(service_name, str):
            return None

        def decide(found: BreakerRecord | None) -> BreakerRecord | None:
            return None if found is None else step(found, self._now())

        before, after = self._change(clean_text(service_name), decide)
        return None if before is None else (before, before if after is None else after)

    def _make(self, service_name: str, step: Step) -> tuple[BreakerRecord, BreakerRecord]:
        """As `_update`; a breaker that is not stored begins closed, and is stored whatever the machine says."""
        if not isinstance(service_name, str):
            raise TypeError(f"service_name must be a text, got {service_name!r}")
        name = clean_text(service_name)
        begun: BreakerRecord | None = None

        def decide(found: BreakerRecord | None) -> BreakerRecord | None:
            nonlocal begun
            now = self._now()
            begun = machine.new_breaker(name, now) if found is None else found
            after = step(begun, now)
            if found is not None:
                return after
            return begun if after is None else after._replace(version=begun.version)

        after = self._change(name, decide)[1]
        assert begun is not None  # decide was asked
        return begun, begun if after is None else after

    def _change(
        self, name: str, decide: Callable[[BreakerRecord | None], BreakerRecord | None]
    ) -> tuple[BreakerRecord | None, BreakerRecord | None]:
        """The record before and after. Who changes a breaker alone need not read what it wrote last."""
        known = self._seen.pop(name, None)
        before, after = change(self.store, BREAKER, name, decide, known=known, wake=_wake)
        if after is not None and (known is None or before is known):  # else others write as well, and it is read anew
            if len(self._seen) >= _MOST_SEEN:
                self._seen.clear()
            self._seen[name] = after
        return before, after


def _wake(before: BreakerRecord | None, after: BreakerRecord) -> str | None:
    return TOPIC if machine.is_news(before, after) else None


def _became(before: BreakerRecord, after: BreakerRecord, state: str) -> bool:
    return after.state == state and before.state != state


def _who(controlled_by_id: int | str | None) -> str | None:
    return None if controlled_by_id is None else to_json(controlled_by_id)


def _text(reason: str | None) -> str:
    return "" if reason is None else clean_text(reason)


def _micros_of(seconds: float) -> int:
    return round(seconds * 1_000_000)
