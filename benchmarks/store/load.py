"""`python -m benchmarks.store.load STORE SETUP`: fill the places of a store before it is measured.

Small and floor hold the letters; grown holds the done letters as well: resolved and archived, and older.
"""

import shutil
import sqlite3
import sys
from collections.abc import Callable, Iterator
from itertools import islice
from typing import Any

import psycopg

from benchmarks.store.ours import fill
from benchmarks.store.setup import Setup, letter
from holdfast.backends.open import open_store
from holdfast.kinds import KINDS
from holdfast.letters.draft import draft
from holdfast.letters.repository import FailedOperationRepository
from holdfast.machine.letter_record import LETTER, LetterRecord
from holdfast.store.port import Insert

MINUTE, HOUR = 60_000_000, 3_600_000_000
HISTORY = (
    '[{"number":1,"token":"00000000000000ffffffffff","started_at":1,"finished_at":2,"outcome":"succeeded",'
    '"trigger":"scheduled_batch","error_type":"","note":"","details":{}}]'
)
BY = "auto_replay_recovery"
SOME = 200


def done_columns(hex14: str, serial: str, span: int) -> str:
    """The columns of a done letter made from the letter `l`, `n` spans older."""
    made = f"(l.created_at - n * {span})"
    archived = "n % 2 = 0"
    changed = {
        "id": f"{hex14.format(made)} || {serial} || substr(l.id, 8, 7)",  # letters of one commit have one time
        "version": "3",
        "due_at": "NULL",
        "status": f"CASE WHEN {archived} THEN 'archived' ELSE 'resolved' END",
        "created_at": made,
        "updated_at": f"{made} + {MINUTE}",
        "hour": f"{made} / {HOUR}",
        "retry_count": "1",
        "attempts": "1",
        "last_retry_at": f"{made} + {MINUTE}",
        "resolved_at": f"{made} + {MINUTE}",
        "archived_at": f"CASE WHEN {archived} THEN {made} + {HOUR} END",
        "aged_at": f"{made} + {MINUTE}",
        "resolution_type": f"'{BY}'",
        "history": f"'{HISTORY}'",
    }
    return ", ".join(changed.get(name, f"l.{name}") for name in LetterRecord._fields)


def counters() -> list[str]:
    steps = []
    for table, fields in (("tally", LETTER.tally), ("arrivals", LETTER.arrivals)):
        names = ", ".join(fields)
        steps += [
            f"DELETE FROM holdfast_letter_{table}",
            f"INSERT INTO holdfast_letter_{table} ({names}, n) "
            f"SELECT {names}, count(*) FROM holdfast_letter GROUP BY {names}",
        ]
    return steps


def load_sqlite(setup: Setup) -> None:
    made = open_store(setup.url("sqlite", "small"), kinds=KINDS, durable=False)
    make_small(made, setup)
    with sqlite3.connect(setup.path("small")) as connection:
        connection.execute("REINDEX holdfast_letter")
    with connection:
        connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    connection.close()
    for place in ("floor", "grown"):
        shutil.copy(setup.path("small"), setup.path(place))
    grown = sqlite3.connect(setup.path("grown"), isolation_level=None)
    grown.execute("PRAGMA synchronous=OFF")
    grown.execute("PRAGMA cache_size=-500000")
    grown.execute("ATTACH ? AS small", (setup.path("small"),))
    about = "FROM sqlite_master WHERE tbl_name = 'holdfast_letter' AND type IN ('index', 'trigger') AND sql IS NOT NULL"
    parts = grown.execute(f"SELECT type, name, sql {about}").fetchall()
    span = grown.execute("SELECT max(created_at) - min(created_at) + 1000 FROM holdfast_letter").fetchone()[0]
    columns = done_columns("printf('%014x', {})", "printf('%03x', n)", span)
    grown.execute("BEGIN")
    for kind, name, _ in parts:
        grown.execute(f"DROP {kind} {name}")
    grown.execute(
        f"WITH RECURSIVE k(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM k WHERE n * {setup.letters} < {setup.done}) "
        f"INSERT INTO holdfast_letter SELECT {columns} FROM k, small.holdfast_letter AS l LIMIT {setup.done}"
    )
    for _, _, sql in sorted(parts, key=lambda part: part[0]):
        grown.execute(sql)
    for step in counters():
        grown.execute(step)
    grown.execute("COMMIT")
    grown.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    grown.close()


def make_small(store: Any, setup: Setup) -> None:
    if hasattr(store, "create_tables"):
        store.create_tables()
    fill(FailedOperationRepository(store), setup.letters)
    # Of every kind of letter some, so that the grown places have more letters, and not more kinds to count.
    store.commit([Insert(LETTER, record) for record in done_records(SOME, store.now())])
    store.close()


def load_postgres(setup: Setup) -> None:
    def sql(place: str | None, *statements: str) -> Any:
        url = setup.postgres if place is None else setup.url("postgres", place)
        with psycopg.connect(url, autocommit=True) as connection:
            for statement in statements:
                answer = connection.execute(statement)
            return answer.fetchall() if answer.description else None

    sql(None, "CREATE DATABASE bench_small")
    make_small(open_store(setup.url("postgres", "small"), kinds=KINDS, durable=False), setup)
    sql("small", "REINDEX TABLE holdfast_letter", "VACUUM ANALYZE")
    for place in ("floor", "grown"):
        sql(None, f"CREATE DATABASE bench_{place} TEMPLATE bench_small STRATEGY file_copy")
    indexes = sql(
        "grown",
        "SELECT indexname, indexdef FROM pg_indexes WHERE tablename = 'holdfast_letter' AND indexname NOT LIKE '%pkey'",
    )
    ((span,),) = sql("grown", "SELECT max(created_at) - min(created_at) + 1000 FROM holdfast_letter")
    columns = done_columns("lpad(to_hex({}), 14, '0')", "lpad(to_hex(n), 3, '0')", span)
    copies = -(-setup.done // setup.letters)
    sql(
        "grown",
        "ALTER TABLE holdfast_letter DISABLE TRIGGER USER",
        *(f"DROP INDEX {name}" for name, _ in indexes),
        f"INSERT INTO holdfast_letter SELECT {columns} "
        f"FROM generate_series(1, {copies}) AS n, holdfast_letter AS l LIMIT {setup.done}",
        "SET maintenance_work_mem = '512MB'",
        *(definition for _, definition in indexes),
        *counters(),
        "ALTER TABLE holdfast_letter ENABLE TRIGGER USER",
        "VACUUM ANALYZE",
        "CHECKPOINT",
    )


def load_redis(setup: Setup) -> None:
    for place in ("small", "grown"):
        make_small(open_store(setup.url("redis", place), kinds=KINDS), setup)
    grown = open_store(setup.url("redis", "grown"), kinds=KINDS)
    records = done_records(setup.redis_done, grown.now())
    while some := [Insert(LETTER, record) for record in islice(records, 500)]:
        grown.commit(some)
    grown.close()


def done_records(number: int, now: int) -> Iterator[LetterRecord]:
    for at in range(number):
        made = now - HOUR - at * 1000
        archived = at // 20 % 2 == 0
        yield draft(made, **letter(at))._replace(
            due_at=None, status="archived" if archived else "resolved", retry_count=1, attempts=1,
            last_retry_at=made + MINUTE, resolved_at=made + MINUTE, aged_at=made + MINUTE,
            archived_at=made + HOUR if archived else None, resolution_type=BY, history=HISTORY,
        )  # fmt: skip


LOADERS: dict[str, Callable[[Setup], None]] = {"sqlite": load_sqlite, "postgres": load_postgres, "redis": load_redis}

if __name__ == "__main__":
    LOADERS[sys.argv[1]](Setup.from_json(sys.argv[2]))
