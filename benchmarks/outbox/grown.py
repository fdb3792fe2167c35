"""Holdfast's outbox and its audit trail with many rows in them."""

import os
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

import sqlalchemy as sa
from sqlalchemy.orm import sessionmaker

from benchmarks.outbox.setup import Setup, order
from benchmarks.store.measure import Task
from holdfast.audit.event import AuditEvent
from holdfast.audit.sink import DatabaseAuditSink
from holdfast.backends.sql.url import parse
from holdfast.outbox.draft import Draft
from holdfast.outbox.outbox import Outbox
from holdfast.outbox.tables import OutboxTables, bind_tables

CLAIMED = 50
WAITING = 1_000
# How each database makes a number of rows, `i` being their number, and an id of it.
SERIES = {
    "postgresql": (
        "generate_series(1, {number}) AS series(i)",
        "CAST('018f0000-0000-7000-8000-' || lpad(to_hex(i), 12, '0') AS uuid)",
    ),
    "sqlite": (
        "(WITH RECURSIVE series(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM series WHERE i < {number}) "
        "SELECT i FROM series)",
        "printf('018f000000007000800%013x', i)",
    ),
    "mariadb": (
        "(SELECT seq AS i FROM seq_1_to_{number}) AS series",
        "concat('018f0000-0000-7000-8000-', lpad(hex(i), 12, '0'))",
    ),
}


class Grown:
    """Tables that hold so many rows, filled when they are first asked for. Each kind is a set of tables of its own."""

    def __init__(self, setup: Setup, store: str, size: int) -> None:
        self.size = size
        url = parse(setup.url(store, "mine"))
        self._dialect = url.dialect
        self._engine = sa.create_engine(url.sqlalchemy)
        if self._dialect == "sqlite":
            sa.event.listen(self._engine, "connect", _no_wait)
        self._sessions = sessionmaker(self._engine)

    def _make(self, prefix: str) -> OutboxTables:
        tables = bind_tables(sa.MetaData(), prefix)
        tables.outbox.metadata.create_all(self._engine)
        return tables

    def _outbox(self, prefix: str, status: str) -> Outbox:
        tables = self._make(prefix)
        series, id = SERIES[self._dialect]
        values = {
            "entry_id": id, "subject_id": "i", "resolver": "'shop'", "ref_kind": "'shop'", "ref_value": "i",
            "ref_extra": "'{}'", "operation": "'publish'", "payload": "'{\"order\": 1}'", "status": f"'{status}'",
            "attempts": "0" if status == "pending" else "1", "enqueued_at": "'2026-01-01 00:00:00'",
        }  # fmt: skip
        columns, texts = ", ".join(values), ", ".join(values.values())
        table, source = tables.outbox, series.format(number=self.size)
        indexes = list(table.indexes)
        with self._engine.begin() as connection:
            for index in indexes:
                index.drop(connection)
            connection.exec_driver_sql(f"INSERT INTO {table.name} ({columns}) SELECT {texts} FROM {source}")
            for index in indexes:
                index.create(connection)
        outbox = Outbox(self._sessions, table)
        if status != "pending":
            self._add(outbox, WAITING)
        self._analyze(table)
        return outbox

    def _trail(self, prefix: str) -> DatabaseAuditSink:
        tables = self._make(prefix)
        sink = DatabaseAuditSink(self._sessions, tables.audit_events, chain_heads=tables.chain_heads)
        for start in range(0, self.size, 1_000):
            events = [_event(at) for at in range(start, min(start + 1_000, self.size))]
            with self._sessions() as session, session.begin():
                sink.append_in(session, events)
        self._analyze(tables.audit_events)
        return sink

    def _analyze(self, table: sa.Table) -> None:
        text = {"postgresql": "VACUUM ANALYZE {}", "mariadb": "ANALYZE TABLE {}"}.get(self._dialect)
        if text:
            with self._engine.connect().execution_options(isolation_level="AUTOCOMMIT") as connection:
                connection.exec_driver_sql(text.format(table.name))
        os.sync()  # or the disk would still be busy with it when the clock starts

    def _add(self, outbox: Outbox, number: int) -> None:
        with self._sessions() as session, session.begin():
            outbox.put_many(session, [Draft("publish", order(at), target="shop") for at in range(number)])

    def claim_in_backlog(self) -> Task:
        return self._claiming(self._outbox(f"b{self.size}_", "pending"))

    def claim_in_history(self) -> Task:
        return self._claiming(self._outbox(f"h{self.size}_", "succeeded"))

    def _claiming(self, outbox: Outbox) -> Task:
        taken: list[Any] = []

        def claim(_: None) -> Sequence[Any]:
            claimed = outbox.claim_batch(CLAIMED, lease=timedelta(hours=1))
            taken.extend(entry.entry_id for entry in claimed)
            return claimed

        def prepare(number: int) -> list[None]:
            """There are as many as before, the youngest instead of the oldest."""
            if taken:
                row = outbox.tables.outbox.c
                with self._sessions() as session, session.begin():
                    session.execute(outbox.tables.outbox.delete().where(row.entry_id.in_(taken)))
                self._add(outbox, len(taken))
                taken.clear()
            return [None] * number

        return Task(claim, prepare, lambda claimed: len(claimed) == CLAIMED)

    def append(self) -> Task:
        sink = self._trail(f"a{self.size}_")
        return Task(sink.append, lambda number: [_event(at) for at in range(number)], lambda _: True)


def _event(number: int) -> AuditEvent:
    payload: dict[str, Any] = {"target": "crm", "strategy": "delete", "external": True, "attempts": 1}
    return AuditEvent(
        event_type="erasure_step_succeeded",
        subject_ref=f"customer-{number}",
        occurred_at=datetime.now(UTC),
        payload=payload,
    )


def _no_wait(connection: Any, _: Any) -> None:
    connection.execute("PRAGMA journal_mode=WAL")
    connection.execute("PRAGMA synchronous=NORMAL")
