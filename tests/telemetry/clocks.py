"""A wall clock that stands where a test puts it."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from holdfast.core.clock import SystemClock

NOON = datetime(2026, 3, 14, 12, 0, tzinfo=UTC)


class StandingClock(SystemClock):
    def __init__(self, now: datetime = NOON) -> None:
        self.now = now

    def wall(self) -> datetime:
        return self.now

    def advance(self, **time: float) -> None:
        self.now += timedelta(**time)
