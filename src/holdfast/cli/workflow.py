"""`holdfast workflow`: the commands about workflows."""

from __future__ import annotations

import click

from holdfast.cli.revealing import reveal_workflow
from holdfast.cli.session import InOrder, store_options
from holdfast.cli.workflow_changes import approve, cancel, reject, send_signal, start
from holdfast.cli.workflow_cleanup import finalize, finalizers, prune
from holdfast.cli.workflow_code import describe, fork, stranded
from holdfast.cli.workflow_control import pause, restart, resume, retry, skip
from holdfast.cli.workflow_dead import dead
from holdfast.cli.workflow_recover import recover
from holdfast.cli.workflow_schedule import schedule
from holdfast.cli.workflow_times import timeline
from holdfast.cli.workflow_watch import watch
from holdfast.cli.workflows import counts, graph, list_workflows, log, show


@click.group(cls=InOrder)
@store_options
def workflow() -> None:
    """Workflows: start, schedule, see, draw and watch them, send signals, pause, retry, cancel, clean up.

    Their tasks are run by `holdfast worker --app`, or by your program's own worker. To look at them none is needed.
    """


for command in (
    list_workflows, counts, stranded, show, reveal_workflow, describe, log, timeline, graph, watch, start, send_signal,
    approve, reject, pause, resume, retry, restart, fork, skip, cancel, recover, dead, schedule, finalizers, finalize,
    prune,
):  # fmt: skip
    workflow.add_command(command)
