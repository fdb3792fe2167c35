"""Changing entries of the outbox: requeue and cancel those that are named or match a filter, prune what is old."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any, Final
from uuid import UUID

import click

from holdfast.cli.answers import server_reason_option
from holdfast.cli.confirm import agreed, dry_run_option, yes_option
from holdfast.cli.entries import ENTRY_ID, entry_filters, find_entry
from holdfast.cli.exits import ExitCode, Failed, WrongUsage
from holdfast.cli.filters import json_option, words
from holdfast.cli.output import Column, document, heading, note, say, table
from holdfast.cli.progress import bar
from holdfast.cli.session import Session, pass_session, table_options
from holdfast.cli.trail import refuse_another_key
from holdfast.machine.outbox_entry import CANCEL, REQUEUE, OutboxStatus
from holdfast.outbox.entry import OutboxEntry
from holdfast.outbox.many import Act, Outcome, change_many

_PRUNED_AT_A_TIME: Final = 5_000
_SHOWN: Final = 10
_WAITING: Final = [str(status) for status in sorted(CANCEL.sources)]
_PREVIEW: Final = (Column("operation", gives=True), Column("target", gives=True), Column("entries", right=True))


@dataclass(slots=True)
class Change:
    """What is done to entries: to those in `sources`, by `act`, and what it is called before and after."""

    verb: str
    done: str
    sources: Collection[OutboxStatus]
    act: Act
    wanted: dict[str, Any] = field(default_factory=dict)
    """What `find` is asked for, the sources apart."""
    refuses: Callable[[OutboxEntry], str | None] = lambda entry: None
    """Why it cannot be done to an entry in one of the sources."""
    matching: Callable[[dict[str, Any], Outcome, Callable[[int], None]], None] | None = None
    """How a server does it to all that match a filter, if it can."""
    needs_program: bool = True
    """Whether only a program that knows the operation can say what else belongs to it."""


def _changes(command: Callable[..., Any]) -> Callable[..., Any]:
    """Ids, or a filter; and how to ask."""
    for decorate in (
        pass_session,
        table_options,
        json_option,
        dry_run_option,
        yes_option,
        server_reason_option,
        click.option("--all", "everything", is_flag=True, help="All of them, if there is no filter."),
        entry_filters,
        click.argument("ids", type=ENTRY_ID, metavar="[ID...]", nargs=-1),
    ):
        command = decorate(command)
    return command


@click.command()
@_changes
def requeue(session: Session, ids: Sequence[UUID], where: dict[str, Any], **options: Any) -> int:
    """Hand abandoned entries back, with a new budget.

    Those that are named go back together or not at all. Otherwise all go that match a filter, or --all: it shows how
    many there are, and asks where there is somebody to ask; elsewhere --yes does it.
    """
    outbox = session.outbox
    at_once = None if session.remote is None else outbox.requeue_matching  # type: ignore[attr-defined]  # a RemoteOutbox
    change = Change("requeue", "requeued", REQUEUE.sources, outbox.requeue, matching=at_once)
    return change_entries(session, change, ids, where, **options)


@click.command()
@click.option("--status", type=click.Choice(_WAITING), metavar="STATUS", help=f"One of {', '.join(_WAITING)}.")
@_changes
def cancel(session: Session, ids: Sequence[UUID], where: dict[str, Any], status: str | None, **options: Any) -> int:
    """Give up entries that nobody is calling.

    They are abandoned then, and can be requeued unless their payloads are sensitive. Name them, or give a filter, or
    --all: it shows how many there are, and asks where there is somebody to ask; elsewhere --yes does it.
    """
    if ids and status is not None:
        raise WrongUsage("give ids or a filter, not both")
    sources = CANCEL.sources if status is None else {OutboxStatus(status)}
    change = Change("cancel", "cancelled", sources, session.outbox.cancel)
    return change_entries(session, change, ids, where, filtered=status is not None, **options)


@click.command()
@click.option(
    "--older-than", "days", type=click.IntRange(0), required=True, metavar="DAYS", help="Called longer ago than this."
)
@server_reason_option
@yes_option
@dry_run_option
@json_option
@table_options
@pass_session
def prune(session: Session, days: int, reason: str, yes: bool, dry_run: bool, as_json: bool) -> int:
    """Delete entries that succeeded long ago, with their attempts.

    Entries stay whose group or saga is not complete, and those that were abandoned or not verified. The audit trail
    keeps all its events.
    """
    outbox, age = session.outbox, timedelta(days=days)
    number, gone, is_interrupted = outbox.prunable(age), 0, False
    if not as_json:
        say(f"{_entries(number, 'succeeded ')} would be deleted")
    if number and agreed(f"Delete {_entries(number)} for good?", yes=yes, dry_run=dry_run):
        with bar() as shown:
            task = shown.add_task("prune", total=number)
            try:
                while (some := outbox.prune(age, limit=min(_PRUNED_AT_A_TIME, number - gone))) > 0:
                    gone += some
                    shown.update(task, completed=gone)
                    if gone >= number:  # what has grown old meanwhile is not part of what was agreed to
                        break
            except KeyboardInterrupt:
                is_interrupted = True
        if not as_json:
            say(f"deleted {_entries(gone)}")
    if as_json:
        document({"matched": number, "pruned": gone})
    return ExitCode.ABORTED if is_interrupted else ExitCode.OK


def change_entries(
    session: Session,
    change: Change,
    ids: Sequence[UUID],
    where: dict[str, Any],
    *,
    everything: bool,
    yes: bool,
    dry_run: bool,
    as_json: bool,
    reason: str = "",
    filtered: bool = False,
) -> int:
    """Do it to those that are named, or match a filter; the exit code. The reason is for a server."""
    has_filter = bool(where) or filtered
    if [bool(ids), has_filter, everything].count(True) != 1:
        raise WrongUsage(f"say what to {change.verb}: ids, or a filter, or --all")
    refuse_another_key(session)
    if ids:
        return _change_named(session, change, ids, dry_run=dry_run, as_json=as_json)
    return _change_matching(session, change, where, yes=yes, dry_run=dry_run, as_json=as_json)


def _change_named(session: Session, change: Change, ids: Sequence[UUID], *, dry_run: bool, as_json: bool) -> int:
    """All of them or, where one is refused, none."""
    entries = [find_entry(session, id) for id in dict.fromkeys(ids)]
    for one in entries:
        if one.status not in change.sources:
            allowed = " or ".join(str(status) for status in sorted(change.sources))
            raise Failed(f"entry {one.entry_id} is {one.status}; only {allowed} entries can be {change.done}")
        if why := change.refuses(one):
            raise Failed(why)
    _refuse_unknown(session, change, {str(one.operation) for one in entries})
    outcome = Outcome(len(entries))
    if dry_run:
        if not as_json:
            say(f"{_entries(len(entries))} would be {change.done}")
        agreed("", yes=False, dry_run=True)
    else:
        outcome.changed = len(change.act([one.entry_id for one in entries]))
    return _tell(change, outcome, has_begun=not dry_run, as_json=as_json)


def _change_matching(
    session: Session, change: Change, where: dict[str, Any], *, yes: bool, dry_run: bool, as_json: bool
) -> int:
    """One after the other: what is refused does not keep the rest."""
    wanted: dict[str, Any] = {"status": sorted(change.sources), **change.wanted, **where}
    by_call = session.outbox.tally("operation", "target", **wanted)
    # These and no others: what comes meanwhile is not part of what was agreed to.
    ids = session.outbox.ids(**wanted)
    if not as_json:
        said = words({name.removesuffix("_id"): value for name, value in where.items()})
        say(f"{_entries(len(ids))} would be {change.done} ({said})")
        if by_call:
            heading("")
            table(_PREVIEW, [(*call, number) for call, number in sorted(by_call.items(), key=str)])
    _refuse_unknown(session, change, {str(operation) for operation, _ in by_call})
    outcome = Outcome(len(ids))
    has_begun = bool(ids) and agreed(f"{change.verb.capitalize()} {_entries(len(ids))}?", yes=yes, dry_run=dry_run)
    if has_begun:
        _work(change, ids, where, outcome)
    return _tell(change, outcome, has_begun=has_begun, as_json=as_json)


def _refuse_unknown(session: Session, change: Change, operations: Collection[str]) -> None:
    """Raises Failed for an operation that is not known here, of which nobody could say what to audit and to scrub."""
    for name in sorted(operations) if change.needs_program else ():
        if session.outbox.operations.find(name) is None:
            raise Failed(f"nobody here knows operation {name!r}; give --app of the program that calls it")


def _work(change: Change, ids: Sequence[UUID], where: dict[str, Any], outcome: Outcome) -> None:
    with bar() as shown:
        task = shown.add_task(change.verb, total=len(ids))

        def told(seen: int) -> None:
            shown.update(task, completed=seen)

        try:
            if change.matching is not None:
                change.matching(where, outcome, told)
            else:
                change_many(change.act, ids, outcome, told=told)
        except KeyboardInterrupt:
            outcome.is_interrupted = True


def _tell(change: Change, outcome: Outcome, *, has_begun: bool, as_json: bool) -> int:
    if as_json:
        refused = [{"entry_id": str(id), "why": why} for id, why in outcome.refused.items()]
        done = change.done.partition(" ")[0]
        document({"matched": outcome.matched, done: outcome.changed, "refused": refused})
    elif has_begun:
        say(f"{change.done} {_entries(outcome.changed)}")
        for why in list(outcome.refused.values())[:_SHOWN]:
            note(why)
        if len(outcome.refused) > _SHOWN:
            note(f"… and {len(outcome.refused) - _SHOWN:,} more were refused; --json names them all")
        if outcome.passed_over and not outcome.is_interrupted:
            note(f"{_entries(outcome.passed_over)} had another status by then")
    if outcome.is_interrupted:
        note("interrupted: the rest is as it was")
        return ExitCode.ABORTED
    is_done = not has_begun or outcome.changed == outcome.matched
    return ExitCode.OK if is_done else ExitCode.FAILED


def _entries(number: int, what: str = "") -> str:
    return f"{number:,} {what}{'entry' if number == 1 else 'entries'}"
