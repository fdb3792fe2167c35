"""Watching a workflow until it has ended: a live table where somebody looks, and a line per event elsewhere."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator
from typing import Any, Final

import click
from rich.console import Console, Group
from rich.live import Live
from rich.text import Text

from holdfast.cli.exits import ExitCode
from holdfast.cli.output import STYLES, clean, document, say
from holdfast.cli.session import Session, pass_session, store_options
from holdfast.cli.workflow_rows import find_record, find_workflow, lines_of, log_row, stage_row
from holdfast.machine.workflow import COMPLETE, WorkflowStatus
from holdfast.views.workflows import entry_document
from holdfast.workflows.history import LogEntry
from holdfast.workflows.lengths import took
from holdfast.workflows.model import Workflow
from holdfast.workflows.settling import ENDED, WAKE
from holdfast.workflows.stage import StageExecution

LOOK_EVERY_S: Final = 0.25
_BAR: Final = 40
_ROWS_AROUND: Final = 5


@click.command()
@click.argument("id")
@click.option("--json", "as_json", is_flag=True, help="Print a JSON document per event and line.")
@store_options
@pass_session
def watch(session: Session, id: str, as_json: bool) -> int:
    """Watch a workflow until it has ended. The exit code is 0 if it has succeeded, 1 if not.

    In a terminal its stages are shown as they go on; elsewhere every event of its log is a line. To stop watching does
    nothing to the workflow.
    """
    return follow(session, id, as_json=as_json)


def follow(session: Session, id: str, *, as_json: bool) -> int:
    """Show a workflow until it has ended; the exit code that this means."""
    find_record(session, id)
    colours: Any = None if os.environ.get("NO_COLOR") else "auto"
    console = Console(color_system=colours, highlight=False, markup=False, emoji=False)
    if console.is_terminal and not as_json:
        _live(session, id, console)
    else:
        for entry in _entries(session, id):
            document(entry_document(entry), indent=None) if as_json else say(_line(entry))
    record = find_record(session, id)
    if not as_json:
        reason = f": {record.reason}" if record.reason else ""
        say(f"workflow {id} is {record.status}{reason}")
    return ExitCode.OK if WorkflowStatus(record.status).is_successful else ExitCode.FAILED


def _looks(session: Session, id: str) -> Iterator[bool]:
    """Whenever something may have changed: whether it has ended. The last one is True."""
    woken = threading.Event()
    store = session.hold().store
    subscriptions = [store.subscribe(topic, woken.set) for topic in (WAKE, ENDED)]
    try:
        while True:
            woken.clear()
            is_over = WorkflowStatus(find_record(session, id).status).is_complete
            yield is_over
            if is_over:
                return
            woken.wait(LOOK_EVERY_S)
    finally:
        for subscription in subscriptions:
            subscription.close()


def _entries(session: Session, id: str) -> Iterator[LogEntry]:
    """Its log from the first entry to the last one, as it grows."""
    seq = 0
    for _ in _looks(session, id):  # the log is read after the status: the last look sees all of it
        while found := session.workflows.log(id, after=seq):
            yield from found
            seq = found[-1].seq


def _line(entry: LogEntry) -> str:
    return "  ".join(str(cell) for cell in log_row(entry, dated=True) if cell not in (None, ""))


def _live(session: Session, id: str, console: Console) -> None:
    with Live(console=console, auto_refresh=False, transient=False) as live:
        for _ in _looks(session, id):
            live.update(_shown(session, find_workflow(session, id), console), refresh=True)


def _shown(session: Session, workflow: Workflow, console: Console) -> Group:
    now = session.now()
    told = lines_of(session, workflow, now)
    ended = sum(stage.status in COMPLETE for stage in workflow.stages)
    length = took(workflow.start_time, workflow.end_time, None if workflow.status in COMPLETE else now)
    head = Text.assemble(
        (clean(workflow.name), "bold"), "  ", (str(workflow.status), STYLES.get(str(workflow.status), "")),
        f"  {ended} of {len(workflow.stages)} stages  {length}",
    )  # fmt: skip
    filled = _BAR * ended // max(1, len(workflow.stages))
    bar = Text.assemble(("━" * filled, "green"), ("━" * (_BAR - filled), "dim"))
    stages = _worth_seeing(workflow, max(1, console.height - _ROWS_AROUND))
    rows = [[str(cell) for cell in stage_row(told[stage.ref_id], now)] for stage in stages]
    widths = [max((len(row[at]) for row in rows), default=0) for at in range(3)]
    lines = [_stage_line(row, [min(widths[0], 30), *widths[1:]], console.width) for row in rows]
    left = len(workflow.stages) - len(stages)
    if left:
        lines.append(Text(f"… and {left} more", style="dim"))
    return Group(head, bar, *lines)


def _stage_line(row: list[str], widths: list[int], room: int) -> Text:
    name, status, length, _, said = (clean(cell) for cell in row)
    shown = Text(name)
    shown.truncate(widths[0], overflow="ellipsis", pad=True)
    line = Text.assemble(
        "  ", shown, "  ", (f"{status:<{widths[1]}}", STYLES.get(status, "")), f"  {length:>{widths[2]}}  ", said
    )
    line.truncate(room, overflow="ellipsis")
    return line


def _worth_seeing(workflow: Workflow, most: int) -> list[StageExecution]:
    """As many stages as there is room for: those under way and the failed ones first, in the order of the graph."""
    if len(workflow.stages) <= most:
        return workflow.stages

    def rank(stage: StageExecution) -> int:
        if stage.status.is_failure:
            return 0
        return (
            1 if stage.status not in COMPLETE and stage.start_time is not None else 2 if stage.status in COMPLETE else 3
        )

    chosen = {stage.ref_id for stage in sorted(workflow.stages, key=rank)[:most]}
    return [stage for stage in workflow.stages if stage.ref_id in chosen]
