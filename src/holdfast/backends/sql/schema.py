"""The tables of a kind: its records, and the counters that triggers keep.

One description serves every database: what is searched is bounded where a database needs that, and texts sort by code
point everywhere. An index leaves out records without a value to sort by, where the database can do that.
"""

from __future__ import annotations

import hashlib
from typing import Any, Final, NamedTuple

import sqlalchemy as sa
from sqlalchemy.dialects import mysql

from holdfast.store.record import Column, Index, Kind

KEY_LENGTH: Final = 191
VERSION_TABLE: Final = "holdfast_version"
WAKE_TABLE: Final = "holdfast_wake"
# PostgreSQL would keep tens of thousands of folded counter rows until a fifth of the table is dead.
_VACUUM_OFTEN: Final = {"autovacuum_vacuum_scale_factor": "0", "autovacuum_vacuum_threshold": "1000"}
# In full pages PostgreSQL looks for any gap that a record just fits into: each time another page, long unused.
_ROOM_TO_CHANGE: Final = {"fillfactor": "90"}


class Tables(NamedTuple):
    rows: sa.Table
    tally: sa.Table | None
    arrivals: sa.Table | None

    @property
    def all(self) -> list[sa.Table]:
        return [table for table in self if table is not None]


def table_name(kind: Kind[Any]) -> str:
    return f"holdfast_{kind.name}"


def tables_of(kind: Kind[Any]) -> Tables:
    """The tables of one kind."""
    home = sa.MetaData()
    name = table_name(kind)
    rows = sa.Table(
        name,
        home,
        *(_column(kind, column, primary_key=column.name == "id") for column in kind.columns),
        postgresql_with=_ROOM_TO_CHANGE,
        **_PLAIN,
    )
    for index in made_indexes(kind):
        _add_index(rows, (*index.equal, index.by), index.by, kind)
    for field in kind.unique:
        sa.Index(_short(f"{name}_{field}_key"), rows.c[field], unique=True)
    return Tables(
        rows,
        _counter(kind, f"{name}_tally", kind.tally, home) if kind.tally else None,
        _counter(kind, f"{name}_arrivals", kind.arrivals, home) if kind.arrivals else None,
    )


def made_indexes(kind: Kind[Any]) -> tuple[Index, ...]:
    """The indexes of a kind but for the one that the primary key is."""
    return tuple([index for index in kind.indexes if kind.within is None or index != Index((kind.within,), "id")])


def version_table() -> sa.Table:
    """Which revision the tables are of. Alembic writes it too."""
    return sa.Table(VERSION_TABLE, sa.MetaData(), sa.Column("version_num", sa.String(32), primary_key=True), **_PLAIN)


def wake_table() -> sa.Table:
    """How often each topic was called, for databases that cannot notify."""
    topic = sa.Column("topic", _text(KEY_LENGTH), primary_key=True)
    return sa.Table(WAKE_TABLE, sa.MetaData(), topic, sa.Column("n", sa.BigInteger, nullable=False), **_PLAIN)


_PLAIN: Final[dict[str, Any]] = {"mysql_charset": "utf8mb4", "mariadb_charset": "utf8mb4"}


def _column(kind: Kind[Any], column: Column, *, primary_key: bool = False) -> sa.Column[Any]:
    kept: sa.types.TypeEngine[Any] = sa.BigInteger()
    if column.is_text:
        searched = column.name in kind.searched or column.name in kind.keyed
        kept = _text(kind.keyed.get(column.name, KEY_LENGTH) if searched else None)
    return sa.Column(column.name, kept, primary_key=primary_key, nullable=column.nullable, autoincrement=False)


def _text(length: int | None) -> sa.types.TypeEngine[Any]:
    """Text in the order of Python's strings; bounded only where the database indexes nothing else."""

    def bounded(collation: str) -> sa.types.TypeEngine[Any]:
        return mysql.LONGTEXT(collation=collation) if length is None else sa.String(length, collation)

    return (
        sa.Text()
        .with_variant(sa.Text(collation="C"), "postgresql")
        # Neither pads: "a" and "a " are two values.
        .with_variant(bounded("utf8mb4_nopad_bin"), "mariadb")
        .with_variant(bounded("utf8mb4_0900_bin"), "mysql")
    )


def _add_index(rows: sa.Table, fields: tuple[str, ...], by: str, kind: Kind[Any]) -> None:
    name = _short(f"{rows.name}_{'_'.join(fields)}_idx")
    columns = [rows.c[field] for field in dict.fromkeys((*fields, "id"))]
    if kind.columns[kind.positions[by]].nullable:
        has_value = rows.c[by].is_not(None)
        sa.Index(name, *columns, sqlite_where=has_value, postgresql_where=has_value)
    else:
        sa.Index(name, *columns)


def _short(name: str) -> str:
    """The name, within the 63 characters that PostgreSQL allows."""
    return name if len(name) <= 60 else f"{name[:50]}_{hashlib.sha256(name.encode()).hexdigest()[:8]}"


def _counter(kind: Kind[Any], name: str, fields: tuple[str, ...], metadata: sa.MetaData) -> sa.Table:
    """Counts by the values of these fields.

    Where there is one writer at a time, one row for each combination; elsewhere a row for each change, summed up when
    it is read and folded now and then, so that writers do not queue for a row that they all change.
    """
    columns = [_column(kind, kind.columns[kind.positions[field]]) for field in fields]
    return sa.Table(
        name,
        metadata,
        *columns,
        sa.Column("n", sa.BigInteger, nullable=False),
        postgresql_with=_VACUUM_OFTEN,
        **_PLAIN,
    )
