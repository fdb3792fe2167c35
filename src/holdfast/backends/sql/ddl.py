"""The statements that make the tables of a kind, with the triggers that keep its counters.

Counters are kept by the database and not by us, so that they are right for every change: of one record, of a sweep,
and inside a transaction of the caller's.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import sqlalchemy as sa
from sqlalchemy.schema import CreateIndex, CreateTable

from holdfast.backends.sql.dialect import Dialect
from holdfast.backends.sql.schema import Tables, tables_of, version_table, wake_table
from holdfast.store.record import Kind


def tables_ddl(kind: Kind[Any], dialect: Dialect) -> list[str]:
    """Everything that a kind needs in a database that has nothing of it."""
    tables = tables_of(kind)
    made = [statement for table in tables.all for statement in _table_ddl(table, dialect)]
    if tables.tally is None and tables.arrivals is None:
        return made
    quote = dialect.compiler.identifier_preparer.quote
    match dialect.name:
        case "sqlite":
            return made + _sqlite_counters(kind, tables, quote)
        case "postgresql":
            return made + _postgresql_counters(kind, tables, quote)
        case _:
            return made + _mariadb_counters(kind, tables, quote)


def shared_ddl(dialect: Dialect) -> list[str]:
    """What belongs to no kind."""
    return [statement for table in _shared_tables(dialect) for statement in _table_ddl(table, dialect)]


def _shared_tables(dialect: Dialect) -> list[sa.Table]:
    return [version_table()] if dialect.name == "postgresql" else [version_table(), wake_table()]


def _table_ddl(table: sa.Table, dialect: Dialect) -> list[str]:
    indexes = sorted(table.indexes, key=lambda index: str(index.name))
    steps: list[sa.DDLElement] = [CreateTable(table), *map(CreateIndex, indexes)]
    made = [str(step.compile(dialect=dialect.compiler)).strip() for step in steps]
    if dialect.name == "postgresql" and indexes and table.primary_key.columns:
        # Every index has the id at its end. If there was next to nothing in the table when it was vacuumed, the planner
        # takes all of them to cost the same, and uses the newest: which has to be the key, as of any other one it would
        # read everything to find an id.
        key = f"{table.name}_pkey"
        made.append(f"ALTER TABLE {table.name} DROP CONSTRAINT {key}, ADD CONSTRAINT {key} PRIMARY KEY (id)")
    return made


def _sqlite_counters(kind: Kind[Any], tables: Tables, quote: Callable[[str], str]) -> list[str]:
    """One row for each combination of values. To a unique index two Nones are different, hence `_target`."""
    made = []
    rows = tables.rows.name

    def add(table: sa.Table, fields: Sequence[str], row: str, number: int) -> str:
        values = ", ".join(f"{row}.{field}" for field in map(quote, fields))
        return (
            f"INSERT INTO {table.name} ({', '.join(map(quote, fields))}, n) VALUES ({values}, {number}) "
            f"ON CONFLICT ({_target(kind, fields, quote)}) DO UPDATE SET n = n + excluded.n;"
        )

    def trigger(name: str, event: str, *steps: str) -> str:
        return f"CREATE TRIGGER {name} AFTER {event} BEGIN {' '.join(steps)} END"

    if tables.tally is not None:
        name, fields = tables.tally.name, kind.tally
        more, less = add(tables.tally, fields, "NEW", 1), add(tables.tally, fields, "OLD", -1)
        other = " OR ".join(f"OLD.{field} IS NOT NEW.{field}" for field in map(quote, fields))
        made += [
            f"CREATE UNIQUE INDEX {name}_key ON {name} ({_target(kind, fields, quote)})",
            trigger(f"{name}_insert", f"INSERT ON {rows}", more),
            trigger(f"{name}_update", f"UPDATE OF {', '.join(map(quote, fields))} ON {rows} WHEN {other}", less, more),
            trigger(f"{name}_delete", f"DELETE ON {rows}", less),
        ]
    if tables.arrivals is not None:
        name = tables.arrivals.name
        made += [
            f"CREATE UNIQUE INDEX {name}_key ON {name} ({_target(kind, kind.arrivals, quote)})",
            trigger(f"{name}_insert", f"INSERT ON {rows}", add(tables.arrivals, kind.arrivals, "NEW", 1)),
        ]
    return made


def _target(kind: Kind[Any], fields: Sequence[str], quote: Callable[[str], str]) -> str:
    parts = []
    for name in fields:
        column, field = kind.columns[kind.positions[name]], quote(name)
        if column.nullable:
            parts += [f"coalesce({field}, {chr(39) * 2 if column.is_text else 0})", f"({field} IS NULL)"]
        else:
            parts.append(field)
    return ", ".join(parts)


def _postgresql_counters(kind: Kind[Any], tables: Tables, quote: Callable[[str], str]) -> list[str]:
    """A row for each statement and combination of values that it changed the number of."""
    rows = tables.rows.name
    inserted, updated, deleted = [], [], []
    if tables.tally is not None:
        fields = ", ".join(map(quote, kind.tally))
        into = f"INSERT INTO {tables.tally.name} ({fields}, n)"
        inserted.append(f"{into} SELECT {fields}, count(*) FROM after GROUP BY {fields};")
        deleted.append(f"{into} SELECT {fields}, -count(*) FROM before GROUP BY {fields};")
        updated.append(
            f"{into} SELECT {fields}, sum(d) FROM (SELECT {fields}, 1 AS d FROM after UNION ALL "
            f"SELECT {fields}, -1 FROM before) AS moved GROUP BY {fields} HAVING sum(d) <> 0;"
        )
    if tables.arrivals is not None:
        fields = ", ".join(map(quote, kind.arrivals))
        into = f"INSERT INTO {tables.arrivals.name} ({fields}, n)"
        inserted.append(f"{into} SELECT {fields}, count(*) FROM after GROUP BY {fields};")
    made = []
    for event, steps, seen in (
        ("insert", inserted, "NEW TABLE AS after"),
        ("update", updated, "OLD TABLE AS before NEW TABLE AS after"),
        ("delete", deleted, "OLD TABLE AS before"),
    ):
        if steps:
            name = f"{rows}_count_{event}"
            body = f"BEGIN {' '.join(steps)} RETURN NULL; END"
            made += [
                f"CREATE FUNCTION {name}() RETURNS trigger LANGUAGE plpgsql AS $${body}$$",
                f"CREATE TRIGGER {name} AFTER {event.upper()} ON {rows} REFERENCING {seen} "
                f"FOR EACH STATEMENT EXECUTE FUNCTION {name}()",
            ]
    return made


def _mariadb_counters(kind: Kind[Any], tables: Tables, quote: Callable[[str], str]) -> list[str]:
    """A row for each change of a record; MariaDB knows no triggers for whole statements."""
    rows = tables.rows.name

    def add(table: sa.Table, fields: Sequence[str], row: str, number: int) -> str:
        values = ", ".join(f"{row}.{field}" for field in map(quote, fields))
        return f"INSERT INTO {table.name} ({', '.join(map(quote, fields))}, n) VALUES ({values}, {number});"

    made = []
    inserted: list[str] = []
    if tables.tally is not None:
        fields = kind.tally
        more, less = add(tables.tally, fields, "NEW", 1), add(tables.tally, fields, "OLD", -1)
        same = " AND ".join(f"OLD.{field} <=> NEW.{field}" for field in map(quote, fields))
        inserted.append(more)
        made = [
            f"CREATE TRIGGER {rows}_count_update AFTER UPDATE ON {rows} FOR EACH ROW "
            f"BEGIN IF NOT ({same}) THEN {less} {more} END IF; END",
            f"CREATE TRIGGER {rows}_count_delete AFTER DELETE ON {rows} FOR EACH ROW BEGIN {less} END",
        ]
    if tables.arrivals is not None:
        inserted.append(add(tables.arrivals, kind.arrivals, "NEW", 1))
    body = " ".join(inserted)
    return [f"CREATE TRIGGER {rows}_count_insert AFTER INSERT ON {rows} FOR EACH ROW BEGIN {body} END", *made]
