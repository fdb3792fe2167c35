"""What the guards of this process came to since the server began to look: counted in batches, off the calls' way."""

from __future__ import annotations

import threading
from collections import Counter, deque
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import ClassVar, Final, NamedTuple

from holdfast.core.clock import SYSTEM_CLOCK, Clock
from holdfast.core.outcome import OutcomeKind
from holdfast.telemetry.events import CallCompleted, GuardEvent, LoadShed
from holdfast.telemetry.metrics import OTHER

MINUTES: Final = 60
REMEMBERED: Final = 500
MOST_GUARDS: Final = 1000
MOST_REASONS: Final = 50
_MINUTE_S: Final = 60


class Refused(NamedTuple):
    """Refusals of one strategy for one reason, and when the last of them was heard of."""

    name: str
    reason: str
    number: int
    last_at: datetime


class Minutes(NamedTuple):
    """What each minute saw, the oldest first; `begins` is when the first one began."""

    begins: datetime
    calls: list[int]
    failures: list[int]
    refused: list[int]


class Latency(NamedTuple):
    """Seconds, over the last calls that were not refused."""

    calls: int
    p50: float
    p90: float
    p99: float
    longest: float


class _Guard:
    __slots__ = ("durations", "minutes", "outcomes", "refused")

    def __init__(self) -> None:
        self.outcomes: Counter[OutcomeKind] = Counter()
        self.durations: deque[float] = deque(maxlen=REMEMBERED)
        self.minutes: deque[list[int]] = deque(maxlen=MINUTES)
        self.refused: dict[tuple[str, str], tuple[int, datetime]] = {}

    def in_minute(self, minute: int) -> list[int]:
        if not self.minutes or self.minutes[-1][0] < minute:
            self.minutes.append([minute, 0, 0, 0])
        return self.minutes[-1]


class Figures:
    """A listener that counts by guard. It is quiet: a hub hands it calls in batches, which cost a call nothing more."""

    quiet: ClassVar[bool] = True
    wants: ClassVar[frozenset[type[GuardEvent]]] = frozenset({CallCompleted, LoadShed})

    def __init__(self, clock: Clock = SYSTEM_CLOCK) -> None:
        self._clock = clock
        self._lock = threading.Lock()
        self._guards: dict[str, _Guard] = {}
        self.since = clock.wall()

    def on_calls(self, operation_key: str, kind: OutcomeKind, durations: Sequence[float]) -> None:
        """Count a batch of calls that came to the same kind."""
        number, minute = len(durations), int(self._clock.wall().timestamp()) // _MINUTE_S
        with self._lock:
            guard = self._guard(operation_key)
            guard.outcomes[kind] += number
            if kind is not OutcomeKind.REJECTED:
                guard.durations.extend(durations[-REMEMBERED:])
            seen = guard.in_minute(minute)
            seen[1] += number
            seen[2] += number if kind.is_failure else 0
            seen[3] += number if kind is OutcomeKind.REJECTED else 0

    def on_shed(self, operation_key: str, name: str, reason: str, count: int) -> None:
        """Count refusals, by who refused and why."""
        now = self._clock.wall()
        with self._lock:
            refused = self._guard(operation_key).refused
            key = (name, reason) if (name, reason) in refused or len(refused) < MOST_REASONS else (OTHER, OTHER)
            refused[key] = (refused.get(key, (0, now))[0] + count, now)

    def on_event(self, event: GuardEvent) -> None:
        """Count a call or a refusal that no meter counts."""
        if isinstance(event, CallCompleted):
            self.on_calls(event.operation_key, event.outcome, (event.duration_s,))
        elif isinstance(event, LoadShed):
            self.on_shed(event.operation_key, event.name, event.reason, 1)

    def outcomes(self, guard: str) -> dict[str, int]:
        """Calls by what they came to."""
        with self._lock:
            found = self._guards.get(guard)
            return {} if found is None else {kind.value: number for kind, number in found.outcomes.items()}

    def latency(self, guard: str) -> Latency | None:
        """How long the last calls took; None before any."""
        with self._lock:
            found = self._guards.get(guard)
            durations = [] if found is None else sorted(found.durations)
        if not durations:
            return None
        p50, p90, p99 = (durations[min(len(durations) - 1, int(len(durations) * part))] for part in (0.5, 0.9, 0.99))
        return Latency(len(durations), p50, p90, p99, durations[-1])

    def minutes(self, guard: str, number: int = MINUTES) -> Minutes:
        """The last minutes, also those in which nothing was called."""
        this = int(self._clock.wall().timestamp()) // _MINUTE_S
        with self._lock:
            found = self._guards.get(guard)
            seen = {} if found is None else {minute: counts for minute, *counts in found.minutes}
        first = this - number + 1
        rows = [seen.get(minute, (0, 0, 0)) for minute in range(first, this + 1)]
        calls, failures, refused = ([row[column] for row in rows] for column in range(3))
        return Minutes(datetime.fromtimestamp(first * _MINUTE_S, UTC), calls, failures, refused)

    def refusals(self, guard: str) -> list[Refused]:
        """Who refused calls and why, the last one first."""
        with self._lock:
            found = self._guards.get(guard)
            refused = {} if found is None else dict(found.refused)
        told = [Refused(name, reason, count, at) for (name, reason), (count, at) in refused.items()]
        return sorted(told, key=lambda one: one.last_at, reverse=True)

    def _guard(self, name: str) -> _Guard:
        found = self._guards.get(name)
        if found is None:
            name = name if len(self._guards) < MOST_GUARDS else OTHER
            found = self._guards.setdefault(name, _Guard())
        return found
