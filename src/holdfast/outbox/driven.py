"""Statements that are made once for each kind of rows and each driver, and run on the driver from then on.

What SQLAlchemy does for every execution (cache keys, parameters, types) costs more than the insert of a row itself.
Listeners for `before_cursor_execute` hear of these statements as of any other.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from typing import Any, Final
from weakref import WeakKeyDictionary

import sqlalchemy as sa

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

    def run(self, connection: sa.Connection, kind: Any, names: Sequence[str], rows: Sequence[Row]) -> Any:
        """Run the statement of that kind with the values of these names."""
        if is_translated(connection):
            return connection.execute(self._make(kind), [self._loose(row, names) for row in rows])
        dialect = connection.dialect
        kinds = self._made.get(dialect)
        if kinds is None:
            kinds = self._made[dialect] = {}
        made = kinds.get(kind)
        if made is None:
            if len(kinds) >= _MOST:
                kinds.clear()
            made = kinds[kind] = _Made(self._make(kind), dialect, names, self._types)
        given = [*map(made.given, rows)]
        return connection.exec_driver_sql(made.text, given[0] if len(given) == 1 else given)

    def _loose(self, row: Row, names: Sequence[str]) -> Row:
        """For SQLAlchemy, which makes a text of what is JSON by itself."""
        found = {name: row.get(name) for name in names}
        for name, value in found.items():
            if value is not None and isinstance(self._types.get(name), sa.JSON):
                found[name] = json.loads(value)
        return found


class _Made:
    def __init__(self, statement: Any, dialect: sa.Dialect, names: Sequence[str], types: Types) -> None:
        compiled = statement.compile(dialect=dialect, column_keys=list(names))
        self.text = str(compiled)
        self._is_positional = bool(compiled.positional)
        self._values = [
            (name, _processor(types.get(name), dialect))
            for name in (compiled.positiontup if self._is_positional else compiled.params)
        ]

    def given(self, row: Row) -> Any:
        """The row as the driver takes it."""
        if self._is_positional:
            return tuple([row.get(name) if take is None else take(row.get(name)) for name, take in self._values])
        return {name: row.get(name) if take is None else take(row.get(name)) for name, take in self._values}


def is_translated(connection: sa.Connection) -> bool:
    """Whether the connection has the tables elsewhere than they say, which only SQLAlchemy's own way knows."""
    return bool(connection.get_execution_options().get("schema_translate_map"))


def _processor(type: sa.types.TypeEngine[Any] | None, dialect: sa.Dialect) -> Callable[[Any], Any] | None:
    if type is None or isinstance(type, sa.JSON):
        return None
    return type.dialect_impl(dialect).bind_processor(dialect)
