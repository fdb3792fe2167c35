"""What the repository of breaker states hands out: copies, with times in UTC."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

from holdfast.machine.breaker import CLOSED, HALF_OPEN, OPEN, CircuitState
from holdfast.machine.breaker_record import BreakerRecord
from holdfast.store.codec import from_json, instant, maybe_instant

CircuitBreakerStateEnum = CircuitState


@dataclass
class CircuitBreakerStateData:
    """The state of one breaker, as stored when it was read."""

    service_name: str
    id: str | None = None
    state: str = CLOSED
    failure_count: int = 0
    success_count: int = 0
    last_failure_at: datetime | None = None
    opened_at: datetime | None = None
    manually_controlled: bool = False
    controlled_by_id: int | str | None = None
    control_reason: str = ""
    manual_override_expires_at: datetime | None = None
    half_open_request_count: int = 0
    half_open_window_started_at: datetime | None = None
    metadata: dict[str, Any] = field(default_factory=dict)
    created_at: datetime | None = None
    updated_at: datetime | None = None
    generation: int = 0

    @property
    def is_open(self) -> bool:
        return self.state == OPEN

    @property
    def is_closed(self) -> bool:
        return self.state == CLOSED

    @property
    def is_half_open(self) -> bool:
        return self.state == HALF_OPEN

    def pin_active(self, now: datetime) -> bool:
        """Whether an operator's word is in force; at its very expiry it no longer is."""
        expires = self.manual_override_expires_at
        return self.manually_controlled and (expires is None or _aware(expires) > _aware(now))


@dataclass(frozen=True)
class CircuitBreakerCloseAttempt:
    """The stored state after a success, and whether that success closed the breaker."""

    state: CircuitBreakerStateData
    did_close: bool


@dataclass(frozen=True)
class CircuitBreakerOpenAttempt:
    """The stored state after a failure, and whether that failure opened the breaker."""

    state: CircuitBreakerStateData
    did_open: bool


def state_data(record: BreakerRecord) -> CircuitBreakerStateData:
    """A record as callers see it."""
    return CircuitBreakerStateData(
        service_name=record.id,
        id=record.id,
        state=record.circuit_state,
        failure_count=record.failure_count,
        success_count=record.success_count,
        last_failure_at=maybe_instant(record.last_failure_at),
        opened_at=maybe_instant(record.opened_at),
        manually_controlled=bool(record.manually_controlled),
        controlled_by_id=None if record.controlled_by_id is None else from_json(record.controlled_by_id),
        control_reason=record.control_reason,
        manual_override_expires_at=maybe_instant(record.manual_override_expires_at),
        half_open_request_count=record.half_open_request_count,
        half_open_window_started_at=maybe_instant(record.half_open_window_started_at),
        metadata=from_json(record.metadata),
        created_at=instant(record.created_at),
        updated_at=instant(record.updated_at),
        generation=record.generation,
    )


def _aware(at: datetime) -> datetime:
    return at if at.tzinfo is not None else at.replace(tzinfo=UTC)
