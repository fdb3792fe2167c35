"""The worker: woken by commits, looking by itself where nobody wakes it, stopped without losing a call."""

from __future__ import annotations

import asyncio
import logging
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa
from sqlalchemy.orm import sessionmaker
from sqlalchemy.pool import NullPool

from holdfast.backends.sql.store import SqlStore
from holdfast.errors import PolicyError
from holdfast.outbox.operation import CallContext
from holdfast.outbox.wake import topic_of
from holdfast.outbox.worker import OutboxWorker, OutboxWorkerPolicy
from tests.databases import Database, fresh_database
from tests.outbox.entries import make_entry
from tests.outbox.runner_kit import Desk
from tests.outbox.runner_kit import until as auntil
from tests.stores import KINDS

ROOT = Path(__file__).parents[2]
NEVER = OutboxWorkerPolicy(poll_s=3600, idle_s=3600, chores_s=3600)
OFTEN = OutboxWorkerPolicy(poll_s=0.005, idle_s=0.01, chores_s=3600)
PATIENCE = 60.0


def until(condition: Callable[[], Any]) -> None:
    """Wait for other threads."""
    pause, tries = threading.Event(), 0
    while not condition():
        tries += 1
        assert tries < PATIENCE / 0.002, "it never came to that"
        pause.wait(0.002)


class Crew:
    """A desk whose runner has a worker."""

    def __init__(self, sessions: Any, policy: OutboxWorkerPolicy = NEVER, **options: Any) -> None:
        self.desk = Desk(sessions)
        runner_options = options.pop("runner", {})
        self.worker = OutboxWorker(self.desk.runner(**runner_options), policy=policy, **options)

    def start(self) -> Crew:
        """Begin, and wait until the worker waits for something to do."""
        self.worker.start()
        until(lambda: self.worker._nudge is not None)
        return self


@pytest.fixture
def crew(database: Database) -> Iterator[Crew]:
    crew = Crew(database.sessions)
    yield crew
    assert crew.worker.stop(PATIENCE)


def test_a_commit_in_this_process_wakes_it(crew: Crew) -> None:
    crew.start()
    for _ in range(3):
        id = crew.desk.put_one()
        until(lambda id=id: crew.desk.get(id).status == "succeeded")


def test_an_idle_worker_claims_in_its_own_thread_and_never_on_a_loop_of_the_programs(database: Database) -> None:
    """A claim in another thread would only keep it waiting; a loop of the program's has others to serve."""
    crew, claimed_in = Crew(database.sessions), list[str]()

    def note(*args: Any) -> None:
        if "fresh_at" in args[2]:
            claimed_in.append(threading.current_thread().name)

    sa.event.listen(database.engine, "after_cursor_execute", note)
    crew.start()
    id = crew.desk.put_one()
    until(lambda: crew.desk.get(id).status == "succeeded")
    assert crew.worker.stop(PATIENCE)
    assert set(claimed_in) == {"holdfast-outbox"}
    claimed_in.clear()

    async def on_a_loop() -> None:
        task = asyncio.create_task(crew.worker.arun())
        await auntil(lambda: bool(claimed_in))
        task.cancel()
        await asyncio.wait([task])

    crew.worker._stopping.clear()
    asyncio.run(on_a_loop())
    assert threading.current_thread().name not in claimed_in


def test_a_rollback_wakes_nobody_and_a_savepoint_waits_for_the_commit(crew: Crew) -> None:
    woken: list[int] = []
    remove = crew.desk.outbox.signals.add(lambda: woken.append(1))
    sessions = crew.desk.sessions
    with sessions() as session:
        crew.desk.outbox.enqueue(session, [make_entry()])
        session.rollback()
    assert woken == []
    with sessions.begin() as session:
        with session.begin_nested():
            crew.desk.outbox.enqueue(session, [make_entry()])
        assert woken == []
    assert woken == [1]
    remove()


def test_a_resumed_queue_and_a_requeued_entry_wake_it(crew: Crew) -> None:
    desk = crew.desk
    desk.outbox.audit_sink = desk.trail
    desk.outbox.pause()
    crew.start()
    id = desk.put_one()
    desk.outbox.resume()
    until(lambda: desk.get(id).status == "succeeded")
    desk.mail.answers = lambda context: 7
    bad = desk.put_one()
    until(lambda: desk.get(bad).status == "abandoned")
    desk.mail.answers = lambda context: None
    desk.outbox.requeue([bad])
    until(lambda: desk.get(bad).status == "succeeded")


def test_what_was_there_before_it_began_is_done_batch_after_batch(database: Database) -> None:
    crew = Crew(database.sessions, runner={"batch_size": 4})
    ids = crew.desk.put_many(23)
    crew.start()
    until(lambda: crew.desk.outbox.status_counts()["succeeded"] == 23)
    assert crew.worker.stop(PATIENCE)
    assert sorted(crew.desk.mail.called) == sorted(ids)


def test_of_what_nobody_tells_it_learns_by_looking(database: Database) -> None:
    crew = Crew(database.sessions, OFTEN).start()
    entry = crew.desk.entry()
    other = sa.create_engine(database.url)  # somebody who writes rows past the outbox: nothing is told
    row = {
        "entry_id": entry.entry_id, "subject_id": "ada", "resolver": "mail", "ref_kind": "mail", "ref_value": "1",
        "ref_extra": {}, "operation": "send", "enqueued_at": crew.desk.clock.wall(),
    }  # fmt: skip
    with other.begin() as connection:
        connection.execute(database.tables.outbox.insert(), row)
    other.dispose()
    until(lambda: crew.desk.get(entry.entry_id).status == "succeeded")
    assert crew.worker.stop(PATIENCE)


ENQUEUE = """
import sys
from sqlalchemy.orm import sessionmaker
from tests.databases import open_database
from tests.outbox.entries import make_entry, open_outbox
database = open_database("postgres", sys.argv[1])
outbox = open_outbox(database)
with database.sessions.begin() as session:
    outbox.put(session, "ping", target="mail", queue="default")
"""


def test_on_postgresql_a_commit_in_another_process_wakes_it(tmp_path: Path) -> None:
    with fresh_database("postgres", tmp_path) as database:
        store = SqlStore(database.url.replace("+psycopg", ""), kinds=KINDS)
        topic, told = topic_of(database.tables.outbox.name), threading.Event()

        def listen(wake: Callable[[], object]) -> Any:
            def both() -> None:
                told.set()
                wake()

            return store.subscribe(topic, both)

        crew = Crew(database.sessions, listen=listen).start()
        until(lambda: _listens(database))
        subprocess.run([sys.executable, "-c", ENQUEUE, database.url], cwd=ROOT, check=True)
        assert told.wait(PATIENCE)
        # The operation is one that this runner does not know: it says so, and that it looked.
        until(lambda: crew.desk.outbox.status_counts()["failed"] == 1)
        assert crew.worker.stop(PATIENCE)
        store.close()


def _listens(database: Database) -> bool:
    busy = "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND query LIKE 'LISTEN%'"
    with database.engine.connect() as connection:
        return bool(connection.execute(sa.text(busy)).scalar())


def test_without_wake_ups_from_others_it_works_all_the_same(
    database: Database, caplog: pytest.LogCaptureFixture
) -> None:
    def listen(wake: Callable[[], object]) -> Any:
        raise ConnectionError("no LISTEN behind this pooler")

    crew = Crew(database.sessions, listen=listen)
    with caplog.at_level(logging.WARNING, "holdfast.outbox"):
        crew.start()
        id = crew.desk.put_one()
        until(lambda: crew.desk.get(id).status == "succeeded")
    assert crew.worker.stop(PATIENCE)
    assert "no wake-ups from other processes" in caplog.text


async def test_while_there_is_nothing_it_looks_ever_more_rarely(tmp_path: Path) -> None:
    with fresh_database("sqlite", tmp_path) as database:
        waits: list[float] = []
        policy = OutboxWorkerPolicy(poll_s=0.02, idle_s=0.05, chores_s=3600)
        crew = Crew(database.sessions, policy)
        loop = asyncio.get_running_loop()
        real = loop.call_at

        def call_at(when: float, callback: Any, *args: Any, **kwargs: Any) -> Any:
            waits.append(round(when - loop.time(), 2))
            return real(when, callback, *args, **kwargs)

        loop.call_at = call_at  # type: ignore[method-assign]
        task = asyncio.create_task(crew.worker.arun())
        await auntil(lambda: waits.count(0.05) >= 3)
        crew.worker.stop()
        await task
        polls = [wait for wait in waits if 0.01 < wait < 0.1]
        assert polls[:4] == [0.02, 0.04, 0.05, 0.05]


# -- stopping


def test_a_stop_settles_what_returns_and_gives_back_what_has_not_begun(crew: Crew) -> None:
    desk, let_go, begun = crew.desk, threading.Event(), threading.Event()

    async def wait(context: CallContext) -> None:
        begun.set()
        await asyncio.to_thread(let_go.wait, PATIENCE)

    desk.mail.answers = wait
    crew.worker = OutboxWorker(desk.runner(concurrency=1), policy=NEVER)
    running, unstarted = desk.put_many(2)
    crew.start()
    assert begun.wait(PATIENCE)
    assert crew.worker.stop(timeout=0.01) is False
    until(lambda: desk.get(unstarted).status == "pending")
    assert desk.get(unstarted).attempts == 0
    let_go.set()
    assert crew.worker.stop(PATIENCE) is True
    assert (desk.get(running).status, desk.mail.called) == ("succeeded", [running])


async def test_a_task_that_is_cancelled_stops_as_well(tmp_path: Path) -> None:
    with fresh_database("sqlite", tmp_path) as database:
        crew, begun, go = Crew(database.sessions), asyncio.Event(), asyncio.Event()

        async def wait(context: CallContext) -> None:
            begun.set()
            await go.wait()

        crew.desk.mail.answers = wait
        id = crew.desk.put_one()
        task = asyncio.create_task(crew.worker.arun())
        await begun.wait()
        task.cancel()
        await asyncio.sleep(0)
        go.set()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert crew.desk.get(id).status == "succeeded"


def test_a_worker_that_was_stopped_can_be_started_again_and_starts_once(crew: Crew) -> None:
    crew.start()
    thread = crew.worker._thread
    assert crew.worker.start()._thread is thread
    assert crew.worker.stop(PATIENCE)
    id = crew.desk.put_one()
    crew.start()
    until(lambda: crew.desk.get(id).status == "succeeded")
    assert crew.worker._thread is not thread


def test_slow_calls_of_one_batch_do_not_keep_others_waiting(database: Database) -> None:
    crew = Crew(database.sessions, OutboxWorkerPolicy(poll_s=3600, idle_s=3600, patience_s=0.01))
    desk, let_go = crew.desk, threading.Event()
    slow = desk.put_one()

    async def wait(context: CallContext) -> None:
        if context.entry_id == slow:
            await asyncio.to_thread(let_go.wait, PATIENCE)

    desk.mail.answers = wait
    crew.start()
    until(lambda: slow in desk.mail.called)
    quick = desk.put_one()
    until(lambda: desk.get(quick).status == "succeeded")
    assert desk.get(slow).status == "in_flight"
    let_go.set()
    assert crew.worker.stop(PATIENCE)
    assert desk.get(slow).status == "succeeded"


# -- trouble


def test_a_database_that_goes_away_and_comes_back(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    with fresh_database("sqlite", tmp_path) as database:
        away, refused = threading.Event(), threading.Event()
        engine = sa.create_engine(database.url, poolclass=NullPool)

        def connect(*args: Any) -> None:
            if away.is_set():
                refused.set()
                raise ConnectionRefusedError("postgresql://ann:secret@db is away")

        sa.event.listen(engine, "do_connect", connect)
        crew = Crew(sessionmaker(engine), OFTEN).start()
        id = crew.desk.put_one()
        until(lambda: crew.desk.get(id).status == "succeeded")
        with caplog.at_level(logging.WARNING, "holdfast.outbox"):
            away.set()
            assert refused.wait(PATIENCE)
            away.clear()
        later = crew.desk.put_one()
        until(lambda: crew.desk.get(later).status == "succeeded")
        assert crew.worker.stop(PATIENCE)
        assert "a batch failed" in caplog.text
        assert "secret" not in caplog.text
        engine.dispose()


def test_chores_are_done_now_and_then_and_a_failing_one_hurts_nobody(
    database: Database, caplog: pytest.LogCaptureFixture
) -> None:
    done: list[str] = []

    def broken() -> None:
        done.append("broken")
        raise ConnectionError("password=hunter2 is wrong")

    policy = OutboxWorkerPolicy(poll_s=3600, idle_s=3600, chores_s=0.001)
    crew = Crew(database.sessions, policy, chores={"broken": broken, "other": lambda: done.append("other")})
    with caplog.at_level(logging.WARNING, "holdfast.outbox"):
        crew.start()
        until(lambda: done.count("other") >= 3)
        id = crew.desk.put_one()
        until(lambda: crew.desk.get(id).status == "succeeded")
        assert crew.worker.stop(PATIENCE)
    assert done[:2] == ["broken", "other"]
    assert "broken failed: ConnectionError" in caplog.text
    assert "hunter2" not in caplog.text


def test_what_is_no_exception_ends_the_worker_and_not_silently(database: Database) -> None:
    class Halt(BaseException):
        pass

    def halt(context: CallContext) -> None:
        raise Halt

    crew = Crew(database.sessions)
    crew.desk.mail.answers = halt
    id = crew.desk.put_one()
    with pytest.raises(Halt):
        crew.worker.run()
    assert crew.desk.get(id).status == "in_flight"


@pytest.mark.parametrize(
    ("wrong", "story"),
    [({"poll_s": 0}, "poll_s"), ({"idle_s": -1}, "idle_s"), ({"lanes": 0}, "lanes"), ({"chores_s": "1"}, "chores_s")],
)
def test_a_policy_that_cannot_work_is_refused(wrong: dict[str, Any], story: str) -> None:
    with pytest.raises(PolicyError, match=f"OutboxWorkerPolicy.{story}"):
        OutboxWorkerPolicy(**wrong)


def test_an_idle_worker_asks_the_database_rarely(tmp_path: Path) -> None:
    """Once in `idle_s`, with one transaction."""
    with fresh_database("sqlite", tmp_path) as database:
        crew, statements = Crew(database.sessions), list[str]()
        sa.event.listen(database.engine, "before_cursor_execute", lambda *args: statements.append(args[2]))
        crew.start()
        until(lambda: statements)
        crew.worker.wake()
        until(lambda: sum("UPDATE" in one for one in statements) >= 2)
        assert crew.worker.stop(PATIENCE)
        assert len(statements) <= 6
