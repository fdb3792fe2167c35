"""Failover: every attempt finds an endpoint of its own, and tells its breaker what came of it.

The strategy stands inside retry. Retry decides whether there is another attempt; this decides where it goes.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final
from weakref import WeakValueDictionary

from holdfast.core.check import check_whole
from holdfast.core.classify import status_of
from holdfast.core.context import (
    CONTEXT,
    CURRENT,
    PARENT,
    SOURCE,
    Link,
    ResilienceContext,
    TypedKey,
    current_context,
    new_link,
    withdraw,
)
from holdfast.core.outcome import Evidence, Outcome, OutcomeKind
from holdfast.errors import CircuitOpen, PolicyError, PoolExhausted
from holdfast.failover.endpoint import Endpoint
from holdfast.failover.member import Member, Shed, Ticket
from holdfast.failover.pool import EndpointPool
from holdfast.failover.tour import Tour
from holdfast.guard.call import ENDPOINT, IDEMPOTENT, Attempt, Call, Next, Setting
from holdfast.telemetry.events import AttemptCompleted

_TOUR: Final = TypedKey[tuple[object, str, Tour[Member]]]("holdfast.failover.tour")


def current_endpoint() -> Endpoint | None:
    """The endpoint that the nearest surrounding guard with Failover chose for this code; None outside of one."""
    link = CURRENT.get()
    while link is not None:
        endpoint = None if link[CONTEXT] is None else link[CONTEXT].get(ENDPOINT)
        if isinstance(endpoint, Endpoint):
            return endpoint
        link = link[PARENT]
    return None


def endpoint_in(pool: EndpointPool) -> Endpoint:
    """Where the running call's attempt goes: to the endpoint chosen for it, or the first while guards are switched off.

    Raises PoolExhausted when the pool is empty.
    """
    ctx = current_context()
    chosen = None if ctx is None else ctx.get(ENDPOINT)
    if isinstance(chosen, Endpoint):
        return chosen
    if not pool.endpoints:
        raise PoolExhausted(pool.name, None, "the pool has no endpoints")
    return pool.endpoints[0]


@dataclass(frozen=True, slots=True)
class Failover:
    """Send each attempt to an endpoint of the pool. The function asks `current_endpoint()` where to go.

    A call makes `attempts_per_endpoint` attempts at an endpoint, then switches, and visits none twice before all had
    their turn. `max_endpoints` bounds how many different ones a call uses. How many attempts there are is the Retry
    policy's matter. A switch to an endpoint that the call has not tried waits for nothing but a hint of the failure
    itself (Retry-After). `on_attempt` hears of every attempt and of every endpoint that was shut.
    """

    pool: EndpointPool
    attempts_per_endpoint: int = 1
    max_endpoints: int | None = None
    id: str | None = None
    on_attempt: Callable[[AttemptCompleted], object] | None = None

    def __post_init__(self) -> None:
        if not isinstance(self.pool, EndpointPool):
            raise PolicyError(f"Failover.pool must be an EndpointPool, got {self.pool!r}; use EndpointPool([...])")
        check_whole("Failover.attempts_per_endpoint", self.attempts_per_endpoint, "use 1 to switch after each attempt")
        if self.max_endpoints is not None:
            check_whole("Failover.max_endpoints", self.max_endpoints, "use None for all")

    def strategies(self, setting: Setting) -> list[FailoverStrategy]:
        self.pool.bind(setting.clock, setting.rng, setting.hub)
        return [FailoverStrategy(self)]


class FailoverStrategy:
    """Picks an endpoint for the attempt, holds its permit, settles it by what the attempt came to."""

    kind = "failover"
    passes_context = True

    def __init__(self, policy: Failover) -> None:
        self.policy = policy
        self.pool = policy.pool
        # Kept alive by the contexts of their calls. The runs of a hedged call find each other's tour here.
        self._tours: WeakValueDictionary[str, Tour[Member]] = WeakValueDictionary()
        self._lock = threading.Lock()

    async def execute(self, nxt: Next, ctx: ResilienceContext) -> Outcome[Any]:
        call: Call = ctx.call
        tour = self._tour(ctx)
        idempotent = ctx.get(IDEMPOTENT) is not False
        ticket = self.pool.admit(tour, idempotent=idempotent)
        if isinstance(ticket, Shed):
            return self._exhausted(call, tour, ticket)
        notes = _Notes(call, tour, ticket)
        # A bag of its own: an attempt that was abandoned to its thread must not see the next attempt's endpoint.
        inner = ctx.fork()
        inner.set(ENDPOINT, ticket.endpoint)
        token = CURRENT.set(new_link(call, _outside(CURRENT.get(), call), inner))
        try:
            outcome = await nxt(inner)
        except BaseException:
            # A cancellation is no news of the endpoint, unless it is our own time limit.
            self.pool.settle(ticket, Evidence.FAILURE if call.cut else Evidence.NEUTRAL)
            if call.cut:
                self._tell(call, notes.of_attempts(self.policy, OutcomeKind.TIMEOUT, None))
            raise
        finally:
            withdraw(token)
        ctx.merge(inner)
        return self._settled(ctx, tour, ticket, notes, outcome, idempotent)

    def _settled(
        self,
        ctx: ResilienceContext,
        tour: Tour[Member],
        ticket: Ticket,
        notes: _Notes,
        outcome: Outcome[Any],
        idempotent: bool,
    ) -> Outcome[Any]:
        call: Call = ctx.call
        kind = outcome.kind
        if kind.has_value and ctx.deadline.at < call.clock.monotonic():
            kind = OutcomeKind.TIMEOUT  # a sync function came back after the time was up; the outer limit will say so
        self.pool.settle(ticket, self._evidence(kind, outcome, ticket), outcome.error)
        self._tell(call, notes.of_attempts(self.policy, kind, outcome))
        facts: dict[str, Any] = {"endpoint": ticket.endpoint.id, "failover_rounds": tour.rounds}
        if outcome.kind.is_retryable:
            facts["revisits"] = self.pool.waits(tour, idempotent)  # retry asks
        return outcome.evolve(metadata=facts)

    def _evidence(self, kind: OutcomeKind, outcome: Outcome[Any], ticket: Ticket) -> Evidence:
        if kind is not outcome.kind:
            return kind.evidence
        if outcome.evidence is not None:
            return outcome.evidence
        if kind is OutcomeKind.TERMINAL_FAILURE and ticket.is_probe and self.pool.breaker.terminal_is_success:
            return Evidence.SUCCESS  # it answered
        return kind.evidence

    def _exhausted(self, call: Call, tour: Tour[Member], shed: Shed) -> Outcome[Any]:
        rounds = f" after {tour.rounds} round{'s' * (tour.rounds > 1)}" if tour.rounds else ""
        error = PoolExhausted(self.pool.name, shed.retry_after, f"{shed}{rounds}")
        error.__cause__ = shed.cause
        outcome = call.refuse(
            error, self.pool.name, endpoints=[endpoint.id for endpoint in shed.endpoints], failover_rounds=tour.rounds
        )
        records = [_shut(call, tour, self.policy, endpoint) for endpoint in shed.endpoints]
        if call.setting.hub.loud:
            for record in records:
                call.setting.hub.emit_loud(record)
        self._tell(call, records)
        return outcome

    def _tell(self, call: Call, records: list[AttemptCompleted]) -> None:
        if self.policy.on_attempt is not None:
            for record in records:
                call.ask(self.policy.on_attempt, record)

    def _tour(self, ctx: ResilienceContext) -> Tour[Member]:
        """This call's tour. It lives in the call's property bag, which a nested call inherits: hence the check."""
        found, call_id = ctx.get(_TOUR), ctx.call_id
        if found is not None and found[0] is self and found[1] == call_id:
            return found[2]
        with self._lock:
            tour = self._tours.get(call_id)
            if tour is None:
                tour = self._tours[call_id] = Tour(self.policy.attempts_per_endpoint, self.policy.max_endpoints)
        ctx.set(_TOUR, (self, call_id, tour))
        return tour

    def describe(self) -> str:
        pool, policy = self.pool, self.policy
        each = "a new endpoint per attempt"
        if policy.attempts_per_endpoint > 1:
            each = f"{policy.attempts_per_endpoint} attempts per endpoint"
        most = "" if policy.max_endpoints is None else f", at most {policy.max_endpoints} endpoints per call"
        chosen = f"{pool.choose} of {len(pool.endpoints)} endpoints"
        return f"failover {pool.name!r}: {chosen}, {each}{most}; {pool.breaker.describe()}"


class _Notes:
    """What is known of an attempt when it begins, for its record."""

    __slots__ = ("_began", "_call", "_delay", "_mark", "_ticket", "_tour", "_wait")

    def __init__(self, call: Call, tour: Tour[Member], ticket: Ticket) -> None:
        self._call = call
        self._tour = tour
        self._ticket = ticket
        self._mark = len(call.trail)
        self._wait, self._delay = call.wait, call.delay
        self._began = call.clock.monotonic()

    def of_attempts(self, policy: Failover, kind: OutcomeKind, outcome: Outcome[Any] | None) -> list[AttemptCompleted]:
        """A record for every run of the function since; the last one was of this kind. None if it never ran."""
        if policy.on_attempt is None or kind is OutcomeKind.REJECTED:
            return []
        endpoint = self._ticket.endpoint
        runs = [run for run in self._call.trail[self._mark :] if run.endpoint is endpoint]
        if not runs and kind is OutcomeKind.TIMEOUT and (outcome is None or outcome.metadata.get("started", True)):
            # The caller walked away from a thread that still runs.
            runs = [
                Attempt(0, kind, self._wait, self._delay, self._call.clock.monotonic() - self._began, None, endpoint)
            ]
        last = len(runs) - 1
        return [
            self._record(policy, run, kind if i == last else run.kind, i == last, outcome) for i, run in enumerate(runs)
        ]

    def _record(
        self, policy: Failover, run: Attempt, kind: OutcomeKind, last: bool, outcome: Outcome[Any] | None
    ) -> AttemptCompleted:
        subject: Any = run.error
        if last and outcome is not None and run.error is None:
            subject = outcome.value if outcome.kind.has_value else outcome.metadata.get("result")
        status = status_of(subject)
        failed = kind.is_failure
        number, self._tour.recorded = self._tour.recorded, self._tour.recorded + 1
        return AttemptCompleted(
            self._call.operation_key,
            self._call.call_id,
            number,
            kind,
            wait=run.wait,
            service_s=max(0.0, run.service),
            endpoint=self._ticket.endpoint.id,
            policy_id=policy.id or self._call.setting.name,
            handled=failed,
            delay=run.delay,
            status_code=status,
            error_type=None if run.error is None else type(run.error).__name__,
            reason=f"status_{status}" if failed and status is not None else None,
            failover_round=self._tour.rounds - 1,
        )


def _shut(call: Call, tour: Tour[Member], policy: Failover, endpoint: Endpoint) -> AttemptCompleted:
    """The record of an endpoint that was not called because its circuit is open."""
    return AttemptCompleted(
        call.operation_key,
        call.call_id,
        max(len(call.trail), tour.recorded),
        OutcomeKind.REJECTED,
        endpoint=endpoint.id,
        policy_id=policy.id or call.setting.name,
        reason=CircuitOpen.reason,
        failover_round=tour.rounds,
    )


def _outside(link: Link | None, call: Call) -> Link | None:
    """The link above this call's own ones."""
    while link is not None and link[SOURCE] is call:
        link = link[PARENT]
    return link
