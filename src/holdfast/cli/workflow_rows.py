"""What commands about workflows show of one: rows of tables, and documents."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any, Final

from holdfast.cli.exits import NotFound, WrongUsage
from holdfast.cli.output import Column, masked, plain
from holdfast.cli.session import Session
from holdfast.cli.times import iso, until
from holdfast.errors import WorkflowNotFoundError
from holdfast.machine.workflow import COMPLETE, WorkflowStatus
from holdfast.workflows.assembly import CHILD as AWAITED
from holdfast.workflows.assembly import REASON, WAITS_FOR
from holdfast.workflows.children import CHILD
from holdfast.workflows.history import LogEntry
from holdfast.workflows.lengths import took
from holdfast.workflows.model import Workflow
from holdfast.workflows.reading import TaskInHand
from holdfast.workflows.records import WorkflowRecord
from holdfast.workflows.stage import StageExecution

STAGES: Final = (
    Column("stage", gives=True), Column("status"), Column("took", right=True),
    Column("tries", right=True, optional=True), Column("note", gives=True),
)  # fmt: skip
LOG: Final = (
    Column("seq", right=True),
    Column("at"),
    Column("what"),
    Column("stage", gives=True),
    Column("facts", gives=True),
)

Work = Mapping[str, Sequence[TaskInHand]]


def json_of(option: str, text: str) -> Any:
    """What an option says. Raises WrongUsage for what is not JSON."""
    try:
        return json.loads(text)
    except ValueError as error:
        raise WrongUsage(f"{option} must be JSON, got {text!r}: {error}") from None


def arguments_of(given: str) -> tuple[list[Any], dict[str, Any]]:
    """The input of a workflow, by place or by name. Raises WrongUsage for anything else."""
    input = json_of("--input", given)
    if not isinstance(input, dict | list):
        raise WrongUsage(f'--input must be {{…}} or […], got {given}; for instance {{"order": {{"id": 7}}}}')
    return ([], input) if isinstance(input, dict) else (input, {})


def find_record(session: Session, id: str) -> WorkflowRecord:
    """What is kept of the workflow. Raises NotFound."""
    try:
        return session.workflows.record(id)
    except WorkflowNotFoundError:
        raise NotFound(f"there is no workflow {id}; `holdfast workflow list` shows them") from None


def find_workflow(session: Session, id: str) -> Workflow:
    """The workflow. Raises NotFound."""
    find_record(session, id)
    return session.workflows.workflow(id)


def workflow_document(workflow: Workflow) -> dict[str, Any]:
    """The workflow for a JSON document, with what is secret masked."""
    shown: dict[str, Any] = plain(workflow)
    stages = [stage_document(stage) for stage in workflow.stages]
    return {**shown, "context": masked(workflow.context), "trigger": masked(shown["trigger"]), "stages": stages}


def entry_document(entry: LogEntry) -> dict[str, Any]:
    return {**plain(entry), "facts": masked(dict(entry.facts))}


def log_row(entry: LogEntry) -> Sequence[Any]:
    """An entry's line in a table: the status first, and no first attempts."""
    told = {name: value for name, value in entry.facts.items() if value not in (None, "", [])}
    said = [str(told.pop("status"))] if "status" in told else []
    if told.get("attempt") in (0, 1):
        del told["attempt"]
    said += [
        f"{name} {', '.join(map(str, value)) if isinstance(value, list) else value}" for name, value in told.items()
    ]
    return entry.seq, iso(entry.at)[11:23], entry.type, entry.stage, ", ".join(said)


def work_of(session: Session, id: str) -> Work:
    """What is to be done for a workflow, by stage."""
    found: dict[str, list[TaskInHand]] = {}
    for one in session.workflows.work(id):
        found.setdefault(one.stage, []).append(one)
    return found


def stage_row(stage: StageExecution, work: Work, now: datetime, stranded: Mapping[str, str] = {}) -> Sequence[Any]:
    """A stage's line in a table."""
    tries = max((task.attempt for task in stage.tasks), default=0)
    return stage.ref_id, stage.status, stage_took(stage, now), tries or "", stage_note(stage, work, now, stranded)


def stage_note(stage: StageExecution, work: Work, now: datetime, stranded: Mapping[str, str] = {}) -> str:
    """What there is to say of a stage: why it ended so, or what it waits for; `stranded` says for whom in vain."""
    error = next((task.task_exception_details for task in stage.tasks if task.task_exception_details), {})
    told = ": ".join(str(part) for part in (error.get("type"), error.get("message")) if part)
    if stage.status in COMPLETE:
        told = told or _child(stage)
        cause = f"{stage.skip_cause}: " if stage.skip_cause is not None else ""
        return told or f"{cause}{stage.engine_state.get(REASON, '')}".strip(": ")
    said = [_waits(stage, work.get(stage.ref_id, ()), now), stranded.get(stage.ref_id, ""), told]
    if stage.incarnation > 1:
        said.insert(0, f"incarnation {stage.incarnation}")
    return ", ".join(part for part in said if part)


def _child(stage: StageExecution) -> str:
    """What became of the workflow that it has started."""
    child = stage.outputs.get(CHILD)
    return f"workflow {child.get('id')} {child.get('status')}" if isinstance(child, Mapping) else ""


def _waits(stage: StageExecution, work: Sequence[TaskInHand], now: datetime) -> str:
    if stage.status is WorkflowStatus.SUSPENDED:
        due = _due(work)
        name = _awaited(stage.engine_state.get(AWAITED), stage.engine_state.get(WAITS_FOR))
        return name if due is None else f"{name}, {until(due, now)} left"
    if stage.status is not WorkflowStatus.RUNNING:
        return str(stage.engine_state.get(REASON, ""))
    calls = [one for one in work if one.kind == "run"]
    if not calls or any(one.owner is not None for one in calls):
        return ""
    due = _due(calls)
    if due is None:
        return "held"
    return "waits for a worker" if due <= now else f"again in {until(due, now)}"


def _awaited(child: str | None, signal: str | None) -> str:
    if child is not None:
        return f"waits for workflow {child}"
    return "waits" if signal is None else "waits for a signal" if signal == "*" else f"waits for signal {signal!r}"


def _due(work: Sequence[TaskInHand]) -> datetime | None:
    return min((one.due_at for one in work if one.due_at is not None), default=None)


def stage_took(stage: StageExecution, now: datetime) -> str:
    """How long it took, or has taken by now."""
    return took(stage.start_time, stage.end_time, None if stage.status in COMPLETE else now)


def stage_document(stage: StageExecution) -> dict[str, Any]:
    """The stage for a JSON document, with what is secret masked."""
    shown: dict[str, Any] = plain(stage)
    tasks = [_task_document(task) for task in shown["tasks"]]
    sets = {name: sorted(shown[name]) for name in ("requisite_stage_ref_ids", "cancel_region")}
    return {**shown, **sets, "context": masked(stage.context), "outputs": masked(stage.outputs), "tasks": tasks}


def _task_document(task: Mapping[str, Any]) -> dict[str, Any]:
    policy = task["retry_policy"]
    return {**task, "retry_policy": policy.model_dump(mode="json") if hasattr(policy, "model_dump") else policy}
