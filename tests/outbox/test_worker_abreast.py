"""The worker with more to do than one batch holds: the next one does not wait until this one is settled."""

from __future__ import annotations

import asyncio
import threading
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa

from holdfast.outbox.operation import CallContext
from holdfast.outbox.worker import OutboxWorkerPolicy
from tests.databases import DATABASES, Database, fresh_database
from tests.outbox.test_worker import PATIENCE, Crew, until

PATIENT = OutboxWorkerPolicy(poll_s=3600, idle_s=3600, chores_s=3600, patience_s=3600)


def test_of_full_batches_three_are_under_way_unless_there_is_one_writer(database: Database) -> None:
    crew = Crew(database.sessions, PATIENT, runner={"batch_size": 1})
    most = 1 if database.name == "sqlite" else 3
    under_way = threading.Semaphore(0)
    may_end = threading.Event()
    crew.desk.mail.answers = lambda context: _wait_for(may_end, under_way)
    ids = [crew.desk.put_one() for _ in range(4)]
    crew.start()
    for _ in range(most):
        assert under_way.acquire(timeout=PATIENCE)
    assert len(crew.desk.mail.called) == most
    may_end.set()
    until(lambda: all(crew.desk.get(id).status == "succeeded" for id in ids))
    assert crew.worker.stop(PATIENCE)
    assert sorted(crew.desk.mail.called) == sorted(ids)


async def _wait_for(event: threading.Event, told: threading.Semaphore) -> None:
    told.release()
    await asyncio.to_thread(event.wait, PATIENCE)


def test_run_once_empties_the_outbox_and_calls_each_entry_once(database: Database) -> None:
    crew = Crew(database.sessions, runner={"batch_size": 3})
    ids = [crew.desk.put_one() for _ in range(20)]
    assert crew.worker.run_once() == 20
    assert sorted(crew.desk.mail.called) == sorted(ids)


def test_run_once_raises_what_one_of_its_batches_raises(database: Database) -> None:
    crew = Crew(database.sessions, runner={"batch_size": 1})
    for _ in range(4):
        crew.desk.put_one()
    begun: list[CallContext] = []

    def answer(context: CallContext) -> None:
        begun.append(context)
        if len(begun) == 3:
            raise SystemExit(3)

    crew.desk.mail.answers = answer
    with pytest.raises(SystemExit):
        crew.worker.run_once()


@pytest.mark.parametrize("name", [name for name in DATABASES if name != "sqlite"])
def test_what_waits_for_its_key_is_called_as_soon_as_the_one_before_has_ended(name: str, tmp_path: Path) -> None:
    """The second batch finds nothing while the first one's call runs; nobody but that call can tell of the next."""
    with fresh_database(name, tmp_path) as database:
        crew = Crew(database.sessions, PATIENT, runner={"batch_size": 1})
        begun: list[CallContext] = []
        looked = threading.Event()

        def note(*args: Any) -> None:
            if begun and "fresh_at" in args[2]:
                looked.set()

        sa.event.listen(database.engine, "after_cursor_execute", note)

        def answer(context: CallContext) -> Any:
            begun.append(context)
            return _wait_for(looked, threading.Semaphore()) if len(begun) == 1 else None

        crew.desk.mail.answers = answer
        ids = [crew.desk.put_one(ordering_key="ada") for _ in range(2)]
        crew.start()
        until(lambda: all(crew.desk.get(id).status == "succeeded" for id in ids))
        assert crew.worker.stop(PATIENCE)
        assert crew.desk.mail.called == ids
