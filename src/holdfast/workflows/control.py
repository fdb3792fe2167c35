"""What operators do to a workflow: hold it, let it go on, begin stages anew, leave stages out.

Each is one step of the machine over the workflow as it is stored, and one transaction.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any, Final

from holdfast.core.check import check_text
from holdfast.errors import InvalidStateTransitionError, StageNotFoundError, TaskError
from holdfast.machine import by_hand, gates, instances
from holdfast.machine import restart as machine
from holdfast.machine.run import Advance, Part, StageState
from holdfast.machine.workflow import WorkflowStatus
from holdfast.store.codec import from_json, instant, to_json
from holdfast.store.port import Change, Store
from holdfast.workflows.ending import end_all
from holdfast.workflows.items import dropped_items, held_items, new_items, released_items
from holdfast.workflows.lines import hold_back
from holdfast.workflows.records import STAGE
from holdfast.workflows.run import Run
from holdfast.workflows.trigger import PausedDetails

_NOT_BEGUN: Final = (WorkflowStatus.NOT_STARTED, WorkflowStatus.BUFFERED)


def pause(store: Store, run: Run, step: Advance, *, by: str, reason: str) -> list[Change] | None:
    """Hold what nobody has taken. Raises InvalidStateTransitionError for a workflow that does not run."""
    if run.state.status is WorkflowStatus.PAUSED:
        return None
    _check_begun(run, WorkflowStatus.PAUSED)
    step.pause(by, reason)
    _note_pause(run, PausedDetails(paused_by=by, pause_time=instant(step.now), reason=reason))
    return held_items(store, run)


def resume(store: Store, run: Run, step: Advance, *, by: str, reason: str = "") -> list[Change] | None:
    """Let go on what was held. Raises InvalidStateTransitionError for a workflow that has ended, or not begun."""
    if run.state.status is WorkflowStatus.RUNNING:
        return None
    _check_begun(run, WorkflowStatus.RUNNING)
    step.go_on(by, reason)
    details = PausedDetails.from_document(from_json(run.about)["paused"])
    details.resumed_by, details.resume_time = by, instant(step.now)
    _note_pause(run, details)
    return released_items(store, run)


def restart(
    store: Store, run: Run, step: Advance, *, ref: str, by: str, reason: str = "", code: str | None = None
) -> list[Change]:
    """Begin anew with a stage. Raises StageNotFoundError, InvalidStateTransitionError and TaskError."""
    check_ref(store, run, ref)
    _check_cancelled(run)
    run.read(store, run.blueprint.plan.stages)
    machine.restart(step, [ref], by, reason)
    hold_back(store, run, step)
    _note_code(run, code)
    return settled(store, run, step)


def retry(store: Store, run: Run, step: Advance, *, by: str, reason: str = "", code: str | None = None) -> list[Change]:
    """Begin anew with every stage that has failed, with the keys that it had.

    Raises InvalidStateTransitionError and TaskError.
    """
    _check_cancelled(run)
    run.read(store, run.blueprint.plan.stages)
    if not machine.retry(step, by, reason):
        raise TaskError(f"workflow {run.id} is {run.state.status.value}; no stage of it has failed")
    hold_back(store, run, step)
    _note_code(run, code)
    return settled(store, run, step)


def skip(store: Store, run: Run, step: Advance, *, ref: str, by: str, reason: str = "") -> list[Change] | None:
    """Leave a stage out. Raises StageNotFoundError, and TaskError for a stage that has ended."""
    stage = stage_of(store, run, ref)
    if stage.status.is_complete or run.state.status.is_complete:
        raise TaskError(f"stage {ref!r} of workflow {run.id} is {stage.status.value}; what has ended cannot be skipped")
    if stage.unwanted:
        return None
    gates.skip_by_hand(step, stage, by, reason)
    return settled(store, run, step)


def add_instances(store: Store, run: Run, step: Advance, *, ref: str, items: Sequence[Any], by: str) -> list[Change]:
    """Start more instances of a stage. Raises StageNotFoundError, and TaskError for one that takes no more."""
    stage, config = stage_of(store, run, ref), run.blueprint.plan.stages[ref].instances
    if config is None or not config.allow_dynamic:
        raise TaskError(f"stage {ref!r} has no mi_config with allow_dynamic, so it takes no more instances")
    if stage.status is not WorkflowStatus.RUNNING or stage.part is not Part.INSTANCES:
        raise TaskError(f"stage {ref!r} of workflow {run.id} is {stage.status.value} and takes no more instances")
    instances.check_number(ref, stage.spawned + len(items))
    step.note("instances_added", ref, number=len(items), by=by)
    instances.add(step, stage, items)
    step.end_if_over()
    return settled(store, run, step)


def cancel_stage(store: Store, run: Run, step: Advance, *, ref: str, by: str, reason: str = "") -> list[Change] | None:
    """End a stage; what comes after it is halted. Raises StageNotFoundError."""
    if stage_of(store, run, ref).status.is_complete or run.state.status.is_complete:
        return None
    by_hand.cancel(step, ref, by, reason)
    return settled(store, run, step)


def jump(
    store: Store, run: Run, step: Advance, *, ref: str, target: str, context: Mapping[str, Any],
    outputs: Mapping[str, Any], by: str,
) -> list[Change]:  # fmt: skip
    """Leave a stage and go on with another one. Raises StageNotFoundError, and TaskError where that cannot be."""
    stage_of(store, run, ref)
    step.note("jump_asked", ref, to=target, by=by)
    by_hand.jump(step, ref, target, context, outputs)
    return settled(store, run, step)


def settled(store: Store, run: Run, step: Advance, spared: Collection[str] = ()) -> list[Change]:
    """What a step comes to besides the states of the workflow and its stages. Items that are `spared`, by id, are
    left to the caller."""
    if step.cancels:
        return end_all(store, run, step, spared)
    return [*dropped_items(store, run, step.dropped, spared), *new_items(run, step)]


def stage_of(store: Store, run: Run, ref: str) -> StageState:
    """A stage as it stands. Raises StageNotFoundError."""
    check_ref(store, run, ref)
    run.read(store, [ref])
    return run.stage(ref)


def check_ref(store: Store, run: Run, ref: str) -> None:
    """Raises StageNotFoundError for a stage that the workflow has not, neither by its definition nor as an instance."""
    if ref in run.blueprint.plan.stages:
        return
    if instances.base_of(ref) == ref or store.get(STAGE, [f"{run.id}.{ref}"])[0] is None:
        raise StageNotFoundError.among(f"workflow {run.id}", ref, run.blueprint.plan.stages)


def _check_begun(run: Run, asked: WorkflowStatus) -> None:
    status = run.state.status
    if status.is_complete or status in _NOT_BEGUN:
        instead = [WorkflowStatus.CANCELED.value] if status in _NOT_BEGUN else []
        raise InvalidStateTransitionError(f"workflow {run.id}", status.value, asked.value, instead)


def _check_cancelled(run: Run) -> None:
    if run.state.status is WorkflowStatus.CANCELED:
        advice = "fork it to run it again"
        raise InvalidStateTransitionError(f"workflow {run.id}", "CANCELED", "RUNNING", advice=advice)


def _note_code(run: Run, code: str | None) -> None:
    """What begins from now on is for workers with that code."""
    if code is not None:
        check_text("code_version", code)
        run.about = to_json({**from_json(run.about), "code_version": code})


def _note_pause(run: Run, details: PausedDetails) -> None:
    run.about = to_json({**from_json(run.about), "paused": details.to_document()})
