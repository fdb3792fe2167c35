"""The outbox's own connections: one that was lost is noticed, and a claim needs no Session on them."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa
from sqlalchemy.exc import OperationalError, ProgrammingError

import holdfast as hf
from holdfast.backends.sql import migrate
from holdfast.machine.outbox_entry import OutboxStatus
from holdfast.outbox import works
from tests.outbox.test_enqueue import Statements
from tests.stores import SQL_STORES, make_url

KILLS = {
    "postgres": "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE pid <> pg_backend_pid()"
    " AND datname = current_database()",
    "mariadb": "SELECT id FROM information_schema.processlist WHERE id <> connection_id() AND db = database()",
}


@pytest.mark.parametrize("name", [name for name in SQL_STORES if name in KILLS])
def test_a_connection_that_was_lost_while_it_rested_is_not_used(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(works, "_REST_S", 0.0)
    url = make_url(name, tmp_path)
    migrate.upgrade(url)
    with hf.Holdfast(url, background=False) as hold:
        hold.outbox.status_counts()
        _kill_all(hold.works.engine.url, name)
        assert hold.outbox.status_counts()[OutboxStatus.PENDING] == 0


@pytest.fixture
def hold(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[hf.Holdfast]:
    """On PostgreSQL, with an operation that answers what came before it, and a single connection."""
    monkeypatch.setitem(works._OPTIONS, "postgresql", {"pool_size": 1, "max_overflow": 0, "pool_timeout": 5})
    url = make_url("postgres", tmp_path)
    migrate.upgrade(url)
    with hf.Holdfast(url, background=False) as hold:

        @hold.operation
        def note(context: Any) -> Any:
            return [context.attempt, context.previous]

        yield hold


def put(hold: hf.Holdfast, **more: Any) -> Any:
    with hold.sessions.begin() as session:
        return hold.outbox.put(session, "note", target="shop", **more)


def test_a_claim_goes_to_the_driver_and_the_connection_comes_back_as_it_was(hold: hf.Holdfast) -> None:
    first = put(hold)
    statements = Statements(hold.works.engine)
    assert [entry.entry_id for entry in hold.outbox.claim_batch()] == [first]
    assert hold.outbox.claim_batch() == ()
    assert statements.seen == []
    with hold.sessions() as session:
        hold.outbox.put(session, "note", target="shop")
        session.rollback()
    assert hold.outbox.status_counts()[OutboxStatus.PENDING] == 0


async def test_a_step_gets_the_result_of_the_one_before_it_over_a_single_connection(hold: hf.Holdfast) -> None:
    first, runner = put(hold), hold.runner()
    await runner.run_once()
    second = put(hold, depends_on=first)
    await runner.run_once()
    entry = hold.outbox.get(second)
    assert entry is not None
    assert entry.result == [1, [1, None]]


def test_a_claim_over_a_connection_that_was_lost_fails_as_a_session_does_and_the_next_has_a_new_one(
    hold: hf.Holdfast,
) -> None:
    first = put(hold)
    _kill_all(hold.works.engine.url, "postgres")
    with pytest.raises(OperationalError):
        hold.outbox.claim_batch()
    assert [entry.entry_id for entry in hold.outbox.claim_batch()] == [first]


def test_a_claim_that_the_server_refuses_leaves_the_connection_usable(hold: hf.Holdfast) -> None:
    first, table = put(hold), hold.tables.outbox.name
    with hold.sessions.begin() as session:
        session.execute(sa.text(f"ALTER TABLE {table} RENAME TO elsewhere"))
    with pytest.raises(ProgrammingError, match=table):
        hold.outbox.claim_batch()
    with hold.sessions.begin() as session:
        session.execute(sa.text(f"ALTER TABLE elsewhere RENAME TO {table}"))
    assert [entry.entry_id for entry in hold.outbox.claim_batch()] == [first]


def _kill_all(url: sa.URL, name: str) -> None:
    other = sa.create_engine(url)
    with other.connect().execution_options(isolation_level="AUTOCOMMIT") as connection:
        found = connection.exec_driver_sql(KILLS[name]).scalars().all()
        if name == "mariadb":
            for one in found:
                connection.exec_driver_sql(f"KILL {one}")
    other.dispose()
