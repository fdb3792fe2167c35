"""The floor on SQL: each row as the cheapest correct statements, written by hand for sqlite3 and for psycopg.

It works on tables of the same columns, indexes and counters as ours (a copy of the same database), with the same
promise about the disk. A write is one statement in autocommit mode; a claim is one statement, too.
"""

import json
import re
import select
import sqlite3
import struct
from collections.abc import Callable, Sequence
from itertools import count
from time import time_ns
from typing import Any

import psycopg
from psycopg import RawCursor
from psycopg.adapt import Transformer
from psycopg.pq import ExecStatus, Format
from psycopg.rows import namedtuple_row

import holdfast as hf
from benchmarks.store.measure import Task
from benchmarks.store.ours import Ours, failing
from benchmarks.store.setup import CAP, CLAIMED, READ, SERVICE, Setup, letter
from holdfast.machine.letter_record import LETTER, LetterRecord

HOUR = 3_600_000_000
BEGUN = """
    version = version + 1, due_at = NULL, status = 'replaying', updated_at = ?, retry_count = retry_count + 1,
    attempts = attempts + 1, token = {token}, attempt_cap = {least}(max_retries, ?), started_at = ?, started_by = '',
    last_retry_at = ?, heartbeat_at = ?, touched_at = ?"""
INSERT = f"INSERT INTO {{table}} VALUES ({', '.join('?' * len(LetterRecord._fields))})"
ACQUIRE = f"""
    UPDATE holdfast_letter SET {BEGUN}
    WHERE id = ? AND status = 'pending' AND retry_count < ? AND not_before <= ? RETURNING *"""
CLAIM = f"""
    UPDATE holdfast_letter SET {BEGUN}
    WHERE id IN (
        SELECT id FROM holdfast_letter WHERE domain = ? AND due_at <= ? AND retry_count < ?
        ORDER BY due_at, id LIMIT 100 {{locked}}
    ) RETURNING *"""
COMPLETE = """
    UPDATE holdfast_letter SET
        version = version + 1, status = 'resolved', updated_at = ?, resolved_at = ?, aged_at = ?, touched_at = NULL,
        unique_key = NULL, token = NULL, attempt_cap = NULL, started_at = NULL, heartbeat_at = NULL,
        resolution_type = 'manual_replay',
        history = substr(history, 1, length(history) - 1) || CASE history WHEN '[]' THEN '' ELSE ',' END
            || '{"number":' || attempts || ',"token":"' || token || '","started_at":' || started_at
            || ',"finished_at":' || CAST(? AS BIGINT)
            || ',"outcome":"succeeded","trigger":"","error_type":"","note":"","details":{}}]'
    WHERE id = ? AND status = 'replaying' AND token = ?"""
GET = "SELECT * FROM holdfast_letter WHERE id = ?"
PAGE = """
    SELECT * FROM holdfast_letter WHERE domain = ? AND status = 'pending' ORDER BY created_at DESC, id DESC LIMIT 50"""
# As above PostgreSQL would now and then read all letters by their age, until it has found 50 of the domain.
POSTGRES_PAGE = """
    SELECT * FROM holdfast_letter WHERE (domain, status) >= ($1, 'pending') AND (domain, status) <= ($1, 'pending')
    ORDER BY domain DESC, status DESC, created_at DESC, id DESC LIMIT 50"""
FACETS = "SELECT status, domain, CAST(sum(n) AS BIGINT) FROM holdfast_letter_tally GROUP BY status, domain"
STATISTICS = """
    SELECT status, domain, failure_type, CAST(sum(n) AS BIGINT) FROM holdfast_letter_tally GROUP BY 1, 2, 3"""
COUNT = """
    SELECT CAST(sum(n) AS BIGINT) FROM holdfast_letter_tally WHERE status NOT IN ('resolved', 'rejected', 'archived')"""
FAILURE = """
    UPDATE holdfast_breaker SET
        version = version + 1, failure_count = failure_count + 1, last_failure_at = ?, updated_at = ?
    WHERE id = ? RETURNING *"""
CLOSES = "state = 'half_open' AND success_count + 1 >= {threshold}"
SUCCESS = """
    UPDATE holdfast_breaker SET
        version = version + 1, updated_at = ?,
        state = CASE WHEN {closes} THEN 'closed' ELSE state END,
        success_count = CASE WHEN {closes} THEN 0 ELSE success_count + 1 END,
        failure_count = CASE WHEN {closes} THEN 0 ELSE failure_count END,
        opened_at = CASE WHEN {closes} THEN NULL ELSE opened_at END,
        half_open_request_count = CASE WHEN {closes} THEN 0 ELSE half_open_request_count END,
        half_open_window_started_at = CASE WHEN {closes} THEN NULL ELSE half_open_window_started_at END,
        generation = CASE WHEN {closes} THEN generation + 1 ELSE generation END
    WHERE id = ? RETURNING *""".replace("{closes}", CLOSES.format(threshold=10**9))
SLOT = """
    UPDATE holdfast_breaker SET
        version = version + 1, half_open_request_count = half_open_request_count + 1, updated_at = ?,
        half_open_window_started_at = coalesce(half_open_window_started_at, ?)
    WHERE id = ? AND state = 'half_open' AND half_open_request_count < ? RETURNING state"""
Run = Callable[[str, Sequence[Any]], list[Any]]
Count = Callable[[str, Sequence[Any]], int]


def now() -> int:
    return time_ns() // 1000


class SqlFloor:
    """`prepared` is ours on the same database, which sees to it that there are letters to work on."""

    label = "floor"

    def __init__(self, setup: Setup, store: str) -> None:
        self.prepared = Ours(setup, store, "floor")
        self._letters = setup.letters
        self._serial = count()
        self._store = store
        if store.startswith("postgres"):
            opened, words = open_postgres(setup, store), ("$", "least", "FOR UPDATE SKIP LOCKED")
        else:
            opened, words = open_sqlite(setup, store), ("?", "min", "")
        self._run, self._change, self._named = opened
        self._mark, self._least, self._locked = words

    def _sql(self, text: str, token: str = "?") -> str:
        text = text.replace("{least}", self._least).replace("{locked}", self._locked).replace("{token}", token)
        numbers = count(1)
        return text if self._mark == "?" else re.sub(r"\?", lambda _: f"${next(numbers)}", text)

    def create(self, table: str = "holdfast_letter") -> Task:
        return Task(self._create(table), lambda number: [letter(10**9 + at) for at in range(number)])

    def _create(self, table: str = "holdfast_letter") -> Callable[[dict[str, Any]], Any]:
        change, sql, serial = self._change, self._sql(INSERT.format(table=table)), self._serial

        def create(fields: dict[str, Any]) -> tuple[Any, ...]:
            at = now()
            payload = {name: fields[name] for name in ("error_code", "error_message", "request_data")}
            row = (
                f"{at:014x}{next(serial):010x}", 1, at, fields["domain"], fields["failure_type"], "pending", at, at,
                at // HOUR, 0, 2, 0, 1, 0, fields["entity_type"], fields["entity_id"], json.dumps(fields["user_id"]),
                fields["metadata"]["source"], None, None, None, None, None, "", None, None, None, None, None, None,
                None, "", "", None, "", json.dumps(fields["metadata"]), "[]", json.dumps(payload),
            )  # fmt: skip
            change(sql, row)
            return row

        return create

    def get(self) -> Task:
        ids = [one.id for one in self.prepared.letters.find(domain=READ, limit=1000)]
        run, sql = self._run, self._sql(GET)
        return Task(lambda id: run(sql, (id,))[0], lambda number: (ids * (number // len(ids) + 1))[:number])

    def acquire(self) -> Task:
        run, sql, serial = self._run, self._sql(ACQUIRE), self._serial

        def acquire(id: str) -> Any:
            at = now()
            token = f"{at:014x}{next(serial):010x}"
            found = run(sql, (at, token, CAP, at, at, at, at, id, CAP, at))
            return found[0] if found else None

        return Task(acquire, self.prepared.supply.pending_ids)

    acquire_by_id = acquire

    def complete(self) -> Task:
        change, sql = self._change, self._sql(COMPLETE)

        def complete(op: Any) -> bool:
            at = now()
            return change(sql, (at, at, at, at, op.id, op.attempt_token)) == 1

        return Task(complete, self.prepared.supply.acquired, lambda done: done is True)

    complete_by_id = complete

    def claim(self) -> Task:
        run, sql, serial = self._run, self._sql(CLAIM, token="? || substr(id, 15)"), self._serial

        def claim(_: None) -> list[Any]:
            at = now()
            return run(sql, (at, f"{next(serial):014x}", CAP, at, at, at, at, CLAIMED, at, CAP))

        def prepare(number: int) -> list[None]:
            self.prepared.supply.give_back(CLAIMED)
            self.prepared.supply.ensure(CLAIMED, number * 100)
            return [None] * number

        return Task(claim, prepare, lambda claimed: len(claimed) == 100)

    def page(self) -> Task:
        """Rows that can be read by name, as the driver itself makes them."""
        return self._page(self._named)

    def _page(self, run: Run) -> Task:
        sql = POSTGRES_PAGE if self._store.startswith("postgres") else PAGE
        return Task(lambda _: run(sql, (READ,)), proof=lambda found: len(found) == 50)

    def facets(self) -> Task:
        run = self._run

        def facets(_: None) -> tuple[dict[str, int], dict[str, int]]:
            by_status: dict[str, int] = {}
            by_domain: dict[str, int] = {}
            for status, domain, number in run(FACETS, ()):
                by_status[status] = by_status.get(status, 0) + number
                by_domain[domain] = by_domain.get(domain, 0) + number
            return by_status, by_domain

        return Task(facets, self._folded, lambda found: sum(found[1].values()) >= self._letters)

    def statistics(self) -> Task:
        return Task(lambda _: self._run(STATISTICS, ()), self._folded, bool)

    def count(self) -> Task:
        return Task(lambda _: self._run(COUNT, ())[0][0], self._folded, lambda number: number > self._letters // 2)

    def _folded(self, number: int) -> list[None]:
        """The counters as they are after a fold, which ours makes now and then and the floor has for nothing."""
        if self._store.startswith("postgres"):
            self.prepared.store.tally(LETTER, ("status",))
            self._change("VACUUM holdfast_letter_tally", ())
        return [None] * number

    def failure(self) -> Task:
        run, sql = self._run, self._half_open(FAILURE)
        return Task(lambda _: run(sql, (now(), now(), SERVICE))[0])

    def success(self) -> Task:
        run, sql = self._run, self._half_open(SUCCESS)
        return Task(lambda _: run(sql, (now(), SERVICE))[0])

    def slot(self) -> Task:
        run, sql = self._run, self._half_open(SLOT)
        return Task(lambda _: run(sql, (now(), now(), SERVICE, 10**9))[0])

    def _half_open(self, text: str) -> str:
        self.prepared._half_open()
        return self._sql(text)

    def capture(self) -> Task:
        create, fields = self._create(), letter(7)
        return failing(hf.Guard("capture-floor", telemetry=hf.Hub()), lambda: create(fields))


class RawRows(SqlFloor):
    """The page as bare tuples, which nobody can read by name."""

    label = "raw"

    def page(self) -> Task:
        return self._page(self._run)


class BareTable:
    """The same insert into a table with a primary key and nothing else: no index, no counter, no trigger."""

    label = "bare"

    def __init__(self, setup: Setup, store: str) -> None:
        self._floor = SqlFloor(setup, store)
        with psycopg.connect(setup.url(store, "floor"), autocommit=True) as connection:
            connection.execute("CREATE TABLE IF NOT EXISTS bare_letter (LIKE holdfast_letter, PRIMARY KEY (id))")

    def create(self) -> Task:
        return self._floor.create("bare_letter")


def open_sqlite(setup: Setup, store: str) -> tuple[Run, Count, Run]:
    """How to run a statement for its rows, for their number, and for rows with names."""
    connection = sqlite3.connect(setup.path("floor"), isolation_level=None, cached_statements=512)
    connection.execute("PRAGMA journal_mode=WAL")
    connection.execute(f"PRAGMA synchronous={'NORMAL' if store.endswith('-nowait') else 'FULL'}")
    execute, cursor = connection.execute, connection.cursor()
    cursor.row_factory = sqlite3.Row
    return (
        lambda sql, values: execute(sql, values).fetchall(),
        lambda sql, values: execute(sql, values).rowcount,
        lambda sql, values: cursor.execute(sql, values).fetchall(),
    )


def open_postgres(setup: Setup, store: str) -> tuple[Run, Count, Run]:
    connection = psycopg.connect(setup.url(store, "floor"), autocommit=True, prepare_threshold=0)
    if store.endswith("-nowait"):
        connection.execute("SET synchronous_commit = off")
    run, change = by_libpq(connection)
    named = RawCursor(connection, row_factory=namedtuple_row).execute
    return run, change, lambda sql, values: named(sql, values).fetchall()


def by_libpq(connection: psycopg.Connection[Any]) -> tuple[Run, Count]:
    """Without a cursor, which takes a third of the time of a call. As with one, a signal ends the wait."""
    libpq, loader, prepared = connection.pgconn, Transformer(connection), dict[str, bytes]()
    number, poll = struct.Struct("!q").pack, select.poll()
    poll.register(connection.fileno(), select.POLLIN)

    def ask(sql: str, values: Sequence[Any]) -> Any:
        if sql not in prepared:
            prepared[sql] = f"floor_{len(prepared)}".encode()
            done(libpq.prepare(prepared[sql], sql.encode()))
        sent = [None if one is None else one.encode() if type(one) is str else number(one) for one in values]
        libpq.send_query_prepared(prepared[sql], sent, [Format.BINARY] * len(sent), Format.BINARY)
        libpq.flush()
        answer = None
        while True:
            poll.poll()
            libpq.consume_input()
            while not libpq.is_busy():
                found = libpq.get_result()
                if found is None:
                    return done(answer)
                answer = found

    def done(answer: Any) -> Any:
        if answer.status not in (ExecStatus.COMMAND_OK, ExecStatus.TUPLES_OK):
            raise psycopg.errors.error_from_result(answer)
        return answer

    def run(sql: str, values: Sequence[Any]) -> list[Any]:
        answer = ask(sql, values)
        loader.set_pgresult(answer)
        return loader.load_rows(0, answer.ntuples, tuple)

    return run, lambda sql, values: ask(sql, values).command_tuples or 0
