"""Units of work on the caller's own sessions, sync or async: each a transaction, repeated when the database says so."""

from __future__ import annotations

import asyncio
import random
import sqlite3
import time
from collections.abc import Callable
from functools import cached_property
from typing import TYPE_CHECKING, Any, Final, TypeVar

import sqlalchemy as sa
from sqlalchemy.exc import DBAPIError
from sqlalchemy.ext.asyncio import AsyncSession, async_scoped_session, async_sessionmaker
from sqlalchemy.orm import Session, scoped_session
from sqlalchemy.pool import SingletonThreadPool, StaticPool
from sqlalchemy.util import await_only, greenlet_spawn
from sqlalchemy.util.concurrency import in_greenlet

from holdfast.backends.sql.join import Direct, direct, postgres_direct
from holdfast.errors import ConfigurationError

if TYPE_CHECKING:
    import psycopg

    Given = Session | sa.Connection | sqlite3.Connection | psycopg.Connection[Any]
    """What a caller may have a transaction on."""

T = TypeVar("T")
Work = Callable[[Session], T]
Transaction = Session | sa.Connection | Direct
"""The caller's, in which something is written."""
TRIES: Final = 8
_UNDONE: Final = frozenset({"40001", "40P01"})  # serialization failure, deadlock
_UNDONE_MYSQL: Final = frozenset({1020, 1205, 1213})  # changed since it was read, waited too long, deadlock
_IN_TRANSACTION_MYSQL: Final = 1568
_READ_COMMITTED: Final = "SET TRANSACTION ISOLATION LEVEL READ COMMITTED"


class Sessions:
    """Runs units of work on a `sessionmaker` or an `async_sessionmaker`. A unit never needs two connections.

    `lock` is any table of the database: where a transaction is open already, a write to it is how SQLite is locked.
    """

    def __init__(self, factory: Any, lock: sa.Table | None = None) -> None:
        if not callable(factory):
            raise ConfigurationError(f"session_factory must be a sessionmaker, got {type(factory).__name__}")
        self.factory: Callable[[], Any] = factory
        self.is_async = isinstance(factory, async_sessionmaker)
        self.own_engine: sa.Engine | None = None
        """The engine of these sessions, if it is ours and psycopg's: then a Session is more than a statement needs."""
        self._lock = lock

    def run(self, work: Work[T], *, reads: bool = False) -> T:
        """Do the work and commit; it is undone when it raises, and done again when the database undid it.

        Work that only `reads` locks nobody out, on SQLite either. Raises ConfigurationError on an async factory: await
        `arun` there.
        """
        if self.is_async:
            if in_greenlet():  # below `hop`, and in the listeners of an AsyncSession
                return await_only(self.arun(work, reads=reads))
            raise ConfigurationError(
                "these sessions are of an async_sessionmaker: await the async form of this method, of AsyncOutbox say"
            )
        tries = 0
        while True:
            try:
                with self.factory() as session:
                    _refuse_the_callers_transaction(session)
                    with session.begin():
                        return work(session) if reads else begin(session, work, self._lock)
            except DBAPIError as error:
                tries += 1
                if tries == TRIES or not was_undone(error):
                    raise
                time.sleep(_pause(tries))

    def run_alone(self, work: Callable[[Session | Direct], T]) -> T:
        """`run` for work of one statement, which commits by itself. A Session takes as long as the statement, and twice
        as long for a worker that has slept: on an engine of ours it goes to the driver.
        """
        engine = self.own_engine
        if engine is None:
            return self.run(lambda session: work(_committing_each(session)))
        return self._on_the_driver(engine, work, alone=True)

    async def arun_lean(self, work: Callable[[Session | Direct], T], *, alone: bool) -> T:
        """`arun` for work that takes a `Direct` as well as a Session; `alone` if it is one statement."""
        engine = self.own_engine
        if engine is None:
            return await self.arun(work)
        return await asyncio.to_thread(self._on_the_driver, engine, work, alone=alone)

    def _on_the_driver(self, engine: sa.Engine, work: Callable[[Direct], T], *, alone: bool) -> T:
        tries = 0
        while True:
            try:
                return _on_the_driver(engine, work, alone)
            except DBAPIError as error:
                tries += 1
                if tries == TRIES or not was_undone(error):
                    raise
                time.sleep(_pause(tries))

    async def arun(self, work: Work[T], *, reads: bool = False) -> T:
        """The same from a coroutine: in a thread, or on the loop where all share one connection."""
        if not self.is_async:
            if self.shares_one_connection():
                return self.run(work, reads=reads)
            return await asyncio.to_thread(self.run, work, reads=reads)
        tries = 0
        while True:
            try:
                session: AsyncSession
                async with self.factory() as session:
                    _refuse_the_callers_transaction(session.sync_session)
                    async with session.begin():
                        if reads:
                            return await session.run_sync(work)
                        return await session.run_sync(begin, work, self._lock)
            except DBAPIError as error:
                tries += 1
                if tries == TRIES or not was_undone(error):
                    raise
                await asyncio.sleep(_pause(tries))

    async def hop(self, method: Callable[..., T], *args: Any, **kwargs: Any) -> T:
        """Call something that uses `run`, from a coroutine."""
        if self.is_async:
            return await greenlet_spawn(method, *args, **kwargs)
        if self.shares_one_connection():
            return method(*args, **kwargs)
        return await asyncio.to_thread(method, *args, **kwargs)

    def shares_one_connection(self) -> bool:
        """As SQLite in memory does: from another thread the connection, or the whole database, is another one."""
        return self._is_shared

    @cached_property
    def has_one_writer(self) -> bool:
        """As SQLite has: two units at a time would only wait for each other."""
        session = self.factory()
        return dialect_of(session.sync_session if self.is_async else session) == "sqlite"

    @cached_property
    def _is_shared(self) -> bool:
        if self.is_async:
            return False
        with self.factory() as session:
            pool = getattr(session.get_bind(), "pool", None)
        return isinstance(pool, StaticPool | SingletonThreadPool)


def begin(session: Session, work: Work[T], lock: sa.Table | None = None) -> T:
    """Do the work. On SQLite as the only writer from its beginning: a lock that is taken later may come too late. On
    MySQL with a new view of the data for each statement, as elsewhere: what is locked and what is read then agree.
    """
    match dialect_of(session):
        case "sqlite":
            take_write_lock(session.connection(), lock)
        case "mysql" | "mariadb":
            try:
                session.connection().exec_driver_sql(_READ_COMMITTED)
            except DBAPIError as error:
                # The factory gives sessions on a connection that is in a transaction: its level is the caller's.
                if _number(error) != _IN_TRANSACTION_MYSQL:
                    raise
    return work(session)


def writing(work: Work[T]) -> Work[T]:
    """The same work for a `run` that reads: it takes the lock itself."""
    return lambda session: begin(session, work)


def _committing_each(session: Session) -> Session:
    """The session, with each statement a commit by itself, which saves PostgreSQL two round trips; elsewhere it is as
    it was."""
    bind = session.get_bind()
    if bind.dialect.name == "postgresql" and isinstance(bind, sa.Engine):
        session.connection(execution_options={"isolation_level": "AUTOCOMMIT"})
    return session


def _on_the_driver(engine: sa.Engine, work: Callable[[Direct], T], alone: bool) -> T:
    """Do the work in a transaction on a connection of psycopg's from the pool; what is `alone` commits by itself.

    Raises DBAPIError, as a Session would.
    """
    pooled = engine.raw_connection()
    driver: Any = pooled.driver_connection
    faults: Any = engine.dialect.dbapi
    try:
        if not alone:
            done = work(Direct(driver, *postgres_direct()))
            driver.commit()  # without it the pool rolls back
            return done
        driver.autocommit = True
        try:
            return work(Direct(driver, *postgres_direct()))
        finally:
            if not driver.closed:
                driver.autocommit = False
    except faults.Error as error:
        if driver.closed:
            pooled.invalidate(error)
        raise DBAPIError.instance(None, None, error, faults.Error, dialect=engine.dialect) from error
    finally:
        pooled.close()


def take_write_lock(connection: sa.Connection, lock: sa.Table | None) -> None:
    """Be the only writer of a SQLite database until the transaction ends."""
    driver: Any = connection.connection.driver_connection
    if driver is not None and not driver.in_transaction:
        connection.exec_driver_sql("BEGIN IMMEDIATE")
    elif lock is not None:
        # Someone began a transaction that takes the lock with its first write only: this is one.
        connection.execute(lock.delete().where(sa.false()))


def transaction_of(given: Any) -> Transaction:
    """The transaction that a caller handed in: of a Session, a Connection, or a connection of the driver's own.

    Raises ConfigurationError for what has none.
    """
    if isinstance(given, Session | sa.Connection):
        return given
    return direct(given) or plain_session(given)


def plain_session(session: Any) -> Session:
    """The session that a caller handed in.

    Raises ConfigurationError for an AsyncSession.
    """
    if isinstance(session, scoped_session):
        found: Session = session()
        return found
    if isinstance(session, AsyncSession | async_scoped_session):
        raise ConfigurationError("this is an AsyncSession: await aput, apublish, aenqueue or aerase_subject")
    if not hasattr(session, "get_bind"):
        raise ConfigurationError(
            f"session must be a SQLAlchemy Session, got {session!r}; put, publish and enqueue also take a SQLAlchemy "
            "Connection, a psycopg.Connection or a sqlite3.Connection"
        )
    return session  # type: ignore[no-any-return]  # what else has the methods of a Session may be one


def _refuse_the_callers_transaction(session: Session) -> None:
    """Where all sessions share one connection, as with SQLite in memory, a second one would end the first one's
    transaction: a commit keeps what the caller may yet undo, and merely closing it undoes what the caller wrote.
    """
    pool: Any = getattr(session.get_bind(), "pool", None)
    record: Any = None
    if isinstance(pool, StaticPool):
        record = vars(pool).get("connection")  # asking for it would make one
    elif isinstance(pool, SingletonThreadPool):
        record = getattr(pool._conn, "current", lambda: None)()
    driver = getattr(record, "driver_connection", None)
    if getattr(driver, "in_transaction", False):
        raise ConfigurationError(
            "an own transaction is impossible here: the database has one connection, and it is in the midst of a "
            "transaction. Commit first; for audit events there is append_in(session, events)"
        )


def dialect_of(transaction: Transaction) -> str:
    if isinstance(transaction, Direct | sa.Connection):
        return transaction.dialect.name
    return str(transaction.get_bind().dialect.name)


def was_undone(error: DBAPIError) -> bool:
    """Whether doing it once more is the answer."""
    cause = error.orig
    state = getattr(cause, "sqlstate", None) or getattr(cause, "pgcode", None)
    if state is not None:
        return state in _UNDONE
    number = _number(error)
    if number is not None:
        return number in _UNDONE_MYSQL
    return "database is locked" in str(cause) or "database table is locked" in str(cause)


def _number(error: DBAPIError) -> int | None:
    cause = error.orig
    number = cause.args[0] if cause is not None and cause.args else None
    return number if isinstance(number, int) else None


def _pause(tries: int) -> float:
    """Whoever lost spreads out, or the same ones would meet again."""
    return random.random() * 0.005 * (1 << min(tries, 6))
