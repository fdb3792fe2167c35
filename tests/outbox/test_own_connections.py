"""Entries in a transaction on a connection of the driver's own, or on a Connection of SQLAlchemy's: as in a Session."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, NamedTuple
from uuid import uuid4

import psycopg
import pytest
import sqlalchemy as sa
from psycopg.rows import dict_row
from sqlalchemy.ext.asyncio import create_async_engine

from holdfast.errors import ConfigurationError
from holdfast.outbox.draft import Draft
from holdfast.outbox.inserts import MANY
from holdfast.outbox.outbox import Outbox
from holdfast.outbox.tables import bind_tables
from tests.databases import Database, fresh_database
from tests.outbox.entries import make_entry, open_outbox, stored
from tests.outbox.test_enqueue import ASYNC
from tests.outbox.test_enqueue import number_of_entries as entries_in

ADD_ORDER = "INSERT INTO orders (id) VALUES (1)"


@contextmanager
def sqlalchemy_connection(database: Database, **_: Any) -> Iterator[Any]:
    with database.engine.connect() as connection:
        yield connection


@contextmanager
def driver_connection(database: Database, **options: Any) -> Iterator[Any]:
    if database.name == "sqlite":
        connection: Any = sqlite3.connect(database.url.removeprefix("sqlite:///"), **options)
    else:
        connection = psycopg.connect(database.url.replace("+psycopg", ""), **options)
    yield connection
    connection.close()


class Own(NamedTuple):
    """A database with an outbox, and a way to have connections of one's own to it."""

    database: Database
    outbox: Outbox
    connect: Callable[..., AbstractContextManager[Any]]

    def execute(self, connection: Any, text: str) -> None:
        connection.execute(sa.text(text) if isinstance(connection, sa.Connection) else text)


@contextmanager
def opened(name: str, connect: Callable[..., Any], tmp_path: Path) -> Iterator[Own]:
    with fresh_database(name, tmp_path) as database:
        yield Own(database, open_outbox(database), lambda **options: connect(database, **options))


EVERYWHERE = [
    ("sqlite", driver_connection),
    ("postgres", driver_connection),
    ("sqlite", sqlalchemy_connection),
    ("postgres", sqlalchemy_connection),
    ("mariadb", sqlalchemy_connection),
]
DRIVERS = EVERYWHERE[:2]


def name_of(case: Any) -> str:
    return f"{case[0]}-{case[1].__name__.partition('_')[0]}"


@pytest.fixture(params=EVERYWHERE, ids=name_of)
def own(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Own]:
    with opened(*request.param, tmp_path) as own:
        yield own


@pytest.fixture(params=DRIVERS, ids=name_of)
def driven(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Own]:
    """On the driver's own connections only."""
    with opened(*request.param, tmp_path) as own:
        yield own


@pytest.fixture
def postgres(tmp_path: Path) -> Iterator[Own]:
    with opened("postgres", driver_connection, tmp_path) as own:
        yield own


def rows_in(own: Own, table: str) -> int:
    """By a reader, whom no writer of SQLite's keeps waiting."""
    with own.database.engine.connect() as connection:
        return int(connection.execute(sa.text(f"SELECT count(*) FROM {table}")).scalar_one())


def number_of_orders(own: Own) -> int:
    return rows_in(own, "orders")


def number_of_entries(own: Own) -> int:
    return rows_in(own, "holdfast_outbox")


def test_entries_live_with_the_callers_rows(own: Own) -> None:
    given = make_entry(status="failed", attempts=3, last_error="Boom")
    with own.connect() as connection:
        own.execute(connection, ADD_ORDER)
        put = own.outbox.put(connection, "charge", {"amount": 5}, target="bank", key="k")
        published = own.outbox.publish(connection, "orders", {"id": 1}, delay=timedelta(hours=1))
        own.outbox.enqueue(connection, [given])
        assert number_of_entries(own) == 0
        connection.commit()
    assert number_of_orders(own) == 1
    assert stored(own.outbox, put).payload == {"amount": 5}
    later = stored(own.outbox, published)
    assert later.next_attempt_at is not None
    assert later.next_attempt_at - later.enqueued_at == timedelta(hours=1)
    assert abs(later.enqueued_at - datetime.now(UTC)) < timedelta(minutes=5)
    assert stored(own.outbox, given) == given


def test_entries_die_with_the_callers_rows(own: Own) -> None:
    with own.connect() as connection:
        own.execute(connection, ADD_ORDER)
        own.outbox.put(connection, "charge", target="bank", key="k", dedupe_key="d")
        own.outbox.put_many(connection, [Draft("charge", target="bank")] * (MANY + 1))
        own.outbox.enqueue(connection, [make_entry()])
        connection.rollback()
    assert number_of_orders(own) == number_of_entries(own) == 0


def test_the_first_statement_of_a_transaction_may_be_ours(own: Own) -> None:
    with own.connect() as connection:
        own.outbox.put(connection, "charge", target="bank", key="k")
        own.execute(connection, ADD_ORDER)
        connection.rollback()
        own.outbox.put(connection, "charge", target="bank")
        own.execute(connection, ADD_ORDER)
        connection.commit()
    assert number_of_orders(own) == number_of_entries(own) == 1


def test_a_savepoint_takes_only_its_own_entries_with_it(own: Own) -> None:
    with own.connect() as connection:
        own.execute(connection, ADD_ORDER)
        kept = own.outbox.put(connection, "charge", target="bank", key="k")
        own.execute(connection, "SAVEPOINT step")
        own.outbox.put(connection, "charge", target="bank", key="k")
        own.execute(connection, "ROLLBACK TO SAVEPOINT step")
        connection.commit()
    assert [entry.entry_id for entry in own.outbox.claim_batch()] == [kept]


def test_a_live_entry_with_the_same_dedupe_key_is_found(own: Own) -> None:
    with own.connect() as connection:
        first = own.outbox.put(connection, "charge", target="bank", dedupe_key="d")
        assert own.outbox.put(connection, "charge", target="bank", dedupe_key="d") == first
        connection.commit()
        drafts = [Draft("charge", target="bank", dedupe_key=key) for key in ("d", "ä'\"", "d")]
        again, other, third = own.outbox.put_many(connection, drafts)
        connection.commit()
    assert again == third == first
    assert stored(own.outbox, other).dedupe_key == "ä'\""
    assert number_of_entries(own) == 2


def test_very_many_that_cannot_all_be_stored_leave_none_and_the_transaction_alive(own: Own) -> None:
    with own.connect() as connection:
        own.execute(connection, ADD_ORDER)
        with pytest.raises(ValueError, match="payload is a object"):
            own.outbox.put_many(connection, [*[Draft("ping", target="x")] * MANY, Draft("ping", object(), target="x")])
        ids = own.outbox.put_many(connection, [Draft("ping", target="x", key="k")] * MANY)
        connection.commit()
    assert number_of_orders(own) == 1
    assert number_of_entries(own) == len(set(ids)) == MANY


def test_rows_of_the_callers_own_kind_do_not_disturb(driven: Own) -> None:
    with driven.connect() as connection:
        as_dict = dict_row if driven.database.name == "postgres" else lambda cursor, row: {"row": row}
        connection.row_factory = as_dict
        first = driven.outbox.put(connection, "charge", target="bank", dedupe_key="d")
        assert driven.outbox.put(connection, "charge", target="bank", dedupe_key="d") == first
        driven.outbox.put_many(connection, [Draft("ping", target="x", key="k")] * MANY)
        assert connection.row_factory is as_dict
        connection.commit()
    assert number_of_entries(driven) == MANY + 1


def test_whoever_enqueues_a_key_keeps_others_from_it_until_the_commit(driven: Own) -> None:
    impatient: dict[str, Any] = {"timeout": 0} if driven.database.name == "sqlite" else {}
    with driven.connect() as one, driven.connect(**impatient) as two:
        first = driven.outbox.put(one, "charge", target="bank", key="k")
        if not impatient:
            two.execute("SET lock_timeout = 1")
            two.commit()
        with pytest.raises((psycopg.errors.LockNotAvailable, sqlite3.OperationalError)):
            driven.outbox.put(two, "charge", target="bank", key="k")
        two.rollback()
        one.commit()
        second = driven.outbox.put(two, "charge", target="bank", key="k")
        two.commit()
    assert stored(driven.outbox, first).enqueued_at < stored(driven.outbox, second).enqueued_at


def test_without_a_transaction_each_call_commits(driven: Own) -> None:
    manually = {"isolation_level": None} if driven.database.name == "sqlite" else {"autocommit": True}
    with driven.connect(**manually) as connection:
        driven.outbox.put(connection, "charge", target="bank", key="k")
        driven.outbox.put_many(connection, [Draft("ping", target="x")] * MANY)
        assert number_of_entries(driven) == MANY + 1


def test_a_transaction_that_the_caller_began_by_hand_is_joined(driven: Own) -> None:
    manually = {"isolation_level": None} if driven.database.name == "sqlite" else {"autocommit": True}
    with driven.connect(**manually) as connection:
        connection.execute("BEGIN")
        driven.outbox.put(connection, "charge", target="bank", key="k")
        with pytest.raises(ValueError, match="payload is a object"):
            driven.outbox.put_many(
                connection, [*[Draft("ping", target="x")] * MANY, Draft("ping", object(), target="x")]
            )
        driven.outbox.put_many(connection, [Draft("ping", target="x")] * MANY)
        assert number_of_entries(driven) == 0
        connection.execute("COMMIT")
    assert number_of_entries(driven) == MANY + 1


def test_the_errors_are_those_of_the_driver(driven: Own) -> None:
    entry = make_entry()
    with driven.connect() as connection:
        driven.outbox.enqueue(connection, [entry])
        with pytest.raises((psycopg.errors.UniqueViolation, sqlite3.IntegrityError)):
            driven.outbox.enqueue(connection, [entry])


def test_whoever_listens_is_told_after_the_commit(postgres: Own) -> None:
    with postgres.connect(autocommit=True) as listener, postgres.connect() as connection:
        listener.execute("LISTEN holdfast")
        postgres.outbox.put(connection, "charge", target="bank")
        connection.commit()
        assert [one.payload for one in listener.notifies(timeout=60, stop_after=1)] == [":outbox holdfast_outbox"]


def test_a_pipeline_of_the_callers_takes_entries_along(postgres: Own) -> None:
    with postgres.connect() as connection, connection.pipeline():
        connection.execute(ADD_ORDER)
        first = postgres.outbox.put(connection, "charge", target="bank", key="k", dedupe_key="d")
        assert postgres.outbox.put(connection, "charge", target="bank", dedupe_key="d") == first
        connection.commit()
    assert number_of_orders(postgres) == number_of_entries(postgres) == 1


def test_a_table_may_have_any_name(tmp_path: Path) -> None:
    with fresh_database("postgres", tmp_path) as database:
        metadata = sa.MetaData()
        tables = bind_tables(metadata, f"it's {uuid4().hex[:6]} ")
        metadata.create_all(database.engine)
        outbox = open_outbox(database._replace(tables=tables))
        with driver_connection(database) as connection:
            outbox.put(connection, "charge", target="bank", key="k")
            connection.commit()
        with database.sessions.begin() as session:
            outbox.put(session, "charge", target="bank")
            outbox.put_many(session, [Draft("ping", target="x")] * MANY)
        assert entries_in(outbox) == MANY + 2
        metadata.drop_all(database.engine)


@pytest.mark.parametrize("database", sorted(ASYNC), indirect=True)
async def test_an_asynchronous_connection_of_sqlalchemy_is_joined(database: Database) -> None:
    outbox = open_outbox(database)
    _, _, rest = database.url.partition("://")
    engine = create_async_engine(f"{ASYNC[database.name]}://{rest}")
    async with engine.begin() as connection:
        await outbox.aput(connection, "charge", target="bank", key="k")
    async with engine.connect() as connection:
        await outbox.apublish(connection, "orders", {"id": 1})
        await connection.rollback()
    await engine.dispose()
    assert entries_in(outbox) == 1


async def test_what_has_no_transaction_for_it_is_refused(postgres: Own) -> None:
    async with await psycopg.AsyncConnection.connect(postgres.database.url.replace("+psycopg", "")) as connection:
        for wrong in (connection, object(), None):
            with pytest.raises(ConfigurationError, match=r"psycopg\.Connection or a sqlite3\.Connection"):
                postgres.outbox.put(wrong, "charge", target="bank")  # type: ignore[arg-type]  # that is the point
