"""What the databases do differently, beyond what SQLAlchemy already knows. The only place for it."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from itertools import chain
from operator import itemgetter
from typing import Any, ClassVar, Final

import sqlalchemy as sa
from sqlalchemy.dialects import postgresql, sqlite
from sqlalchemy.dialects.mysql import mariadb
from sqlalchemy.dialects.postgresql import psycopg2
from sqlalchemy.engine.interfaces import Dialect as Compiler
from sqlalchemy.sql.operators import custom_op

LEAST: Final = -(2**63) + 1  # one more than the least: PostgreSQL reads that one as a decimal
GREATEST: Final = 2**63 - 1
BLOCK: Final = 25  # rows that go into one statement on SQLite; more of them are hardly quicker
Named = Sequence[tuple[str, sa.ColumnElement[Any]]]
Parameter = Callable[[sa.types.TypeEngine[Any]], sa.BindParameter[Any]]


class Dialect:
    """Expressions that have no common spelling."""

    name: ClassVar[str]
    compiler: Compiler
    inline_limit: ClassVar[bool] = False
    """Whether a limit is written into the statement, since a plan made for any limit would sort whole tables."""
    counts_changes: ClassVar[bool] = True
    """Whether a counter is a row for each change, to be summed up; otherwise a row for each combination of values."""
    counts_statements: ClassVar[bool] = False
    """Whether such a row is for all records that a statement changes from the same values to the same."""
    sorts_by_whole_index: ClassVar[bool] = False
    """Whether a page is to be sorted by all columns of its index, since the planner would take another one."""
    locks: ClassVar[bool] = True
    """Whether rows are locked one by one; otherwise whoever writes is alone."""
    deletes_many: ClassVar[bool] = True
    """Whether rows can be deleted that are given as a table."""
    no_offset: ClassVar[sa.ColumnElement[Any] | None] = None

    def listing(self, values: Sequence[Any]) -> Any:
        """A list of values as one parameter."""
        return json.dumps(values, ensure_ascii=False)

    def listed(self, column: sa.ColumnElement[Any], listing: sa.BindParameter[Any]) -> sa.ColumnElement[bool]:
        """Whether the column has one of the values of a listing."""
        raise NotImplementedError

    def length(self, column: sa.ColumnElement[Any]) -> sa.ColumnElement[int]:
        """The length of a text, in bytes of UTF-8."""
        return sa.func.octet_length(column)

    def addable(self, column: sa.ColumnElement[int]) -> sa.ColumnElement[Any]:
        """The numbers of a counter in the form in which they are added up."""
        return column

    def chosen(self, column: sa.ColumnElement[Any], ids: sa.Select[*tuple[Any, ...]]) -> sa.ColumnElement[bool]:
        """Whether the column has one of the values of a query, which is to run once."""
        return column.in_(sa.select(ids.subquery("chosen").c.id))

    def beyond(
        self, by: sa.ColumnElement[Any], id: sa.ColumnElement[Any], last: Sequence[sa.BindParameter[Any]], less: bool
    ) -> sa.ColumnElement[bool]:
        """Whether `(by, id)` is beyond the last ones seen, in a form for which the index is used."""
        keys, seen = sa.tuple_(by, id), sa.tuple_(*last)
        return keys < seen if less else keys > seen

    def unread(self, column: sa.ColumnElement[Any]) -> sa.ColumnElement[Any]:
        """The column, where no index is to be read by it; as it is, where the planner knows better."""
        return column

    def given(self, columns: Named, parameter: Parameter) -> sa.FromClause:
        """Rows that are given as parameters, as a table with these columns."""
        raise NotImplementedError

    def giving(self, rows: Sequence[Sequence[Any]], places: Sequence[int]) -> list[list[Any]]:
        """The values of these parameters, for each time that the statement is to be run: of each row those at these
        places."""
        raise NotImplementedError

    def held(self, select: sa.Select[*tuple[Any, ...]], *, skip: bool) -> sa.Select[*tuple[Any, ...]]:
        """The query, locking its rows, and passing over those that others have locked."""
        return select.with_for_update(skip_locked=skip) if self.locks else select


class Sqlite(Dialect):
    name = "sqlite"
    compiler = sqlite.dialect(paramstyle="qmark")
    counts_changes = False
    locks = False
    deletes_many = False
    no_offset = sa.literal_column("0")  # SQLAlchemy would make it a parameter

    def listed(self, column: sa.ColumnElement[Any], listing: sa.BindParameter[Any]) -> sa.ColumnElement[bool]:
        each = sa.func.json_each(listing).table_valued("value")
        return column.in_(sa.select(each.c.value))

    def length(self, column: sa.ColumnElement[Any]) -> sa.ColumnElement[int]:
        return sa.func.length(sa.cast(column, sa.BLOB))  # `octet_length` is younger than SQLite 3.40

    def unread(self, column: sa.ColumnElement[Any]) -> sa.ColumnElement[Any]:
        # Without ANALYZE it takes every index for as good as any other.
        return sa.UnaryExpression(column, operator=custom_op("+"), type_=column.type)

    def given(self, columns: Named, parameter: Parameter) -> sa.FromClause:
        # As text: SQLAlchemy would take 20 ms for a thousand parameters. And as no common table expression: Python's
        # driver tells how many rows have changed only if a statement begins with what it does.
        row = f"({', '.join('?' * len(columns))})"
        names = ", ".join(f'column{at} AS "{name}"' for at, (name, _) in enumerate(columns, 1))
        text = sa.text(f"SELECT {names} FROM (VALUES {', '.join([row] * BLOCK)})")
        return text.columns(*(sa.column(name, column.type) for name, column in columns)).subquery("given")

    def giving(self, rows: Sequence[Sequence[Any]], places: Sequence[int]) -> list[list[Any]]:
        chosen = rows if len(places) == len(rows[0]) else map(itemgetter(*places), rows)
        values = [*chosen] if len(places) == 1 else [*chain.from_iterable(chosen)]
        size = BLOCK * len(places)
        return [values[at : at + size] for at in range(0, len(values), size)]


class Postgresql(Dialect):
    name = "postgresql"
    # Of all of SQLAlchemy's drivers this one writes parameters without casts, which the server does not need.
    compiler = psycopg2.PGDialect_psycopg2(paramstyle="numeric_dollar")  # type: ignore[no-untyped-call]  # SQLAlchemy's
    inline_limit = True
    counts_statements = True
    sorts_by_whole_index = True

    def listing(self, values: Sequence[Any]) -> Any:
        return list(values)

    def listed(self, column: sa.ColumnElement[Any], listing: sa.BindParameter[Any]) -> sa.ColumnElement[bool]:
        return column == sa.any_(sa.cast(listing, postgresql.ARRAY(plain_type(column))))

    def length(self, column: sa.ColumnElement[Any]) -> sa.ColumnElement[int]:
        """The length of a text, in bytes of UTF-8."""
        return sa.func.octet_length(column)

    def addable(self, column: sa.ColumnElement[int]) -> sa.ColumnElement[Any]:
        # It adds up whole numbers as decimals. As these they are exact, too, up to nine thousand million million.
        return sa.cast(column, sa.Double())

    def chosen(self, column: sa.ColumnElement[Any], ids: sa.Select[*tuple[Any, ...]]) -> sa.ColumnElement[bool]:
        # As a join the subquery may run once for each row, and lock and choose anew every time.
        return column == sa.any_(sa.func.array(ids.scalar_subquery()))

    def given(self, columns: Named, parameter: Parameter) -> sa.FromClause:
        types = [postgresql.ARRAY(plain_type(column)) for _, column in columns]
        arrays = [sa.cast(parameter(type), type) for type in types]
        names = [sa.column(name, column.type) for name, column in columns]
        return sa.func.unnest(*arrays).table_valued(*names, name="given").render_derived()

    def giving(self, rows: Sequence[Sequence[Any]], places: Sequence[int]) -> list[list[Any]]:
        return [[[row[at] for row in rows] for at in places]]


class Mariadb(Dialect):
    name = "mariadb"
    compiler = mariadb.MariaDBDialect(paramstyle="format")

    def listed(self, column: sa.ColumnElement[Any], listing: sa.BindParameter[Any]) -> sa.ColumnElement[bool]:
        # Otherwise a text is in the character set of the database, which may lack some.
        kind = "bigint" if isinstance(column.type, sa.BigInteger) else "longtext CHARACTER SET utf8mb4"
        each = sa.text(
            f"SELECT value FROM JSON_TABLE(:{listing.key}, '$[*]' COLUMNS (value {kind} PATH '$')) AS listed"
        )
        return column.in_(each.bindparams(listing).columns(sa.column("value")))

    def beyond(
        self, by: sa.ColumnElement[Any], id: sa.ColumnElement[Any], last: Sequence[sa.BindParameter[Any]], less: bool
    ) -> sa.ColumnElement[bool]:
        value, seen = last
        if less:
            return (by <= value) & ((by < value) | (id < seen))
        return (by >= value) & ((by > value) | (id > seen))


def plain_type(column: sa.ColumnElement[Any]) -> sa.types.TypeEngine[Any]:
    return sa.BigInteger() if isinstance(column.type, sa.BigInteger) else sa.Text()
