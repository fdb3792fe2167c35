"""The floors: an engine as one writes it by hand for one program, with sqlite3 or psycopg.

Four tables: workflows with a version that fences every step, stages with what they left, items that somebody owns or
that are due, and a log. A step writes all four in one transaction: nothing is lost and nothing is written twice,
whoever is killed. No graph, no splits, no signals, no limits, no wake-ups, one process, one connection, tasks called in
place.

`Floor` makes a commit for every step; the group floor makes one for the steps of up to 100 workflows.
"""

import json
import sqlite3
from collections.abc import Sequence
from itertools import count
from operator import itemgetter
from time import time_ns
from typing import Any

import psycopg
from psycopg import RawCursor

from benchmarks.outbox.setup import Watched
from benchmarks.workflows.rows import STEPS
from benchmarks.workflows.setup import Setup
from benchmarks.workflows.timing import timed

TOGETHER = 100
TABLES = (
    "CREATE TABLE wf (id text PRIMARY KEY, version int, status text, name text, input text, at bigint, ended bigint)",
    "CREATE INDEX wf_status ON wf (status, at)",
    "CREATE TABLE stage "
    "(id text PRIMARY KEY, wf text, ref text, status text, started bigint, ended bigint, left_ text)",
    "CREATE TABLE item (id text PRIMARY KEY, version int, due bigint, owner text, wf text, ref text, attempt int)",
    "CREATE INDEX item_due ON item (due) WHERE due IS NOT NULL",
    "CREATE TABLE log (id text PRIMARY KEY, at bigint, events text)",
)
Rows = list[tuple[Any, ...]]


def step(number: int) -> int:
    """The task."""
    return number + 1


class Case:
    """A workflow that is under way."""

    serial = count()

    def __init__(self, steps: int) -> None:
        self.id = f"{time_ns():x}-{next(self.serial)}"
        self.version, self.at, self.steps, self.value = 1, 0, steps, 0

    def started(self) -> tuple[Rows, Rows, Rows]:
        """Rows of the workflow, its item and the log."""
        now = time_ns() // 1000
        events = json.dumps([{"event": "workflow_started"}, {"event": "stage_started", "ref": "s0"}])
        return (
            [(self.id, 1, "RUNNING", "chain", "{}", now)],
            [(self.id, 1, "me", self.id, "s0", 1)],
            [(f"{self.id}.1", now, events)],
        )

    def stepped(self) -> tuple[Any, ...]:
        """Call the task, and give the values of `STEP`, or of `LAST`."""
        self.value = step(self.value)
        now = time_ns() // 1000
        events = json.dumps(
            [
                {"event": "task_ended", "ref": f"s{self.at}", "status": "SUCCEEDED", "attempt": 1},
                {"event": "stage_ended", "ref": f"s{self.at}", "status": "SUCCEEDED"},
                {"event": "stage_started", "ref": f"s{self.at + 1}"},
            ]
        )
        self.at += 1
        self.version += 1
        return (self.id, self.version, f"{self.id}.s{self.at}", f"s{self.at}", now, json.dumps({"result": self.value}),
                f"{self.id}.{self.version}", events)  # fmt: skip

    @property
    def is_last(self) -> bool:
        return self.at == self.steps - 1


class Floor:
    """A commit for each step."""

    label = "floor"

    def __init__(self, setup: Setup, store: str) -> None:
        self.setup = setup
        self.open(setup.url(store, "floor"))

    def open(self, url: str) -> None:
        raise NotImplementedError

    def begin(self, cases: Sequence[Case]) -> None:
        raise NotImplementedError

    def advance(self, cases: Sequence[Case]) -> None:
        """A step of each, in one transaction. All have as many left."""
        raise NotImplementedError

    def chain(self) -> Watched:
        def one() -> int:
            self._run(self.setup.chain)
            return self.setup.chain

        return timed(one)

    def latency(self) -> Watched:
        def one() -> int:
            self._run(STEPS)
            return 1

        return timed(one, repeat=10)

    def start(self) -> Watched:
        def one() -> int:
            self.begin([Case(STEPS)])
            return 1

        return timed(one, repeat=50)

    def _run(self, steps: int) -> None:
        case = Case(steps)
        self.begin([case])
        for _ in range(steps):
            self.advance([case])
        assert case.value == steps


class SqliteFloor(Floor):
    # Each with the places of its values in what a case gives.
    STEP = (
        ("UPDATE wf SET version = ?2 WHERE id = ?1 AND version = ?2 - 1", itemgetter(0, 1)),
        ("INSERT INTO stage VALUES (?1, ?2, ?3, 'SUCCEEDED', ?4, ?4, ?5)", itemgetter(2, 0, 3, 4, 5)),
        ("UPDATE item SET version = ?2, ref = ?3, attempt = 1 WHERE id = ?1 AND version = ?2 - 1", itemgetter(0, 1, 3)),
        ("INSERT INTO log VALUES (?, ?, ?)", itemgetter(6, 4, 7)),
    )
    ENDED = "UPDATE wf SET version = ?2, status = 'SUCCEEDED', ended = ?3 WHERE id = ?1 AND version = ?2 - 1"
    LAST = (
        (ENDED, itemgetter(0, 1, 4)),
        STEP[1],
        ("DELETE FROM item WHERE id = ?1 AND version = ?2 - 1", itemgetter(0, 1)),
        STEP[3],
    )
    BEGIN = (
        "INSERT INTO wf VALUES (?1, ?2, ?3, ?4, ?5, ?6, NULL)",
        "INSERT INTO item VALUES (?1, ?2, NULL, ?3, ?4, ?5, ?6)",
        "INSERT INTO log VALUES (?1, ?2, ?3)",
    )

    def open(self, url: str) -> None:
        self._connection = sqlite3.connect(url.removeprefix("sqlite:///"), isolation_level=None, timeout=60)
        self._execute = self._connection.execute
        self._execute("PRAGMA journal_mode=WAL")
        self._execute("PRAGMA synchronous=FULL")
        for text in TABLES:
            self._execute(text.replace(" TABLE", " TABLE IF NOT EXISTS").replace(" INDEX", " INDEX IF NOT EXISTS"))

    def begin(self, cases: Sequence[Case]) -> None:
        self._execute("BEGIN IMMEDIATE")
        made = [case.started() for case in cases]
        for at, text in enumerate(self.BEGIN):
            self._connection.executemany(text, [row for one in made for row in one[at]])
        self._execute("COMMIT")

    def advance(self, cases: Sequence[Case]) -> None:
        statements = self.LAST if cases[0].is_last else self.STEP
        rows = [case.stepped() for case in cases]
        self._execute("BEGIN IMMEDIATE")
        if len(rows) == 1:
            for text, values in statements:
                assert self._execute(text, values(rows[0])).rowcount == 1
        else:
            for text, values in statements:
                assert self._connection.executemany(text, map(values, rows)).rowcount == len(rows)
        self._execute("COMMIT")


class PostgresFloor(Floor):
    GIVEN = """
        WITH given AS (SELECT * FROM unnest($1::text[], $2::int[], $3::text[], $4::text[], $5::bigint[], $6::text[],
            $7::text[], $8::text[]) AS g (id, version, stage, ref, at, left_, log, events)), """
    STEP = (
        GIVEN
        + """
        w AS (UPDATE wf SET version = g.version FROM given g WHERE wf.id = g.id AND wf.version = g.version - 1
            RETURNING 1),
        i AS (UPDATE item SET version = g.version, ref = g.ref, attempt = 1 FROM given g
            WHERE item.id = g.id AND item.version = g.version - 1),
        s AS (INSERT INTO stage SELECT stage, id, ref, 'SUCCEEDED', at, at, left_ FROM given),
        l AS (INSERT INTO log SELECT log, at, events FROM given)
        SELECT count(*) FROM w"""
    )
    LAST = (
        GIVEN
        + """
        w AS (UPDATE wf SET version = g.version, status = 'SUCCEEDED', ended = g.at FROM given g
            WHERE wf.id = g.id AND wf.version = g.version - 1 RETURNING 1),
        i AS (DELETE FROM item USING given g WHERE item.id = g.id AND item.version = g.version - 1),
        s AS (INSERT INTO stage SELECT stage, id, ref, 'SUCCEEDED', at, at, left_ FROM given),
        l AS (INSERT INTO log SELECT log, at, events FROM given)
        SELECT count(*) FROM w"""
    )
    BEGIN = """
        WITH w AS (INSERT INTO wf SELECT *, NULL FROM unnest(
                $1::text[], $2::int[], $3::text[], $4::text[], $5::text[], $6::bigint[])),
            i AS (INSERT INTO item SELECT id, v, NULL::bigint, o, wf, r, a FROM unnest(
                $7::text[], $8::int[], $9::text[], $10::text[], $11::text[], $12::int[]) AS g (id, v, o, wf, r, a))
        INSERT INTO log SELECT * FROM unnest($13::text[], $14::bigint[], $15::text[])"""

    def open(self, url: str) -> None:
        connection = psycopg.connect(url, autocommit=True, prepare_threshold=0)
        self._execute = RawCursor(connection).execute
        if not self._execute("SELECT 1 FROM pg_tables WHERE tablename = 'wf'").fetchall():
            for text in TABLES:
                self._execute(text)

    def begin(self, cases: Sequence[Case]) -> None:
        made = [case.started() for case in cases]
        tables = [[row for one in made for row in one[at]] for at in range(3)]
        columns = [list(column) for rows in tables for column in zip(*rows, strict=True)]
        self._execute(self.BEGIN, columns)

    def advance(self, cases: Sequence[Case]) -> None:
        text = self.LAST if cases[0].is_last else self.STEP
        rows = [case.stepped() for case in cases]
        ((number,),) = self._execute(text, [list(column) for column in zip(*rows, strict=True)]).fetchall()
        assert number == len(cases)


FLOORS: dict[str, type[Floor]] = {"sqlite": SqliteFloor, "postgres": PostgresFloor}


class GroupFloor:
    """A commit for the steps of up to 100 workflows."""

    label = "group floor"

    def __init__(self, setup: Setup, store: str) -> None:
        self.setup = setup
        self.floor = FLOORS[store](setup, store)

    def crowd(self) -> Watched:
        def one() -> int:
            cases = [Case(STEPS) for _ in range(self.setup.crowd)]
            groups = [cases[at : at + TOGETHER] for at in range(0, len(cases), TOGETHER)]
            for group in groups:
                self.floor.begin(group)
            for _ in range(STEPS):
                for group in groups:
                    self.floor.advance(group)
            assert all(case.value == STEPS for case in cases)
            return len(cases) * STEPS

        return timed(one)

    def start_many(self) -> Watched:
        def one() -> int:
            self.floor.begin([Case(STEPS) for _ in range(self.setup.crowd)])
            return self.setup.crowd

        return timed(one)
