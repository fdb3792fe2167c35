"""`holdfast audit`: verify the audit trail, look at it, take checkpoints of it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from datetime import datetime
from functools import partial
from pathlib import Path
from typing import Any, Final, NamedTuple
from uuid import UUID

import click
from rich.progress import Progress, TaskID
from sqlalchemy.orm import sessionmaker

from holdfast.audit.chain import key_of_text
from holdfast.audit.checkpoints import Checkpoint
from holdfast.audit.rows import StoredEvent
from holdfast.audit.sink import DatabaseAuditSink
from holdfast.audit.verify import ChainVerification
from holdfast.cli.audit_events import list_events, status, streams, types
from holdfast.cli.confirm import counted
from holdfast.cli.exits import ExitCode, NotFound, WrongUsage
from holdfast.cli.filters import json_option
from holdfast.cli.mounted import find_tables
from holdfast.cli.output import Column, document, note, say, table
from holdfast.cli.progress import bar
from holdfast.cli.session import InOrder, Session, audit_key, pass_session, store_options
from holdfast.cli.times import MOMENT
from holdfast.cli.trail import FACTS, OCCURRED, TYPE, cursor_given, event_row
from holdfast.outbox.tables import PREFIX
from holdfast.views.audit import MEANINGS, cursor_text, event_document, verification_document

_BROKEN: Final = (
    Column("stream", gives=True), Column("intact", right=True), Column("first broken event"), Column("why"),
    Column("meaning", gives=True, optional=True),
)  # fmt: skip
_EVENTS: Final = (
    OCCURRED, TYPE, Column("subject", gives=True), Column("entry", optional=True), Column("place", optional=True),
    FACTS,
)  # fmt: skip
_CHECKPOINTS: Final = (Column("stream", gives=True), Column("seq", right=True), Column("hash", gives=True))

_prefix: Final = click.option(
    "--prefix", default=PREFIX, show_default=True, metavar="PREFIX", help="What the names of the tables begin with."
)


def _key(context: click.Context, param: click.Parameter, file: Path | None) -> bytes | None:
    """The key in a file: a text, as the environment would hold it, or bytes that are none."""
    if file is None:
        return None
    held = file.read_bytes()
    try:
        key = key_of_text(held.decode().rstrip("\r\n"))
    except UnicodeDecodeError:
        return held
    if key is None:
        raise WrongUsage(f"there is no key in {file}")
    return key


def _key_file(command: Callable[..., Any]) -> Callable[..., Any]:
    return click.option(
        "--key-file", "key", type=click.Path(exists=True, dir_okay=False, path_type=Path), callback=_key,
        metavar="FILE", help="The key is in this file, and not in the environment or the program.",
    )(command)  # fmt: skip


@click.group(cls=InOrder)
@store_options
def audit() -> None:
    """The audit trail: verify, show, take checkpoints.

    A trail with a key needs it: in the environment variable HOLDFAST_AUDIT_KEY or, to verify and to take checkpoints,
    in a file; 32 or more hexadecimal digits, or a text.
    """


@audit.command()
@click.option("--stream", "streams", multiple=True, metavar="NAME", help="Only this stream; can be given again.")
@click.option(
    "--checkpoints", "file", type=click.Path(exists=True, dir_okay=False, path_type=Path), metavar="FILE",
    help="Hold it against these as well; with a key, they must be signed with it.",
)  # fmt: skip
@_key_file
@_prefix
@json_option
@store_options
@pass_session
def verify(
    session: Session, streams: tuple[str, ...], file: Path | None, key: bytes | None, prefix: str, as_json: bool
) -> int:
    """Say whether the trail is as it was written; exit code 1, and the first broken event, if not."""
    if session.remote is None:
        found = _verified(_sink(session, prefix, key), streams, file)
    else:
        if file is not None:
            raise WrongUsage(f"--checkpoints needs the database itself: {session.remote.url} is a server")
        found = _verified_there(_sink(session, prefix, key), streams)
    broken, among = found.broken, counted(found.streams, "stream")
    if as_json:
        shown = [{**verification_document(one), "meaning": _why(one)[1]} for one in broken]
        document({"verified": not broken, "events": found.events, "streams": found.streams, "broken": shown})
    elif broken:
        table(_BROKEN, [(one.stream, one.events, one.first_broken_event_id, *_why(one)) for one in broken])
        note(f"{len(broken)} of {among} {'is' if len(broken) == 1 else 'are'} broken")
    elif not found.streams:
        note("no event of this trail is chained")
    else:
        say(f"verified: {counted(found.events, 'event')} in {among}")
    return ExitCode.FAILED if broken else ExitCode.OK


@audit.command()
@click.argument("subject", required=False)
@click.option("--entry", type=click.UUID, metavar="ID", help="Of this outbox entry.")
@click.option("--since", type=MOMENT, metavar="TIME", help="Not before: 2026-01-31T12:00 (UTC), or 2h, 7d ago.")
@click.option("--limit", type=click.IntRange(1), default=100, show_default=True, metavar="N")
@click.option("--after", metavar="CURSOR", help="Go on where a page ended; that page names the cursor.")
@_prefix
@json_option
@store_options
@pass_session
def show(
    session: Session,
    subject: str | None,
    entry: UUID | None,
    since: datetime | None,
    limit: int,
    after: str | None,
    prefix: str,
    as_json: bool,
) -> None:
    """Show the events of a SUBJECT or of an outbox entry, the oldest first."""
    if subject is None and entry is None and since is None:
        raise WrongUsage("whose events? Name a subject, --entry ID or --since TIME")
    sink = _sink(session, prefix, None)
    wanted: dict[str, Any] = {"subject_ref": subject, "entry_id": entry, "since": since}
    found = sink.page(**wanted, after=None if after is None else cursor_given(after), limit=limit + 1)
    shown, more = found[:limit], len(found) > limit
    if not shown and after is None and since is None:
        raise NotFound(f"there is no event of {subject if entry is None else f'entry {entry}'} in the trail")
    following = cursor_text(shown[-1].cursor) if more else None
    if as_json:
        document({"events": [event_document(one) for one in shown], "next": following})
        return
    table(_EVENTS, [_row(one) for one in shown])
    if following is not None:
        note(f"there are more: --after {following}")


@audit.command()
@click.option(
    "--out", type=click.Path(dir_okay=False, path_type=Path), metavar="FILE",
    help="Append them to this file, a JSON document per line; with a key, signed.",
)  # fmt: skip
@_key_file
@_prefix
@json_option
@store_options
@pass_session
def checkpoint(session: Session, out: Path | None, key: bytes | None, prefix: str, as_json: bool) -> None:
    """Take a checkpoint of every stream: keep it where those who can change the trail cannot."""
    sink = _sink(session, prefix, key)
    taken = sink.checkpoint()
    if out is not None:
        with out.open("a", encoding="utf-8", newline="\n") as file:
            file.write(sink.export_checkpoints(taken))
    if as_json:
        document({"checkpoints": [one._asdict() for one in taken], "out": None if out is None else str(out)})
    elif not taken:
        note("no event of this trail is chained")
    else:
        table(_CHECKPOINTS, [(one.stream, one.seq, one.event_hash) for one in taken])
        if out is not None:
            note(f"{counted(len(taken), 'checkpoint')} {'is' if len(taken) == 1 else 'are'} in {out}")


for command in (list_events, status, streams, types):
    audit.add_command(command)


def _sink(session: Session, prefix: str, key: bytes | None) -> DatabaseAuditSink:
    """The trail of the program, or the one in the database.

    Raises NoStore if it is not there, WrongUsage for what is no SQL database.
    """
    if session.remote is not None and (prefix != PREFIX or key is not None):
        raise WrongUsage(f"--prefix and --key-file need the database itself: {session.remote.url} is a server")
    if session.has_program and prefix == PREFIX and key is None:
        return session.audit
    engine, tables = find_tables(session, prefix, "audit_events", "chain_heads", "checkpoints")
    events, heads, checkpoints = tables.audit_events, tables.chain_heads, tables.checkpoints
    key = audit_key() if key is None else key
    return DatabaseAuditSink(sessionmaker(engine), events, chain_heads=heads, checkpoints=checkpoints, key=key)


class Verified(NamedTuple):
    """How many events are in order, in how many streams, and which of those are broken."""

    events: int
    streams: int
    broken: list[ChainVerification]


def _verified(sink: DatabaseAuditSink, streams: Sequence[str], file: Path | None) -> Verified:
    checkpoints = [] if file is None else sink.import_checkpoints(file.read_text(encoding="utf-8"))
    if streams:
        _refuse_unknown(sink, streams, checkpoints)
        results = [sink.verify(stream, checkpoints=checkpoints) for stream in streams]
    else:
        results = sink.verify_all(checkpoints=checkpoints)
    return Verified(sum(one.events for one in results), len(results), [one for one in results if not one.verified])


def _verified_there(trail: Any, streams: Sequence[str]) -> Verified:
    """What a server has found, with a bar meanwhile; `trail` is a RemoteAudit."""
    found = Verified(0, 0, [])
    for stream in streams or (None,):
        with bar() as shown:
            task = shown.add_task("verify" if stream is None else f"verify {stream}", total=None)
            events, number, broken = trail.verification(stream, partial(_told, shown, task))
        found = Verified(found.events + events, found.streams + number, [*found.broken, *broken])
    return found


def _told(shown: Progress, task: TaskID, done: int, total: int) -> None:
    shown.update(task, completed=done, total=total)


def _refuse_unknown(sink: DatabaseAuditSink, streams: Sequence[str], checkpoints: Iterable[Checkpoint]) -> None:
    known = {*sink.streams(), *(one.stream for one in checkpoints)}
    for stream in streams:
        if stream not in known:
            raise NotFound(f"there is no stream {stream!r} in the trail; there are: {', '.join(sorted(known)[:20])}")


def _why(one: ChainVerification) -> tuple[str, str]:
    return ("", "") if one.reason is None else (one.reason.value, MEANINGS[one.reason])


def _row(one: StoredEvent) -> tuple[Any, ...]:
    occurred, type, facts = event_row(one)
    place = "" if one.stream is None else f"{one.stream}:{one.seq}"
    return occurred, type, one.event.subject_ref, one.event.entry_id, place, facts
