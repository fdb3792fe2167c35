"""The consumer's side of at-least-once delivery: a message's id is written with what the message does, once."""

from __future__ import annotations

import hashlib
import inspect
from collections.abc import Awaitable, Callable
from datetime import timedelta
from typing import Any, Final
from uuid import UUID

import sqlalchemy as sa
from sqlalchemy.ext.asyncio import AsyncSession
from sqlalchemy.orm import Session

from holdfast.audit.sessions import dialect_of
from holdfast.core.clock import SYSTEM_CLOCK, Clock
from holdfast.errors import ConfigurationError
from holdfast.outbox.subject import LONGEST, utc
from holdfast.outbox.tables import OutboxTables
from holdfast.store.codec import clean_text

KEEP: Final = timedelta(days=7)
_CHUNK: Final = 1_000


class Inbox:
    """Remembers which messages a consumer has handled, in the consumer's own transactions.

    `inbox` is the handle that `bind_tables` gave, or all of them. Consumers of different names do not see each other.
    A message that comes again later than `keep` after it was handled counts as new once `prune` has run.
    """

    def __init__(
        self, inbox: sa.Table | OutboxTables, consumer: str, *, keep: timedelta = KEEP, clock: Clock | None = None
    ) -> None:
        if not 1 <= len(consumer) <= LONGEST:
            raise ConfigurationError(f"a consumer's name has 1 to {LONGEST} characters, {consumer!r} has not")
        if keep <= timedelta(0):
            raise ConfigurationError(f"Inbox.keep must be above 0, got {keep}")
        self.table = inbox.inbox if isinstance(inbox, OutboxTables) else inbox
        self.consumer = consumer
        self.keep = keep
        self._clock = clock or SYSTEM_CLOCK

    def first_time(self, session: Session, message_id: str | UUID) -> bool:
        """Whether this message was not handled before; from now on it was, if the caller's transaction commits.

        While another transaction handles the same message, this waits for its end.
        """
        row = {
            "consumer": self.consumer,
            "message_id": stored_id(message_id),
            "received_at": utc(self._clock.wall()),
        }
        insert = _insert_once(self.table, dialect_of(session))
        inserted: Any = session.execute(insert, row, execution_options={"preserve_rowcount": True})
        return bool(inserted.rowcount == 1)

    def handle(self, session: Session, message_id: str | UUID, function: Callable[[Session], object]) -> bool:
        """Call `function(session)` if the message is new; whether it was. What it raises undoes all with the caller's
        transaction."""
        new = self.first_time(session, message_id)
        if new:
            function(session)
        return new

    async def afirst_time(self, session: AsyncSession, message_id: str | UUID) -> bool:
        """The same in the transaction of an AsyncSession."""
        return await session.run_sync(self.first_time, message_id)

    async def ahandle(
        self,
        session: AsyncSession,
        message_id: str | UUID,
        function: Callable[[AsyncSession], Awaitable[object] | object],
    ) -> bool:
        """The same in the transaction of an AsyncSession; `function` may be a coroutine function."""
        new = await self.afirst_time(session, message_id)
        if new:
            done = function(session)
            if inspect.isawaitable(done):
                await done
        return new

    def prune(self, place: Any) -> int:
        """Forget messages that this consumer handled longer ago than `keep`; how many.

        `place` is a session, in whose transaction it happens, or an Outbox, where each thousand is a transaction of its
        own.
        """
        in_session = isinstance(place, Session)
        gone = 0
        while True:
            number: int = self.prune_some(place) if in_session else place.run(self.prune_some)
            gone += number
            if number < _CHUNK:
                return gone

    async def aprune(self, place: Any) -> int:
        """The same with an AsyncSession, or from a coroutine with an Outbox."""
        if isinstance(place, AsyncSession):
            return await place.run_sync(self.prune)
        gone = 0
        while True:
            number: int = await place.arun(self.prune_some)
            gone += number
            if number < _CHUNK:
                return gone

    def prune_some(self, session: Session) -> int:
        """Forget up to a thousand of them, as a unit of work for `Outbox.run`."""
        row = self.table.c
        before = utc(self._clock.wall()) - self.keep
        old = sa.select(row.message_id).where(row.consumer == self.consumer, row.received_at < before)
        ids = list(session.execute(old.order_by(row.received_at).limit(_CHUNK)).scalars())
        if ids:
            mine = sa.and_(row.consumer == self.consumer, row.message_id.in_(ids), row.received_at < before)
            session.execute(self.table.delete().where(mine))
        return len(ids)


def stored_id(message_id: str | UUID | None) -> str:
    """The id as it is stored: one that the column cannot hold is stored as its hash.

    Raises ValueError for none: the first message that lacks one would have all others taken for it.
    """
    text = "" if message_id is None else str(message_id)
    if not text:
        raise ValueError("a message without an id cannot be told from another: give an id")
    if len(text) <= LONGEST and clean_text(text) == text:
        return text
    return f"sha256:{hashlib.sha256(text.encode(errors='surrogatepass')).hexdigest()}"


def _insert_once(table: sa.Table, dialect: str) -> Any:
    match dialect:
        case "postgresql":
            from sqlalchemy.dialects.postgresql import insert as postgresql_insert

            return postgresql_insert(table).on_conflict_do_nothing(
                index_elements=[table.c.consumer, table.c.message_id]
            )
        case "sqlite":
            from sqlalchemy.dialects.sqlite import insert as sqlite_insert

            return sqlite_insert(table).on_conflict_do_nothing(index_elements=[table.c.consumer, table.c.message_id])
        case _:
            # Not ON DUPLICATE KEY UPDATE: SQLAlchemy has MySQL count the rows that it found, so both would give 1.
            return table.insert().prefix_with("IGNORE")
