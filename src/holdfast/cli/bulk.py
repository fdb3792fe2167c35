"""`holdfast letters bulk`: the same act on every letter that a filter finds, as a durable operation."""

from __future__ import annotations

from typing import Any, Final

import click

from holdfast.cli.answers import server_reason_option
from holdfast.cli.confirm import agreed, counted, dry_run_option, is_somebody_there, yes_option
from holdfast.cli.exits import ExitCode, Failed, NotFound, WrongUsage
from holdfast.cli.filters import by_option, json_option, letter_filters, words
from holdfast.cli.output import Column, document, facts, heading, note, say, table
from holdfast.cli.progress import follow
from holdfast.cli.session import Session, pass_session, store_options
from holdfast.cli.times import ago, stamp
from holdfast.letters.bulk import BulkPreview, BulkProgress, LetterFilter
from holdfast.machine.bulk import BulkAction, BulkState
from holdfast.views.letters import operation_document
from holdfast.views.plain import plain

_OPERATIONS: Final = (
    Column("id"), Column("action"), Column("state"), Column("done", right=True), Column("failed", right=True),
    Column("age", right=True), Column("by", gives=True),
)  # fmt: skip
_REPLAYS: Final = frozenset({BulkAction.REPLAY, BulkAction.FORCE_REPLAY})
_WAITS: Final = {
    True: "without --app it waits for a worker of the program",
    False: "the server and its workers carry it out",
}
_QUESTIONS: Final = {
    BulkAction.REPLAY: "Replay {}?",
    BulkAction.FORCE_REPLAY: "Replay {} with a new budget of attempts?",
    BulkAction.RESOLVE: "Mark {} as resolved?",
    BulkAction.DISCARD: "Mark {} as rejected?",
}


@click.group()
@store_options
def bulk() -> None:
    """Replay, resolve or discard every letter that a filter finds.

    Without --yes these commands show what they would touch, and ask where there is somebody to ask. What they start is
    kept in the store: it survives this command, and any worker carries it on.
    """


def _starts(command: Any) -> Any:
    """The options of a command that starts an operation."""
    for option in reversed((
        letter_filters,
        click.option("--reason", default="", metavar="TEXT", help="Why; kept with the operation."),
        by_option,
        yes_option,
        dry_run_option,
        click.option("--detach", is_flag=True, help="Start it, print its id, and leave it to the program's workers."),
        json_option,
        store_options,
        pass_session,
    )):  # fmt: skip
        command = option(command)
    return command


@bulk.command("replay")
@click.option("--force", is_flag=True, help="Also what requires review, each with a new budget of attempts.")
@_starts
def replay(session: Session, force: bool, **options: Any) -> int:
    """Replay pending letters: here with --app, else by the program's workers."""
    return _start(session, BulkAction.FORCE_REPLAY if force else BulkAction.REPLAY, **options)


@bulk.command("resolve")
@_starts
def resolve(session: Session, **options: Any) -> int:
    """Mark letters as resolved: somebody has seen to it."""
    return _start(session, BulkAction.RESOLVE, **options)


@bulk.command("discard")
@_starts
def discard(session: Session, **options: Any) -> int:
    """Mark letters as rejected: nobody will replay them. Nothing is deleted."""
    return _start(session, BulkAction.DISCARD, **options)


@bulk.command("list")
@click.option("--state", type=click.Choice([state.value for state in BulkState]), metavar="STATE")
@click.option("--limit", type=click.IntRange(1), default=20, show_default=True, metavar="N")
@json_option
@store_options
@pass_session
def list_operations(session: Session, state: str | None, limit: int, as_json: bool) -> None:
    """Show bulk operations, the newest first."""
    found = session.letters.bulk.find(state, limit)
    if as_json:
        document({"items": [operation_document(one) for one in found]})
    elif found:
        now = session.now()
        rows = [
            (o.id, o.action, o.state, f"{o.done}/{o.total}", o.failed, ago(o.created_at, now), o.requested_by)
            for o in found
        ]
        table(_OPERATIONS, rows)
    else:
        note("no bulk operations")


@bulk.command("status")
@click.argument("id")
@json_option
@store_options
@pass_session
def status(session: Session, id: str, as_json: bool) -> None:
    """Show how far an operation is."""
    _show(_find(session, id), as_json)


@bulk.command("run")
@click.argument("id")
@json_option
@store_options
@pass_session
def run(session: Session, id: str, as_json: bool) -> int:
    """Carry an operation on in this process, or watch it where a worker has it."""
    return _follow(session, _find(session, id), as_json)


@bulk.command("abort")
@click.argument("id")
@server_reason_option
@by_option
@json_option
@store_options
@pass_session
def abort(session: Session, id: str, reason: str, by: str, as_json: bool) -> None:
    """Stop an operation. What was done stays done."""
    found = _find(session, id)
    if not session.letters.bulk.abort(id, by=by):
        raise Failed(f"{id} is over already: {found.state}")
    _show(_find(session, id), as_json)


def _start(
    session: Session,
    action: BulkAction,
    *,
    where: dict[str, Any],
    reason: str,
    by: str,
    yes: bool,
    dry_run: bool,
    detach: bool,
    as_json: bool,
) -> int:
    bulk, scope = session.letters.bulk, LetterFilter(**where)
    preview = bulk.dry_run(scope, action)
    if as_json and (dry_run or not yes):
        document({"action": action, "filter": where, "started": None, **plain(preview)})
        return ExitCode.OK
    if not as_json:
        _show_preview(session, preview, where)
    if session.remote is not None and not reason.strip() and not dry_run and (yes or is_somebody_there()):
        raise WrongUsage("a server wants to know why: --reason TEXT")
    if not preview.total or not agreed(_QUESTIONS[action].format(counted(preview.total)), yes=yes, dry_run=dry_run):
        if as_json:
            document({"action": action, "filter": where, "started": None, **plain(preview)})
        return ExitCode.OK
    # With the count that was shown: what fails meanwhile is not part of what was agreed to.
    begun = bulk.start(scope, action, confirm_count=None if yes else preview.total, requested_by=by, reason=reason)
    if not detach:
        return _follow(session, begun, as_json)
    if as_json:
        document(operation_document(begun))
    else:
        say(begun.id)
        note("started; any worker of the program carries it on")
    return ExitCode.OK


def _follow(session: Session, begun: BulkProgress, as_json: bool) -> int:
    """See the operation through to its end; the exit code that it means."""
    runs_here = session.remote is None and (session.has_app or begun.action not in _REPLAYS)
    if not runs_here and not begun.is_over:
        note(f"watching {begun.id}: {_WAITS[session.remote is None]}. Ctrl-C stops watching, not the operation")
    ended = follow(session.letters.bulk, begun, runs_here=runs_here)
    _show(ended, as_json)
    if not ended.is_over:
        note(f"it is not finished: go on with `holdfast letters bulk run {ended.id}`, or `… bulk abort {ended.id}`")
        return ExitCode.ABORTED
    return ExitCode.OK if ended.state is BulkState.DONE and ended.succeeded == ended.done else ExitCode.FAILED


def _find(session: Session, id: str) -> BulkProgress:
    found: BulkProgress | None = session.letters.bulk.progress(id)
    if found is None:
        raise NotFound(f"there is no bulk operation {id}")
    return found


def _show_preview(session: Session, preview: BulkPreview, where: dict[str, Any]) -> None:
    say(f"{counted(preview.total)} would be touched ({words(where)})")
    if not preview.total:
        return
    heading("")
    pairs = [("domain", name, number) for name, number in sorted(preview.by_domain.items())]
    pairs += [("status", name, number) for name, number in sorted(preview.by_status.items())]
    table((Column("by"), Column("value", gives=True), Column("letters", right=True)), pairs)
    heading("the oldest of them")
    letters = [letter for id in preview.sample if (letter := session.letters.get_by_id(id)) is not None]
    rows = [(one.id, one.status, one.domain, one.error_message or one.failure_type) for one in letters]
    table((Column("id"), Column("status"), Column("domain", gives=True), Column("error", gives=True)), rows)


def _show(progress: BulkProgress, as_json: bool) -> None:
    if as_json:
        document(operation_document(progress))
        return
    where = {name: value for name in LetterFilter.__slots__ if (value := getattr(progress.filter, name)) is not None}
    facts([
        ("id", progress.id),
        ("action", progress.action.value),
        ("state", progress.state.value),
        ("filter", words(where)),
        ("done", f"{progress.done} of {progress.total}"),
        ("succeeded", str(progress.succeeded)),
        ("failed", str(progress.failed)),
        ("skipped", str(progress.skipped)),
        ("by", progress.requested_by),
        ("reason", progress.reason),
        ("note", progress.note),
        ("created", stamp(progress.created_at)),
        ("started", stamp(progress.started_at)),
        ("finished", stamp(progress.finished_at)),
    ])  # fmt: skip
