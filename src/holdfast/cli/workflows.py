"""Looking at workflows: list, counts, show, log, graph."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from datetime import datetime
from pathlib import Path
from typing import Any, Final

import click

from holdfast.cli.answers import moment
from holdfast.cli.api import part
from holdfast.cli.confirm import counted
from holdfast.cli.exits import NotFound, WrongUsage
from holdfast.cli.filters import json_option
from holdfast.cli.output import Column, document, facts, heading, note, table
from holdfast.cli.session import Session, pass_session, store_options
from holdfast.cli.times import MOMENT, ago, stamp
from holdfast.cli.workflow_cleanup import finalizer_counts
from holdfast.cli.workflow_rows import (
    LOG,
    STAGES,
    find_record,
    find_workflow,
    line_told,
    lines_of,
    log_rows,
    stage_note,
    stage_row,
    stage_took,
)
from holdfast.machine.workflow import COMPLETE, WorkflowStatus
from holdfast.views.plain import masked, plain
from holdfast.views.workflows import entry_document
from holdfast.workflows.lengths import took
from holdfast.workflows.model import Workflow
from holdfast.workflows.picture import picture
from holdfast.workflows.reading import WorkflowSummary
from holdfast.workflows.sketch import plain_graph, sketched

_MOST_STRANDED: Final = 1000
STATUSES: Final = [str(status) for status in WorkflowStatus]
_WORKFLOWS: Final = (
    Column("id"), Column("name", gives=True), Column("status"), Column("age", right=True),
    Column("took", right=True), Column("application", gives=True, optional=True), Column("reason", gives=True),
)  # fmt: skip
_GRAPH: Final = (Column(""), *STAGES)
_OTHER_PICTURES: Final = (
    ".png", ".apng", ".jpg", ".jpeg", ".gif", ".webp", ".avif", ".heic", ".bmp", ".tif", ".tiff", ".ico", ".pdf", ".ps",
    ".eps", ".svgz",
)  # fmt: skip
_TASKS: Final = (
    Column("#", right=True), Column("task", gives=True), Column("status"), Column("took", right=True),
    Column("tries", right=True), Column("error", gives=True),
)  # fmt: skip
_CHILDREN: Final = (
    Column("id"), Column("name", gives=True), Column("status"), Column("age", right=True), Column("reason", gives=True),
)  # fmt: skip
_MOST_CHILDREN: Final = 20
_PAST: Final = (Column("stage", gives=True), Column("status"), Column("incarnation", right=True))


@click.command("list")
@click.option("--status", type=click.Choice(STATUSES, case_sensitive=False), multiple=True, metavar="STATUS",
              help="One of the twelve statuses; can be given again.")  # fmt: skip
@click.option("--name", metavar="NAME")
@click.option("--application", metavar="NAME")
@click.option("--parent", metavar="ID", help="Only those that this workflow has started.")
@click.option("--pipeline", metavar="NAME", help="Only those of this pipeline.")
@click.option("--since", type=MOMENT, metavar="TIME", help="2026-01-31T12:00 (UTC), or 2h for two hours ago.")
@click.option("--until", type=MOMENT, metavar="TIME", help="As --since.")
@click.option("--limit", type=click.IntRange(1), default=50, show_default=True, metavar="N")
@click.option("--after", metavar="CURSOR", help="Go on where a page ended; that page names the cursor.")
@json_option
@store_options
@pass_session
def list_workflows(
    session: Session,
    status: tuple[str, ...],
    name: str | None,
    application: str | None,
    parent: str | None,
    pipeline: str | None,
    since: datetime | None,
    until: datetime | None,
    limit: int,
    after: str | None,
    as_json: bool,
) -> None:
    """Show workflows, the newest first."""
    try:
        found = session.workflows.find(
            status=status or None, name=name, application=application, parent=parent, pipeline=pipeline, since=since,
            until=until, after=after, limit=limit + 1,
        )  # fmt: skip
    except ValueError as error:
        raise WrongUsage(str(error)) from None
    shown, following = found[:limit], found[limit - 1].cursor if len(found) > limit else None
    stuck = {one.workflow_id: one.reason for one in session.workflows.stranded(limit=_MOST_STRANDED)}
    places = {one.id: session.workflows.place(one.id) for one in shown if one.status is WorkflowStatus.BUFFERED}
    if as_json:
        rows = [{**plain(one), "place": places.get(one.id), "stranded": stuck.get(one.id)} for one in shown]
        document({"items": rows, "next": following})
        return
    if not shown:
        note("no workflows match")
        return
    now = session.now()
    table(_WORKFLOWS, [_row(one, now, places.get(one.id), stuck.get(one.id)) for one in shown])
    if following is not None:
        note(f"there are more: --after {following}")


@click.command()
@json_option
@store_options
@pass_session
def counts(session: Session, as_json: bool) -> None:
    """Count workflows by status."""
    found = session.workflows.counts()
    numbers = {str(status): found[status] for status in WorkflowStatus if status in found}
    if as_json:
        document({"by_status": numbers})
    elif numbers:
        table((Column("status"), Column("workflows", right=True)), list(numbers.items()))
    else:
        note("there are no workflows")


@click.command()
@click.argument("id")
@click.option("--stage", "ref", metavar="NAME", help="Show this stage: its tasks, what it got and what it left.")
@click.option("--at", "seq", type=click.IntRange(0), metavar="SEQ", help="How it stood at this number of its log.")
@json_option
@store_options
@pass_session
def show(session: Session, id: str, ref: str | None, seq: int | None, as_json: bool) -> None:
    """Show one workflow and its stages."""
    if ref is not None and seq is not None:
        raise WrongUsage("give --stage or --at, not both: the log keeps statuses only")
    if seq is not None:
        _show_past(session, id, seq, as_json)
        return
    if ref is not None:
        _show_stage(session, id, ref, as_json)
        return
    if as_json:
        document(session.api.get(f"/workflows/{part(id)}"))
        return
    workflow, now = find_workflow(session, id), session.now()
    place = session.workflows.place(id)
    reason = session.workflows.record(id).reason if place is None else _waits(place, workflow.pipeline_config_id)
    facts([*_facts(workflow, reason, now), ("finalizers", finalizer_counts(session, id))])
    heading("stages")
    table(STAGES, [stage_row(line, now) for line in lines_of(session, workflow, now).values()])
    if children := session.workflows.find(parent=id, limit=_MOST_CHILDREN):
        heading("workflows that it has started")
        table(_CHILDREN, [(one.id, one.name, one.status, ago(one.created_at, now), one.reason) for one in children])
        if len(children) == _MOST_CHILDREN:
            note(f"there may be more: `holdfast workflow list --parent {id}`")


@click.command()
@click.argument("id")
@click.option("--after", type=click.IntRange(0), default=0, metavar="SEQ", help="Only what came after this number.")
@click.option("--limit", type=click.IntRange(1), default=100, show_default=True, metavar="N")
@json_option
@store_options
@pass_session
def log(session: Session, id: str, after: int, limit: int, as_json: bool) -> None:
    """Show what happened to a workflow.

    The oldest is the first; what was one transaction has one number.
    """
    find_record(session, id)
    found = session.workflows.log(id, after=after, limit=limit)
    if as_json:
        document({"items": [entry_document(one) for one in found]})
    elif found:
        table(LOG, log_rows(found))
        if session.workflows.log(id, after=found[-1].seq, limit=1):
            note(f"there are more: --after {found[-1].seq}")
    else:
        note("nothing more happened to it")


@click.command()
@click.argument("id")
@click.option(
    "--out",
    type=click.Path(dir_okay=False, allow_dash=True),
    metavar="FILE",
    help="Write an SVG there (.svg); - is stdout.",
)
@store_options
@pass_session
def graph(session: Session, id: str, out: str | None) -> None:
    """Draw the stages of a workflow.

    Their states and times are shown here, or in a picture that is written to a file.
    """
    if out is not None and (ending := Path(out).suffix.lower()) in _OTHER_PICTURES:
        raise WrongUsage(
            f"the picture is an SVG, got --out {out}; write it to {Path(out).with_suffix('.svg')}, which a browser "
            f"opens, and have another program make a {ending} of it: inkscape, for instance, or rsvg-convert"
        )
    workflow, now = find_workflow(session, id), session.now()
    if out is not None:
        remote = session.remote
        drawn = picture(workflow, now) if remote is None else remote.get(f"/workflows/{part(id)}/graph.svg")
        try:
            with click.open_file(out, "w", encoding="utf-8") as file:
                file.write(drawn)
        except OSError as error:
            raise WrongUsage(f"cannot write to {out}: {error.strerror}") from None
        if out != "-":
            note(f"wrote {out}")
        return
    told = lines_of(session, workflow, now)
    encoding = (getattr(sys.stdout, "encoding", None) or "utf-8").lower()
    rows = []
    for line in sketched(workflow):
        drawn = line.graph if encoding.startswith("utf") else plain_graph(line.graph)
        cells = [""] * len(STAGES) if line.stage is None else stage_row(told[line.stage.ref_id], now)
        rows.append((drawn, *cells))
    table(_GRAPH, rows)


def _row(one: WorkflowSummary, now: datetime, place: int | None, stuck: str | None) -> Sequence[Any]:
    length = took(one.start_time, one.end_time, None if one.status in COMPLETE else now)
    said = one.reason or stuck if place is None else _waits(place, one.pipeline)
    return one.id, one.name, one.status, ago(one.created_at, now), length, one.application, said


def _waits(place: int, pipeline: str | None) -> str:
    return f"number {place} in line of pipeline {pipeline!r}"


def _facts(workflow: Workflow, reason: str | None, now: datetime) -> list[tuple[str, Any]]:
    ended = sum(stage.status in COMPLETE for stage in workflow.stages)
    return [
        ("id", workflow.id),
        ("name", f"{workflow.name} {workflow.code_version or ''}".strip()),
        ("application", workflow.application),
        ("status", str(workflow.status)),
        ("reason", reason),
        ("canceled by", workflow.canceled_by),
        ("paused by", _paused(workflow)),
        ("parent", workflow.parent_workflow_id),
        ("pipeline", _pipeline(workflow)),
        ("queue", workflow.queue if workflow.queue != "default" else ""),
        ("priority", str(workflow.priority) if workflow.priority else ""),
        ("key", workflow.idempotency_key),
        ("started", stamp(workflow.start_time)),
        ("ended", stamp(workflow.end_time)),
        ("took", took(workflow.start_time, workflow.end_time, None if workflow.status in COMPLETE else now)),
        ("stages", f"{ended} of {len(workflow.stages)} have ended"),
        ("log", f"{counted(workflow.version, 'transaction')}; `holdfast workflow log` shows them"),
        ("input", masked(workflow.context)),
    ]


def _pipeline(workflow: Workflow) -> str:
    if not workflow.is_limit_concurrent:
        return workflow.pipeline_config_id or ""
    return f"{workflow.pipeline_config_id}, {workflow.max_concurrent_executions} at once"


def _paused(workflow: Workflow) -> str:
    held = workflow.paused
    if held is None or not held.is_paused:
        return ""
    return f"{held.paused_by}, {stamp(held.pause_time)}" + (f": {held.reason}" if held.reason else "")


def _show_stage(session: Session, id: str, ref: str, as_json: bool) -> None:
    find_record(session, id)
    found = session.api.get(f"/workflows/{part(id)}/stages/{part(ref)}")
    if as_json:
        document(found)
        return
    line, now = line_told(found), session.now()
    facts([
        ("stage", found["ref"]),
        ("type", found["type"]),
        ("status", found["status"]),
        ("note", stage_note(line, now)),
        ("after", ", ".join(found["after"])),
        ("join", found["join_type"] if len(found["after"]) > 1 else ""),
        ("incarnation", str(line.incarnation) if line.incarnation > 1 else ""),
        ("started", stamp(line.start_time)),
        ("ended", stamp(line.end_time)),
        ("took", stage_took(line, now)),
        ("context", found["context"]),
        ("outputs", found["outputs"]),
    ])  # fmt: skip
    heading("tasks")
    table(_TASKS, [_task_row(one, now) for one in found["tasks"]])


def _task_row(task: dict[str, Any], now: datetime) -> Sequence[Any]:
    trouble = ": ".join(str(value) for value in task["task_exception_details"].values())
    started, ended = moment(task["start_time"]), moment(task["end_time"])
    length = took(started, ended, None if WorkflowStatus(task["status"]) in COMPLETE else now)
    return task["position"], task["name"], task["status"], length, task["attempt"] or "", trouble


def _show_past(session: Session, id: str, seq: int, as_json: bool) -> None:
    find_record(session, id)
    try:
        state = session.workflows.state_at(id, seq)
    except ValueError as error:
        raise NotFound(str(error)) from None
    if as_json:
        document(plain(state))
        return
    facts([("id", id), ("status", str(state.status)), ("as of", f"{seq}, {stamp(state.at)}".strip(", "))])
    heading("stages")
    table(_PAST, [(ref, one.status, one.incarnation) for ref, one in state.stages.items()])
