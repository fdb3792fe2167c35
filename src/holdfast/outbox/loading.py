"""Very many rows by PostgreSQL's COPY: the server takes in the first ones while the last ones are still made."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from datetime import datetime
from itertools import chain
from typing import Any, Final
from uuid import UUID

import sqlalchemy as sa
from sqlalchemy.exc import SQLAlchemyError

from holdfast.audit.driven import Joined, Row, is_translated, own_cursor
from holdfast.backends.sql.join import Direct

_SAVEPOINT: Final = "holdfast_loading"


def can_load(connection: Joined) -> bool:
    """Whether the driver is psycopg. Its asynchronous connections could copy as well, but not in one step."""
    if isinstance(connection, Direct):
        return True
    if connection.dialect.driver != "psycopg" or "psycopg" not in sys.modules or is_translated(connection):
        return False
    return isinstance(_driver(connection), sys.modules["psycopg"].Connection)


def name_of(connection: Joined, table: sa.Table) -> str:
    """The table's name as the server has it in a statement without parameters."""
    preparer = connection.dialect.identifier_preparer
    # Where drivers look for parameters, a percent sign in a name is written twice.
    percent = preparer.quote("%").strip('"')
    return preparer.format_table(table).replace(percent, "%")


def load(connection: Joined, table: sa.Table, rows: Iterable[Row], at: datetime) -> list[UUID]:
    """Write the rows, which have the same names; their ids. `at` is the time of those that have none.

    If making a row raises, or the database refuses one, none is written, and the transaction can go on.
    """
    rows = iter(rows)
    first = next(rows)
    ids: list[UUID] = []
    preparer = connection.dialect.identifier_preparer
    names = ", ".join(preparer.quote(name) for name in first if name != "delay")
    statement = f"COPY {name_of(connection, table)} ({names}) FROM STDIN"
    values = _values(chain((first,), rows), at, ids)
    with _undone_as_one(connection):
        if isinstance(connection, Direct):
            _copying(values)(connection.driver).execute(statement)
        else:
            with own_cursor(_driver(connection), _copying(values)):
                connection.exec_driver_sql(statement)
    return ids


def _values(rows: Iterable[Row], at: datetime, ids: list[UUID]) -> Iterator[list[Any]]:
    time = at.isoformat()
    for row in rows:
        ids.append(entry_id := row["entry_id"])
        row["entry_id"] = entry_id.hex
        delay = row.pop("delay", None)
        if delay is not None:
            row["next_attempt_at"] = at + delay
        if row["enqueued_at"] is None:
            row["enqueued_at"] = time
        yield [*row.values()]


def _copying(values: Iterable[list[Any]]) -> type[Any]:
    """A cursor that copies."""
    from psycopg import Cursor  # a driver is imported by whoever uses it

    class Copying(Cursor[Any]):
        def execute(self, query: Any, *_: Any, **__: Any) -> Any:
            with self.copy(query) as copy:
                write = copy.write_row
                for one in values:
                    write(one)
            return self

    return Copying


@contextmanager
def _undone_as_one(connection: Joined) -> Iterator[None]:
    """A COPY that is broken off ends the transaction, unless there is a savepoint."""
    driver = _driver(connection)
    if driver.autocommit and not driver.pgconn.transaction_status:  # there is none
        yield
        return
    _say(connection, f"SAVEPOINT {_SAVEPOINT}")
    try:
        yield
    except BaseException:
        with suppress(SQLAlchemyError, sys.modules["psycopg"].Error):  # of a connection that is lost
            _say(connection, f"ROLLBACK TO SAVEPOINT {_SAVEPOINT}")
            _say(connection, f"RELEASE SAVEPOINT {_SAVEPOINT}")
        raise
    _say(connection, f"RELEASE SAVEPOINT {_SAVEPOINT}")


def _say(connection: Joined, text: str) -> None:
    if isinstance(connection, Direct):
        connection.run(text, ())
    else:
        connection.exec_driver_sql(text)


def _driver(connection: Joined) -> Any:
    return connection.driver if isinstance(connection, Direct) else connection.connection.driver_connection
