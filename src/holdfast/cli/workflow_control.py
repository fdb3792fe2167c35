"""Holding workflows and letting them go on, running stages again, leaving stages out."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

import click

from holdfast.cli.exits import NotFound
from holdfast.cli.filters import by_option, json_option
from holdfast.cli.output import document, say
from holdfast.cli.session import Session, pass_session, store_options
from holdfast.cli.workflow_rows import find_record, row_document
from holdfast.errors import WorkflowNotFoundError

reason_option: Final = click.option("--reason", default="", metavar="TEXT", help="Why; kept in the workflow's log.")
_code_option: Final = click.option(
    "--code-version", "code", metavar="VERSION", help="Let workers that serve this version of the code run it."
)


@click.command()
@click.argument("id")
@reason_option
@by_option
@json_option
@store_options
@pass_session
def pause(session: Session, id: str, reason: str, by: str, as_json: bool) -> None:
    """Hold a workflow.

    What workers have taken ends, and nothing new begins until it is resumed.
    """
    _do(session, id, as_json, session.workflows.pause, by=by or "anonymous", reason=reason)


@click.command()
@click.argument("id")
@reason_option
@by_option
@json_option
@store_options
@pass_session
def resume(session: Session, id: str, reason: str, by: str, as_json: bool) -> None:
    """Let a paused workflow go on."""
    _do(session, id, as_json, session.workflows.resume, by=by or "anonymous", reason=reason)


@click.command()
@click.argument("id")
@_code_option
@reason_option
@by_option
@json_option
@store_options
@pass_session
def retry(session: Session, id: str, code: str | None, reason: str, by: str, as_json: bool) -> None:
    """Run every stage that has failed again, and what comes after it.

    It goes on with the idempotency keys that it had.
    """
    _do(session, id, as_json, session.workflows.retry, by=by or "anonymous", reason=reason, code_version=code)


@click.command()
@click.argument("id")
@click.argument("stage")
@_code_option
@reason_option
@by_option
@json_option
@store_options
@pass_session
def restart(session: Session, id: str, stage: str, code: str | None, reason: str, by: str, as_json: bool) -> None:
    """Run STAGE again, which has ended, and everything after it.

    It has new idempotency keys.
    """
    again = session.workflows.restart
    _do(session, id, as_json, again, stage, by=by or "anonymous", reason=reason, code_version=code)


@click.command()
@click.argument("id")
@click.argument("stage")
@reason_option
@by_option
@json_option
@store_options
@pass_session
def skip(session: Session, id: str, stage: str, reason: str, by: str, as_json: bool) -> None:
    """Leave STAGE out. What comes after it runs all the same."""
    _do(session, id, as_json, session.workflows.skip, stage, by=by or "anonymous", reason=reason)


def _do(session: Session, id: str, as_json: bool, act: Callable[..., Any], *args: str, **facts: str | None) -> None:
    """Raises NotFound for a workflow or a stage that is not there; what cannot be done says why."""
    find_record(session, id)
    try:
        act(id, *args, **facts)
    except WorkflowNotFoundError as error:
        raise NotFound(str(error)) from None
    if as_json:
        document(row_document(session, id))
    else:
        say(f"workflow {id} is {find_record(session, id).status}")
