"""`holdfast workflow schedule`: workflows that are started again and again."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import datetime
from typing import Any, Final
from zoneinfo import ZoneInfo

import click

from holdfast.cli.exits import Failed, NotFound, WrongUsage
from holdfast.cli.filters import by_option, json_option
from holdfast.cli.output import Column, document, facts, heading, note, say, table
from holdfast.cli.revealing import reveal_schedule
from holdfast.cli.session import InOrder, Session, pass_session, store_options
from holdfast.cli.times import until
from holdfast.cli.workflow_rows import LOG, by_program, json_of, log_rows, workflows_with
from holdfast.errors import ConfigurationError, TaskError, WorkflowDefinitionError, WorkflowNotFoundError
from holdfast.views.plain import masked, plain
from holdfast.views.workflows import entry_document, schedule_document
from holdfast.workflows.schedule import GRACE_S, Overlap, WorkflowSchedule

_ROWS: Final = (
    Column("name", gives=True), Column("workflow", gives=True), Column("cron", gives=True),
    Column("timezone", gives=True, optional=True), Column("next"), Column("in", right=True),
    Column("last run", optional=True), Column("note", gives=True),
)  # fmt: skip


def _named(command: Callable[..., Any]) -> Callable[..., Any]:
    """Which schedule, who asks, and how it is told."""
    return click.argument("name")(by_option(json_option(store_options(pass_session(command)))))


@click.group(cls=InOrder)
def schedule() -> None:
    """Start workflows by cron.

    Schedules are stored; any worker whose program knows the workflow fires them.
    """


@schedule.command()
@click.argument("name")
@click.argument("workflow")
@click.option("--cron", required=True, metavar="CRON", help="Minute, hour, day, month, weekday: '0 3 * * *'.")
@click.option("--timezone", default="UTC", show_default=True, metavar="ZONE", help="Such as Europe/Berlin.")
@click.option("--input", "given", default="{}", metavar="JSON", help="The input by name; [..] by place.")
@click.option("--overlap", type=click.Choice([str(one) for one in Overlap]), default=str(Overlap.SKIP),
              show_default=True, help="What to do while the run before has not ended.")  # fmt: skip
@click.option("--catch-up", type=click.IntRange(0), default=1, show_default=True, metavar="N",
              help="How many missed ticks to make up for.")  # fmt: skip
@click.option("--paused/--not-paused", default=None, help="Whether it waits to be resumed. [default: as it was]")
@by_option
@json_option
@store_options
@pass_session
def add(session: Session, /, name: str, workflow: str, given: str, as_json: bool, by: str, **options: Any) -> None:
    """Make a schedule, or change the one of that name.

    Needs --app, or a server that has the program, which has made the workflow known with `hold.workflows.add`.
    """
    flows = workflows_with(session, workflow, "schedule a workflow")
    input = json_of("--input", given)
    try:
        made = by_program(workflow, lambda: flows.schedules.add(name, workflow, input, by=by or "anonymous", **options))
    except (ConfigurationError, WorkflowDefinitionError) as error:
        raise WrongUsage(str(error)) from None
    _tell(made, as_json)


@schedule.command("list")
@json_option
@store_options
@pass_session
def list_schedules(session: Session, as_json: bool) -> None:
    """Show all schedules, by name."""
    found, now = session.workflows.schedules.all(), session.now()
    if as_json:
        document({"items": [schedule_document(one) for one in found]})
    elif found:
        table(_ROWS, [_row(one, now) for one in found])
    else:
        note("there are no schedules")


@schedule.command()
@click.argument("name")
@json_option
@store_options
@pass_session
def show(session: Session, name: str, as_json: bool) -> None:
    """Show one schedule: when it ticks next, and what it did lately."""
    schedules = session.workflows.schedules
    found = _found(name, schedules.get)
    following, entries = schedules.next(name, 3), schedules.lately(name)
    if as_json:
        shown = {"next": [plain(at) for at in following], "log": [entry_document(one) for one in entries]}
        document({**schedule_document(found), **shown})
        return
    given = found.kwargs or found.args
    facts([
        ("name", found.name), ("workflow", found.workflow), ("cron", found.cron), ("timezone", found.timezone),
        ("overlap", str(found.overlap)), ("catch up", str(found.catch_up)),
        ("paused", "yes" if found.paused else ""), ("next", _times(following, found.timezone)),
        ("last tick", _local(found.last_tick, found.timezone)), ("last run", found.last_run), ("input", masked(given)),
    ])  # fmt: skip
    heading("lately")
    table([column for column in LOG if column.title != "stage"], [(*row[:3], row[4]) for row in log_rows(entries)])


@schedule.command("next")
@click.argument("name")
@click.option("--number", "-n", type=click.IntRange(1, 1000), default=5, show_default=True, metavar="N")
@json_option
@store_options
@pass_session
def next_ticks(session: Session, name: str, number: int, as_json: bool) -> None:
    """Show when a schedule ticks next."""
    schedules = session.workflows.schedules
    found = _found(name, schedules.get)
    following = schedules.next(name, number)
    if as_json:
        document({"name": name, "paused": found.paused, "next": [plain(at) for at in following]})
        return
    for at in following:
        say(_local(at, found.timezone))
    if found.paused:
        note("it is paused")


@schedule.command()
@_named
def pause(session: Session, name: str, by: str, as_json: bool) -> None:
    """Let a schedule tick no more. What it has started goes on."""
    _tell(_found(name, session.workflows.schedules.pause, by=by or "anonymous"), as_json)


@schedule.command()
@_named
def resume(session: Session, name: str, by: str, as_json: bool) -> None:
    """Let a paused schedule tick again, from now on."""
    _tell(_found(name, session.workflows.schedules.resume, by=by or "anonymous"), as_json)


@schedule.command()
@_named
def delete(session: Session, name: str, by: str, as_json: bool) -> None:
    """Take a schedule away. What it has started goes on."""
    _found(name, session.workflows.schedules.delete, by=by or "anonymous")
    document({"name": name, "deleted": True}) if as_json else say(f"schedule {name!r} is deleted")


@schedule.command()
@_named
def run(session: Session, name: str, by: str, as_json: bool) -> None:
    """Start the workflow of a schedule now. Needs --app, or a server that has the program."""
    if not session.has_program:
        raise WrongUsage("to start a workflow its functions are needed: give --app of its program (or HOLDFAST_APP)")
    try:
        id = _found(name, session.workflows.schedules.run, by=by or "anonymous")
    except (TaskError, WorkflowDefinitionError) as error:
        raise Failed(str(error)) from None
    document({"name": name, "workflow": id}) if as_json else say(f"workflow {id} is started")


schedule.add_command(reveal_schedule)


def _found(name: str, act: Callable[..., Any], **facts: str) -> Any:
    try:
        return act(name, **facts)
    except WorkflowNotFoundError:
        raise NotFound(f"there is no schedule {name!r}; `holdfast workflow schedule list` shows them") from None


def _tell(made: WorkflowSchedule, as_json: bool) -> None:
    if as_json:
        document(schedule_document(made))
    else:
        what = "is paused" if made.paused else f"ticks next at {_local(made.next_tick, made.timezone)}"
        say(f"schedule {made.name!r} {what}")


def _row(one: WorkflowSchedule, now: datetime) -> Sequence[Any]:
    late = one.next_tick is not None and (now - one.next_tick).total_seconds() > GRACE_S
    said = "paused" if one.paused else "overdue: no worker knows its workflow" if late else ""
    following = _local(one.next_tick, one.timezone)
    return (
        one.name, one.workflow, one.cron, one.timezone, following, until(one.next_tick, now), one.last_run or "", said
    )  # fmt: skip


def _times(found: Sequence[datetime], zone: str) -> str:
    return ", ".join(_local(at, zone) for at in found)


def _local(at: datetime | None, zone: str) -> str:
    return "" if at is None else f"{at.astimezone(ZoneInfo(zone)):%Y-%m-%d %H:%M:%S %Z}"
