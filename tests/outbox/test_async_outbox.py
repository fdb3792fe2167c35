"""The outbox of an asynchronous program: every method awaited, over async sessions or sync ones."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest
import sqlalchemy as sa
from sqlalchemy.ext.asyncio import async_sessionmaker, create_async_engine

from holdfast.audit.sink import DatabaseAuditSink
from holdfast.errors import ConfigurationError
from holdfast.machine.outbox_entry import SUCCEED, OutboxStatus
from holdfast.outbox.async_outbox import AsyncOutbox
from holdfast.outbox.draft import Draft
from holdfast.outbox.erasure import Erasure
from holdfast.outbox.outbox import Outbox
from holdfast.outbox.resolver import ResolverRegistry
from holdfast.outbox.settle import Settlement
from holdfast.testing import ManualClock
from tests.databases import DATABASES, Database, fresh_database
from tests.outbox.entries import HOUR, LEASE, START, Calls, ids_of, make_entry, nothing, open_outbox, operations

S = OutboxStatus
DRIVERS = {"sqlite": "sqlite+aiosqlite", "postgres": "postgresql+psycopg"}


class Desk:
    """An AsyncOutbox, and how its program writes rows."""

    def __init__(self, outbox: Outbox, factory: Any, clock: ManualClock) -> None:
        self.outbox, self.factory, self.clock = AsyncOutbox(outbox), factory, clock

    async def enqueue(self, *entries: Any) -> list[UUID]:
        async with self.factory() as session, session.begin():
            await self.outbox.enqueue(session, entries)
        return ids_of(entries)


@pytest.fixture(params=DRIVERS)
async def desk(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Desk]:
    with fresh_database(request.param, tmp_path) as database:
        url = sa.make_url(database.url).set(drivername=DRIVERS[request.param])
        engine = create_async_engine(url, pool_size=1, max_overflow=0, pool_timeout=5)
        factory, clock, known = async_sessionmaker(engine), ManualClock(), operations()
        sink = DatabaseAuditSink(factory, database.tables.audit_events, event_types=known.event_types)
        yield Desk(
            Outbox(factory, database.tables.outbox, audit_sink=sink, operations=known, clock=clock), factory, clock
        )
        await engine.dispose()


async def test_entries_are_put_claimed_and_settled_over_one_connection(desk: Desk) -> None:
    outbox, clock = desk.outbox, desk.clock
    async with desk.factory() as session, session.begin():
        ids = [
            await outbox.put(session, "ping", {"n": 1}, target="mail"),
            *await outbox.put_many(session, [Draft("ping", target="mail") for _ in range(5)]),
            await outbox.publish(session, "orders", {"n": 2}),
        ]
    claimed = await outbox.claim_batch(lease=LEASE)
    assert ids_of(claimed) == ids
    one, two, three, four, five, six, seven = claimed
    clock.advance(10)
    assert await outbox.renew([one], lease=LEASE) == {one.entry_id}
    completed = Calls()
    assert await outbox.mark_succeeded(one, on_subject_complete=completed)
    assert completed.number == 1
    assert await outbox.mark_failed(two, error="Boom", next_attempt_at=START + HOUR)
    assert await outbox.mark_scheduled(three, resume_at=START + HOUR)
    assert await outbox.mark_abandoned(four, error="Boom")
    assert await outbox.settle_batch([Settlement(five, SUCCEED, scrub=False)]) == [True]
    assert await outbox.release([six, seven]) == [True, True]
    assert not await outbox.mark_failed(one, error="Late", next_attempt_at=START)
    assert await outbox.status_counts() == {
        S.PENDING: 2, S.IN_FLIGHT: 0, S.SUCCEEDED: 2, S.FAILED: 1, S.SCHEDULED: 1, S.ABANDONED: 1,
    }  # fmt: skip


async def test_operators_await_the_same_methods(desk: Desk) -> None:
    outbox = desk.outbox
    given_up, parked, waiting, done = await desk.enqueue(
        make_entry(status="abandoned", last_error="Boom", attempts=3),
        make_entry(status="scheduled", next_attempt_at=START + HOUR),
        make_entry("bob"),
        make_entry("cid", status="succeeded"),
    )
    assert ids_of(await outbox.list_abandoned()) == [given_up]
    assert ids_of(await outbox.list_scheduled(limit=1)) == [parked]
    assert ids_of(await outbox.requeue([given_up])) == [given_up]
    assert ids_of(await outbox.cancel([waiting])) == [waiting]
    found = await outbox.get(waiting)
    assert found is not None
    assert found.status == S.ABANDONED
    assert ids_of(await outbox.find(status="succeeded")) == [done]
    assert await outbox.attempts(done) == ()
    assert await outbox.pause("slow")
    assert [one.queue for one in await outbox.paused()] == ["slow"]
    assert await outbox.resume("slow")
    assert await outbox.oldest_due() == START
    desk.clock.advance(3600)
    assert (await outbox.lag()) == HOUR
    assert await outbox.prune(HOUR / 2) == 1
    assert await outbox.run(lambda session: session.execute(sa.select(sa.literal(7))).scalar()) == 7


async def test_a_rollback_of_an_async_session_takes_its_entries_with_it(desk: Desk) -> None:
    with pytest.raises(ZeroDivisionError):
        async with desk.factory() as session, session.begin():
            await desk.outbox.put(session, "ping", target="mail", key="k", dedupe_key="d")
            await desk.outbox.enqueue(session, [make_entry()])
            raise ZeroDivisionError
    assert sum((await desk.outbox.status_counts()).values()) == 0


async def test_an_erasure_that_comes_to_nothing_leaves_evidence_over_the_one_connection(desk: Desk) -> None:
    inner = desk.outbox.outbox
    sink: Any = inner.audit_sink
    erasure = Erasure(inner, ResolverRegistry(), sink)
    with pytest.raises(ZeroDivisionError):
        async with desk.factory() as session, session.begin():
            await erasure.aerase_subject(session, "ann")
            raise ZeroDivisionError
    assert [str(event.event_type) for event in await sink.aread("ann")] == ["erasure_requested"]
    async with desk.factory() as session, session.begin():
        await erasure.aerase_subject(session, "ann")
    assert "erasure_completed" in [str(event.event_type) for event in await sink.aread("ann")]


async def test_the_sync_methods_of_an_async_outbox_say_what_to_await(desk: Desk) -> None:
    inner = desk.outbox.outbox
    for act in (inner.claim_batch, inner.status_counts, lambda: inner.requeue([UUID(int=1)])):
        with pytest.raises(ConfigurationError, match="await the async form of this method"):
            act()


async def test_tasks_at_once_claim_each_entry_once(desk: Desk) -> None:
    ids = await desk.enqueue(*(make_entry(f"s{n}") for n in range(30)))

    async def drain() -> list[UUID]:
        mine: list[UUID] = []
        while found := await desk.outbox.claim_batch(4):
            mine += ids_of(found)
            for entry in found:
                assert await desk.outbox.mark_succeeded(entry, on_subject_complete=nothing)
        return mine

    drained = await asyncio.gather(drain(), drain(), drain())
    assert sorted(id for mine in drained for id in mine) == sorted(ids)


@pytest.mark.parametrize("name", DATABASES)
async def test_over_sync_sessions_the_loop_is_not_held_up(tmp_path: Path, name: str) -> None:
    with fresh_database(name, tmp_path) as database:
        outbox = AsyncOutbox(open_outbox(database))
        threads = await _threads(database, outbox)
        assert threads
        assert all(not one.startswith("MainThread") for one in threads)


async def _threads(database: Database, outbox: AsyncOutbox) -> set[str]:
    threads: set[str] = set()
    sa.event.listen(
        database.engine, "before_cursor_execute", lambda *args: threads.add(threading.current_thread().name)
    )
    await outbox.claim_batch()
    await outbox.status_counts()
    return threads


WITHIN = {"clock", "now", "is_async", "arun", "run_alone", "statements", "inserts", "claiming", "renewing", "settling",
          "asettle", "cancel_in", "aput", "apublish", "aput_many", "aenqueue"}  # fmt: skip
"""What other parts of the outbox use, and what an AsyncOutbox has under the plain name."""


def test_it_has_every_method_of_the_outbox(desk: Desk) -> None:
    names = {name for name in dir(Outbox) if not name.startswith("_")} - WITHIN
    assert {name for name in names if not hasattr(desk.outbox, name)} == set()


async def test_it_searches_and_counts(desk: Desk) -> None:
    older, newer = await desk.enqueue(make_entry(), make_entry())
    first = await desk.outbox.search(limit=1)
    second = await desk.outbox.search(limit=1, after=first.after)
    assert sorted(entry.entry_id for entry in (*first.entries, *second.entries)) == sorted((older, newer))
    assert (await desk.outbox.facets()).by_status["pending"] == 2
