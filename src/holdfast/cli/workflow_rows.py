"""What commands about workflows show of one, in rows of tables."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any, Final

from holdfast.cli.exits import NotFound, WrongUsage
from holdfast.cli.output import Column
from holdfast.cli.session import Session
from holdfast.cli.times import until
from holdfast.errors import WorkflowNotFoundError
from holdfast.machine.workflow import COMPLETE
from holdfast.views.plain import iso, masked, plain
from holdfast.views.workflows import Awaits, Work, awaited, by_stage, ended_because, trouble_of
from holdfast.workflows.history import LogEntry
from holdfast.workflows.lengths import took
from holdfast.workflows.model import Workflow
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


def log_row(entry: LogEntry) -> Sequence[Any]:
    """An entry's line in a table: the status first, and no first attempts."""
    facts = masked(plain(dict(entry.facts)))
    told = {name: value for name, value in facts.items() if value not in (None, "", [])}
    said = [str(told.pop("status"))] if "status" in told else []
    if told.get("attempt") in (0, 1):
        del told["attempt"]
    said += [
        f"{name} {', '.join(map(str, value)) if isinstance(value, list) else value}" for name, value in told.items()
    ]
    return entry.seq, iso(entry.at)[11:23], entry.type, entry.stage, ", ".join(said)


def work_of(session: Session, id: str) -> Work:
    """What is to be done for a workflow, by stage."""
    return by_stage(session.workflows.work(id))


def stage_row(stage: StageExecution, work: Work, now: datetime, stranded: Mapping[str, str] = {}) -> Sequence[Any]:
    """A stage's line in a table."""
    tries = max((task.attempt for task in stage.tasks), default=0)
    return stage.ref_id, stage.status, stage_took(stage, now), tries or "", stage_note(stage, work, now, stranded)


def stage_note(stage: StageExecution, work: Work, now: datetime, stranded: Mapping[str, str] = {}) -> str:
    """What there is to say of a stage: why it ended so, or what it waits for; `stranded` says for whom in vain."""
    if stage.status in COMPLETE:
        return ended_because(stage)
    waits = awaited(stage, work.get(stage.ref_id, ()), now)
    said = ["" if waits is None else _words(waits, now), stranded.get(stage.ref_id, ""), trouble_of(stage)]
    if stage.incarnation > 1:
        said.insert(0, f"incarnation {stage.incarnation}")
    return ", ".join(part for part in said if part)


def _words(waits: Awaits, now: datetime) -> str:
    if waits.due_at is None or waits.kind == "turn":
        return waits.words
    left = until(waits.due_at, now)
    return f"again in {left}" if waits.kind == "attempt" else f"{waits.words}, {left} left"


def stage_took(stage: StageExecution, now: datetime) -> str:
    """How long it took, or has taken by now."""
    return took(stage.start_time, stage.end_time, None if stage.status in COMPLETE else now)
