"""The same trail from coroutines, on a sync or an async session factory."""

from __future__ import annotations

import asyncio

import pytest
import sqlalchemy as sa
from sqlalchemy.ext.asyncio import async_sessionmaker, create_async_engine
from sqlalchemy.orm import sessionmaker
from sqlalchemy.pool import StaticPool

from holdfast.audit.sink import DatabaseAuditSink
from holdfast.errors import ConfigurationError
from tests.audit.trail import event, sink_on
from tests.databases import METADATA, ORDERS, TABLES, fresh_database

DRIVERS = {"sqlite": "sqlite+aiosqlite", "postgres": "postgresql+psycopg"}


@pytest.fixture(params=DRIVERS)
async def asink(request, tmp_path):
    with fresh_database(request.param, tmp_path) as database:
        _, _, rest = database.url.partition("://")
        engine = create_async_engine(f"{DRIVERS[request.param]}://{rest}")
        sink = DatabaseAuditSink(
            async_sessionmaker(engine),
            TABLES.audit_events,
            chain_heads=TABLES.chain_heads,
            checkpoints=TABLES.checkpoints,
            streams=2,
        )
        yield sink
        await engine.dispose()


async def test_an_async_trail_appends_reads_and_verifies(asink):
    for number in range(5):
        await asink.aappend(event(number, f"s-{number % 2}", entry_id=event(9).event_id))
    assert [one.payload["refs"] for one in await asink.aread("s-0")] == [0, 2, 4]
    assert len(await asink.aread_entry(event(9).event_id)) == 5
    assert len(await asink.aread_since(event(1).occurred_at)) == 4
    assert len(await asink.chain.acheckpoint()) == len({asink.stream_of("s-0"), asink.stream_of("s-1")})
    assert all(await asink.chain.averify_all())
    assert (await asink.chain.averify(asink.stream_of("s-0"))).verified
    assert len(await asink.arun(asink.paging(limit=3))) == 3


async def test_an_async_session_is_joined(asink):
    async with asink._sessions.factory() as session:
        await session.execute(ORDERS.insert(), {"id": 1})
        await session.run_sync(asink.append_in, [event(1)])
        await session.rollback()
    assert await asink.aread("ann") == ()


async def test_concurrent_tasks_do_not_fork_an_async_chain(asink):
    await asyncio.gather(*(asink.aappend(event(number)) for number in range(20)))
    (stream,) = await asink.chain.averify_all()
    assert (stream.verified, stream.events) == (True, 20)


async def test_the_sync_methods_say_that_the_trail_is_async(asink):
    for act in (lambda: asink.append(event(1)), lambda: asink.read("ann"), asink.verify_all):
        with pytest.raises(ConfigurationError, match="await"):
            act()


async def test_a_sync_trail_is_used_from_a_coroutine(database):
    sink = sink_on(database)
    await asyncio.gather(*(sink.aappend(event(number)) for number in range(6)))
    assert len(await sink.aread("ann")) == 6
    assert all(await sink.chain.averify_all())


async def test_in_memory_everything_stays_on_the_one_connection():
    engine = sa.create_engine("sqlite://")
    METADATA.create_all(engine)
    sink = DatabaseAuditSink(sessionmaker(engine), TABLES.audit_events, chain_heads=TABLES.chain_heads)
    await sink.aappend(event(1))
    assert len(await sink.aread("ann")) == 1
    engine.dispose()


async def test_in_async_memory_an_append_of_its_own_never_ends_the_callers_transaction():
    engine = create_async_engine("sqlite+aiosqlite://", poolclass=StaticPool)
    async with engine.begin() as connection:
        await connection.run_sync(METADATA.create_all)
    sessions = async_sessionmaker(engine)
    sink = DatabaseAuditSink(sessions, TABLES.audit_events)
    await sink.aappend(event(1))
    async with sessions() as session:
        await session.execute(ORDERS.insert(), {"id": 1})
        with pytest.raises(ConfigurationError, match="append_in"):
            await sink.aappend(event(2))
        await session.run_sync(sink.append_in, [event(3)])
        await session.commit()
    assert len(await sink.aread("ann")) == 2
    await engine.dispose()
