"""A stage as somebody has changed it in his own memory, made a step of its workflow."""

from __future__ import annotations

from typing import Any, Final

from holdfast.errors import ConcurrencyError, InvalidValue, StageNotFoundError, TaskError
from holdfast.machine import by_hand
from holdfast.machine.run import Advance, Part, StageState
from holdfast.machine.workflow import WorkflowStatus
from holdfast.store.codec import plain
from holdfast.store.port import Store
from holdfast.workflows.control import check_ref
from holdfast.workflows.run import Run
from holdfast.workflows.stage import StageExecution
from holdfast.workflows.task_run import TaskExecution

_NOT_BEGUN: Final = (WorkflowStatus.NOT_STARTED, WorkflowStatus.BUFFERED)


def workflow_of(stage: StageExecution) -> str:
    """The id of a stage's workflow. Raises StageNotFoundError for a stage that is part of none."""
    if stage._workflow is not None:  # its other half
        return stage._workflow.id
    if stage.id.endswith(f".{stage.ref_id}"):
        return stage.id.removesuffix(f".{stage.ref_id}")
    raise StageNotFoundError(f"{stage.label} is part of no workflow; store one that was retrieved")


def put_stage(
    store: Store, run: Run, step: Advance, stage: StageExecution, expected_phase: WorkflowStatus | None
) -> None:
    """Let the stage stand as it is given, and let follow what follows from that.

    Raises ConcurrencyError when it is not as it was read, or not in the phase that is expected; InvalidStateTransition-
    Error, TaskError and StageNotFoundError for what cannot be.
    """
    ref = stage.ref_id
    check_ref(store, run, ref)
    run.read(store, [ref])
    state, version = run.stage(ref), run.version_of(ref)
    if version != stage.version or expected_phase not in (None, state.status):
        raise stale(stage, expected_phase, (state.status.name, version))
    if stage.status is not state.status and run.state.status in _NOT_BEGUN:
        story = f"workflow {run.id} is {run.state.status.value}, so {stage.label} cannot be {stage.status.value}"
        raise TaskError(f"{story}; push a StartWorkflow first")
    step.touch(ref)
    state.context = plain(dict(stage.context), f"{stage.label}.context")
    state.outputs = plain(stage.outputs, f"{stage.label}.outputs")
    step.note("stage_stored", ref, status=stage.status.value)
    ended = _ended_task(stage, state)
    if ended is not None and stage.status is state.status:
        by_hand.end_task(step, ref, ended.status, {}, {}, dict(ended.task_exception_details) or None)
    else:
        by_hand.put(step, ref, stage.status)


def stale(stage: StageExecution, phase: WorkflowStatus | None, found: tuple[str, int]) -> ConcurrencyError:
    expected = (None if phase is None else phase.name, stage.version)
    wanted = f"version {stage.version}" + ("" if phase is None else f" and {phase.name}")
    return ConcurrencyError(
        f"{stage.label} was expected at {wanted}, and found at version {found[1]} and {found[0]}; read it again",
        expected=expected,
        found=found,
    )


def phase_of(given: WorkflowStatus | str | None) -> WorkflowStatus | None:
    """Raises ValueError for what is no phase."""
    if given is None or given in frozenset(WorkflowStatus):
        return None if given is None else WorkflowStatus(given)
    raise InvalidValue(f"expected_phase must be one of {', '.join(WorkflowStatus)}, got {given!r}")


def _ended_task(stage: StageExecution, state: StageState) -> TaskExecution | None:
    """The task under way, if it has ended by what is given. Raises TaskError for another one that is not as it was."""
    found: TaskExecution | None = None
    for at, (task, kept) in enumerate(zip(stage.tasks, state.tasks, strict=True)):
        shown: Any = kept.status
        if not task.status.is_complete or task.status is shown:
            continue
        if at != state.at or state.part is not Part.TASKS or not state.status.is_active:
            raise TaskError(f"{task.label} of {stage.label} is not under way, and cannot be {task.status.value}")
        found = task
    return found
