"""What the end of a stage means: to those that wait for it, to the one that it belongs to, and to the workflow."""

from __future__ import annotations

from collections.abc import Container
from typing import TYPE_CHECKING, Final

from holdfast.errors import PermanentError
from holdfast.machine import gates, instances
from holdfast.machine.graph import EDGE, JOIN, SKIP, SPLIT, Edge, edge_of, edges
from holdfast.machine.run_state import OWNER, PART, StagePlan, StageState
from holdfast.machine.workflow import CONTINUABLE, HALTED, S, WorkflowStatus, moved

if TYPE_CHECKING:
    from holdfast.machine.run import Advance

OWNED: Final = {PART.BEFORE: OWNER.STAGE_BEFORE, PART.AFTER: OWNER.STAGE_AFTER, PART.FAILURE: OWNER.STAGE_ON_FAILURE}
"""The parts that a stage waits for when it has come so far."""
_OUTWEIGHS: Final = {1: 1 | 8, 4: 1 | 4 | 8, 2: 1 | 2 | 4 | 8}
"""What a workflow has halted for that decides how it ends, whatever else it halts for."""
_RAN: Final = frozenset({S.SUCCEEDED, S.FAILED_CONTINUE})


def complete(step: Advance, stage: StageState, status: WorkflowStatus, *, goal: str | None = None) -> None:
    """A stage has ended, with everything that belongs to it. `goal`: where its task goes on by a jump."""
    plan = stage.plan
    if stage.flawed and status is S.SUCCEEDED:
        status = S.FAILED_CONTINUE
    if plan.split is SPLIT.OR and status in CONTINUABLE:
        try:
            stage.activated = activated(step, stage, goal)
        except PermanentError as error:  # where it goes on cannot be told: it does not
            status, stage.reason = S.TERMINAL, str(error)
    stage.status = moved("stage", stage.status, status, plan.ref)
    stage.ended_at = step.now
    step.changed[plan.ref] = stage
    step.run.live -= 1
    if plan.limit_s is not None:
        step.drop(plan.ref)
    step.events.append({"type": "stage_ended", "stage": plan.ref, "status": status._value_})
    step.close(stage)
    if plan.cancel_region and status in CONTINUABLE:
        ending, step.ending = step.ending, step.ending | {plan.ref}
        gates.clear_region(step, stage)
        step.ending = ending
    if plan.join is JOIN.MULTI_MERGE and status in CONTINUABLE:
        _merge(step, stage)
    else:
        _pass_on(step, stage)


def activated(step: Advance, stage: StageState, goal: str | None = None) -> list[str] | None:
    """Which of the stages after it a stage's split activates; None: all. Raises as the judge does."""
    chosen = step.judge.branches(stage)
    if chosen == []:
        return list(stage.plan.after[:1]) if goal is None else [goal]
    return chosen


def _merge(step: Advance, stage: StageState) -> None:
    """A stage that has run for one before it runs again if another one is done, and is over if none is left."""
    if stage.edges.open > stage.fired and not step.cancels and has_its_turn(step, stage.plan):
        step.reset(stage)
        scope = dict.fromkeys(step.parts(stage.plan.ref))
        for ref in scope:
            part = step.touch(ref)
            step.reset(part)
            part.fired, part.flawed, part.told = 0, False, ()
        for ref in scope:
            count_anew(step, step.touch(ref), scope)
        step.consider(stage)
    elif stage.edges.active == 0:
        _pass_on(step, stage)


def rests(stage: StageState) -> bool:
    """Whether a stage that has run may run again for another one before it. Nobody has heard of its end then."""
    return stage.plan.join is JOIN.MULTI_MERGE and stage.status in _RAN and stage.edges.active > 0


def edge_now(stage: StageState, ref: str) -> Edge:
    """What a stage means to the one after it, which has heard of its end if that is known."""
    return EDGE.ACTIVE if rests(stage) else edge_of(stage, ref)


def count_anew(step: Advance, stage: StageState, scope: Container[str]) -> None:
    """A stage that begins anew counts those before it that do not, which stay as they are."""
    ref = stage.plan.ref
    stage.edges = edges(len(stage.plan.before))
    for name in stage.plan.before:
        if name not in scope:
            one = step.stage(name)
            stage.edges = stage.edges.counting(edge_now(one, ref))
            if ref in one.told:  # it has forgotten what it was told
                step.touch(name).told = [name for name in one.told if name != ref]


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
    before, run.reason, run.halts = run.halts, None, run.halts & 8
    for ref in tops:
        _weigh(step, step.stage(ref))
    run.halts |= before if alone else 0
    step.cancels = cancels  # what has failed before and stays has done so then


def _weigh(step: Advance, stage: StageState) -> None:
    """What the end of a stage means to the workflow."""
    plan, status = stage.plan, stage.status
    if status is S.TERMINAL:
        _halt(step, stage, 1, "failed")
        step.cancels = step.cancels or not plan.allow_sibling_stages_to_continue
    elif status is S.CANCELED:
        _halt(step, stage, 4, "was cancelled")
    elif status is S.STOPPED and plan.complete_other_branches_then_fail:
        _halt(step, stage, 2, "failed")


def _halt(step: Advance, stage: StageState, weight: int, what: str) -> None:
    """The first stage of those that decide how the workflow ends says why."""
    if not step.run.halts & _OUTWEIGHS[weight]:
        step.run.reason = stage.reason or f"stage {stage.plan.ref!r} {what}"
    step.run.halts |= weight


def tell(step: Advance, stage: StageState) -> None:
    """Those that wait for a stage, and the one that it belongs to, which is first to hear why a part has failed."""
    plan = stage.plan
    if plan.parent is not None:
        _child_ended(step, step.touch(plan.parent), stage)
    for ref in plan.after:
        if ref in stage.told:
            continue
        child = step.touch(ref)
        edge = edge_of(stage, ref)
        if edge is not EDGE.ACTIVE:
            child.edges = child.edges.counting(edge)
            heard(step, child)


def heard(step: Advance, stage: StageState) -> None:
    """A stage has counted the end of one before it."""
    # One that was skipped is over: it has told those after it.
    if stage.plan.join is JOIN.MULTI_MERGE and stage.fired and stage.status in _RAN:
        if stage.plan.ref not in step.ending:
            _merge(step, stage)
    else:
        step.consider(stage)


def _child_ended(step: Advance, parent: StageState, child: StageState) -> None:
    if child.plan.owner is OWNER.INSTANCE:
        instances.ended(step, parent, child)
        return
    if step.cancels or not awaits(parent, child.plan):
        return
    parent.children_left -= 1
    if has_failed(child) and parent.part is not PART.FAILURE:
        part_failed(step, parent, child)
        return
    parent.flawed |= child.status is S.FAILED_CONTINUE
    if parent.children_left <= 0:
        after_parts(step, parent)


def awaits(stage: StageState, part: StagePlan) -> bool:
    """Whether a stage has come so far that this part of it has its turn."""
    return stage.status is S.RUNNING and OWNED.get(stage.part) is part.owner


def has_its_turn(step: Advance, plan: StagePlan) -> bool:
    """Whether it belongs to no other stage, or to one that has come so far."""
    return plan.parent is None or awaits(step.stage(plan.parent), plan)


def has_failed(part: StageState) -> bool:
    """Whether a part has ended, and not well."""
    return part.status in HALTED or part.skip_cause == SKIP.UPSTREAM_FAILED


def part_failed(step: Advance, stage: StageState, part: StageState) -> None:
    """A stage whose part has not come to a good end has failed, or is stopped or cancelled as that is."""
    stage.reason = part.reason or f"stage {part.plan.ref!r} failed"
    stage.children_left = 0
    if part.status in (S.STOPPED, S.CANCELED):
        complete(step, stage, part.status)
    else:
        step.fail_stage(stage)


def after_parts(step: Advance, stage: StageState) -> None:
    """What comes after the parts of a stage that have ended."""
    if stage.part is PART.BEFORE:
        step.begin_tasks(stage)
    elif stage.part is PART.AFTER:
        complete(step, stage, S.SUCCEEDED)
    else:
        step.fail_stage(stage)
