"""Settling: what became of calls, written with the audit events and everything that follows, in one transaction.

The order of locks is the same everywhere: outbox rows by entry id, then sagas, then the heads of audit chains.
"""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Final, NamedTuple, Protocol, cast
from uuid import UUID

from sqlalchemy.orm import Session

from holdfast.audit.event import AuditEvent, AuditSink, JoiningSink
from holdfast.backends.sql.join import Direct
from holdfast.machine.outbox_entry import SUCCEED, Move, OutboxStatus, is_held
from holdfast.outbox.entry import OutboxEntry
from holdfast.outbox.statements import Statements

Group = tuple[str, str, UUID | None]
NO_VALUES: Final[Mapping[str, Any]] = {}
_FEW: Final = 4
_OF_EVENTS: Final = 2


class Attempt(NamedTuple):
    """A line of the attempt history."""

    entry_id: UUID
    claim_token: UUID
    number: int
    started_at: datetime | None
    finished_at: datetime
    outcome: str
    error: str | None


@dataclass(slots=True)
class Settlement:
    """What became of one call: the move that its entry makes, and what is written with it."""

    entry: OutboxEntry
    """As it was claimed."""
    move: Move
    given: Mapping[str, Any] = field(default_factory=dict)
    """The values that the move asks for, and those of other columns."""
    scrub: bool = True
    events: tuple[AuditEvent, ...] = ()
    grouped: bool = False
    """Whether a success may complete a group."""
    completed: AuditEvent | None = None
    """What is audited when this success was the last one that its group lacked."""
    on_complete: Callable[[], None] | None = None
    attempt: Attempt | None = None
    within: Callable[[Session], None] | None = None
    """Writes of the caller's in the same transaction."""

    @property
    def group(self) -> Group:
        return self.entry.subject_id, str(self.entry.operation), self.entry.saga_id


class Follower(Protocol):
    """Someone who acts in the transaction that settles entries of sagas; of others it need not be told."""

    def follow(self, session: Session, settled: Sequence[Settlement]) -> Iterable[AuditEvent]: ...


def settle(
    to: Session | Direct,
    statements: Statements,
    settlements: Sequence[Settlement],
    *,
    sink: AuditSink | None = None,
    followers: Sequence[Follower] = (),
) -> list[bool]:
    """Write what became of these calls; for each whether its claim still held. What did not hold changes nothing."""
    session = cast("Session", to)  # anything else only where `statements_of` knows a number
    first = {one.entry.entry_id.int: one for one in reversed(settlements)}
    todo = [one for one in settlements if first[one.entry.entry_id.int] is one]
    settled, rows = _move(session, statements, todo)
    if settled:
        _record_attempts(session, statements, settled)
        completing = _completed(settled, rows)
        events = [event for one in settled for event in one.events]
        if completing:
            events = [event for one in settled for event in _events(one, id(one) in completing)]
        if followers and any(one.entry.saga_id is not None for one in settled):
            for follower in followers:
                events += follower.follow(session, settled)
        for one in settled:
            if one.within is not None:
                one.within(session)
        write_events(session, sink, events)
    if len(settled) == len(settlements):
        return [True] * len(settled)
    done = {id(one) for one in settled}
    return [id(one) in done for one in settlements]


def statements_of(settlements: Sequence[Settlement]) -> int | None:
    """How many statements write these, where they are updates of what is held, and events: as nearly always, since most
    calls succeed at once. None of others, which need a Session.
    """
    values, tells = set[Any](), False
    for one in settlements:
        entry = one.entry
        if one.move is not SUCCEED or one.grouped or one.attempt is not None or one.within is not None:
            return None
        if entry.saga_id is not None or entry.claim_token is None:
            return None
        values.add((one.scrub, entry.claim_token.int, _hashable(one.given) if one.given else None))
        tells = tells or bool(one.events)
    return None if len(values) > _FEW else len(values) + (_OF_EVENTS if tells else 0)


def write_events(session: Session, sink: AuditSink | None, events: Sequence[AuditEvent]) -> None:
    """Into the transaction where the sink can join it, and otherwise before it: never lost, at worst twice."""
    if not events or sink is None:
        return
    if isinstance(sink, JoiningSink):
        sink.append_in(session, events)
    else:
        for event in events:
            sink.append(event)


Locked = dict[UUID, Any]


def _move(
    session: Session, statements: Statements, settlements: Sequence[Settlement]
) -> tuple[list[Settlement], Locked]:
    """Those that were still held, moved; and the rows, if they had to be locked first."""
    alike = _alike(settlements)
    if statements.returns_updates and _need_no_lock(settlements, alike):
        return _move_held(session, statements, settlements, alike), {}
    groups = {one.group[:2] for one in settlements if one.grouped and one.move is SUCCEED}
    ids = [one.entry.entry_id for one in settlements]
    rows = {row.entry_id: row for row in statements.lock(session, ids, groups)}
    held = [one for one in settlements if _is_held(rows, one)]
    _move_locked(session, statements, held)
    return held, rows


def _need_no_lock(settlements: Sequence[Settlement], alike: Collection[Any]) -> bool:
    """Whether updates may find out by themselves what is held. Those of several rows lock them in any order, which is
    safe only for rows that no completion of a group locks as well; and many different ones are quicker in one go.
    """
    if any(one.entry.claim_token is None or (one.grouped and one.move is SUCCEED) for one in settlements):
        return False
    return len(settlements) == 1 or (len(alike) <= _FEW and all(one.move is SUCCEED for one in settlements))


def _move_held(
    session: Session, statements: Statements, settlements: Sequence[Settlement], alike: Iterable[Sequence[Settlement]]
) -> list[Settlement]:
    lost: set[UUID] = set()
    for those in alike:
        one, ids = those[0], [one.entry.entry_id for one in those]
        moved = statements.move_held(session, one.move, ids, one.entry.claim_token, one.scrub, one.given)
        if moved is not ids:
            lost |= set(ids).difference(moved)
    return [one for one in settlements if one.entry.entry_id not in lost] if lost else list(settlements)


def _is_held(rows: Locked, one: Settlement) -> bool:
    row = rows.get(one.entry.entry_id)
    if row is None:
        return False
    return is_held(row.status, row.claim_token, row.attempts, by=one.entry.claim_token, at_attempts=one.entry.attempts)


def _move_locked(session: Session, statements: Statements, settlements: Sequence[Settlement]) -> None:
    """Entries that get the same values share a statement, and others with the same columns its text."""
    shapes: defaultdict[Any, list[Settlement]] = defaultdict(list)
    for those in _alike(settlements):
        one = those[0]
        if len(those) > 1:
            ids = [each.entry.entry_id for each in those]
            statements.move_all(session, one.move, ids, one.scrub, one.given)
        else:
            shapes[one.move.name, one.scrub, *one.given].append(one)
    for those in shapes.values():
        one = those[0]
        each = [(other.entry.entry_id, other.given) for other in those]
        statements.move_each(session, one.move, one.scrub, each)


def _alike(settlements: Iterable[Settlement]) -> list[list[Settlement]]:
    """Those together that belong to one claim and get the same values."""
    alike: defaultdict[Any, list[Settlement]] = defaultdict(list)
    for one in settlements:
        token = one.entry.claim_token
        claim = None if token is None else token.int  # of which the hash is there already
        alike[one.move.name, one.scrub, claim, _hashable(one.given) if one.given else None].append(one)
    return list(alike.values())


def _hashable(given: Mapping[str, Any]) -> Any:
    try:
        values = tuple(given.items())
        hash(values)
    except TypeError:
        return json.dumps(given, default=str)
    return values


def _record_attempts(session: Session, statements: Statements, settled: Sequence[Settlement]) -> None:
    rows = [one.attempt._asdict() for one in settled if one.attempt is not None]
    if rows:
        session.execute(statements.tables.attempts.insert(), rows)


def _completed(settled: Sequence[Settlement], rows: Locked) -> set[int]:
    """Which settlements complete their groups: the last success of each that leaves nothing unsucceeded behind."""
    last = {one.group: one for one in settled if one.grouped and one.move is SUCCEED}
    if not last:
        return set()
    now = {one.entry.entry_id for one in settled if one.move is SUCCEED}
    left = {
        (row.subject_id, row.operation, row.saga_id)
        for row in rows.values()
        if row.status != OutboxStatus.SUCCEEDED and row.entry_id not in now
    }
    return {id(one) for group, one in last.items() if group not in left}


def _events(one: Settlement, completes: bool) -> list[AuditEvent]:
    """What is audited of one settlement."""
    events = list(one.events)
    if completes:
        if one.completed is not None:
            events.append(one.completed)
        if one.on_complete is not None:
            one.on_complete()
    return events
