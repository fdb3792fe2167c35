"""`holdfast outbox`: the commands about calls that must happen."""

from __future__ import annotations

import click

from holdfast.cli.counting import outbox_facets
from holdfast.cli.entries import abandoned, list_entries, scheduled, show
from holdfast.cli.entry_changes import cancel, prune, requeue
from holdfast.cli.queues import counts, pause, paused, resume
from holdfast.cli.revealing import reveal_entry
from holdfast.cli.session import InOrder, table_options
from holdfast.cli.verifying import verify


@click.group(cls=InOrder)
@table_options
def outbox() -> None:
    """Calls that must happen: find, show, requeue, cancel, prune.

    Entries of the outbox are called by `holdfast worker --app`, or by your program's own worker.
    """


for command in (
    counts, outbox_facets, list_entries, show, reveal_entry, abandoned, scheduled, verify, requeue, cancel, prune,
    pause, resume, paused,
):  # fmt: skip
    outbox.add_command(command)
