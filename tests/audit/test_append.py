"""Appending: joined to a transaction or on its own, chained or not, at a constant cost."""

from __future__ import annotations

import json
import re
import sqlite3
from datetime import datetime, timedelta, timezone
from uuid import uuid4

import pytest
import sqlalchemy as sa
from pydantic import ValidationError
from sqlalchemy.exc import OperationalError
from sqlalchemy.orm import sessionmaker
from sqlalchemy.pool import StaticPool

from holdfast.audit.event import AuditEvent, JoiningSink
from holdfast.audit.sink import DatabaseAuditSink
from holdfast.errors import AuditIntegrityError, ConfigurationError
from tests.audit.trail import NAIVE, NOON, event, execute, fill, rows_of, sink_on, statements_of
from tests.databases import METADATA, ORDERS, TABLES, open_database


def test_an_event_is_kept_when_append_returns(database):
    sink = sink_on(database)
    assert isinstance(sink, JoiningSink)
    sink.append(event(entry_id=(entry_id := uuid4())))
    (row,) = rows_of(database)
    assert (row.seq, row.prior_hash, row.entry_id) == (1, None, entry_id)
    assert len(row.event_hash) == 64
    assert sink.read("ann") == (event(entry_id=entry_id),)


def test_without_chain_heads_the_hash_columns_stay_null(database):
    sink = sink_on(database, chained=False)
    with statements_of(database) as seen:
        fill(sink, 20)
    assert len([one for one in seen if one.startswith("INSERT")]) == 1
    assert {row[6:] for row in rows_of(database)} == {(None, None, None, None)}
    with database.engine.connect() as connection:
        assert connection.execute(sa.select(database.tables.chain_heads)).all() == []


def test_events_live_and_die_with_the_transaction_that_they_joined(database):
    sink = sink_on(database)
    with database.sessions() as session:
        session.execute(ORDERS.insert(), {"id": 1})
        sink.append_in(session, [event(1)])
        session.rollback()
    assert sink.read("ann") == ()
    with database.sessions() as session, session.begin():
        session.execute(ORDERS.insert(), {"id": 1})
        sink.append_in(session, iter([event(1), event(2)]))
    assert [row.seq for row in rows_of(database)] == [1, 2]
    assert sink.verify_all()[0].verified


@pytest.mark.parametrize("streams", [1, 16, "subject"])
def test_an_append_of_any_size_is_as_many_statements(database, streams):
    sink = sink_on(database, streams=streams)
    counts = []
    for first in (0, 1000):
        for number in (1, 50, 300):
            events = [event(first + number * 1000 + n, f"subject-{n}") for n in range(number)]
            with statements_of(database) as seen, database.sessions() as session, session.begin():
                sink.append_in(session, events)
            counts.append(len(seen))
    assert counts == [2 if database.name == "postgres" else 3] * 6
    assert all(sink.verify_all())


def test_more_events_than_a_statement_of_sqlite_takes_are_appended(tmp_path):
    database = open_database("sqlite", f"sqlite:///{tmp_path}/app.db")
    usual = sqlite3.SQLITE_LIMIT_VARIABLE_NUMBER, 32_766  # builds differ
    sa.event.listen(database.engine, "connect", lambda connection, _: connection.setlimit(*usual))
    METADATA.create_all(database.engine)
    sink = sink_on(database)
    fill(sink, 3300, subjects=3300)
    assert sum(one.events for one in sink.verify_all() if one) == 3300
    database.engine.dispose()


@pytest.mark.parametrize(
    "options", [{"paramstyle": "named"}, {"json_serializer": lambda value: json.dumps(value) + " "}]
)
def test_what_an_engine_of_the_callers_own_is_set_to_is_respected(tmp_path, options):
    database = open_database("sqlite", f"sqlite:///{tmp_path}/app.db", **options)
    METADATA.create_all(database.engine)
    sink = sink_on(database)
    events = fill(sink, 3)
    assert sink.read("ann") == tuple(events)
    assert all(sink.verify_all())
    with database.engine.connect() as connection:
        (stored, *_) = connection.exec_driver_sql(f"SELECT payload FROM {TABLES.audit_events.name}").scalars()
    assert stored.endswith(" ") is ("json_serializer" in options)
    database.engine.dispose()


def test_an_append_finds_tables_whose_schema_is_translated(tmp_path):
    engine = sa.create_engine("sqlite://", poolclass=StaticPool)
    with engine.begin() as connection:
        connection.exec_driver_sql(f"ATTACH '{tmp_path}/other.db' AS other")
    translated = engine.execution_options(schema_translate_map={None: "other"})
    METADATA.create_all(engine)
    METADATA.create_all(translated)
    sessions = sessionmaker(translated)
    sink = DatabaseAuditSink(sessions, TABLES.audit_events, chain_heads=TABLES.chain_heads)
    sink.append(event(1))
    sink.append(event(2))
    assert sink.read("ann") == (event(1), event(2))
    assert all(sink.verify_all())
    engine.dispose()


def test_appending_nothing_does_nothing(database):
    with statements_of(database) as seen, database.sessions() as session, session.begin():
        sink_on(database).append_in(session, [])
    assert seen == []


def test_events_of_a_stream_are_linked_in_the_order_given(database):
    fill(sink_on(database, streams=1), 30)
    rows = rows_of(database)
    assert [row.seq for row in rows] == list(range(1, 31))
    assert [row.prior_hash for row in rows] == [None, *(row.event_hash for row in rows[:-1])]
    assert [row.payload["refs"] for row in rows] == list(range(30))


def test_subjects_that_differ_in_case_or_spaces_have_chains_of_their_own(database):
    sink = sink_on(database, streams="subject")
    subjects = ["ann", "Ann", "ann ", "änn", "ann\x1f1"]
    fill_each = [event(n, subject) for n, subject in enumerate(subjects)]
    for one in fill_each:
        sink.append(one)
    assert set(sink.streams()) == set(subjects)
    assert all(sink.verify_all())
    assert [sink.read(subject)[0].subject_ref for subject in subjects] == subjects


@pytest.mark.parametrize("chained", [True, False])
def test_a_repeated_event_id_is_refused(database, chained):
    sink = sink_on(database, chained=chained)
    sink.append(event(1))
    with pytest.raises(AuditIntegrityError, match="already"):
        sink.append(event(1, "bob"))
    with pytest.raises(AuditIntegrityError, match="twice"):
        sink.run(lambda session: sink.append_in(session, [event(2), event(2)]))
    assert len(rows_of(database)) == 1
    sink.append(event(3))
    assert not chained or all(sink.verify_all())


def test_an_append_behind_a_head_that_was_set_back_is_refused(database):
    sink = sink_on(database, streams=1)
    fill(sink, 3)
    execute(database, database.tables.chain_heads.update().values(seq=1))
    with pytest.raises(AuditIntegrityError, match="head of an audit stream is behind"):
        sink.append(event(9))


def test_what_is_read_back_is_hashed_as_it_was_written(database):
    """Microseconds, zones, key order, booleans, long numbers and any text survive every database."""
    sink = sink_on(database, streams=1)
    payload = {"z": 1, "a": True, "é\u2028😀": 'quote " and \\ back', "n": 2**70, "m": -1, "empty": "", "f": False}
    odd = datetime(2026, 3, 1, 23, 59, 59, 999_999, tzinfo=timezone(timedelta(hours=5, minutes=45)))
    written = [
        event(1, "é😀\u2028 x ", payload=payload, occurred_at=odd),
        event(2, "é😀\u2028 x ", payload={}, occurred_at=NOON, entry_id=uuid4()),
        event(3, "é😀\u2028 x ", event_type="my_own_type", occurred_at=NAIVE.replace(year=1970, microsecond=1)),
    ]
    sink.run(lambda session: sink.append_in(session, written))
    assert sink.verify("all").verified
    assert [one.event for one in sink.page()] == sorted(written, key=lambda one: one.occurred_at)
    assert type(sink.page()[-1].event.payload["a"]) is bool


def test_an_event_is_made_in_utc_and_refuses_what_it_cannot_hold():
    assert event(occurred_at=NAIVE).occurred_at == NOON
    for wrong in ({"subject": ""}, {"subject": "x" * 256}, {"payload": {"a": 1.5}}, {"payload": {"a": None}}):
        with pytest.raises(ValidationError):
            event(**wrong)
    with pytest.raises(ValidationError):
        AuditEvent(event_type="x" * 65, subject_ref="ann")


def test_a_joined_append_does_not_lock_against_its_own_file(tmp_path):
    """The sink of the original used a second connection, which the caller's own write lock shut out."""
    database = open_database("sqlite", f"sqlite:///{tmp_path}/app.db", connect_args={"timeout": 0.01})
    METADATA.create_all(database.engine)
    sink = sink_on(database)
    with database.sessions() as session, session.begin():
        session.execute(ORDERS.insert(), {"id": 1})
        sink.append_in(session, [event(1)])
        with pytest.raises(OperationalError, match="locked"):
            sink.append(event(2))
    assert [row.seq for row in rows_of(database)] == [1]
    database.engine.dispose()


@pytest.mark.parametrize("pool", [{}, {"poolclass": StaticPool}], ids=["thread's own", "static"])
def test_in_memory_an_append_of_its_own_never_ends_the_callers_transaction(pool):
    engine = sa.create_engine("sqlite://", connect_args={"check_same_thread": False}, **pool)
    METADATA.create_all(engine)
    sessions = sessionmaker(engine)
    sink = DatabaseAuditSink(sessions, TABLES.audit_events, chain_heads=TABLES.chain_heads)
    sink.append(event(1))
    with sessions() as session:
        session.execute(ORDERS.insert(), {"id": 1})
        for act in (lambda: sink.append(event(2)), lambda: sink.read("ann")):
            with pytest.raises(ConfigurationError, match="append_in"):
                act()
        assert session.execute(sa.select(ORDERS.c.id)).all() == [(1,)]
        sink.append_in(session, [event(3)])
        session.rollback()
    with sessions() as session:
        assert session.execute(sa.select(ORDERS.c.id)).all() == []
    assert len(sink.read("ann")) == 1
    engine.dispose()


def test_a_pool_of_one_connection_is_enough(database):
    one = open_database(database.name, database.url, pool_size=1, max_overflow=0, pool_timeout=1)
    sink = sink_on(one)
    with one.sessions() as session, session.begin():
        session.execute(ORDERS.insert(), {"id": 1})
        sink.append_in(session, [event(1)])
    sink.append(event(2))
    assert all(sink.verify_all())
    assert len(sink.checkpoint()) == 1
    one.engine.dispose()


def test_the_search_for_a_head_reads_one_row_of_an_index(database):
    """The original looked for the end of its chain among all events."""
    sink = sink_on(database)
    with statements_of(database) as seen:
        fill(sink, 3)
    events, heads = database.tables.audit_events.name, database.tables.chain_heads.name
    assert not [one for one in seen if f"FROM {events}" in one]
    assert not [one for one in seen if f"FROM {heads}" in one and "WHERE" not in one]
    first, *rest = re.findall(r'INSERT INTO [`"]?(\w+)', "\n".join(seen))
    assert (first, sorted(rest)) == (heads, sorted([events, heads]))


@pytest.mark.parametrize("wrong", [{"key": b"k"}, {"checkpoints": TABLES.checkpoints}])
def test_a_key_or_checkpoints_without_a_chain_are_refused(wrong):
    with pytest.raises(ConfigurationError, match="chain_heads"):
        DatabaseAuditSink(sessionmaker(), TABLES.audit_events, **wrong)


def test_no_session_factory_and_no_chain_are_said_clearly():
    with pytest.raises(ConfigurationError, match="sessionmaker"):
        DatabaseAuditSink("sqlite://", TABLES.audit_events)
    with pytest.raises(ConfigurationError, match="chain_heads"):
        DatabaseAuditSink(sessionmaker(), TABLES.audit_events).verify("all")


def test_sqlite_can_do_what_the_append_asks():
    assert sqlite3.sqlite_version_info >= (3, 35)
