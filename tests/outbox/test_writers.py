"""Many writers at once, who hold their transactions open for as long as they like: order per key, and no ghost."""

from __future__ import annotations

import asyncio
import random
import threading
from collections import defaultdict
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from typing import Any
from uuid import UUID

import pytest
from sqlalchemy.exc import DBAPIError

from holdfast.audit.sessions import was_undone
from holdfast.outbox.backoff import BackoffPolicy
from holdfast.outbox.draft import Draft
from holdfast.outbox.operation import CallContext, Operation, OperationRegistry
from holdfast.outbox.outbox import Outbox
from holdfast.outbox.resolver import ResolverRegistry
from holdfast.outbox.runner import SagaRunner
from holdfast.telemetry.hub import Hub
from tests.databases import ORDERS, Database, open_database

WRITERS = 16
RUNNERS = 2
KEYS = [f"key-{n}" for n in range(6)]


class Told:
    """What was committed, in the order of each key, and what was called."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.committed: defaultdict[str, list[UUID]] = defaultdict(list)
        self.undone: set[UUID] = set()
        self.called: defaultdict[str, list[UUID]] = defaultdict(list)
        self.under_way: set[str] = set()
        self.over = threading.Event()

    async def call(self, target: Any, context: CallContext) -> None:
        key = str(context.ordering_key)
        with self.lock:
            assert key not in self.under_way
            self.under_way.add(key)
            self.called[key].append(context.entry_id)
        await asyncio.sleep(0)
        with self.lock:
            self.under_way.remove(key)
        if context.attempt == 1 and context.entry_id.int % 5 == 0:
            with self.lock:
                self.called[key].pop()
            raise ConnectionError("the first attempt of some fails, and what comes after it waits")


class Target:
    name = "target"


def open_one(database: Database, told: Told) -> Outbox:
    known = OperationRegistry(Operation(name="tell", call=told.call, sensitive=False))
    return Outbox(database.sessions, database.tables.outbox, operations=known)


def write(database: Database, told: Told, seed: int, transactions: int) -> None:
    """One writer: some transactions of one or several entries, held open for a while, a third of them undone."""
    rng, pause, outbox = random.Random(seed), threading.Event(), open_one(database, told)
    left = transactions
    while left:
        ids: tuple[UUID, ...] = ()
        keys = sorted(rng.sample(KEYS, rng.choice((1, 1, 2, 3))))
        drafts = [Draft("tell", {"n": left}, target="target", key=rng.choice(keys)) for _ in range(rng.randint(1, 4))]
        try:
            with database.sessions() as session:
                pause.wait(rng.random() * 0.002)
                session.execute(ORDERS.insert(), {"note": str(seed)})
                ids = outbox.put_many(session, drafts)
                # Whoever is here holds the keys until the commit: this is the order in which entries become visible.
                pause.wait(rng.random() * 0.006)
                undone = rng.random() < 0.33
                with told.lock:
                    if undone:
                        told.undone.update(ids)
                    else:
                        for draft, id in zip(drafts, ids, strict=True):
                            told.committed[str(draft.key)].append(id)
                if undone:
                    session.rollback()
                else:
                    session.commit()
        except DBAPIError as error:
            if not was_undone(error):
                raise
            with told.lock:
                for those in told.committed.values():
                    those[:] = [id for id in those if id not in ids]
            continue
        left -= 1


def run(database: Database, told: Told) -> None:
    registry: Any = ResolverRegistry()
    registry.register(Target())
    soon = BackoffPolicy(base_delay=timedelta(milliseconds=1), max_delay=timedelta(milliseconds=1))
    runner = SagaRunner(
        registry, open_one(database, told), None, batch_size=5, backoff=soon, max_attempts=50, telemetry=Hub()
    )

    async def drain() -> None:
        while not told.over.is_set():
            if not await runner.run_once():
                await asyncio.sleep(0.002)

    asyncio.run(drain())


@pytest.mark.torture
def test_sixteen_writers_who_hold_their_transactions_never_turn_an_order_round(
    database: Database, seed: int, size: int
) -> None:
    told = Told()
    wide = open_database(database.name, database.url, pool_size=WRITERS + 2 * RUNNERS)
    with ThreadPoolExecutor(RUNNERS) as crew:
        running = [crew.submit(run, wide, told) for _ in range(RUNNERS)]
        try:
            with ThreadPoolExecutor(WRITERS) as pool:
                for _ in pool.map(lambda n: write(wide, told, seed * WRITERS + n, 3 * size), range(WRITERS)):
                    pass
            number = sum(map(len, told.committed.values()))
            pause, outbox = threading.Event(), open_one(wide, told)
            while outbox.status_counts()["succeeded"] < number and not any(one.done() for one in running):
                pause.wait(0.01)
        finally:
            told.over.set()
        for one in running:
            one.result()
    assert dict(told.called) == dict(told.committed)  # every one, once, in order
    assert not told.undone & {id for those in told.called.values() for id in those}  # what was undone, never
    assert sum(open_one(wide, told).status_counts().values()) == number
    wide.engine.dispose()
