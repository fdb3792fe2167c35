"""The statements of an append. For a batch of any size they are three: lock the heads, insert, move the heads. Where a
database can, the last two are one.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import datetime
from typing import Any, Final, NamedTuple, cast

import sqlalchemy as sa
from sqlalchemy.dialects import mysql, postgresql, sqlite
from sqlalchemy.exc import IntegrityError
from sqlalchemy.orm import Session

from holdfast.audit.chain import canonical_sides, canonical_text, digest, written
from holdfast.audit.driven import Driven
from holdfast.audit.event import AuditEvent
from holdfast.audit.rows import COLUMNS, in_utc
from holdfast.audit.tables import AuditTables
from holdfast.backends.sql.join import Direct
from holdfast.errors import AuditIntegrityError, ConfigurationError

_HEADS: Final = ("stream", "seq", "last_hash")
_TRANSLATED: Final = "schema_translate_map"
_MOST_ROWS: Final = 3000  # SQLite takes 32,766 parameters


class Head(NamedTuple):
    """The end of a stream."""

    seq: int
    last_hash: str | None


class Placed(NamedTuple):
    """An event in its place, which is empty outside of any chain."""

    event: AuditEvent
    occurred_at: datetime
    stream: str | None
    seq: int | None
    prior_hash: str | None
    event_hash: str | None
    text: str
    """The canonical JSON of all of it but the hash."""

    @property
    def row(self) -> tuple[Any, ...]:
        """What is inserted, in the order of `COLUMNS`."""
        event, at, stream, seq, prior_hash, event_hash, _ = self
        about = event.event_id, str(event.event_type), event.subject_ref, at, event.payload, event.entry_id
        return *about, stream, seq, prior_hash, event_hash


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

    def write(self, session: Session, events: Sequence[Placed], heads: Mapping[str, Head]) -> None:
        """Insert the events, and move the heads of their streams."""
        self._insert_all(session, events)
        if heads:
            self._move_heads(session, heads)

    def lock_heads(self, session: Session, streams: Sequence[str]) -> dict[str, Head]:
        """The heads of these streams, created where they are missing, and locked in the order given.

        Locking by an update that changes nothing creates what is missing on the way, and takes the locks in the order
        of the rows given, which no plan can alter. On SQLite it makes this transaction the writer before it reads.
        """
        found = session.execute(self._lock, [{"stream": one, "seq": 0, "last_hash": None} for one in streams])
        if not self._returns:
            found = session.execute(self._read, {"streams": list(streams)})
        return {row.stream: Head(row.seq, row.last_hash) for row in found}

    def _insert_all(self, session: Session, events: Sequence[Placed]) -> None:
        session.execute(self._insert, [dict(zip(COLUMNS, one.row, strict=True)) for one in events])

    def _move_heads(self, session: Session, heads: Mapping[str, Head]) -> None:
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
    number of rows: none of them is prepared, and taking it apart costs the driver more than all the rest. The text of
    an event is the one that was hashed.
    """

    def __init__(self, tables: AuditTables, dialect: sa.Dialect) -> None:
        self.tables = tables
        insert = _from_json(tables.events, "events")
        statements = {"insert": insert}
        if (heads := tables.heads) is not None:
            lock, move = upserts_of(_from_json(heads, "heads"), heads)
            statements["lock"] = lock.returning(heads.c.stream, heads.c.seq, heads.c.last_hash)
            statements["insert"] = insert.add_cte(move.cte("moved"))
        self._driven = Driven(statements.__getitem__)

    def write(self, session: Session | Direct, events: Sequence[Placed], heads: Mapping[str, Head]) -> None:
        rows = [f'{one.text[:-1]},"event_hash":{_quoted(one.event_hash)}}}' for one in events]
        given = {"events": f"[{','.join(rows)}]"}
        if heads:
            given["heads"] = json.dumps([{"stream": stream, **head._asdict()} for stream, head in heads.items()])
        self._run(session, "insert", given)

    def lock_heads(self, session: Session | Direct, streams: Sequence[str]) -> dict[str, Head]:
        rows = json.dumps([{"stream": one, "seq": 0} for one in streams])
        return {stream: Head(seq, hash) for stream, seq, hash in self._run(session, "lock", {"heads": rows})}

    def _run(self, to: Session | Direct, which: str, given: dict[str, Any]) -> Sequence[Any]:
        if not isinstance(to, Direct):
            connection = to.connection(bind_arguments={"clause": self.tables.events})
            return self._driven.fetch(connection, which, given)
        try:
            return self._driven.fetch(to, which, given)
        except to.driver.IntegrityError as error:
            raise IntegrityError(None, None, error) from error


class SqliteStatements(Statements):
    """Statements of many rows whose texts are made here: to make one costs SQLAlchemy more than SQLite to run it."""

    def __init__(self, tables: AuditTables, dialect: sa.Dialect) -> None:
        super().__init__(tables, dialect)
        self._bind = [
            tables.events.c[name].type.dialect_impl(dialect).bind_processor(dialect) or _as_it_is for name in COLUMNS
        ]
        self._insert_text = _Text(tables.events.insert(), COLUMNS)
        if tables.heads is not None:
            lock, move = upserts_of(sqlite.insert(tables.heads), tables.heads)
            self._lock_text = _Text(lock.returning(*(tables.heads.c[name] for name in _HEADS)), _HEADS)
            self._move_text = _Text(move, _HEADS)

    def _insert_all(self, session: Session, events: Sequence[Placed]) -> None:
        connection = self._connection(session)
        if connection is None:
            return super()._insert_all(session, events)
        for some in _parts(events):
            values = [bind(value) for one in some for bind, value in zip(self._bind, one.row, strict=True)]
            connection.exec_driver_sql(self._insert_text.of(len(some)), tuple(values))
        return None

    def lock_heads(self, session: Session, streams: Sequence[str]) -> dict[str, Head]:
        connection = self._connection(session)
        if connection is None:
            return super().lock_heads(session, streams)
        found: dict[str, Head] = {}
        for some in _parts(streams):
            values = tuple(value for stream in some for value in (stream, 0, None))
            rows = connection.exec_driver_sql(self._lock_text.of(len(some)), values)
            found |= {stream: Head(seq, last_hash) for stream, seq, last_hash in rows}
        return found

    def _move_heads(self, session: Session, heads: Mapping[str, Head]) -> None:
        connection = self._connection(session)
        if connection is None:
            return super()._move_heads(session, heads)
        for some in _parts(list(heads.items())):
            values = tuple(value for stream, head in some for value in (stream, *head))
            connection.exec_driver_sql(self._move_text.of(len(some)), values)
        return None

    def _connection(self, session: Session) -> sa.Connection | None:
        """None where names are translated, which only SQLAlchemy's own statements are."""
        connection = session.connection(bind_arguments={"clause": self.tables.events})
        return None if connection.get_execution_options().get(_TRANSLATED) else connection


class _Text:
    """The text of an insert, for any number of rows. One number after the other has the same text each time, so that
    the driver finds it prepared.
    """

    def __init__(self, statement: Any, columns: Sequence[str]) -> None:
        text = str(statement.compile(dialect=sqlite.dialect(paramstyle="qmark"), column_keys=columns))
        self._row = f"({', '.join('?' * len(columns))})"
        self._before, _, self._after = text.partition(self._row)

    def of(self, number: int) -> str:
        return f"{self._before}{', '.join([self._row] * number)}{self._after}"


def statements_for(tables: AuditTables, dialect: sa.Dialect) -> Statements:
    kinds = {"postgresql": PostgresStatements, "sqlite": SqliteStatements}
    return kinds.get(dialect.name, Statements)(tables, dialect)


def upserts_of(into: Any, heads: sa.Table) -> tuple[Any, Any]:
    """An insert that locks the heads that are there, and one that moves them."""
    moved = {"seq": into.excluded.seq, "last_hash": into.excluded.last_hash}
    return (
        into.on_conflict_do_update(index_elements=[heads.c.stream], set_={"seq": heads.c.seq}),
        into.on_conflict_do_update(index_elements=[heads.c.stream], set_=moved),
    )


def _from_json(table: sa.Table, parameter: str) -> Any:
    names = [column.name for column in table.columns]
    rows = sa.func.json_to_recordset(sa.cast(sa.bindparam(parameter, type_=sa.Text()), postgresql.JSON()))
    given = rows.table_valued(*(sa.column(one.name, one.type) for one in table.columns)).render_derived(with_types=True)
    return postgresql.insert(table).from_select(names, sa.select(*(given.c[name] for name in names)))


def _quoted(hash: str | None) -> str:
    return "null" if hash is None else f'"{hash}"'


def _as_it_is(value: Any) -> Any:
    return value


def _parts(rows: Sequence[Any]) -> Iterable[Sequence[Any]]:
    return (rows[start : start + _MOST_ROWS] for start in range(0, len(rows), _MOST_ROWS))


def append(
    to: Session | Direct,
    statements: Statements,
    events: Sequence[AuditEvent],
    stream_of: Callable[[str], str],
    key: bytes | None,
) -> None:
    """Write events into the transaction, each at the end of its stream.

    Raises AuditIntegrityError for an event that is there already; the transaction cannot go on then.
    """
    session = cast("Session", to)  # on PostgreSQL alone it may be anything else
    _refuse_repetition(events)
    chained = statements.tables.heads is not None
    # All that can be done without the heads is done before they are locked.
    drafts = _drafts(events, stream_of if chained else None)
    streams = sorted({stream for _, _, stream, _ in drafts if stream is not None})
    heads = statements.lock_heads(session, streams) if chained else {}
    placed = _chain(drafts, heads, key)
    try:
        statements.write(session, placed, heads)
    except IntegrityError as error:
        raise AuditIntegrityError(_story(error, statements.tables.events)) from error


def _refuse_repetition(events: Sequence[AuditEvent]) -> None:
    seen = set()
    for event in events:
        if not isinstance(event, AuditEvent):
            raise ConfigurationError(f"only an AuditEvent can be appended, got {event!r}")
        number = event.event_id.int  # of which, unlike of an id, the hash costs nothing
        if number in seen:
            raise AuditIntegrityError(f"event {event.event_id} is twice in one append; each event has an id of its own")
        seen.add(number)


_Draft = tuple[AuditEvent, datetime, str | None, tuple[str, str]]


def _drafts(events: Sequence[AuditEvent], stream_of: Callable[[str], str] | None) -> list[_Draft]:
    """The events with their times, their streams, and what stands around their places in the canonical text."""
    drafts: list[_Draft] = []
    given: datetime | None = None
    at, told = events[0].occurred_at, ""
    for event in events:
        if event.occurred_at is not given:  # those of one settle have the same
            given = event.occurred_at
            at = in_utc(given)
            told = written(at)
        subject = event.subject_ref
        stream = None if stream_of is None else stream_of(subject)
        sides = canonical_sides(stream, event.event_id, event.event_type, subject, told, event.entry_id, event.payload)
        drafts.append((event, at, stream, sides))
    return drafts


def _chain(drafts: Sequence[_Draft], heads: dict[str, Head], key: bytes | None) -> list[Placed]:
    """Put each event at the end of its stream, and move the heads."""
    placed: list[Placed] = []
    ends: dict[str, tuple[int, str | None]] = {**heads}
    for event, at, stream, around in drafts:
        if stream is None:
            placed.append(Placed(event, at, None, None, None, None, canonical_text(around, None, None)))
            continue
        seq, prior = ends[stream]
        seq += 1
        text = canonical_text(around, seq, prior)
        hashed = digest(text.encode(), key)
        placed.append(Placed(event, at, stream, seq, prior, hashed, text))
        ends[stream] = seq, hashed
    heads |= {stream: Head(*end) for stream, end in ends.items()}
    return placed


def _story(error: IntegrityError, events: sa.Table) -> str:
    text = str(error.orig)
    if f"{events.name}_stream" in text or f"{events.name}.stream" in text:
        return "the head of an audit stream is behind its events: somebody changed it; run: holdfast audit verify"
    return f"an event with this id is in the audit trail already; events are appended once ({text.splitlines()[0]})"
