"""The life of a workflow, of its stages and of their tasks: one set of states for all three.

    NOT_STARTED ─▶ RUNNING ─▶ SUCCEEDED, SKIPPED, FAILED_CONTINUE     downstream goes on
         │  ▲         │  ▲ └▶ TERMINAL, STOPPED, CANCELED             downstream is halted
         ▼  │         ▼  │
       BUFFERED     PAUSED, SUSPENDED, REDIRECT

Nothing leads out of a complete state. Whoever goes back (a jump, a loop, a restart) starts a new incarnation of the
stage, which begins at NOT_STARTED. A workflow that has ended runs again only with such stages: `reopened`.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from typing import Final

from holdfast.core.members import members
from holdfast.errors import InvalidStateTransitionError


class WorkflowStatus(StrEnum):
    """Where a workflow, a stage or a task stands."""

    NOT_STARTED = "NOT_STARTED"
    RUNNING = "RUNNING"
    PAUSED = "PAUSED"
    SUSPENDED = "SUSPENDED"
    """Waits for a signal or a timer."""
    REDIRECT = "REDIRECT"
    """A jump is in progress."""
    BUFFERED = "BUFFERED"
    """Waits for others of its pipeline to end."""
    SUCCEEDED = "SUCCEEDED"
    SKIPPED = "SKIPPED"
    FAILED_CONTINUE = "FAILED_CONTINUE"
    """Failed, and what comes after it runs all the same."""
    TERMINAL = "TERMINAL"
    STOPPED = "STOPPED"
    CANCELED = "CANCELED"

    @property
    def is_complete(self) -> bool:
        return self in COMPLETE

    @property
    def is_successful(self) -> bool:
        return self in SUCCESSFUL

    @property
    def is_halt(self) -> bool:
        """Whether nothing that comes after it may start."""
        return self in HALTED

    @property
    def is_failure(self) -> bool:
        return self in FAILURE

    @property
    def is_active(self) -> bool:
        """Whether something is still to come of it."""
        return self in ACTIVE


S: Final = members(WorkflowStatus)
SUCCESSFUL: Final = frozenset({S.SUCCEEDED, S.SKIPPED})
HALTED: Final = frozenset({S.TERMINAL, S.STOPPED, S.CANCELED})
COMPLETE: Final = SUCCESSFUL | HALTED | {S.FAILED_CONTINUE}
FAILURE: Final = frozenset({S.TERMINAL, S.STOPPED, S.FAILED_CONTINUE})
CONTINUABLE: Final = frozenset({S.SUCCEEDED, S.FAILED_CONTINUE, S.SKIPPED, S.REDIRECT})
ACTIVE: Final = frozenset(S) - COMPLETE

_WAITING: Final = frozenset({S.RUNNING, S.CANCELED, S.STOPPED, S.TERMINAL})
TRANSITIONS: Final[Mapping[WorkflowStatus, frozenset[WorkflowStatus]]] = {
    S.NOT_STARTED: frozenset({S.RUNNING, S.CANCELED, S.SKIPPED, S.BUFFERED, S.TERMINAL}),
    S.BUFFERED: frozenset({S.NOT_STARTED, S.RUNNING, S.CANCELED, S.SKIPPED}),
    S.RUNNING: COMPLETE | {S.PAUSED, S.SUSPENDED, S.REDIRECT},
    S.PAUSED: _WAITING,
    S.SUSPENDED: _WAITING,
    S.REDIRECT: frozenset({S.RUNNING, S.SUCCEEDED, S.CANCELED}),
    **dict.fromkeys(COMPLETE, frozenset[WorkflowStatus]()),
}
"""Where each state can go in one step. To stay is always allowed."""


def moved(what: str, before: WorkflowStatus, after: WorkflowStatus, ref: str | None = None) -> WorkflowStatus:
    """The new state. Raises InvalidStateTransitionError for one that cannot be reached from the old one."""
    if after is not before and after not in TRANSITIONS[before]:
        name = what if ref is None else f"{what} {ref!r}"
        raise InvalidStateTransitionError(name, before.value, after.value, sorted(s.value for s in TRANSITIONS[before]))
    return after


def reopened(what: str, before: WorkflowStatus) -> WorkflowStatus:
    """The state of a workflow some of whose stages begin anew: the only way back from one that has ended.

    Raises InvalidStateTransitionError for one that was cancelled.
    """
    if before is S.CANCELED:
        raise InvalidStateTransitionError(what, before.value, S.RUNNING.value, [])
    return S.RUNNING if before in COMPLETE else before
