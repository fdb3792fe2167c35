"""A handle of a workflow that was started."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING, Any

from holdfast.machine.workflow import WorkflowStatus
from holdfast.workflows.guarantees import WorkflowGuarantees, guarantees_of
from holdfast.workflows.records import WorkflowRecord

if TYPE_CHECKING:
    from holdfast.workflows.operating import Operating


class WorkflowRun:
    """A workflow that was started."""

    def __init__(self, workflows: Operating, id: str) -> None:
        self._workflows = workflows
        self.id = id

    @property
    def record(self) -> WorkflowRecord:
        return self._workflows.record(self.id)

    @property
    def status(self) -> WorkflowStatus:
        return WorkflowStatus(self.record.status)

    def result(self, timeout: float | timedelta | None = None) -> Any:
        """Wait for the end, and give what the workflow returned.

        Raises TimeoutError when it takes longer, TaskError when it did not succeed.
        """
        return self._workflows.returned(self.id, timeout)

    def describe(self) -> WorkflowGuarantees:
        """What it guarantees, step by step."""
        return guarantees_of(self._workflows.blueprint(self.id))

    def __repr__(self) -> str:
        return f"<workflow {self.id}>"
