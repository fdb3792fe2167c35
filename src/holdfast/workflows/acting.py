"""What each message does to its workflow: a step of the machine, as an operator's would be.

An act gives the changes besides those of the workflow itself, or None: there is nothing to do.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final

from holdfast.errors import TaskError
from holdfast.machine import by_hand, gates
from holdfast.machine.run import Advance
from holdfast.machine.workflow import WorkflowStatus
from holdfast.store.codec import plain, to_json
from holdfast.store.port import Change, Store, Swap
from holdfast.store.query import among, equal
from holdfast.store.record import evolve
from holdfast.workflows import control, messages
from holdfast.workflows.ending import end_all
from holdfast.workflows.lines import waits_in_line
from holdfast.workflows.mending import mend
from holdfast.workflows.records import ITEM
from holdfast.workflows.run import Run
from holdfast.workflows.signals import Signal, send

Act = Callable[[Store, Run, Advance, Any, int], "list[Change] | None"]
"""The last argument is how many signals a workflow may keep."""


def start_workflow(store: Store, run: Run, step: Advance, message: messages.StartWorkflow, _: int) -> Any:
    if run.state.status is not WorkflowStatus.NOT_STARTED:
        return None
    if not waits_in_line(store, run, step):
        step.start()
    return control.settled(store, run, step)


def look_again(store: Store, run: Run, step: Advance, message: messages.Message, _: int) -> Any:
    """Whatever can go on goes on."""
    if isinstance(message, messages.StageMessage):
        control.check_ref(store, run, message.ref)
    return mend(store, run, step)[1] or None


def cancel_workflow(store: Store, run: Run, step: Advance, message: messages.CancelWorkflow, _: int) -> Any:
    if run.state.status.is_complete:
        return None
    step.cancel(message.reason, message.user)
    return end_all(store, run, step, ())


def start_stage(store: Store, run: Run, step: Advance, message: messages.StartStage, _: int) -> Any:
    stage = control.stage_of(store, run, message.ref)
    if stage.status is not WorkflowStatus.NOT_STARTED or run.state.status is not WorkflowStatus.RUNNING:
        return None
    step.consider(stage)
    if stage.status is WorkflowStatus.NOT_STARTED:
        return None
    step.end_if_over()
    return control.settled(store, run, step)


def skip_stage(store: Store, run: Run, step: Advance, message: messages.SkipStage, _: int) -> Any:
    return control.skip(store, run, step, ref=message.ref, by=message.user)


def cancel_stage(store: Store, run: Run, step: Advance, message: messages.CancelStage, _: int) -> Any:
    return control.cancel_stage(store, run, step, ref=message.ref, by="message")


def restart_stage(store: Store, run: Run, step: Advance, message: messages.RestartStage, _: int) -> Any:
    return control.restart(store, run, step, ref=message.ref, by=message.user)


def pause(store: Store, run: Run, step: Advance, message: messages.PauseTask, _: int) -> Any:
    control.check_ref(store, run, message.ref)
    return control.pause(store, run, step, by=message.user, reason=f"asked for stage {message.ref!r}")


def cancel_region(store: Store, run: Run, step: Advance, message: messages.CancelRegion, _: int) -> Any:
    stage = control.stage_of(store, run, message.ref)
    if not stage.plan.cancel_region:
        raise TaskError(f"stage {message.ref!r} of workflow {run.id} has no cancel_region")
    if run.state.status.is_complete:
        return None
    gates.clear_region(step, stage)
    step.end_if_over()
    return control.settled(store, run, step) if step.changed else None


def jump(store: Store, run: Run, step: Advance, message: messages.JumpToStage, _: int) -> Any:
    return control.jump(
        store, run, step, ref=message.ref, target=message.target_stage_ref_id,
        context=plain(message.jump_context), outputs=plain(message.jump_outputs), by="message",
    )  # fmt: skip


def signal(store: Store, run: Run, step: Advance, message: messages.SignalStage, most: int) -> Any:
    sent = Signal(message.signal_name, to_json(message.signal_data), message.ref or None, message.persistent)
    return send(store, run, step, sent, most)[1]


def add_instance(store: Store, run: Run, step: Advance, message: messages.AddMultiInstance, _: int) -> Any:
    items = [plain(message.instance_context)]
    return control.add_instances(store, run, step, ref=message.ref, items=items, by="message")


def run_task(store: Store, run: Run, step: Advance, message: messages.TaskMessage, most: int) -> Any:
    """What waits for its next try is due now; a task that nobody would run gets an item."""
    _task_of(store, run, message)
    if (sooner := _sooner(store, run, step, message.ref, ("run",))) is None:
        return look_again(store, run, step, message, most)
    return sooner or None


def complete_task(store: Store, run: Run, step: Advance, message: messages.CompleteTask, _: int) -> Any:
    _task_of(store, run, message)
    error = None if message.error is None else {"type": "CompleteTask", "message": message.error}
    by_hand.end_task(step, message.ref, message.status, plain(message.outputs), plain(message.context), error)
    return control.settled(store, run, step)


def fire_timer(store: Store, run: Run, step: Advance, message: messages.FireTimer, _: int) -> Any:
    control.check_ref(store, run, message.ref)
    sooner = _sooner(store, run, step, message.ref, ("wait", "start"))
    if sooner is None:
        raise TaskError(f"stage {message.ref!r} of workflow {run.id} waits for no time")
    return sooner or None


def _sooner(store: Store, run: Run, step: Advance, ref: str, kinds: tuple[str, ...]) -> list[Change] | None:
    """What a stage waits for is due now; nothing if it is already, None if it waits for nothing of the kind."""
    where = (*equal(workflow=run.id, ref=ref), among("kind", kinds))
    items = store.page(ITEM, where, by="id", limit=100)
    if not items:
        return None
    late = [item for item in items if item.owner is None and (item.due_at is None or item.due_at > step.now)]
    if run.state.status is WorkflowStatus.PAUSED:
        late = []
    for item in late:
        step.note("made_due", ref, what=item.kind)
    return [Swap(ITEM, item, evolve(item, due_at=step.now)) for item in late]


def _task_of(store: Store, run: Run, message: messages.TaskMessage) -> None:
    """Raises TaskError if the task that is meant is not the one under way."""
    stage = control.stage_of(store, run, message.ref)
    asked = message.task_id.removeprefix(f"{run.id}.{message.ref}.")
    now = "" if stage.at >= len(stage.plan.tasks) else stage.plan.tasks[stage.at].name
    if asked and asked not in (str(stage.at), now):
        raise TaskError(f"stage {message.ref!r} is at task {stage.at} ({now!r}), and not at {message.task_id!r}")


ACTS: Final[Mapping[str, Act]] = {
    "StartWorkflow": start_workflow, "CompleteWorkflow": look_again, "CancelWorkflow": cancel_workflow,
    "CancelRegion": cancel_region, "StartStage": start_stage, "CompleteStage": look_again, "SkipStage": skip_stage,
    "CancelStage": cancel_stage, "RestartStage": restart_stage,
    "ContinueParentStage": look_again, "JumpToStage": jump, "SignalStage": signal, "AddMultiInstance": add_instance,
    "StartTask": run_task, "RunTask": run_task, "CompleteTask": complete_task, "PauseTask": pause,
    "FireTimer": fire_timer,
}  # fmt: skip
"""By the name of the message. What needs more than the workflow has a handler elsewhere."""
