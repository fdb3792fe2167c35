"""One row, some rows and very many go into the database in different ways: what is written is the same."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Iterator
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any
from uuid import UUID, uuid4

import psycopg
import pytest
import sqlalchemy as sa
from hypothesis import given, settings
from hypothesis import strategies as st
from sqlalchemy.exc import IntegrityError
from sqlalchemy.ext.asyncio import async_sessionmaker, create_async_engine
from sqlalchemy.orm import Session, sessionmaker

from holdfast.outbox.draft import Draft, rows_of
from holdfast.outbox.inserts import MANY
from holdfast.outbox.outbox import Outbox
from holdfast.outbox.rows import JSON
from holdfast.outbox.subject import CompositeSubjectId, SubjectRef
from holdfast.outbox.tables import bind_tables
from tests.conftest import SIZE
from tests.databases import METADATA, ORDERS, Database, open_database
from tests.outbox.entries import START, make_entry, open_outbox, operations, stored
from tests.outbox.test_enqueue import Statements, number_of_entries, put

only_postgres = pytest.mark.parametrize("database", ["postgres"], indirect=True)
LARGEST = 1 << 20

texts = st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"]), min_size=1, max_size=20)
numbers = st.integers(-(2**50), 2**50) | st.integers(-(2**20), 2**20).map(lambda number: number / 8)
payloads = st.recursive(
    st.none() | st.booleans() | numbers | texts | st.just(""),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(texts, inner, max_size=3),
    max_leaves=8,
)
starts = st.one_of(
    st.just({}),
    st.datetimes(datetime(2000, 1, 1), datetime(2100, 1, 1)).map(lambda at: {"at": at}),  # noqa: DTZ001  # read as UTC
    st.timedeltas(timedelta(0), timedelta(days=400)).map(lambda delay: {"delay": delay}),
)
drafts = st.builds(
    lambda start, **given: Draft("ping", **given, **start),
    starts,
    payload=payloads,
    target=texts,
    ref=st.none() | st.builds(SubjectRef, kind=texts, value=texts, extra=st.dictionaries(texts, payloads, max_size=2)),
    # Without one it is the entry's id, and would differ each time.
    subject_id=texts | st.lists(texts, min_size=1, max_size=3).map(lambda some: CompositeSubjectId(values=tuple(some))),
    key=st.none() | texts,
    queue=texts,
    headers=st.none() | st.dictionaries(texts, texts | st.just(""), max_size=2),
    saga_id=st.none() | st.uuids(version=4),
    step=st.none() | texts,
    direction=st.none() | st.text("abc", min_size=1, max_size=16),
    depends_on=st.none() | st.uuids(version=4),
)


def written(outbox: Outbox, ids: Any) -> list[dict[str, Any]]:
    """All there is of these rows, in the order of their ids, but for the ids."""
    table = outbox.tables.outbox
    found = sa.select(*(column for column in table.c if column.name != "entry_id"))
    with outbox.sessions.factory() as session:
        rows = session.execute(found.where(table.c.entry_id.in_(ids)).order_by(table.c.entry_id)).mappings()
        return [dict(row) for row in rows]


def by_the_book(outbox: Outbox, some: list[Draft]) -> list[UUID]:
    """Written by SQLAlchemy alone."""
    rows = [*rows_of(some, len(some), LARGEST)]
    for row in rows:
        delay, row["enqueued_at"] = row.pop("delay"), START
        row["next_attempt_at"] = START + delay if delay else row["next_attempt_at"]
        row |= {name: json.loads(row[name]) for name in JSON if row.get(name) is not None}
    with outbox.sessions.factory.begin() as session:
        session.execute(outbox.tables.outbox.insert(), rows)
    return [row["entry_id"] for row in rows]


def one_by_one(outbox: Outbox, some: list[Draft]) -> list[UUID]:
    with outbox.sessions.factory.begin() as session:
        return [id for one in some for id in outbox.put_many(session, [one])]


def together(outbox: Outbox, some: list[Draft]) -> list[UUID]:
    with outbox.sessions.factory.begin() as session:
        return [*outbox.put_many(session, some)]


def loaded(outbox: Outbox, some: list[Draft]) -> list[UUID]:
    keys = {one.key for one in some if one.key is not None}
    with outbox.sessions.factory.begin() as session:
        rows = rows_of(some, len(some), LARGEST)
        ids = outbox.inserts(session).load(session, rows, keys, outbox.now)
    assert ids is not None
    return ids


def by_the_driver(outbox: Outbox, some: list[Draft]) -> list[UUID]:
    url = outbox.sessions.factory.kw["bind"].url  # type: ignore[attr-defined]  # of a sessionmaker
    connection: Any = sqlite3.connect(url.database) if url.drivername == "sqlite" else psycopg.connect(plain(url))
    try:
        ids = [*outbox.put_many(connection, some[:1]), *outbox.put_many(connection, some[1:])]
        connection.commit()
    finally:
        connection.close()
    return ids


def plain(url: sa.URL) -> str:
    return url.set(drivername="postgresql").render_as_string(hide_password=False)


def test_every_way_writes_the_row_that_sqlalchemy_writes(outbox: Outbox, database: Database) -> None:
    ways = (
        *(one_by_one, together),
        *([by_the_driver] if database.name != "mariadb" else []),
        *([loaded] if database.name == "postgres" else []),
    )

    @settings(max_examples=30 * SIZE)
    @given(st.lists(drafts, min_size=1, max_size=4))
    def same(some: list[Draft]) -> None:
        expected = written(outbox, by_the_book(outbox, some))
        for way in ways:
            assert written(outbox, way(outbox, some)) == expected, way.__name__

    same()


def test_a_delay_counts_from_the_servers_time_to_the_microsecond(database: Database) -> None:
    outbox = open_outbox(database)
    delays = [
        timedelta(microseconds=1),
        timedelta(days=399, microseconds=999_999),
        timedelta(hours=5, microseconds=123),
    ]
    some = [Draft("ping", target="x", delay=delay, dedupe_key=str(delay)) for delay in delays]
    for ids in (one_by_one(outbox, some[:1]), one_by_one(outbox, some[1:2]), together(outbox, some[1:])):
        for id in ids:
            entry = stored(outbox, id)
            assert entry.next_attempt_at is not None
            assert str(entry.next_attempt_at - entry.enqueued_at) == entry.dedupe_key


def test_one_entry_is_one_statement_unless_it_has_a_key(database: Database) -> None:
    outbox, statements = open_outbox(database), Statements(database.engine)
    put(outbox, delay=timedelta(seconds=1))
    assert len(statements.seen) == 1


def test_an_entry_goes_where_the_session_sends_its_table(tmp_path: Path, database: Database) -> None:
    elsewhere = sa.create_engine(f"sqlite:///{tmp_path / 'other.db'}") if database.name == "sqlite" else database.engine
    sessions = sessionmaker(elsewhere, binds={database.tables.outbox: database.engine})
    outbox = open_outbox(database)
    with sessions.begin() as session:
        id = outbox.put(session, "ping", target="x")
    assert stored(outbox, id).operation == "ping"


# -- very many


def many(**more: Any) -> Iterator[Draft]:
    return (Draft("ping", {"n": n}, target="x", **more) for n in range(MANY + 1))


def test_very_many_entries_are_written_with_the_callers_rows_or_not_at_all(outbox: Outbox, database: Database) -> None:
    with pytest.raises(ZeroDivisionError), database.sessions.begin() as session:
        outbox.put_many(session, many())
        raise ZeroDivisionError
    with database.sessions.begin() as session:
        with pytest.raises(ZeroDivisionError), session.begin_nested():
            outbox.put_many(session, many(key="k"))
            raise ZeroDivisionError
        ids = outbox.put_many(session, many(key="k"))
    assert number_of_entries(outbox) == len(set(ids)) == MANY + 1
    assert {stored(outbox, ids[0]).enqueued_at, stored(outbox, ids[-1]).enqueued_at} == {START}


def test_a_bad_one_among_very_many_leaves_nothing_behind_and_the_transaction_alive(
    outbox: Outbox, database: Database
) -> None:
    with database.sessions.begin() as session:
        session.execute(ORDERS.insert(), {"id": 1})
        with pytest.raises(ValueError, match="payload is a object"):
            outbox.put_many(session, [*many(), Draft("ping", object(), target="x")])
        session.execute(ORDERS.insert(), {"id": 2})
    with database.sessions() as session:
        assert session.scalars(sa.select(ORDERS.c.id).order_by(ORDERS.c.id)).all() == [1, 2]
    assert number_of_entries(outbox) == 0


def test_a_repeated_id_among_very_many_is_an_error(outbox: Outbox, database: Database) -> None:
    with pytest.raises(IntegrityError), database.sessions.begin() as session:
        outbox.put_many(session, many(entry_id=uuid4()))
    assert number_of_entries(outbox) == 0


def test_very_many_imported_entries_keep_what_they_are(outbox: Outbox, database: Database) -> None:
    entries = [make_entry(f"s{n}", status="failed", attempts=n % 5, last_error="Boom") for n in range(MANY)]
    with database.sessions.begin() as session:
        outbox.enqueue(session, entries)
    for entry in (entries[0], entries[-1]):
        assert stored(outbox, entry) == entry


@only_postgres
def test_very_many_go_by_copy_which_listeners_hear_of_like_any_statement(database: Database) -> None:
    outbox, statements = open_outbox(database), Statements(database.engine)
    with database.sessions.begin() as session:
        factory = session.connection().connection.driver_connection.cursor_factory  # type: ignore[union-attr]  # psycopg's
        outbox.put_many(session, many(key="k"))
        assert session.connection().connection.driver_connection.cursor_factory is factory  # type: ignore[union-attr]
    assert [one.split()[0] for one in statements.seen] == ["WITH", "SAVEPOINT", "COPY", "RELEASE"]


@only_postgres
@pytest.mark.parametrize("prefix", ["50%_", "a%%b_", "%s_", "%(n)s_"])
def test_very_many_go_into_tables_whose_names_have_a_percent_sign(database: Database, prefix: str) -> None:
    metadata = sa.MetaData()
    tables = bind_tables(metadata, prefix)
    metadata.create_all(database.engine)
    try:
        outbox = Outbox(database.sessions, tables.outbox, operations=operations())
        with database.sessions.begin() as session:
            outbox.put_many(session, many())
        with psycopg.connect(plain(database.engine.url)) as connection:
            outbox.put_many(connection, many())
        assert number_of_entries(outbox) == 2 * (MANY + 1)
    finally:
        metadata.drop_all(database.engine)


@only_postgres
def test_very_many_can_go_without_a_transaction(database: Database) -> None:
    outbox = open_outbox(database)
    with Session(database.engine.execution_options(isolation_level="AUTOCOMMIT")) as session:
        with pytest.raises(ValueError, match="payload is a object"):
            outbox.put_many(session, [*many(), Draft("ping", object(), target="x")])
        assert number_of_entries(outbox) == 0
        outbox.put_many(session, many())
    assert number_of_entries(outbox) == MANY + 1


@only_postgres
@pytest.mark.parametrize("number", [1, 2, MANY])
def test_whoever_listens_is_told_of_any_number(database: Database, number: int) -> None:
    outbox = open_outbox(database)
    url = database.url.replace("+psycopg", "")
    with psycopg.connect(url, autocommit=True) as listener:
        listener.execute("LISTEN holdfast")
        with database.sessions.begin() as session:
            outbox.put_many(session, [Draft("ping", target="x")] * number)
        assert [one.payload for one in listener.notifies(timeout=60, stop_after=1)] == [":outbox holdfast_outbox"]


@only_postgres
def test_very_many_obey_row_level_security(database: Database) -> None:
    outbox, role = open_outbox(database), f"tenant_{uuid4().hex}"
    with database.sessions() as session:  # all of it is undone
        for step in (
            f"CREATE ROLE {role}",
            f"GRANT ALL ON holdfast_outbox TO {role}",
            "ALTER TABLE holdfast_outbox ENABLE ROW LEVEL SECURITY",
            "CREATE POLICY own ON holdfast_outbox USING (queue = 'own') WITH CHECK (queue = 'own')",
            f"SET LOCAL ROLE {role}",
        ):
            session.execute(sa.text(step))
        outbox.put_many(session, many(queue="own"))
        assert session.scalar(sa.select(sa.func.count()).select_from(database.tables.outbox)) == MANY + 1
        session.rollback()


@only_postgres
@pytest.mark.parametrize("number", [1, 2, MANY])
def test_entries_go_to_the_schema_that_the_engine_translates_to(database: Database, number: int) -> None:
    other = open_database(database.name, database.url)
    engine = other.engine.execution_options(schema_translate_map={None: "tenant"})
    with engine.begin() as connection:
        connection.execute(sa.text("CREATE SCHEMA tenant"))
        METADATA.create_all(connection)
    try:
        outbox = Outbox(sessionmaker(engine), database.tables.outbox, operations=open_outbox(database).operations)
        with outbox.sessions.factory.begin() as session:
            outbox.put_many(
                session, [Draft("ping", {"n": 1}, target="x", key="k", dedupe_key=f"{n}") for n in range(3)]
            )
            outbox.put_many(session, [Draft("ping", {"n": 2}, target="x")] * number)
        assert number_of_entries(outbox) == number + 3
        assert number_of_entries(open_outbox(database)) == 0
    finally:
        with engine.begin() as connection:
            connection.execute(sa.text("DROP SCHEMA tenant CASCADE"))
        other.engine.dispose()


@pytest.mark.parametrize("database", ["sqlite"], indirect=True)
@pytest.mark.parametrize("number", [1, 2])
def test_entries_go_to_the_attached_database_that_the_engine_translates_to(
    database: Database, tmp_path: Path, number: int
) -> None:
    other = open_database(database.name, database.url)
    tenant = f"ATTACH '{tmp_path / 'tenant.db'}' AS tenant"
    sa.event.listen(other.engine, "connect", lambda connection, _: connection.execute(tenant))
    engine = other.engine.execution_options(schema_translate_map={None: "tenant"})
    METADATA.create_all(engine)
    outbox = open_outbox(other._replace(engine=engine, sessions=sessionmaker(engine)))
    ids = together(outbox, [Draft("ping", {"n": [1]}, target="x", headers={"a": "b"})] * number)
    assert [(stored(outbox, id).payload, stored(outbox, id).headers) for id in ids] == [
        ({"n": [1]}, {"a": "b"})
    ] * number
    assert number_of_entries(open_outbox(database)) == 0
    other.engine.dispose()


@only_postgres
async def test_very_many_go_in_the_transaction_of_an_async_session(outbox: Outbox, database: Database) -> None:
    engine = create_async_engine(database.url)
    async with async_sessionmaker(engine).begin() as session:
        await outbox.aput_many(session, [*many()])
    await engine.dispose()
    assert number_of_entries(outbox) == MANY + 1


@only_postgres
@pytest.mark.parametrize(("keys", "locks"), [(0, 0), (1, 2), (2, 3)])
def test_very_many_hold_the_locks_of_their_keys_until_the_transaction_ends(
    database: Database, keys: int, locks: int
) -> None:
    outbox = open_outbox(database)
    held = sa.text(
        "SELECT count(*) FROM pg_locks JOIN pg_database ON pg_database.oid = database"
        " WHERE locktype = 'advisory' AND datname = current_database()"
    )
    with database.sessions() as session, database.sessions() as other:
        outbox.put_many(session, [draft for n in range(keys) for draft in many(key=f"k{n}")] or many())
        assert other.scalar(held) == locks  # one that all share, and one for each key
        session.commit()
        assert other.scalar(held) == 0
