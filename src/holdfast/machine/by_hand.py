"""What somebody else than a task decides about a stage: to end it, to leave it, to say how it stands."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from holdfast.errors import TaskError, some_of
from holdfast.machine import gates
from holdfast.machine import jump as jumps
from holdfast.machine.graph import SkipCause
from holdfast.machine.run import Advance, Owner, Part, StageState, Wait, Work
from holdfast.machine.run_state import because
from holdfast.machine.workflow import COMPLETE, SUCCESSFUL, S, WorkflowStatus, moved

_HELD: Final = frozenset({S.PAUSED, S.REDIRECT, S.BUFFERED, S.NOT_STARTED})
"""What the engine alone decides about a stage."""


def cancel(step: Advance, ref: str, by: str, reason: str = "") -> None:
    """A stage ends, and what comes after it is halted."""
    step.note("cancel_asked", ref, by=by, **because(reason))
    step.touch(ref).reason = f"canceled by {by}" + (f": {reason}" if reason else "")
    step.end_stage(ref, S.CANCELED)
    step.end_if_over()


def jump(step: Advance, ref: str, target: str, context: Mapping[str, Any], outputs: Mapping[str, Any]) -> None:
    """Leave a stage whose task is under way, and go on with another. Raises TaskError where that cannot be."""
    stage = step.stage(ref)
    _check_under_way(stage)
    if stage.plan.owner is Owner.INSTANCE:
        raise TaskError(f"stage {ref!r} is one of several instances, which cannot jump")
    if target not in step.plan.stages:
        raise TaskError(f"there is no stage {target!r} to jump to; there are {some_of(step.plan.stages)}")
    if stage.jumps >= stage.plan.max_jumps:
        raise TaskError(f"stage {ref!r} has jumped {stage.jumps} times, which is as often as it may")
    _awake(step, stage)
    jumps.jump(step, ref, target, context, outputs)


def end_task(
    step: Advance,
    ref: str,
    status: WorkflowStatus,
    outputs: Mapping[str, Any],
    context: Mapping[str, Any],
    error: dict[str, Any] | None,
) -> None:
    """The task that is under way has ended elsewhere. Raises TaskError if none is, or for a state that is no end."""
    stage = step.stage(ref)
    _check_under_way(stage)
    if not status.is_complete:
        raise TaskError(f"a task of stage {ref!r} cannot end as {status.value}; use a state that is complete")
    incarnation = stage.incarnation
    _awake(step, stage)
    if status in SUCCESSFUL:
        step.succeed(ref, outputs, context, status)
    else:
        stage.context.update(context)
        step.fail(ref, error or {"type": "TaskError", "message": f"it was ended as {status.value}"}, status, outputs)
    _keep_limit(step, stage, incarnation)


def put(step: Advance, ref: str, status: WorkflowStatus) -> None:
    """A stage is to stand like this, with everything that follows from it.

    Raises InvalidStateTransitionError for a state that cannot be reached, and TaskError for one that is the engine's.
    """
    stage = step.touch(ref)
    incarnation = stage.incarnation
    if status is stage.status:
        return
    moved(f"stage {ref!r}", stage.status, status)
    if status in _HELD:
        raise TaskError(f"stage {ref!r} cannot be stored as {status.value}: only the engine decides that")
    if status is S.SKIPPED:
        step.skip(stage, SkipCause.MANUAL, "it was stored so")
    elif status is S.SUSPENDED:
        _check_under_way(stage)
        step.drop(ref)
        step.suspend(ref, Wait("*", None, calls=True))
        _keep_limit(step, stage, incarnation)
    elif status is S.RUNNING and stage.status in (S.SUSPENDED, S.PAUSED):
        step.drop(ref)
        step.resume(ref, None, None)
        _keep_limit(step, stage, incarnation)
    elif status is S.RUNNING:
        gates.enter(step, stage, at_will=True)
        if stage.status is S.BUFFERED:
            raise TaskError(f"stage {ref!r} cannot start yet: {stage.reason}")
    else:
        step.end_stage(ref, status)
    step.end_if_over()


def _check_under_way(stage: StageState) -> None:
    if stage.status not in (S.RUNNING, S.SUSPENDED) or stage.part is not Part.TASKS or stage.at >= len(stage.tasks):
        raise TaskError(f"stage {stage.plan.ref!r} is {stage.status.value}, and no task of it is under way")


def _awake(step: Advance, stage: StageState) -> None:
    """Whoever runs its task, or waits for it, has nothing to say any more."""
    step.drop(stage.plan.ref)
    if stage.status is S.SUSPENDED:
        stage.status, stage.wait = moved(f"stage {stage.plan.ref!r}", stage.status, S.RUNNING), None


def _keep_limit(step: Advance, stage: StageState, incarnation: int) -> None:
    """The time that the whole stage may take goes on: it went away with the rest of what the stage had."""
    limit, began = stage.plan.limit_s, stage.started_at
    if limit is None or began is None or stage.status in COMPLETE or stage.incarnation != incarnation:
        return
    step.work.append(Work(stage.plan.ref, 0, max(0.0, limit - (step.now - began) / 1e6), waits=True, what="limit"))
