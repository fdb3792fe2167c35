"""`python -m benchmarks.server.load STORE SETUP`: fill a store, all of it made by the database itself.

Indexes and triggers are away meanwhile, and the counters are made anew.
"""

import sqlite3
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, ClassVar

import psycopg

from benchmarks.outbox.grown import SERIES
from benchmarks.server.setup import BULK_DOMAIN, RARE, STEP, Setup, order
from holdfast.app import Holdfast
from holdfast.backends.sql.migrate import upgrade
from holdfast.backends.sql.schema import table_name
from holdfast.letters.draft import draft
from holdfast.machine.letter_record import LETTER
from holdfast.store.record import Kind
from holdfast.workflows.functions import task, workflow
from holdfast.workflows.records import WORKFLOW

Columns = Mapping[str, str]
"""The expression of each column that differs from row to row; `i` is the row's number."""
HOUR, MINUTE = 3_600_000_000, 60_000_000
HISTORY = (
    '[{"number":1,"token":"00000000000000ffffffffff","started_at":1,"finished_at":2,"outcome":"succeeded",'
    '"trigger":"scheduled_batch","error_type":"","note":"","details":{}}]'
)
LETTERS_AT_ONCE = 1_000


class Database:
    """What both can do, in their own words."""

    dialect: ClassVar[str]

    def __init__(self, setup: Setup) -> None:
        self.setup = setup
        self.now = f"({setup.at(0)} + CAST(i AS bigint) * {STEP})"

    def run(self, statement: str) -> list[tuple[Any, ...]]:
        raise NotImplementedError

    def hex(self, value: str, width: int) -> str:
        raise NotImplementedError

    def time(self, micros: str) -> str:
        raise NotImplementedError

    @contextmanager
    def bare(self, table: str) -> Iterator[None]:
        """The table without indexes and triggers."""
        raise NotImplementedError
        yield

    def fill(self, table: str, columns: Columns) -> None:
        source = SERIES[self.dialect][0].format(number=self.setup.rows)
        with self.bare(table):
            self.run(f"INSERT INTO {table} ({', '.join(columns)}) SELECT {', '.join(columns.values())} FROM {source}")

    def fill_kind(self, kind: Kind[Any], template: tuple[Any, ...], columns: Columns) -> None:
        """Records like this one, but for these fields."""
        plain = {column.name: literal(value) for column, value in zip(kind.columns, template, strict=True)}
        table = table_name(kind)
        self.fill(table, {**plain, **columns})
        for counter, fields in (("tally", kind.tally), ("arrivals", kind.arrivals)):
            if fields:
                names = ", ".join(fields)
                self.run(f"DELETE FROM {table}_{counter}")
                self.run(
                    f"INSERT INTO {table}_{counter} ({names}, n) SELECT {names}, count(*) FROM {table} GROUP BY {names}"
                )

    def record_id(self) -> str:
        return f"{self.hex(self.now, 14)} || {self.hex('i', 10)}"

    def uuid(self, number: str = "i") -> str:
        return SERIES[self.dialect][1].replace("i)", f"{number})")

    def done(self) -> None:
        """Make it as it would be after a while."""


class Sqlite(Database):
    dialect = "sqlite"

    def __init__(self, setup: Setup) -> None:
        super().__init__(setup)
        for place in ("served", "bulk"):
            upgrade(setup.url("sqlite", place))
        self._connection = sqlite3.connect(setup.path("served"), isolation_level=None)
        for pragma in ("synchronous=OFF", "cache_size=-500000", "temp_store=MEMORY"):
            self._connection.execute(f"PRAGMA {pragma}")

    def run(self, statement: str) -> list[tuple[Any, ...]]:
        return self._connection.execute(statement).fetchall()

    def hex(self, value: str, width: int) -> str:
        return f"printf('%0{width}x', {value})"

    def time(self, micros: str) -> str:
        return f"strftime('%Y-%m-%d %H:%M:%f000', {micros} / 1000000.0, 'unixepoch')"

    @contextmanager
    def bare(self, table: str) -> Iterator[None]:
        about = f"FROM sqlite_master WHERE tbl_name = '{table}' AND type IN ('index', 'trigger') AND sql IS NOT NULL"
        parts = self.run(f"SELECT type, name, sql {about}")
        self.run("BEGIN")
        for kind, name, _ in parts:
            self.run(f"DROP {kind} {name}")
        yield
        for _, _, sql in sorted(parts):
            self.run(sql)
        self.run("COMMIT")

    def done(self) -> None:
        self.run("PRAGMA wal_checkpoint(TRUNCATE)")
        self._connection.close()


class Postgres(Database):
    dialect = "postgresql"

    def __init__(self, setup: Setup) -> None:
        super().__init__(setup)
        for place in ("served", "bulk"):
            with psycopg.connect(setup.postgres, autocommit=True) as connection:
                connection.execute(f"CREATE DATABASE bench_{place}")
            upgrade(setup.url("postgres", place))
        self._connection = psycopg.connect(setup.url("postgres"), autocommit=True)
        self.run("SET maintenance_work_mem = '512MB'")

    def run(self, statement: str) -> list[tuple[Any, ...]]:
        found = self._connection.execute(statement)  # type: ignore[call-overload]  # of a text that is no literal
        return found.fetchall() if found.description else []

    def hex(self, value: str, width: int) -> str:
        return f"lpad(to_hex(CAST({value} AS bigint)), {width}, '0')"

    def time(self, micros: str) -> str:
        return f"to_timestamp({micros} / 1000000.0)"

    @contextmanager
    def bare(self, table: str) -> Iterator[None]:
        indexes = self.run(
            f"SELECT indexname, indexdef FROM pg_indexes WHERE tablename = '{table}' AND indexname NOT LIKE '%pkey'"
        )
        self.run(f"ALTER TABLE {table} DISABLE TRIGGER USER")
        for name, _ in indexes:
            self.run(f"DROP INDEX {name}")
        yield
        for _, definition in indexes:
            self.run(definition)
        self.run(f"ALTER TABLE {table} ENABLE TRIGGER USER")

    def done(self) -> None:
        self.run("VACUUM ANALYZE")
        self.run("CHECKPOINT")
        self._connection.close()


def literal(value: Any) -> str:
    if value is None:
        return "NULL"
    return str(value) if isinstance(value, int) else "'" + value.replace("'", "''") + "'"


def rare(value: str, usual: str) -> str:
    return f"CASE WHEN i <= {RARE} THEN {value} ELSE {usual} END"


def share(places: Mapping[str, str], usual: str, of: int = 100) -> str:
    """By the number's rest: `{"< 3": "'pending'"}` is for three of a hundred."""
    cases = " ".join(f"WHEN i % {of} {test} THEN {value}" for test, value in places.items())
    return f"CASE {cases} ELSE {usual} END"


def letters(on: Database) -> None:
    """One of ten waits, nine are over; ten domains and four kinds of failures."""
    made = draft(
        on.setup.until, domain="d", failure_type="f", error_code="ETIMEDOUT", entity_type="order", entity_id="o",
        error_message="the provider did not answer for order-NUMBER within 2 seconds", user_id=1,
        request_data={"function": "charge", "arguments": order("NUMBER")},
        metadata={"source": "guard", "guard": "payments", "attempts": 3},
    )  # fmt: skip
    waits, archived, over = "i % 10 = 0", "i % 10 = 1", "i % 10 > 0"
    on.fill_kind(LETTER, made, {
        "id": on.record_id(),
        "version": f"CASE WHEN {over} THEN 3 ELSE 1 END",
        "due_at": f"CASE WHEN {waits} AND i % 100 > 0 THEN {on.now} END",
        "domain": rare("'rare'", "'domain_' || (i / 10 % 10)"),
        "failure_type": rare("'RARE'", "'FAILURE_' || (i / 7 % 4)"),
        "status": f"CASE WHEN i % 100 = 0 THEN 'requires_review' WHEN {waits} THEN 'pending' "
                  f"WHEN {archived} THEN 'archived' ELSE 'resolved' END",
        "created_at": on.now,
        "updated_at": f"{on.now} + {MINUTE}",
        "hour": f"{on.now} / {HOUR}",
        "entity_type": rare("'refund'", "'order'"),
        "entity_id": "'order-' || i",
        "user_id": rare("'\"rare\"'", "CAST(i % 1000 AS text)"),
        "retry_count": f"CASE WHEN {over} THEN 1 ELSE 0 END",
        "resolved_at": f"CASE WHEN {over} THEN {on.now} + {MINUTE} END",
        "archived_at": f"CASE WHEN {archived} THEN {on.now} + {HOUR} END",
        "aged_at": f"CASE WHEN {over} THEN {on.now} + {MINUTE} END",
        "resolution_type": f"CASE WHEN {over} THEN 'auto_replay_recovery' ELSE '' END",
        "history": f"CASE WHEN {over} THEN {literal(HISTORY)} ELSE {literal(made.history)} END",
        "payload": f"replace({literal(made.payload)}, 'NUMBER', CAST(i AS text))",
    })  # fmt: skip


def entries(on: Database) -> None:
    """Three of a hundred wait, one was given up; the others are done."""
    on.fill("holdfast_outbox", {
        "entry_id": on.uuid(),
        "subject_id": rare("'rare'", "'customer-' || (i % 100000)"),
        "resolver": rare("'rare'", "'target_' || (i % 5)"),
        "ref_kind": "'shop'",
        "ref_value": "'shop'",
        "ref_extra": "'{}'",
        "operation": rare("'rare'", "'operation_' || (i % 5)"),
        "payload": literal('{"order_id": "order-1", "amount": 1999, "currency": "EUR"}'),
        "status": share({"< 3": "'pending'", "= 3": "'abandoned'"}, "'succeeded'"),
        "attempts": share({"< 3": "0"}, "1"),
        "enqueued_at": on.time(on.now),
        "last_attempt_at": share({"< 3": "NULL"}, on.time(on.now)),
        "last_error": rare("'RareError'", share({"= 3": "'ConnectionError'"}, "NULL")),
        "ordering_key": rare("'rare'", "'key-' || (i % 1000)"),
        "queue": rare("'rare'", share({"= 1": "'slow'"}, "'default'")),
        "saga_id": f"CASE WHEN i % 10 = 4 THEN {on.uuid('i - 4')} END",
        "step": "CASE WHEN i % 10 = 4 THEN 'charge' END",
        "direction": "CASE WHEN i % 10 = 4 THEN 'forward' END",
        "verification": share({"= 5": "'confirmed'", "= 6": "'failed'"}, "NULL"),
    })  # fmt: skip


def sagas(on: Database) -> None:
    steps = '[{"name": "charge", "state": "done"}, {"name": "ship", "state": "done"}]'
    on.fill("holdfast_sagas", {
        "saga_id": on.uuid(),
        "definition": rare("'rare'", "'order_' || (i % 5)"),
        "state": share({"= 1": "'running'", "= 2": "'compensated'", "= 3": "'stuck'"}, "'completed'"),
        "subject_id": rare("'rare'", "'customer-' || (i % 100000)"),
        "data": literal('{"order_id": "order-1", "amount": 1999}'),
        "steps": literal(steps),
        "started_at": on.time(on.now),
        "changed_at": on.time(on.now),
    })  # fmt: skip


def events(on: Database) -> None:
    """Their hashes are none: nobody verifies them."""
    on.fill("holdfast_audit_events", {
        "event_id": on.uuid(),
        "event_type": rare("'operation_parked'", share({"= 1": "'operation_failed'"}, "'operation_succeeded'")),
        "subject_ref": rare("'rare'", "'customer-' || (i % 100000)"),
        "occurred_at": on.time(on.now),
        "payload": literal('{"operation": "charge", "target": "bank", "attempts": 1}'),
        "entry_id": on.uuid(),
        "stream": rare("'rare'", "'s' || (i % 16)"),
        "seq": "i",
        "prior_hash": f"'{'0' * 64}'",
        "event_hash": f"'{'1' * 64}'",
    })  # fmt: skip
    on.run(
        "INSERT INTO holdfast_audit_chain_heads (stream, seq, last_hash) "
        "SELECT stream, max(seq), max(event_hash) FROM holdfast_audit_events GROUP BY stream"
    )


@task(name="charge")
def _charge(order: dict[str, Any]) -> str:
    return "charged"


@workflow(name="template")
def _template(order: dict[str, Any]) -> None:
    _charge(order)


def workflows(on: Database, url: str) -> None:
    """One of fifty is under way, one failed; ten names."""
    with Holdfast(url, background=False) as hold:
        begun = hold.workflows.start(_template, order(1)).id
        (made,) = hold.store.get(WORKFLOW, [begun])
    assert made is not None
    for table in ("workflow", "workflow_tally", "workflow_item"):
        on.run(f"DELETE FROM holdfast_{table}")
    under_way, failed = "i % 50 = 1", "i % 50 = 2"
    on.fill_kind(WORKFLOW, made, {
        "id": on.record_id(),
        "version": "3",
        "status": f"CASE WHEN {under_way} THEN 'RUNNING' WHEN {failed} THEN 'TERMINAL' ELSE 'SUCCEEDED' END",
        "name": rare("'rare'", "'flow_' || (i % 10)"),
        "application": rare("'rare'", "'shop'"),
        "pipeline": rare("'rare'", "CASE WHEN i % 2 = 0 THEN 'pipeline_' || (i % 100) END"),
        "parent": f"CASE WHEN i % 20 = 7 THEN {on.hex(f'({on.now} - 7 * {STEP})', 14)} || {on.hex('i - 7', 10)} END",
        "created_at": on.now,
        "started_at": on.now,
        "ended_at": f"CASE WHEN {under_way} THEN NULL ELSE {on.now} + {MINUTE} END",
    })  # fmt: skip


def to_replay(setup: Setup, store: str) -> None:
    """The letters of the bulk operation, in a store of their own."""
    with Holdfast(setup.url(store, "bulk"), background=False) as hold:
        for first in range(0, setup.bulk, LETTERS_AT_ONCE):
            hold.letters.create_many(
                {
                    "domain": BULK_DOMAIN, "failure_type": "TIMEOUT", "entity_type": "order", "max_retries": 3,
                    "entity_id": f"order-{number}", "error_message": "the provider did not answer",
                    "request_data": {"function": "charge", "args": {"order_id": f"order-{number}"}},
                }
                for number in range(first, min(first + LETTERS_AT_ONCE, setup.bulk))
            )  # fmt: skip


DATABASES: dict[str, Callable[[Setup], Database]] = {"sqlite": Sqlite, "postgres": Postgres}


def main(store: str, setup: Setup) -> None:
    on = DATABASES[store](setup)
    for fill in (letters, entries, sagas, events):
        fill(on)
    workflows(on, setup.url(store))
    on.done()
    to_replay(setup, store)


if __name__ == "__main__":
    main(sys.argv[1], Setup.from_json(sys.argv[2]))
