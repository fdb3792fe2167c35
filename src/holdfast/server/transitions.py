"""Breakers over time: how they moved since the server began to look.

Circuits of this process tell of every move. Of breakers that only other processes use, the stored state is looked at:
moves between two looks are seen as one, and counted as skipped.
"""

from __future__ import annotations

import threading
from collections import OrderedDict, deque
from collections.abc import Collection, Iterable
from dataclasses import dataclass, field
from datetime import datetime
from typing import ClassVar, Final, NamedTuple

from holdfast.breakers.data import CircuitBreakerStateData
from holdfast.core.clock import SYSTEM_CLOCK, Clock
from holdfast.machine.breaker import CLOSED
from holdfast.telemetry.events import CircuitStateChanged, GuardEvent

KEPT: Final = 200
MOST_BREAKERS: Final = 2000


class Transition(NamedTuple):
    """One move. `from_state` is None where nobody knows; `seen` is `here` (a circuit told) or `store` (looked up)."""

    at: datetime
    from_state: str | None
    to_state: str
    cause: str | None
    failure_count: int
    seen: str


@dataclass(slots=True)
class _Course:
    state: str | None = None
    generation: int = 0
    skipped: int = 0
    moves: deque[Transition] = field(default_factory=lambda: deque(maxlen=KEPT))


class Transitions:
    """The last moves of each breaker; the breaker that was longest not heard of is forgotten first."""

    quiet: ClassVar[bool] = True
    wants: ClassVar[frozenset[type[GuardEvent]]] = frozenset({CircuitStateChanged})

    def __init__(self, clock: Clock = SYSTEM_CLOCK) -> None:
        self._clock = clock
        self._lock = threading.Lock()
        self._courses: OrderedDict[str, _Course] = OrderedDict()
        self.since = clock.wall()

    def on_event(self, event: GuardEvent) -> None:
        """A circuit of this process moved, or an operator here moved one."""
        if isinstance(event, CircuitStateChanged):
            at = event.at or self._clock.wall()
            move = Transition(at, event.from_state, event.to_state, event.cause, event.failure_count, "here")
            with self._lock:
                course = self._course(event.name)
                course.state = event.to_state
                course.moves.append(move)

    def look(self, states: Iterable[CircuitBreakerStateData], told: Collection[str] = ()) -> None:
        """Take note of stored states, but for those that circuits here tell of, which may be ahead of the store."""
        for state in states:
            if state.service_name not in told:
                with self._lock:
                    self._compare(self._course(state.service_name), state)

    def of(self, name: str) -> tuple[list[Transition], int]:
        """The moves of a breaker, oldest first, and how many were skipped."""
        with self._lock:
            course = self._courses.get(name)
            return ([], 0) if course is None else (list(course.moves), course.skipped)

    def _compare(self, course: _Course, stored: CircuitBreakerStateData) -> None:
        known, moves = course.state, stored.generation - course.generation
        course.state, course.generation = stored.state, stored.generation
        if known is None:
            if stored.state != CLOSED and stored.opened_at is not None:
                course.moves.append(_seen(stored, stored.opened_at, None))
        elif known != stored.state:
            course.skipped += max(0, moves - 1)
            course.moves.append(_seen(stored, stored.updated_at or self._clock.wall(), known))

    def _course(self, name: str) -> _Course:
        course = self._courses.setdefault(name, _Course())
        self._courses.move_to_end(name)
        if len(self._courses) > MOST_BREAKERS:
            self._courses.popitem(last=False)
        return course


def _seen(stored: CircuitBreakerStateData, at: datetime, before: str | None) -> Transition:
    cause = "by hand" if stored.manually_controlled else None
    return Transition(at, before, stored.state, cause, stored.failure_count, "store")
