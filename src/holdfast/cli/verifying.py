"""`holdfast outbox verify`: successes that may not be real, and having their targets asked again."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Any, Final
from uuid import UUID

import click

from holdfast.cli.answers import server_reason_option
from holdfast.cli.confirm import dry_run_option, yes_option
from holdfast.cli.entries import ENTRY_ID, entry_filters, limit_option, show_all
from holdfast.cli.entry_changes import Change, change_entries
from holdfast.cli.exits import ExitCode, WrongUsage
from holdfast.cli.filters import json_option
from holdfast.cli.output import Column
from holdfast.cli.session import Session, pass_session, table_options
from holdfast.cli.times import ago, stamp, until
from holdfast.machine.outbox_entry import OutboxStatus
from holdfast.outbox.entry import OutboxEntry
from holdfast.outbox.verdict import CONFIRMED, FAILED, PENDING, UNVERIFIED, word_of

_COLUMNS: Final = (
    Column("id"), Column("operation", gives=True), Column("target", gives=True, optional=True),
    Column("age", right=True, optional=True), Column("verified"), Column("again", right=True),
)  # fmt: skip


@click.command()
@click.argument("ids", type=ENTRY_ID, metavar="[ID...]", nargs=-1)
@entry_filters
@click.option("--all", "everything", is_flag=True, help="Ask again about all that are denied or given up.")
@limit_option
@server_reason_option
@yes_option
@dry_run_option
@json_option
@table_options
@pass_session
def verify(
    session: Session,
    ids: Sequence[UUID],
    where: dict[str, Any],
    everything: bool,
    limit: int,
    reason: str,
    yes: bool,
    dry_run: bool,
    as_json: bool,
) -> int:
    """Show successes that are not verified, or have targets asked again.

    The exit code is 1 if a target denies one, or was asked in vain. With ids, those are asked about again, with a new
    budget, together or not at all; with --all, all that a filter matches: it shows how many there are, and asks where
    there is somebody to ask; elsewhere --yes does it. It is the worker that asks targets.
    """
    if not ids and not everything:
        if yes or dry_run:
            raise WrongUsage("say what to verify: ids, or --all")
        return _show(session, where, limit, as_json)
    if ids and where:
        raise WrongUsage("give ids or a filter, not both")
    change = Change(
        "verify", "asked about", {OutboxStatus.SUCCEEDED}, session.outbox.verify_again,
        wanted={"verification": UNVERIFIED}, refuses=_refusal, needs_program=False,
    )  # fmt: skip
    return change_entries(
        session, change, ids, where, everything=everything and not where, yes=yes, dry_run=dry_run, as_json=as_json
    )


def _show(session: Session, where: dict[str, Any], limit: int, as_json: bool) -> int:
    outbox, succeeded = session.outbox, OutboxStatus.SUCCEEDED
    denied = outbox.find(status=succeeded, verification=FAILED, limit=limit + 1, **where)
    waiting = outbox.find(status=succeeded, verification=PENDING, limit=limit + 1, **where)

    def row(one: OutboxEntry, now: datetime) -> Sequence[Any]:
        again = "never" if one.verify_at is None else until(one.verify_at, now)
        age = ago(one.last_attempt_at, now)
        return one.entry_id, one.operation, one.resolver, age, one.verification, "" if one in denied else again

    found = [*denied, *waiting]
    show_all(session, found, limit, _COLUMNS, row, as_json, nothing="no success waits to be verified")
    needs_somebody = denied or any(one.verify_at is None for one in waiting)
    return ExitCode.FAILED if needs_somebody else ExitCode.OK


def _refusal(one: OutboxEntry) -> str | None:
    match word_of(one.verification, one.verify_at):
        case None:
            return f"entry {one.entry_id} is not to be verified: its operation does not ask, or its target cannot tell"
        case word if word == CONFIRMED:
            return f"entry {one.entry_id} is confirmed already"
        case word if word == PENDING:
            return f"entry {one.entry_id} is asked about already, at {stamp(one.verify_at)}"
    return None
