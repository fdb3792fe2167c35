"""What a request leaves in the trail when it is made inside of a savepoint, and in a session that goes on."""

from __future__ import annotations

import pytest
import sqlalchemy as sa
from sqlalchemy.orm import Session

from holdfast.audit.sink import DatabaseAuditSink
from holdfast.outbox.erasure import Erasure
from holdfast.outbox.local import LocalStep
from holdfast.outbox.outbox import Outbox
from holdfast.outbox.resolver import ResolverRegistry
from tests.databases import Database

PEOPLE = sa.Table("people", sa.MetaData(), sa.Column("id", sa.String(20), primary_key=True))


@pytest.fixture
def trail(database: Database) -> DatabaseAuditSink:
    PEOPLE.metadata.drop_all(database.engine)
    PEOPLE.metadata.create_all(database.engine)
    return DatabaseAuditSink(database.sessions, database.tables.audit_events, chain_heads=database.tables.chain_heads)


@pytest.fixture
def erasure(database: Database, trail: DatabaseAuditSink) -> Erasure:
    outbox = Outbox(database.sessions, database.tables.outbox, audit_sink=trail)
    return Erasure(outbox, ResolverRegistry(), trail, steps=[LocalStep(PEOPLE, "id")])


def types_of(trail: DatabaseAuditSink, subject: str) -> list[str]:
    return [str(event.event_type) for event in trail.read(subject)]


ALL = ["erasure_requested", "erasure_step_succeeded", "erasure_local_completed", "erasure_completed"]


def test_a_session_may_make_one_request_after_the_other(
    database: Database, trail: DatabaseAuditSink, erasure: Erasure
) -> None:
    with database.sessions() as session:
        for subject in ("ann", "bob"):
            erasure.erase_subject(session, subject)
            session.commit()
        erasure.erase_subject(session, "cat")
        session.rollback()
    assert types_of(trail, "ann") == types_of(trail, "bob") == ALL
    assert types_of(trail, "cat") == ["erasure_requested"]


def test_requests_leave_nothing_behind_in_a_session_that_goes_on(database: Database, erasure: Erasure) -> None:
    def listeners(session: Session) -> list[int]:
        told = session.dispatch
        return [
            len(list(each))
            for each in (told.before_commit, told.after_commit, told.after_soft_rollback, told.after_transaction_end)
        ]

    with database.sessions() as session:
        erasure.erase_subject(session, "ann")
        session.commit()
        after_one = listeners(session)
        for number in range(5):
            erasure.erase_subject(session, f"s{number}")
            erasure.erase_subject(session, f"t{number}")
            session.commit() if number % 2 else session.rollback()
        assert listeners(session) == after_one


def test_requests_of_one_transaction_are_appended_together(
    database: Database, trail: DatabaseAuditSink, erasure: Erasure
) -> None:
    """An append locks the heads of chains in their order; two of them could meet those of somebody else half way."""
    appended: list[str] = []

    def note(connection: object, cursor: object, statement: str, *rest: object) -> None:
        if f"INSERT INTO {database.tables.audit_events.name}" in statement:
            appended.append(statement)

    sa.event.listen(database.engine, "before_cursor_execute", note)
    with database.sessions.begin() as session:
        for subject in ("ann", "bob", "cat"):
            erasure.erase_subject(session, subject)
    assert len(appended) == 1
    assert [types_of(trail, subject) for subject in ("ann", "bob", "cat")] == [ALL, ALL, ALL]


def test_a_request_in_a_savepoint_that_is_kept_is_whole(
    database: Database, trail: DatabaseAuditSink, erasure: Erasure
) -> None:
    with database.sessions.begin() as session:
        with session.begin_nested():
            erasure.erase_subject(session, "ann")
    assert types_of(trail, "ann") == ALL


def test_a_request_in_a_savepoint_that_is_undone_leaves_only_that_it_was_made(
    database: Database, trail: DatabaseAuditSink, erasure: Erasure
) -> None:
    with database.sessions.begin() as session:
        _undone(session, erasure, "ann")
        erasure.erase_subject(session, "bob")
    assert types_of(trail, "ann") == ["erasure_requested"]
    assert types_of(trail, "bob") == ALL


def test_a_request_whose_savepoint_is_kept_and_whose_transaction_is_undone_leaves_that_it_was_made(
    database: Database, trail: DatabaseAuditSink, erasure: Erasure
) -> None:
    with database.sessions() as session:
        with session.begin_nested():
            erasure.erase_subject(session, "ann")
        session.rollback()
    assert types_of(trail, "ann") == ["erasure_requested"]


def _undone(session: Session, erasure: Erasure, subject: str) -> None:
    with session.begin_nested() as savepoint:
        erasure.erase_subject(session, subject)
        savepoint.rollback()
