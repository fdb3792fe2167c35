"""The statements of an append. For a batch of any size they are three: lock the heads, insert, move the heads."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from typing import Any, NamedTuple

import sqlalchemy as sa
from sqlalchemy.dialects import mysql, postgresql, sqlite
from sqlalchemy.exc import IntegrityError
from sqlalchemy.orm import Session

from holdfast.audit.chain import Link, link_hash
from holdfast.audit.event import AuditEvent
from holdfast.audit.rows import row_of
from holdfast.audit.tables import AuditTables
from holdfast.errors import AuditIntegrityError, ConfigurationError


class Head(NamedTuple):
    """The end of a stream."""

    seq: int
    last_hash: str | None


class Statements:
    """The statements for one dialect. SQLAlchemy compiles each form once."""

    def __init__(self, tables: AuditTables, dialect: sa.Dialect) -> None:
        self.tables = tables
        # With RETURNING, SQLAlchemy makes one statement of many rows on every driver, and not one per row.
        self._returns = bool(dialect.insert_returning)
        insert = tables.events.insert()
        self._insert: Any = insert.returning(tables.events.c.event_id) if self._returns else insert
        if tables.heads is not None:
            self._lock, self._move = self._upserts(tables.heads, dialect.name)
            wanted = tables.heads.c.stream.in_(sa.bindparam("streams", expanding=True))
            self._read = sa.select(tables.heads).where(wanted).with_for_update()

    def insert(self, session: Session, rows: Sequence[dict[str, Any]]) -> None:
        session.execute(self._insert, rows)

    def lock_heads(self, session: Session, streams: Sequence[str]) -> dict[str, Head]:
        """The heads of these streams, created where they are missing, and locked in the order given.

        Locking by an update that changes nothing creates what is missing on the way, and takes the locks in the order
        of the rows given, which no plan can alter. On SQLite it makes this transaction the writer before it reads.
        """
        found = session.execute(self._lock, [{"stream": one, "seq": 0, "last_hash": None} for one in streams])
        if not self._returns:
            found = session.execute(self._read, {"streams": list(streams)})
        return {row.stream: Head(row.seq, row.last_hash) for row in found}

    def move_heads(self, session: Session, heads: Mapping[str, Head]) -> None:
        session.execute(self._move, [{"stream": stream, **head._asdict()} for stream, head in heads.items()])

    def _upserts(self, heads: sa.Table, dialect: str) -> tuple[Any, Any]:
        row = heads.c
        if dialect in ("mysql", "mariadb"):
            into: Any = mysql.insert(heads)
            lock = into.on_duplicate_key_update(seq=row.seq)
            move = into.on_duplicate_key_update(seq=into.inserted.seq, last_hash=into.inserted.last_hash)
        elif dialect == "sqlite":
            lock, move = upserts_of(sqlite.insert(heads), heads)
        else:
            raise ConfigurationError(
                f"an audit chain needs SQLite, PostgreSQL, MariaDB or MySQL, got {dialect}; leave chain_heads out there"
            )
        if self._returns:
            lock, move = lock.returning(row.stream, row.seq, row.last_hash), move.returning(row.stream)
        return lock, move


class PostgresStatements(Statements):
    """All rows are one parameter, a JSON text. A statement with ten parameters per row would be another one for every
    number of rows: none of them is prepared, and taking it apart costs the driver more than all the rest.
    """

    def __init__(self, tables: AuditTables, dialect: sa.Dialect) -> None:
        self.tables = tables
        self._insert = _from_json(tables.events)
        if (heads := tables.heads) is not None:
            self._lock, self._move = upserts_of(_from_json(heads), heads)
            self._lock = self._lock.returning(heads.c.stream, heads.c.seq, heads.c.last_hash)

    def insert(self, session: Session, rows: Sequence[dict[str, Any]]) -> None:
        session.execute(self._insert, {"rows": json.dumps(rows, default=_text)})

    def lock_heads(self, session: Session, streams: Sequence[str]) -> dict[str, Head]:
        rows = [{"stream": one, "seq": 0} for one in streams]
        found = session.execute(self._lock, {"rows": json.dumps(rows)})
        return {row.stream: Head(row.seq, row.last_hash) for row in found}

    def move_heads(self, session: Session, heads: Mapping[str, Head]) -> None:
        rows = [{"stream": stream, **head._asdict()} for stream, head in heads.items()]
        session.execute(self._move, {"rows": json.dumps(rows)})


def statements_for(tables: AuditTables, dialect: sa.Dialect) -> Statements:
    return (PostgresStatements if dialect.name == "postgresql" else Statements)(tables, dialect)


def upserts_of(into: Any, heads: sa.Table) -> tuple[Any, Any]:
    """An insert that locks the heads that are there, and one that moves them."""
    moved = {"seq": into.excluded.seq, "last_hash": into.excluded.last_hash}
    return (
        into.on_conflict_do_update(index_elements=[heads.c.stream], set_={"seq": heads.c.seq}),
        into.on_conflict_do_update(index_elements=[heads.c.stream], set_=moved),
    )


def _from_json(table: sa.Table) -> Any:
    names = [column.name for column in table.columns]
    rows = sa.func.json_to_recordset(sa.cast(sa.bindparam("rows", type_=sa.Text()), postgresql.JSON()))
    given = rows.table_valued(*(sa.column(one.name, one.type) for one in table.columns)).render_derived(with_types=True)
    return postgresql.insert(table).from_select(names, sa.select(*(given.c[name] for name in names)))


def _text(value: Any) -> str:
    return value.isoformat() if isinstance(value, datetime) else str(value)


def append(
    session: Session,
    statements: Statements,
    events: Sequence[AuditEvent],
    stream_of: Callable[[str], str],
    key: bytes | None,
) -> None:
    """Write events into the transaction, each at the end of its stream.

    Raises AuditIntegrityError for an event that is there already; the transaction cannot go on then.
    """
    _refuse_repetition(events)
    rows = [row_of(event) for event in events]
    heads: Mapping[str, Head] = {}
    if statements.tables.heads is not None:
        for row in rows:
            row["stream"] = stream_of(row["subject_ref"])
        heads = _chain(rows, statements.lock_heads(session, sorted({row["stream"] for row in rows})), key)
    try:
        statements.insert(session, rows)
    except IntegrityError as error:
        raise AuditIntegrityError(_story(error, statements.tables.events)) from error
    if heads:
        statements.move_heads(session, heads)


def _refuse_repetition(events: Sequence[AuditEvent]) -> None:
    seen = set()
    for event in events:
        if not isinstance(event, AuditEvent):
            raise ConfigurationError(f"only an AuditEvent can be appended, got {event!r}")
        if event.event_id in seen:
            raise AuditIntegrityError(f"event {event.event_id} is twice in one append; each event has an id of its own")
        seen.add(event.event_id)


def _chain(rows: Sequence[dict[str, Any]], heads: Mapping[str, Head], key: bytes | None) -> dict[str, Head]:
    """Put each row at the end of its stream; the heads afterwards."""
    heads = dict(heads)
    for row in rows:
        stream = row["stream"]
        head = heads[stream]
        seq, prior = head.seq + 1, head.last_hash
        row["seq"], row["prior_hash"] = seq, prior
        row["event_hash"] = link_hash(Link._make(map(row.__getitem__, Link._fields)), key)
        heads[stream] = Head(seq, row["event_hash"])
    return heads


def _story(error: IntegrityError, events: sa.Table) -> str:
    text = str(error.orig)
    if f"{events.name}_stream" in text or f"{events.name}.stream" in text:
        return "the head of an audit stream is behind its events: somebody changed it; run: holdfast audit verify"
    return f"an event with this id is in the audit trail already; events are appended once ({text.splitlines()[0]})"
