"""Putting calls into the outbox, in the caller's transaction."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta, timezone
from typing import Any
from uuid import UUID, uuid4

import pytest
import sqlalchemy as sa
from sqlalchemy.exc import IntegrityError
from sqlalchemy.ext.asyncio import async_sessionmaker, create_async_engine
from sqlalchemy.orm import scoped_session

from holdfast.errors import ConfigurationError
from holdfast.machine.outbox_entry import OutboxStatus
from holdfast.outbox.draft import Draft
from holdfast.outbox.outbox import Outbox
from holdfast.outbox.subject import CompositeSubjectId, SubjectRef
from holdfast.testing import ManualClock
from tests.databases import ORDERS, Database
from tests.outbox.entries import (
    HOUR,
    MINUTE,
    START,
    enqueue,
    make_entry,
    make_rectify,
    nothing,
    open_outbox,
    raw,
    status_of,
    stored,
)

ASYNC = {"sqlite": "sqlite+aiosqlite", "postgres": "postgresql+psycopg"}
"""The databases that have an asynchronous driver here."""


class Statements:
    """Counts what an engine executes."""

    def __init__(self, engine: sa.Engine) -> None:
        self.seen: list[str] = []
        sa.event.listen(engine, "before_cursor_execute", self._see)

    def _see(self, connection: Any, cursor: Any, statement: str, *rest: Any) -> None:
        self.seen.append(statement)


def put(outbox: Outbox, operation: str = "charge", payload: Any = None, **more: Any) -> UUID:
    with outbox.sessions.factory.begin() as session:
        return outbox.put(session, operation, payload, target=more.pop("target", "bank"), **more)


def number_of_entries(outbox: Outbox) -> int:
    return sum(outbox.status_counts().values())


def test_an_entry_lives_with_the_callers_rows(outbox: Outbox, database: Database) -> None:
    with database.sessions.begin() as session:
        session.execute(ORDERS.insert(), {"id": 1})
        entry_id = outbox.put(session, "charge", {"amount": 5}, target="bank")
    assert stored(outbox, entry_id).payload == {"amount": 5}


def test_an_entry_dies_with_the_callers_rows(outbox: Outbox, database: Database) -> None:
    with pytest.raises(ZeroDivisionError), database.sessions.begin() as session:
        outbox.put(session, "charge", target="bank", key="k")
        outbox.enqueue(session, [make_entry()])
        outbox.publish(session, "orders", {"id": 1})
        raise ZeroDivisionError
    assert number_of_entries(outbox) == 0


def test_a_savepoint_takes_only_its_own_entries_with_it(outbox: Outbox, database: Database) -> None:
    with database.sessions.begin() as session:
        kept = outbox.put(session, "charge", target="bank", key="k")
        with pytest.raises(ZeroDivisionError), session.begin_nested():
            outbox.put(session, "charge", target="bank", key="k")
            raise ZeroDivisionError
    assert [entry.entry_id for entry in outbox.claim_batch()] == [kept]


def test_enqueue_never_commits(outbox: Outbox, database: Database) -> None:
    with database.sessions() as session:
        outbox.enqueue(session, [make_entry()])
        session.rollback()
    assert number_of_entries(outbox) == 0


def test_status_and_times_are_stored_as_they_are(outbox: Outbox) -> None:
    later = START + HOUR
    given = make_entry(status="failed", attempts=3, next_attempt_at=later, last_attempt_at=START, last_error="Boom")
    enqueue(outbox, given)
    assert stored(outbox, given) == given


def test_a_time_with_an_offset_is_stored_in_utc(outbox: Outbox) -> None:
    east = timezone(timedelta(hours=5, minutes=30))
    entry = make_entry(next_attempt_at=datetime(2026, 1, 1, 6, 30, tzinfo=east))
    enqueue(outbox, entry)
    kept = raw(outbox, entry, "next_attempt_at")
    assert (kept if kept.tzinfo else kept.replace(tzinfo=UTC)) == datetime(2026, 1, 1, 1, tzinfo=UTC)
    assert stored(outbox, entry).next_attempt_at == START + HOUR


@pytest.mark.parametrize("status", ["succeeded", "abandoned"])
def test_an_entry_that_has_ended_is_stored_without_its_payload(outbox: Outbox, status: str) -> None:
    (entry,) = enqueue(outbox, make_rectify(status=status))
    assert raw(outbox, entry, "payload") is None


def test_the_same_id_twice_is_an_error(outbox: Outbox) -> None:
    (entry,) = enqueue(outbox, make_entry())
    with pytest.raises(IntegrityError):
        enqueue(outbox, entry)


def test_no_entries_are_no_statement(outbox: Outbox, database: Database) -> None:
    statements = Statements(database.engine)
    enqueue(outbox)
    assert statements.seen == []


def test_ten_thousand_entries_go_in_few_statements(outbox: Outbox, database: Database) -> None:
    statements = Statements(database.engine)
    with database.sessions.begin() as session:
        ids = outbox.put_many(session, (Draft.publish("t", {"n": n}, key=f"k{n % 700}") for n in range(10_000)))
    assert len(statements.seen) <= 15
    assert number_of_entries(outbox) == len(set(ids)) == 10_000
    assert list(ids) == sorted(ids)


@pytest.mark.parametrize("database", ["postgres"], indirect=True)
def test_one_entry_and_its_wake_up_are_one_statement_on_postgresql(database: Database) -> None:
    statements = Statements(database.engine)
    put(open_outbox(database), key="k", delay=MINUTE)
    assert len(statements.seen) == 1


# -- put and publish


def test_put_writes_what_it_was_given(outbox: Outbox) -> None:
    saga, before = uuid4(), uuid4()
    entry_id = uuid4()
    given = put(
        outbox, payload={"amount": 5}, ref=SubjectRef(kind="iban", value="DE1"), subject_id="ann", key="acc-1",
        queue="slow", headers={"x": "y"}, saga_id=saga, step="pay", direction="forward", depends_on=before,
        entry_id=entry_id,
    )  # fmt: skip
    entry = stored(outbox, entry_id)
    assert given == entry_id
    assert (entry.operation, entry.resolver, entry.payload, entry.subject_id) == (
        "charge",
        "bank",
        {"amount": 5},
        "ann",
    )
    assert (entry.ref.kind, entry.ref.value, entry.ordering_key, entry.queue) == ("iban", "DE1", "acc-1", "slow")
    assert (entry.headers, entry.saga_id, entry.step) == ({"x": "y"}, saga, "pay")
    assert (entry.direction, entry.depends_on, entry.enqueued_at) == ("forward", before, START)
    assert (entry.status, entry.attempts, entry.next_attempt_at) == (OutboxStatus.PENDING, 0, None)


def test_without_a_subject_the_group_is_the_key_or_the_entry_itself(outbox: Outbox) -> None:
    assert stored(outbox, put(outbox, key="acc-1")).subject_id == "acc-1"
    alone = put(outbox)
    assert stored(outbox, alone).subject_id == str(alone)
    assert stored(outbox, put(outbox, subject_id=CompositeSubjectId(values=("a", "b")))).subject_id == "a\x1fb"


def test_without_a_ref_the_target_gets_the_subject(outbox: Outbox) -> None:
    ref = stored(outbox, put(outbox, subject_id="ann")).ref
    assert (ref.kind, ref.value, ref.extra) == ("bank", "ann", {})


def test_publish_is_an_operation_whose_ref_is_the_topic(outbox: Outbox, database: Database) -> None:
    with database.sessions.begin() as session:
        entry_id = outbox.publish(session, "orders.created", {"id": 1}, key="order-1", headers={"a": "b"})
    entry = stored(outbox, entry_id)
    assert (entry.operation, entry.resolver, entry.ref.kind, entry.ref.value) == (
        "publish",
        "default",
        "topic",
        "orders.created",
    )
    assert (entry.ordering_key, entry.subject_id, entry.payload) == ("order-1", "order-1", {"data": {"id": 1}})


@pytest.mark.parametrize("payload", [{"a": 1}, [1, 2], "text", 7, False, {"deep": {"ü": [None, 1.5]}}])
def test_any_json_can_be_published(outbox: Outbox, database: Database, payload: Any) -> None:
    with database.sessions.begin() as session:
        entry_id = outbox.publish(
            session, "t", payload, type="made", content_type="application/vnd.shop+json", attributes={"a": 1}
        )
    said = {"type": "made", "content_type": "application/vnd.shop+json", "attributes": {"a": 1}}
    assert stored(outbox, entry_id).payload == {"data": payload, **said}


def test_an_unknown_operation_is_refused_with_the_names_of_the_known_ones(outbox: Outbox) -> None:
    with pytest.raises(ConfigurationError, match=r"'chrage'; registered: charge, erase, ping, rectify"):
        put(outbox, "chrage")


@pytest.mark.parametrize(
    ("more", "message"),
    [
        ({"payload": {"x": object()}}, r"payload.x is a object, which is not JSON"),
        ({"payload": {"x": "y" * 2000}}, r"payload has 2008 bytes as JSON, and 1000 are allowed; .*max_payload"),
        ({"payload": {"x": "ü" * 600}}, r"payload has 1208 bytes"),
        ({"payload": b"bytes"}, r"payload is a bytes"),
        ({"target": ""}, r"target must have 1 to 255 characters, got 0"),
        ({"key": "k" * 256}, r"key must have 1 to 255 characters, got 256"),
        ({"key": "k\0"}, r"key holds U\+0000"),
        ({"key": ["k"]}, r"key must be a text, got a list"),
        ({"dedupe_key": "\ud800"}, r"dedupe_key holds"),
        ({"queue": "q" * 65}, r"queue must have 1 to 64"),
        ({"subject_id": 7}, r"subject_id must be a text, got a int"),
        ({"delay": MINUTE, "at": START}, r"give delay or at, not both"),
        ({"delay": -MINUTE}, r"delay must not be below 0"),
        ({"headers": {"x": 1}}, r"header x must be a text"),
    ],
)
def test_what_cannot_be_stored_is_refused_and_nothing_is_written(
    database: Database, more: dict[str, Any], message: str
) -> None:
    outbox = open_outbox(database, max_payload=1000)
    with pytest.raises(ValueError, match=message):
        put(outbox, **more)
    assert number_of_entries(outbox) == 0


def test_an_oversized_payload_of_an_entry_is_refused_as_well(database: Database) -> None:
    outbox = open_outbox(database, max_payload=1000)
    with pytest.raises(ValueError, match="payload has"):
        enqueue(outbox, make_entry(operation="charge", payload={"x": "y" * 2000}))


def test_an_async_session_is_sent_to_the_async_methods(outbox: Outbox) -> None:
    session: Any = async_sessionmaker()()
    with pytest.raises(ConfigurationError, match="aput"):
        outbox.put(session, "charge", target="bank")


def test_a_scoped_session_is_a_session(outbox: Outbox, database: Database) -> None:
    scoped: Any = scoped_session(database.sessions)
    entry_id = outbox.put(scoped, "charge", target="bank", key="k")
    scoped.commit()
    scoped.remove()
    assert stored(outbox, entry_id).ordering_key == "k"


# -- delayed starts


def test_a_delayed_call_is_due_after_its_delay(outbox: Outbox, clock: ManualClock) -> None:
    entry_id = put(outbox, delay=MINUTE)
    assert outbox.claim_batch() == ()
    clock.advance(60)
    assert [entry.entry_id for entry in outbox.claim_batch()] == [entry_id]


def test_a_call_can_wait_for_a_time(outbox: Outbox, clock: ManualClock) -> None:
    put(outbox, at=START.replace(tzinfo=None) + HOUR)
    clock.advance(3599)
    assert outbox.claim_batch() == ()
    clock.advance(1)
    assert len(outbox.claim_batch()) == 1


def test_the_delay_counts_from_the_servers_time(database: Database) -> None:
    outbox = open_outbox(database)
    entry = stored(outbox, put(outbox, delay=HOUR))
    assert entry.next_attempt_at == entry.enqueued_at + HOUR
    now = outbox.run(outbox.now)
    assert abs(now - entry.enqueued_at) < MINUTE


# -- dedupe keys


def test_a_live_entry_with_the_same_dedupe_key_makes_a_put_a_no_op(outbox: Outbox) -> None:
    first = put(outbox, dedupe_key="d", payload={"n": 1})
    assert put(outbox, dedupe_key="d", payload={"n": 2}) == first
    assert put(outbox, dedupe_key="other") != first
    assert number_of_entries(outbox) == 2
    assert stored(outbox, first).payload == {"n": 1}


def test_duplicates_within_one_call_are_left_out(outbox: Outbox, database: Database) -> None:
    with database.sessions.begin() as session:
        drafts = [Draft("charge", target="bank", dedupe_key=f"d{n % 3}") for n in range(9)]
        ids = outbox.put_many(session, [*drafts, Draft("charge", target="bank")])
    assert ids[:3] == ids[3:6] == ids[6:9]
    assert number_of_entries(outbox) == len(set(ids)) == 4


def test_enqueue_leaves_duplicates_out(outbox: Outbox) -> None:
    first, second, plain = enqueue(outbox, make_entry(dedupe_key="d"), make_entry(dedupe_key="d"), make_entry())
    assert [outbox.get(one.entry_id) is not None for one in (first, second, plain)] == [True, False, True]


def test_a_dedupe_key_is_free_again_once_its_entry_has_ended(outbox: Outbox) -> None:
    first = put(outbox, dedupe_key="d")
    (claimed,) = outbox.claim_batch()
    assert put(outbox, dedupe_key="d") == first
    assert outbox.mark_succeeded(claimed, on_subject_complete=nothing)
    assert put(outbox, dedupe_key="d") != first
    assert status_of(outbox, claimed) == OutboxStatus.SUCCEEDED


@pytest.mark.parametrize("first_commits", [True, False])
def test_of_two_transactions_with_one_dedupe_key_the_second_waits_for_the_first(
    database: Database, first_commits: bool
) -> None:
    outbox, begun = open_outbox(database), threading.Event()
    other: list[UUID] = []

    def second() -> None:
        begun.set()
        other.append(put(outbox, dedupe_key="d"))

    with ThreadPoolExecutor(1) as pool:
        with database.sessions() as session:
            first = outbox.put(session, "charge", target="bank", dedupe_key="d")
            waiting = pool.submit(second)
            assert begun.wait(60)
            session.commit() if first_commits else session.rollback()
        waiting.result(60)
    assert (other == [first]) is first_commits
    assert number_of_entries(outbox) == 1


# -- trace headers


def test_the_trace_of_whoever_enqueues_goes_with_the_entry(outbox: Outbox) -> None:
    from opentelemetry import trace
    from opentelemetry.trace import NonRecordingSpan, SpanContext, TraceFlags

    span = NonRecordingSpan(SpanContext(trace_id=0xABC, span_id=0xDEF, is_remote=False, trace_flags=TraceFlags(1)))
    with trace.use_span(span):
        traced = put(outbox)
        given = put(outbox, headers={"traceparent": "mine"})
    assert stored(outbox, traced).headers == {"traceparent": f"00-{0xABC:032x}-{0xDEF:016x}-01"}
    assert stored(outbox, given).headers == {"traceparent": "mine"}
    assert stored(outbox, put(outbox)).headers is None


# -- AsyncSession


@pytest.mark.parametrize("database", ASYNC, indirect=True)
async def test_an_async_session_enqueues_with_its_own_rows(outbox: Outbox, database: Database) -> None:
    engine = create_async_engine(sa.make_url(database.url).set(drivername=ASYNC[database.name]))
    sessions = async_sessionmaker(engine)
    async with sessions.begin() as session:
        ids = [
            await outbox.aput(session, "charge", {"n": 1}, target="bank", key="k"),
            await outbox.apublish(session, "orders", {"n": 2}, key="k", delay=MINUTE, dedupe_key="d"),
            *await outbox.aput_many(session, [Draft("ping", target="x", dedupe_key="d")]),
        ]
        await outbox.aenqueue(session, [make_entry()])
    assert ids[1] == ids[2]
    assert stored(outbox, ids[1]).next_attempt_at == START + MINUTE
    with pytest.raises(ZeroDivisionError):
        async with sessions.begin() as session:
            await outbox.aput(session, "charge", target="bank")
            raise ZeroDivisionError
    await engine.dispose()
    assert number_of_entries(outbox) == 3
