"""The outbox's own connections: one that was lost is noticed, and a claim and most settles need no Session on them."""

from __future__ import annotations

import os
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest
import sqlalchemy as sa
from sqlalchemy.exc import OperationalError, ProgrammingError
from sqlalchemy.orm import sessionmaker

import holdfast as hf
from holdfast.audit.event import AuditEvent
from holdfast.audit.sink import DatabaseAuditSink
from holdfast.errors import AuditIntegrityError
from holdfast.machine.outbox_entry import RELEASE, SUCCEED, OutboxStatus
from holdfast.outbox import works
from holdfast.outbox.entry import OutboxEntry
from holdfast.outbox.settle import Attempt, Settlement, statements_of
from holdfast.outbox.subject import SubjectRef
from tests.outbox.test_enqueue import Statements
from tests.stores import SQL_STORES, fresh_url

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
    with fresh_url(name, tmp_path) as url, hf.Holdfast(url, background=False) as hold:
        hold.outbox.status_counts()
        _kill_all(hold.works.engine.url, name)
        assert hold.outbox.status_counts()[OutboxStatus.PENDING] == 0


def test_the_sessions_of_a_forked_child_have_connections_of_their_own(tmp_path: Path) -> None:
    def connection() -> Any:
        with hold.sessions() as session:
            return session.execute(sa.text("SELECT pg_backend_pid()")).scalar()

    with fresh_url("postgres", tmp_path) as url, hf.Holdfast(url, background=False) as hold:
        parents = connection()
        child = os.fork()
        if child == 0:
            try:
                os._exit(0 if connection() != parents else 1)
            finally:
                os._exit(2)
        assert os.waitpid(child, 0)[1] == 0
        assert connection() == parents


@pytest.fixture
def hold(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[hf.Holdfast]:
    """On PostgreSQL, with an operation that answers what came before it, and a single connection."""
    monkeypatch.setitem(works._OPTIONS, "postgresql", {"pool_size": 1, "max_overflow": 0, "pool_timeout": 5})
    with fresh_url("postgres", tmp_path) as url, hf.Holdfast(url, background=False) as hold:

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


async def test_a_batch_that_succeeds_is_settled_on_the_driver_with_its_events(hold: hf.Holdfast) -> None:
    runner = hold.runner()
    assert await runner.run_once() == 0  # it looks for what is to be verified, in a Session
    ids = [put(hold) for _ in range(3)]
    statements = Statements(hold.works.engine)
    assert await runner.run_once() == 3
    assert statements.seen == []
    assert hold.outbox.status_counts()[OutboxStatus.SUCCEEDED] == 3
    assert [len(hold.works.audit.read_entry(id)) for id in ids] == [1, 1, 1]
    assert all(one.verified for one in hold.works.audit.verify_all())
    with hold.sessions() as session:  # the connection begins transactions again
        hold.outbox.put(session, "note", target="shop")
        session.rollback()
    assert hold.outbox.status_counts()[OutboxStatus.PENDING] == 0


async def test_a_settle_on_the_driver_leaves_alone_what_the_claim_no_longer_holds(hold: hf.Holdfast) -> None:
    first, second = put(hold), put(hold)
    one, other = sorted(hold.outbox.claim_batch(), key=lambda entry: entry.entry_id != first)
    hold.outbox.release([other])
    done = [Settlement(entry, SUCCEED, {}, events=(event_of(entry),)) for entry in (one, other)]
    for sink in (hold.works.audit, None):
        expected = [True, False] if sink is not None else [False, False]
        assert await hold.outbox.asettle(done, sink=sink) == expected
    assert [len(hold.works.audit.read_entry(id)) for id in (first, second)] == [1, 0]
    assert hold.outbox.status_counts()[OutboxStatus.PENDING] == 1


async def test_a_settle_on_the_driver_whose_event_is_refused_is_undone_as_a_whole(hold: hf.Holdfast) -> None:
    put(hold)
    (entry,) = hold.outbox.claim_batch()
    event = event_of(entry)
    hold.works.audit.append(event)
    with pytest.raises(AuditIntegrityError, match="in the audit trail already"):
        await hold.outbox.asettle([Settlement(entry, SUCCEED, {}, events=(event,))], sink=hold.works.audit)
    assert hold.outbox.status_counts()[OutboxStatus.IN_FLIGHT] == 1
    assert await hold.outbox.asettle([Settlement(entry, SUCCEED, {"result": [1]})]) == [True]
    settled = hold.outbox.get(entry.entry_id)
    assert settled is not None
    assert settled.result == [1]


async def test_a_sink_on_sessions_of_its_own_is_asked_in_a_session(hold: hf.Holdfast) -> None:
    put(hold)
    (entry,) = hold.outbox.claim_batch()
    tables = hold.tables
    theirs = DatabaseAuditSink(sessionmaker(hold.works.engine), tables.audit_events, chain_heads=tables.chain_heads)
    statements = Statements(hold.works.engine)
    assert await hold.outbox.asettle([Settlement(entry, SUCCEED, {}, events=(event_of(entry),))], sink=theirs) == [True]
    assert len(statements.seen) == 3
    assert len(theirs.read_entry(entry.entry_id)) == 1


def test_only_successes_that_nothing_else_depends_on_need_no_session() -> None:
    entry = OutboxEntry(
        entry_id=UUID(int=1),
        subject_id="s",
        resolver="r",
        ref=SubjectRef(kind="k", value="v"),
        enqueued_at=datetime(2026, 1, 1, tzinfo=UTC),
        claim_token=UUID(int=2),
    )
    attempt = Attempt(entry.entry_id, UUID(int=2), 2, None, entry.enqueued_at, "succeeded", None)
    assert statements_of([Settlement(entry, SUCCEED)] * 3) == 1
    assert statements_of([Settlement(entry, SUCCEED), Settlement(entry, SUCCEED, {"result": [1]})]) == 2
    assert statements_of([Settlement(entry, SUCCEED, events=(event_of(entry),))]) == 3
    for one in (
        Settlement(entry, RELEASE),
        Settlement(entry, SUCCEED, grouped=True),
        Settlement(entry, SUCCEED, attempt=attempt),
        Settlement(entry, SUCCEED, within=lambda session: None),
        Settlement(entry.model_copy(update={"saga_id": UUID(int=3)}), SUCCEED),
        Settlement(entry.model_copy(update={"claim_token": None}), SUCCEED),
    ):
        assert statements_of([Settlement(entry, SUCCEED), one]) is None
    assert statements_of([Settlement(entry, SUCCEED, {"result": number}) for number in range(5)]) is None


def event_of(entry: OutboxEntry) -> AuditEvent:
    return AuditEvent(event_type="operation_succeeded", subject_ref=entry.subject_id, entry_id=entry.entry_id)


def _kill_all(url: sa.URL, name: str) -> None:
    other = sa.create_engine(url)
    with other.connect().execution_options(isolation_level="AUTOCOMMIT") as connection:
        found = connection.exec_driver_sql(KILLS[name]).scalars().all()
        if name == "mariadb":
            for one in found:
                connection.exec_driver_sql(f"KILL {one}")
    other.dispose()
