"""A consumer handles each message once, however often it is delivered."""

from __future__ import annotations

import threading
import uuid
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa
from sqlalchemy.ext.asyncio import AsyncSession, async_sessionmaker, create_async_engine
from sqlalchemy.orm import Session

from holdfast.errors import ConfigurationError
from holdfast.outbox.inbox import Inbox, stored_id
from holdfast.outbox.outbox import Outbox
from holdfast.testing import ManualClock
from tests.databases import DATABASES, METADATA, ORDERS, TABLES, Database, fresh_database


@pytest.fixture(params=DATABASES)
def database(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Database]:
    with fresh_database(request.param, tmp_path) as database:
        yield database


def add_order(session: Session) -> None:
    session.execute(ORDERS.insert(), {"note": "paid"})


def number_of_orders(database: Database) -> Any:
    with database.sessions() as session:
        return session.execute(sa.select(sa.func.count()).select_from(ORDERS)).scalar()


def deliver(database: Database, inbox: Inbox, message_id: Any) -> bool:
    with database.sessions() as session, session.begin():
        return inbox.handle(session, message_id, add_order)


def test_a_repeated_message_is_handled_once(database: Database):
    inbox, message = Inbox(database.tables, "billing"), uuid.uuid4()
    assert [deliver(database, inbox, message) for _ in range(3)] == [True, False, False]
    assert deliver(database, inbox, uuid.uuid4())
    assert number_of_orders(database) == 2


def test_an_id_is_the_same_as_uuid_and_as_text(database: Database):
    inbox, message = Inbox(database.tables.inbox, "billing"), uuid.uuid4()
    assert deliver(database, inbox, message)
    assert not deliver(database, inbox, str(message))


def test_ids_are_compared_byte_by_byte(database: Database):
    inbox = Inbox(database.tables, "billing")
    assert all(deliver(database, inbox, one) for one in ("a", "A", "á", "a "))


def test_a_message_seen_twice_in_one_transaction_is_new_once(database: Database):
    inbox = Inbox(database.tables, "billing")
    with database.sessions() as session, session.begin():
        assert inbox.first_time(session, "m")
        assert not inbox.first_time(session, "m")


def test_consumers_do_not_see_each_other(database: Database):
    assert deliver(database, Inbox(database.tables, "billing"), "m")
    assert deliver(database, Inbox(database.tables, "shipping"), "m")


def test_a_message_whose_handling_failed_is_new_again(database: Database):
    inbox = Inbox(database.tables, "billing")

    def fails(session: Session) -> None:
        add_order(session)
        raise RuntimeError("no luck")

    with pytest.raises(RuntimeError), database.sessions() as session, session.begin():
        inbox.handle(session, "m", fails)
    assert number_of_orders(database) == 0
    assert deliver(database, inbox, "m")
    assert number_of_orders(database) == 1


@pytest.mark.parametrize("first_commits", [True, False])
def test_a_second_delivery_waits_for_the_first_ones_end(database: Database, first_commits: bool):
    inbox, answers = Inbox(database.tables, "billing"), []
    begun = threading.Event()

    def second() -> None:
        begun.set()
        answers.append(deliver(database, inbox, "m"))

    with database.sessions() as session:
        assert inbox.handle(session, "m", add_order)
        other = threading.Thread(target=second)
        other.start()
        begun.wait()
        other.join(0.2)
        assert answers == []
        if first_commits:
            session.commit()
        else:
            session.rollback()
    other.join(30)
    assert answers == [not first_commits]
    assert number_of_orders(database) == 1


def test_of_many_deliveries_at_once_one_is_the_first(database: Database):
    inbox, answers = Inbox(database.tables, "billing"), []
    together = threading.Barrier(6)

    def deliver_all() -> None:
        together.wait()
        answers.extend(deliver(database, inbox, f"m{number}") for number in range(20))

    threads = [threading.Thread(target=deliver_all) for _ in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert (answers.count(True), len(answers)) == (20, 120)
    assert number_of_orders(database) == 20


@pytest.mark.parametrize("strange", ["x" * 5000, "nul\0", "half \ud800", "ümlaut" * 40])
def test_an_id_of_any_shape_is_remembered(database: Database, strange: str):
    inbox = Inbox(database.tables, "billing")
    assert deliver(database, inbox, strange)
    assert not deliver(database, inbox, strange)
    assert deliver(database, inbox, strange + "!")


def test_ids_that_do_not_fit_keep_their_difference():
    assert stored_id("x" * 300) != stored_id("x" * 301)
    assert stored_id("a\0") != stored_id("a\ufffd")


def test_a_message_without_an_id_is_refused_and_does_not_stand_for_all_others(database: Database):
    inbox = Inbox(database.tables, "shop")
    for nothing in ("", None):
        with pytest.raises(ValueError, match="a message without an id cannot be told from another: give an id"):
            deliver(database, inbox, nothing)
    assert number_of_orders(database) == 0
    assert deliver(database, inbox, "None")


def test_old_messages_are_forgotten_and_young_ones_kept(database: Database):
    clock = ManualClock()
    inbox = Inbox(database.tables, "billing", keep=timedelta(days=7), clock=clock)
    other = Inbox(database.tables, "shipping", clock=clock)
    for consumer in (inbox, other):
        deliver(database, consumer, "old")
    clock.advance(timedelta(days=4).total_seconds())
    deliver(database, inbox, "young")
    clock.advance(timedelta(days=3, seconds=1).total_seconds())
    assert inbox.prune(Outbox(database.sessions, database.tables.outbox)) == 1
    with database.sessions() as session, session.begin():
        assert inbox.prune(session) == 0
    assert deliver(database, inbox, "old")
    assert not deliver(database, inbox, "young")
    assert not deliver(database, other, "old")


def test_very_many_old_messages_are_forgotten_chunk_by_chunk(database: Database):
    clock = ManualClock()
    inbox = Inbox(database.tables, "billing", clock=clock)
    with database.sessions() as session, session.begin():
        at = clock.wall()
        rows = [{"consumer": "billing", "message_id": str(n), "received_at": at} for n in range(2500)]
        session.execute(TABLES.inbox.insert(), rows)
    clock.advance(timedelta(days=8).total_seconds())
    assert inbox.prune(Outbox(database.sessions, database.tables.outbox)) == 2500


async def test_an_async_session_has_the_same(tmp_path: Path):
    engine = create_async_engine(f"sqlite+aiosqlite:///{tmp_path}/a.db")
    async with engine.begin() as connection:
        await connection.run_sync(METADATA.create_all)
    sessions = async_sessionmaker(engine)
    clock = ManualClock()
    inbox = Inbox(TABLES, "billing", clock=clock)
    handled = []

    async def handle(session: AsyncSession) -> None:
        handled.append(await session.run_sync(lambda _: "a"))

    async with sessions() as session, session.begin():
        assert await inbox.ahandle(session, "m", handle)
    async with sessions() as session, session.begin():
        assert not await inbox.ahandle(session, "m", lambda _: handled.append("b"))
        assert await inbox.ahandle(session, "n", lambda _: handled.append("c"))
    assert handled == ["a", "c"]
    clock.advance(timedelta(days=8).total_seconds())
    async with sessions() as session, session.begin():
        assert await inbox.aprune(session) == 2
        assert await inbox.afirst_time(session, "m")
    clock.advance(timedelta(days=8).total_seconds())
    assert await inbox.aprune(Outbox(sessions, TABLES.outbox)) == 1
    await engine.dispose()


def test_an_inbox_that_cannot_work_is_refused():
    with pytest.raises(ConfigurationError, match="a consumer's name has 1 to 255"):
        Inbox(TABLES, "")
    with pytest.raises(ConfigurationError, match=r"Inbox.keep must be above 0"):
        Inbox(TABLES, "x", keep=timedelta(0))
