"""Clients whose processes may die, in the scenarios of `tests/workflows/test_failpoints.py`: they ask again."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from holdfast.errors import DeadLetterError, InvalidStateTransitionError, TaskError, WorkflowNotFoundError
from holdfast.machine.workflow import WorkflowStatus
from holdfast.testing.failpoints import ProcessDied
from holdfast.testing.workflow_kit import WorkflowTestKit
from holdfast.workflows.handle import WorkflowRun

S = WorkflowStatus
Ends = list[tuple[WorkflowStatus, Any]]


def client(kit: WorkflowTestKit, act: Callable[[], Any], *, again: bool = False) -> Any:
    """Do something as a client whose process may die of it; then it does it again, and is refused if it was done."""
    kit.points.is_watched = True
    try:
        return act()
    except ProcessDied:
        kit.points.is_watched = False
        kit.points.revive()
        return client(kit, act, again=True)
    except (TaskError, InvalidStateTransitionError, DeadLetterError, WorkflowNotFoundError):
        if not again:
            raise
    finally:
        kit.points.is_watched = False


def started(kit: WorkflowTestKit, flow: Any, *args: Any, key: str = "order-7") -> WorkflowRun:
    run: WorkflowRun = client(kit, lambda: kit.start(flow, *args, idempotency_key=key))
    return run
