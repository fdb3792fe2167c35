"""Writing new entries in the caller's transaction, in the order of their keys.

Whoever writes an entry with a key holds a lock of that key until the transaction ends, and reads the time only then. So
the entries of a key become visible in the order of their times, however long a transaction was held open.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Sequence
from datetime import datetime, timedelta
from functools import cached_property
from hashlib import blake2b
from typing import Any, Final
from uuid import UUID

import sqlalchemy as sa
from sqlalchemy.dialects import mysql, postgresql, sqlite
from sqlalchemy.orm import Session

from holdfast.audit.sessions import take_write_lock
from holdfast.outbox.rows import COLUMNS
from holdfast.outbox.tables import OutboxTables
from holdfast.outbox.wake import CHANNEL, message_of

SLOTS: Final = 4096
_ALL_KEYS: Final = 500  # with more keys in one call a single lock for all of them is kinder to the server
_CHUNK: Final = 1000
_SECOND: Final = timedelta(seconds=1)


class Inserts:
    """The inserts of one outbox for one dialect. `now` gives the time of an injected clock, or of this machine."""

    def __init__(self, tables: OutboxTables, dialect: str) -> None:
        self.tables = tables
        self.dialect = dialect
        self._writes: dict[tuple[bool, bool], Any] = {}

    def insert(self, session: Session, rows: Sequence[dict[str, Any]], now: Any) -> set[UUID]:
        """Write the rows; the ids of those that were left out, as a live entry has their dedupe key.

        A row without `enqueued_at` gets the time. `now(session)` tells it, or None where the statement itself does.
        """
        keys = {row["ordering_key"] for row in rows if row["ordering_key"] is not None}
        if self.dialect == "postgresql":
            return self._insert_on_postgres(session, rows, keys, now(session))
        if keys:
            self._lock(session, keys)
        at = now(session)
        for row in rows:
            _put_times(row, at)
        plain = [row for row in rows if row["dedupe_key"] is None]
        if plain:
            session.execute(self.tables.outbox.insert(), plain)
        once = [row for row in rows if row["dedupe_key"] is not None]
        return self._insert_once(session, once) if once else set()

    def lock_keys(self, session: Session, keys: Iterable[str]) -> None:
        """Hold the locks of these keys until the transaction ends."""
        if not (keys := set(keys)):
            return
        if self.dialect == "postgresql":
            session.execute(self._locks, self._lock_numbers(keys))
        else:
            self._lock(session, keys)

    def _lock(self, session: Session, keys: set[str]) -> None:
        if self.dialect == "sqlite":
            take_write_lock(session, self.tables.order_locks)
            return
        slots = sorted({self._number(key) % SLOTS for key in keys})
        locks = self.tables.order_locks
        upsert = mysql.insert(locks).values([{"slot": slot} for slot in slots])
        session.execute(upsert.on_duplicate_key_update(slot=locks.c.slot))

    def _number(self, key: str) -> int:
        """Of 64 bits: the same for the same key of the same table, in every process."""
        text = f"{self.tables.outbox.fullname}\0{key}".encode(errors="surrogatepass")
        return int.from_bytes(blake2b(text, digest_size=8).digest(), "big", signed=True)

    def _insert_once(self, session: Session, rows: Sequence[dict[str, Any]]) -> set[UUID]:
        outbox = self.tables.outbox
        live = outbox.c.live_dedupe_key
        insert: Any
        if self.dialect == "sqlite":
            insert = sqlite.insert(outbox).on_conflict_do_nothing(index_elements=[live], index_where=live.is_not(None))
        else:
            insert = mysql.insert(outbox).on_duplicate_key_update(entry_id=outbox.c.entry_id)
        session.execute(insert, rows)
        left_out: set[UUID] = set()
        for part in _parts(rows):
            ids = [row["entry_id"] for row in part]
            left_out.update(ids)
            left_out.difference_update(
                session.execute(sa.select(outbox.c.entry_id).where(outbox.c.entry_id.in_(ids))).scalars()
            )
        return left_out

    def _insert_on_postgres(
        self, session: Session, rows: Sequence[dict[str, Any]], keys: set[str], now: datetime | None
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
            given = {"rows": _json(part), "channel": CHANNEL, "message": message_of(self.tables.outbox.name)}
            written = session.execute(self._writing(once=once, locks=bool(locks)), given | locks).scalar()
            if once:
                left_out.update(row["entry_id"] for row in part)
                left_out.difference_update(written or ())
            locks = {}
        return left_out

    def _lock_numbers(self, keys: set[str]) -> dict[str, Any]:
        everything = self._number("")
        if len(keys) > _ALL_KEYS:
            return {"shared": [], "locks": [everything]}
        return {"shared": [everything], "locks": sorted(map(self._number, keys))}

    @cached_property
    def _locks(self) -> Any:
        return sa.select(sa.func.count()).select_from(self._locked())

    def _writing(self, *, once: bool, locks: bool) -> Any:
        found = self._writes.get((once, locks))
        if found is None:
            found = self._writes[once, locks] = self._write(once, locks)
        return found

    def _write(self, once: bool, locks: bool) -> Any:
        """The rows come as one JSON text: that costs the same for one of them and for a thousand."""
        outbox = self.tables.outbox
        insert = postgresql.insert(outbox)
        if once:
            live = outbox.c.live_dedupe_key
            insert = insert.on_conflict_do_nothing(index_elements=[live], index_where=live.is_not(None))
        columns = [sa.column(name, outbox.c[name].type) for name in COLUMNS]
        rows = sa.cast(sa.bindparam("rows", type_=sa.Text()), postgresql.JSON())
        given = (
            sa.func.json_to_recordset(rows)
            .table_valued(*columns, sa.column("delay", sa.Double()), name="given")
            .render_derived(with_types=True)
        )
        time = self._time() if locks else sa.select(_statement_time(outbox).label("at")).subquery("time")
        at = sa.func.coalesce(given.c.enqueued_at, time.c.at)
        second = sa.literal(_SECOND, sa.Interval())
        gate = sa.func.coalesce(given.c.next_attempt_at, at + given.c.delay * second)
        put = {"enqueued_at": at, "next_attempt_at": gate}
        source = sa.select(*(put.get(name, given.c[name]) for name in COLUMNS)).select_from(given.join(time, sa.true()))
        new = insert.from_select(list(COLUMNS), source).returning(outbox.c.entry_id).cte("new")
        told: Any = sa.func.count()
        if once:
            told = sa.func.array_agg(new.c.entry_id, type_=postgresql.ARRAY(sa.Uuid()))
        notify = sa.func.pg_notify(sa.bindparam("channel", type_=sa.Text()), sa.bindparam("message", type_=sa.Text()))
        return sa.select(told, notify).select_from(new)

    def _time(self) -> Any:
        """The time once all locks are held: a count has to wait for every one of them."""
        held = sa.select(sa.func.count().label("number")).select_from(self._locked()).cte("held")
        at = sa.func.clock_timestamp(type_=self.tables.outbox.c.enqueued_at.type).label("at")
        return sa.select(at, held.c.number).cte("time").prefix_with("MATERIALIZED")

    @staticmethod
    def _locked() -> Any:
        """A lock that is shared by everyone who orders, unless someone orders a great many keys; then those of keys."""
        numbers = postgresql.ARRAY(sa.BigInteger())

        def taking(lock: Any, name: str) -> Any:
            every = sa.func.unnest(sa.cast(sa.bindparam(name, type_=numbers), numbers))
            given = every.table_valued("number").render_derived()
            taken = sa.select(lock(given.c.number).label("lock")).cte(name).prefix_with("MATERIALIZED")
            return sa.select(sa.literal_column("1").label("one")).select_from(taken)

        return sa.union_all(
            taking(sa.func.pg_advisory_xact_lock_shared, "shared"), taking(sa.func.pg_advisory_xact_lock, "locks")
        ).subquery("locked")


def _statement_time(outbox: sa.Table) -> Any:
    return sa.func.statement_timestamp(type_=outbox.c.enqueued_at.type)


def _put_times(row: dict[str, Any], at: datetime) -> None:
    delay = row.pop("delay", None)
    if row.get("enqueued_at") is None:
        row["enqueued_at"] = at
    if delay is not None:
        row["next_attempt_at"] = at + delay


def _parts(rows: Sequence[dict[str, Any]]) -> Iterator[Sequence[dict[str, Any]]]:
    for start in range(0, len(rows), _CHUNK):
        yield rows[start : start + _CHUNK]


def _json(rows: Sequence[dict[str, Any]]) -> str:
    """Without what is null: a record of the server's has null where the text has nothing."""
    present = [{name: value for name, value in row.items() if value is not None} for row in rows]
    return json.dumps(present, default=_as_text, allow_nan=False, ensure_ascii=False, separators=(",", ":"))


def _as_text(value: Any) -> Any:
    if isinstance(value, datetime):
        return value.isoformat()
    if isinstance(value, timedelta):
        return value / _SECOND
    if isinstance(value, UUID):
        return str(value)
    raise TypeError(f"a {type(value).__name__} is not JSON")
