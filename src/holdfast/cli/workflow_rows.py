"""What commands about workflows show of one, in rows of tables."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Final, NamedTuple, TypeVar

import click

from holdfast.cli.answers import moment
from holdfast.cli.api import part
from holdfast.cli.exits import Failed, NotFound, WrongUsage
from holdfast.cli.output import Column, shortened
from holdfast.cli.session import Session
from holdfast.cli.times import until
from holdfast.core.redact import redact
from holdfast.errors import HoldfastError, WorkflowNotFoundError
from holdfast.machine.workflow import COMPLETE, WorkflowStatus
from holdfast.views.plain import iso, masked, plain
from holdfast.views.workflows import Awaits, awaited, by_stage, ended_because, trouble_of
from holdfast.workflows.history import LogEntry
from holdfast.workflows.lengths import length, took
from holdfast.workflows.model import Workflow
from holdfast.workflows.records import WorkflowRecord

if TYPE_CHECKING:
    from holdfast.workflows.workflows import Workflows

R = TypeVar("R")

STAGES: Final = (
    Column("stage", gives=True), Column("status"), Column("took", right=True),
    Column("tries", right=True, optional=True), Column("note", gives=True),
)  # fmt: skip
LOG: Final = (
    Column("seq", right=True),
    Column("at"),
    Column("what"),
    Column("stage", gives=True),
    Column("facts", gives=True, wraps=True),
)
_SPANS: Final = ("delay", "limit")
"""What facts are that are so many seconds."""
_MOST_STRANDED: Final = 1000


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


def workflows_with(session: Session, name: str, to_do: str) -> Workflows:
    """The workflows, one of which is known by that name. Raises WrongUsage without the program, and NotFound."""
    if not session.has_program:
        raise WrongUsage(f"to {to_do} its functions are needed: give --app of its program (or HOLDFAST_APP)")
    flows = session.hold(create=True).workflows
    if name not in flows.known:
        there = ", ".join(sorted(flows.known)) or "none"
        raise NotFound(f"no workflow {name!r} is known; there are {there}; hold.workflows.add(…) makes one known")
    return flows


def by_program(name: str, act: Callable[[], R]) -> R:
    """What comes of the program's own functions, which are given what somebody has typed. Raises Failed."""
    try:
        return act()
    except (HoldfastError, click.ClickException):  # ours, or what a server has answered
        raise
    except Exception as error:
        story = redact(f"{type(error).__name__}: {error}")
        raise Failed(f"workflow {name!r} does not take this input: {story} (--debug shows where)") from error


def log_rows(entries: Sequence[LogEntry]) -> list[Sequence[Any]]:
    """Lines of a table; with the day, where they are of more than one."""
    dated = len({one.at.astimezone(UTC).date() for one in entries}) > 1
    return [log_row(one, dated=dated) for one in entries]


def log_row(entry: LogEntry, *, dated: bool) -> Sequence[Any]:
    """An entry's line: the status first, and no first attempts."""
    facts = masked(plain(dict(entry.facts)))
    told = {name: value for name, value in facts.items() if value not in (None, "", [])}
    said = [str(told.pop("status"))] if "status" in told else []
    if told.get("attempt") in (0, 1):
        del told["attempt"]
    said += [f"{name} {_word(name, value)}" for name, value in told.items()]
    day, _, time = iso(entry.at).partition("T")
    return entry.seq, f"{day[5:]} {time[:8]}" if dated else time[:12], entry.type, entry.stage, ", ".join(said)


def _word(name: str, value: Any) -> str:
    if name in _SPANS and isinstance(value, int | float):
        return length(value)
    if isinstance(value, float):
        return shortened(value)
    return ", ".join(map(str, value)) if isinstance(value, list) else str(value)


class StageLine(NamedTuple):
    """How a stage stands. `note` is why it ended so, or its last error; `stranded` says why nobody can take it."""

    ref: str
    status: WorkflowStatus
    start_time: datetime | None
    end_time: datetime | None
    attempts: int
    incarnation: int
    waits: Awaits | None
    stranded: str
    note: str


def lines_of(session: Session, workflow: Workflow, now: datetime) -> dict[str, StageLine]:
    """How the stages of a workflow stand, by name."""
    if session.remote is not None:
        stages = session.remote.get(f"/workflows/{part(workflow.id)}")["stages"]
        return {one["ref"]: line_told(one) for one in stages}
    work = by_stage(session.workflows.work(workflow.id))
    stuck = {one.stage: one.reason for one in session.workflows.stranded(workflow.id, limit=_MOST_STRANDED)}
    return {
        stage.ref_id: StageLine(
            stage.ref_id, stage.status, stage.start_time, stage.end_time,
            max((task.attempt for task in stage.tasks), default=0), stage.incarnation,
            awaited(stage, work.get(stage.ref_id, ()), now), stuck.get(stage.ref_id, ""),
            ended_because(stage) if stage.status in COMPLETE else trouble_of(stage),
        )
        for stage in workflow.stages
    }  # fmt: skip


def line_told(document: Mapping[str, Any]) -> StageLine:
    """The same, as the API tells it of a stage."""
    waits = document["waits"]
    awaits = None if waits is None else Awaits(waits["kind"], waits["words"], moment(waits["due_at"]))
    return StageLine(
        document["ref"], WorkflowStatus(document["status"]), moment(document["start_time"]),
        moment(document["end_time"]), document["attempts"], document["incarnation"], awaits,
        document["stranded"] or "", document["note"],
    )  # fmt: skip


def stage_row(line: StageLine, now: datetime) -> Sequence[Any]:
    """A stage's line in a table."""
    return line.ref, line.status, stage_took(line, now), line.attempts or "", stage_note(line, now)


def stage_note(line: StageLine, now: datetime) -> str:
    """What there is to say of a stage: why it ended so, or what it waits for, and for whom in vain."""
    if line.status in COMPLETE:
        return line.note
    said = ["" if line.waits is None else _words(line.waits, now), line.stranded, line.note]
    if line.incarnation > 1:
        said.insert(0, f"incarnation {line.incarnation}")
    return ", ".join(part for part in said if part)


def stage_took(line: StageLine, now: datetime) -> str:
    """How long it took, or has taken by now."""
    return took(line.start_time, line.end_time, None if line.status in COMPLETE else now)


def row_document(session: Session, id: str) -> dict[str, Any]:
    """A workflow as a list has it, and as the API answers what is done to one."""
    one = session.workflows.summary(id)
    place = session.workflows.place(id) if one.status is WorkflowStatus.BUFFERED else None
    return {**plain(one), "place": place, "cursor": one.cursor}


def _words(waits: Awaits, now: datetime) -> str:
    if waits.due_at is None or waits.kind == "turn":
        return waits.words
    left = until(waits.due_at, now)
    return f"again in {left}" if waits.kind == "attempt" else f"{waits.words}, {left} left"
