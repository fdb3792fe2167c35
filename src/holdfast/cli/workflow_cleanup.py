"""What is left to be cleaned up after workflows, and what is kept of old ones."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Any, Final

import click

from holdfast.cli.answers import server_reason_option
from holdfast.cli.confirm import agreed, counted, dry_run_option, yes_option
from holdfast.cli.exits import Failed, NotFound
from holdfast.cli.filters import by_option, json_option
from holdfast.cli.output import Column, document, note, say, table
from holdfast.cli.session import Session, pass_session, store_options
from holdfast.cli.times import MOMENT, ago
from holdfast.cli.workflow_rows import find_record
from holdfast.errors import InvalidStateTransitionError, WorkflowNotFoundError
from holdfast.machine.finalizer import FinalizerForm, FinalizerState
from holdfast.views.workflows import finalizer_document
from holdfast.workflows.finalizers import Finalizer

STATES: Final = [state.value for state in FinalizerState]
_FINALIZERS: Final = (
    Column("id"), Column("stage", gives=True), Column("finalizer", gives=True), Column("state"),
    Column("tries", right=True), Column("age", right=True), Column("error", gives=True),
)  # fmt: skip


@click.command()
@click.argument("id", metavar="[WORKFLOW]", required=False)
@click.option("--state", type=click.Choice(STATES, case_sensitive=False), metavar="|".join(STATES))
@click.option("--limit", type=click.IntRange(1), default=100, show_default=True, metavar="N")
@json_option
@store_options
@pass_session
def finalizers(session: Session, id: str | None, state: str | None, limit: int, as_json: bool) -> None:
    """Show what is to be done after stages are over, or was, of one workflow or of all."""
    if id is not None:
        find_record(session, id)
    found = session.workflows.finalizers.find(id, state=state, limit=limit)
    if as_json:
        document({"items": [finalizer_document(one) for one in found]})
    elif found:
        now = session.now()
        table(_FINALIZERS, [_row(one, now) for one in found])
        if any(one.state in (FinalizerState.FAILED, FinalizerState.LOST) for one in found):
            note("`holdfast workflow finalize ID` has one that failed or was lost run again")
    else:
        note("no finalizers match")


@click.command()
@click.argument("ids", metavar="ID...", nargs=-1, required=True)
@by_option
@json_option
@store_options
@pass_session
def finalize(session: Session, ids: Sequence[str], by: str, as_json: bool) -> None:
    """Have finalizers that failed or were lost run again, by whichever worker."""
    for id in ids:
        try:
            session.workflows.finalizers.run_again(id, by=by or "anonymous")
        except WorkflowNotFoundError:
            raise NotFound(f"there is no finalizer {id}; `holdfast workflow finalizers` shows them") from None
        except InvalidStateTransitionError:
            raise Failed(f"finalizer {id} is waiting to be run already") from None
    if as_json:
        document({"asked": list(ids)})
    else:
        say(f"{counted(len(ids), 'finalizer')} will be run by a worker")


@click.command()
@click.option(
    "--older-than", "before", type=MOMENT, required=True, metavar="TIME",
    help="Ended longer ago than this: 30d, or 2026-01-31T12:00 (UTC).",
)  # fmt: skip
@server_reason_option
@yes_option
@dry_run_option
@json_option
@store_options
@pass_session
def prune(session: Session, before: datetime, reason: str, yes: bool, dry_run: bool, as_json: bool) -> None:
    """Delete workflows that ended long ago, with their stages and logs.

    Those stay that have dead letters, finalizers that were not done, or a parent that is under way. The idempotency
    key of one that goes can be used again. Without --yes it shows how many there are, and asks where there is somebody
    to ask.
    """
    found = session.workflows.prune(before, dry_run=True)
    if not as_json:
        say(f"{counted(found.pruned, 'workflow')} would be deleted")
        for reason, number in sorted(found.kept.items()):
            say(f"{counted(number, 'workflow')} would be kept: {reason}")
    pruned = 0
    if found.pruned and agreed(f"Delete {counted(found.pruned, 'workflow')} for good?", yes=yes, dry_run=dry_run):
        pruned = session.workflows.prune(before).pruned
        if not as_json:
            say(f"deleted {counted(pruned, 'workflow')}")
    if as_json:
        document({"matched": found.pruned, "kept": dict(found.kept), "pruned": pruned})


def finalizer_counts(session: Session, id: str) -> str:
    """How many finalizers of a workflow are in which state, or nothing."""
    found = session.workflows.finalizers.find(id)
    numbers = {state: sum(one.state == state for one in found) for state in FinalizerState}
    return ", ".join(f"{number} {state}" for state, number in numbers.items() if number)


def _row(one: Finalizer, now: datetime) -> Sequence[Any]:
    hooks = {FinalizerForm.CANCEL: "on_cancel of ", FinalizerForm.CLEANUP: "on_cleanup of "}
    name = hooks.get(one.form, "") + one.name
    return one.id, one.stage, name, one.state, one.attempts or "", ago(one.created_at, now), one.last_error
