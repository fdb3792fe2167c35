"""Acting on single letters: retry, force-redrive, resolve, reject; and pausing a whole domain."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import UTC, datetime, timedelta
from typing import Final

import click

from holdfast.cli.exits import ExitCode, Failed, NotFound
from holdfast.cli.filters import by_option, json_option
from holdfast.cli.output import Column, document, note, say, table
from holdfast.cli.session import Session, pass_session, store_options
from holdfast.cli.times import stamp

NO_APP: Final = (
    "nothing can be replayed here without the program's functions: give --app module:attribute, "
    "or hand the letters to the program's own workers: holdfast letters bulk replay"
)
_RESULTS: Final = (
    Column("id"), Column("outcome"), Column("status"), Column("attempt", right=True),
)  # fmt: skip

ids_argument: Final = click.argument("ids", metavar="ID...", nargs=-1, required=True)
note_option: Final = click.option("--note", "text", default="", metavar="TEXT", help="Why; kept with the letter.")


@click.command()
@ids_argument
@by_option
@json_option
@store_options
@pass_session
def retry(session: Session, ids: Sequence[str], by: str, as_json: bool) -> int:
    """Replay letters now, in this process. Needs --app, but for those of workflows, which workers carry on."""
    return _replay(session, ids, by, as_json, force=False)


@click.command("force-redrive")
@ids_argument
@by_option
@json_option
@store_options
@pass_session
def force_redrive(session: Session, ids: Sequence[str], by: str, as_json: bool) -> int:
    """Replay letters with a new budget of attempts, also those that require review. Needs --app."""
    return _replay(session, ids, by, as_json, force=True)


@click.command()
@ids_argument
@click.option("--type", "how", default="manual", show_default=True, metavar="TYPE", help="For instance manual_fix.")
@note_option
@by_option
@json_option
@store_options
@pass_session
def resolve(session: Session, ids: Sequence[str], how: str, text: str, by: str, as_json: bool) -> None:
    """Mark letters as resolved, whatever their status: somebody has seen to it."""
    _operate(ids, "resolved", as_json, lambda id: session.letters.mark_as_resolved(id, how, text, by or None))


@click.command()
@ids_argument
@note_option
@by_option
@json_option
@store_options
@pass_session
def reject(session: Session, ids: Sequence[str], text: str, by: str, as_json: bool) -> None:
    """Mark letters as rejected: nobody will replay them."""
    update = session.letters.update_status
    _operate(ids, "rejected", as_json, lambda id: update(id, "rejected", "rejected", text, by or None))


@click.command()
@click.argument("domain")
@click.option("--minutes", type=click.IntRange(1), metavar="N", help="Go on by itself after so long.")
@click.option("--reason", required=True, metavar="TEXT")
@by_option
@store_options
@pass_session
def pause(session: Session, domain: str, minutes: int | None, reason: str, by: str) -> None:
    """Replay nothing of a domain, on any host, until it is resumed."""
    until = None if minutes is None else datetime.now(UTC) + timedelta(minutes=minutes)
    session.letters.pause(domain, by=by, reason=reason, until=until)
    say(f"replay of {domain} is paused" + ("" if until is None else f" until {stamp(until)}"))


@click.command()
@click.argument("domain")
@store_options
@pass_session
def resume(session: Session, domain: str) -> None:
    """Let the letters of a paused domain go again."""
    if session.letters.resume(domain):
        say(f"replay of {domain} goes on")
    else:
        note(f"replay of {domain} was not paused")


def _replay(session: Session, ids: Sequence[str], by: str, as_json: bool, *, force: bool) -> int:
    letters, results, missing = session.letters, [], []
    for id in dict.fromkeys(ids):
        found = letters.get_by_id(id)
        if found is None:
            missing.append(id)
        elif not session.has_app and letters.handlers.find(found) is None:
            raise Failed(NO_APP)
        else:
            results.append(letters.replay(id, force=force, by=by or None))
    if as_json:
        document({"results": results, "not_found": missing})
    elif results:
        table(_RESULTS, [(one.id, one.outcome, one.status, one.attempt or "") for one in results])
        for one in results:
            if one.reason:
                note(f"{one.id}: {one.reason}")
    if any(one.outcome not in ("succeeded", "started") for one in results):
        return ExitCode.FAILED
    return _tell_missing(missing)


def _operate(ids: Sequence[str], status: str, as_json: bool, act: Callable[[str], bool]) -> None:
    done: list[str] = []
    missing: list[str] = []
    for id in dict.fromkeys(ids):
        (done if act(id) else missing).append(id)
    if as_json:
        document({"status": status, "changed": done, "not_found": missing})
    elif done:
        table((Column("id"), Column("status")), [(id, status) for id in done])
    _tell_missing(missing)


def _tell_missing(missing: list[str]) -> int:
    if missing:
        raise NotFound(f"there is no letter {', '.join(missing)}")
    return ExitCode.OK
