"""What the end of a stage means: to those that wait for it, to the one that it belongs to, and to the workflow."""

from __future__ import annotations

from typing import TYPE_CHECKING

from holdfast.errors import PermanentError
from holdfast.machine import gates, instances
from holdfast.machine.graph import EDGE, JOIN, SKIP, SPLIT, edge_of, edges
from holdfast.machine.run_state import OWNER, PART, StageState
from holdfast.machine.workflow import CONTINUABLE, HALTED, S, WorkflowStatus, moved

if TYPE_CHECKING:
    from holdfast.machine.run import Advance


def complete(step: Advance, stage: StageState, status: WorkflowStatus) -> None:
    """A stage has ended, with everything that belongs to it."""
    plan = stage.plan
    if stage.flawed and status is S.SUCCEEDED:
        status = S.FAILED_CONTINUE
    if plan.split is SPLIT.OR and status in CONTINUABLE:
        try:
            stage.activated = step.judge.branches(stage)
        except PermanentError as error:  # where it goes on cannot be told: it does not
            status, stage.reason = S.TERMINAL, str(error)
    stage.status = moved("stage", stage.status, status, plan.ref)
    stage.ended_at = step.now
    step.changed[plan.ref] = stage
    step.run.live -= 1
    if plan.limit_s is not None:
        step.dropped.add(plan.ref)
    step.events.append({"type": "stage_ended", "stage": plan.ref, "status": status._value_})
    step.close(stage)
    if plan.cancel_region and status in CONTINUABLE:
        gates.clear_region(step, stage)
    if plan.join is JOIN.MULTI_MERGE and status in CONTINUABLE:
        _merge(step, stage)
    else:
        _pass_on(step, stage)


def _merge(step: Advance, stage: StageState) -> None:
    """A stage that has run for one before it runs again if another one is done, and is over if none is left."""
    if stage.edges.open > stage.fired and not step.cancels:
        step.reset(stage)
        for ref in step.parts(stage.plan.ref):
            part = step.touch(ref)
            step.reset(part)
            part.edges, part.fired, part.flawed = edges(len(part.plan.before)), 0, False
        step.consider(stage)
    elif stage.edges.active == 0:
        _pass_on(step, stage)


def _pass_on(step: Advance, stage: StageState) -> None:
    if stage.status in HALTED and (stage.plan.parent is None or instances.stands_alone(step, stage)):
        _weigh(step, stage)
    tell(step, stage)


def reweigh(step: Advance) -> None:
    """What the ends of all stages mean to the workflow, now that some of them are undone."""
    tops = [ref for ref, plan in step.plan.stages.items() if plan.parent is None]
    step.need(tops)
    run, cancels = step.run, step.cancels
    alone = any(step.stage(ref).bad and instances.lost_some(step.stage(ref)) for ref in tops)
    run.reason, run.halts = None, run.halts if alone else run.halts & 8
    for ref in tops:
        _weigh(step, step.stage(ref))
    step.cancels = cancels  # what has failed before and stays has done so then


def _weigh(step: Advance, stage: StageState) -> None:
    """What the end of a stage means to the workflow."""
    plan, status = stage.plan, stage.status
    if status is S.TERMINAL:
        step.run.halts |= 1
        step.run.reason = step.run.reason or stage.reason or f"stage {plan.ref!r} failed"
        step.cancels = step.cancels or not plan.allow_sibling_stages_to_continue
    elif status is S.CANCELED:
        step.run.halts |= 4
    elif status is S.STOPPED and plan.complete_other_branches_then_fail:
        step.run.halts |= 2
        step.run.reason = step.run.reason or stage.reason or f"stage {plan.ref!r} failed"


def tell(step: Advance, stage: StageState) -> None:
    """Those that wait for a stage, and the one that it belongs to."""
    plan = stage.plan
    for ref in plan.after:
        if ref in stage.told:
            continue
        child = step.touch(ref)
        edge = edge_of(stage, ref)
        if edge is not EDGE.ACTIVE:
            child.edges = child.edges.counting(edge)
            if child.plan.join is JOIN.MULTI_MERGE and child.fired and child.status in CONTINUABLE:
                _merge(step, child)
            else:
                step.consider(child)
    if plan.parent is not None:
        _child_ended(step, step.touch(plan.parent), stage)


def _child_ended(step: Advance, parent: StageState, child: StageState) -> None:
    if child.plan.owner is OWNER.INSTANCE:
        instances.ended(step, parent, child)
        return
    if parent.status is not S.RUNNING or step.cancels:
        return
    parent.children_left -= 1
    failed = child.status not in CONTINUABLE or child.skip_cause == SKIP.UPSTREAM_FAILED
    if failed and parent.part is not PART.FAILURE:
        parent.reason = child.reason or f"stage {child.plan.ref!r} failed"
        parent.children_left = 0
        step.fail_stage(parent)
        return
    parent.flawed |= child.status is S.FAILED_CONTINUE
    if parent.children_left <= 0:
        after_parts(step, parent)


def after_parts(step: Advance, stage: StageState) -> None:
    """What comes after the parts of a stage that have ended."""
    if stage.part is PART.BEFORE:
        step.begin_tasks(stage)
    elif stage.part is PART.AFTER:
        complete(step, stage, S.SUCCEEDED)
    else:
        step.fail_stage(stage)
