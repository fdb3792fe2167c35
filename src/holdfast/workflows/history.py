"""The log of a workflow: what happened, numbered, and how everything stood after any of it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final

from holdfast.machine.run import StagePlan
from holdfast.machine.workflow import COMPLETE, S, WorkflowStatus
from holdfast.store.codec import from_json, instant
from holdfast.workflows.records import EventRecord

_STAGE_BECOMES: Final = {
    "stage_started": S.RUNNING, "stage_resumed": S.RUNNING, "stage_suspended": S.SUSPENDED, "stage_skipped": S.SKIPPED,
    "stage_canceled": S.CANCELED, "stage_buffered": S.BUFFERED,
}  # fmt: skip
_BEGINS: Final = frozenset({"stage_started", "stage_buffered", "stage_skipped"})
_WORKFLOW_BECOMES: Final = {
    "workflow_started": S.RUNNING, "workflow_resumed": S.RUNNING, "workflow_paused": S.PAUSED,
    "workflow_stored": S.NOT_STARTED, "workflow_buffered": S.BUFFERED, "workflow_admitted": S.RUNNING,
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class LogEntry:
    """Something that happened to a workflow. What happened in one transaction has one `seq`."""

    seq: int
    at: datetime
    type: str
    stage: str | None
    facts: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class PastStage:
    """Where a stage stood."""

    status: WorkflowStatus = S.NOT_STARTED
    incarnation: int = 1


@dataclass(frozen=True, slots=True)
class PastState:
    """Where a workflow and its stages stood once the transaction `seq` was written."""

    seq: int
    at: datetime | None
    """When that was; None before the first one."""
    status: WorkflowStatus
    stages: Mapping[str, PastStage]


def entries_of(record: EventRecord) -> list[LogEntry]:
    """What one transaction says, in its order."""
    seq, at = int(record.id.rpartition(".")[2]), instant(record.at)
    return [
        LogEntry(seq, at, one["type"], one.get("stage"), {k: v for k, v in one.items() if k not in ("type", "stage")})
        for one in from_json(record.events)
    ]


def state_after(plans: Mapping[str, StagePlan], entries: Iterable[LogEntry]) -> PastState:
    """How everything stood after these entries, which are the first ones of a log."""
    stages = dict.fromkeys(plans, PastStage())
    status, seq, at = S.NOT_STARTED, 0, None
    for entry in entries:
        seq, at = entry.seq, entry.at
        status = _workflow_after(status, entry)
        for ref in _with_parts(plans, _begun_anew(stages, entry)):
            stages[ref] = _reset(stages[ref])
        if entry.stage is not None:  # an instance of a stage is not there before it begins
            stages[entry.stage] = _after(stages.get(entry.stage, PastStage()), entry)
    return PastState(seq, at, status, stages)


def _workflow_after(status: WorkflowStatus, entry: LogEntry) -> WorkflowStatus:
    if entry.type == "workflow_ended":
        return WorkflowStatus(entry.facts["status"])
    if entry.type == "restarted" and status in COMPLETE:
        return S.RUNNING
    return _WORKFLOW_BECOMES.get(entry.type, status)


def _begun_anew(stages: Mapping[str, PastStage], entry: LogEntry) -> Iterable[str]:
    """The stages of which there is another incarnation: those of a jump or a restart, or one that had ended and has
    its turn once more, for another stage before it."""
    stage = stages.get(entry.stage or "")
    if entry.stage is not None and stage is not None and entry.type in _BEGINS and stage.status in COMPLETE:
        return [entry.stage]
    reset: Iterable[str] = entry.facts.get("reset", ())
    return reset


def _with_parts(plans: Mapping[str, StagePlan], refs: Iterable[str]) -> dict[str, None]:
    """These stages, and those that belong to them, once each."""
    found: dict[str, None] = {}
    left = [*refs]
    while left:
        ref = left.pop()
        if ref not in found:
            found[ref] = None
            left += [one for parts in plans[ref].children.values() for one in parts]
    return found


def _after(stage: PastStage, entry: LogEntry) -> PastStage:
    if entry.type == "stage_ended":
        return PastStage(WorkflowStatus(entry.facts["status"]), stage.incarnation)
    if entry.type == "task_ended" and stage.status is S.SUSPENDED:  # it has waited long enough
        return PastStage(S.RUNNING, stage.incarnation)
    return PastStage(_STAGE_BECOMES.get(entry.type, stage.status), stage.incarnation)


def _reset(stage: PastStage) -> PastStage:
    return stage if stage.status is S.NOT_STARTED else PastStage(S.NOT_STARTED, stage.incarnation + 1)
