"""Sagas with several runners at once, with operators in between, and with sessions that are async."""

from __future__ import annotations

import asyncio
import random
from collections import Counter, defaultdict
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest
from sqlalchemy.ext.asyncio import async_sessionmaker, create_async_engine

from holdfast.outbox.functions import NoTarget
from holdfast.outbox.operation import Discard, Done, Operation, OperationRegistry
from holdfast.outbox.outbox import Outbox
from holdfast.outbox.runner import SagaRunner
from holdfast.outbox.sagas.sagas import Saga, Sagas, Step
from holdfast.telemetry.hub import Hub
from holdfast.testing import ManualClock
from tests.databases import DATABASES, TABLES, Database, fresh_database, open_database
from tests.outbox.sagas import QUICK, Shop

SAGAS = 24
WIDE = Saga(
    "order",
    (
        Step("reserve", "reserve", compensation="release"),
        Step("charge", "charge", compensation="refund", after=["reserve"]),
        Step("wrap", "wrap", compensation="unwrap", after=["reserve"]),
        Step("ship", "ship", compensation="unship", after=["charge", "wrap"]),
    ),
)
# Nobody dies: who has nothing to do lets time pass, while the other one may be held up in the midst of a call.
PATIENT = QUICK.model_copy(update={"lease": timedelta(days=1)})
UNDOES = {"release": "reserve", "refund": "charge", "unwrap": "wrap", "unship": "ship"}


@pytest.fixture(params=DATABASES)
def database(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Database]:
    with fresh_database(request.param, tmp_path) as database:
        yield database


class Log:
    """What was called for which saga, by every runner."""

    def __init__(self, seed: int) -> None:
        self.chance = random.Random(seed)
        self.of: defaultdict[UUID, list[str]] = defaultdict(list)

    async def call(self, target: Any, context: Any) -> Any:
        await asyncio.sleep(0)
        self.of[context.saga_id].append(context.operation)
        if context.operation in UNDOES:
            return Done()
        fate = self.chance.random()
        if fate < 0.1:
            return Discard("Refused")
        if fate < 0.3:
            raise ConnectionError
        return Done({"by": context.operation})


def check(calls: list[str], state: str) -> None:
    """The story of one saga makes sense."""
    counts = Counter(calls)
    undone = {UNDOES[name] for name in calls if name in UNDOES}
    if state == "completed":
        assert not undone
        assert {"reserve", "charge", "wrap", "ship"} <= set(calls)
        return
    assert state == "compensated"
    assert undone == {name for name in calls if name not in UNDOES}
    for undo, name in UNDOES.items():
        assert counts[undo] <= 1
        if undo in calls:
            assert calls.index(undo) > max(at for at, one in enumerate(calls) if one == name), calls
    if "release" in calls:
        assert calls[-1] == "release"
    if "unship" in calls:
        assert all(calls.index("unship") < calls.index(other) for other in ("refund", "unwrap"))


@pytest.mark.parametrize("cancelling", [False, True])
async def test_two_runners_and_an_operator_at_once_leave_every_saga_done_or_undone(
    database: Database, cancelling: bool
) -> None:
    log = Log(7)
    shops, clock = [], ManualClock()
    for at in range(2):
        own = open_database(database.name, database.url)
        shop = Shop(own, clock=clock)
        for name in ("reserve", "charge", "wrap", "ship", *UNDOES):
            shop.operations._operations[name] = Operation(
                name=name, call=log.call, targets=NoTarget(), sensitive=bool(at % 2)
            )
        shop.sagas.register(WIDE)
        shops.append(shop)
    ids = [shops[0].start("order", {"n": at}) for at in range(SAGAS)]

    async def run(shop: Shop) -> None:
        await shop.drain(shop.runner(batch_size=5, backoff=PATIENT), rounds=2000)

    async def cancel() -> None:
        for saga_id in ids if cancelling else ():
            if log.chance.random() < 0.5:
                await shops[0].outbox.arun(shops[0].sagas.cancelling(saga_id))
            await asyncio.sleep(0)

    try:
        async with asyncio.timeout(120):
            await asyncio.gather(*map(run, shops), cancel())
        for saga_id in ids:
            check(log.of[saga_id], shops[0].state(saga_id))
        assert shops[0].sagas.catch_up() == 0
    finally:
        for shop in shops:
            shop.database.engine.dispose()


async def test_an_async_application_starts_and_runs_sagas(tmp_path: Path) -> None:
    engine = create_async_engine(f"sqlite+aiosqlite:///{tmp_path / 'shop.db'}")
    async with engine.begin() as connection:
        await connection.run_sync(TABLES.outbox.metadata.create_all)
    factory = async_sessionmaker(engine)
    made: list[str] = []

    async def reserve(order: int) -> None:
        made.append(f"reserve {order}")

    outbox = Outbox(factory, TABLES.outbox, operations=OperationRegistry())
    sagas = Sagas(outbox, Saga("order", [Step("reserve", reserve)]), hub=Hub())
    async with factory() as session, session.begin():
        saga_id = await sagas.astart(session, "order", {"order": 7})
    await SagaRunner(NoTarget(), outbox, None, backoff=QUICK).run_once()
    assert made == ["reserve 7"]
    assert not await outbox.arun(sagas.cancelling(saga_id))
    assert await outbox.arun(sagas.overdue()) == []
    await engine.dispose()
