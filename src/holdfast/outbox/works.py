"""Everything that finishes what must happen, over one SQL database: the outbox, its audit trail, sagas, the runner."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from datetime import timedelta
from time import monotonic
from typing import TYPE_CHECKING, Any, Final, TypeVar, overload

import sqlalchemy as sa
from sqlalchemy import event
from sqlalchemy.exc import DisconnectionError
from sqlalchemy.orm import Session, sessionmaker

from holdfast.audit.sink import DatabaseAuditSink
from holdfast.backends.sql.store import SqlStore
from holdfast.backends.sql.url import EXTRAS, Address
from holdfast.core.clock import Clock
from holdfast.core.forks import renew_in_forks
from holdfast.errors import ConfigurationError, MissingExtra
from holdfast.outbox.backoff import BackoffPolicy
from holdfast.outbox.erasure import Erasure
from holdfast.outbox.functions import operation_of
from holdfast.outbox.inbox import KEEP, Inbox
from holdfast.outbox.local import LocalStep
from holdfast.outbox.operation import OperationRegistry
from holdfast.outbox.outbox import Outbox
from holdfast.outbox.publishing import SOURCE, Publishers, publish_operation
from holdfast.outbox.resolver import ResolverRegistry
from holdfast.outbox.runner import SagaRunner
from holdfast.outbox.sagas.sagas import Saga, Sagas
from holdfast.outbox.subject_operations import ERASE, RECTIFY
from holdfast.outbox.tables import PREFIX, OutboxTables, bind_tables
from holdfast.outbox.wake import topic_of
from holdfast.outbox.worker import OutboxWorker, OutboxWorkerPolicy
from holdfast.telemetry.hub import Hub

if TYPE_CHECKING:
    from holdfast.store.port import Store

F = TypeVar("F", bound=Callable[..., Any])
_PATIENCE_S: Final = 30
_REST_S: Final = 3.0
_USED_AT: Final = "holdfast_used_at"


class Works:
    """The parts; they share one pool of connections, which is empty until one of them is used.

    On SQLite the tables are made here, so that a transaction of the program's own finds them.
    Raises ConfigurationError for a store that is no SQL database, or one that only its own connection can see.
    """

    def __init__(
        self,
        store: Store,
        *,
        hub: Hub,
        clock: Clock | None = None,
        audit_key: bytes | None = None,
        source: str | None = None,
        webhook_reach: Sequence[str] = (),
        told: Callable[[], object] = lambda: None,
    ) -> None:
        self._store = _usable(store)
        self._told = told
        """Called when an operation was registered."""
        self._hub = hub
        self._clock = clock
        self.resolvers = ResolverRegistry()
        self.publishers = Publishers(reach=webhook_reach)
        self.operations = OperationRegistry(ERASE, RECTIFY, publish_operation(self.publishers, source=source or SOURCE))
        self._built_in = len([*self.operations])
        self.tables: OutboxTables = bind_tables(sa.MetaData(), PREFIX)
        self.engine = _engine(self._store.address)
        self._left_behind: list[sa.Pool] = []
        renew_in_forks(self._begin_process)
        self.sessions: sessionmaker[Session] = sessionmaker(self.engine)
        """For programs without sessions of their own."""
        self.audit = DatabaseAuditSink(
            self.sessions,
            self.tables.audit_events,
            chain_heads=self.tables.chain_heads,
            checkpoints=self.tables.checkpoints,
            key=audit_key,
            event_types=lambda: self.operations.event_types() | Sagas.event_types,
        )
        self.outbox = Outbox(
            self.sessions, self.tables.outbox, audit_sink=self.audit, operations=self.operations, clock=clock
        )
        if self._store.address.dialect == "postgresql":
            self.outbox.sessions.own_engine = self.engine
        self.sagas = Sagas(self.outbox, hub=hub)
        self.lease = BackoffPolicy().lease
        """How long an entry is its runner's after a sign of life: as the last runner was told, that was made here."""
        if self._store.address.dialect == "sqlite":
            store.ping()

    @property
    def has_work(self) -> bool:
        """Whether this program knows how to make any call. One that knows nothing must not claim what others can do."""
        own = len([*self.operations]) > self._built_in
        return own or any(True for _ in self.publishers) or bool(self.resolvers.all())

    def inbox(self, consumer: str, *, keep: timedelta = KEEP) -> Inbox:
        """The messages that a consumer has seen."""
        return Inbox(self.tables.inbox, consumer, keep=keep, clock=self._clock)

    def erasure(self, *steps: LocalStep) -> Erasure:
        """Requests to be forgotten or corrected, over these tables of the application's."""
        return Erasure(self.outbox, self.resolvers, self.audit, steps=steps)

    @overload
    def operation(self, name: F) -> F: ...
    @overload
    def operation(self, name: str | None = None, **options: Any) -> Callable[[F], F]: ...
    def operation(self, name: Any = None, **options: Any) -> Any:
        """Register a function as an operation; an entry's payload becomes its arguments. `options`: see `Operation`."""

        def register(function: F) -> F:
            given = name if isinstance(name, str) else function.__name__
            self.operations.register(operation_of(given, function, **options))
            self._told()
            return function

        return register(name) if callable(name) else register

    def saga(self, saga: Saga) -> Saga:
        """Make a definition known."""
        self.sagas.register(saga)
        return saga

    def runner(self, **options: Any) -> SagaRunner:
        """What makes the calls; `options` are those of `SagaRunner`.

        A target that nobody registered here is left to others: several programs may share a store.
        """
        options.setdefault("telemetry", self._hub)
        options.setdefault("clock", self._clock)
        options.setdefault("unknown_target", "defer")
        backoff: BackoffPolicy | None = options.get("backoff")
        self.lease = self.lease if backoff is None else backoff.lease
        return SagaRunner(self.resolvers, self.outbox, self.audit, **options)

    def worker(
        self, *, queues: Sequence[str] = ("default",), policy: OutboxWorkerPolicy | None = None, **options: Any
    ) -> OutboxWorker:
        """A runner in a loop that wakes when there is something to do."""
        topic = topic_of(self.tables.outbox.name)
        return OutboxWorker(
            self.runner(queues=queues, **options),
            listen=lambda wake: self._store.subscribe(topic, wake),
            chores={
                "deadlines of sagas": self.sagas.sweep_deadlines,
                "sagas that were left behind": self.sagas.catch_up,
            },
            closing=self.publishers.close,
            policy=policy,
        )

    def close(self) -> None:
        """Let go of the connections."""
        self.engine.dispose()

    def _begin_process(self) -> None:
        """A forked one: its parent's connections are never used here, and never closed."""
        self._left_behind.append(self.engine.pool)
        self.engine.dispose(close=False)


def _usable(store: Store) -> SqlStore:
    if not isinstance(store, SqlStore):
        raise ConfigurationError(
            f"{store.url} has no outbox, sagas or audit trail: they need a SQL database; "
            "use sqlite:///holdfast.db, postgresql://… or mariadb://…"
        )
    if store.address.dialect == "sqlite" and store.address.path == ":memory:":
        raise ConfigurationError(
            "an outbox cannot be in a SQLite database in memory, which other connections do not see; "
            "use a file: sqlite:///holdfast.db"
        )
    return store


def _engine(address: Address) -> sa.Engine:
    try:
        engine = sa.create_engine(address.sqlalchemy, **_OPTIONS.get(address.dialect, {}))
    except ModuleNotFoundError as error:
        raise MissingExtra(f"{error}; run: pip install 'holdfast[{EXTRAS[address.dialect]}]'") from error
    if address.dialect == "sqlite":
        event.listen(engine, "connect", _tune_sqlite)
    else:
        _ping_after_a_rest(engine)
    return engine


_OPTIONS: Final[dict[str, dict[str, Any]]] = {"sqlite": {"connect_args": {"timeout": _PATIENCE_S}}}


def _ping_after_a_rest(engine: sa.Engine) -> None:
    """Ask of a connection that was not used for a while whether it is still there. To ask each time, as the pool itself
    would, makes a worker that is busy wait once more for every claim and every settle.
    """

    def used(_: Any, record: Any) -> None:
        record.info[_USED_AT] = monotonic()

    def taken(connection: Any, record: Any, _: Any) -> None:
        if monotonic() - record.info.get(_USED_AT, math.inf) > _REST_S:
            try:
                engine.dialect.do_ping(connection)
            except Exception as error:  # what a driver raises is its own
                raise DisconnectionError from error

    event.listen(engine, "checkin", used)
    event.listen(engine, "checkout", taken)


def _tune_sqlite(connection: Any, _: Any) -> None:
    connection.execute("PRAGMA journal_mode=WAL")
    connection.execute("PRAGMA synchronous=FULL")
