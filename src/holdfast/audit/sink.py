"""The audit trail in the application's own database."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Sequence
from datetime import datetime
from functools import partial
from typing import Any, TypeVar
from uuid import UUID

import sqlalchemy as sa
from sqlalchemy.orm import Session

from holdfast.audit.appending import Statements, append, statements_for
from holdfast.audit.chain import Streams, key_bytes, link_hash, stream_namer
from holdfast.audit.checkpoints import Checkpoint, export_checkpoints, import_checkpoints
from holdfast.audit.event import AuditEvent
from holdfast.audit.reading import Cursor, FoundEvents, aware, find, find_newest
from holdfast.audit.rows import StoredEvent, columns_of, link_of, oldest_first, refuse_unknown_types
from holdfast.audit.sessions import Sessions, Work, writing
from holdfast.audit.tables import AuditTables
from holdfast.audit.verifier import Verifier
from holdfast.audit.verify import ChainVerification
from holdfast.backends.sql.join import Direct
from holdfast.errors import ConfigurationError, InvalidValue

T = TypeVar("T")
EventTypes = Iterable[str] | Callable[[], Collection[str]]


class DatabaseAuditSink:
    """Appends events and reads them; nothing changes or deletes them.

    `session_factory` is a `sessionmaker` or an `async_sessionmaker`, on which only `append_in` and the methods that
    begin with `a` work. `chain_heads` turns the hash chain on, with a `key` as HMAC. `streams` is how many chains there
    are, by subject: more let more transactions append at once. `event_types` are the names, or a function that gives
    them, which may be read beside the built-in ones.
    """

    def __init__(
        self,
        session_factory: Any,
        audit_events: sa.Table,
        *,
        chain_heads: sa.Table | None = None,
        checkpoints: sa.Table | None = None,
        streams: Streams = 16,
        key: bytes | str | None = None,
        event_types: EventTypes = (),
    ) -> None:
        self.tables = AuditTables(audit_events, chain_heads, checkpoints)
        self.stream_of = stream_namer(streams)
        self._sessions = Sessions(session_factory)
        self._key = key_bytes(key)
        self._event_types = event_types if callable(event_types) else frozenset(map(str, event_types))
        self._statements: dict[str, Statements] = {}
        if chain_heads is None and (key is not None or checkpoints is not None):
            raise ConfigurationError("a key or checkpoints without chain_heads do nothing: give chain_heads as well")

    @property
    def is_keyed(self) -> bool:
        """Whether nobody without the key can make an event that passes for a real one."""
        return self._key is not None

    def has_the_key(self) -> bool:
        """Whether the newest chained event was written with this trail's key, or without one as here. What is appended
        otherwise is where the chain breaks. Of a trail that has not begun, True.
        """
        return self.run(self._has_the_key)

    def _has_the_key(self, session: Session) -> bool:
        row = self.tables.events.c
        newest = sa.select(*columns_of(self.tables.events)).where(row.stream.is_not(None))
        last = session.execute(newest.order_by(row.occurred_at.desc(), row.event_id.desc()).limit(1)).first()
        return last is None or link_hash(link_of(last), self._key) == last.event_hash

    # -- appending

    def append(self, event: AuditEvent) -> None:
        """Keep an event, in a transaction of its own.

        Raises AuditIntegrityError for an event that is there already.
        """
        self.run(writing(lambda session: self.append_in(session, (event,))))

    def append_in(self, session: Session | Direct, events: Iterable[AuditEvent]) -> None:
        """Keep events in the transaction of this Session, with which they live or die.

        It locks the heads of their streams until the transaction ends, so do it last. Of an AsyncSession:
        `await session.run_sync(sink.append_in, events)`.

        Raises AuditIntegrityError for an event that is there already; roll back then.
        """
        events = list(events)
        if events:
            append(session, self._statements_for(session), events, self.stream_of, self._key)

    async def aappend(self, event: AuditEvent) -> None:
        """`append` from a coroutine."""
        await self.arun(writing(lambda session: self.append_in(session, (event,))))

    # -- reading

    def read(self, subject_ref: str) -> Sequence[AuditEvent]:
        """A subject's events, oldest first; those of a chain in its order.

        Raises AuditIntegrityError if one of them is of a type that nobody registered: then none is given.
        """
        return self.run(self.reading(subject_ref=subject_ref))

    def read_entry(self, entry_id: UUID) -> Sequence[AuditEvent]:
        """The events of an outbox entry, as `read` gives them."""
        return self.run(self.reading(entry_id=entry_id))

    def read_since(self, since: datetime) -> Sequence[AuditEvent]:
        """All events from a time on, as `read` gives them.

        Raises ConfigurationError for a time without a zone.
        """
        return self.run(self.reading(since=aware(since)))

    async def aread(self, subject_ref: str) -> Sequence[AuditEvent]:
        """`read` from a coroutine."""
        return await self.arun(self.reading(subject_ref=subject_ref))

    async def aread_entry(self, entry_id: UUID) -> Sequence[AuditEvent]:
        """`read_entry` from a coroutine."""
        return await self.arun(self.reading(entry_id=entry_id))

    async def aread_since(self, since: datetime) -> Sequence[AuditEvent]:
        """`read_since` from a coroutine."""
        return await self.arun(self.reading(since=aware(since)))

    def reading(self, **wanted: Any) -> Work[tuple[AuditEvent, ...]]:
        """A read as a unit of work, for `run` or `arun`: by `subject_ref`, `entry_id` or `since`.

        Raises ValueError for what can be none: None is not everybody.
        """
        if "subject_ref" in wanted and not isinstance(wanted["subject_ref"], str):
            fix = "give a text, of a CompositeSubjectId its `canonical`"
            raise InvalidValue(f"subject_ref must be a text, got {wanted['subject_ref']!r}; {fix}")
        if "entry_id" in wanted and not isinstance(wanted["entry_id"], UUID):
            raise InvalidValue(f"entry_id must be a UUID, got {wanted['entry_id']!r}; write UUID('…')")

        def work(session: Session) -> tuple[AuditEvent, ...]:
            found = find(session, self.tables, **wanted)
            refuse_unknown_types(found, self.event_types)
            return tuple(one.event for one in oldest_first(found))

        return work

    def page(
        self,
        *,
        subject_ref: str | None = None,
        entry_id: UUID | None = None,
        since: datetime | None = None,
        after: Cursor | None = None,
        limit: int = 100,
    ) -> list[StoredEvent]:
        """Events with their places in the chain, of whatever type, by time and id. The next page is `after` the
        `cursor` of the last one.
        """
        if limit <= 0:
            return []
        return self.run(self.paging(subject_ref=subject_ref, entry_id=entry_id, since=since, after=after, limit=limit))

    def paging(self, **wanted: Any) -> Work[list[StoredEvent]]:
        """A page as a unit of work, for `run` or `arun`."""
        return partial(find, tables=self.tables, **wanted)

    def newest(self, *, limit: int = 100, after: Cursor | None = None, **wanted: Any) -> FoundEvents:
        """Events of whatever type, the newest first: by `subject_ref`, `entry_id`, `stream`, `event_types`, `since` and
        `until`. By type and stream a part of the trail is searched at a time; the next part is `after` the one that the
        answer names.
        """
        return self.run(partial(find_newest, tables=self.tables, after=after, limit=limit, **wanted))

    # -- the chain

    @property
    def chain(self) -> Verifier:
        """What verifies the chain and takes checkpoints of it.

        Raises ConfigurationError without `chain_heads`.
        """
        return Verifier(self.tables, self.run, self.arun, key=self._key, stream_of=self.stream_of)

    def streams(self) -> list[str]:
        """The names of all streams."""
        return self.chain.streams()

    def verify(self, stream: str, *, checkpoints: Iterable[Checkpoint] = ()) -> ChainVerification:
        """Whether a stream is as it was written; `chain.verify` can also verify a part of it."""
        return self.chain.verify(stream, checkpoints=checkpoints)

    def verify_all(self, *, checkpoints: Iterable[Checkpoint] = ()) -> list[ChainVerification]:
        """The same for every stream."""
        return self.chain.verify_all(checkpoints=checkpoints)

    def checkpoint(self, at: datetime | None = None) -> list[Checkpoint]:
        """Take a checkpoint of every stream."""
        return self.chain.checkpoint(at)

    def export_checkpoints(self, checkpoints: Iterable[Checkpoint]) -> str:
        """A line for each, to be kept elsewhere; signed with the trail's key, if it has one."""
        return export_checkpoints(checkpoints, self._key)

    def import_checkpoints(self, text: str) -> list[Checkpoint]:
        """What was exported. Raises AuditIntegrityError for what is none, or is not signed with the trail's key."""
        return import_checkpoints(text, self._key)

    @property
    def event_types(self) -> Collection[str]:
        """The registered types, beside the built-in ones."""
        return self._event_types() if callable(self._event_types) else self._event_types

    # -- transactions

    def run(self, work: Work[T]) -> T:
        """Do a unit of work in a transaction of its own."""
        return self._sessions.run(work, reads=True)

    async def arun(self, work: Work[T]) -> T:
        """The same from a coroutine."""
        return await self._sessions.arun(work, reads=True)

    def shares(self, sessions: Sessions) -> bool:
        """Whether it is on the database of these sessions, of which every transaction may be joined."""
        return self._sessions.factory is sessions.factory

    def _statements_for(self, to: Session | Direct) -> Statements:
        dialect = to.dialect if isinstance(to, Direct) else to.get_bind(clause=self.tables.events).dialect
        if dialect.name not in self._statements:
            self._statements[dialect.name] = statements_for(self.tables, dialect)
        return self._statements[dialect.name]
