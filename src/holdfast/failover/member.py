"""Who is in a pool, and what can be done with them now. Looking takes nothing."""

from __future__ import annotations

import math
from collections.abc import Iterable

from holdfast.failover.endpoint import Endpoint, Statistics
from holdfast.failover.tour import Tour
from holdfast.guard.circuit_breaker import StampedCircuit
from holdfast.machine.breaker import CircuitState
from holdfast.machine.circuit import Permit, Refusal


class Member:
    """An endpoint in a pool, with its live state."""

    __slots__ = ("circuit", "endpoint", "in_flight", "statistics", "tested_at")

    def __init__(self, endpoint: Endpoint) -> None:
        self.endpoint = endpoint
        self.circuit: StampedCircuit | None = None  # made at the first use
        self.statistics = Statistics()
        self.in_flight = 0
        self.tested_at = -math.inf

    def refusal(self) -> Refusal | None:
        """What keeps calls away; reads only."""
        circuit = self.circuit
        if circuit is None or circuit.gate:
            return None
        refusal: Refusal | None = circuit.look("peek")
        return refusal

    @property
    def recovering(self) -> bool:
        """Whether a call would be a probe; meant for a member that refuses nothing."""
        circuit = self.circuit
        return circuit is not None and circuit.tests_calls


class Ticket:
    """Leave to call an endpoint; to be settled by `EndpointPool.settle`."""

    __slots__ = ("circuit", "member", "permit", "started")

    def __init__(self, member: Member, circuit: StampedCircuit, permit: Permit, started: float) -> None:
        self.member = member
        self.circuit = circuit
        self.permit = permit
        self.started = started

    @property
    def endpoint(self) -> Endpoint:
        return self.member.endpoint

    @property
    def is_probe(self) -> bool:
        return self.permit.lease is not None


class Shed:
    """A no of the whole pool: who was shut, when the first of them will be tested, and an error that shut one."""

    __slots__ = ("cause", "endpoints", "retry_after", "unfit")

    def __init__(self, shut: list[tuple[Endpoint, Refusal | None]], unfit: list[Endpoint]) -> None:
        refusals = [refusal for _, refusal in shut if refusal is not None]
        self.endpoints = [endpoint for endpoint, _ in shut] + unfit
        self.retry_after = min((no.retry_after for no in refusals if no.retry_after is not None), default=None)
        self.cause = next((no.cause for no in refusals if no.cause is not None), None)
        self.unfit = unfit  # recovering, but not for a call that cannot be repeated

    def __str__(self) -> str:
        if not self.endpoints:
            return "the pool has no endpoints"
        names = ", ".join(endpoint.id for endpoint in self.endpoints[:5])
        more = len(self.endpoints) - 5
        text = f"no endpoint available: {names}{f' and {more} more' if more > 0 else ''}"
        return f"{text}; recovering ones take idempotent calls only" if self.unfit else text


class Survey:
    """The members that a call may use, by what can be done with them now."""

    __slots__ = ("probing", "ready", "recovering", "shut")

    def __init__(self, members: Iterable[Member]) -> None:
        self.ready: list[Member] = []
        self.recovering: list[Member] = []
        self.shut: list[tuple[Endpoint, Refusal | None]] = []
        self.probing = False
        for member in members:
            refusal = member.refusal()
            if refusal is not None:
                self.shut.append((member.endpoint, refusal))
                self.probing = self.probing or refusal.state is CircuitState.HALF_OPEN
            else:
                (self.recovering if member.recovering else self.ready).append(member)

    def drop(self, member: Member, refusal: Refusal | None) -> None:
        """Give up on a member that somebody else was quicker to take."""
        (self.ready if member in self.ready else self.recovering).remove(member)
        self.shut.append((member.endpoint, refusal))

    def turn(self, tour: Tour[Member], idempotent: bool) -> tuple[list[Member], list[Member]]:
        """The ready and the recovering members among which the next attempt is chosen."""
        recovering = self.recovering if idempotent else []
        if tour.fresh:
            return self.ready, recovering
        if tour.stays and (tour.current in self.ready or tour.current in recovering):
            turn = {tour.current}
        else:
            turn = {*tour.least_visited([*self.ready, *recovering])}
        return [one for one in self.ready if one in turn], [one for one in recovering if one in turn]
