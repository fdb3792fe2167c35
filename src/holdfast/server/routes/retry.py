"""The retry policy, breakers and attempt metrics of a ProxyRotator: the program names it with `hold.add_pool`.

Without `pool` the first rotator is meant.
"""

from __future__ import annotations

import math
from datetime import datetime, timedelta
from typing import Annotated, Any, Final, Self

from fastapi import Depends, Header, Path, Query, Request, Response
from pydantic import BaseModel, Field, ModelWrapValidatorHandler, ValidationError, model_validator
from starlette.concurrency import run_in_threadpool

from holdfast.access.throttle import Throttle
from holdfast.core.backoff import BackoffStrategy
from holdfast.core.redact import redact
from holdfast.errors import Conflict, PolicyError
from holdfast.failover.rotation import PolicyInForce, ProxyRotator
from holdfast.guard.circuit_breaker import CircuitBreaker
from holdfast.guard.retry_policy import RetryPolicy
from holdfast.machine.breaker import CircuitState
from holdfast.server.problems import ProblemError, invalid, not_found, refused
from holdfast.server.routing import OPERATE, Asked, Asking, Routes
from holdfast.server.shapes import LONGEST_REASON, Body, MayReason
from holdfast.server.watch import kept_in

RESETS_PER_MINUTE: Final = 10
LONGEST_HOURS: Final = 168
FIELDS: Final = tuple(RetryPolicy.model_fields)


async def _mutations_are_enabled(request: Request) -> None:
    """Raises ProblemError where nobody could sign in: then nothing can be changed, whoever asks."""
    is_known = getattr(request.state, "identity", None) is not None
    if request.method in ("GET", "HEAD") or is_known:
        return
    if await run_in_threadpool(lambda: request.app.state.hold.access.has_accounts):
        return
    said = "changes are switched off until somebody can sign in: holdfast access add-user NAME --role admin"
    raise ProblemError(503, "admin_disabled", said)


routes: Final = Routes("pools", prefix="")
routes.dependencies.append(Depends(_mutations_are_enabled))
PoolName = Annotated[str | None, Query(max_length=1000, description="A rotator's name; the first one by default.")]
Hours = Annotated[
    int,
    Query(
        description="The last so many hours; one that has begun counts whole.",
        json_schema_extra={"minimum": 1, "maximum": LONGEST_HOURS},
    ),
]
BreakerId = Annotated[str, Path(min_length=1, max_length=1000, description="An endpoint's id.")]


class RetryPolicyResponse(BaseModel):
    """The policy in force; `version` goes into If-Match to change it."""

    max_attempts: int
    backoff_strategy: BackoffStrategy
    base_delay: float
    multiplier: float
    max_backoff_delay: float
    jitter: bool
    retry_status_codes: list[int]
    timeout: float | None
    retry_non_idempotent: bool
    updated_at: datetime
    version: int


class RetryPolicyRequest(Body):
    """Changes to the policy: what is absent stays, null clears `timeout`. `reason` is for the audit trail."""

    max_attempts: int = Field(default_factory=int, ge=1, le=10)
    backoff_strategy: BackoffStrategy = Field(default_factory=lambda: BackoffStrategy.EXPONENTIAL)
    base_delay: float = Field(default_factory=float, gt=0, le=60)
    multiplier: float = Field(default_factory=float, gt=1, le=10)
    max_backoff_delay: float = Field(default_factory=float, gt=0, le=300)
    jitter: bool = Field(default_factory=bool)
    retry_status_codes: list[Annotated[int, Field(ge=500, le=599)]] = Field(default_factory=list, max_length=100)
    timeout: Annotated[float, Field(gt=0, allow_inf_nan=False)] | None = Field(default_factory=lambda: None)
    retry_non_idempotent: bool = Field(default_factory=bool)
    reason: str = Field("", max_length=LONGEST_REASON)

    @model_validator(mode="wrap")
    @classmethod
    def _is_a_policy(cls, given: Any, validate: ModelWrapValidatorHandler[Self]) -> Self:
        try:
            return validate(given)
        except ValidationError as error:
            raise _policy_invalid(error) from None

    def given(self) -> dict[str, Any]:
        """For the audit trail: the other fields are not what was asked for, and stay."""
        return self.changes()

    def changes(self) -> dict[str, Any]:
        """What was asked for."""
        return {name: getattr(self, name) for name in self.model_fields_set if name in FIELDS}


class CircuitBreakerResponse(BaseModel):
    """The breaker of one endpoint."""

    proxy_id: str
    state: CircuitState
    failure_count: int
    failure_threshold: int
    window_duration: float
    timeout_duration: float
    next_test_time: datetime | None
    last_state_change: datetime


class CircuitBreakerListResponse(BaseModel):
    """The breakers of all endpoints that have been used."""

    circuit_breakers: list[CircuitBreakerResponse]


class CircuitBreakerResetRequest(MayReason):
    """Why; for the audit trail."""


class Covered(BaseModel):
    """What an answer covers: `hours` as asked for, of which the last `covered_hours` are kept; `covered_from` on."""

    hours: int
    covered_hours: int
    covered_from: datetime
    retention_hours: int


class CircuitBreakerEventResponse(BaseModel):
    """A breaker moved."""

    proxy_id: str
    from_state: CircuitState
    to_state: CircuitState
    timestamp: datetime
    failure_count: int


class CircuitBreakerMetricsResponse(Covered):
    """How breakers moved, oldest first: the last 1000 moves. `events_count` counts all of those hours."""

    events: list[CircuitBreakerEventResponse]
    events_count: int


class RetryMetricsResponse(BaseModel):
    """Totals within retention. `total_retries` counts every attempt, `extra_attempts` those beyond one per request."""

    total_requests: int
    total_retries: int
    extra_attempts: int
    success_by_attempt: dict[str, int]
    circuit_breaker_events_count: int
    retention_hours: int


class TimeSeriesPoint(BaseModel):
    """One hour; `success_rate` is per attempt, 0 to 1."""

    timestamp: datetime
    total_requests: int
    total_retries: int
    extra_attempts: int
    success_rate: float
    avg_latency: float


class TimeSeriesResponse(Covered):
    """A point for each hour that saw anything, oldest first."""

    data_points: list[TimeSeriesPoint]


class ProxyStats(BaseModel):
    """Attempts at one endpoint."""

    total_attempts: int
    success_count: int
    failure_count: int
    avg_latency: float
    circuit_breaker_opens: int


class ByProxyResponse(Covered):
    """Attempts by endpoint; one with nothing but moves of its breaker appears too."""

    proxies: dict[str, ProxyStats]


@routes.reads("/retry/policy", response_model=RetryPolicyResponse)
def read_policy(asked: Asking, response: Response, pool: PoolName = None) -> Any:
    """The policy of new requests."""
    return _policy(_rotator(asked, pool).policy_in_force, response)


@routes.acts("/retry/policy", OPERATE, "PUT", response_model=RetryPolicyResponse)
def change_policy(
    asked: Asking,
    response: Response,
    body: RetryPolicyRequest,
    pool: PoolName = None,
    version: Annotated[int | None, Query(description="As If-Match, for who cannot send headers.")] = None,
    if_match: Annotated[str | None, Header(description="The version that is to be changed, or *.")] = None,
) -> Any:
    """Change the policy of new requests; those under way keep theirs. Nothing changes on an error."""
    rotator = _rotator(asked, pool)
    meant = _version(if_match)
    try:
        return _policy(rotator.revise(version if meant is None else meant, **body.changes()), response)
    except Conflict as error:
        known = rotator.policy_in_force.version
        raise ProblemError(412, "policy_conflict", str(error), {"version": known}) from None
    except ValidationError as error:
        raise _policy_invalid(error) from None


@routes.reads("/circuit-breakers", response_model=CircuitBreakerListResponse)
def find_breakers(asked: Asking, pool: PoolName = None) -> Any:
    """The breakers of all endpoints that have been used."""
    return {"circuit_breakers": [_breaker(one) for one in _breakers(asked, pool).values()]}


@routes.reads("/circuit-breakers/metrics", response_model=CircuitBreakerMetricsResponse)
def breaker_metrics(asked: Asking, hours: Hours = 24, pool: PoolName = None) -> Any:
    """How breakers moved."""
    rotator = _rotator(asked, pool)
    covered, metrics = _covered(rotator, hours), rotator.metrics
    opened: datetime = covered["covered_from"]
    events = [event for event in metrics.circuit_breaker_events if event.timestamp >= opened]
    counted = [hour.circuit_breaker_events for at, hour in metrics.hourly_aggregates.items() if at >= opened]
    return {**covered, "events": [event.model_dump() for event in events], "events_count": sum(counted)}


@routes.reads("/metrics/circuit-breakers", response_model=CircuitBreakerMetricsResponse)
def breaker_metrics_too(asked: Asking, hours: Hours = 24, pool: PoolName = None) -> Any:
    """How breakers moved: another name of `/circuit-breakers/metrics`."""
    return breaker_metrics(asked, hours, pool)


@routes.reads("/circuit-breakers/{id:path}", response_model=CircuitBreakerResponse)
def show_breaker(asked: Asking, id: BreakerId, pool: PoolName = None) -> Any:
    """The breaker of one endpoint."""
    return _breaker(_find_breaker(asked, id, pool))


@routes.acts("/circuit-breakers/{id:path}/reset", response_model=CircuitBreakerResponse)
def reset_breaker(
    asked: Asking,
    request: Request,
    id: BreakerId,
    body: CircuitBreakerResetRequest | None = None,
    pool: PoolName = None,
) -> Any:
    """Close an endpoint's breaker and forget its failures; at most 10 a minute for each caller."""
    breaker = _find_breaker(asked, id, pool)
    resets = kept_in(request.app, "breaker_resets", _new_throttle)
    wait = resets.take(asked.by, breaker.circuit.clock.monotonic())
    if wait:
        said = f"{asked.by} has reset {RESETS_PER_MINUTE} breakers within a minute; wait {wait:.0f} s"
        headers = {"Retry-After": str(math.ceil(wait))}
        raise ProblemError(429, "rate_limited", said, {"retry_after": wait}, headers)
    breaker.reset()
    return _breaker(breaker)


@routes.reads("/metrics/retries", response_model=RetryMetricsResponse)
def retry_metrics(asked: Asking, pool: PoolName = None) -> Any:
    """Totals of attempts within retention."""
    summary = _rotator(asked, pool).metrics.get_summary()
    return {**summary, "success_by_attempt": {str(key): value for key, value in summary["success_by_attempt"].items()}}


@routes.reads("/metrics/retries/timeseries", response_model=TimeSeriesResponse)
def retry_timeseries(asked: Asking, hours: Hours = 24, pool: PoolName = None) -> Any:
    """Attempts by the hour."""
    rotator = _rotator(asked, pool)
    return {**_covered(rotator, hours), "data_points": rotator.metrics.get_timeseries(hours)}


@routes.reads("/metrics/retries/by-proxy", response_model=ByProxyResponse)
def retry_by_proxy(asked: Asking, hours: Hours = 24, pool: PoolName = None) -> Any:
    """Attempts by endpoint."""
    rotator = _rotator(asked, pool)
    return {**_covered(rotator, hours), "proxies": rotator.metrics.get_by_proxy(hours)}


def _rotator(asked: Asked, name: str | None) -> ProxyRotator:
    """The rotator of that name, or the first. Raises ProblemError."""
    if name is not None and not isinstance(asked.hold.pools.get(name), ProxyRotator):
        raise not_found("rotator", name)
    rotators = {key: pool for key, pool in asked.hold.pools.items() if isinstance(pool, ProxyRotator)}
    if not rotators:
        raise ProblemError(
            503, "not_ready", "no rotator is here; the program names one: hold.add_pool('proxies', ProxyRotator([...]))"
        )
    return next(iter(rotators.values())) if name is None else rotators[name]


def _breakers(asked: Asked, pool: str | None) -> dict[str, CircuitBreaker]:
    try:
        return _rotator(asked, pool).circuit_breakers
    except PolicyError as error:
        raise refused("not_countable", f"{error}: see /api/v1/pools") from None


def _find_breaker(asked: Asked, id: str, pool: str | None) -> CircuitBreaker:
    found = _breakers(asked, pool).get(id)
    if found is None:
        raise not_found("breaker", id)
    return found


def _policy(known: PolicyInForce, response: Response) -> dict[str, Any]:
    response.headers["ETag"] = f'"{known.version}"'
    return {**known.policy.model_dump(), "updated_at": known.updated_at, "version": known.version}


def _version(if_match: str | None) -> int | None:
    """The version that If-Match names; None for any. What is no version matches none."""
    if if_match is None or if_match.strip() == "*":
        return None
    text = if_match.strip().removeprefix("W/").strip('"')
    return int(text) if text.isascii() and text.isdecimal() and len(text) < 19 else -1


def _policy_invalid(error: ValidationError) -> ProblemError:
    fields = [{"where": ".".join(map(str, one["loc"])), "what": one["msg"]} for one in error.errors()]
    said = "; ".join(f"{one['where']}: {one['what']}" for one in fields[:5])
    return invalid("policy_invalid", redact(said), fields=fields[:20])


def _breaker(breaker: CircuitBreaker) -> dict[str, Any]:
    shown = {name: getattr(breaker, name) for name in CircuitBreakerResponse.model_fields}
    return {**shown, "next_test_time": breaker.circuit.next_test_wall}


def _covered(rotator: ProxyRotator, hours: int) -> dict[str, Any]:
    """What an answer for so many hours covers. Raises ProblemError."""
    if not 1 <= hours <= LONGEST_HOURS:
        raise invalid("hours_out_of_range", f"hours must be 1 to {LONGEST_HOURS}, got {redact(str(hours), 50)}")
    retention = rotator.metrics.retention_hours
    kept, now = min(hours, retention), rotator.pool.clock.wall()
    this_hour = now.replace(minute=0, second=0, microsecond=0)
    return {
        "hours": hours, "covered_hours": kept, "covered_from": this_hour - timedelta(hours=kept),
        "retention_hours": retention,
    }  # fmt: skip


def _new_throttle() -> Throttle:
    return Throttle(RESETS_PER_MINUTE / 60, RESETS_PER_MINUTE)
