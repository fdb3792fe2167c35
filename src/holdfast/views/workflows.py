"""Workflows, their stages, logs and times, schedules, and what nobody could do anything with."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any, Final

from holdfast.machine.workflow import COMPLETE, S
from holdfast.views.plain import masked, plain
from holdfast.workflows.assembly import CHILD as AWAITED
from holdfast.workflows.assembly import REASON, WAITS_FOR
from holdfast.workflows.children import CHILD
from holdfast.workflows.dead import DeadItem
from holdfast.workflows.finalizers import Finalizer
from holdfast.workflows.history import LogEntry
from holdfast.workflows.model import Workflow
from holdfast.workflows.reading import TaskInHand
from holdfast.workflows.schedule import WorkflowSchedule
from holdfast.workflows.stage import StageExecution

Work = Mapping[str, Sequence[TaskInHand]]
"""What is to be done, by stage."""


def workflow_document(workflow: Workflow, *, reveal: bool = False) -> dict[str, Any]:
    """The workflow with its stages; `reveal` leaves it as it was kept."""
    shown: dict[str, Any] = plain(workflow)
    shown["stages"] = [stage_document(stage, reveal=reveal) for stage in workflow.stages]
    return shown if reveal else {**shown, "context": masked(shown["context"]), "trigger": masked(shown["trigger"])}


def stage_document(stage: StageExecution, *, reveal: bool = False) -> dict[str, Any]:
    """The stage with its tasks; `reveal` leaves it as it was kept."""
    shown: dict[str, Any] = plain(stage)
    tasks = [_task_document(task) for task in shown["tasks"]]
    sets = {name: sorted(shown[name]) for name in ("requisite_stage_ref_ids", "cancel_region")}
    shown = {**shown, **sets, "tasks": tasks}
    return shown if reveal else {**shown, "context": masked(shown["context"]), "outputs": masked(shown["outputs"])}


def _task_document(task: Mapping[str, Any]) -> dict[str, Any]:
    policy = task["retry_policy"]
    return {**task, "retry_policy": policy.model_dump(mode="json") if hasattr(policy, "model_dump") else policy}


def entry_document(entry: LogEntry) -> dict[str, Any]:
    """An entry of a log."""
    return {**plain(entry), "facts": masked(plain(dict(entry.facts)))}


def dead_document(one: DeadItem, *, reveal: bool = False) -> dict[str, Any]:
    """A dead item with what it was to do; `reveal` leaves that as it was kept."""
    shown: dict[str, Any] = {name: plain(getattr(one, name)) for name in DeadItem.__slots__}
    return {**shown, "stage": one.stage, "payload": shown["payload"] if reveal else masked(shown["payload"])}


def schedule_document(one: WorkflowSchedule, *, reveal: bool = False) -> dict[str, Any]:
    """A schedule with its input; `reveal` leaves that as it was kept."""
    shown: dict[str, Any] = plain(one)
    return shown if reveal else {**shown, "args": masked(shown["args"]), "kwargs": masked(shown["kwargs"])}


def finalizer_document(one: Finalizer) -> dict[str, Any]:
    """A finalizer with its arguments."""
    return {**plain(one), "args": masked(plain(dict(one.args)))}


def by_stage(found: Iterable[TaskInHand]) -> Work:
    """What is to be done for a workflow, by stage."""
    work: dict[str, list[TaskInHand]] = {}
    for one in found:
        work.setdefault(one.stage, []).append(one)
    return work


@dataclass(frozen=True, slots=True)
class Awaits:
    """What a stage waits for. `kind` is signal, workflow, time, worker, attempt, hold or turn."""

    kind: str
    words: str
    due_at: datetime | None = None
    """When that is over in any case."""


def awaited(stage: StageExecution, work: Sequence[TaskInHand], now: datetime) -> Awaits | None:
    """What a stage waits for; None: it has ended, or is being worked on."""
    if stage.status is S.SUSPENDED:
        return _suspended(stage, _due(work))
    if stage.status in COMPLETE:
        return None
    if stage.status is not S.RUNNING:
        reason = str(stage.engine_state.get(REASON, ""))
        return Awaits("turn", reason, _due(work)) if reason else None
    calls = [one for one in work if one.kind == "run"]
    if not calls or any(one.owner is not None for one in calls):
        return None
    due = _due(calls)
    if due is None:
        return Awaits("hold", "held")
    return Awaits("worker", "waits for a worker") if due <= now else Awaits("attempt", "is tried again", due)


def _suspended(stage: StageExecution, due: datetime | None) -> Awaits:
    child, signal = stage.engine_state.get(AWAITED), stage.engine_state.get(WAITS_FOR)
    if child is not None:
        return Awaits("workflow", f"waits for workflow {child}", due)
    if signal is None:
        return Awaits("time", "waits", due)
    return Awaits("signal", "waits for a signal" if signal == "*" else f"waits for signal {signal!r}", due)


def _due(work: Sequence[TaskInHand]) -> datetime | None:
    return min((one.due_at for one in work if one.due_at is not None), default=None)


def trouble_of(stage: StageExecution) -> str:
    """The first error of its tasks, in words."""
    error = next((task.task_exception_details for task in stage.tasks if task.task_exception_details), {})
    return ": ".join(str(part) for part in (error.get("type"), error.get("message")) if part)


def ended_because(stage: StageExecution) -> str:
    """Why a stage ended as it did, where there is something to say."""
    child = stage.outputs.get(CHILD)
    told = f"workflow {child.get('id')} {child.get('status')}" if isinstance(child, Mapping) else ""
    cause = f"{stage.skip_cause}: " if stage.skip_cause is not None else ""
    trouble = "" if stage.status is S.SUCCEEDED else trouble_of(stage)  # what was tried again in the end
    return trouble or told or f"{cause}{stage.engine_state.get(REASON, '')}".strip(": ")


@dataclass(slots=True)
class Bar:
    """A length of time of a stage. `kind` is run (from when it could be called) or wait; `end` is None: still so."""

    kind: str
    start: datetime
    end: datetime | None = None
    task: int = 0
    attempt: int = 1
    outcome: str = ""
    note: str = ""


@dataclass(slots=True)
class Lane:
    """One incarnation of a stage, from its start to its end, and what it spent the time on."""

    stage: str
    incarnation: int
    start: datetime
    end: datetime | None = None
    status: str = S.RUNNING.value
    bars: list[Bar] = field(default_factory=list)


_REPEATED: Final = frozenset({"task_retried", "task_repeated", "task_parked"})
_ANEW: Final = frozenset({"jumped", "restarted"})
_OVER: Final = {"stage_skipped": S.SKIPPED.value, "stage_canceled": S.CANCELED.value}


def lanes_of(entries: Iterable[LogEntry], work: Work, now: datetime) -> list[Lane]:
    """The times of stages, as the first entries of a log tell them, in the order of their starts. `work` is what is to
    be done now."""
    lanes: list[Lane] = []
    open: dict[str, Lane] = {}
    for entry in entries:
        if entry.type == "workflow_ended":
            for lane in open.values():
                _close(lane, entry.at, str(entry.facts.get("status", "")))
            open.clear()
        elif entry.type in _ANEW:
            for name in open.keys() & {*map(str, entry.facts.get("reset") or ())}:
                status = S.SUCCEEDED if name == entry.stage else S.CANCELED
                _close(open.pop(name), entry.at, status.value)
        elif entry.stage is not None and entry.type in ("stage_started", "stage_buffered"):
            if entry.stage not in open:
                before = sum(lane.stage == entry.stage for lane in lanes)
                open[entry.stage] = Lane(entry.stage, before + 1, entry.at)
                lanes.append(open[entry.stage])
            _bar(open[entry.stage], entry)
        elif entry.stage in open and entry.stage is not None:
            lane = open[entry.stage]
            if entry.type == "stage_ended" or entry.type in _OVER:
                _close(lane, entry.at, _OVER.get(entry.type) or str(entry.facts.get("status", "")))
                del open[entry.stage]
            else:
                _bar(lane, entry)
    for lane in open.values():
        _wait(lane, work.get(lane.stage, ()), now)
    return lanes


def _wait(lane: Lane, work: Sequence[TaskInHand], now: datetime) -> None:
    """What seems to run waits, if nobody has it in hand. Of what has ended the log does not tell that."""
    calls, bar = [one for one in work if one.kind == "run"], lane.bars[-1]
    if bar.kind != "run" or not calls or any(one.owner is not None for one in calls):
        return
    if bar.start > now:  # the wait before it has not ended
        lane.bars.pop()
    else:
        bar.kind, bar.note = "wait", "to be resumed" if _due(calls) is None else "a worker"


def _bar(lane: Lane, entry: LogEntry) -> None:
    """What an entry means to the times of a stage that is under way."""
    facts, at = entry.facts, entry.at
    if entry.type == "stage_buffered":
        lane.bars.append(Bar("wait", at, note=str(facts.get("reason") or "waits for its turn")))
    elif entry.type in ("stage_started", "stage_resumed"):
        _end_bar(lane, at)
        lane.bars.append(Bar("run", at, task=_task(lane)))
    elif entry.type in _REPEATED:
        number, again = int(facts.get("attempt") or 1), at + timedelta(seconds=float(facts.get("delay") or 0))
        what = entry.type.removeprefix("task_")
        _end_bar(lane, at, number, what, str(facts.get("error") or ""))
        task = int(facts.get("task") or 0)
        if again > at:
            lane.bars.append(Bar("wait", at, again, task, number, what, str(facts.get("error") or "")))
        lane.bars.append(Bar("run", again, task=task, attempt=number + 1))
    elif entry.type == "stage_suspended":
        _end_bar(lane, at, outcome="suspended")
        signal = facts.get("waits_for")
        note = f"signal {signal}" if signal else f"workflow {facts['child']}" if facts.get("child") else "time"
        lane.bars.append(Bar("wait", at, task=int(facts.get("task") or 0), note=note))
    elif entry.type == "task_ended":
        _end_bar(lane, at, int(facts.get("attempt") or 1), str(facts.get("status", "")), str(facts.get("error") or ""))
        lane.bars.append(Bar("run", at, task=int(facts.get("task") or 0) + 1))


def _task(lane: Lane) -> int:
    return lane.bars[-1].task if lane.bars else 0


def _end_bar(lane: Lane, at: datetime, attempt: int | None = None, outcome: str = "", note: str = "") -> None:
    if lane.bars and lane.bars[-1].end is None:
        bar = lane.bars[-1]
        bar.end = max(at, bar.start)
        bar.attempt = bar.attempt if attempt is None else max(1, attempt)
        bar.outcome, bar.note = outcome or bar.outcome, note or bar.note


def _close(lane: Lane, at: datetime, status: str) -> None:
    if lane.bars and lane.bars[-1].end is None and lane.bars[-1].start >= at and len(lane.bars) > 1:
        lane.bars.pop()  # what would have come after the last task, or another attempt that was not made
    _end_bar(lane, at, outcome=status)
    lane.end, lane.status = at, status
