"""A transaction of the caller's, in which our changes live or die with theirs."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from typing import Any, Final

import sqlalchemy as sa
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
