"""Taking up workflows in which something is missing."""

from __future__ import annotations

from typing import Final

import click

from holdfast.cli.confirm import counted
from holdfast.cli.filters import json_option
from holdfast.cli.output import Column, document, note, table
from holdfast.cli.session import Session, pass_session, store_options
from holdfast.cli.workflow_rows import find_record
from holdfast.views.plain import plain
from holdfast.workflows.recovery import RecoveryStatus, WorkflowRecovery

COLUMNS: Final = (Column("workflow"), Column("status"), Column("what", gives=True))


@click.command()
@click.argument("id", required=False)
@click.option(
    "--max-age", "hours", type=click.FloatRange(0, min_open=True), metavar="HOURS",
    help="Leave those whose last change is longer ago; they are listed. [default: RECOVERY_MAX_AGE_HOURS]",
)  # fmt: skip
@json_option
@store_options
@pass_session
def recover(session: Session, id: str | None, hours: float | None, as_json: bool) -> int | None:
    """Let workflows go on in which something is missing; with ID only that one, whatever its age.

    Workers do it by themselves, once a minute. The exit code is 1 if one could not be taken up.
    """
    flows = session.workflows
    if id is not None:
        find_record(session, id)
        results = [flows.recovery.recover(id)]
    elif hours is None:
        results = flows.recovery.recover_pending_workflows()
    else:
        results = WorkflowRecovery(flows.store, flows.queue, hours).recover_pending_workflows()
    told = [one for one in results if one.found or one.status is not RecoveryStatus.SKIPPED]
    if as_json:
        document({"looked_at": len(results), "results": [plain(one) for one in told]})
    elif told:
        table(COLUMNS, [(one.workflow_id, one.status, one.message) for one in told])
    else:
        note(f"nothing is missing; looked at {counted(len(results), 'workflow')} under way")
    return 1 if any(one.status is RecoveryStatus.FAILED for one in told) else None
