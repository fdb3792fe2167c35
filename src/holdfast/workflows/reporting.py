"""What the log of a workflow says is told to whoever listens in this process, once it is stored."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Final

from holdfast.machine.workflow import WorkflowStatus
from holdfast.telemetry.events import GuardEvent
from holdfast.telemetry.hub import Hub
from holdfast.workflows.calling import Call
from holdfast.workflows.events import FinalizerRan, TaskBegan, TaskSettled, WorkflowMoved, WorkflowsPruned
from holdfast.workflows.pruning import PruneReport
from holdfast.workflows.run import Run

S: Final = WorkflowStatus
_ENDED: Final = {
    S.SUCCEEDED: "succeeded", S.SKIPPED: "skipped", S.CANCELED: "canceled", S.STOPPED: "failed", S.TERMINAL: "failed",
    S.FAILED_CONTINUE: "failed",
}  # fmt: skip
_CALLED_AGAIN: Final = {"task_retried": "retried", "task_repeated": "repeated", "task_parked": "parked"}
_MOVES: Final = {"workflow_paused": S.PAUSED, "workflow_resumed": S.RUNNING, "restarted": S.RUNNING}
_ALL: Final = (TaskSettled, WorkflowMoved, FinalizerRan)


class Reporter:
    """Emits the events of `workflows/events.py`."""

    def __init__(self, hub: Hub) -> None:
        self._hub = hub

    def _wants(self, *kinds: type[GuardEvent]) -> bool:
        """Whether anybody listens to such events, which are not made otherwise."""
        for sink in (*self._hub.loud_sinks, *self._hub.quiet_sinks):
            if sink.wants is None or any(issubclass(kind, sink.wants) for kind in kinds):
                return True
        return False

    def began(self, call: Call) -> None:
        if self._wants(TaskBegan):
            item = call.item
            self._hub.emit(TaskBegan(item.type, call.context.idempotency_key, item.workflow, item.ref, item.attempt))

    def stored(self, run: Run, entries: Iterable[Mapping[str, Any]]) -> None:
        """These entries of a workflow's log are in the store."""
        if self._wants(*_ALL):
            for entry in entries:
                if (event := _event_of(run, entry)) is not None:
                    self._hub.emit(event)

    def pruned(self, report: PruneReport) -> None:
        if report.pruned:
            self._hub.emit(WorkflowsPruned("", "", report.pruned, sum(report.kept.values())))


def _event_of(run: Run, entry: Mapping[str, Any]) -> GuardEvent | None:
    kind, ref, id, error = entry["type"], entry.get("stage") or "", run.id, entry.get("error")
    if kind == "task_ended":
        return TaskSettled(
            _type(run, ref, entry["task"]), "", id, ref, _ENDED[S(entry["status"])], entry["attempt"], error=error
        )
    if kind in _CALLED_AGAIN:
        return TaskSettled(
            _type(run, ref, entry["task"]), "", id, ref, _CALLED_AGAIN[kind], entry["attempt"], entry["delay"], error
        )
    if kind == "stage_suspended":
        return TaskSettled(_type(run, ref, entry["task"]), "", id, ref, "suspended", delay_s=entry["delay"])
    if kind == "workflow_ended":
        return WorkflowMoved(run.record.name, "", id, entry["status"], entry.get("reason"))
    if kind in _MOVES:
        return WorkflowMoved(run.record.name, "", id, _MOVES[kind].value)
    if kind == "finalizer_ended":
        return FinalizerRan(entry["name"], "", id, ref, entry["status"], entry["attempt"], error)
    if kind == "finalizer_lost":
        return FinalizerRan(entry["name"], "", id, ref, "LOST", error=error)
    return None


def _type(run: Run, ref: str, at: int) -> str:
    return run.blueprint.plan.stages[ref].tasks[at].type
