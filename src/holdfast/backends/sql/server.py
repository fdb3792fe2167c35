"""What the server databases share: a pool, the server's clock, and tables that only an operator upgrades."""

from __future__ import annotations

import random
import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from typing import Any, Final, Generic, Protocol, TypeVar

from holdfast.backends.sql.database import Row, T
from holdfast.backends.sql.ddl import shared_ddl, tables_ddl
from holdfast.backends.sql.dialect import Dialect
from holdfast.backends.sql.plans import Plans
from holdfast.backends.sql.pool import Pool
from holdfast.backends.sql.revisions import check_version, head, how_to_upgrade, newest
from holdfast.backends.sql.schema import VERSION_TABLE
from holdfast.backends.sql.statement import Statement
from holdfast.backends.sql.topics import Topics
from holdfast.backends.sql.url import Address
from holdfast.errors import SchemaError, StoreError, StoreUnavailable

MEASURED_FOR_S: Final = 60.0
FOLD_AFTER: Final = 500  # changes by this process
TRIES: Final = 6


class ServerSession(Protocol):
    """A connection in autocommit mode."""

    def rows(self, statement: Statement, values: Sequence[Any]) -> list[Row]: ...
    def execute(self, sql: str) -> list[Row]: ...
    def is_broken(self) -> bool: ...
    def close(self) -> None: ...


S = TypeVar("S", bound=ServerSession)


class Again(Exception):
    """The server has undone the transaction, and doing it once more is the answer: a deadlock, for instance."""


class ServerDatabase(ABC, Generic[S]):
    """A database on a server. What its subclasses add is what their drivers do differently."""

    dialect: Dialect
    clock_sql: str
    tables_sql: str

    def __init__(self, address: Address, topics: Topics, *, durable: bool, connections: int, patience: float) -> None:
        self._address = address
        self._url = address.shown
        self._topics = topics
        self._durable = durable
        self._patience = patience
        self._pool: Pool[S] = Pool(self._open, connections, patience)
        self._checking = threading.Lock()
        self._is_checked = False
        self._ahead_ns: int | None = None  # the server's clock less our monotonic one
        self._measured = 0.0
        self._changes: dict[str, int] = {}

    @abstractmethod
    def _connect(self) -> S:
        """A new connection."""

    @abstractmethod
    def _failure(self, error: Exception) -> Exception:
        """What to raise for a driver's error."""

    @abstractmethod
    def _is_driver_error(self, error: Exception) -> bool: ...

    def _may_not_write(self, error: Exception) -> bool:
        """Whether a connection may only read, which another one may not: it stays so when the server takes changes."""
        return False

    def prepare(self, plans: Plans, *, joining: bool = False) -> None:
        self._check_schema()
        if not self._missing([plans]):
            return
        name = plans.tables.rows.name
        raise SchemaError(f"{self._url} has no table {name}; {how_to_upgrade(self._url)}")

    def create(self, plans: Sequence[Plans]) -> None:
        def work(session: S) -> None:
            there = self._tables(session)
            if VERSION_TABLE not in there:
                for statement in shared_ddl(self.dialect):
                    session.execute(statement)
                if (newest_one := head()) is not None:
                    session.execute(f"INSERT INTO {VERSION_TABLE} (version_num) VALUES ('{newest_one}')")
            for one in plans:
                if one.tables.rows.name not in there:
                    for statement in tables_ddl(one.kind, self.dialect):
                        session.execute(statement)

        self._make_tables(work)
        self._is_checked = False

    @abstractmethod
    def _make_tables(self, work: Callable[[S], None]) -> None:
        """Do the work while nobody else makes tables."""

    def query(self, statement: Statement, values: Sequence[Any]) -> list[Row]:
        return self._with(lambda session: session.rows(statement, values), repeat=True)

    def now(self) -> int:
        if self._ahead_ns is None:
            self.ping()
        assert self._ahead_ns is not None
        return (time.monotonic_ns() + self._ahead_ns) // 1000

    def ping(self) -> None:
        self._with(self._measure, repeat=True)

    def close(self) -> None:
        self._pool.close()

    def note_changes(self, plans: Plans, number: int) -> None:
        # Threads may lose a few counts to each other; it only has to happen now and then.
        seen = self._changes.get(plans.kind.name, 0) + number
        if seen >= FOLD_AFTER:
            self._changes[plans.kind.name] = 0
            self.tidy(plans)
        else:
            self._changes[plans.kind.name] = seen

    @abstractmethod
    def tidy(self, plans: Plans) -> None: ...

    def _with(self, work: Callable[[S], T], *, repeat: bool) -> T:
        """Do something with a connection.

        `repeat`: if the connection broke, once more with another one, since it changes nothing.
        """
        for tries in range(TRIES):
            session = self._take()
            try:
                result = work(session)
            except Exception as error:
                broken = self._is_broken(session)
                self._put_back(session, broken or self._may_not_write(error))
                if not self._is_driver_error(error):
                    raise
                failure = self._failure(error)
                if isinstance(failure, Again) and tries < TRIES - 1:
                    time.sleep(random.random() * 0.002 * (1 << tries))
                    continue
                if broken and repeat and tries == 0:
                    continue
                raise self._told(failure, broken and not repeat) from error
            except BaseException:
                self._pool.drop(session)  # interrupted in the middle of a conversation
                raise
            self._pool.give(session)
            return result
        raise AssertionError("unreachable")

    def _told(self, failure: Exception, is_unknown: bool) -> Exception:
        if is_unknown and isinstance(failure, StoreUnavailable):
            return StoreUnavailable(f"{failure}; whether the change was made is unknown")
        return StoreError(f"{self._url}: {failure}") if isinstance(failure, Again) else failure

    def _put_back(self, session: S, broken: bool) -> None:
        if broken:
            self._pool.drop(session)
            self._pool.close()  # the others will hardly have fared better
        else:
            self._pool.give(session)

    def _take(self) -> S:
        try:
            session = self._pool.take()
            while self._is_broken(session):
                self._pool.drop(session)
                session = self._pool.take()
        except TimeoutError as error:
            raise StoreUnavailable(f"{self._url}: {error}; give the store more connections=") from error
        except Exception as error:
            if not self._is_driver_error(error):
                raise
            failure = self._failure(error)
            if isinstance(failure, StoreUnavailable):
                failure = StoreUnavailable(f"{failure}; is the server running, and the URL right?")
            raise failure from error
        if time.monotonic() - self._measured > MEASURED_FOR_S:
            self._remeasure(session)
        return session

    def _is_broken(self, session: S) -> bool:
        try:
            return session.is_broken()
        except BaseException:
            self._pool.drop(session)  # interrupted while it heard the end of what was asked before
            raise

    def _open(self) -> S:
        session = self._connect()
        self._measure(session)
        return session

    def _remeasure(self, session: S) -> None:
        try:
            self._measure(session)
        except BaseException as error:
            if not isinstance(error, Exception) or not self._is_driver_error(error):
                self._pool.drop(session)
                raise

    def _measure(self, session: S) -> None:
        """Compare the server's clock with ours, in the middle between question and answer."""
        before = time.monotonic_ns()
        server_us = int(session.execute(self.clock_sql)[0][0])
        after = time.monotonic_ns()
        self._ahead_ns = server_us * 1000 - (before + after) // 2
        self._measured = time.monotonic()

    def _check_schema(self) -> None:
        """Raises SchemaError unless the tables are of this program's revision."""
        with self._checking:
            if self._is_checked:
                return

            def applied(session: S) -> str | None:
                if VERSION_TABLE not in self._tables(session):
                    raise SchemaError(f"{self._url} has no Holdfast tables; {how_to_upgrade(self._url)}")
                return newest(row[0] for row in session.execute(f"SELECT version_num FROM {VERSION_TABLE}"))

            check_version(self._with(applied, repeat=True), self._url)
            self._is_checked = True

    def _missing(self, plans: Sequence[Plans]) -> list[str]:
        there = self._with(self._tables, repeat=True)
        return [one.tables.rows.name for one in plans if one.tables.rows.name not in there]

    def _tables(self, session: S) -> set[str]:
        return {row[0] for row in session.execute(self.tables_sql)}
