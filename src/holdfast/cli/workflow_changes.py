"""Starting workflows, sending them signals, approving and rejecting, cancelling them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

import click

from holdfast.cli.exits import Failed, NotFound, WrongUsage
from holdfast.cli.filters import by_option, json_option
from holdfast.cli.output import document, note, say
from holdfast.cli.session import Session, pass_session, store_options
from holdfast.cli.workflow_control import reason_option
from holdfast.cli.workflow_rows import (
    arguments_of,
    by_program,
    find_record,
    find_workflow,
    json_of,
    lines_of,
    row_document,
    workflows_with,
)
from holdfast.cli.workflow_watch import follow
from holdfast.errors import TaskError, WorkflowNotFoundError
from holdfast.machine.workflow import WorkflowStatus
from holdfast.workflows.signals import APPROVAL

KEY: Final = "idempotency_key"
_name_option: Final = click.option(
    "--name", default=APPROVAL, show_default=True, metavar="NAME", help="The signal that the stage waits for."
)
_stage_option: Final = click.option("--stage", metavar="STAGE", help="For this stage. [default: whichever waits]")
_comment_option: Final = click.option("--comment", metavar="TEXT", help="What there is to say about it.")


@click.command()
@click.argument("name")
@click.option(
    "--input", "given", default="{}", metavar="JSON", help='The input by name: {"order": {"id": 7}}; [..] by place.'
)
@click.option("--key", metavar="KEY", help="Start it once: the same key again gives the first one.")
@click.option("--watch", "watches", is_flag=True, help="Watch it until it has ended; the exit code tells how.")
@json_option
@store_options
@pass_session
def start(session: Session, name: str, given: str, key: str | None, watches: bool, as_json: bool) -> int | None:
    """Start a workflow by its name.

    Needs --app, or a server that has the program, which has made it known with `hold.workflows.add`.
    """
    flows = workflows_with(session, name, "start a workflow")
    args, kwargs = arguments_of(given)
    if KEY in kwargs:
        raise WrongUsage(f"no input of a workflow is called {KEY!r}; --key KEY gives one")
    id = by_program(name, lambda: flows.start(name, *args, idempotency_key=key, **kwargs)).id
    if watches:
        note(f"workflow {id} is started")
        return follow(session, id, as_json=as_json)
    if as_json:
        document(row_document(session, id))
    else:
        say(f"workflow {id} is {find_record(session, id).status}")
    return None


@click.command("signal")
@click.argument("id")
@click.argument("name")
@click.option("--value", "given", default="null", metavar="JSON", help="What comes with it. [default: nothing]")
@_stage_option
@click.option("--key", metavar="KEY", help="Send it once: the same key again changes nothing.")
@json_option
@store_options
@pass_session
def send_signal(
    session: Session, id: str, name: str, given: str, stage: str | None, key: str | None, as_json: bool
) -> None:
    """Send a signal to a workflow. It is kept until a stage waits for it."""
    value = json_of("--value", given)
    send = session.workflows.signal
    _send(session, id, name, as_json, lambda: send(id, name, value, stage=stage, signal_id=key))


@click.command()
@click.argument("id")
@_name_option
@_stage_option
@_comment_option
@by_option
@json_option
@store_options
@pass_session
def approve(
    session: Session, id: str, name: str, stage: str | None, comment: str | None, by: str, as_json: bool
) -> None:
    """Say yes to a workflow that waits for approval.

    It is kept until a stage waits for it.
    """
    word = session.workflows.approve
    _send(session, id, name, as_json, lambda: word(id, name, user=by or "anonymous", comment=comment, stage=stage))


@click.command()
@click.argument("id")
@_name_option
@_stage_option
@_comment_option
@by_option
@json_option
@store_options
@pass_session
def reject(
    session: Session, id: str, name: str, stage: str | None, comment: str | None, by: str, as_json: bool
) -> None:
    """Say no to a workflow that waits for approval.

    The stage that waits fails, unless it goes on with a rejection too.
    """
    word = session.workflows.reject
    _send(session, id, name, as_json, lambda: word(id, name, user=by or "anonymous", comment=comment, stage=stage))


def _send(session: Session, id: str, name: str, as_json: bool, send: Callable[[], bool]) -> None:
    """Raises NotFound for a workflow or a stage that is not there, and Failed for a workflow that has ended."""
    find_record(session, id)
    try:
        is_taken = send()
    except WorkflowNotFoundError as error:
        raise NotFound(str(error)) from None
    except TaskError as error:
        raise Failed(str(error)) from None
    if as_json:
        document({"id": id, "signal": name, "taken": is_taken})
        return
    say(f"a stage waited for {name!r} and goes on" if is_taken else f"{name!r} is kept until a stage waits for it")
    if not is_taken and (others := _awaited(session, id)):
        note(f"at this moment {'; '.join(others)}")


def _awaited(session: Session, id: str) -> list[str]:
    """The signals that stages wait for: a name may have been misspelt."""
    lines = lines_of(session, find_workflow(session, id), session.now()).values()
    return [f"{one.ref} {one.waits.words}" for one in lines if one.waits is not None and one.waits.kind == "signal"]


@click.command()
@click.argument("id")
@click.option("--stage", "ref", metavar="NAME", help="End this stage only; what comes after it is halted.")
@reason_option
@by_option
@json_option
@store_options
@pass_session
def cancel(session: Session, id: str, ref: str | None, reason: str, by: str, as_json: bool) -> None:
    """End a workflow, or one of its stages.

    What has not begun will not, and what is under way counts no more.
    """
    before = WorkflowStatus(find_record(session, id).status)
    if before.is_complete:
        raise Failed(f"workflow {id} is {before} already")
    if ref is None:
        session.workflows.cancel(id, reason or "canceled", by=by or "anonymous")
    else:
        _cancel_stage(session, id, ref, by or "anonymous", reason)
    if as_json:
        document(row_document(session, id))
    else:
        say(f"workflow {id} is {find_record(session, id).status}")


def _cancel_stage(session: Session, id: str, ref: str, by: str, reason: str) -> None:
    """Raises NotFound, and Failed for a stage that has ended."""
    try:
        before = session.workflows.workflow(id).stage(ref).status
        if before.is_complete:
            raise Failed(f"stage {ref!r} of workflow {id} is {before} already")
        session.workflows.cancel_stage(id, ref, by=by, reason=reason)
    except WorkflowNotFoundError as error:
        raise NotFound(str(error)) from None
