"""What the original got wrong, and ours must not: those of its traps that have no better home.

| trap | where it is tested |
|---|---|
| 1 settles without a fence | here; test_settles: a settle by a lost claim; test_runner_running: a late settle |
| 2 crash loops without an end | here; test_runner: an entry that crashes its runners |
| 3 no order of corrections | here; test_erasure, test_claims: order per key; test_writers |
| 4 two processes on SQLite | here, in two processes; test_runner_kill |
| 5 the trail in the same SQLite file, or in memory | here; tests/audit/test_append |
| 6 one sink error or foreign answer strands a batch | test_runner_settling, test_runner |
| 7 horizons in another zone | here; test_runner: a parked entry; test_enqueue |
| 8 completion for a row that vanished | test_settles: a settle by a lost claim, after a deletion |
| 9 no completion without external entries | test_erasure: an erasure that asks nobody else |
| 10 an unknown resolver is given up at once | test_runner: abandoned or deferred as the runner says |
| 11 a pool of one connection | here |
| 12 the idempotency key never reaches the call | test_runner |
| 13 verification before the success is durable | test_verification |
| 14 leases, clocks, an ABA hole | test_runner_running, test_claims, test_settles |
| 15 a very long class name | test_runner |
| 16 the slowest call holds up all, cancellation drops | test_runner_running |
| 17 overdue requests cannot be seen | here; test_erasure |
| 18 the chain: its tail, forks, truncation | tests/audit |
| 19 COMPLETED in the trail, the row in flight | here; test_runner_settling |
| 20 claims sort the backlog, counts in Python | test_claims, test_operators |
| 21 a plain id that looks like a composite | here; test_erasure |
| 22 events without the entry's id | test_runner, here |
| 23 an abandoned correction blocks for ever | test_erasure, test_settles |
| 24 blocking calls, no timeout, log or metric | test_runner_settling, test_runner_running |
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from datetime import timedelta, timezone
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa
from sqlalchemy.exc import OperationalError
from sqlalchemy.orm import sessionmaker
from sqlalchemy.pool import StaticPool

from holdfast.audit.event import AuditEvent
from holdfast.audit.sink import DatabaseAuditSink
from holdfast.errors import ConfigurationError, ResolverError
from holdfast.machine.outbox_entry import SUCCEED, OutboxStatus
from holdfast.outbox.draft import Draft
from holdfast.outbox.erasure import Erasure
from holdfast.outbox.inbox import Inbox
from holdfast.outbox.local import LocalStep
from holdfast.outbox.outbox import Outbox
from holdfast.outbox.resolver import ResolverErasure, ResolverRectification, ResolverRegistry
from holdfast.outbox.runner import SagaRunner
from holdfast.outbox.sagas.sagas import Saga, Sagas, Step
from holdfast.outbox.settle import Settlement
from holdfast.outbox.subject import CompositeSubjectId, Correction, PiiCategory, SubjectRef
from holdfast.telemetry.hub import Hub
from holdfast.testing import ManualClock
from tests.databases import DATABASES, METADATA, ORDERS, Database, fresh_database, open_database
from tests.outbox.entries import HOUR, LEASE, MINUTE, START, enqueue, make_entry, make_rectify, nothing, operations
from tests.outbox.test_runner_kill import Yard, check_trail

S = OutboxStatus


class Crm:
    """Erases and corrects; `fails` says how often the next calls fail."""

    name = "crm"

    def __init__(self) -> None:
        self.calls: list[Any] = []
        self.fails = 0

    async def export_subject(self, ref: SubjectRef) -> Any: ...

    async def erase_subject(self, ref: SubjectRef) -> ResolverErasure:
        self._note("erased")
        return ResolverErasure(resolver="crm")

    async def rectify_subject(self, ref: SubjectRef, corrections: Any) -> ResolverRectification:
        self._note(corrections[0].value)
        return ResolverRectification(resolver="crm")

    def _note(self, what: Any) -> None:
        if self.fails:
            self.fails -= 1
            raise ConnectionError("away")
        self.calls.append(what)


class Office:
    """Everything on one database: a chained trail, an outbox, erasures and a runner."""

    def __init__(self, database: Database, clock: ManualClock | None = None) -> None:
        tables, known = database.tables, operations()
        self.database = database
        self.trail = DatabaseAuditSink(
            database.sessions,
            tables.audit_events,
            chain_heads=tables.chain_heads,
            checkpoints=tables.checkpoints,
            event_types=lambda: known.event_types() | Sagas.event_types,
        )
        self.outbox = Outbox(database.sessions, tables.outbox, audit_sink=self.trail, operations=known, clock=clock)
        self.crm, self.registry = Crm(), ResolverRegistry()
        self.registry.register(self.crm)
        self.erasure = Erasure(self.outbox, self.registry, self.trail, steps=[LocalStep(ORDERS, "note")])

    def runner(self, **options: Any) -> SagaRunner:
        return SagaRunner(self.registry, self.outbox, self.trail, rng=None, telemetry=Hub(), **options)

    def types(self, subject: str = "ann") -> list[str]:
        return [str(event.event_type) for event in self.trail.read(subject)]


@pytest.fixture
def office(database: Database, clock: ManualClock) -> Office:
    return Office(database, clock)


REF = SubjectRef(kind="crm", value="c-1")


async def test_trap_1_a_failure_that_comes_late_does_not_undo_a_success_nor_complete_it_twice(
    office: Office, clock: ManualClock
) -> None:
    (entry,) = enqueue(office.outbox, make_rectify())
    (late,) = office.outbox.claim_batch(lease=LEASE)
    clock.advance(300)
    await office.runner().run_once()
    done = office.outbox.get(entry.entry_id)
    assert done is not None
    assert done.status is S.SUCCEEDED
    assert not office.outbox.mark_failed(late, error="Late", next_attempt_at=clock.wall())
    assert not office.outbox.mark_succeeded(late, on_subject_complete=nothing)
    clock.advance(3600)
    await office.runner().run_once()
    assert office.outbox.get(entry.entry_id) == done
    assert office.crm.calls == ["new@example.org"]  # once, and with its corrections
    assert office.types() == ["rectification_step_succeeded", "rectification_completed"]


async def test_trap_2_an_entry_that_crashes_every_runner_is_given_up_after_its_attempts(
    office: Office, clock: ManualClock
) -> None:
    (entry,) = enqueue(office.outbox, make_entry())
    for _ in range(20):
        office.outbox.claim_batch(lease=LEASE)  # and its process is gone
        clock.advance(300)
    await office.runner(max_attempts=3).run_once()
    found = office.outbox.get(entry.entry_id)
    assert found is not None
    assert (found.status, found.attempts, found.last_error) == (S.ABANDONED, 3, "AttemptsExhausted")
    assert (office.types(), office.crm.calls) == (["erasure_step_failed"], [])


async def test_trap_3_corrections_of_one_reference_land_in_order_whatever_fails(
    office: Office, clock: ManualClock
) -> None:
    for value in ("A", "B"):
        with office.database.sessions.begin() as session:
            right = [Correction(category=PiiCategory.CONTACT, value=value)]
            office.erasure.rectify_subject(session, "ann", right, refs=[REF])
    with office.database.sessions.begin() as session:
        office.erasure.erase_subject(session, "ann", refs=[REF])
    office.crm.fails = 1
    for _ in range(6):
        await office.runner().run_once()
        clock.advance(30)
    assert office.crm.calls == ["A", "B", "erased"]


@pytest.mark.parametrize("name", DATABASES)
def test_trap_4_processes_at_once_call_each_entry_once_and_complete_each_subject_once(
    tmp_path: Path, name: str
) -> None:
    with fresh_database(name, tmp_path) as database:
        yard = Yard(database, tmp_path, 120)
        try:
            for _ in range(3):
                yard.spawn()
            while yard.left():
                yard.hear(0.05)
        finally:
            yard.close()
        calls = Counter(entry for entry, _ in yard.effects_made())
        assert calls == Counter(map(str, yard.ids))
        check_trail(yard)


async def test_trap_5_the_trail_lives_in_the_file_of_the_outbox(tmp_path: Path) -> None:
    """Whoever settles writes the events on its own connection: no other one has to wait for it."""
    impatient = {"connect_args": {"timeout": 0.01}}
    database = open_database("sqlite", f"sqlite:///{tmp_path}/app.db", **impatient)
    METADATA.create_all(database.engine)
    office = Office(database)
    with database.sessions.begin() as session:
        office.erasure.erase_subject(session, "ann", refs=[REF])
    await office.runner().run_once()
    assert office.types()[-2:] == ["erasure_step_succeeded", "erasure_completed"]
    database.engine.dispose()


@pytest.mark.parametrize("pool", [{}, {"poolclass": StaticPool}], ids=["thread's own", "static"])
def test_trap_5_in_memory_nothing_of_ours_ends_the_callers_transaction(pool: Any) -> None:
    engine = sa.create_engine("sqlite://", connect_args={"check_same_thread": False}, **pool)
    METADATA.create_all(engine)
    office = Office(Database("sqlite", "sqlite://", engine, sessionmaker(engine)))
    outbox, entry = office.outbox, make_entry()
    acts = (
        outbox.claim_batch, outbox.status_counts, outbox.list_abandoned, lambda: outbox.requeue([entry.entry_id]),
        lambda: outbox.cancel([entry.entry_id]), lambda: outbox.pause("q"), lambda: outbox.prune(HOUR),
        lambda: outbox.get(entry.entry_id), lambda: outbox.mark_abandoned(entry, error="E"),
    )  # fmt: skip
    with office.database.sessions() as session:
        session.execute(ORDERS.insert(), {"id": 1})
        outbox.enqueue(session, [entry])
        for act in acts:
            with pytest.raises(ConfigurationError, match="Commit first"):
                act()
        assert session.execute(sa.select(ORDERS.c.id)).all() == [(1,)]
        session.rollback()
    with office.database.sessions() as session:
        assert session.execute(sa.select(ORDERS.c.id)).all() == []
    assert outbox.claim_batch() == ()
    engine.dispose()


@pytest.mark.parametrize("hours", [-7, 5.5])
def test_trap_7_a_horizon_of_another_zone_is_the_same_moment_on_every_database(
    office: Office, clock: ManualClock, hours: float
) -> None:
    horizon = START + 10 * HOUR
    (entry,) = enqueue(office.outbox, make_entry())
    (claimed,) = office.outbox.claim_batch(lease=LEASE)
    there = horizon.astimezone(timezone(timedelta(hours=hours)))
    assert office.outbox.mark_scheduled(claimed, resume_at=there)
    (parked,) = office.outbox.list_scheduled()
    assert (parked.entry_id, parked.next_attempt_at) == (entry.entry_id, horizon)
    clock.advance(10 * 3600 - 1)
    assert office.outbox.claim_batch(lease=LEASE) == ()
    clock.advance(1)
    assert [one.entry_id for one in office.outbox.claim_batch(lease=LEASE)] == [entry.entry_id]


@pytest.fixture
def narrow(database: Database) -> Iterator[Office]:
    """On a pool of one connection, which nobody waits for in vain for long."""
    one = open_database(database.name, database.url, pool_size=1, max_overflow=0, pool_timeout=5)
    yield Office(one)
    one.engine.dispose()


async def test_trap_11_one_connection_is_enough_for_everything(narrow: Office) -> None:
    outbox, sessions = narrow.outbox, narrow.database.sessions
    sagas = Sagas(outbox, Saga("order", [Step("pay", "charge", target="crm", compensation="ping")]), hub=Hub())
    with sessions.begin() as session:
        session.execute(ORDERS.insert(), {"id": 1, "note": "ann"})
        narrow.erasure.erase_subject(session, "ann", refs=[REF])
        outbox.put(session, "ping", target="crm", key="k", dedupe_key="d")
        outbox.put_many(session, [Draft("ping", target="crm", dedupe_key="d"), Draft("charge", {"n": 1}, target="crm")])
        outbox.publish(session, "orders", {"id": 1})
        outbox.enqueue(session, [make_entry("bob")])
        saga_id = sagas.start(session, "order", {"n": 1})
        assert Inbox(narrow.database.tables, "mailer").first_time(session, "m-1")
    with pytest.raises(ZeroDivisionError), sessions.begin() as session:
        narrow.erasure.erase_subject(session, "eve")
        raise ZeroDivisionError
    assert narrow.types("eve") == ["erasure_requested"]  # the evidence has a connection, too
    with sessions.begin() as session:
        assert narrow.erasure.verify_subject(session, "ann")
    with sessions() as session:
        assert narrow.erasure.verify_subject(session, "ann")
    assert narrow.types("ann").count("erasure_verified") == 2

    while await narrow.runner(batch_size=3).run_once():
        pass
    assert narrow.types("bob") == ["erasure_step_succeeded", "erasure_completed"]
    found = sagas.get(saga_id)
    assert found is not None
    assert found.state == "completed"

    enqueue(outbox, *(make_entry(f"s{n}") for n in range(5)))
    one, two, three, four, five = outbox.claim_batch()
    assert outbox.renew([one]) == {one.entry_id}
    assert outbox.mark_succeeded(one, on_subject_complete=nothing)
    assert outbox.mark_failed(two, error="E", next_attempt_at=START + HOUR)
    assert outbox.mark_scheduled(three, resume_at=outbox.run(outbox.now) + HOUR)
    assert outbox.mark_abandoned(four, error="E")
    assert outbox.release([five]) == [True]
    assert (len(outbox.list_abandoned()), len(outbox.list_scheduled())) == (1, 1)
    assert len(outbox.requeue([four.entry_id])) == len(outbox.cancel([four.entry_id])) == 1
    assert outbox.pause()
    assert outbox.paused()
    assert outbox.resume()
    assert outbox.lag() >= timedelta(0)
    assert sum(outbox.status_counts().values()) == 11
    assert outbox.prune(timedelta(0)) > 0
    assert sagas.sweep_deadlines() == sagas.catch_up() == 0
    assert narrow.erasure.overdue(HOUR) == ()
    assert narrow.trail.checkpoint()
    assert all(narrow.trail.verify_all())


def test_trap_17_a_request_that_came_to_nothing_is_seen(office: Office, clock: ManualClock) -> None:
    with pytest.raises(ZeroDivisionError), office.database.sessions.begin() as session:
        office.erasure.erase_subject(session, "ann")
        raise ZeroDivisionError
    clock.advance(3600)
    assert [one.subject_id for one in office.erasure.overdue(MINUTE)] == ["ann"]


def test_trap_19_the_trail_and_the_rows_tell_the_same_at_every_moment(office: Office) -> None:
    """What the trail says commits with what the row says, or neither does."""
    enqueue(office.outbox, make_entry())
    (claimed,) = office.outbox.claim_batch()
    commits: list[int] = []

    def fail(connection: Any) -> None:
        commits.append(1)
        raise OperationalError("COMMIT", {}, Exception("the server has gone away"))

    sa.event.listen(office.database.engine, "commit", fail)
    with pytest.raises(OperationalError):
        office.outbox.settle_batch([Settlement(claimed, SUCCEED, grouped=True, completed=_completed(claimed))])
    sa.event.remove(office.database.engine, "commit", fail)
    assert commits
    found = office.outbox.get(claimed.entry_id)
    assert found is not None
    assert (found.status, office.types()) == (S.IN_FLIGHT, [])
    assert office.outbox.settle_batch([Settlement(claimed, SUCCEED, grouped=True, completed=_completed(claimed))])[0]
    assert office.types() == ["erasure_completed"]


def _completed(entry: Any) -> Any:
    return AuditEvent(
        event_type="erasure_completed", subject_ref=entry.subject_id, occurred_at=START, entry_id=entry.entry_id
    )


def test_trap_21_a_plain_id_with_a_separator_is_not_taken_for_a_composite(office: Office) -> None:
    composite = CompositeSubjectId(values=("acme", "ann"))
    erasure = Erasure(office.outbox, office.registry, office.trail)
    with office.database.sessions.begin() as session:
        with pytest.raises(ValueError, match=r"U\+001F"):
            erasure.erase_subject(session, composite.canonical)
        with pytest.raises(ValueError, match=r"U\+001F"):
            erasure.rectify_subject(session, composite.canonical, [Correction(category=PiiCategory.CONTACT, value="x")])
        erasure.erase_subject(session, composite)
    assert "erasure_completed" in office.types(composite.canonical)


async def test_trap_22_the_trail_can_be_joined_with_the_rows(office: Office) -> None:
    (entry,) = enqueue(office.outbox, make_entry())
    await office.runner().run_once()
    events = office.trail.read_entry(entry.entry_id)
    assert [str(event.event_type) for event in events] == ["erasure_step_succeeded", "erasure_completed"]


SECRET = "hunter2@example.org"


async def test_nothing_personal_is_left_anywhere_once_an_entry_has_ended(
    office: Office, clock: ManualClock, caplog: pytest.LogCaptureFixture
) -> None:
    """However calls end: no row, no event, no line of the log holds a value, or a message that might."""
    told: list[Any] = []

    class Hook:
        def on_abandoned(self, signal: Any) -> None:
            told.append(signal.model_dump_json())

    class Leaky(Crm):
        name = "leaky"

        async def rectify_subject(self, ref: SubjectRef, corrections: Any) -> Any:
            value = corrections[0].value
            match ref.value:
                case "raises":
                    raise ConnectionError(f"cannot reach {value}")
                case "refuses":
                    raise ResolverError(f"no such person: {value}")
                case "strange":
                    return {"value": value}
            return ResolverRectification(resolver="leaky", detail=f"was {value}")

    office.registry.register(Leaky())
    right = (Correction(category=PiiCategory.CONTACT, value=SECRET),)
    enqueue(
        office.outbox,
        *(
            make_entry(
                how, operation="rectify", resolver="leaky", ref=SubjectRef(kind="leaky", value=how), corrections=right
            )
            for how in ("raises", "refuses", "strange", "works")
        ),
        make_entry("cancelled", operation="rectify", corrections=right, next_attempt_at=START + timedelta(days=9)),
    )
    hub, events = Hub(), list[Any]()
    hub.register(events.append)
    with caplog.at_level("DEBUG"):
        runner = SagaRunner(
            office.registry, office.outbox, office.trail, max_attempts=2, telemetry=hub, on_abandoned=Hook()
        )
        for _ in range(3):
            await runner.run_once()
            clock.advance(60)
        waiting = office.outbox.find(status="pending")
        office.outbox.cancel([entry.entry_id for entry in waiting])
    counts = office.outbox.status_counts()
    assert (counts[S.SUCCEEDED], counts[S.ABANDONED], len(told)) == (1, 4, 3)
    everything = [caplog.text, *told, *(repr(event) + str(vars_of(event)) for event in events)]
    with office.database.engine.connect() as connection:
        for table in METADATA.sorted_tables:
            everything += [str(tuple(row)) for row in connection.execute(sa.select(table))]
    assert not [one for one in everything if SECRET in one]


def vars_of(event: Any) -> dict[str, Any]:
    names = [name for kind in type(event).__mro__ for name in getattr(kind, "__slots__", ())]
    return {name: getattr(event, name, None) for name in names}
