"""The life of a finalizer: something that is done once its stage is over, whoever is alive then.

    PENDING ◀─▶ RUNNING ─▶ DONE, FAILED
       └──────────────────▶ LOST        its callback was in a process that is gone, and nothing stands in for it

A try that failed goes back to PENDING until none is left. FAILED and LOST stay to be seen, until somebody has them run
again.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from typing import Final, NamedTuple

from holdfast.errors import InvalidStateTransitionError
from holdfast.store.record import Index, Kind, evolve


class FinalizerState(StrEnum):
    """Where a finalizer stands."""

    PENDING = "PENDING"
    RUNNING = "RUNNING"
    DONE = "DONE"
    FAILED = "FAILED"
    LOST = "LOST"


class FinalizerForm(StrEnum):
    """What is called. The order is that in which those of one stage are run."""

    CANCEL = "cancel"
    """`on_cancel` of a task."""
    CLEANUP = "cleanup"
    """`on_cleanup` of a task."""
    NAMED = "named"
    """A function that is registered under its name."""
    LOCAL = "local"
    """A callback in the memory of one process."""


class FinalizerRecord(NamedTuple):
    """`owner` is the worker that runs it, or the one in whose process its callback is."""

    id: str
    version: int
    due_at: int | None
    workflow: str
    ref: str
    incarnation: int
    place: int  # of a task in its stage; of others, in the order of their registration
    form: str
    name: str
    args: str  # JSON
    state: str
    attempts: int
    owner: str | None
    error: str | None
    created_at: int
    ended_at: int | None
    took_us: int | None


FINALIZER: Final = Kind(
    "workflow_finalizer",
    FinalizerRecord,
    indexes=(Index(("workflow",), "id"), Index(("state",), "id")),
)

S: Final = FinalizerState
ATTEMPTS: Final = 4
"""The first one, and three more."""
UNSETTLED: Final = frozenset({S.PENDING, S.RUNNING})
TRANSITIONS: Final[Mapping[FinalizerState, frozenset[FinalizerState]]] = {
    S.PENDING: frozenset({S.RUNNING, S.LOST}),
    S.RUNNING: frozenset({S.RUNNING, S.PENDING, S.DONE, S.FAILED}),  # to itself: its worker is dead
    S.DONE: frozenset({S.PENDING}),
    S.FAILED: frozenset({S.PENDING}),
    S.LOST: frozenset({S.PENDING}),
}


def order_of(row: FinalizerRecord) -> tuple[int, int, str]:
    """Tasks come first, by position; then the others as they were registered."""
    forms = (FinalizerForm.CANCEL, FinalizerForm.CLEANUP)
    return (forms.index(FinalizerForm(row.form)) if row.form in forms else len(forms), row.place, row.id)


def begun(row: FinalizerRecord, owner: str) -> FinalizerRecord:
    """Somebody runs it."""
    return _moved(row, S.RUNNING, attempts=row.attempts + 1, owner=owner)


def succeeded(row: FinalizerRecord, now: int, took_us: int) -> FinalizerRecord:
    return _moved(row, S.DONE, error=None, ended_at=now, took_us=took_us)


def failed(row: FinalizerRecord, error: str, now: int, took_us: int) -> FinalizerRecord:
    """A try has failed: there is another one, or it is given up."""
    if row.attempts < ATTEMPTS and row.state == S.RUNNING:
        return _moved(row, S.PENDING, error=error, took_us=took_us)
    return _moved(row, S.FAILED, error=error, ended_at=now, took_us=took_us)


def exhausted(row: FinalizerRecord) -> bool:
    """Whether it took its workers with it as often as it may be tried."""
    return row.state == S.RUNNING and row.attempts >= ATTEMPTS


def lost(row: FinalizerRecord, error: str, now: int) -> FinalizerRecord:
    return _moved(row, S.LOST, error=error, ended_at=now)


def renewed(row: FinalizerRecord, owner: str | None, place: int) -> FinalizerRecord:
    """Registered once more, or to be run once more."""
    if row.state == S.PENDING:
        return evolve(row, owner=owner, attempts=0)
    return _moved(row, S.PENDING, owner=owner, attempts=0, error=None, ended_at=None, place=place)


def _moved(row: FinalizerRecord, state: FinalizerState, **changes: str | int | None) -> FinalizerRecord:
    before = FinalizerState(row.state)
    if state not in TRANSITIONS[before]:
        there = sorted(one.value for one in TRANSITIONS[before])
        raise InvalidStateTransitionError(f"finalizer {row.name!r}", before.value, state.value, there)
    return evolve(row, state=state.value, **changes)
