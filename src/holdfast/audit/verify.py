"""Verifying a chain: read in pages, each in a transaction of its own, so that appends go on meanwhile."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Final
from uuid import UUID

import sqlalchemy as sa
from sqlalchemy.orm import Session

from holdfast.audit.chain import link_hash
from holdfast.audit.checkpoints import Checkpoint, kept
from holdfast.audit.rows import columns_of, link_of
from holdfast.audit.tables import AuditTables

PAGE: Final = 1000


class Break(StrEnum):
    """What is wrong with a chain."""

    GAP = "gap"
    """An event is missing, or its number is taken twice."""
    LINK = "link"
    """An event does not name the hash of the one before it."""
    HASH = "hash"
    """An event is not what it was when it was hashed, or was hashed with another key."""
    UNHASHED = "unhashed"
    """An event was written past the chain after the chain had begun."""
    UNREADABLE = "unreadable"
    """A row holds what no event can hold."""
    HEAD = "head"
    """The head says something else than the last event: events were cut off, added, or the head was changed."""
    NO_HEAD = "no_head"
    """There are events, but no head."""
    CHECKPOINT = "checkpoint"
    """An event is not the one that a checkpoint saw, or is gone."""


@dataclass(frozen=True, slots=True)
class ChainVerification:
    """What was found. `first_broken_event_id` is the event where the chain breaks: where something is missing, the next
    one that is there, at the end of a stream its last one; None if not even that is there.
    """

    verified: bool
    first_broken_event_id: UUID | None = None
    stream: str = ""
    events: int = 0
    """How many were read and found to be in order."""
    reason: Break | None = None

    def __bool__(self) -> bool:
        return self.verified


class Walk:
    """The way along one stream, a page per `step`, up to where its end was at the first step.

    `since` starts behind a checkpoint, `until` ends at one: so the parts of a chain can be verified with the keys that
    they were written with.
    """

    def __init__(
        self,
        tables: AuditTables,
        stream: str,
        key: bytes | None,
        *,
        checkpoints: Iterable[Checkpoint] = (),
        since: Checkpoint | None = None,
        until: Checkpoint | None = None,
        page: int = PAGE,
    ) -> None:
        assert tables.heads is not None
        self._tables, self._stream, self._key, self._page = tables, stream, key, page
        self._events, self._heads = tables.events, tables.heads
        self._given = [one for one in (*checkpoints, since, until) if one is not None and one.stream == stream]
        self._since, self._until = since, until
        self._seen: dict[int, set[str]] | None = None
        self._head: int | None = None
        self._head_hash: str | None = None
        self._last: int | None = None
        self._seq = 0 if since is None else since.seq
        self._hash = None if since is None else since.event_hash
        self._last_id: UUID | None = None
        self._count = 0
        self.result: ChainVerification | None = None

    @property
    def count(self) -> int:
        """How many events are in order so far."""
        return self._count

    def step(self, session: Session) -> ChainVerification | None:
        """Go on by a page; what was found, once it is."""
        if self.result is None:
            try:
                self.result = self._step(session)
            except (ValueError, TypeError, ArithmeticError):  # SQLite keeps anything in any column
                if self._page == 1:
                    self.result = self._broken(Break.UNREADABLE, self._unreadable_id(session))
                self._page = 1
        return self.result

    def _step(self, session: Session) -> ChainVerification | None:
        if self._seen is None:
            self._seen = self._checkpoints(session)
            ends = session.execute(self._ends()).one()
            self._head, self._head_hash = ends.seq, ends.last_hash
            self._last = ends.last_seq if isinstance(ends.last_seq, int) else None
            if self._since is not None:
                return self._first_link(session)
        rows = session.execute(self._rows()).all()
        for row in rows:
            if reason := self._fault(row):
                return self._broken(reason, row.event_id)
            self._seq, self._hash, self._last_id = row.seq, row.event_hash, row.event_id
            self._count += 1
        return None if len(rows) == self._page else self._end(session)

    def _checkpoints(self, session: Session) -> dict[int, set[str]]:
        seen: dict[int, set[str]] = {}
        for one in (*kept(session, self._tables, self._stream), *self._given):
            seen.setdefault(one.seq, set()).add(one.event_hash)
        return seen

    def _ends(self) -> Any:
        """Head and last event at one moment, which is one statement at every isolation level."""
        head, row = self._heads.c, self._events.c
        mine = head.stream == self._stream
        return sa.select(
            sa.select(head.seq).where(mine).scalar_subquery().label("seq"),
            sa.select(head.last_hash).where(mine).scalar_subquery().label("last_hash"),
            sa.select(sa.func.max(row.seq)).where(row.stream == self._stream).scalar_subquery().label("last_seq"),
        )

    def _first_link(self, session: Session) -> ChainVerification | None:
        """The event of the checkpoint itself, if it was not archived."""
        assert self._since is not None
        row = self._events.c
        mine = (row.stream == self._stream, row.seq == self._since.seq)
        found = session.execute(sa.select(row.event_id, row.event_hash).where(*mine)).first()
        if found is not None:
            self._last_id = found.event_id
            if found.event_hash != self._since.event_hash:
                return self._broken(Break.CHECKPOINT, found.event_id)
        return None

    def _rows(self) -> Any:
        row = self._events.c
        wanted = [row.stream == self._stream]
        if self._count:
            wanted += [row.seq >= self._seq, sa.or_(row.seq > self._seq, row.event_id > self._last_id)]
        elif self._since is not None:
            wanted.append(row.seq > self._seq)
        end = self._last
        if self._until is not None:
            end = self._until.seq if end is None else min(end, self._until.seq)
        if end is not None:
            wanted.append(row.seq <= end)
        chosen = sa.select(*columns_of(self._events)).where(*wanted)
        return chosen.order_by(row.seq, row.event_id).limit(self._page)

    def _fault(self, row: Any) -> Break | None:
        if row.event_hash is None:
            return Break.UNHASHED
        if row.seq != self._seq + 1:
            return Break.GAP
        if row.prior_hash != self._hash:
            return Break.LINK
        if row.event_hash != link_hash(link_of(row), self._key):
            return Break.HASH
        if self._seen and not self._seen.get(row.seq, {row.event_hash}) <= {row.event_hash}:
            return Break.CHECKPOINT
        return None

    def _end(self, session: Session) -> ChainVerification:
        if self._until is not None:
            if self._seq != self._until.seq:
                return self._broken(Break.CHECKPOINT, self._last_id)
        elif self._head is None:
            if self._seq:
                return self._broken(Break.NO_HEAD, self._last_id)
        elif (self._head, self._head_hash) != (self._seq, self._hash):
            return self._broken(Break.HEAD, self._last_id)
        if self._until is None and any(seq > self._seq for seq in self._seen or ()):
            return self._broken(Break.CHECKPOINT, self._last_id)
        row = self._events.c
        unnumbered = sa.select(row.event_id).where(row.stream == self._stream, row.seq.is_(None))
        for event_id in session.execute(unnumbered.limit(1)).scalars():
            return self._broken(Break.UNHASHED, event_id)
        return ChainVerification(True, None, self._stream, self._count)

    def _unreadable_id(self, session: Session) -> UUID | None:
        """The id of the row at hand, if at least that can be read."""
        row = self._events.c
        return _uuid(session.execute(self._rows().with_only_columns(sa.type_coerce(row.event_id, sa.String))).scalar())

    def _broken(self, reason: Break, event_id: UUID | None) -> ChainVerification:
        return ChainVerification(False, event_id, self._stream, self._count, reason)


def unchained(session: Session, tables: AuditTables, start: int, page: int = PAGE) -> list[tuple[str, UUID | None]]:
    """Subject and id of events that were written past the chain after it had begun: since the first chained event's
    time. What was written before that, without a chain, is in order. Some at a time, from the place `start`.
    """
    assert tables.heads is not None
    row, head = tables.events.c, tables.heads.c
    first = tables.events.alias("first").c
    began = sa.select(sa.func.min(first.occurred_at)).where(first.seq == 1, first.stream.in_(sa.select(head.stream)))
    chosen = sa.select(row.subject_ref, sa.type_coerce(row.event_id, sa.String).label("event_id"))
    past = chosen.where(row.stream.is_(None), row.occurred_at >= began.scalar_subquery())
    found = session.execute(past.order_by(row.occurred_at, row.event_id).offset(start).limit(page))
    return [(str(one.subject_ref), _uuid(one.event_id)) for one in found]


def stream_names(session: Session, tables: AuditTables, page: int = PAGE) -> set[str]:
    """Every stream of which there is an event, a head or a checkpoint."""
    names: set[str] = set()
    for table in tables:
        last: str | None = None
        while table is not None:
            stream = table.c.stream
            there = stream.is_not(None) if last is None else stream > last
            found = session.execute(sa.select(stream).where(there).distinct().order_by(stream).limit(page)).scalars()
            some = list(found)
            names.update(map(str, some))
            if len(some) < page:
                break
            last = some[-1]
    return names


def _uuid(stored: Any) -> UUID | None:
    """An id as a database gives it, if it is one."""
    try:
        return stored if isinstance(stored, UUID) else UUID(str(stored))
    except ValueError:
        return None
