"""Where an outbox is: its tables in the application's database, and how units of work run there."""

from __future__ import annotations

import os
import socket
from collections.abc import Callable, Iterable, Sequence
from datetime import datetime
from functools import cached_property
from typing import Any, Final, Literal, TypeVar
from uuid import UUID

import sqlalchemy as sa
from sqlalchemy.orm import Session

from holdfast.audit.event import AuditSink
from holdfast.audit.sessions import Sessions, Transaction, dialect_of
from holdfast.backends.sql.join import Direct
from holdfast.core.clock import SYSTEM_CLOCK, Clock
from holdfast.errors import ConfigurationError
from holdfast.machine.outbox_entry import OutboxStatus
from holdfast.outbox.counts import SqlStatusCountsSource, StatusCountsSource
from holdfast.outbox.draft import LARGEST_PAYLOAD
from holdfast.outbox.inserts import Inserts
from holdfast.outbox.operation import OperationRegistry
from holdfast.outbox.rows import COLUMNS, in_utc
from holdfast.outbox.settle import Follower
from holdfast.outbox.statements import Statements
from holdfast.outbox.subject import utc
from holdfast.outbox.subject_operations import built_in_operations
from holdfast.outbox.tables import OutboxTables, sibling_tables
from holdfast.outbox.wake import Signals

T = TypeVar("T")
AT_A_TIME: Final = 500
"""How many ids go into one statement."""


class Place:
    """What every part of the outbox works on."""

    def __init__(
        self,
        session_factory: Any,
        outbox: sa.Table,
        *,
        status_counts_source: StatusCountsSource | None = None,
        audit_sink: AuditSink | None = None,
        operations: OperationRegistry | None = None,
        clock: Clock | None = None,
        abandoned_head: Literal["skip", "block"] = "skip",
        name: str | None = None,
        max_payload: int = LARGEST_PAYLOAD,
    ) -> None:
        if abandoned_head not in ("skip", "block"):
            raise ConfigurationError(f"abandoned_head must be 'skip' or 'block', got {abandoned_head!r}")
        if max_payload < 1:
            raise ConfigurationError(f"max_payload must be at least 1 byte, got {max_payload}")
        self.tables: OutboxTables = sibling_tables(outbox)
        self.sessions = Sessions(session_factory, self.tables.order_locks)
        self.audit_sink = audit_sink
        self.operations = built_in_operations() if operations is None else operations
        self.name = name or f"{socket.gethostname()}-{os.getpid()}"
        self.max_payload = max_payload
        self.followers: list[Follower] = []
        self.signals = Signals()
        self._counts: StatusCountsSource = status_counts_source or SqlStatusCountsSource()
        self._clock = clock
        self._block = abandoned_head == "block"
        self._statements: dict[str, Statements] = {}
        self._inserts: dict[str, Inserts] = {}
        self._fits: set[tuple[str, ...]] = set()

    def run(self, work: Callable[[Session], T]) -> T:
        """Do the work in a transaction of its own."""
        return self.sessions.run(work)

    def run_alone(self, work: Callable[[Session | Direct], T]) -> T:
        """Do work of one statement, in the quickest way there is."""
        return self.sessions.run_alone(work)

    async def arun(self, work: Callable[[Session], T]) -> T:
        """The same from a coroutine, whatever the sessions are."""
        return await self.sessions.arun(work)

    def statements(self, transaction: Transaction) -> Statements:
        dialect = dialect_of(transaction)
        found = self._statements.get(dialect)
        if found is None:
            found = Statements(self.tables, dialect, server_time=self._clock is None, block=self._block)
            self._statements[dialect] = found
        return found

    def inserts(self, transaction: Transaction) -> Inserts:
        dialect = dialect_of(transaction)
        found = self._inserts.get(dialect)
        if found is None:
            found = self._inserts[dialect] = Inserts(self.tables, dialect)
        return found

    def now(self, session: Session) -> datetime:
        """The time of the database server, or of the injected clock."""
        here = self._time_here(session)
        if here is not None:
            return here
        asking = _POSTGRES_TIME if dialect_of(session) == "postgresql" else _MYSQL_TIME
        now: datetime = in_utc(session.execute(asking).scalar())  # type: ignore[assignment]  # a server has a time
        return now

    def _time_here(self, transaction: Transaction) -> datetime | None:
        """None where the server has to be asked."""
        if self._clock is not None:
            return utc(self._clock.wall())
        return utc(SYSTEM_CLOCK.wall()) if dialect_of(transaction) == "sqlite" else None

    def _locked(self, session: Session, ids: Sequence[UUID], statuses: Iterable[OutboxStatus]) -> list[dict[str, Any]]:
        """These rows, locked in the order of their ids, where they have one of these statuses."""
        row, wanted = self.tables.outbox.c, set(statuses)
        rows: list[dict[str, Any]] = []
        for some in parts(sorted(ids)):
            found = self._select().add_columns(row.scrubbed).where(row.entry_id.in_(some))
            locked = session.execute(found.order_by(row.entry_id).with_for_update())
            rows += ({**dict(zip(COLUMNS, values, strict=False)), "scrubbed": values[-1]} for values in locked)
        return [one for one in rows if one["status"] in wanted]

    def _select(self) -> Any:
        return sa.select(*(self.tables.outbox.c[name] for name in COLUMNS))

    @property
    def clock(self) -> Clock | None:
        """What replaces the time of the database server, if anything does."""
        return self._clock

    @cached_property
    def is_async(self) -> bool:
        return self.sessions.is_async


_POSTGRES_TIME: Final = sa.select(sa.func.clock_timestamp())
_MYSQL_TIME: Final = sa.select(sa.func.utc_timestamp(sa.literal_column("6")))


def parts(ids: Sequence[T]) -> Iterable[Sequence[T]]:
    return (ids[start : start + AT_A_TIME] for start in range(0, len(ids), AT_A_TIME))
