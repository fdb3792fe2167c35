"""The floor: a queue as one writes it by hand for one program, with psycopg, sqlite3 or PyMySQL.

A table of nine columns with one index besides its key; a claim with SKIP LOCKED, a lease and a token; a settle of the
whole batch; NOTIFY with every enqueue. No order per key, no pausing, no de-duplication, no history of attempts.
"""

import json
import sqlite3
import threading
from collections.abc import Callable, Sequence
from itertools import count
from typing import Any
from uuid import UUID, uuid4

import psycopg
from psycopg import RawCursor
from sqlalchemy import create_engine, text
from sqlalchemy.orm import sessionmaker

from benchmarks.outbox.latency import Started
from benchmarks.outbox.rows import BATCH
from benchmarks.outbox.setup import Setup, Watched, order
from benchmarks.store.measure import Task
from holdfast.backends.sql.url import parse

Claimed = Sequence[tuple[Any, str, Any, int]]


async def call(target: str, payload: Any) -> None:
    """The external call."""


class Floor:
    """What the databases have in common."""

    label = "floor"
    serial = count()

    def __init__(self, setup: Setup, store: str) -> None:
        self.setup = setup
        self.store = store
        self.open()

    def open(self) -> None:
        raise NotImplementedError

    def claim(self, token: UUID) -> Claimed:
        """Id, target, payload and attempts of a batch."""
        raise NotImplementedError

    def settle(self, ids: list[Any], token: UUID) -> int:
        raise NotImplementedError

    def put(self, payload: dict[str, Any]) -> None:
        """In a transaction, as an outbox has to: whatever else the program writes goes there as well."""
        raise NotImplementedError

    def forget(self) -> None:
        """Everybody begins with an empty table."""
        raise NotImplementedError

    def put_many(self, payloads: Sequence[dict[str, Any]]) -> None:
        raise NotImplementedError

    def drain(self) -> Task:
        entries = self.setup.entries

        async def drain(_: None) -> int:
            done = 0
            while done < entries:
                token = uuid4()
                claimed = self.claim(token)
                for _id, target, payload, _attempts in claimed:
                    await call(target, payload)
                done += self.settle([one[0] for one in claimed], token)
            return done

        def prepare(number: int) -> list[None]:
            self.forget()
            self.put_many([order(at) for at in range(entries * number)])
            return [None] * number

        return Task(drain, prepare, lambda done: done == entries, entries)

    def enqueue(self) -> Task:
        def prepare(number: int) -> list[dict[str, Any]]:
            self.forget()
            return [order(next(self.serial)) for _ in range(number)]

        return Task(self.put, prepare, lambda _: True)

    enqueue_by_driver = enqueue

    def enqueue_bulk(self) -> Task:
        bulk = self.setup.bulk

        def prepare(number: int) -> list[list[dict[str, Any]]]:
            self.forget()
            return [[order(at) for at in range(bulk)] for _ in range(number)]

        return Task(self.put_many, prepare, lambda _: True, bulk)


class PostgresFloor(Floor):
    TABLE = """
        CREATE TABLE IF NOT EXISTS {name} (
            id uuid PRIMARY KEY DEFAULT gen_random_uuid(), enqueued_at timestamptz NOT NULL DEFAULT clock_timestamp(),
            target text NOT NULL, payload jsonb, status text NOT NULL DEFAULT 'pending',
            attempts int NOT NULL DEFAULT 0, lease_until timestamptz, token uuid, finished_at timestamptz
        )"""
    INDEX = """
        CREATE INDEX IF NOT EXISTS {name}_due ON {name} (enqueued_at, id) WHERE status IN ('pending', 'in_flight')"""
    CLAIM = """
        UPDATE {name} SET
            status = 'in_flight', attempts = attempts + 1, token = $1,
            lease_until = statement_timestamp() + interval '5 minutes'
        WHERE id IN (
            SELECT id FROM {name}
            WHERE status = 'pending' OR (status = 'in_flight' AND lease_until < statement_timestamp())
            ORDER BY enqueued_at, id LIMIT {batch} FOR UPDATE SKIP LOCKED
        ) RETURNING id, target, payload, attempts"""
    SETTLE = """
        UPDATE {name} SET status = 'done', token = NULL, lease_until = NULL, finished_at = statement_timestamp()
        WHERE id = ANY($1) AND token = $2 AND status = 'in_flight'"""
    PUT = """
        WITH new AS (INSERT INTO {name} (target, payload) VALUES ('shop', $1) RETURNING id)
        SELECT id, pg_notify('{name}', '') FROM new"""

    def open(self) -> None:
        self.name = "floor"
        self.connection = self.connect()
        self._execute = RawCursor(self.connection).execute
        for made in (self.TABLE, self.INDEX):
            self._execute(self.sql(made))
        self._claim, self._settle, self._put = map(self.sql, (self.CLAIM, self.SETTLE, self.PUT))

    def connect(self) -> "psycopg.Connection[Any]":
        return psycopg.connect(self.setup.url(self.store, "mine"), autocommit=True, prepare_threshold=0)

    def sql(self, text: str) -> str:
        return text.format(name=self.name, batch=BATCH)

    def claim(self, token: UUID) -> Claimed:
        return self._execute(self._claim, (token,)).fetchall()

    def settle(self, ids: list[Any], token: UUID) -> int:
        return self._execute(self._settle, (ids, token)).rowcount

    def forget(self) -> None:
        self._execute(f"TRUNCATE {self.name}")

    def put(self, payload: dict[str, Any]) -> None:
        self._execute("BEGIN")
        self._execute(self._put, (json.dumps(payload),))
        self._execute("COMMIT")

    def put_many(self, payloads: Sequence[dict[str, Any]]) -> None:
        with self.connection.transaction():
            with self.connection.cursor().copy(f"COPY {self.name} (target, payload) FROM STDIN") as copy:
                for payload in payloads:
                    copy.write_row(("shop", json.dumps(payload)))
            self.connection.execute(f"NOTIFY {self.name}")

    def latency(self) -> Watched:
        def figures(samples: int) -> list[float]:
            worker = _Listening(PostgresFloor(self.setup, self.store))
            try:
                return worker.started.medians(lambda at: self.put(order(at)), self.setup.latencies, samples)
            finally:
                worker.stop()

        return Watched(figures)


class SessionFloor(PostgresFloor):
    """The same statement in a Session of SQLAlchemy's, in which programs write that have one."""

    label = "session"

    def open(self) -> None:
        super().open()
        self._sessions = sessionmaker(create_engine(parse(self.setup.url(self.store, "mine")).sqlalchemy))
        self._text = text(self.sql(self.PUT).replace("$1", ":payload"))

    def put(self, payload: dict[str, Any]) -> None:
        with self._sessions() as session, session.begin():
            session.execute(self._text, {"payload": json.dumps(payload)})


class _Listening:
    """A worker that waits for notifications, claims what there is, calls, settles."""

    def __init__(self, floor: PostgresFloor) -> None:
        self.floor = floor
        self.started = Started()
        self._ended = False
        self._hears = floor.connect()
        self._hears.execute(f"LISTEN {floor.name}")
        self._work()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def _run(self) -> None:
        while not self._ended:
            for _ in self._hears.notifies(timeout=1, stop_after=1):
                self._work()

    def _work(self) -> None:
        while claimed := self.floor.claim(token := uuid4()):
            self.started.note()  # where the call would be
            self.floor.settle([one[0] for one in claimed], token)

    def stop(self) -> None:
        self._ended = True
        self._thread.join()
        self._hears.close()
        self.floor.connection.close()


class SqliteFloor(Floor):
    CLAIM = """
        UPDATE floor SET
            status = 'in_flight', attempts = attempts + 1, token = ?, lease_until = unixepoch() + 300
        WHERE id IN (
            SELECT id FROM floor
            WHERE status = 'pending' OR (status = 'in_flight' AND lease_until < unixepoch())
            ORDER BY id LIMIT 100
        ) RETURNING id, target, payload, attempts"""

    def open(self) -> None:
        path = self.setup.url("sqlite", "floor").removeprefix("sqlite:///")
        self._connection = sqlite3.connect(path, isolation_level=None, timeout=60)
        self._execute = self._connection.execute
        self._execute("PRAGMA journal_mode=WAL")
        self._execute("PRAGMA synchronous=FULL")
        self._execute("""
            CREATE TABLE IF NOT EXISTS floor (
                id INTEGER PRIMARY KEY, enqueued_at REAL DEFAULT (unixepoch()), target TEXT, payload TEXT,
                status TEXT DEFAULT 'pending', attempts INT DEFAULT 0, lease_until REAL, token TEXT, finished_at REAL
            )""")
        self._execute("CREATE INDEX IF NOT EXISTS due ON floor (id) WHERE status IN ('pending', 'in_flight')")

    def claim(self, token: UUID) -> Claimed:
        rows = self._execute(self.CLAIM, (token.hex,)).fetchall()
        return [(id, target, json.loads(payload), attempts) for id, target, payload, attempts in rows]

    def settle(self, ids: list[Any], token: UUID) -> int:
        marks = ", ".join("?" * len(ids))
        return self._execute(
            "UPDATE floor SET status = 'done', token = NULL, lease_until = NULL, finished_at = unixepoch() "
            f"WHERE id IN ({marks}) AND token = ? AND status = 'in_flight'",
            (*ids, token.hex),
        ).rowcount

    def forget(self) -> None:
        self._execute("DELETE FROM floor")

    def put(self, payload: dict[str, Any]) -> None:
        self._execute("BEGIN IMMEDIATE")
        self._execute("INSERT INTO floor (target, payload) VALUES ('shop', ?)", (json.dumps(payload),))
        self._execute("COMMIT")

    def put_many(self, payloads: Sequence[dict[str, Any]]) -> None:
        self._execute("BEGIN IMMEDIATE")
        insert = "INSERT INTO floor (target, payload) VALUES ('shop', ?)"
        self._connection.executemany(insert, [(json.dumps(one),) for one in payloads])
        self._execute("COMMIT")


class MariadbFloor(Floor):
    def open(self) -> None:
        import pymysql  # here, so that a machine without MariaDB need not have it
        from sqlalchemy import make_url

        url = make_url(self.setup.url("mariadb", "mine"))
        self._connection = pymysql.connect(**url.translate_connect_args(username="user"), **url.query, autocommit=True)
        self._cursor = self._connection.cursor()
        self._cursor.execute("SET SESSION TRANSACTION ISOLATION LEVEL READ COMMITTED")
        self._cursor.execute("""
            CREATE TABLE IF NOT EXISTS floor (
                id BIGINT AUTO_INCREMENT PRIMARY KEY, enqueued_at DATETIME(6) DEFAULT now(6), target VARCHAR(255),
                payload JSON, status VARCHAR(16) DEFAULT 'pending', attempts INT DEFAULT 0, lease_until DATETIME(6),
                token UUID, finished_at DATETIME(6), INDEX due (status, id)
            )""")

    def claim(self, token: UUID) -> Claimed:
        execute = self._cursor.execute
        execute("BEGIN")
        execute(
            "SELECT id, target, payload, attempts + 1 FROM floor WHERE status = 'pending' "
            "ORDER BY id LIMIT 100 FOR UPDATE SKIP LOCKED"
        )
        rows = self._cursor.fetchall()
        if rows:
            execute(
                "UPDATE floor SET status = 'in_flight', attempts = attempts + 1, token = %s, "
                "lease_until = now(6) + INTERVAL 5 MINUTE WHERE id IN %s",
                (str(token), [row[0] for row in rows]),
            )
        execute("COMMIT")
        return [(id, target, json.loads(payload), attempts) for id, target, payload, attempts in rows]

    def settle(self, ids: list[Any], token: UUID) -> int:
        return self._cursor.execute(
            "UPDATE floor SET status = 'done', token = NULL, lease_until = NULL, finished_at = now(6) "
            "WHERE id IN %s AND token = %s AND status = 'in_flight'",
            (ids, str(token)),
        )

    def forget(self) -> None:
        self._cursor.execute("TRUNCATE TABLE floor")

    def put(self, payload: dict[str, Any]) -> None:
        self._cursor.execute("BEGIN")
        self._cursor.execute("INSERT INTO floor (target, payload) VALUES ('shop', %s)", (json.dumps(payload),))
        self._cursor.execute("COMMIT")

    def put_many(self, payloads: Sequence[dict[str, Any]]) -> None:
        self._cursor.execute("BEGIN")
        insert = "INSERT INTO floor (target, payload) VALUES ('shop', %s)"
        self._cursor.executemany(insert, [(json.dumps(one),) for one in payloads])
        self._cursor.execute("COMMIT")


FLOORS: dict[str, Callable[[Setup, str], Floor]] = {
    "postgres": PostgresFloor,
    "postgres-nowait": PostgresFloor,
    "sqlite": SqliteFloor,
    "mariadb": MariadbFloor,
}
