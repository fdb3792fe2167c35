"""One breaker in many processes: votes that open it, leases for its probes, and the verdict on them.

What processes tell each other stands in the record's `fleet`; it begins anew with every change of state. A step takes
the record as it is and gives the next version, or None to leave it alone (`machine/breaker_record.py`). A lease is
leave for one probe: it ends when it is settled, given back, or when its time is over because its holder has died.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from typing import Any, Final, NamedTuple

from holdfast.machine.breaker import CLOSED, HALF_OPEN, OPEN, CircuitState, Trigger
from holdfast.machine.breaker_record import Act, BreakerRecord, move, new_breaker, pin_in_force
from holdfast.store.codec import from_json, to_json
from holdfast.store.record import evolve

Sight = tuple[int, int]
"""Which life of a breaker somebody has seen: when it was made, and its generation. One that never moved is `NEW`."""

NEW: Final[Sight] = (0, 0)
Verdict = Callable[[Sequence[tuple[bool, float]]], Trigger | None]


class Fleet(NamedTuple):
    """`until` is when an open breaker may be tried; `results` are (failed, duration in seconds) of settled probes.

    `leases` are (token, end), `votes` (process, time). `wanted` is when somebody asked for a lease and all were taken.
    """

    until: int | None = None
    rounds: int = 0
    cause: str = ""
    leases: tuple[tuple[str, int], ...] = ()
    results: tuple[tuple[bool, float], ...] = ()
    votes: tuple[tuple[str, int], ...] = ()
    wanted: int = 0


class Trip(NamedTuple):
    """A process's evidence that the breaker should open, until when it would be open, and what it had seen of it."""

    process: str
    sight: Sight
    until: int
    rounds: int
    cause: str
    failure_count: int


class View(NamedTuple):
    """What a record says to whoever follows it; `until` is None for an open breaker that nobody may try."""

    sight: Sight
    state: CircuitState
    pinned: CircuitState | None
    pin_ends: int | None
    until: int | None
    rounds: int
    cause: str
    half_open_at: int


def read(record: BreakerRecord) -> Fleet:
    if not record.fleet:
        return Fleet()
    words: dict[str, Any] = from_json(record.fleet)
    # A newer version of this program may say more.
    said = {name: words[name] for name in Fleet._fields if name in words}
    for name in ("leases", "results", "votes"):
        said[name] = tuple((first, second) for first, second in said.get(name, ()))
    return Fleet(**said)


def write(fleet: Fleet) -> str:
    said = {name: value for name, value in fleet._asdict().items() if value}
    return to_json(said) if said else ""


def sight(record: BreakerRecord | None) -> Sight:
    return NEW if record is None or not record.generation else (record.created_at, record.generation)


def view(record: BreakerRecord | None, now: int, open_us: int) -> View:
    """The breaker as of now; `open_us` is for one that was opened without saying for how long."""
    if record is None:
        return View(NEW, CLOSED, None, None, None, 0, "", 0)
    fleet, pinned = read(record), pin_in_force(record, now)
    until = record.manual_override_expires_at if pinned is OPEN else _due(record, fleet, open_us)
    words = fleet.cause or (f"held by an operator: {record.control_reason}" if pinned is not None else "")
    began = record.half_open_window_started_at or record.updated_at
    ends = None if pinned is None else record.manual_override_expires_at
    return View(sight(record), record.circuit_state, pinned, ends, until, fleet.rounds, words, began)


def vote(
    record: BreakerRecord | None, name: str, now: int, trip: Trip, quorum: int, window_us: int
) -> BreakerRecord | None:
    """A process has tripped: with enough votes the breaker opens for all, and before that for nobody else.

    Evidence about another life of the breaker, and any while it is pinned, is not heeded.
    """
    found = new_breaker(name, now) if record is None else record
    if found.state != CLOSED or sight(found) != trip.sight or pin_in_force(found, now) is CLOSED:
        return None
    others = tuple(one for one in read(found).votes if one[0] != trip.process and now - one[1] <= window_us)
    votes = (*others, (trip.process, now))
    if len(votes) >= quorum:
        opened = write(Fleet(until=trip.until, rounds=trip.rounds, cause=trip.cause))
        after = move(found, Act.TRIP, now, failure_count=trip.failure_count, last_failure_at=now, fleet=opened)
    else:
        after = evolve(found, fleet=write(Fleet(votes=votes)), updated_at=now)
    return after._replace(version=found.version) if record is None else after


def withdraw(record: BreakerRecord | None, now: int, process: str) -> BreakerRecord | None:
    """The process no longer sees an outage."""
    if record is None or record.state != CLOSED:
        return None
    votes = read(record).votes
    left = tuple(one for one in votes if one[0] != process)
    return None if left == votes else evolve(record, fleet=write(Fleet(votes=left)), updated_at=now)


def lease(
    record: BreakerRecord | None,
    now: int,
    tokens: Sequence[str],
    until: int,
    probes: int,
    out_of: int,
    open_us: int,
) -> BreakerRecord | None:
    """Leave for probes, one per token and as many as may go; the first one makes an open breaker half-open.

    At most `probes` at once, and no more than `out_of` results are needed. Who holds which is in the answer's `leases`.
    """
    if record is None or not tokens or pin_in_force(record, now) is OPEN or record.state == CLOSED:
        return None
    fleet = read(record)
    if record.state == OPEN:
        if now < _due(record, fleet, open_us):
            return None
        granted = tuple((token, until) for token in tokens[: min(probes, out_of)])
        begun = write(Fleet(rounds=fleet.rounds, cause=fleet.cause, leases=granted))
        return move(record, Act.TRIAL, now, half_open_request_count=len(granted), fleet=begun)
    live = tuple(one for one in fleet.leases if one[1] > now)
    taken = max(0, record.half_open_request_count - (len(fleet.leases) - len(live)))
    results, began = fleet.results, record.half_open_window_started_at
    if taken >= out_of and not live and (began is None or now - began > until - now):
        # Slots without results whose holders are gone, or results that were no verdict: the window begins anew.
        taken, results, began = 0, (), now
    granted = tuple((token, until) for token in tokens[: max(0, min(probes - len(live), out_of - taken))])
    if not granted:
        return None
    more = fleet._replace(leases=(*live, *granted), results=results, wanted=0)
    return evolve(
        record,
        half_open_request_count=taken + len(granted),
        half_open_window_started_at=now if began is None else began,
        fleet=write(more),
        updated_at=now,
    )


def renew(record: BreakerRecord | None, now: int, tokens: Collection[str], until: int) -> BreakerRecord | None:
    """Leases that are still held last longer."""
    if record is None:
        return None
    fleet = read(record)
    held = tuple((token, until if token in tokens else end) for token, end in fleet.leases)
    return None if held == fleet.leases else evolve(record, fleet=write(fleet._replace(leases=held)), updated_at=now)


def give_back(record: BreakerRecord | None, now: int, tokens: Collection[str]) -> BreakerRecord | None:
    """The probes did not run, or told nothing; others may have their place."""
    if record is None:
        return None
    fleet = read(record)
    left = tuple(one for one in fleet.leases if one[0] not in tokens)
    if left == fleet.leases:
        return None
    taken = record.half_open_request_count - (len(fleet.leases) - len(left))
    said = write(fleet._replace(leases=left, wanted=0))
    return evolve(record, half_open_request_count=max(0, taken), fleet=said, updated_at=now)


def want(record: BreakerRecord | None, now: int) -> BreakerRecord | None:
    """Somebody waits for a lease: whoever holds one and does not use it should give it back."""
    if record is None or record.state != HALF_OPEN:
        return None
    fleet = read(record)
    if fleet.wanted or not fleet.leases:
        return None
    return evolve(record, fleet=write(fleet._replace(wanted=now)), updated_at=now)


def settle(
    record: BreakerRecord | None,
    now: int,
    token: str,
    result: tuple[bool, float],
    verdict: Verdict,
    reopen_us: Callable[[int], int],
    cause: str,
) -> BreakerRecord | None:
    """A probe's result, and what all results so far decide. Ignored unless its lease is still held."""
    if record is None or record.state != HALF_OPEN:
        return None
    fleet = read(record)
    left = tuple(one for one in fleet.leases if one[0] != token)
    if left == fleet.leases:
        return None
    results = (*fleet.results, result)
    match verdict(results):
        case Trigger.RECOVERED:
            return move(record, Act.RECOVER, now)
        case Trigger.RELAPSED:
            return _relapse(record, now, fleet, now + reopen_us(fleet.rounds + 1), cause)
    return evolve(
        record,
        success_count=record.success_count + (not result[0]),
        failure_count=record.failure_count + result[0],
        fleet=write(fleet._replace(leases=left, results=results)),
        updated_at=now,
    )


def recover(record: BreakerRecord | None, now: int, seen: Sight) -> BreakerRecord | None:
    """A process closed the breaker that it had seen, by hand or on its own while the store was away."""
    if record is None or record.state == CLOSED or sight(record) != seen or pin_in_force(record, now) is OPEN:
        return None
    return move(record, Act.RECOVER, now)


def relapse(record: BreakerRecord | None, now: int, seen: Sight, until: int, cause: str) -> BreakerRecord | None:
    """A process opened the half-open breaker that it had seen: its time ran out, or the store was away."""
    if record is None or record.state != HALF_OPEN or sight(record) != seen:
        return None
    return _relapse(record, now, read(record), until, cause)


def _relapse(record: BreakerRecord, now: int, fleet: Fleet, until: int, cause: str) -> BreakerRecord:
    opened = write(Fleet(until=until, rounds=fleet.rounds + 1, cause=cause or fleet.cause))
    return move(record, Act.RELAPSE, now, last_failure_at=now, fleet=opened)


def _due(record: BreakerRecord, fleet: Fleet, open_us: int) -> int:
    """When an open breaker may be tried."""
    if record.pinned == OPEN and record.manual_override_expires_at is not None:
        return record.manual_override_expires_at  # when the pin ends, it may be tried at once
    if fleet.until is not None:
        return fleet.until
    return 0 if record.opened_at is None else record.opened_at + open_us
