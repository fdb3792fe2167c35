"""One id from a refused call to everything that follows from it."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from holdfast import (
    Breaker,
    Guard,
    Holdfast,
    Hub,
    InMemoryPublisher,
    Retry,
    Saga,
    Step,
    consecutive,
    current_context,
    deadline,
    task,
    workflow,
)
from holdfast.outbox.operation import CallContext
from holdfast.telemetry.causation import CAUSATION_HEADER, causation_id, cause_in, caused_by
from holdfast.testing import ManualClock
from holdfast.workflows.isolation import ProcessIsolation


@pytest.fixture
def hold(tmp_path: Path) -> Iterator[Holdfast]:
    with Holdfast(f"sqlite:///{tmp_path}/h.db", clock=ManualClock(), telemetry=Hub(), background=False) as hold:
        yield hold


def clock_of(hold: Holdfast) -> ManualClock:
    clock = hold._clock
    assert isinstance(clock, ManualClock)
    return clock


class Shop:
    """A checkout whose payments are refused; their replay publishes, starts a saga and a workflow."""

    def __init__(self, hold: Holdfast) -> None:
        self.hold = hold
        self.broker = InMemoryPublisher()
        hold.publishers.register(self.broker)
        self.checkout = Guard("checkout", Retry(attempts=2), telemetry=hold.telemetry)
        self.payments = hold.guard("payments", Breaker(consecutive(1), open_for=10), dead_letter=True)
        self.mail = hold.guard("mail", Retry(attempts=1), dead_letter=True)
        self.down = True
        self.seen: dict[str, str | None] = {}
        self.called: list[CallContext] = []

        @self.payments.replayable
        def charge(order_id: str) -> None:
            self._charge(order_id)

        self.charge = charge

        @hold.operation
        def reserve(context: CallContext) -> None:
            self.called.append(context)
            self.seen["saga"] = causation_id()

        @task
        def pack(order_id: str) -> None:
            self.seen["workflow"] = causation_id()
            with hold.sessions.begin() as session:
                hold.outbox.publish(session, "packed", {"order": order_id})

        @workflow
        def fulfil(order_id: str) -> Any:
            return pack(order_id)

        self.fulfil = fulfil
        self.order = hold.saga(Saga("order", [Step("reserve", "reserve", target="stock")]))

    def _charge(self, order_id: str) -> None:
        if self.down:
            raise ConnectionError("no answer")
        self.seen["replay"] = causation_id()
        with self.hold.sessions.begin() as session:
            self.hold.outbox.publish(session, "paid", {"order": order_id})
            self.hold.sagas.start(session, self.order, {"order": order_id})
        self.hold.workflows.start(self.fulfil, order_id)

    def buy(self, order_id: str) -> str:
        """The id of the call around the payment."""

        @self.checkout
        def place() -> str:
            context = current_context()
            assert context is not None
            try:
                self.charge(order_id)
            except Exception:
                pass
            return context.call_id

        return place()

    def work(self) -> None:
        worker = self.hold.worker()
        for _ in range(4):
            worker.run_once()


def test_one_id_goes_from_a_refused_call_to_its_letter_replay_message_saga_workflow_and_consumer(
    hold: Holdfast,
) -> None:
    shop = Shop(hold)
    shop.buy("o-1")  # fails, and opens the breaker
    cause = shop.buy("o-2")  # is refused
    letter, first = hold.letters.find()
    hold.letters.delete(first.id)  # a worker would replay it as well
    assert letter.failure_type == "CIRCUIT_BREAKER_OPEN"
    assert letter.metadata["causation_id"] == cause
    assert letter.metadata["call_id"] != cause == letter.metadata["parent_call_id"]

    shop.down = False
    clock_of(hold).advance(60)
    replayed = hold.letters.replay(letter.id, force=True)
    assert replayed.outcome == "succeeded", replayed.reason
    shop.work()
    assert shop.seen == {"replay": cause, "saga": cause, "workflow": cause}
    assert [context.headers[CAUSATION_HEADER] for context in shop.called] == [cause]
    messages = {message.topic: message for message in shop.broker.messages}
    assert set(messages) == {"paid", "packed"}
    for message in messages.values():
        assert message.headers[CAUSATION_HEADER] == cause
        assert message.envelope.extensions["correlationid"] == cause

    with caused_by(messages["paid"].headers) as told:
        with hold.sessions.begin() as session:
            assert hold.inbox("mailer").first_time(session, messages["paid"].id)
        shop.mail.run(int, "no number")
    assert told == cause
    (mail,) = hold.letters.find(domain="mail")
    assert mail.metadata["causation_id"] == cause


def test_a_workflow_that_fails_leaves_a_letter_with_the_id_of_what_started_it(hold: Holdfast) -> None:
    @task
    def pack(order_id: str) -> None:
        raise ValueError("no box")

    @workflow
    def fulfil(order_id: str) -> Any:
        return pack(order_id)

    with caused_by("c-1"):
        hold.workflows.start(fulfil, "o-1")
    hold.worker().run_once()
    (letter,) = hold.letters.find()
    assert letter.metadata["causation_id"] == "c-1"


def test_what_nobody_has_caused_is_its_own_cause(hold: Holdfast) -> None:
    seen: dict[str, str | None] = {}

    @hold.operation
    def greet() -> None:
        seen["entry"] = causation_id()

    @task
    def pack() -> None:
        seen["workflow"] = causation_id()

    @workflow
    def fulfil() -> Any:
        return pack()

    with hold.sessions.begin() as session:
        entry = hold.outbox.put(session, "greet", target="them")
    run = hold.workflows.start(fulfil)
    hold.worker().run_once()
    assert causation_id() is None
    assert seen == {"entry": str(entry), "workflow": run.id}
    found = hold.outbox.find(limit=1)[0]
    assert found.headers is None

    guard = hold.guard("alone", Retry(attempts=1), dead_letter=True)
    guard.run(int, "no number")
    (letter,) = hold.letters.find(domain="alone")
    assert letter.metadata["causation_id"] == letter.metadata["call_id"]


def test_a_letter_that_was_filed_by_hand_is_replayed_under_its_own_id(hold: Holdfast) -> None:
    seen: list[str | None] = []

    class Handler:
        def can_replay(self, op: Any) -> tuple[bool, str]:
            return True, ""

        def replay(self, op: Any) -> None:
            seen.append(causation_id())

    hold.letters.handlers.register("manual", Handler())
    letter = hold.letters.create("manual", "BROKEN")
    assert hold.letters.replay(letter.id).outcome == "succeeded"
    assert seen == [letter.id]


def test_a_compensation_has_the_id_that_its_saga_was_started_under(hold: Holdfast) -> None:
    clock = clock_of(hold)
    headers: list[dict[str, str]] = []

    @hold.operation
    def reserve(context: CallContext) -> None:
        headers.append(dict(context.headers))

    @hold.operation
    def release(context: CallContext) -> None:
        headers.append(dict(context.headers))

    @hold.operation
    def charge() -> None:
        raise AssertionError("the deadline comes first")

    order = hold.saga(
        Saga(
            "order",
            [
                Step("reserve", "reserve", target="stock", compensation="release"),
                Step("charge", "charge", target="bank"),
            ],
            deadline=timedelta(minutes=5),
        )
    )
    with caused_by("c-7"), hold.sessions.begin() as session:
        hold.sagas.start(session, order, {})
    worker = hold.worker(batch_size=1)
    worker.run_once()
    clock.advance(600)
    hold.sagas.sweep_deadlines()
    for _ in range(4):
        worker.run_once()
    assert [one[CAUSATION_HEADER] for one in headers] == ["c-7"] * len(headers)
    assert len(headers) == 2


def test_a_block_may_be_nested_and_gives_back_what_was_there() -> None:
    with deadline(5.0), caused_by("outer"):
        assert causation_id() == "outer"
        with caused_by({"Causation-Id": "inner"}):
            assert causation_id() == "inner"
        assert causation_id() == "outer"
        with caused_by({"traceparent": "00-1"}) as none, caused_by(None):
            assert none is None
            assert causation_id() == "outer"
    assert causation_id() is None


def test_a_deadline_around_several_calls_makes_them_one_story() -> None:
    guard = Guard("inner", Retry(attempts=2), telemetry=Hub())
    with deadline(5.0):
        first, second = guard.call(causation_id), guard.call(causation_id)
    assert first is not None
    assert first == second
    assert guard.call(causation_id) != first


def test_a_call_inherits_the_id_of_the_block_around_it() -> None:
    guard = Guard("inner", Retry(attempts=2), telemetry=Hub())
    with caused_by("c-1"):
        assert guard.call(causation_id) == "c-1"
    outer = Guard("outer", Retry(attempts=2), telemetry=Hub())

    def inside() -> tuple[str, str | None]:
        context = current_context()
        assert context is not None
        return context.call_id, guard.call(lambda: outer.call(causation_id))

    first, seen = outer.call(inside)
    assert seen == first


tasks = {"cause": causation_id}


def test_a_task_in_a_process_of_its_own_knows_it_too() -> None:
    isolation = ProcessIsolation("tests.telemetry.test_causation:tasks")
    with caused_by("c-1"):
        assert isolation.run("cause") == "c-1"


def test_headers_may_be_missing_empty_or_in_capitals() -> None:
    assert cause_in(None) is None
    assert cause_in({CAUSATION_HEADER: ""}) is None
    assert cause_in({"CAUSATION-ID": "x"}) == "x"
