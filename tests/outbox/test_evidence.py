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
