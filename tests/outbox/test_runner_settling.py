"""How results are written: together where that works, and never so that one entry strands another."""

from __future__ import annotations

import asyncio
import logging
import sqlite3
import threading
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa
from sqlalchemy.ext.asyncio import async_sessionmaker, create_async_engine
from sqlalchemy.orm import sessionmaker
from sqlalchemy.pool import StaticPool

from holdfast.audit.event import AuditEvent
from holdfast.outbox.events import RunnerTroubled
from holdfast.outbox.operation import CallContext
from holdfast.outbox.outbox import Outbox
from tests.databases import METADATA, Database, fresh_database, open_database
from tests.databases import database as database
from tests.outbox.runner_kit import Desk, until


async def test_a_batch_costs_two_transactions(database: Database) -> None:
    desk, commits, statements = Desk(database.sessions), [], []
    desk.put_many(50)
    sa.event.listen(database.engine, "commit", lambda connection: commits.append(1))
    sa.event.listen(database.engine, "before_cursor_execute", lambda *args: statements.append(args[2]))
    assert await desk.runner().run_once() == 50
    assert len(commits) == 2
    assert len(statements) <= 10


async def test_failures_of_a_batch_are_written_together(database: Database) -> None:
    desk, statements = Desk(database.sessions), []

    def answer(context: CallContext) -> None:
        raise OSError

    desk.mail.answers = answer
    desk.put_many(50)
    sa.event.listen(database.engine, "before_cursor_execute", lambda *args: statements.append(args[2]))
    assert await desk.runner().run_once() == 50
    assert len(statements) <= 10


async def test_a_trail_that_refuses_one_event_leaves_only_that_entry_claimed(database: Database) -> None:
    desk = Desk(database.sessions)
    ids = desk.put_many(5)
    desk.trail.refuses = lambda event: event.entry_id == ids[2]
    assert await desk.runner().run_once() == 5
    assert desk.statuses(ids) == ["succeeded"] * 2 + ["in_flight"] + ["succeeded"] * 2
    # What was in the trail before the refusal is not in it twice.
    assert sorted(event.entry_id for event in desk.trail.events if event.entry_id) == sorted({*ids} - {ids[2]})
    troubles = [event for event in desk.events if isinstance(event, RunnerTroubled)]
    assert [(event.part, event.entry_id) for event in troubles] == [("settle", str(ids[2]))]
    desk.trail.refuses = lambda event: False
    desk.clock.advance(300)
    assert await desk.runner().run_once() == 1
    assert desk.get(ids[2]).status == "succeeded"


async def test_a_trail_that_is_away_leaves_everything_claimed_and_nothing_raised(database: Database) -> None:
    desk = Desk(database.sessions)
    ids = desk.put_many(3)
    desk.trail.refuses = lambda event: True
    assert await desk.runner().run_once() == 3
    assert desk.statuses(ids) == ["in_flight"] * 3
    assert desk.pager.abandoned == []


async def test_completed_stands_in_the_trail_only_with_a_row_that_succeeded(database: Database) -> None:
    desk = Desk(database.sessions)
    id = desk.erase()
    desk.trail.refuses = lambda event: str(event.event_type) == "erasure_completed"
    await desk.runner().run_once()
    assert desk.get(id).status == "in_flight"
    assert "erasure_completed" not in desk.trail.types


class Joining:
    """A sink that writes into the transaction of the settle."""

    def __init__(self, table: sa.Table) -> None:
        self.table = table
        self.fails = False

    def append(self, event: AuditEvent) -> None:
        raise AssertionError("it can join the transaction")

    def append_in(self, session: Any, events: Any) -> None:
        session.execute(
            self.table.insert(),
            [event.model_dump(exclude={"payload"}) | {"payload": event.payload} for event in events],
        )
        if self.fails:
            raise ConnectionError

    def read(self, subject_ref: str) -> Any:
        return ()


async def test_a_sink_that_can_join_keeps_events_and_rows_together(database: Database) -> None:
    desk, sink = Desk(database.sessions), Joining(database.tables.audit_events)
    ids = desk.put_many(3)
    sink.fails = True
    await desk.runner(audit=sink).run_once()
    with database.engine.connect() as connection:
        assert connection.execute(sink.table.select()).all() == []
    assert desk.statuses(ids) == ["in_flight"] * 3
    sink.fails = False
    desk.clock.advance(300)
    await desk.runner(audit=sink).run_once()
    with database.engine.connect() as connection:
        assert {row.entry_id for row in connection.execute(sink.table.select())} == set(ids)


async def test_a_hook_that_fails_is_logged_and_goes_no_further(
    database: Database, caplog: pytest.LogCaptureFixture
) -> None:
    class Broken:
        def on_abandoned(self, signal: Any) -> None:
            raise SystemExit("pager is away")

    desk = Desk(database.sessions)
    desk.mail.answers = lambda context: 7
    ids = desk.put_many(2)
    with caplog.at_level(logging.ERROR, "holdfast.outbox"):
        assert await desk.runner(on_abandoned=Broken()).run_once() == 2
    assert desk.statuses(ids) == ["abandoned"] * 2
    assert [record.levelname for record in caplog.records].count("ERROR") == 2
    assert "pager is away" not in caplog.text


async def test_a_log_line_about_an_entry_holds_no_secret_and_no_second_line(
    database: Database, caplog: pytest.LogCaptureFixture
) -> None:
    desk = Desk(database.sessions)
    id = desk.put_one("https://ann:hunter2@mail.example/\nWARNING forged")  # nobody is registered under this name
    with caplog.at_level(logging.WARNING, "holdfast.outbox"):
        await desk.runner(max_attempts=1).run_once()
    assert desk.statuses([id]) == ["abandoned"]
    (line,) = [record.getMessage() for record in caplog.records if "abandoned" in record.getMessage()]
    assert "hunter2" not in line
    assert "\n" not in line
    assert "mail.example" in line


async def test_a_hook_is_called_when_the_abandonment_is_on_disk(database: Database) -> None:
    desk, seen = Desk(database.sessions), []

    class Looking:
        def on_abandoned(self, signal: Any) -> None:
            seen.append((str(desk.get(signal.entry_id).status), len(desk.trail.events)))

    desk.mail.answers = lambda context: 7
    desk.put_one()
    await desk.runner(on_abandoned=Looking()).run_once()
    assert seen == [("abandoned", 1)]


async def test_a_slow_hook_holds_up_no_settle(database: Database) -> None:
    desk, let_go, begun = Desk(database.sessions), threading.Event(), threading.Event()

    class Slow:
        def on_abandoned(self, signal: Any) -> None:
            begun.set()
            assert let_go.wait(60)

    bad, other = desk.put_many(2)
    gate = asyncio.Event()

    async def wait(context: CallContext) -> None:
        await gate.wait()

    desk.mail.answers = lambda context: 7 if context.entry_id == bad else wait(context)
    run = asyncio.create_task(desk.runner(on_abandoned=Slow()).run_once())
    await until(begun.is_set)
    gate.set()
    await until(lambda: desk.get(other).status == "succeeded")
    let_go.set()
    assert await run == 2


async def test_the_database_is_asked_off_the_event_loop(tmp_path: Path) -> None:
    with fresh_database("sqlite", tmp_path) as database:
        desk, threads = Desk(database.sessions), set()
        desk.put_many(3)
        sa.event.listen(database.engine, "before_cursor_execute", lambda *args: threads.add(threading.current_thread()))
        await desk.runner().run_once()
        assert threading.main_thread() not in threads


async def test_a_pool_of_one_connection_is_enough(database: Database) -> None:
    engine = open_database(database.name, database.url, pool_size=1, max_overflow=0, pool_timeout=5)
    desk, sink = Desk(engine.sessions), Joining(database.tables.audit_events)
    ids = desk.put_many(10)
    assert await desk.runner(audit=sink, batch_size=5).run_once() == 5
    assert await desk.runner(audit=sink, batch_size=5).run_once() == 5
    assert desk.statuses(ids) == ["succeeded"] * 10
    engine.engine.dispose()


async def test_a_database_in_memory_is_enough() -> None:
    engine = sa.create_engine("sqlite://", poolclass=StaticPool, connect_args={"check_same_thread": False})
    METADATA.create_all(engine)
    desk, sink = Desk(sessionmaker(engine)), Joining(METADATA.tables["holdfast_audit_events"])
    desk.mail.answers = lambda context: 7 if context.attempt == 1 else None
    ids = desk.put_many(3)
    assert await desk.runner(audit=sink).run_once() == 3
    assert desk.statuses(ids) == ["abandoned"] * 3
    assert len(desk.pager.abandoned) == 3
    engine.dispose()


async def test_async_sessions_are_used_natively(tmp_path: Path) -> None:
    with fresh_database("sqlite", tmp_path) as database:
        desk = Desk(database.sessions)
        engine = create_async_engine(f"sqlite+aiosqlite:///{database.engine.url.database}")
        sync = desk.outbox
        desk.outbox = Outbox(
            async_sessionmaker(engine), database.tables.outbox, operations=desk.operations, clock=desk.clock
        )
        entries = [desk.entry() for _ in range(4)]
        async with async_sessionmaker(engine)() as session, session.begin():
            await desk.outbox.aenqueue(session, entries)
        assert await desk.runner().run_once() == 4
        desk.outbox = sync
        assert desk.statuses(entry.entry_id for entry in entries) == ["succeeded"] * 4
        await engine.dispose()


def test_a_runner_works_in_one_loop_after_the_other(tmp_path: Path) -> None:
    with fresh_database("sqlite", tmp_path) as database:
        desk = Desk(database.sessions)
        runner = desk.runner(batch_size=1)
        ids = desk.put_many(2)
        for _ in ids:
            assert asyncio.run(runner.run_once()) == 1
        assert desk.statuses(ids) == ["succeeded"] * 2


async def test_two_runners_at_once_call_every_entry_once(database: Database) -> None:
    desk = Desk(database.sessions)
    ids = desk.put_many(120)
    one, two = desk.runner(batch_size=10), desk.runner(batch_size=10)

    async def drain(runner: Any) -> int:
        number = 0
        while done := await runner.run_once():
            number += done
        return number

    assert sum(await asyncio.gather(drain(one), drain(two))) == 120
    assert sorted(desk.mail.called) == sorted(ids)
    assert len(desk.trail.events) == 120


def test_sqlite_is_new_enough() -> None:
    assert sqlite3.sqlite_version_info >= (3, 35)
