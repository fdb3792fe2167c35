"""Writing new entries in the caller's transaction, in the order of their keys.

Whoever writes an entry with a key holds a lock of that key until the transaction ends, and reads the time only then. So
the entries of a key become visible in the order of their times, however long a transaction was held open.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Sequence
from datetime import datetime, timedelta
from hashlib import blake2b
from typing import Any, Final, NamedTuple, TypeVar
from uuid import UUID

import sqlalchemy as sa
from sqlalchemy.dialects import mysql, postgresql, sqlite

from holdfast.audit.driven import Driven, Joined, Row
from holdfast.audit.sessions import Transaction, take_write_lock
from holdfast.backends.sql.join import Direct
from holdfast.outbox.loading import can_load, load, name_of
from holdfast.outbox.rows import in_utc
from holdfast.outbox.tables import OutboxTables
from holdfast.outbox.wake import CHANNEL, message_of
from holdfast.store.codec import duration

T = TypeVar("T")
SLOTS: Final = 4096
MANY: Final = 200
"""From so many rows on PostgreSQL's COPY is worth its round trips."""
_ALL_KEYS: Final = 500  # with more keys in one call a single lock for all of them is kinder to the server
_CHUNK: Final = 1000
_SECOND: Final = timedelta(seconds=1)
_MYSQL_TIME: Final[Any] = sa.func.utc_timestamp(sa.literal_column("6"))


class _Kind(NamedTuple):
    """What a statement depends on."""

    names: tuple[str, ...]
    once: bool
    locks: bool = False
    many: bool = False


class Inserts:
    """The inserts of one outbox for one dialect. `now(transaction)` gives the time of an injected clock, or of this
    machine; None where the statement itself asks for that of the server.
    """

    def __init__(self, tables: OutboxTables, dialect: str) -> None:
        self.tables = tables
        self.dialect = dialect
        self._plain = Driven(self._insertion, {column.name: column.type for column in tables.outbox.c})
        self._written = Driven(self._write)
        self._locking = Driven(self._lock_all)
        self._stopping_writers = Driven(lambda _: tables.order_locks.delete().where(sa.false()))
        self._among = Driven(self._select_among)

    def insert(self, to: Transaction, rows: Sequence[Row], now: Any) -> set[UUID]:
        """Write the rows; the ids of those that were left out, as a live entry has their dedupe key.

        A row without `enqueued_at` gets the time.
        """
        connection = self._connection(to)
        keys = {row["ordering_key"] for row in rows if row["ordering_key"] is not None}
        if self.dialect == "postgresql":
            return self._insert_on_postgres(connection, rows, keys, now(to))
        if keys:
            self._lock(connection, keys)
        at = now(to)
        if at is None and len(rows) > 1 and not isinstance(connection, Direct):
            # Drivers send many rows at once only if they are values and nothing else.
            at = in_utc(connection.execute(sa.select(_MYSQL_TIME)).scalar())
        if at is not None:
            for row in rows:
                _put_times(row, at)
        plain = [row for row in rows if row["dedupe_key"] is None]
        if plain:
            self._insert_plainly(connection, plain, once=False)
        once = [row for row in rows if row["dedupe_key"] is not None]
        return self._insert_once(connection, once) if once else set()

    def load(self, to: Transaction, rows: Iterable[Row], keys: set[str], now: Any) -> list[UUID] | None:
        """Write very many rows, none of which has a dedupe key, while they are made; their ids. Nothing is written if
        making one raises, and the transaction can go on. None, and no row was asked for, where that is impossible.
        """
        connection = self._connection(to)
        if self.dialect != "postgresql" or not can_load(connection):
            return None
        outbox, given = self.tables.outbox, self._lock_numbers(keys)
        given["table"] = name_of(connection, outbox)
        at, is_guarded, *_ = self._locking.fetch(connection, bool(keys), given)[0]
        if is_guarded:
            return None  # COPY does not know the policies of row-level security
        return load(connection, outbox, rows, now(to) or at)

    def live(self, to: Transaction, dedupe_keys: Sequence[str]) -> dict[str, UUID]:
        """The live entries that have these dedupe keys."""
        found = self._find(self._connection(to), "live_dedupe_key", dedupe_keys)
        return dict(found)

    def _connection(self, to: Transaction) -> Joined:
        if isinstance(to, Direct | sa.Connection):
            return to
        return to.connection(bind_arguments={"clause": self.tables.outbox})

    def _lock(self, connection: Joined, keys: set[str]) -> None:
        if isinstance(connection, Direct):
            self._stopping_writers.run(connection, None, (), [{}])  # the driver begins a transaction before it
            return
        if self.dialect == "sqlite":
            take_write_lock(connection, self.tables.order_locks)
            return
        slots = sorted({self._number(key) % SLOTS for key in keys})
        locks = self.tables.order_locks
        upsert = mysql.insert(locks).values([{"slot": slot} for slot in slots])
        connection.execute(upsert.on_duplicate_key_update(slot=locks.c.slot))

    def _number(self, key: str) -> int:
        """Of 64 bits: the same for the same key of the same table, in every process."""
        text = f"{self.tables.outbox.fullname}\0{key}".encode(errors="surrogatepass")
        return int.from_bytes(blake2b(text, digest_size=8).digest(), "big", signed=True)

    def _insert_plainly(self, connection: Joined, rows: Sequence[Row], *, once: bool) -> None:
        kind = _Kind(_present(rows), once)
        if "delay" in kind.names:  # then it is one row, and the time the server's
            rows = [row | {"delay": duration(row["delay"])} for row in rows]
        self._plain.run(connection, kind, [name for name in kind.names if name != "delay"], rows)

    def _insertion(self, kind: _Kind) -> Any:
        outbox = self.tables.outbox
        live = outbox.c.live_dedupe_key
        if self.dialect == "sqlite":
            insert: Any = sqlite.insert(outbox)
            once = {"index_elements": [live], "index_where": live.is_not(None)}
            return insert.on_conflict_do_nothing(**once) if kind.once else insert
        insert = mysql.insert(outbox)
        if "enqueued_at" not in kind.names:
            insert = insert.values(enqueued_at=_MYSQL_TIME)
        if "delay" in kind.names:
            gate = sa.func.timestampadd(sa.literal_column("MICROSECOND"), sa.bindparam("delay"), _MYSQL_TIME)
            insert = insert.values(next_attempt_at=gate)
        return insert.on_duplicate_key_update(entry_id=outbox.c.entry_id) if kind.once else insert

    def _insert_once(self, connection: Joined, rows: Sequence[Row]) -> set[UUID]:
        self._insert_plainly(connection, rows, once=True)
        ids = [row["entry_id"] for row in rows]
        return set(ids).difference([entry_id for _, entry_id in self._find(connection, "entry_id", ids)])

    def _find(self, connection: Joined, name: str, values: Sequence[Any]) -> Iterator[tuple[Any, UUID]]:
        """The value and the id of each entry that has one of these in that column."""
        row = self.tables.outbox.c
        for some in _parts(values):
            if self.dialect in ("sqlite", "postgresql"):
                text = json.dumps([one.hex if isinstance(one, UUID) else one for one in some])
                yield from self._among.fetch(connection, name, {"values": text})
            elif not isinstance(connection, Direct):
                # The caller's transaction may have an older view of the data than the insert had; a lock has none.
                found = sa.select(row[name], row.entry_id).where(row[name].in_(some)).with_for_update(read=True)
                yield from connection.execute(found)

    def _select_among(self, name: str) -> Any:
        """One text, which is JSON, for any number of values: the statement is the same."""
        row = self.tables.outbox.c
        if self.dialect == "sqlite":
            wanted = sa.select(sa.func.json_each(_text("values")).table_valued("value").c.value)
            return sa.select(row[name], row.entry_id).where(row[name].in_(wanted))
        each = sa.select(sa.func.json_array_elements_text(sa.cast(_text("values"), postgresql.JSON())))
        # Of a list a server knows that it is short, and uses an index.
        return sa.select(row[name], row.entry_id).where(row[name] == sa.any_(sa.func.array(each.scalar_subquery())))

    def _insert_on_postgres(
        self, connection: Joined, rows: Sequence[Row], keys: set[str], now: datetime | None
    ) -> set[UUID]:
        """One statement takes the locks, if there are keys, reads the time, writes the rows and tells whoever
        listens."""
        left_out: set[UUID] = set()
        locks = self._lock_numbers(keys) if keys else {}
        for part in _parts(rows):
            if now is not None:
                for row in part:
                    _put_times(row, now)
            once = any(row["dedupe_key"] is not None for row in part)
            kind = _Kind(_present(part), once, bool(locks), len(part) > 1)
            given = {"rows": _json(part)} if kind.many else _texts(part[0], kind.names)
            written = self._written.fetch(connection, kind, given | locks if locks else given)
            if once:
                left_out.update(row["entry_id"] for row in part)
                left_out.difference_update(UUID(text) for (text,) in written)
            locks = {}
        return left_out

    def _lock_numbers(self, keys: set[str]) -> dict[str, Any]:
        everything = self._number("")
        if len(keys) > _ALL_KEYS:
            return {"shared": "{}", "locks": f"{{{everything}}}"}
        return {"shared": f"{{{everything}}}", "locks": f"{{{','.join(map(str, sorted(map(self._number, keys))))}}}"}

    def _write(self, kind: _Kind) -> Any:
        """All values are texts, so that any driver can send them. Many rows come as one text, which is JSON."""
        outbox = self.tables.outbox
        insert: Any = postgresql.insert(outbox)
        if kind.once:
            live = outbox.c.live_dedupe_key
            insert = insert.on_conflict_do_nothing(index_elements=[live], index_where=live.is_not(None))
            insert = insert.returning(sa.cast(outbox.c.entry_id, sa.Text()))
        # As a table of one row the notification costs no result, and no second step.
        origin = self._notify().table_valued("told", name="told")
        at: Any = sa.func.statement_timestamp(type_=outbox.c.enqueued_at.type)
        if kind.locks:
            time = self._time()
            origin, at = origin.join(time, sa.true()), time.c.at
        texts = {name: _text(name) for name in kind.names}
        if kind.many:
            given = _given(kind.names)
            origin, texts = origin.join(given, sa.true()), dict(given.c)
        put = self._put(texts, at)
        return insert.from_select(list(put), sa.select(*put.values()).select_from(origin))

    def _put(self, texts: dict[str, Any], at: Any) -> dict[str, Any]:
        """What goes into each column. A cast to a text of some length would cut it off, and say nothing."""
        delay, put = texts.pop("delay", None), {}
        for name, text in texts.items():
            type = self.tables.outbox.c[name].type
            put[name] = text if isinstance(type, sa.String) else sa.cast(text, type)
        put["enqueued_at"] = sa.func.coalesce(put.get("enqueued_at"), at) if "enqueued_at" in put else at
        if delay is not None:
            gate = put["enqueued_at"] + sa.cast(delay, sa.Double()) * sa.literal_column("interval '1 second'")
            given = put.get("next_attempt_at")
            put["next_attempt_at"] = gate if given is None else sa.func.coalesce(given, gate)
        return put

    def _time(self) -> Any:
        """The time once all locks are held: a count has to wait for every one of them."""
        held = sa.select(sa.func.count().label("number")).select_from(_locked()).cte("held")
        at = sa.func.clock_timestamp(type_=self.tables.outbox.c.enqueued_at.type).label("at")
        return sa.select(at, held.c.number).cte("time").prefix_with("MATERIALIZED")

    def _lock_all(self, locks: bool) -> Any:
        """The same for rows that come afterwards."""
        guarded = sa.func.row_security_active(_text("table"))
        if not locks:
            return sa.select(sa.func.statement_timestamp(), guarded, self._notify())
        time = self._time()
        return sa.select(time.c.at, guarded, self._notify()).select_from(time)

    def _notify(self) -> Any:
        """A part of the text: what never changes need not be sent with every row."""
        words = [word.replace("'", "''") for word in (CHANNEL, message_of(self.tables.outbox.name))]
        return sa.func.pg_notify(*(sa.literal_column(f"'{word}'", sa.Text()) for word in words))


def _text(name: str) -> Any:
    return sa.bindparam(name, type_=sa.Text())


def _given(names: Sequence[str]) -> Any:
    columns = [sa.column(name, sa.Text()) for name in names]
    rows = sa.func.json_to_recordset(sa.cast(_text("rows"), postgresql.JSON()))
    return rows.table_valued(*columns, name="given").render_derived(with_types=True)


def _locked() -> Any:
    """A lock that is shared by everyone who orders, unless someone orders a great many keys; then those of keys."""

    def taking(lock: Any, name: str) -> Any:
        every = sa.func.unnest(sa.cast(_text(name), postgresql.ARRAY(sa.BigInteger())))
        given = every.table_valued("number").render_derived()
        taken = sa.select(lock(given.c.number).label("lock")).cte(name).prefix_with("MATERIALIZED")
        return sa.select(sa.literal_column("1").label("one")).select_from(taken)

    return sa.union_all(
        taking(sa.func.pg_advisory_xact_lock_shared, "shared"), taking(sa.func.pg_advisory_xact_lock, "locks")
    ).subquery("locked")


def _present(rows: Sequence[Row]) -> tuple[str, ...]:
    """The names that have a value in some row; all others are null. Rows of one call have the same names."""
    first, more = rows[0], rows[1:]
    return tuple(
        [name for name in first if first[name] is not None or (more and any(row[name] is not None for row in more))]
    )


def _put_times(row: Row, at: datetime) -> None:
    delay = row.pop("delay", None)
    if row.get("enqueued_at") is None:
        row["enqueued_at"] = at
    if delay is not None:
        row["next_attempt_at"] = at + delay


def _parts(rows: Sequence[T]) -> Iterator[Sequence[T]]:
    for start in range(0, len(rows), _CHUNK):
        yield rows[start : start + _CHUNK]


def _texts(row: Row, names: Sequence[str]) -> dict[str, str]:
    found = {}
    for name in names:
        value = row[name]
        found[name] = value if type(value) is str else str(_as_text(value))
    return found


def _json(rows: Sequence[Row]) -> str:
    """Without what is null: a record of the server's has null where the text has nothing."""
    present = [{name: value for name, value in row.items() if value is not None} for row in rows]
    return json.dumps(present, default=_as_text, allow_nan=False, ensure_ascii=False, separators=(",", ":"))


def _as_text(value: Any) -> Any:
    if isinstance(value, datetime):
        return value.isoformat()
    if isinstance(value, timedelta):
        return value / _SECOND
    return str(value)
