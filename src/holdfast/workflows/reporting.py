"""What the log of a workflow says is told to whoever listens in this process, once it is stored."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from functools import partial
from typing import Any, Final

from holdfast.machine.run import Entry
from holdfast.machine.workflow import S
from holdfast.store.codec import from_json
from holdfast.telemetry.causation import CAUSATION
from holdfast.telemetry.events import GuardEvent
from holdfast.telemetry.hub import Hub
from holdfast.telemetry.tracing import Attributes
from holdfast.workflows.calling import Call
from holdfast.workflows.events import FinalizerRan, TaskBegan, TaskSettled, WorkflowMoved, WorkflowsPruned
from holdfast.workflows.pruning import PruneReport
from holdfast.workflows.run import Run

_ENDED: Final = {
    S.SUCCEEDED: "succeeded", S.SKIPPED: "skipped", S.CANCELED: "canceled", S.STOPPED: "failed", S.TERMINAL: "failed",
    S.FAILED_CONTINUE: "failed",
}  # fmt: skip
_CALLED_AGAIN: Final = {"task_retried": "retried", "task_repeated": "repeated", "task_parked": "parked"}
_MOVES: Final = {"workflow_paused": S.PAUSED, "workflow_resumed": S.RUNNING, "restarted": S.RUNNING}
Function = Callable[..., Any]
_BEGAN: Final = (TaskBegan,)
_STORED: Final = (TaskSettled, WorkflowMoved, FinalizerRan)


class Reporter:
    """Emits the events of `workflows/events.py`."""

    def __init__(self, hub: Hub) -> None:
        self._hub = hub
        self._known: tuple[Any, Any, dict[tuple[type[GuardEvent], ...], bool]] = ((), (), {})

    def _wants(self, kinds: tuple[type[GuardEvent], ...]) -> bool:
        """Whether anybody listens to such events, which are not made otherwise. Asked anew when others listen."""
        hub, (loud, quiet, answers) = self._hub, self._known
        if loud is not hub.loud_sinks or quiet is not hub.quiet_sinks:
            answers = {}
            self._known = (hub.loud_sinks, hub.quiet_sinks, answers)
        found = answers.get(kinds)
        if found is None:
            found = answers[kinds] = any(map(hub.hears, kinds))
        return found

    def began(self, call: Call) -> None:
        if self._wants(_BEGAN):
            item = call.item
            self._hub.emit(TaskBegan(item.type, call.idempotency_key, item.workflow, item.ref, item.attempt))

    def traced(self, call: Call, function: Function) -> Function:
        """The function of a task, in a span where somebody makes spans: also of a workflow that it asks for."""
        spans = self._hub.spans
        if spans is None:
            return function
        item, opens = call.item, partial(spans.open, f"task {call.task.name}", call.caused_by)
        about: dict[str, str | int] = {
            "workflow.id": item.workflow, "workflow.stage": item.ref, "workflow.task": call.task.name,
            "workflow.attempt": item.attempt, CAUSATION.name: call.cause,
        }  # fmt: skip
        return (_acalled if call.task.is_async else _called)(opens, about, function, call.bred)

    def stored(self, told: Iterable[tuple[Run, Iterable[Entry]]]) -> None:
        """These entries of the logs of workflows are in the store."""
        if self._wants(_STORED):
            for run, entries in told:
                for entry in entries:
                    event = _event_of(run, from_json(entry) if isinstance(entry, str) else entry)
                    if event is not None:
                        self._hub.emit(event)

    def pruned(self, report: PruneReport) -> None:
        if report.pruned:
            self._hub.emit(WorkflowsPruned("", "", report.pruned, sum(report.kept.values())))


def _called(opens: Function, about: Attributes, function: Function, bred: Function) -> Function:
    def call(*args: Any, **kwargs: Any) -> Any:
        with opens(about):
            return bred(function(*args, **kwargs))

    return call


def _acalled(opens: Function, about: Attributes, function: Function, bred: Function) -> Function:
    async def call(*args: Any, **kwargs: Any) -> Any:
        with opens(about):
            return bred(await function(*args, **kwargs))

    return call


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
