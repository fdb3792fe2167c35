"""Many append at once: the chain never forks, whoever they are."""

from __future__ import annotations

import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
import sqlalchemy as sa

from tests.audit.appending_process import append
from tests.audit.trail import event, rows_of, sink_on
from tests.databases import DATABASES, Database

ROOT = Path(__file__).parents[2]
STRIDE = 100_000
SERVERS = [name for name in DATABASES if name != "sqlite"]


def check(database: Database, number: int) -> None:
    rows = rows_of(database)
    assert len(rows) == number
    seqs: dict[str, list[int]] = {}
    for row in rows:
        seqs.setdefault(row.stream, []).append(row.seq)
    assert all(those == list(range(1, len(those) + 1)) for those in seqs.values())
    results = sink_on(database, streams=4).verify_all()
    assert all(results)
    assert sum(one.events for one in results) == number


@pytest.mark.torture
def test_threads_that_append_at_once_never_fork_a_chain(database: Database, size: int) -> None:
    each = 40 * size
    with ThreadPoolExecutor(6) as pool:
        for _ in pool.map(lambda n: append(database.name, database.url, n * STRIDE, each, 9), range(6)):
            pass
    check(database, 6 * each)


@pytest.mark.torture
def test_processes_that_append_at_once_never_fork_a_chain(database: Database, size: int) -> None:
    each = 60 * size
    command = [sys.executable, "-m", "tests.audit.appending_process", database.name, database.url]
    running = [subprocess.Popen([*command, str(n * STRIDE), str(each), "9"], cwd=ROOT) for n in range(3)]
    assert [one.wait() for one in running] == [0, 0, 0]
    check(database, 3 * each)


def test_the_first_events_of_new_streams_are_appended_at_once(database: Database) -> None:
    """Nobody made the heads; those who come together make them together."""
    sink = sink_on(database, streams="subject")

    def work(n: int) -> None:
        events = [event(n * 100 + at, f"subject-{at}") for at in range(20)]
        sink.run(lambda session: sink.append_in(session, events))

    with ThreadPoolExecutor(4) as pool:
        list(pool.map(work, range(12)))
    results = sink.verify_all()
    assert [one.events for one in results] == [12] * 20
    assert all(results)


@pytest.mark.parametrize("database", SERVERS, indirect=True)
def test_a_stream_that_somebody_holds_does_not_hold_up_another(database: Database) -> None:
    """A SQLite file has one writer at a time."""
    sink = sink_on(database, streams="subject")
    sink.append(event(1, "ann"))
    sink.append(event(2, "bob"))
    with database.sessions() as session, session.begin():
        sink.append_in(session, [event(3, "ann")])
        sink.append(event(4, "bob"))
    assert [one.events for one in sink.verify_all()] == [2, 2]


def test_a_chain_is_verified_while_others_append(database: Database) -> None:
    sink = sink_on(database, streams=4)
    with ThreadPoolExecutor(2) as pool:
        busy = [pool.submit(append, database.name, database.url, n * STRIDE, 40, 9) for n in range(2)]
        while not all(one.done() for one in busy):
            assert all(sink.verify_all())
        for one in busy:
            one.result()
    check(database, 80)


@pytest.mark.parametrize("database", ["sqlite"], indirect=True)
def test_the_index_finds_the_rows_of_a_stream(database: Database) -> None:
    """Verification reads a page by its place; nothing sorts the trail. A server's plans of small tables say nothing."""
    events = database.tables.audit_events
    page = sa.select(events).where(events.c.stream == "07", events.c.seq >= 5).order_by(events.c.seq).limit(10)
    text = str(page.compile(database.engine, compile_kwargs={"literal_binds": True}))
    with database.engine.connect() as connection:
        plan = " ".join(row[3] for row in connection.execute(sa.text("EXPLAIN QUERY PLAN " + text)))
    assert f"USING INDEX {events.name}_stream (stream=? AND seq>?)" in plan
    assert "TEMP B-TREE" not in plan
