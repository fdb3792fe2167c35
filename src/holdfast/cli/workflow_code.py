"""Workflows and code: what one guarantees, what no worker can take, and a new run from a step of an old one."""

from __future__ import annotations

from typing import Final

import click

from holdfast.cli.exits import Failed, NotFound, WrongUsage
from holdfast.cli.filters import by_option, json_option
from holdfast.cli.output import Column, Prose, document, facts, heading, note, say, table
from holdfast.cli.session import Session, pass_session, store_options
from holdfast.cli.times import ago
from holdfast.cli.workflow_control import reason_option
from holdfast.cli.workflow_rows import arguments_of, find_record, json_of, row_document, workflows_with
from holdfast.errors import TaskError, WorkflowDefinitionError, WorkflowNotFoundError
from holdfast.views.plain import plain

_STRANDED: Final = (
    Column("workflow"), Column("name", gives=True), Column("stage", gives=True), Column("for", right=True),
    Column("reason", gives=True),
)  # fmt: skip
_STEPS: Final = (Column("stage", gives=True), Column("task", gives=True), Column("effect"))


@click.command()
@click.argument("name")
@click.option("--input", "given", metavar="JSON", help="An example, for a body that looks at its input.")
@json_option
@store_options
@pass_session
def describe(session: Session, name: str, given: str | None, as_json: bool) -> None:
    """Say what a workflow guarantees: each step, and the whole.

    NAME is that of a workflow that the program has made known, with --app, or the id of one that was started.
    """
    args, kwargs = arguments_of(given) if given is not None else ([], {})
    try:
        found = session.workflows.describe(name, *args, **kwargs)
    except WorkflowNotFoundError:
        there = ", ".join(sorted(session.workflows.known)) or "none without --app"
        raise NotFound(f"there is no workflow {name!r}, neither by name ({there}) nor by id") from None
    except WorkflowDefinitionError as error:
        raise Failed(str(error)) from None
    if as_json:
        document(found.to_document())
        return
    facts([("name", found.name), ("effect", str(found.effect)), ("so", Prose(found.words)),
           ("because of", found.weakest)])  # fmt: skip
    heading("steps")
    table(_STEPS, [(one.stage, one.task, one.label) for one in found.steps])
    heading("so a step that is")
    # Once for each kind: beside every step these sentences would have to be cut.
    facts({one.label: Prose(one.words) for one in found.steps}.items())


@click.command()
@click.option("--limit", type=click.IntRange(1), default=100, show_default=True, metavar="N")
@json_option
@store_options
@pass_session
def stranded(session: Session, limit: int, as_json: bool) -> None:
    """Show work that is due and that no worker can take, and why."""
    found = session.workflows.stranded(limit=limit)
    if as_json:
        document({"items": [plain(one) for one in found]})
    elif found:
        now = session.now()
        table(_STRANDED, [(one.workflow_id, one.name, one.stage, ago(one.since, now), one.reason) for one in found])
    else:
        note("all that is due can be taken")


@click.command()
@click.argument("id")
@click.option("--from", "stage", required=True, metavar="STAGE", help="The first stage that runs again.")
@click.option("--context", "given", default="{}", metavar="JSON", help='What to change of the input: {"order": {…}}.')
@click.option("--with", "name", metavar="NAME", help="New code: a workflow that the program has made known.")
@click.option("--key", metavar="KEY", help="Fork it once: the same key again gives the first one.")
@reason_option
@by_option
@json_option
@store_options
@pass_session
def fork(
    session: Session,
    id: str,
    stage: str,
    given: str,
    name: str | None,
    key: str | None,
    reason: str,
    by: str,
    as_json: bool,
) -> None:
    """Start a new run of a workflow that has ended, from STAGE on.

    What the other steps have left is taken over.
    """
    find_record(session, id)
    context = json_of("--context", given)
    if not isinstance(context, dict):
        raise WrongUsage(f"--context must be {{…}}, got {given}")
    if name is not None:
        workflows_with(session, name, "go on with another workflow")
    try:
        made = session.workflows.fork(
            id, stage, context=context, workflow=name, idempotency_key=key, by=by or "anonymous", reason=reason
        )
    except WorkflowNotFoundError as error:
        raise NotFound(str(error)) from None
    except (TaskError, WorkflowDefinitionError) as error:
        raise Failed(str(error)) from None
    if as_json:
        document(row_document(session, made.id))
    else:
        say(f"workflow {made.id} is {made.status}")
