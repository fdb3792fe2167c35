"""A circuit breaker as stored data: what its record says, and every step from one version to the next.

Each step takes the record as it is (None if there is none) and gives the next version, or None to leave it alone. A pin
is an operator's word: while it is in force an open breaker admits no trial and a closed one never trips; a half-open
one is a forced trial, which may end by itself. Time is an argument, in microseconds since 1970.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from typing import Final, NamedTuple

from holdfast.errors import InvalidValue
from holdfast.machine.breaker import CLOSED, HALF_OPEN, OPEN, CircuitState
from holdfast.store.record import Index, Kind, Value, evolve

TOPIC: Final = "breakers"
LATEST: Final = 253_402_300_799_999_999
"""The last microsecond that a datetime can hold; no pin ends later."""

_SECOND: Final = 1_000_000
_MINUTE: Final = 60 * _SECOND


class Act(StrEnum):
    """What moves a stored breaker."""

    TRIP = "trip"
    TRIAL = "trial"
    RECOVER = "recover"
    RELAPSE = "relapse"
    FORCE_OPEN = "force_open"
    FORCE_HALF_OPEN = "force_half_open"
    FORCE_CLOSED = "force_closed"
    RESET = "reset"


TRANSITIONS: Final[Mapping[tuple[CircuitState, Act], CircuitState]] = {
    (CLOSED, Act.TRIP): OPEN,
    (CLOSED, Act.FORCE_OPEN): OPEN,
    (CLOSED, Act.FORCE_HALF_OPEN): HALF_OPEN,
    (CLOSED, Act.FORCE_CLOSED): CLOSED,
    (CLOSED, Act.RESET): CLOSED,
    (OPEN, Act.TRIAL): HALF_OPEN,
    (OPEN, Act.RECOVER): CLOSED,
    (OPEN, Act.FORCE_OPEN): OPEN,
    (OPEN, Act.FORCE_HALF_OPEN): HALF_OPEN,
    (OPEN, Act.FORCE_CLOSED): CLOSED,
    (OPEN, Act.RESET): CLOSED,
    (HALF_OPEN, Act.RECOVER): CLOSED,
    (HALF_OPEN, Act.RELAPSE): OPEN,
    (HALF_OPEN, Act.FORCE_OPEN): OPEN,
    (HALF_OPEN, Act.FORCE_HALF_OPEN): HALF_OPEN,
    (HALF_OPEN, Act.FORCE_CLOSED): CLOSED,
    (HALF_OPEN, Act.RESET): CLOSED,
}
_FORCE: Final = {OPEN: Act.FORCE_OPEN, HALF_OPEN: Act.FORCE_HALF_OPEN, CLOSED: Act.FORCE_CLOSED}


class BreakerRecord(NamedTuple):
    """`id` is the service's name; `due_at` is when its pin ends, if it does.

    `pinned` is the state that an operator ordered, until something else moves the breaker. `generation` goes up by one
    with every change of state. `open_order` is `opened_at`, or 0 for "long ago". `fleet` is what processes that share
    the breaker tell each other (`machine/breaker_fleet.py`).
    """

    id: str
    version: int
    due_at: int | None
    state: str
    failure_count: int
    success_count: int
    generation: int
    last_failure_at: int | None
    opened_at: int | None
    open_order: int
    half_open_request_count: int
    half_open_window_started_at: int | None
    manually_controlled: int
    pinned: str | None
    controlled_by_id: str | None
    control_reason: str
    manual_override_expires_at: int | None
    metadata: str
    fleet: str
    created_at: int
    updated_at: int

    @property
    def circuit_state(self) -> CircuitState:
        return CircuitState(self.state)


BREAKER = Kind("breaker", BreakerRecord, indexes=(Index(("state",), "open_order"), Index((), "due_at")))


def new_breaker(name: str, now: int) -> BreakerRecord:
    """A closed breaker that has seen nothing.

    Its first version is the time: one of the same name that was deleted can never have come as far. So a version tells
    the two apart, however long ago somebody has read one of them.
    """
    return BreakerRecord(
        name, now, None, CLOSED.value, 0, 0, 0, None, None, 0, 0, None, 0, None, None, "", None, "{}", "", now, now
    )


def pin_in_force(record: BreakerRecord, now: int) -> CircuitState | None:
    """The state that an operator holds the breaker in, if one does."""
    if record.pinned is None or not record.manually_controlled:
        return None
    expires = record.manual_override_expires_at
    return CircuitState(record.pinned) if expires is None or expires > now else None


def is_news(before: BreakerRecord | None, after: BreakerRecord) -> bool:
    """Whether whoever follows the breaker should look at once."""
    if before is None:
        return after.state != CLOSED or after.pinned is not None
    return any(getattr(before, name) != getattr(after, name) for name in ("generation", "pinned", "due_at"))


def set_state(
    record: BreakerRecord,
    now: int,
    state: str,
    failure_count: int | None = None,
    success_count: int | None = None,
    opened_at: int | None = None,
    last_failure_at: int | None = None,
    half_open_request_count: int | None = None,
    reset_half_open_count: bool = False,
) -> BreakerRecord:
    """Whatever the caller says: any state from any state. None keeps a value.

    Raises ValueError for a state that is none.
    """
    after = known_state(state)
    given: dict[str, Value] = {
        "failure_count": failure_count,
        "success_count": success_count,
        "opened_at": opened_at,
        "last_failure_at": last_failure_at,
        "half_open_request_count": half_open_request_count,
    }
    changes: dict[str, Value] = {name: value for name, value in given.items() if value is not None}
    if reset_half_open_count:
        changes |= {"half_open_request_count": 0, "half_open_window_started_at": None}
    if after is CLOSED:
        changes["opened_at"] = None
    return _put(record, now, after, **changes)


def count_failure(record: BreakerRecord, now: int, generation: int | None = None) -> BreakerRecord | None:
    if _is_stale(record, generation):
        return None
    return _put(record, now, None, failure_count=record.failure_count + 1, last_failure_at=now)


def count_success(record: BreakerRecord, now: int, generation: int | None = None) -> BreakerRecord | None:
    if _is_stale(record, generation):
        return None
    return _put(record, now, None, success_count=record.success_count + 1)


def succeed(record: BreakerRecord, now: int, threshold: int, generation: int | None = None) -> BreakerRecord | None:
    """Counts a success; half-open, the one that reaches the threshold closes."""
    counted = count_success(record, now, generation)
    if counted is None or record.state != HALF_OPEN or counted.success_count < max(1, threshold):
        return counted
    return move(record, Act.RECOVER, now)


def fail(record: BreakerRecord, now: int, threshold: int, generation: int | None = None) -> BreakerRecord | None:
    """Counts a failure; at the threshold a closed breaker opens, and a half-open one opens at once."""
    counted = count_failure(record, now, generation)
    if counted is None or pin_in_force(record, now) is CLOSED:
        return counted
    if record.state == HALF_OPEN:
        return move(record, Act.RELAPSE, now, last_failure_at=now)
    if record.state == CLOSED and counted.failure_count >= max(1, threshold):
        return move(record, Act.TRIP, now, failure_count=counted.failure_count, last_failure_at=now)
    return counted


def pin(
    record: BreakerRecord, now: int, state: str, controlled_by_id: str | None, reason: str, expires_at: int | None
) -> BreakerRecord:
    """An operator's word; it replaces an earlier one, with its expiry.

    Raises ValueError for a state that is none.
    """
    to = known_state(state)
    ends = None if expires_at is None else min(expires_at, LATEST)
    # Probes of a trial that goes on are still running: their leases stay.
    said = record.fleet if record.state == to == HALF_OPEN else ""
    held = move(record, _FORCE[to], now, fleet=said)
    return held._replace(
        due_at=ends,
        manually_controlled=1,
        pinned=to.value,
        controlled_by_id=controlled_by_id,
        control_reason=reason,
        manual_override_expires_at=ends,
    )


def force_close(
    record: BreakerRecord, now: int, controlled_by_id: str | None, reason: str, expires_at: int | None
) -> BreakerRecord:
    """A pin on closed that also empties the counters."""
    held = pin(record, now, CLOSED, controlled_by_id, reason, expires_at)
    return held._replace(failure_count=0, success_count=0)


def unpin(record: BreakerRecord, now: int, preserve_reason: bool = False) -> BreakerRecord:
    """The breaker is left to itself again; state and counters stay."""
    reason = record.control_reason if preserve_reason else ""
    return _put(record, now, None, **_UNPINNED, control_reason=reason)


def lift_expired_pin(record: BreakerRecord, now: int) -> BreakerRecord | None:
    """Only the flag goes: the rest tells later on why an open breaker may be tried at once."""
    if record.due_at is None or record.due_at > now:
        return None
    return _put(record, now, None, due_at=None, manually_controlled=0)


def reset(record: BreakerRecord, now: int, reason: str = "") -> BreakerRecord:
    """Closed, as if nothing had ever happened; metadata stays."""
    return move(record, Act.RESET, now, **_UNPINNED, last_failure_at=None, control_reason=reason)


class Trial(NamedTuple):
    """What a request for a half-open slot comes to; `after` is None when nothing is to be written."""

    granted: bool
    after: BreakerRecord | None = None


def try_trial(record: BreakerRecord, now: int, limit: int, stuck_us: int, recovery_us: int | None = None) -> Trial:
    """A slot for a trial call: the first one of an open breaker, or another one of a half-open breaker."""
    if limit <= 0 or pin_in_force(record, now) is OPEN:
        return Trial(False)
    if record.state == OPEN:
        if recovery_us is not None and not _is_rested(record, now, recovery_us):
            return Trial(False)
        return Trial(True, move(record, Act.TRIAL, now, half_open_request_count=1))
    if record.state != HALF_OPEN:
        return Trial(False)
    taken, began = record.half_open_request_count, record.half_open_window_started_at
    if taken < limit:
        began = now if began is None else began
        more = _put(record, now, None, half_open_request_count=taken + 1, half_open_window_started_at=began)
        return Trial(True, more)
    if began is None or now - began > stuck_us:
        # Whoever held the slots is gone; the window begins anew.
        fresh: dict[str, Value] = {
            "success_count": 0,
            "half_open_request_count": 1,
            "half_open_window_started_at": now,
            "fleet": "",
        }
        return Trial(True, _put(record, now, None, **fresh))
    return Trial(False)


def give_back_trial(record: BreakerRecord, now: int, generation: int) -> BreakerRecord | None:
    """The trial learnt nothing: its slot is free for another one."""
    if record.state != HALF_OPEN or record.generation != generation or record.half_open_request_count < 1:
        return None
    return _put(record, now, None, half_open_request_count=record.half_open_request_count - 1)


def empty_window(record: BreakerRecord, now: int) -> BreakerRecord:
    return _put(record, now, None, half_open_request_count=0, half_open_window_started_at=None)


def annotate(record: BreakerRecord, now: int, metadata: str) -> BreakerRecord:
    return _put(record, now, None, metadata=metadata)


def known_state(state: str) -> CircuitState:
    try:
        return CircuitState(state)
    except ValueError:
        raise InvalidValue(f"{state!r} is no state of a breaker; use {', '.join(CircuitState)}") from None


def expiry(now: int, minutes: float | None) -> int | None:
    """When a pin of so many minutes ends; None, 0 or less: never."""
    return None if minutes is None or minutes <= 0 else min(LATEST, now + round(minutes * _MINUTE))


def move(record: BreakerRecord, act: Act, now: int, **changes: Value) -> BreakerRecord:
    """The only way to another state, but for `set_state`: what follows from the new state, then `changes`."""
    after = TRANSITIONS[record.circuit_state, act]
    follows: dict[str, Value] = {"half_open_request_count": 0, "half_open_window_started_at": None, "pinned": None}
    if after is CLOSED:
        follows["opened_at"] = None
    if after is OPEN:
        follows["opened_at"] = now
    match act:
        case Act.RECOVER | Act.RELAPSE | Act.RESET:
            follows |= {"failure_count": 0, "success_count": 0}
        case Act.TRIAL:
            follows |= {"success_count": 0, "half_open_window_started_at": now}
    return _put(record, now, after, **{**follows, **changes})


def _put(record: BreakerRecord, now: int, state: CircuitState | None, **changes: Value) -> BreakerRecord:
    """The next version; a change of state begins a generation, of which no pin and no process has spoken yet."""
    if state is not None and state != record.state:
        begun: dict[str, Value] = {
            "state": state.value,
            "generation": record.generation + 1,
            "pinned": None,
            "fleet": "",
        }
        changes = {**begun, **changes}
    if "opened_at" in changes:
        changes["open_order"] = changes["opened_at"] or 0
    return evolve(record, updated_at=now, **changes)


_UNPINNED: Final[dict[str, Value]] = {
    "due_at": None,
    "manually_controlled": 0,
    "pinned": None,
    "controlled_by_id": None,
    "manual_override_expires_at": None,
}


def _is_stale(record: BreakerRecord, generation: int | None) -> bool:
    return generation is not None and generation < record.generation


def _is_rested(record: BreakerRecord, now: int, recovery_us: int) -> bool:
    """Whether an open breaker has been open for long enough, or because of a pin that has run out."""
    if record.opened_at is None or now - record.opened_at >= recovery_us:
        return True
    expires = record.manual_override_expires_at
    return record.pinned == OPEN and expires is not None and expires <= now
