"""Erasing and correcting a subject: here at once, elsewhere through the outbox, and in the trail."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa
from sqlalchemy.orm import Session, sessionmaker

from holdfast.audit.event import AuditEvent
from holdfast.audit.sink import DatabaseAuditSink
from holdfast.errors import ConfigurationError, ResolverError
from holdfast.outbox.erasure import Erasure
from holdfast.outbox.local import ErasureStrategy, LocalStep
from holdfast.outbox.outbox import Outbox
from holdfast.outbox.resolver import ResolverErasure, ResolverRectification, ResolverRegistry
from holdfast.outbox.runner import SagaRunner
from holdfast.outbox.subject import CompositeSubjectId, Correction, PiiCategory, SubjectRef
from tests.databases import DATABASES, Database, fresh_database

OWN = sa.MetaData()
USERS = sa.Table("app_users", OWN, sa.Column("id", sa.Integer, primary_key=True), sa.Column("mail", sa.String(50)))
NOTES = sa.Table(
    "app_notes",
    OWN,
    sa.Column("id", sa.Integer, primary_key=True),
    sa.Column("user_id", sa.Integer, sa.ForeignKey("app_users.id")),
)
BILLS = sa.Table(
    "app_bills", OWN, sa.Column("id", sa.Integer, primary_key=True), sa.Column("buyer", sa.String(50)),
    sa.Column("name", sa.String(50)),
)  # fmt: skip
STEPS = (
    LocalStep(USERS, "id", categories={PiiCategory.CONTACT: "mail"}),
    LocalStep(NOTES, "user_id"),
    LocalStep(BILLS, "buyer", ErasureStrategy.ANONYMIZE, anonymize={"name": "erased"}),
)


class Crm:
    name = "crm"

    def __init__(self) -> None:
        self.calls: list[Any] = []

    async def export_subject(self, ref: SubjectRef) -> Any:
        return {}

    async def erase_subject(self, ref: SubjectRef) -> ResolverErasure:
        self.calls.append(("erase", ref.value))
        return ResolverErasure(resolver=self.name)

    async def rectify_subject(self, ref: SubjectRef, corrections: Any) -> ResolverRectification:
        self.calls.append(("rectify", ref.value, [one.value for one in corrections]))
        return ResolverRectification(resolver=self.name)


class Mailer(Crm):
    name = "mailer"
    rectify_subject = None  # type: ignore[assignment]  # it cannot

    def __getattribute__(self, name: str) -> Any:
        if name == "rectify_subject":
            raise AttributeError(name)
        return super().__getattribute__(name)


class Office:
    """An application with its own tables."""

    def __init__(self, database: Database, **options: Any) -> None:
        self.database = database
        tables = database.tables
        self.audit = DatabaseAuditSink(database.sessions, tables.audit_events, chain_heads=tables.chain_heads)
        self.outbox = Outbox(database.sessions, tables.outbox, audit_sink=self.audit)
        self.crm, self.registry = Crm(), ResolverRegistry()
        self.registry.register(self.crm)
        self.registry.register(Mailer())
        self.erasure = Erasure(self.outbox, self.registry, self.audit, steps=STEPS, **options)
        self.runner = SagaRunner(self.registry, self.outbox, self.audit)

    def events(self, subject: str) -> list[tuple[str, dict[str, Any]]]:
        return [(str(event.event_type), event.payload) for event in self.audit.read(subject)]

    def names(self, subject: str) -> list[str]:
        return [name for name, _ in self.events(subject)]

    def count(self, table: sa.Table) -> int:
        with self.database.sessions() as session:
            return int(session.execute(sa.select(sa.func.count()).select_from(table)).scalar_one())


@pytest.fixture(params=DATABASES)
def office(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Office]:
    with fresh_database(request.param, tmp_path) as database:
        OWN.create_all(database.engine)
        with database.engine.begin() as connection:
            for table in reversed(OWN.sorted_tables):
                connection.execute(table.delete())
            connection.execute(USERS.insert(), [{"id": 1, "mail": "old@x"}, {"id": 2, "mail": "b@x"}])
            connection.execute(NOTES.insert(), [{"id": at, "user_id": 1} for at in (1, 2, 3)])
            connection.execute(BILLS.insert(), [{"id": 1, "buyer": "1", "name": "Ann"}])
        yield Office(database)


def ref(value: str = "c-1", kind: str = "crm") -> SubjectRef:
    return SubjectRef(kind=kind, value=value)


def test_an_erasure_removes_children_before_parents_and_enqueues_the_rest_in_one_transaction(office: Office) -> None:
    with office.database.sessions.begin() as session:
        request = office.erasure.erase_subject(session, "1", refs=[ref()])
    assert request.rows == {"app_users": 1, "app_notes": 3, "app_bills": 1}
    assert request.skipped_resolvers == ("mailer",)
    assert (office.count(USERS), office.count(NOTES), office.count(BILLS)) == (1, 0, 1)
    assert office.outbox.get(request.entries[0]).status == "pending"  # type: ignore[union-attr]
    events = office.events("1")
    assert events[0] == ("erasure_requested", {"local_steps": 3, "external_steps": 1, "refs": 1})
    assert events[-1] == (
        "erasure_local_completed",
        {"deleted": 4, "anonymized": 1, "retained": 0, "enqueued": 1, "skipped_resolvers": "mailer"},
    )
    local = {payload["target"]: payload for name, payload in events if name == "erasure_step_succeeded"}
    assert local["app_notes"] == {"target": "app_notes", "strategy": "delete", "rows": 3}


async def test_an_erasure_is_complete_when_every_system_has_erased(office: Office) -> None:
    with office.database.sessions.begin() as session:
        office.erasure.erase_subject(session, "1", refs=[ref("a"), ref("b"), ref("b")])
    assert await office.runner.run_once() == 2
    assert office.names("1")[-1] == "erasure_completed"
    assert office.names("1").count("erasure_completed") == 1
    assert sorted(office.crm.calls) == [("erase", "a"), ("erase", "b")]


def test_an_erasure_that_asks_nobody_else_is_complete_at_once(office: Office) -> None:
    with office.database.sessions.begin() as session:
        office.erasure.erase_subject(session, "1")
    assert office.names("1")[-2:] == ["erasure_local_completed", "erasure_completed"]


def test_a_rollback_undoes_all_of_it_and_leaves_evidence_of_the_request(office: Office) -> None:
    with pytest.raises(RuntimeError), office.database.sessions.begin() as session:
        office.erasure.erase_subject(session, "1", refs=[ref()])
        raise RuntimeError("no")
    assert office.count(NOTES) == 3
    assert sum(office.outbox.status_counts().values()) == 0
    assert office.names("1") == ["erasure_requested"]


def test_a_session_that_is_just_closed_leaves_evidence_too(office: Office) -> None:
    session = office.database.sessions()
    office.erasure.erase_subject(session, "1")
    session.close()
    assert office.names("1") == ["erasure_requested"]


def test_a_failing_local_step_is_written_down_without_its_message(office: Office) -> None:
    class Broken(LocalStep):
        def erase(self, session: Session, subject: Any) -> int:
            raise KeyError("ann@example.org")

    erasure = Erasure(office.outbox, office.registry, office.audit, steps=[Broken(USERS, "id")])
    with pytest.raises(KeyError), office.database.sessions.begin() as session:
        erasure.erase_subject(session, "1")
    name, payload = office.events("1")[-1]
    assert name == "erasure_step_failed"
    assert payload == {"target": "app_users", "strategy": "delete", "error": "KeyError"}


def test_a_reference_that_nobody_knows_is_refused_before_any_event(office: Office) -> None:
    with office.database.sessions.begin() as session, pytest.raises(ResolverError, match="no resolver 'fax'"):
        office.erasure.erase_subject(session, "1", refs=[ref(kind="fax")])
    assert office.names("1") == []
    assert office.count(NOTES) == 3


@pytest.mark.parametrize("bad", ["", "x" * 256, "a\x1fb"])
def test_an_impossible_subject_id_is_refused_before_any_event(office: Office, bad: str) -> None:
    with office.database.sessions.begin() as session, pytest.raises(ValueError, match="subject_id"):
        office.erasure.erase_subject(session, bad)


def test_a_composite_id_needs_as_many_columns(office: Office) -> None:
    with office.database.sessions.begin() as session, pytest.raises(ConfigurationError, match="2 values"):
        office.erasure.erase_subject(session, CompositeSubjectId(values=("t", "1")))
    assert office.names(CompositeSubjectId(values=("t", "1")).canonical) == []


async def test_a_correction_lands_here_and_in_systems_that_can_be_corrected(office: Office) -> None:
    corrections = [Correction(category=PiiCategory.CONTACT, value="new@x")]
    with office.database.sessions.begin() as session:
        request = office.erasure.rectify_subject(session, "1", corrections, refs=[ref(), ref("m", "mailer")])
    assert request.skipped_resolvers == ("mailer",)
    with office.database.sessions() as session:
        assert session.execute(sa.select(USERS.c.mail).where(USERS.c.id == 1)).scalar_one() == "new@x"
    assert office.events("1")[0] == (
        "rectification_requested",
        {"categories": "contact", "local_steps": 1, "external_steps": 1},
    )
    await office.runner.run_once()
    assert office.crm.calls == [("rectify", "c-1", ["new@x"])]
    assert office.names("1")[-1] == "rectification_completed"
    assert "new@x" not in str(office.events("1"))
    done = office.outbox.get(request.entries[0])
    assert done is not None
    assert done.corrections == ()


async def test_corrections_and_an_erasure_of_one_reference_happen_in_order(office: Office) -> None:
    for mail in ("a@x", "b@x"):
        with office.database.sessions.begin() as session:
            correction = Correction(category=PiiCategory.CONTACT, value=mail)
            office.erasure.rectify_subject(session, "1", [correction], refs=[ref()])
    with office.database.sessions.begin() as session:
        office.erasure.erase_subject(session, "1", refs=[ref()])
    while await office.runner.run_once():
        pass
    assert office.crm.calls == [("rectify", "c-1", ["a@x"]), ("rectify", "c-1", ["b@x"]), ("erase", "c-1")]


def test_an_abandoned_correction_does_not_hold_up_the_next_one(office: Office) -> None:
    corrections = [Correction(category=PiiCategory.CONTACT, value="x@x")]
    for _ in range(2):
        with office.database.sessions.begin() as session:
            office.erasure.rectify_subject(session, "1", corrections, refs=[ref()])
    complete: list[str] = []
    (first,) = office.outbox.claim_batch()
    office.outbox.mark_abandoned(first, error="X")
    (second,) = office.outbox.claim_batch()
    assert office.outbox.mark_succeeded(second, on_subject_complete=lambda: complete.append("done"))
    assert complete == ["done"]


@pytest.mark.parametrize("categories", [[], [PiiCategory.CONTACT, PiiCategory.CONTACT]])
def test_corrections_must_name_each_category_once(office: Office, categories: list[PiiCategory]) -> None:
    corrections = [Correction(category=one, value="x") for one in categories]
    with office.database.sessions.begin() as session, pytest.raises(ValueError, match="corrections"):
        office.erasure.rectify_subject(session, "1", corrections)
    assert office.names("1") == []


def test_a_request_that_is_not_complete_in_time_shows_as_overdue(office: Office) -> None:
    with office.database.sessions.begin() as session:
        office.erasure.erase_subject(session, "1", refs=[ref()])
        office.erasure.erase_subject(session, "2")
    assert [one.subject_id for one in office.erasure.overdue(timedelta(0))] == ["1"]
    assert office.erasure.overdue(timedelta(hours=1)) == ()


def test_a_look_after_the_erasure_is_written_down(office: Office) -> None:
    with office.database.sessions.begin() as session:
        office.erasure.erase_subject(session, "1")
    with office.database.sessions() as session:
        assert office.erasure.verify_subject(session, "1")
    assert office.events("1")[-1] == (
        "erasure_verified",
        {"tables_checked": 3, "residual_rows": 0, "surviving_rows": 1, "failed_tables": 0},
    )


def test_a_pool_of_one_connection_is_enough(tmp_path: Path) -> None:
    with fresh_database("sqlite", tmp_path, pool_size=1, max_overflow=0, pool_timeout=1) as database:
        OWN.create_all(database.engine)
        office = Office(database)
        with database.sessions.begin() as session:
            office.erasure.erase_subject(session, "1", refs=[ref()])
        assert office.names("1")[-1] == "erasure_local_completed"


def test_the_request_is_on_disk_before_anything_else_where_that_is_asked_for(tmp_path: Path) -> None:
    with fresh_database("postgres", tmp_path) as database:
        OWN.create_all(database.engine)
        office = Office(database, evidence="own")
        session = database.sessions()
        office.erasure.erase_subject(session, "7")
        assert office.names("7") == ["erasure_requested"]
        session.close()
        assert office.names("7") == ["erasure_requested"]


class Listing:
    """A sink that cannot join a transaction."""

    def __init__(self) -> None:
        self.events: list[AuditEvent] = []

    def append(self, event: AuditEvent) -> None:
        self.events.append(event)

    def read(self, subject_ref: str) -> list[AuditEvent]:
        return self.events


def test_a_plain_sink_hears_of_each_step_at_once(office: Office) -> None:
    sink = Listing()
    erasure = Erasure(office.outbox, office.registry, sink, steps=STEPS)
    with office.database.sessions.begin() as session:
        erasure.erase_subject(session, "1")
        assert str(sink.events[0].event_type) == "erasure_requested"
    assert str(sink.events[-1].event_type) == "erasure_completed"


async def test_an_async_session_erases_as_well(tmp_path: Path) -> None:
    from sqlalchemy.ext.asyncio import async_sessionmaker, create_async_engine

    with fresh_database("sqlite", tmp_path) as database:
        OWN.create_all(database.engine)
        office = Office(database)
        engine = create_async_engine(database.url.replace("sqlite://", "sqlite+aiosqlite://"))
        async with async_sessionmaker(engine).begin() as session:
            await office.erasure.aerase_subject(session, "1", refs=[ref()])
        await engine.dispose()
        assert office.names("1")[-1] == "erasure_local_completed"
        assert sessionmaker(database.engine)
