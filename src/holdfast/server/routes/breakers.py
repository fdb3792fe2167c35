"""Circuit breakers that processes share: states, moves, votes and leases, and an operator's word on them.

A breaker is stored once it has moved. One that a guard of this process has and that never moved is shown from here.
"""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Any, Final

from fastapi import Path, Query, Request
from pydantic import BaseModel, Field

from holdfast.breakers.control import LONGEST_PIN_MINUTES, PIN_MINUTES, BreakerControl
from holdfast.breakers.data import CircuitBreakerStateData
from holdfast.breakers.finding import count_breakers, find_breaker, find_breakers
from holdfast.guard.circuit import LiveCircuit
from holdfast.machine.breaker import CircuitState
from holdfast.machine.breaker_fleet import Fleet
from holdfast.machine.breaker_record import BREAKER
from holdfast.server.problems import invalid, not_found
from holdfast.server.routes.guards import GuardCircuit
from holdfast.server.routing import Asked, Asking, Routes
from holdfast.server.shapes import After, Limit, Reasoned
from holdfast.server.watch import watch_of
from holdfast.store.codec import clean_text, instant
from holdfast.views.breakers import breaker_document, fleet_document, sharing_document
from holdfast.views.guards import circuit_document, circuit_of

routes: Final = Routes("breakers")
LONGEST_NAME: Final = BREAKER.keyed.get("id", 191)
STATES: Final = [state.value for state in CircuitState]
COVERED: Final = (
    "Every move of circuits in the server's process since it began to look. Of breakers that only other processes use, "
    "what was stored every few seconds: moves in between are counted as skipped. Earlier moves are not kept; the "
    "generation counts them all."
)
Name = Annotated[
    str, Path(min_length=1, max_length=LONGEST_NAME, description="A breaker's name, which may hold slashes.")
]


class Breaker(BaseModel):
    """A breaker. `stored` says whether it is in the store; `guards` are those of this process that use it."""

    service_name: str
    id: str | None
    state: str
    failure_count: int
    success_count: int
    last_failure_at: datetime | None
    opened_at: datetime | None
    manually_controlled: bool
    controlled_by_id: int | str | None
    control_reason: str
    manual_override_expires_at: datetime | None
    half_open_request_count: int
    half_open_window_started_at: datetime | None
    metadata: dict[str, Any]
    created_at: datetime | None
    updated_at: datetime | None
    generation: int
    pin_active: bool
    stored: bool
    guards: list[str]


class SharingShown(BaseModel):
    """Whether this process shares its breakers through the store now. `alone` are those decided here meanwhile."""

    url: str
    process: str
    is_connected: bool
    since: datetime | None
    error: str | None
    shared: list[str]
    alone: list[str]
    quorum: int


class Breakers(BaseModel):
    """Stored breakers, and how many there are of each state. On the first page also those of this process that never
    moved (`unmoved`).
    """

    items: list[Breaker]
    next: str | None = None
    unmoved: list[Breaker]
    by_state: dict[str, int]
    sharing: SharingShown


class Vote(BaseModel):
    """A process that saw an outage."""

    process: str
    at: datetime


class ProbeLease(BaseModel):
    """Leave for one probe, until then."""

    ends_at: datetime


class ProbeResult(BaseModel):
    """What a probe came to."""

    failed: bool
    duration_s: float


class FleetShown(BaseModel):
    """What processes tell each other: who votes to open, which probes are out, what others came to."""

    may_be_tried_at: datetime | None
    failed_rounds: int
    cause: str
    votes: list[Vote]
    leases: list[ProbeLease]
    results: list[ProbeResult]


class Move(BaseModel):
    """A change of state. `seen` is `here` where a circuit told of it, `store` where it was looked up."""

    at: datetime
    from_state: str | None
    to_state: str
    cause: str | None
    failure_count: int
    seen: str


class Course(BaseModel):
    """A breaker over time, the oldest move first. `covers` says what is in it and what is not."""

    since: datetime
    moves: list[Move]
    skipped: int
    covers: str


class BreakerShown(Breaker):
    """A breaker with its moves, what processes tell each other, and the circuits of this process."""

    fleet: FleetShown
    course: Course
    circuits: list[GuardCircuit]
    sharing: SharingShown
    now: datetime


class ForceRequest(Reasoned):
    """Hold the breaker for so many minutes; then it is left to itself again."""

    ttl_minutes: int = Field(PIN_MINUTES, ge=1, le=LONGEST_PIN_MINUTES)


@routes.reads(response_model=Breakers)
def find(
    asked: Asking,
    state: Annotated[str | None, Query(description="closed, open or half_open.")] = None,
    limit: Limit = 100,
    after: After = None,
) -> Any:
    """Breakers by name; those of one state with the one that opened first at the beginning."""
    if state is not None and state not in STATES:
        raise invalid("unknown_state", f"{state!r} is no state of a breaker; there are {', '.join(STATES)}")
    hold = asked.hold
    found, here = find_breakers(hold.store, state=state, after=after, limit=limit + 1), _here(asked)
    now, unmoved = instant(hold.store.now()), []
    if after is None:
        names = {name: circuits for name, circuits in here.items() if state in (None, circuits[0][1].state.value)}
        stored = {one.id for one in hold.store.get(BREAKER, tuple(names)) if one is not None} if names else set()
        unmoved = [_document(_as_state(name, names[name]), now, here, False) for name in names if name not in stored]
    return {
        "items": [_document(one, now, here) for _, one in found[:limit]],
        "next": found[limit - 1][0] if len(found) > limit else None,
        "unmoved": unmoved,
        "by_state": count_breakers(hold.store),
        "sharing": _sharing(asked),
    }


@routes.reads("/{name:path}", response_model=BreakerShown)
def show(asked: Asking, request: Request, name: Name) -> Any:
    """One breaker: its state, its moves, votes and leases, and how it stands in this process."""
    return _shown(asked, request, name)


@routes.acts("/{name:path}/force-open", response_model=BreakerShown)
def force_open(asked: Asking, request: Request, name: Name, body: ForceRequest) -> Any:
    """Hold a breaker open: every process refuses its calls. One that is not stored yet is made."""
    _control(asked).force_open(_stored_name(name), body.reason, asked.by, body.ttl_minutes)
    return _shown(asked, request, name)


@routes.acts("/{name:path}/force-close", response_model=BreakerShown)
def force_close(asked: Asking, request: Request, name: Name, body: ForceRequest) -> Any:
    """Hold a breaker closed: it lets every call through and never trips. One that is not stored yet is made."""
    _control(asked).force_close(_stored_name(name), body.reason, asked.by, body.ttl_minutes)
    return _shown(asked, request, name)


@routes.acts("/{name:path}/reset", response_model=BreakerShown)
def reset(asked: Asking, request: Request, name: Name, body: Reasoned) -> Any:
    """Close a breaker, and forget its counts and an operator's word on it."""
    if not _control(asked).reset(name, body.reason, asked.by):
        raise not_found("breaker", name)
    return _shown(asked, request, name)


@routes.acts("/{name:path}/clear", response_model=BreakerShown)
def clear(asked: Asking, request: Request, name: Name, body: Reasoned) -> Any:
    """Leave a breaker that is held to itself; its state stays what it is."""
    if not _control(asked).clear(name):
        raise not_found("breaker", name)
    return _shown(asked, request, name)


def _control(asked: Asked) -> BreakerControl:
    return BreakerControl(asked.hold.breakers, asked.hold.telemetry)


def _stored_name(name: str) -> str:
    if clean_text(name) != name:
        raise invalid(
            "name_not_storable", f"a breaker called {name!r} cannot be stored; its name has a NUL or the like"
        )
    return name


def _here(asked: Asked) -> dict[str, list[tuple[str, LiveCircuit]]]:
    """The circuits of this process by name, with the guards that use them."""
    found: dict[str, list[tuple[str, LiveCircuit]]] = {}
    for guard_name, guard in sorted(asked.hold.guards.items()):
        circuit = circuit_of(guard)
        if circuit is not None:
            found.setdefault(clean_text(circuit.name), []).append((guard_name, circuit))
    return found


def _as_state(name: str, circuits: list[tuple[str, LiveCircuit]]) -> CircuitBreakerStateData:
    """What would be stored of a circuit that is only here."""
    circuit = circuits[0][1]
    return CircuitBreakerStateData(name, state=circuit.state.value, failure_count=circuit.look("failure_count"))


def _document(
    state: CircuitBreakerStateData, now: datetime, here: dict[str, list[tuple[str, LiveCircuit]]], stored: bool = True
) -> dict[str, Any]:
    guards = [name for name, _ in here.get(state.service_name, ())]
    return {**breaker_document(state, now), "stored": stored, "guards": guards}


def _shown(asked: Asked, request: Request, name: str) -> dict[str, Any]:
    hold, here, watch = asked.hold, _here(asked), watch_of(request)
    found = find_breaker(hold.store, name)
    circuits = here.get(clean_text(name), [])
    if found is None and not circuits:
        raise not_found("breaker", name)
    state, fleet = (_as_state(name, circuits), Fleet()) if found is None else found
    if found is not None:
        watch.transitions.look([state], frozenset(hold.breakers.status().shared))
    moves, skipped = watch.transitions.of(state.service_name)
    now = instant(hold.store.now())
    return {
        **_document(state, now, here, found is not None),
        "fleet": fleet_document(fleet),
        "course": {
            "since": watch.transitions.since, "moves": [move._asdict() for move in moves], "skipped": skipped,
            "covers": COVERED,
        },
        "circuits": [circuit_document(circuit) for _, circuit in circuits],
        "sharing": _sharing(asked),
        "now": now,
    }  # fmt: skip


def _sharing(asked: Asked) -> dict[str, Any]:
    breakers = asked.hold.breakers
    return {**sharing_document(breakers.status()), "quorum": breakers.sharing.quorum}
