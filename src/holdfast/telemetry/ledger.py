"""The ledger behind RetryMetrics: its records, and how they are counted in bounded memory.

An attempt is folded into its hour when it is recorded, so that the totals never depend on the ring of recent
attempts, nor on when anybody aggregates. Time here is wall time in UTC; a naive timestamp is taken as UTC.

A request counts once, in the hour of its lowest attempt number seen so far. That is attempt 0 in a normal run; when
records come out of order, the count moves with them, and when attempt 0 never comes, the lowest one stands for it.
Requests are recognised by id among the last few thousand; one whose next attempt comes later than that counts again.
"""

from __future__ import annotations

import threading
from array import array
from collections import deque
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from enum import StrEnum
from typing import Annotated, Any, Final

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, computed_field

from holdfast.core.clock import Clock
from holdfast.errors import InvalidValue
from holdfast.machine.breaker import CircuitState

MAX_EVENTS: Final = 1000
MAX_REASONS: Final = 64
MAX_NAMES: Final = 1000
MAX_ATTEMPT_KEY: Final = 1000
MAX_TEXT: Final = 200
# Two generations of this many request ids are remembered.
GENERATION: Final = 5000
OTHER: Final = "other"

_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_HOUR: Final = timedelta(hours=1)
_MICROSECOND: Final = timedelta(microseconds=1)
_MICROS_PER_HOUR: Final = 3_600_000_000
# A clock far ahead must not become a leak.
_HOURS_AHEAD: Final = 24


class RetryOutcome(StrEnum):
    """What one attempt came to."""

    SUCCESS = "success"
    FAILURE = "failure"
    TIMEOUT = "timeout"
    CIRCUIT_OPEN = "circuit_open"


_OUTCOMES: Final = tuple(RetryOutcome)


def _in_utc(moment: datetime) -> datetime:
    return moment.replace(tzinfo=UTC) if moment.tzinfo is None else moment.astimezone(UTC)


Moment = Annotated[datetime, AfterValidator(_in_utc)]
Seconds = Annotated[float, Field(ge=0, allow_inf_nan=False)]


class RetryAttempt(BaseModel):
    """One attempt of one request.

    `attempt_number` is 0 for the first; `wait` is the time queued, apart from `latency`; `reason` is a stable code.
    """

    model_config = ConfigDict(frozen=True)

    request_id: str
    attempt_number: int = Field(ge=0, le=2**31 - 1)
    proxy_id: str
    timestamp: Moment
    outcome: RetryOutcome
    status_code: int | None = Field(default=None, ge=0, le=999)
    delay_before: Seconds = 0.0
    latency: Seconds = 0.0
    error_message: str | None = None
    reason: str | None = None
    policy_id: str | None = None
    failover_round: int = Field(default=0, ge=0, le=2**31 - 1)
    wait: Seconds = 0.0


class CircuitBreakerEvent(BaseModel):
    """One state change of an endpoint's breaker."""

    model_config = ConfigDict(frozen=True)

    proxy_id: str
    from_state: CircuitState
    to_state: CircuitState
    timestamp: Moment
    failure_count: int = Field(default=0, ge=0)


@dataclass(slots=True)
class Tally:
    """Attempts of one endpoint or policy."""

    attempts: int = 0
    successes: int = 0
    latency_total: float = 0.0
    opens: int = 0

    def add(self, other: Tally) -> None:
        self.attempts += other.attempts
        self.successes += other.successes
        self.latency_total += other.latency_total
        self.opens += other.opens


class HourlyAggregate(BaseModel):
    """One hour. `total_retries` counts every attempt, `extra_attempts` those beyond one per request."""

    hour: Moment
    total_requests: int = 0
    total_retries: int = 0
    success_by_attempt: dict[int, int] = Field(default_factory=dict)
    failure_by_reason: dict[str, int] = Field(default_factory=dict)
    avg_latency: float = 0.0
    latency_total: float = 0.0
    circuit_breaker_events: int = 0
    by_proxy: dict[str, Tally] = Field(default_factory=dict)
    by_policy: dict[str, Tally] = Field(default_factory=dict)

    @computed_field  # type: ignore[prop-decorator]  # pydantic documents this order
    @property
    def extra_attempts(self) -> int:
        """Attempts beyond one per request."""
        return max(0, self.total_retries - self.total_requests)

    def fold(self, attempt: RetryAttempt) -> None:
        """Count an attempt whose texts are redacted already."""
        success = attempt.outcome is RetryOutcome.SUCCESS
        self.total_retries += 1
        self.latency_total += attempt.latency
        self.avg_latency = self.latency_total / self.total_retries
        if success:
            number = min(attempt.attempt_number, MAX_ATTEMPT_KEY)
            self.success_by_attempt[number] = self.success_by_attempt.get(number, 0) + 1
        else:
            reason = attempt.reason or attempt.error_message or attempt.outcome.value
            reason = _bounded(self.failure_by_reason, reason, MAX_REASONS)
            self.failure_by_reason[reason] = self.failure_by_reason.get(reason, 0) + 1
        one = Tally(1, int(success), attempt.latency)
        _tally(self.by_proxy, attempt.proxy_id).add(one)
        if attempt.policy_id is not None:
            _tally(self.by_policy, attempt.policy_id).add(one)

    def copied(self) -> HourlyAggregate:
        """A copy that shares nothing."""
        return self.model_copy(
            update={
                "success_by_attempt": dict(self.success_by_attempt),
                "failure_by_reason": dict(self.failure_by_reason),
                "by_proxy": {name: replace(tally) for name, tally in self.by_proxy.items()},
                "by_policy": {name: replace(tally) for name, tally in self.by_policy.items()},
            }
        )


class _Ring:
    """The last attempts, in columns: a model per attempt would take six times the memory."""

    __slots__ = ("_columns", "_names", "_next", "limit")

    # Three lists (request id; endpoint, policy and reason; message), then numbers by their array's type code.
    _LISTS: Final = 3
    _ARRAYS: Final = ("q", "b", "i", "i", "h", "d", "d", "d")
    _STAMPS: Final = 3  # the column of timestamps

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self._columns: list[Any] = [[] for _ in range(self._LISTS)] + [array(code) for code in self._ARRAYS]
        self._names: dict[tuple[str | None, ...], tuple[str | None, ...]] = {}
        self._next = 0

    def append(self, attempt: RetryAttempt) -> None:
        names = (attempt.proxy_id, attempt.policy_id, attempt.reason)
        if len(self._names) > MAX_NAMES:
            self._names.clear()
        row = (
            attempt.request_id, self._names.setdefault(names, names), attempt.error_message,
            _micros(attempt.timestamp), _OUTCOMES.index(attempt.outcome), attempt.attempt_number,
            attempt.failover_round, -1 if attempt.status_code is None else attempt.status_code,
            attempt.delay_before, attempt.latency, attempt.wait,
        )  # fmt: skip
        if len(self._columns[0]) < self.limit:
            for column, value in zip(self._columns, row, strict=True):
                column.append(value)
        else:
            for column, value in zip(self._columns, row, strict=True):
                column[self._next] = value
        self._next = (self._next + 1) % self.limit

    def since(self, micros: int | None = None) -> _Ring:
        """A copy, oldest first, without what is older than `micros`."""
        stamps, size = self._columns[self._STAMPS], len(self._columns[0])
        order = [*range(self._next, size), *range(self._next)] if size == self.limit else range(size)
        kept = [index for index in order if micros is None or stamps[index] >= micros]
        copy = _Ring(self.limit)
        for column, mine in zip(copy._columns, self._columns, strict=True):
            column.extend([mine[index] for index in kept])
        copy._next = len(kept) % self.limit
        return copy

    def attempts(self) -> Iterator[RetryAttempt]:
        """The attempts, in the order of the columns."""
        for row in zip(*self._columns, strict=True):
            request_id, names, message, micros, outcome, number, rounds, status, delay, latency, wait = row
            yield RetryAttempt.model_construct(
                request_id=request_id,
                attempt_number=number,
                proxy_id=names[0],
                timestamp=_EPOCH + micros * _MICROSECOND,
                outcome=_OUTCOMES[outcome],
                status_code=None if status < 0 else status,
                delay_before=delay,
                latency=latency,
                error_message=message,
                reason=names[2],
                policy_id=names[1],
                failover_round=rounds,
                wait=wait,
            )


class _Requests:
    """The hour that each recent request counts in, in two generations of ids."""

    __slots__ = ("_marks", "_old", "_young")

    def __init__(self) -> None:
        self._young: dict[str, tuple[int, int]] = {}
        self._old: dict[str, tuple[int, int]] = {}
        self._marks: dict[tuple[int, int], tuple[int, int]] = {}

    def place(self, request_id: str, number: int, hour: int) -> tuple[int | None, int | None]:
        """Note an attempt; answers the hours in which to count the request less, and more."""
        known = self._young.get(request_id) or self._old.get(request_id)
        mark = (number, hour) if known is None else min(known, (number, hour))
        # Most marks are equal, and sharing them is a quarter of a megabyte.
        self._young[request_id] = self._marks.setdefault(mark, mark)
        if len(self._young) >= GENERATION:
            self._old, self._young, self._marks = self._young, {}, {}
        if known is None:
            return None, hour
        return (None, None) if mark[1] == known[1] else (known[1], mark[1])


class Ledger:
    """What RetryMetrics keeps. Methods ending in `_locked` are called with the lock held."""

    __slots__ = ("clock", "events", "hours", "live", "lock", "requests", "retention", "ring")

    def __init__(self, clock: Clock, retention: int, limit: int) -> None:
        self.lock = threading.Lock()
        self.clock = clock
        self.retention = retention
        self.ring = _Ring(limit)
        self.hours: dict[int, HourlyAggregate] = {}
        self.requests = _Requests()
        # The fields of a CircuitBreakerEvent as a tuple, which takes a fifth of its memory.
        self.events: deque[tuple[str, CircuitState, CircuitState, datetime, int]] = deque(maxlen=MAX_EVENTS)
        self.live: dict[str, dict[str, Any]] = {}

    def oldest(self, hours: int) -> int:
        """The first hour of the last `hours`; one that is half over counts whole: 1 at 12:30 means from 11:00."""
        return hour_of(self.clock.wall()) - min(hours, self.retention)

    def shown(self, hours: int) -> list[HourlyAggregate]:
        """Copies of the last hours, in order."""
        if hours < 1:
            raise InvalidValue(f"hours must be at least 1, got {hours}")
        oldest = self.oldest(hours)
        with self.lock:
            return [self.hours[hour].copied() for hour in sorted(self.hours) if hour >= oldest]

    def record(self, attempt: RetryAttempt) -> None:
        oldest = self.oldest(self.retention)
        hour = min(hour_of(attempt.timestamp), oldest + self.retention + _HOURS_AHEAD)
        with self.lock:
            self.ring.append(attempt)
            bucket = self.hour_locked(hour, oldest)
            if bucket is not None:
                bucket.fold(attempt)
            less, more = self.requests.place(attempt.request_id, attempt.attempt_number, hour)
            if less in self.hours:
                self.hours[less].total_requests -= 1
            if more in self.hours:
                self.hours[more].total_requests += 1

    def record_event(self, event: CircuitBreakerEvent) -> None:
        oldest = self.oldest(self.retention)
        hour = min(hour_of(event.timestamp), oldest + self.retention + _HOURS_AHEAD)
        with self.lock:
            self.events.append(event_row(event))
            bucket = self.hour_locked(hour, oldest)
            if bucket is not None:
                bucket.circuit_breaker_events += 1
                _tally(bucket.by_proxy, event.proxy_id).opens += event.to_state is CircuitState.OPEN

    def prune(self) -> None:
        oldest = self.oldest(self.retention)
        with self.lock:
            self.prune_locked(oldest)
            self.ring = self.ring.since(oldest * _MICROS_PER_HOUR)
            self.events = deque([row for row in self.events if hour_of(row[3]) >= oldest], maxlen=MAX_EVENTS)

    def hour_locked(self, hour: int, oldest: int) -> HourlyAggregate | None:
        if hour not in self.hours and hour >= oldest:
            self.prune_locked(oldest)
            self.hours[hour] = HourlyAggregate(hour=_EPOCH + hour * _HOUR)
        return self.hours.get(hour)

    def prune_locked(self, oldest: int) -> None:
        for hour in [hour for hour in self.hours if hour < oldest]:
            del self.hours[hour]


def _micros(moment: datetime) -> int:
    return (moment - _EPOCH) // _MICROSECOND


def hour_of(moment: datetime) -> int:
    return _micros(moment) // _MICROS_PER_HOUR


def event_row(event: CircuitBreakerEvent) -> tuple[str, CircuitState, CircuitState, datetime, int]:
    return event.proxy_id, event.from_state, event.to_state, event.timestamp, event.failure_count


def _bounded(known: Mapping[str, object], name: str, limit: int) -> str:
    return name if name in known or len(known) < limit else OTHER


def _tally(tallies: dict[str, Tally], name: str) -> Tally:
    return tallies.setdefault(_bounded(tallies, name, MAX_NAMES), Tally())
