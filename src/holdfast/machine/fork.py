"""Beginning a workflow in the midst of it, with what another run of it has left.

Kept is what came to a good end in the other run, has nothing to do with the stage to begin at, and waits only for what
is kept. Everything else runs.
"""

from __future__ import annotations

from collections.abc import Mapping

from holdfast.machine import gates
from holdfast.machine.ends import activated
from holdfast.machine.graph import Edges, SkipCause, SplitType, edge_of, ordered
from holdfast.machine.instances import base_of
from holdfast.machine.restart import scope_of
from holdfast.machine.run import Advance, StageState
from holdfast.machine.run_state import because
from holdfast.machine.workflow import S, moved


def fork(step: Advance, ref: str, done: Mapping[str, StageState], origin: str, by: str, reason: str = "") -> None:
    """Begin with a stage. All stages of the plan are there, and fresh; `done` are those of the other run."""
    plans = step.plan.stages
    kept = _kept(step, ref, done)
    step.run.status = moved("workflow", step.run.status, S.RUNNING)
    step.run.started_at = step.now
    step.note("workflow_started")
    step.note("forked", origin=origin, begins_with=ref, kept=list(kept), by=by, **because(reason))
    for name in kept:
        _adopt(step, name, done)
    order = [name for name in ordered({one: plan.before for one, plan in plans.items()}) if plans[name].parent is None]
    rest = [name for name in order if name not in kept]
    over = {part for whole in kept for part in step.parts(whole)}
    for name in (part for whole in rest for part in (whole, *step.parts(whole))):
        stage = step.touch(name)
        stage.told = [one for one in stage.plan.after if one in over]
        stage.edges = Edges(len(stage.plan.before))
        for one in stage.plan.before:
            if one in kept:
                stage.edges = stage.edges.counting(edge_of(step.stage(one), name))
    for name in rest:
        stage = step.touch(name)
        is_free = stage.status is S.NOT_STARTED and not step.cancels
        if name == ref and is_free and all(one in kept for one in stage.plan.before):
            gates.enter(step, stage, at_will=True)
        else:
            step.consider(stage)
    if step.cancels:
        _end_at_once(step)
    step.end_if_over()


def _end_at_once(step: Advance) -> None:
    """A stage has failed already: what has begun beside it ends, before anybody could have taken its work."""
    for ref in [ref for ref, stage in step.changed.items() if stage.status is not S.NOT_STARTED]:
        step.cancel_stage(ref)
    step.work.clear()


def _kept(step: Advance, ref: str, done: Mapping[str, StageState]) -> dict[str, None]:
    plans, scope = step.plan.stages, set(scope_of(step, [ref]))
    kept: dict[str, None] = {}
    for name in ordered({one: plan.before for one, plan in plans.items()}):
        stage, plan = done.get(name), plans[name]
        is_apart = plan.parent is None and name not in scope and all(one in kept for one in plan.before)
        if is_apart and stage is not None and _is_good(stage):
            kept[name] = None
    return kept


def _is_good(stage: StageState) -> bool:
    if stage.status is S.SKIPPED:
        return stage.skip_cause != SkipCause.UPSTREAM_FAILED
    return stage.status in (S.SUCCEEDED, S.FAILED_CONTINUE)


def _adopt(step: Advance, ref: str, done: Mapping[str, StageState]) -> None:
    """Take over a stage with its parts and instances."""
    for name in (ref, *step.parts(ref), *(one for one in done if one != ref and base_of(one) == ref)):
        stage = done.get(name)
        if stage is not None:
            stage.told, stage.keyed = [], 0
            step.adopt(stage)
            step.note("stage_ended", name, status=stage.status.value)
    stage = step.stage(ref)
    if stage.plan.split is SplitType.OR and stage.status is not S.SKIPPED:
        goal = stage.activated[0] if stage.jumps and stage.activated else None
        stage.activated = activated(step, stage, goal)  # there may be other branches now
