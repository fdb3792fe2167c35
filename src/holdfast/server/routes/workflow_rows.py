"""What is answered of a workflow in a list, and of its stages."""

from __future__ import annotations

from datetime import datetime
from typing import Any, Final

from holdfast.machine.workflow import WorkflowStatus
from holdfast.server.routing import Asked
from holdfast.store.codec import instant
from holdfast.views.plain import plain
from holdfast.views.workflows import awaited, by_stage, ended_because, stage_document, trouble_of
from holdfast.workflows.model import Workflow
from holdfast.workflows.reading import WorkflowSummary
from holdfast.workflows.stage import StageExecution
from holdfast.workflows.workflows import Workflows

_MOST_STRANDED: Final = 1000


def row_of(asked: Asked, one: WorkflowSummary) -> dict[str, Any]:
    """A workflow as a list has it, with its place in line while it waits for its turn."""
    place = asked.hold.workflows.place(one.id) if one.status is WorkflowStatus.BUFFERED else None
    return {**plain(one), "place": place, "cursor": one.cursor}


def find_row(asked: Asked, id: str) -> dict[str, Any]:
    """The same by its id, as it is now. Raises WorkflowNotFoundError."""
    return row_of(asked, asked.hold.workflows.summary(id))


def stage_rows(flows: Workflows, workflow: Workflow, now: datetime) -> list[dict[str, Any]]:
    """Every stage without what it got and left, with what it waits for and why no worker can take it."""
    work = by_stage(flows.work(workflow.id))
    under_way = any(not stage.status.is_complete for stage in workflow.stages) and not workflow.status.is_complete
    found = flows.stranded(workflow.id, limit=_MOST_STRANDED) if under_way else ()
    stuck = {one.stage: one.reason for one in found}
    parents = {stage.id: stage.ref_id for stage in workflow.stages}
    return [
        {
            **outline(stage, parents),
            "name": stage.name,
            "type": stage.type,
            "after": sorted(stage.requisite_stage_ref_ids),
            "owner": stage.synthetic_stage_owner,
            "skip_cause": stage.skip_cause,
            "waits": plain(awaited(stage, work.get(stage.ref_id, ()), now)),
            "stranded": stuck.get(stage.ref_id),
        }
        for stage in workflow.stages
    ]


def outline(stage: StageExecution, parents: dict[str, str]) -> dict[str, Any]:
    """How far a stage is, which also a drawing shows; `parents` are the refs of stages by their ids."""
    return {
        "ref": stage.ref_id,
        "status": stage.status,
        "incarnation": stage.incarnation,
        "attempts": max((task.attempt for task in stage.tasks), default=0),
        "start_time": stage.start_time,
        "end_time": stage.end_time,
        "part_of": parents.get(stage.parent_stage_id or ""),
        "note": ended_because(stage) if stage.status.is_complete else trouble_of(stage),
    }


def find_stage(asked: Asked, id: str, ref: str, *, reveal: bool) -> dict[str, Any]:
    """One stage with its tasks, what it got and left. Raises WorkflowNotFoundError, and StageNotFoundError."""
    flows = asked.hold.workflows
    workflow = flows.workflow(id)
    found = workflow.stage(ref)
    rows = stage_rows(flows, workflow, instant(asked.hold.store.now()))
    row = next(row for row in rows if row["ref"] == ref)
    return {**stage_document(found, reveal=reveal), **row, "workflow_id": id}
