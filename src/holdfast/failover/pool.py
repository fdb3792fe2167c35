"""A pool of endpoints with a breaker each.

How an attempt finds its endpoint. First everything is looked at and nothing is taken: an endpoint is *ready* (circuit
closed), *recovering* (open and due for a test, or half-open with no probe out) or *shut*. One is chosen and only that
one is acquired; if somebody else was quicker, the next one is.

Recovering endpoints take one call at a time, and only an idempotent one. So that they are found again while others
are healthy, the first attempt of a call goes to the one that was tested longest ago, unless another probe of the pool
is under way. A call that has failed once prefers ready endpoints, and takes recovering ones before it visits any twice.
"""

from __future__ import annotations

import random
import threading
from collections.abc import Callable, Iterable, Iterator
from typing import Any

from holdfast.core.clock import SYSTEM_CLOCK, Clock
from holdfast.core.outcome import Evidence
from holdfast.errors import PolicyError
from holdfast.failover.endpoint import Endpoint
from holdfast.failover.member import Member, Shed, Survey, Ticket
from holdfast.failover.selection import Choose, check_choice, pick, score
from holdfast.failover.tour import Tour
from holdfast.failover.trial import Trial
from holdfast.guard.circuit_breaker import StampedCircuit
from holdfast.machine.breaker import Breaker, CircuitState
from holdfast.machine.circuit import Permit, Refusal
from holdfast.machine.trip import count
from holdfast.telemetry.events import GuardEvent
from holdfast.telemetry.hub import Hub, Listener, default_hub


class EndpointPool:
    """Endpoints to choose from, each with a breaker and the statistics of its last 100 calls.

    `endpoints` may be given as URLs or names, and may come and go. `region` prefers endpoints of that region where the
    score counts. A guard that uses the pool lends it its clock, randomness and telemetry unless they are given here.

    Raises PolicyError for what cannot work.
    """

    def __init__(
        self,
        endpoints: Iterable[Endpoint | str] = (),
        *,
        choose: Choose | str = Choose.P2C,
        breaker: Breaker | None = None,
        region: str | None = None,
        clock: Clock | None = None,
        rng: Callable[[], float] | None = None,
        telemetry: Hub | None = None,
        name: str = "pool",
    ) -> None:
        self.name = name
        self.choose = check_choice(choose)
        self.breaker = _one_probe(Breaker(count(5, window=60.0)) if breaker is None else breaker)
        self.region = region
        self._clock = clock
        self._rng = rng
        self._telemetry = telemetry
        self._circuit_events: Hub | None = None
        self._lock = threading.Lock()
        # Replaced whole, so that a selection needs no lock.
        self._members: tuple[Member, ...] = ()
        for endpoint in endpoints:
            self.add(endpoint)

    def bind(self, clock: Clock, rng: Callable[[], float], telemetry: Hub) -> None:
        """Use these where nothing was given, nor taken from an earlier guard."""
        with self._lock:
            self._clock = clock if self._clock is None else self._clock
            self._rng = rng if self._rng is None else self._rng
            self._telemetry = telemetry if self._telemetry is None else self._telemetry

    @property
    def clock(self) -> Clock:
        return SYSTEM_CLOCK if self._clock is None else self._clock

    @property
    def endpoints(self) -> tuple[Endpoint, ...]:
        return tuple(member.endpoint for member in self._members)

    def add(self, endpoint: Endpoint | str) -> Endpoint:
        """Put an endpoint at the end of the list.

        Raises PolicyError for an id that is taken.
        """
        added = Endpoint.of(endpoint)
        with self._lock:
            if any(member.endpoint.id == added.id for member in self._members):
                raise PolicyError(
                    f"pool {self.name!r} has an endpoint {added.id!r} already; remove it first, or use another id: "
                    "Endpoint('name', url)"
                )
            self._members += (Member(added),)
        return added

    def remove(self, endpoint: Endpoint | str) -> None:
        """Take an endpoint out, with its breaker and statistics. Calls under way finish.

        Raises KeyError for an unknown one.
        """
        gone = self._member(endpoint)
        with self._lock:
            self._members = tuple(member for member in self._members if member is not gone)

    def circuit(self, endpoint: Endpoint | str) -> StampedCircuit:
        """The endpoint's circuit: its state, and the operator's commands on it.

        Raises KeyError for an unknown endpoint.
        """
        return self._circuit(self._member(endpoint))

    def circuits(self) -> dict[str, StampedCircuit]:
        """The circuits of all endpoints that have been used, by id."""
        return {member.endpoint.id: member.circuit for member in self._members if member.circuit is not None}

    def listen(self, listener: Listener) -> None:
        """Tell a listener about this pool's circuits only."""
        self._events().register(listener)

    def admit(self, tour: Tour[Member] | None = None, *, idempotent: bool = True) -> Ticket | Shed:
        """Leave to call the endpoint whose turn it is, or why there is none. Takes at most one permit."""
        tour = Tour() if tour is None else tour
        survey = Survey(tour.allowed(self._members))
        while (member := self._next(tour, survey, idempotent)) is not None:
            now = self.clock.monotonic()
            circuit = self._circuit(member)
            answer = circuit.admit(now)
            if isinstance(answer, Permit) and answer.lease is not None and not idempotent:
                circuit.finish(answer, Evidence.NEUTRAL, now)  # it opened and came due while we looked
            elif isinstance(answer, Permit):
                with self._lock:
                    member.in_flight += 1
                    if answer.lease is not None:
                        member.tested_at = now
                tour.arrive(member)
                return Ticket(member, circuit, answer, now)
            survey.drop(member, answer if isinstance(answer, Refusal) else None)
        return Shed(survey.shut, [member.endpoint for member in survey.recovering])

    def settle(self, ticket: Ticket, evidence: Evidence, error: BaseException | None = None) -> None:
        """Give a ticket back with what the call told about the endpoint."""
        now = self.clock.monotonic()
        took = max(0.0, now - ticket.started)
        ticket.circuit.finish(ticket.permit, evidence, now, took, error)
        with self._lock:
            ticket.member.in_flight -= 1
            if evidence is not Evidence.NEUTRAL:
                ticket.member.statistics.add(evidence is Evidence.SUCCESS, took)

    def waits(self, tour: Tour[Member], idempotent: bool = True) -> bool:
        """Whether the next attempt should wait, because it would go to an endpoint that the call has visited before.

        When nothing is available it should not either: it will be refused, and that can be known at once.
        """
        ready, recovering = Survey(tour.allowed(self._members)).turn(tour, idempotent)
        turn = (*ready, *recovering)
        return bool(turn) and all(member in tour.visits for member in turn)

    def trials(self) -> Iterator[Trial]:
        """Active probes, under the same permits as calls: one `Trial` per endpoint that is due for a test.

        for trial in pool.trials():
            with trial as endpoint:
                ping(endpoint)          # or await it; what it raises is the verdict
        """
        for member in self._members:
            if member.refusal() is not None or not member.recovering:
                continue
            circuit, now = self._circuit(member), self.clock.monotonic()
            permit = circuit.admit(now)
            if isinstance(permit, Refusal):
                continue
            with self._lock:
                member.in_flight += 1
                member.tested_at = now
            trial = Trial(self, Ticket(member, circuit, permit, now))
            try:
                yield trial
            finally:
                trial.settle(Evidence.NEUTRAL)  # if nobody entered it

    def scores(self) -> dict[str, float]:
        """The score of every endpoint, by id."""
        score_of = self._scoring()
        return {member.endpoint.id: score_of(member) for member in self._members}

    def snapshot(self) -> list[dict[str, Any]]:
        """What a console shows, one row per endpoint, in list order."""
        scores = self.scores()
        return [
            self._row(member, scores[member.endpoint.id]) for member in self._members if member.endpoint.id in scores
        ]

    def _row(self, member: Member, points: float) -> dict[str, Any]:
        circuit, statistics, endpoint = member.circuit, member.statistics, member.endpoint
        refusal = member.refusal()
        return {
            "id": endpoint.id,
            "region": endpoint.region,
            "weight": endpoint.weight,
            "state": (CircuitState.CLOSED if circuit is None else circuit.state).value,
            "available": refusal is None,
            "retry_after": None if refusal is None else refusal.retry_after,
            "failure_count": 0 if circuit is None else circuit.look("failure_count"),
            "last_state_change": None if circuit is None else circuit.changed_wall,
            "in_flight": member.in_flight,
            "calls": statistics.calls,
            "success_rate": statistics.success_rate if statistics.calls else None,
            "latency": statistics.latency if statistics.calls else None,
            "score": points,
        }

    def _next(self, tour: Tour[Member], survey: Survey, idempotent: bool) -> Member | None:
        ready, recovering = survey.turn(tour, idempotent)
        if recovering and (not ready or (tour.fresh and not survey.probing)):
            # The one tested longest ago, so that one that hangs in every test does not keep the others waiting.
            return min(recovering, key=lambda member: member.tested_at)
        if not ready:
            return None
        rng = random.random if self._rng is None else self._rng
        return pick(self.choose, ready, self._scoring(), lambda member: member.endpoint.weight, rng)

    def _scoring(self) -> Callable[[Member], float]:
        highest = max((member.statistics.latency for member in self._members), default=0.0)

        def score_of(member: Member) -> float:
            statistics, region = member.statistics, self.region
            at_home = region is not None and member.endpoint.region == region
            return score(statistics.success_rate, statistics.latency, highest, at_home)

        return score_of

    def _member(self, endpoint: Endpoint | str) -> Member:
        wanted = endpoint.id if isinstance(endpoint, Endpoint) else endpoint
        for member in self._members:
            if member.endpoint.id == wanted:
                return member
        raise KeyError(f"pool {self.name!r} has no endpoint {wanted!r}")

    def _circuit(self, member: Member) -> StampedCircuit:
        if member.circuit is None:
            events = self._events()
            with self._lock:
                if member.circuit is None:
                    member.circuit = StampedCircuit(member.endpoint.id, self.breaker, self.clock, events)
        return member.circuit

    def _events(self) -> Hub:
        """A hub between the circuits and the telemetry, where `listen` can tell this pool's circuits from others."""
        with self._lock:
            if self._circuit_events is None:
                self._clock = self.clock  # from here on there are times that were told by it
                self._circuit_events = Hub(clock=self._clock)
                self._circuit_events.register(self._pass_on)
            return self._circuit_events

    def _pass_on(self, event: GuardEvent) -> None:
        (default_hub() if self._telemetry is None else self._telemetry).emit(event)


def _one_probe(policy: Breaker) -> Breaker:
    """The policy with at most one probe at a time."""
    if policy.probes == 1:
        return policy
    return Breaker(
        *policy.rules,
        open_for=policy.open_for,
        successes=policy.successes,
        out_of=policy.out_of,
        probes=1,
        half_open_for=policy.half_open_for,
        terminal_is_success=policy.terminal_is_success,
        name=policy.name,
        id=policy.id,
    )
