"""Workflows of a pipeline that has a limit: who may begin, and who waits for his turn."""

from __future__ import annotations

from holdfast.machine.run import Advance
from holdfast.machine.workflow import COMPLETE, S, WorkflowStatus, moved


def has_slot(status: WorkflowStatus) -> bool:
    """Whether a workflow that stands so counts among those that run."""
    return status not in COMPLETE and status not in (S.NOT_STARTED, S.BUFFERED)


def buffer(step: Advance, pipeline: str) -> None:
    """The workflow waits until others of its pipeline have ended; what is noted for it to do until then is held."""
    step.run.status = S.BUFFERED  # from NOT_STARTED, or with stages that begin anew: the way back that `reopened` is
    step.note("workflow_buffered", pipeline=pipeline)


def admit(step: Advance, *, too_late: bool) -> None:
    """It is the workflow's turn: it begins, goes on with what begins anew, or ends because it is too late."""
    if step.run.started_at is not None:
        step.run.status = moved("workflow", step.run.status, S.RUNNING)
        step.note("workflow_admitted")
        step.end_if_over()
    elif too_late:
        step.expire()
    else:
        step.start()


def leave_line(step: Advance) -> None:
    """It is the workflow's turn, and it begins in a step of its own."""
    step.run.status = moved("workflow", step.run.status, S.NOT_STARTED)
    step.note("workflow_stored")
