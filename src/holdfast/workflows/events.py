"""What workers of workflows say about themselves. `operation_key` is the task's type, unless said otherwise."""

from __future__ import annotations

from typing import Final

from holdfast.telemetry.events import GuardEvent, Severity
from holdfast.telemetry.measure import Measure, MeasuredEvent

_TOLD: Final = {"retried": Severity.INFO, "parked": Severity.INFO, "failed": Severity.WARNING}
_ENDS: Final = {"TERMINAL": Severity.ERROR, "CANCELED": Severity.WARNING}
_FINALIZERS: Final = {"PENDING": Severity.WARNING, "FAILED": Severity.ERROR, "LOST": Severity.ERROR}


class TaskBegan(GuardEvent):
    """A worker calls a task."""

    __slots__ = ("workflow_id", "stage", "attempt")
    event_name = "workflow.task_began"
    severity_rule = "debug"

    def __init__(self, operation_key: str, call_id: str, workflow_id: str, stage: str, attempt: int) -> None:
        super().__init__(operation_key, call_id)
        self.workflow_id = workflow_id
        self.stage = stage
        self.attempt = attempt


class TaskSettled(MeasuredEvent):
    """What came of a task is stored: `outcome` is succeeded, failed, skipped or canceled; retried, repeated or parked,
    to be called again after `delay_s`; or suspended."""

    __slots__ = ("workflow_id", "stage", "outcome", "attempt", "delay_s", "error")
    event_name = "workflow.task"
    measure = Measure("workflow.task", "Tasks of workflows by what came of them", ("outcome",), key="type")
    severity_rule = "debug; info retried, parked; warning failed"

    def __init__(
        self,
        operation_key: str,
        call_id: str,
        workflow_id: str,
        stage: str,
        outcome: str,
        attempt: int = 0,
        delay_s: float | None = None,
        error: str | None = None,
    ) -> None:
        super().__init__(operation_key, call_id)
        self.workflow_id = workflow_id
        self.stage = stage
        self.outcome = outcome
        self.attempt = attempt
        self.delay_s = delay_s
        self.error = error

    def usual_severity(self) -> Severity:
        return _TOLD.get(self.outcome, Severity.DEBUG)


class WorkflowMoved(MeasuredEvent):
    """A workflow is paused, goes on, or has ended. `operation_key` is its name."""

    __slots__ = ("workflow_id", "status", "reason")
    event_name = "workflow.moved"
    measure = Measure("workflow.moved", "Workflows by the status they came into", ("status",), key="name")
    severity_rule = "info; warning CANCELED; error TERMINAL"

    def __init__(
        self, operation_key: str, call_id: str, workflow_id: str, status: str, reason: str | None = None
    ) -> None:
        super().__init__(operation_key, call_id)
        self.workflow_id = workflow_id
        self.status = status
        self.reason = reason

    def usual_severity(self) -> Severity:
        return _ENDS.get(self.status, Severity.INFO)


class FinalizerRan(MeasuredEvent):
    """A finalizer was run, or was lost: `state` is DONE, PENDING (it is tried again), FAILED or LOST. `operation_key`
    is its name."""

    __slots__ = ("workflow_id", "stage", "state", "attempt", "error")
    event_name = "workflow.finalizer"
    measure = Measure("workflow.finalizer", "Finalizers by what came of them", ("state",), key="name")
    severity_rule = "debug; warning PENDING; error FAILED, LOST"

    def __init__(
        self,
        operation_key: str,
        call_id: str,
        workflow_id: str,
        stage: str,
        state: str,
        attempt: int = 0,
        error: str | None = None,
    ) -> None:
        super().__init__(operation_key, call_id)
        self.workflow_id = workflow_id
        self.stage = stage
        self.state = state
        self.attempt = attempt
        self.error = error

    def usual_severity(self) -> Severity:
        return _FINALIZERS.get(self.state, Severity.DEBUG)


class WorkflowsPruned(MeasuredEvent):
    """A worker deleted workflows that ended long ago; `operation_key` is empty."""

    __slots__ = ("pruned", "kept")
    event_name = "workflow.pruned"
    measure = Measure("workflow.pruned", "Times that old workflows were deleted")

    def __init__(self, operation_key: str, call_id: str, pruned: int, kept: int) -> None:
        super().__init__(operation_key, call_id)
        self.pruned = pruned
        self.kept = kept


CATALOGUE: tuple[type[GuardEvent], ...] = (TaskBegan, TaskSettled, WorkflowMoved, FinalizerRan, WorkflowsPruned)
