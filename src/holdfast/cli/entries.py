"""Looking at the entries of the outbox: list, show, abandoned, scheduled."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import datetime
from functools import wraps
from typing import TYPE_CHECKING, Any, Final
from uuid import UUID

import click

from holdfast.cli.exits import NotFound
from holdfast.cli.filters import json_option
from holdfast.cli.output import Column, document, facts, heading, note, table
from holdfast.cli.session import Session, pass_session, table_options
from holdfast.cli.times import ago, span, stamp, until
from holdfast.cli.trail import FACTS, OCCURRED, TYPE, event_row
from holdfast.machine.outbox_entry import OutboxStatus
from holdfast.outbox.entry import OutboxEntry
from holdfast.outbox.settle import Attempt
from holdfast.views.audit import event_document
from holdfast.views.outbox import attempt_document, entry_document

if TYPE_CHECKING:
    _ParamType = click.ParamType[UUID]
else:
    _ParamType = click.ParamType  # not generic in older releases

STATUSES: Final = [str(status) for status in OutboxStatus]
_ID: Final = Column("id")
_OPERATION: Final = Column("operation", gives=True)
_TARGET: Final = Column("target", gives=True)
_ERROR: Final = Column("error", gives=True)
_ENTRIES: Final = (
    _ID, Column("status"), _OPERATION, Column("target", gives=True, optional=True),
    Column("tries", right=True, optional=True), Column("age", right=True),
    Column("due", right=True, optional=True), _ERROR,
)  # fmt: skip
_ABANDONED: Final = (
    _ID, _OPERATION, Column("target", gives=True, optional=True), Column("tries", right=True, optional=True),
    Column("age", right=True), _ERROR,
)  # fmt: skip
_SCHEDULED: Final = (
    _ID, _OPERATION, _TARGET, Column("parks", right=True, optional=True), Column("age", right=True),
    Column("due", right=True),
)  # fmt: skip
_ATTEMPTS: Final = (
    Column("#", right=True), Column("started"), Column("took", right=True), Column("outcome"), _ERROR,
)  # fmt: skip
_MOST_EVENTS: Final = 100

_FILTERS: Final = (
    click.option("--operation", metavar="NAME", help="For instance publish."),
    click.option("--target", metavar="NAME", help="Who is called: a publisher, a resolver, …"),
    click.option("--subject", "subject_id", metavar="ID", help="Whom or what it is about."),
    click.option("--key", metavar="KEY", help="The key in whose order entries are called."),
    click.option("--queue", metavar="NAME"),
    click.option("--error", metavar="CLASS", help="What the last attempt raised, for instance ConnectionError."),
)
_NAMES: Final = ("operation", "target", "subject_id", "key", "queue", "error")


class EntryId(_ParamType):
    """The id of an entry."""

    name = "id"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> UUID:
        try:
            return value if isinstance(value, UUID) else UUID(value)
        except ValueError:
            self.fail(f"{value!r} is no id of an entry; `holdfast outbox list` shows them", param, ctx)


ENTRY_ID: Final = EntryId()
limit_option: Final = click.option("--limit", type=click.IntRange(1), default=50, show_default=True, metavar="N")


def entry_filters(command: Callable[..., Any]) -> Callable[..., Any]:
    """Give the command an argument `where`: what `find` is asked for, the status apart."""

    @wraps(command)
    def filtered(*args: Any, **values: Any) -> Any:
        given = {name: values.pop(name) for name in _NAMES}
        return command(*args, where={name: value for name, value in given.items() if value is not None}, **values)

    made: Callable[..., Any] = filtered
    for option in reversed(_FILTERS):
        made = option(made)
    return made


@click.command("list")
@click.option("--status", type=click.Choice(STATUSES), metavar="STATUS", help="One of the six statuses.")
@entry_filters
@limit_option
@click.option("--after", type=ENTRY_ID, metavar="ID", help="Go on where a page ended; that page names the id.")
@json_option
@table_options
@pass_session
def list_entries(
    session: Session, status: str | None, where: dict[str, Any], limit: int, after: UUID | None, as_json: bool
) -> None:
    """Show entries, the newest first."""
    found = session.outbox.find(status=status, **where, limit=limit + 1, after=after, newest_first=True)
    shown, following = found[:limit], str(found[limit - 1].entry_id) if len(found) > limit else None
    if as_json:
        document({"items": [entry_document(one, session.outbox.operations) for one in shown], "next": following})
        return
    if not shown:
        note("no entries match")
        return
    now = session.now()
    table(_ENTRIES, [_row(one, now) for one in shown])
    if following is not None:
        note(f"there are more: --after {following}")


@click.command()
@limit_option
@json_option
@table_options
@pass_session
def abandoned(session: Session, limit: int, as_json: bool) -> None:
    """Show entries that were given up. The oldest is the first; `requeue` hands them back."""

    def row(one: OutboxEntry, now: datetime) -> Sequence[Any]:
        return one.entry_id, one.operation, one.resolver, one.attempts, ago(one.enqueued_at, now), one.last_error

    found = session.outbox.list_abandoned(limit=limit + 1)
    show_all(session, found, limit, _ABANDONED, row, as_json, nothing="no entry is abandoned")


@click.command()
@limit_option
@json_option
@table_options
@pass_session
def scheduled(session: Session, limit: int, as_json: bool) -> None:
    """Show entries that their targets have put off. The next one is the first."""

    def row(one: OutboxEntry, now: datetime) -> Sequence[Any]:
        age, due = ago(one.enqueued_at, now), until(one.next_attempt_at, now)
        return one.entry_id, one.operation, one.resolver, one.parks, age, due

    found = session.outbox.list_scheduled(limit=limit + 1)
    show_all(session, found, limit, _SCHEDULED, row, as_json, nothing="no entry is scheduled")


@click.command()
@click.argument("id", type=ENTRY_ID)
@json_option
@table_options
@pass_session
def show(session: Session, id: UUID, as_json: bool) -> None:
    """Show one entry, its calls and its audit events.

    Of an operation whose payloads are sensitive, and of one that is not known here, only the names in it are shown;
    --app brings the operations of your program.
    """
    entry = find_entry(session, id)
    shown = entry_document(entry, session.outbox.operations)
    attempts, events = session.outbox.attempts(id), session.audit.page(entry_id=id, limit=_MOST_EVENTS)
    if as_json:
        history = [attempt_document(one) for one in attempts]
        document({**shown, "history": history, "events": [event_document(one) for one in events]})
        return
    facts(_facts(entry, session.now()))
    for name in ("payload", "corrections", "result", "headers"):
        _show_data(name, shown[name])
    operation = str(entry.operation)
    if (shown["payload"] or shown["result"]) and session.outbox.operations.find(operation) is None:
        note(f"its values are hidden: nobody here knows operation {operation!r}; --app of its program shows them")
    if attempts:
        heading("attempts")
        table(_ATTEMPTS, [_attempt_row(one) for one in attempts])
    if events:
        heading("audit trail")
        table((OCCURRED, TYPE, FACTS), [event_row(one) for one in events])


def find_entry(session: Session, id: UUID) -> OutboxEntry:
    """The entry. Raises NotFound."""
    entry = session.outbox.get(id)
    if entry is None:
        raise NotFound(f"there is no entry {id}")
    return entry


def show_all(
    session: Session,
    found: Sequence[OutboxEntry],
    limit: int,
    columns: Sequence[Column],
    row: Callable[[OutboxEntry, datetime], Sequence[Any]],
    as_json: bool,
    *,
    nothing: str,
) -> None:
    """A table of the first ones, or a document."""
    shown = found[:limit]
    if as_json:
        document({"items": [entry_document(one, session.outbox.operations) for one in shown]})
    elif shown:
        now = session.now()
        table(columns, [row(one, now) for one in shown])
        if len(found) > limit:
            note("there are more: a higher --limit shows them")
    else:
        note(nothing)


def _row(one: OutboxEntry, now: datetime) -> Sequence[Any]:
    due = "" if one.status is OutboxStatus.IN_FLIGHT else until(one.next_attempt_at, now)
    age = ago(one.enqueued_at, now)
    return one.entry_id, one.status, one.operation, one.resolver, one.attempts, age, due, one.last_error


def _facts(entry: OutboxEntry, now: datetime) -> list[tuple[str, Any]]:
    is_called = entry.status is OutboxStatus.IN_FLIGHT
    gate = stamp(entry.next_attempt_at)
    reference = f"{entry.ref.kind} {entry.ref.value}"
    return [
        ("id", str(entry.entry_id)),
        ("status", str(entry.status)),
        ("operation", str(entry.operation)),
        ("target", entry.resolver),
        ("reference", reference),
        ("subject", entry.subject_id),
        ("queue", entry.queue),
        ("key", entry.ordering_key),
        ("dedupe key", entry.dedupe_key),
        ("saga", None if entry.saga_id is None else str(entry.saga_id)),
        ("step", " ".join(part for part in (entry.step, entry.direction) if part)),
        ("tries", str(entry.attempts)),
        ("put off", f"{entry.parks} times" if entry.parks else ""),
        ("error", entry.last_error),
        ("enqueued", f"{stamp(entry.enqueued_at)} ({ago(entry.enqueued_at, now)} ago)"),
        ("last try", stamp(entry.last_attempt_at)),
        ("held by", entry.claimed_by),
        ("held until" if is_called else "next try", gate),
        ("verification", entry.verification),
        ("asked again", stamp(entry.verify_at)),
    ]


def _show_data(name: str, data: Any) -> None:
    if not data:
        return
    heading(name)
    facts(((str(key), value) for key, value in data.items()) if isinstance(data, dict) else [("", data)])


def _attempt_row(made: Attempt) -> Sequence[Any]:
    took = "" if made.started_at is None else span(made.finished_at - made.started_at)
    return made.number, stamp(made.started_at or made.finished_at), took, made.outcome, made.error
