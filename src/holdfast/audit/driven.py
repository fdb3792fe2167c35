"""Statements that are made once for each kind of rows and each driver, and run on the driver from then on.

What SQLAlchemy does for every execution (cache keys, parameters, types, descriptions of columns) costs more than most
statements themselves. Listeners for `before_cursor_execute` hear of these statements as of any other, and errors are
SQLAlchemy's.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import cache
from typing import Any, Final
from weakref import WeakKeyDictionary

import sqlalchemy as sa

from holdfast.backends.sql.join import Direct

Joined = sa.Connection | Direct
Row = dict[str, Any]
Types = dict[str, sa.types.TypeEngine[Any]]
_MOST: Final = 200
"""Kinds of rows that are remembered for a driver; an application has a handful."""


class Driven:
    """The statements that `make(kind)` gives; their parameters are named as the values of the rows are.

    `types` are the columns' own, for values that not every driver takes as they are. JSON is a text already.
    """

    def __init__(self, make: Callable[[Any], Any], types: Types | None = None) -> None:
        self._make = make
        self._types = types or {}
        self._made: WeakKeyDictionary[sa.Dialect, dict[Any, _Made]] = WeakKeyDictionary()

    def run(self, connection: Joined, kind: Any, names: Sequence[str], rows: Sequence[Row]) -> None:
        """Run the statement of that kind with the values of these names."""
        if not isinstance(connection, Direct) and is_translated(connection):
            connection.execute(self._make(kind), [self._loose(row, names) for row in rows])
            return
        made = self._find(connection.dialect, kind, names)
        given = [*map(made.given, rows)]
        if not isinstance(connection, Direct):
            connection.exec_driver_sql(made.text, given[0] if len(given) == 1 else given)
        elif len(given) == 1:
            connection.run(made.text, given[0])
        else:
            connection.run_all(made.text, given)

    def fetch(self, connection: Joined, kind: Any, given: Row) -> Sequence[Any]:
        """The rows that the statement of that kind gives, if it gives any, for these values."""
        if isinstance(connection, Direct):
            made = self._find(connection.dialect, kind, (), bare=connection.dialect.name == "postgresql")
            if made.returns_rows:
                return made.results(connection.rows(made.text, made.given(given)))
            connection.run(made.text, made.given(given))
            return ()
        if is_translated(connection):
            return _rows(connection.execute(self._make(kind), given))
        driver = connection.connection.driver_connection
        if connection.dialect.driver == "psycopg" and isinstance(driver, sys.modules["psycopg"].Connection):
            made = self._find(connection.dialect, kind, (), bare=True)
            with own_cursor(driver, _bare_cursor()) as cursors:
                connection.exec_driver_sql(made.text, made.given(given))
            return made.results(cursors[-1].fetched)
        made = self._find(connection.dialect, kind, ())
        return made.results(_rows(connection.exec_driver_sql(made.text, made.given(given))))

    def _find(self, dialect: sa.Dialect, kind: Any, names: Sequence[str], bare: bool = False) -> _Made:
        kinds = self._made.get(dialect)
        if kinds is None:
            kinds = self._made[dialect] = {}
        made = kinds.get((kind, bare))
        if made is None:
            if len(kinds) >= _MOST:
                kinds.clear()
            # Numbers for parameters are what the server itself knows, so the driver need not take the text apart.
            kind_of: Any = type(dialect)
            written = kind_of(paramstyle="numeric_dollar") if bare else dialect
            compiled = self._make(kind).compile(dialect=written, column_keys=list(names) or None)
            made = kinds[kind, bare] = _Made(compiled, dialect, self._types)
        return made

    def _loose(self, row: Row, names: Sequence[str]) -> Row:
        """For SQLAlchemy, which makes a text of what is JSON by itself."""
        found = {name: row.get(name) for name in names}
        for name, value in found.items():
            if value is not None and isinstance(self._types.get(name), sa.JSON):
                found[name] = json.loads(value)
        return found


class _Made:
    def __init__(self, compiled: Any, dialect: sa.Dialect, types: Types) -> None:
        self.text = str(compiled)
        self._is_positional = bool(compiled.positional)
        own = compiled.params
        self._values = [
            (name, own[name], _taking(name, types, compiled.binds[name].type, dialect))
            for name in (compiled.positiontup if self._is_positional else own)
        ]
        # No public way leads to the columns of a compiled statement.
        self.returns_rows = bool(compiled._result_columns)
        gives = [one.type.dialect_impl(dialect).result_processor(dialect, None) for one in compiled._result_columns]
        self._gives = gives if any(gives) else None

    def given(self, row: Row) -> Any:
        """The row as the driver takes it."""
        if self._is_positional:
            return tuple(
                [row.get(name, own) if take is None else take(row.get(name, own)) for name, own, take in self._values]
            )
        return {
            name: row.get(name, own) if take is None else take(row.get(name, own)) for name, own, take in self._values
        }

    def results(self, rows: Sequence[Any]) -> Sequence[Any]:
        """The rows as SQLAlchemy gives them."""
        gives = self._gives
        if gives is None:
            return rows
        return [
            tuple([value if make is None else make(value) for value, make in zip(row, gives, strict=True)])
            for row in rows
        ]


def is_translated(connection: sa.Connection) -> bool:
    """Whether the connection has the tables elsewhere than they say, which only SQLAlchemy's own way knows."""
    return bool(connection.get_execution_options().get("schema_translate_map"))


@contextmanager
def own_cursor(driver: Any, kind: Callable[..., Any]) -> Iterator[list[Any]]:
    """Have psycopg make its next cursors so: SQLAlchemy runs a statement on one, tells its listeners of it and
    translates the errors. What is given are the cursors that were made.
    """
    made: list[Any] = []

    def make(*given: Any, **options: Any) -> Any:
        made.append(cursor := kind(*given, **options))
        return cursor

    before, driver.cursor_factory = driver.cursor_factory, make
    try:
        yield made
    finally:
        driver.cursor_factory = before


@cache
def _bare_cursor() -> type[Any]:
    """A cursor of psycopg's that leaves the text as it is, and describes no columns."""
    from psycopg import RawCursor  # a driver is imported by whoever uses it
    from psycopg.pq import ExecStatus

    class Bare(RawCursor[Any]):
        fetched: Sequence[Any] = ()

        @property
        def description(self) -> None:
            """SQLAlchemy would look at each column; without any it closes the cursor at once."""
            return

        def close(self) -> None:
            result = self.pgresult
            if result is not None and result.status == ExecStatus.TUPLES_OK:
                self.fetched = self.fetchall()
            super().close()

    return Bare


def _rows(result: sa.CursorResult[Any]) -> Sequence[Any]:
    return result.all() if result.returns_rows else ()


def _taking(name: str, types: Types, type: Any, dialect: sa.Dialect) -> Callable[[Any], Any] | None:
    if isinstance(types.get(name), sa.JSON):
        return None
    return type.dialect_impl(dialect).bind_processor(dialect)  # type: ignore[no-any-return]  # of any type
