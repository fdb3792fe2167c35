"""Workflows that are started by stages of others: what is asked for, what it becomes, and how its end comes back."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any, Final, NamedTuple

from holdfast.core.check import check_wait
from holdfast.errors import WorkflowDefinitionError
from holdfast.machine.children import join
from holdfast.machine.run import Advance, Wait
from holdfast.machine.workflow import WorkflowStatus
from holdfast.store.codec import from_json, to_json
from holdfast.store.port import Store
from holdfast.workflows.beginning import Wanted
from holdfast.workflows.binding import resolve
from holdfast.workflows.plan import Blueprint
from holdfast.workflows.records import STAGE, WORKFLOW, ItemRecord, StageRecord, WorkflowRecord
from holdfast.workflows.run import Run
from holdfast.workflows.runs import Blueprints
from holdfast.workflows.sub_workflow import SubWorkflow as SubWorkflow

MOST_DEEP: Final = 20
STAGE_OF: Final = "stage"
DEPTH: Final = "depth"
"""In what is told of a workflow that a stage has started: which stage, and how many are above it."""
CHILD: Final = "sub_workflow"
"""The built-in task; and in what a stage leaves, the workflow that it has started, how that ended and why."""


class Offspring(NamedTuple):
    """A workflow that is ready to be started by a stage."""

    wanted: Wanted
    name: str
    waits: bool
    wait: Wait


def offspring(request: SubWorkflow, wanted: Wanted, parent: WorkflowRecord, item: ItemRecord) -> Offspring:
    """The workflow that a stage asks for, as one below its own. Raises WorkflowDefinitionError."""
    ref = item.ref
    if request.timeout is not None:
        check_wait("SubWorkflow.timeout", request.timeout, "leave it out for no limit")
    depth = from_json(parent.about).get(DEPTH, 0) + 1
    if depth > MOST_DEEP:
        story = f"workflow {request.name!r} would be the {depth}th below each other; {MOST_DEEP} is the limit"
        raise WorkflowDefinitionError("too_deep", f"{story}, so that none starts itself without end", (ref,))
    about = {**from_json(wanted.about), STAGE_OF: ref, DEPTH: depth}
    child = replace(
        wanted,
        # Not the key of the task: a retry keeps that, and the workflow that has it already was cancelled or has ended.
        key=f"child:{parent.id}.{ref}.{item.incarnation}.{item.at}",
        parent=parent.id,
        about=to_json(about),
        application=wanted.application or parent.application,
        queue=parent.queue if wanted.queue == "default" else wanted.queue,
        priority=wanted.priority or parent.priority,
    )
    return Offspring(child, request.name, request.wait, Wait(None, request.timeout, on_timeout=WorkflowStatus.TERMINAL))


def awaiting(store: Store, run: Run) -> StageRecord | None:
    """The stage that waits for this workflow, if one does."""
    if run.record.parent is None:
        return None
    stage = store.get(STAGE, [f"{run.record.parent}.{from_json(run.about)[STAGE_OF]}"])[0]
    if stage is None or stage.status != WorkflowStatus.SUSPENDED or from_json(stage.state).get("child") != run.id:
        return None
    return stage


def joining(store: Store, blueprints: Blueprints, ref: str, id: str) -> Callable[[Advance], None]:
    """What the end of a workflow means to the stage that waits for it: it leaves the same, or fails for that reason."""
    child = store.get(WORKFLOW, [id])[0]
    if child is None:
        gone = {"type": "TaskError", "message": f"workflow {id} is gone"}
        return lambda step: join(step, ref, {}, gone)
    left: dict[str, Any] = {CHILD: {name: getattr(child, name) for name in ("id", "name", "status", "reason")}}
    if child.status == WorkflowStatus.SUCCEEDED:
        left["result"] = result_of(store, blueprints.of([child.definition])[child.definition], child)
        return lambda step: join(step, ref, left, None)
    message = f"workflow {child.name!r} ({child.id}) is {child.status}: {child.reason or 'no reason given'}"
    return lambda step: join(step, ref, left, {"type": "TaskError", "message": message})


def result_of(store: Store, blueprint: Blueprint, record: WorkflowRecord, run: Run | None = None) -> Any:
    """What a workflow has returned; of one that was put together as a model, what its last stages have left. `run` is
    the workflow as it has ended, where that is known."""

    def outputs(ref: str) -> dict[str, Any]:
        found = (None if run is None else run.as_stored(ref)) or store.get(STAGE, [f"{record.id}.{ref}"])[0]
        left: dict[str, Any] = {} if found is None else from_json(found.outputs)
        return left

    if (asked := blueprint.result) is not None:
        given = {} if asked[0] == "out" else from_json(record.context)
        return resolve(asked, given, lambda ref: outputs(ref).get("result"))
    plans = blueprint.plan.stages
    if all(blueprint.extras[ref].model is None for ref in plans):
        return None
    last = sorted(ref for ref, plan in plans.items() if not plan.after and plan.parent is None)
    return {key: value for ref in last for key, value in outputs(ref).items()}
