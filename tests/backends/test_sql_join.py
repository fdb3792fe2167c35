"""Changes inside a transaction of the caller's: they live or die with it, and a conflict spoils nothing."""

from __future__ import annotations

import sqlite3
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from enum import StrEnum
from pathlib import Path
from typing import Any

import psycopg
import pytest
import sqlalchemy as sa
from sqlalchemy.orm import Session

from holdfast.backends.sql.store import SqlStore
from holdfast.errors import Conflict, SchemaError
from holdfast.store.port import Delete, Insert, Swap
from holdfast.store.record import evolve
from holdfast.testing.store.kinds import ITEM, PLAIN, Plain, everything, fill, item
from tests.services.postgres import server
from tests.stores import fresh_place

Connect = Callable[[str], Any]


@contextmanager
def sqlalchemy_connection(url: str) -> Iterator[Any]:
    engine = sa.create_engine(driver(url), poolclass=sa.NullPool)
    with engine.connect() as connection:
        yield connection
    engine.dispose()


@contextmanager
def sqlalchemy_session(url: str) -> Iterator[Any]:
    engine = sa.create_engine(driver(url), poolclass=sa.NullPool)
    with Session(engine) as session:
        yield session
    engine.dispose()


@contextmanager
def sqlite3_connection(url: str) -> Iterator[Any]:
    connection = sqlite3.connect(url.removeprefix("sqlite:///"))
    yield connection
    connection.close()


@contextmanager
def psycopg_connection(url: str) -> Iterator[Any]:
    with psycopg.connect(url) as connection:
        yield connection


def driver(url: str) -> str:
    return url.replace("postgresql://", "postgresql+psycopg://")


CASES = [
    ("sqlite", sqlite3_connection),
    ("sqlite", sqlalchemy_connection),
    ("sqlite", sqlalchemy_session),
    ("postgres", psycopg_connection),
    ("postgres", sqlalchemy_connection),
    ("postgres", sqlalchemy_session),
]


class Joined:
    """A store with a record, and a way to open transactions of one's own on its database."""

    def __init__(self, store: SqlStore, connect: Callable[[], Any]) -> None:
        self.store = store
        self.connect = connect
        fill(store, [item("there", token="taken")])


@pytest.fixture(params=CASES, ids=lambda case: f"{case[0]}-{case[1].__name__}")
def joined(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Joined]:
    name, connect = request.param
    with fresh_place(name, tmp_path) as place:
        store = place.open()
        assert isinstance(store, SqlStore)
        yield Joined(store, lambda: connect(place.url))
        store.close()


def test_changes_are_there_when_the_caller_commits(joined: Joined) -> None:
    there = item("there", token="taken")
    with joined.connect() as connection:
        joined.store.commit(
            [Insert(ITEM, item("new", lane="right")), Swap(ITEM, there, evolve(there, size=7))], connection=connection
        )
        connection.commit()
    assert everything(joined.store) == [item("new", lane="right"), evolve(there, size=7)]
    assert joined.store.tally(ITEM, ("lane",)) == {("left",): 1, ("right",): 1}


def test_changes_are_gone_when_the_caller_rolls_back(joined: Joined) -> None:
    with joined.connect() as connection:
        joined.store.commit([Delete(ITEM, item("there"))], connection=connection)
        joined.store.commit([Insert(ITEM, item("new"))], connection=connection)
        connection.rollback()
    assert everything(joined.store) == [item("there", token="taken")]
    assert joined.store.tally(ITEM) == {(): 1}


def test_a_conflict_undoes_its_commit_and_leaves_the_transaction_usable(joined: Joined) -> None:
    with joined.connect() as connection:
        joined.store.commit([Insert(ITEM, item("before"))], connection=connection)
        with pytest.raises(Conflict) as caught:
            joined.store.commit(
                [
                    Insert(ITEM, item("half")),
                    Insert(ITEM, item("clash", token="taken")),
                    Delete(ITEM, evolve(item("there"))),
                ],
                connection=connection,
            )
        assert caught.value.lost == (1, 2)
        joined.store.commit([Insert(ITEM, item("after"))], connection=connection)
        connection.commit()
    assert [one.id for one in everything(joined.store)] == ["after", "before", "there"]


def test_nobody_sees_the_changes_before_the_caller_commits(joined: Joined) -> None:
    with joined.connect() as connection:
        joined.store.commit([Insert(ITEM, item("new"))], connection=connection)
        assert joined.store.get(ITEM, ["new"]) == [None]
        connection.commit()
    assert joined.store.get(ITEM, ["new"]) == [item("new")]


def test_subscribers_are_told_when_the_caller_commits(joined: Joined) -> None:
    heard = threading.Event()
    joined.store.subscribe("topic", heard.set)
    with joined.connect() as connection:
        joined.store.commit([Insert(ITEM, item("new"))], wake="topic", connection=connection)
        assert not heard.wait(0.3)
        connection.commit()
    assert heard.wait(10)


class Colour(StrEnum):
    RED = "crimson"


def test_members_of_an_enumeration_are_stored_as_their_values(joined: Joined) -> None:
    with joined.connect() as connection:
        joined.store.commit([Insert(ITEM, item("new", state=Colour.RED))], connection=connection)
        connection.commit()
    joined.store.commit([Insert(ITEM, item("own", state=Colour.RED))])
    assert [one and one.state for one in joined.store.get(ITEM, ["new", "own"])] == ["crimson", "crimson"]


def test_a_connection_of_something_else_is_refused(joined: Joined) -> None:
    with pytest.raises(TypeError, match="must be a Session or Connection"):
        joined.store.commit([Insert(ITEM, item("new"))], connection=object())


def test_a_connection_to_another_kind_of_database_is_refused(joined: Joined) -> None:
    other = "sqlite://" if joined.store.address.dialect == "postgresql" else driver(server().url)
    with sqlalchemy_connection(other) as connection, pytest.raises(TypeError, match="the store is in"):
        joined.store.commit([Insert(ITEM, item("new"))], connection=connection)


def test_a_table_that_is_missing_in_the_callers_transaction_is_told_at_once(tmp_path: Path) -> None:
    store = SqlStore(f"sqlite:///{tmp_path / 'store.db'}")
    fill(store, [item("a")])
    with sqlite3_connection(f"sqlite:///{tmp_path / 'store.db'}") as connection:
        store.commit([Insert(ITEM, item("b"))], connection=connection)
        with pytest.raises(SchemaError, match="use the store once before"):
            store.commit([Insert(PLAIN, Plain("p", 1, None, None))], connection=connection)
        connection.commit()
    store.commit([Insert(PLAIN, Plain("p", 1, None, None))])
    assert store.get(ITEM, ["b"]) == [item("b")]
    store.close()


async def test_an_async_session_is_joined_through_its_sync_side() -> None:
    from sqlalchemy.ext.asyncio import AsyncSession, create_async_engine

    url = server().fresh_database()
    store = SqlStore(url, kinds=[ITEM])
    store.create_tables()
    fill(store, [item("there", token="taken")])
    engine = create_async_engine(driver(url))
    async with AsyncSession(engine) as session:
        await session.run_sync(lambda sync: store.commit([Insert(ITEM, item("new"))], connection=sync))
        with pytest.raises(Conflict):
            await session.run_sync(lambda sync: store.commit([Insert(ITEM, item("x", token="taken"))], connection=sync))
        await session.commit()
    await engine.dispose()
    assert [one.id for one in everything(store)] == ["new", "there"]
    store.close()
