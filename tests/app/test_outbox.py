"""`hold.outbox` and what belongs to it: calls that must happen, over the store's own database."""

from __future__ import annotations

import asyncio
import subprocess
import sys
import threading
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa
from sqlalchemy.orm import Session

from holdfast import (
    Breaker,
    ConfigurationError,
    Holdfast,
    Hub,
    InMemoryPublisher,
    JointWorker,
    LetterFilter,
    OutboxStatus,
    Saga,
    Step,
    consecutive,
    outbox_readings,
)
from holdfast.testing import ManualClock
from tests.services import redis
from tests.stores import SQL_STORES, fresh_url


@pytest.fixture(params=SQL_STORES)
def hold(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Holdfast]:
    with fresh_url(request.param, tmp_path) as url, Holdfast(url, telemetry=Hub(), background=False) as hold:
        yield hold


@pytest.fixture
def file_hold(tmp_path: Path) -> Iterator[Holdfast]:
    with Holdfast(f"sqlite:///{tmp_path}/h.db", telemetry=Hub(), background=False) as hold:
        yield hold


def drain(hold: Holdfast, **options: Any) -> int:
    """Make all calls that are due."""
    runner = hold.runner(**options)

    async def run() -> int:
        called = 0
        while number := await runner.run_once():
            called += number
        return called

    try:
        return asyncio.run(run())
    finally:
        runner.close()


def test_a_message_lives_and_dies_with_the_programs_own_rows(hold: Holdfast) -> None:
    broker = InMemoryPublisher()
    hold.publishers.register(broker)
    metadata = sa.MetaData()
    orders = sa.Table("shop_orders", metadata, sa.Column("id", sa.Integer, primary_key=True))
    engine = sa.create_engine(hold.works.engine.url)
    metadata.create_all(engine)
    with Session(engine) as session, session.begin():
        session.execute(orders.insert(), {"id": 7})
        hold.outbox.publish(session, "orders.created", {"id": 7}, key="order-7")
    with Session(engine) as session:
        session.execute(orders.insert(), {"id": 8})
        hold.outbox.publish(session, "orders.created", {"id": 8}, key="order-8")
        session.rollback()
    engine.dispose()
    assert drain(hold) == 1
    assert [(message.topic, message.key, message.envelope.data) for message in broker.messages] == [
        ("orders.created", "order-7", {"id": 7})
    ]
    assert hold.outbox.status_counts()[OutboxStatus.SUCCEEDED] == 1


def test_a_function_is_an_operation_and_an_open_breaker_costs_no_attempt(file_hold: Holdfast) -> None:
    hold, asked = file_hold, []
    bank = hold.guard("bank", Breaker(consecutive(1), open_for=30))

    @hold.operation(guard=bank)
    def charge(order: str, idempotency_key: Any) -> dict[str, str]:
        asked.append((order, str(idempotency_key)))
        if len(asked) == 1:
            raise ConnectionError("down")
        return {"receipt": order}

    with hold.sessions.begin() as session:
        first = hold.outbox.put(session, "charge", {"order": "o-1"}, target="bank")
        second = hold.outbox.put(session, "charge", {"order": "o-2"}, target="bank")
    drain(hold, concurrency=1)
    one, two = hold.outbox.get(first), hold.outbox.get(second)
    assert one is not None
    assert two is not None
    assert (one.status, one.attempts, one.last_error) == ("failed", 1, "ConnectionError")
    assert (two.status, two.attempts, two.last_error) == ("failed", 0, "CircuitOpen")
    assert asked == [("o-1", str(first))]


def test_a_payload_that_a_function_does_not_take_is_refused_when_it_is_put(file_hold: Holdfast) -> None:
    @file_hold.operation
    def charge(order: str, amount: int = 1, *, context: Any) -> None: ...

    for payload, complaint in (
        ({"order": "o-1", "price": 5}, r"'charge' takes order: .*str.*, amount: .*: got an unexpected .*'price'"),
        ({}, "missing a required argument: 'order'"),
        (["o-1"], "takes a payload of its arguments by name, got .*; give a dict"),
    ):
        with file_hold.sessions.begin() as session, pytest.raises(ValueError, match=complaint):
            file_hold.outbox.put(session, "charge", payload, target="bank")
    assert file_hold.outbox.find() == ()


def test_a_saga_is_undone_by_whoever_runs_the_outbox(file_hold: Holdfast) -> None:
    hold, done = file_hold, []

    @hold.operation
    def reserve(item: str) -> None:
        done.append(f"reserve {item}")

    @hold.operation
    def release(item: str) -> None:
        done.append(f"release {item}")

    @hold.operation(permanent=(ValueError,))
    def pay(amount: int) -> None:
        raise ValueError("declined")

    order = hold.saga(
        Saga(
            "order",
            [
                Step("stock", "reserve", compensation="release", payload=lambda data, _: {"item": data["item"]}),
                Step("payment", "pay", payload=lambda data, _: {"amount": data["amount"]}),
            ],
        )
    )
    with hold.sessions.begin() as session:
        saga_id = hold.sagas.start(session, order, {"item": "book", "amount": 5}, subject_id="o-1")
    drain(hold)
    run = hold.sagas.get(saga_id)
    assert run is not None
    assert run.state == "compensated"
    assert done == ["reserve book", "release book"]
    verified = hold.audit.verify_all()
    assert verified
    assert all(one.verified for one in verified)


@pytest.mark.parametrize("url", ["memory://", "sqlite://"])
def test_a_store_that_cannot_have_an_outbox_says_so(url: str) -> None:
    with Holdfast(url, telemetry=Hub(), background=False) as hold:
        for name in ("outbox", "sagas", "audit", "publishers", "resolvers", "sessions", "tables"):
            with pytest.raises(ConfigurationError, match="sqlite:///holdfast"):
                getattr(hold, name)
        assert hold.worker().run_once().outbox == 0


def test_redis_has_letters_and_no_outbox() -> None:
    with Holdfast(redis.server().url, telemetry=Hub(), background=False) as hold:
        with pytest.raises(ConfigurationError, match="need a SQL database"):
            hold.operation(print)
        assert hold.worker().run_once().outbox == 0


def test_one_worker_does_letters_and_outbox(file_hold: Holdfast) -> None:
    hold, came = file_hold, threading.Event()
    both: set[str] = set()
    down = True

    def note(what: str) -> None:
        both.add(what)
        if len(both) == 2:
            came.set()

    mail = hold.guard("mail", Breaker(consecutive(5), open_for=1), dead_letter=True)

    @mail.replayable
    def send(to: str) -> None:
        if down:
            raise ConnectionError("down")
        note("letter")

    @hold.operation
    async def ship(order: str) -> None:
        note("entry")

    mail.run(send, "ann")
    down = False
    (letter,) = hold.letters.find(domain="mail")
    with hold.sessions.begin() as session:
        hold.outbox.put(session, "ship", {"order": "o-1"}, target="depot")
    worker = hold.worker()
    assert isinstance(worker, JointWorker)
    hold.letters.bulk.start(LetterFilter(domain="mail"))
    worker.start()
    try:
        assert came.wait(60)
    finally:
        assert worker.stop(60)
    assert both == {"letter", "entry"}
    assert hold.outbox.status_counts()["succeeded"] == 1  # type: ignore[index]  # a StrEnum is found by its text
    found = hold.letters.get_by_id(letter.id)
    assert found is not None
    assert found.status == "resolved"


def test_a_worker_makes_calls_of_operations_that_are_registered_only_later(file_hold: Holdfast) -> None:
    hold, came = file_hold, threading.Event()
    with hold.worker():

        @hold.operation
        def ship(order: str) -> None:
            came.set()

        with hold.sessions.begin() as session:
            hold.outbox.put(session, "ship", {"order": "o-1"}, target="depot")
        assert came.wait(60)


async def test_one_worker_as_a_task_ends_with_it(file_hold: Holdfast) -> None:
    hold, came = file_hold, asyncio.Event()

    @hold.operation
    async def ship(order: str) -> None:
        came.set()

    with hold.sessions.begin() as session:
        hold.outbox.put(session, "ship", {"order": "o-1"}, target="depot")
    task = asyncio.create_task(hold.worker().arun())
    await asyncio.wait_for(came.wait(), 60)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert hold.outbox.status_counts()[OutboxStatus.SUCCEEDED] == 1


def test_run_once_does_what_is_due_and_ends(file_hold: Holdfast) -> None:
    hold, shipped = file_hold, []

    @hold.operation
    def ship(order: str) -> None:
        shipped.append(order)

    with hold.sessions.begin() as session:
        for number in range(7):
            hold.outbox.put(session, "ship", {"order": str(number)}, target="depot")
        hold.outbox.put(session, "ship", {"order": "later"}, target="depot", delay=timedelta(hours=1))
    report = hold.worker(batch_size=3).run_once()
    assert report.outbox == 7
    assert sorted(shipped) == [str(number) for number in range(7)]
    assert report.troubles == {}


def test_a_program_that_can_make_no_call_takes_none_from_those_that_can(file_hold: Holdfast) -> None:
    hold = file_hold
    with hold.sessions.begin() as session:
        hold.outbox.publish(session, "orders.created", {"id": 7})
    report = hold.worker().run_once()
    assert report.outbox == 0  # type: ignore[union-attr]
    (entry,) = hold.outbox.find()
    assert (entry.status, entry.attempts) == ("pending", 0)


def test_what_is_registered_before_the_worker_starts_counts(file_hold: Holdfast) -> None:
    hold = file_hold
    with hold.sessions.begin() as session:
        hold.outbox.publish(session, "x", {})
    worker = hold.worker()
    broker = InMemoryPublisher()
    hold.publishers.register(broker)
    worker.run_once()
    assert [message.topic for message in broker.messages] == ["x"]


def test_the_number_of_entries_and_their_lag_are_read_for_metrics(tmp_path: Path) -> None:
    clock = ManualClock()
    with Holdfast(f"sqlite:///{tmp_path}/h.db", clock=clock, telemetry=Hub(), background=False) as hold:
        with hold.sessions.begin() as session:
            hold.outbox.publish(session, "x", {})
        clock.advance(40)
        hold.outbox.pause("slow")
        read = {one.name: one.values() for one in outbox_readings(hold.outbox, clock=clock)}
    assert read["outbox.entries"][("default", "pending")] == 1
    assert read["outbox.lag.seconds"] == {("default",): 40.0}
    assert read["outbox.paused"] == {("slow",): 1.0}
    assert read["saga.runs"] == {}


def test_a_program_with_guards_alone_never_loads_sqlalchemy(tmp_path: Path) -> None:
    code = """
import sys
from holdfast import Holdfast, Retry
hold = Holdfast("memory://")
hold.guard("x", Retry(attempts=1), dead_letter=True).run(int, "one")
hold.worker().run_once()
assert "sqlalchemy" not in sys.modules
"""
    subprocess.run([sys.executable, "-c", code], check=True)
