"""A transaction of the caller's, in which our changes live or die with theirs."""

from __future__ import annotations

import sqlite3
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from functools import cache
from typing import Any, Final

import sqlalchemy as sa
from sqlalchemy.dialects.sqlite import pysqlite
from sqlalchemy.exc import IntegrityError
from sqlalchemy.orm import Session

from holdfast.backends.sql.database import Link, Row, Step, Taken
from holdfast.backends.sql.dialect import Dialect
from holdfast.backends.sql.sqlite import SqliteLink
from holdfast.backends.sql.statement import Statement

_COUNTED: Final = {"preserve_rowcount": True}  # of inserts, too


def join(connection: Any, dialect: Dialect) -> Link:
    """The caller's transaction as ours.

    Raises TypeError for what is no transaction of this database.
    """
    if isinstance(connection, Session):
        return _of_sqlalchemy(connection.connection(), dialect)
    if isinstance(connection, sa.Connection):
        return _of_sqlalchemy(connection, dialect)
    if isinstance(connection, sqlite3.Connection) and dialect.name == "sqlite":
        # Python begins a transaction by itself only before a statement that changes rows, and a savepoint is none.
        if connection.isolation_level is not None and not connection.in_transaction:
            connection.execute("BEGIN IMMEDIATE")
        return SqliteLink(connection)
    if dialect.name == "postgresql":
        from holdfast.backends.sql.postgres import joined  # psycopg is there, or the store were not

        if (link := joined(connection)) is not None:
            return link
    own = {"sqlite": ", or a sqlite3.Connection", "postgresql": ", or a psycopg.Connection"}.get(dialect.name, "")
    raise TypeError(
        f"connection is a {type(connection).__name__}; with {dialect.name} it must be a Session or Connection of "
        f"SQLAlchemy's{own}. Of an async one, pass the `sync_session` or `sync_connection` inside `run_sync`"
    )


class Direct:
    """A transaction of the caller's on a connection of the driver's own, psycopg's or sqlite3's, for texts of SQL.

    `dialect` is what they are compiled for. Errors are the driver's.
    """

    __slots__ = ("dialect", "driver", "_cursor")

    def __init__(self, driver: Any, dialect: sa.Dialect, cursor: Callable[[Any], Any]) -> None:
        self.driver = driver
        self.dialect = dialect
        self._cursor = cursor

    def run(self, text: str, values: Any) -> None:
        self._cursor(self.driver).execute(text, values)

    def run_all(self, text: str, values: Sequence[Any]) -> None:
        """Once for each."""
        self._cursor(self.driver).executemany(text, values)

    def rows(self, text: str, values: Any) -> list[Row]:
        found: list[Row] = self._cursor(self.driver).execute(text, values).fetchall()
        return found


def direct(connection: object) -> Direct | None:
    """The caller's transaction, if that is a driver's own connection; None otherwise.

    Where the driver begins none by itself (`isolation_level=None`, `autocommit=True`) and the caller has begun none,
    each statement commits.
    """
    if isinstance(connection, sqlite3.Connection):
        return Direct(connection, _sqlite(), _plain_rows)
    psycopg = sys.modules.get("psycopg")
    if psycopg is not None and isinstance(connection, psycopg.Connection):
        return Direct(connection, *postgres_direct())
    return None


@cache
def _sqlite() -> sa.Dialect:
    return pysqlite.dialect()


def _plain_rows(connection: sqlite3.Connection) -> sqlite3.Cursor:
    cursor = connection.cursor()
    cursor.row_factory = None  # whatever the caller's rows are
    return cursor


@cache
def postgres_direct() -> tuple[sa.Dialect, Callable[[Any], Any]]:
    """What else a `Direct` on psycopg's connection is made of."""
    from psycopg import RawCursor  # a driver is imported by whoever uses it
    from psycopg.rows import tuple_row
    from sqlalchemy.dialects.postgresql import psycopg

    kind: Any = psycopg.dialect
    return kind(), lambda connection: RawCursor(connection, row_factory=tuple_row)


def _of_sqlalchemy(connection: sa.Connection, dialect: Dialect) -> Link:
    theirs = connection.dialect.name
    if theirs != dialect.name and not {theirs, dialect.name} <= {"mysql", "mariadb"}:
        raise TypeError(f"the connection is to a {theirs} database, the store is in {dialect.name}")
    if not connection.in_transaction():
        connection.begin()
    if dialect.name == "sqlite":
        driver = connection.connection.driver_connection
        if driver is not None and not driver.in_transaction:
            connection.exec_driver_sql("BEGIN IMMEDIATE")
    return SqlalchemyLink(connection)


class SqlalchemyLink:
    """Whatever driver SQLAlchemy uses, its async ones included: it runs our expressions itself."""

    holds = True

    def __init__(self, connection: sa.Connection) -> None:
        self.connection = connection

    def rows(self, statement: Statement, values: Sequence[Any]) -> list[Row]:
        found = self.connection.execute(statement.expression, statement.named(values))
        return [tuple(row) for row in found]

    def count(self, statement: Statement, values: Sequence[Any]) -> int:
        try:
            done = self.connection.execute(statement.expression, statement.named(values), execution_options=_COUNTED)
            return int(done.rowcount)
        except IntegrityError as error:
            raise Taken(str(error)) from error

    def make(self, steps: Sequence[Step]) -> set[str]:
        return {row[write.id_at] for write, rows in steps for row in rows if self.count(write.one, row) != 1}

    def savepoint(self) -> AbstractContextManager[None]:
        return _nested(self.connection)


@contextmanager
def _nested(connection: sa.Connection) -> Iterator[None]:
    with connection.begin_nested():
        yield
