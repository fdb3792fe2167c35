"""The queues of the outbox: how full they are, how far behind, and stopping and starting them."""

from __future__ import annotations

from collections import Counter
from typing import Any, Final

import click

from holdfast.cli.exits import Failed
from holdfast.cli.filters import by_option, json_option
from holdfast.cli.output import Column, document, heading, note, say, table
from holdfast.cli.session import Session, pass_session, table_options
from holdfast.cli.times import ago, stamp
from holdfast.machine.outbox_entry import OutboxStatus
from holdfast.outbox.queues import PausedQueue
from holdfast.views.outbox import by_queue, by_status, paused_document

_COUNTS: Final = (
    Column("queue", gives=True), *(Column(str(status), right=True) for status in OutboxStatus),
    Column("lag", right=True),
)  # fmt: skip
_PAUSED: Final = (Column("queue"), Column("since"), Column("by", gives=True), Column("reason", gives=True))
_TOTAL: Final = "total"


@click.command()
@json_option
@table_options
@pass_session
def counts(session: Session, as_json: bool) -> None:
    """Count entries by queue and status.

    The lag of a queue is how long the entry that has waited longest for its call could have been called already.
    """
    outbox = session.outbox
    found = by_queue(outbox.tally("queue", "status"))
    due = {queue: outbox.oldest_due(queue) for queue in found}
    paused, now = outbox.paused(), session.now()
    if as_json:
        queues = [
            {
                "queue": queue,
                "paused": queue in {one.queue for one in paused},
                "by_status": by_status(found[queue]),
                "oldest_due": due[queue],
                "lag_s": 0.0 if at is None else max(0.0, (now - at).total_seconds()),
            }
            for queue, at in sorted(due.items())
        ]
        document({"by_status": by_status(sum(found.values(), Counter())), "queues": queues})
        return
    rows = [(queue, *by_status(found[queue]).values(), ago(due[queue], now)) for queue in sorted(found)]
    if len(rows) > 1:
        rows.append((_TOTAL, *by_status(sum(found.values(), Counter())).values(), ""))
    table(_COUNTS, rows)
    if paused:
        heading("paused")
        _show(paused)


@click.command()
@json_option
@table_options
@pass_session
def paused(session: Session, as_json: bool) -> None:
    """Show the queues that are paused."""
    found = session.outbox.paused()
    if as_json:
        document({"paused": [paused_document(one) for one in found]})
    elif found:
        _show(found)
    else:
        note("no queue is paused")


@click.command()
@click.argument("queue")
@click.option("--reason", metavar="TEXT")
@by_option
@table_options
@pass_session
def pause(session: Session, queue: str, reason: str | None, by: str) -> None:
    """Call nothing of a queue, on any host, until it is resumed. Calls that run already go on."""
    if not session.outbox.pause(queue, by=by or None, reason=reason):
        raise Failed(f"queue {queue} is paused already; `holdfast outbox paused` shows since when")
    say(f"queue {queue} is paused")
    if not session.outbox.tally(queue=queue):
        note("it is empty; `holdfast outbox counts` shows the queues that are in use")


@click.command()
@click.argument("queue")
@table_options
@pass_session
def resume(session: Session, queue: str) -> None:
    """Let entries of a queue be called again."""
    if not session.outbox.resume(queue):
        raise Failed(f"queue {queue} is not paused")
    say(f"queue {queue} is resumed")


def _show(found: tuple[PausedQueue, ...]) -> None:
    rows: list[tuple[Any, ...]] = [(one.queue, stamp(one.paused_at), one.paused_by, one.reason) for one in found]
    table(_PAUSED, rows)
