"""Retry statistics by hour, endpoint and policy: RetryMetrics, and the listener that feeds it."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Mapping
from datetime import datetime
from typing import Any, Final

from pydantic import BaseModel, Field, PrivateAttr, TypeAdapter, computed_field

from holdfast.core.clock import SYSTEM_CLOCK, Clock
from holdfast.core.outcome import OutcomeKind
from holdfast.core.redact import redact
from holdfast.machine.breaker import CircuitState
from holdfast.telemetry.events import (
    AttemptCompleted,
    CallCompleted,
    CallInterrupted,
    CircuitStateChanged,
    GuardEvent,
    RetryScheduled,
)
from holdfast.telemetry.ledger import (
    MAX_TEXT,
    CircuitBreakerEvent,
    HourlyAggregate,
    Ledger,
    RetryAttempt,
    RetryOutcome,
    Tally,
    event_row,
    hour_of,
)

__all__ = [
    "AttemptRecorder", "CircuitBreakerEvent", "HourlyAggregate", "RETRY_OUTCOMES", "RetryAttempt", "RetryMetrics",
    "RetryOutcome", "Tally",
]  # fmt: skip

MAX_LIVE: Final = 1000

RETRY_OUTCOMES: Final[Mapping[OutcomeKind, RetryOutcome]] = {
    OutcomeKind.SUCCESS: RetryOutcome.SUCCESS,
    OutcomeKind.PARTIAL: RetryOutcome.SUCCESS,
    OutcomeKind.TIMEOUT: RetryOutcome.TIMEOUT,
    OutcomeKind.TRANSIENT_FAILURE: RetryOutcome.FAILURE,
    OutcomeKind.TERMINAL_FAILURE: RetryOutcome.FAILURE,
}


class RetryMetrics(BaseModel):
    """Retry statistics of the last `retention_hours`, in bounded memory; safe to use from several threads.

    `current_attempts` are the last `max_current_attempts`, `circuit_breaker_events` the last 1000; both are copies,
    as is everything this returns. Texts are stored redacted. Serialises with `model_dump(mode="json")`; what that
    gives makes an equal one, whose request ids are those of its `current_attempts`.
    """

    retention_hours: int = Field(default=24, ge=1)
    max_current_attempts: int = Field(default=10_000, ge=1)
    _ledger: Ledger = PrivateAttr()

    def __init__(
        self,
        *,
        clock: Clock = SYSTEM_CLOCK,
        current_attempts: Iterable[Any] = (),
        hourly_aggregates: Mapping[Any, Any] | None = None,
        circuit_breaker_events: Iterable[Any] = (),
        **settings: Any,
    ) -> None:
        super().__init__(**settings)
        self._ledger = ledger = Ledger(clock, self.retention_hours, self.max_current_attempts)
        for attempt in _ATTEMPTS.validate_python(list(current_attempts)):
            kept = _redacted(attempt)
            ledger.ring.append(kept)
            ledger.requests.place(kept.request_id, kept.attempt_number, hour_of(kept.timestamp))
        for seen in _AGGREGATES.validate_python(list((hourly_aggregates or {}).values())):
            ledger.hours[hour_of(seen.hour)] = seen.copied()
        for event in _EVENTS.validate_python(list(circuit_breaker_events)):
            ledger.events.append(event_row(event))

    @computed_field(repr=False)  # type: ignore[prop-decorator]  # pydantic documents this order
    @property
    def current_attempts(self) -> deque[RetryAttempt]:
        """The last attempts, oldest first."""
        ledger = self._ledger
        with ledger.lock:
            ring = ledger.ring.since()
        return deque(ring.attempts())

    @computed_field(repr=False)  # type: ignore[prop-decorator]  # pydantic documents this order
    @property
    def hourly_aggregates(self) -> dict[datetime, HourlyAggregate]:
        """Every hour within retention that saw anything, in order."""
        return {seen.hour: seen for seen in self._ledger.shown(self.retention_hours)}

    @computed_field(repr=False)  # type: ignore[prop-decorator]  # pydantic documents this order
    @property
    def circuit_breaker_events(self) -> list[CircuitBreakerEvent]:
        """The last state changes, oldest first."""
        ledger = self._ledger
        with ledger.lock:
            rows = list(ledger.events)
        return [
            CircuitBreakerEvent(proxy_id=name, from_state=before, to_state=after, timestamp=at, failure_count=failures)
            for name, before, after, at, failures in rows
        ]

    def record_attempt(self, attempt: RetryAttempt) -> None:
        """Count an attempt in the hour of its timestamp, and keep it among the current ones."""
        self._ledger.record(_redacted(attempt))

    def record_circuit_breaker_event(self, event: CircuitBreakerEvent) -> None:
        """Count a state change in the hour of its timestamp, and keep it among the last 1000."""
        self._ledger.record_event(event)

    def aggregate_hourly(self) -> None:
        """Drop what is older than retention. Totals within retention never change by it."""
        self._ledger.prune()

    def get_summary(self) -> dict[str, Any]:
        """Totals within retention."""
        by_attempt: dict[int, int] = {}
        hours = self._ledger.shown(self.retention_hours)
        for seen in hours:
            for number, count in seen.success_by_attempt.items():
                by_attempt[number] = by_attempt.get(number, 0) + count
        return {
            "total_requests": sum(seen.total_requests for seen in hours),
            "total_retries": sum(seen.total_retries for seen in hours),
            "extra_attempts": sum(seen.extra_attempts for seen in hours),
            "success_by_attempt": dict(sorted(by_attempt.items())),
            "circuit_breaker_events_count": sum(seen.circuit_breaker_events for seen in hours),
            "retention_hours": self.retention_hours,
        }

    def get_timeseries(self, hours: int = 24) -> list[dict[str, Any]]:
        """One point per hour that saw anything; the success rate is per attempt."""
        return [{"timestamp": seen.hour, **_rates([seen])} for seen in self._ledger.shown(hours)]

    def get_daily(self) -> list[dict[str, Any]]:
        """One point per UTC day within retention; the first and the last day are usually not whole."""
        days: dict[Any, list[HourlyAggregate]] = {}
        for seen in self._ledger.shown(self.retention_hours):
            days.setdefault(seen.hour.date(), []).append(seen)
        return [{"date": day, **_rates(seen)} for day, seen in days.items()]

    def get_by_proxy(self, hours: int = 24) -> dict[str, dict[str, Any]]:
        """Attempts and circuit openings per endpoint; one with nothing but circuit events appears too."""
        return {
            name: {**_tallied(tally), "circuit_breaker_opens": tally.opens}
            for name, tally in _joined(seen.by_proxy for seen in self._ledger.shown(hours)).items()
        }

    def get_by_policy(self, hours: int = 24) -> dict[str, dict[str, Any]]:
        """Attempts and success rate per policy id."""
        return {
            name: {**_tallied(tally), "success_rate": _mean(tally.successes, tally.attempts)}
            for name, tally in _joined(seen.by_policy for seen in self._ledger.shown(hours)).items()
        }

    def begin_retry(self, request_id: str, attempt_number: int, *, proxy_id: str, wait: float = 0.0) -> None:
        """Note that a request is being retried: attempt `attempt_number` starts after `wait` seconds."""
        ledger = self._ledger
        since = ledger.clock.wall()
        with ledger.lock:
            ledger.live.pop(request_id, None)
            ledger.live[request_id] = {
                "request_id": request_id, "attempt_number": attempt_number, "proxy_id": proxy_id,
                "since": since, "wait": wait,
            }  # fmt: skip
            while len(ledger.live) > MAX_LIVE:
                del ledger.live[next(iter(ledger.live))]

    def end_request(self, request_id: str) -> None:
        """Note that a request is over, however it ended."""
        with self._ledger.lock:
            self._ledger.live.pop(request_id, None)

    def get_live(self) -> list[dict[str, Any]]:
        """The requests that are being retried right now, longest first."""
        with self._ledger.lock:
            return [dict(one) for one in self._ledger.live.values()]


class AttemptRecorder:
    """A listener that turns a guard's events into RetryMetrics.

    An attempt without an endpoint counts as its operation's. Refusals other than an open circuit are no attempts.
    """

    wants: frozenset[type[GuardEvent]] = frozenset(
        {AttemptCompleted, CircuitStateChanged, RetryScheduled, CallCompleted, CallInterrupted}
    )

    def __init__(self, metrics: RetryMetrics) -> None:
        self.metrics = metrics
        self._clock = metrics._ledger.clock

    def on_event(self, event: GuardEvent) -> None:
        if isinstance(event, AttemptCompleted):
            self._on_attempt(event)
        elif isinstance(event, CircuitStateChanged):
            self.metrics.record_circuit_breaker_event(
                CircuitBreakerEvent(
                    proxy_id=event.name,
                    from_state=CircuitState(event.from_state),
                    to_state=CircuitState(event.to_state),
                    timestamp=event.at or self._clock.wall(),
                    failure_count=event.failure_count,
                )
            )
        elif isinstance(event, RetryScheduled):
            number = event.attempt + 1
            self.metrics.begin_retry(event.call_id, number, proxy_id=event.operation_key, wait=event.wait)
        else:
            self.metrics.end_request(event.call_id)

    def _on_attempt(self, event: AttemptCompleted) -> None:
        outcome = RETRY_OUTCOMES.get(event.outcome)
        if event.outcome is OutcomeKind.REJECTED and event.reason == RetryOutcome.CIRCUIT_OPEN:
            outcome = RetryOutcome.CIRCUIT_OPEN
        if outcome is None:
            return
        self.metrics.record_attempt(
            RetryAttempt(
                request_id=event.call_id,
                attempt_number=event.number,
                proxy_id=event.endpoint or event.operation_key,
                timestamp=event.at or self._clock.wall(),
                outcome=outcome,
                status_code=event.status_code,
                delay_before=event.delay,
                latency=event.service_s,
                reason=event.reason or event.error_type,
                policy_id=event.policy_id,
                failover_round=event.failover_round,
                wait=event.wait,
            )
        )


_ATTEMPTS: Final = TypeAdapter(list[RetryAttempt])
_AGGREGATES: Final = TypeAdapter(list[HourlyAggregate])
_EVENTS: Final = TypeAdapter(list[CircuitBreakerEvent])


def _redacted(attempt: RetryAttempt) -> RetryAttempt:
    if attempt.error_message is None and attempt.reason is None:
        return attempt
    texts = {name: getattr(attempt, name) for name in ("error_message", "reason")}
    return attempt.model_copy(update={name: text and redact(text, MAX_TEXT) for name, text in texts.items()})


def _joined(parts: Iterable[Mapping[str, Tally]]) -> dict[str, Tally]:
    joined: dict[str, Tally] = {}
    for part in parts:
        for name, tally in part.items():
            joined.setdefault(name, Tally()).add(tally)
    return joined


def _tallied(tally: Tally) -> dict[str, Any]:
    return {
        "total_attempts": tally.attempts,
        "success_count": tally.successes,
        "failure_count": tally.attempts - tally.successes,
        "avg_latency": _mean(tally.latency_total, tally.attempts),
    }


def _rates(hours: list[HourlyAggregate]) -> dict[str, Any]:
    attempts = sum(seen.total_retries for seen in hours)
    return {
        "total_requests": sum(seen.total_requests for seen in hours),
        "total_retries": attempts,
        "extra_attempts": sum(seen.extra_attempts for seen in hours),
        "success_rate": _mean(sum(sum(seen.success_by_attempt.values()) for seen in hours), attempts),
        "avg_latency": _mean(sum(seen.latency_total for seen in hours), attempts),
    }


def _mean(total: float, count: int) -> float:
    return total / count if count else 0.0
