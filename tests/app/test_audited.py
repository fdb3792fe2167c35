"""Every terminal outcome is in the audit trail, unless an operation is left out of it by name."""

from __future__ import annotations

import json
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest
import sqlalchemy as sa

from holdfast import (
    AuditEventType,
    ConfigurationError,
    DatabaseAuditSink,
    Discard,
    Done,
    Holdfast,
    Hub,
    InMemoryPublisher,
    Operation,
    Park,
    Publishers,
    ResolverError,
    Saga,
    Step,
    StepEvents,
    publish_operation,
)
from holdfast.outbox.operation import OPERATION_EVENTS
from holdfast.outbox.publishing import PUBLISH_EVENTS
from holdfast.testing import ManualClock
from tests.app.test_outbox import drain
from tests.stores import SQL_STORES, fresh_url

SECRET = "4111-1111"
HOUR = 3600.0


@pytest.fixture(params=SQL_STORES)
def url(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[str]:
    with fresh_url(request.param, tmp_path) as url:
        yield url


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
def hold(url: str, clock: ManualClock) -> Iterator[Holdfast]:
    with opened(url, clock) as hold:
        yield hold


def opened(url: str, clock: ManualClock) -> Holdfast:
    return Holdfast(url, telemetry=Hub(), background=False, clock=clock)


def put(hold: Holdfast, operation: str, subject: str, **payload: Any) -> UUID:
    with hold.sessions.begin() as session:
        return hold.outbox.put(session, operation, payload, target="bank", subject_id=subject)


def said(hold: Holdfast, subject: str) -> list[tuple[str, dict[str, Any]]]:
    return [(str(event.event_type), event.payload) for event in hold.audit.read(subject)]


def types(hold: Holdfast, subject: str) -> list[str]:
    return [kind for kind, _ in said(hold, subject)]


def test_every_way_in_which_a_call_of_a_function_ends_is_audited(hold: Holdfast, clock: ManualClock) -> None:
    tries: list[str] = []

    @hold.operation(max_attempts=2)
    def charge(order: str, card: str) -> Any:
        tries.append(order)
        match order:
            case "late" if tries.count(order) == 1:
                raise ConnectionError(f"no line for {card}")
            case "refused":
                return Discard("CardRefused")
            case "broken":
                raise ValueError(f"cannot read {card}")
            case "parked" if tries.count(order) == 1:
                return Park(clock.wall() + timedelta(seconds=HOUR), {"card": card})
        return Done({"receipt": card}, {"card": card})

    ids = {
        order: put(hold, "charge", order, order=order, card=SECRET)
        for order in ("paid", "late", "refused", "broken", "parked")
    }
    for _ in range(3):
        drain(hold)
        clock.advance(2 * HOUR)
    about = {"operation": "charge", "target": "bank"}
    failed = {**about, "external": True, "abandoned": True}
    assert said(hold, "paid") == [("operation_succeeded", {**about, "external": True, "attempts": 1})]
    assert said(hold, "late") == [("operation_succeeded", {**about, "external": True, "attempts": 2})]
    assert said(hold, "refused") == [("operation_failed", {**failed, "error": "CardRefused", "attempts": 1})]
    assert said(hold, "broken") == [("operation_failed", {**failed, "error": "ValueError", "attempts": 2})]
    assert types(hold, "parked") == ["operation_parked", "operation_succeeded"]
    assert said(hold, "parked")[0][1].keys() == {"operation", "target", "external", "expires_at", "prior_attempts"}

    hold.outbox.requeue([ids["broken"]])
    assert said(hold, "broken")[1:] == [
        (
            "operation_requeued",
            {
                "operation": "charge",
                "entry_id": str(ids["broken"]),
                "resolver": "bank",
                "prior_attempts": 2,
                "prior_error": "ValueError",
            },
        )
    ]
    hold.outbox.cancel([ids["broken"]])
    assert said(hold, "broken")[2:] == [("operation_failed", {**failed, "error": "Cancelled", "attempts": 0})]
    assert [event.entry_id for event in hold.audit.read("broken")] == [ids["broken"]] * 3
    assert all(hold.audit.verify_all())
    events = hold.tables.audit_events
    with hold.sessions.begin() as session:
        stored = session.execute(sa.select(*events.c)).all()
    assert len(stored) == 8
    assert SECRET not in json.dumps([list(map(str, row)) for row in stored])


def test_an_entry_that_crashes_its_runners_is_given_up_in_the_trail_too(hold: Holdfast, clock: ManualClock) -> None:
    @hold.operation(max_attempts=2)
    def charge(order: str) -> None: ...

    put(hold, "charge", "o-1", order="o-1")
    for _ in range(2):  # runners that claimed it and were killed
        assert len(hold.outbox.claim_batch()) == 1
        clock.advance(HOUR)
    drain(hold)
    ((kind, facts),) = said(hold, "o-1")
    assert (kind, facts["error"], facts["attempts"]) == ("operation_failed", "AttemptsExhausted", 2)


def test_every_way_in_which_a_message_ends_is_audited(hold: Holdfast) -> None:
    broker = InMemoryPublisher()
    hold.publishers.register(broker)

    def publish(key: str) -> UUID:
        with hold.sessions.begin() as session:
            return hold.outbox.publish(session, "orders.created", {"card": SECRET}, key=key)

    publish("o-1")
    drain(hold)
    about = {"target": "default", "external": True, "attempts": 1}
    assert said(hold, "o-1") == [("publish_succeeded", about)]
    broker.fail(ResolverError(f"never for {SECRET}"))
    lost = publish("o-2")
    drain(hold)
    assert said(hold, "o-2") == [("publish_failed", {**about, "error": "ResolverError", "abandoned": True})]
    hold.outbox.requeue([lost])
    drain(hold)
    assert types(hold, "o-2") == ["publish_failed", "publish_requeued", "publish_succeeded"]
    assert all(hold.audit.verify_all())


def test_events_of_one_settle_are_read_in_the_order_in_which_they_were_written(hold: Holdfast) -> None:
    @hold.operation
    async def charge(order: str) -> None: ...

    ids = [put(hold, "charge", f"o-{number}", order="any") for number in range(20)]
    drain(hold)
    assert [one.event.entry_id for one in hold.audit.page()] == ids


def test_who_has_not_registered_an_operation_reads_and_verifies_its_outcomes(
    hold: Holdfast, url: str, clock: ManualClock
) -> None:
    hold.operation("charge")(lambda order: None)
    put(hold, "charge", "o-1", order="o-1")
    hold.publishers.register(InMemoryPublisher())
    with hold.sessions.begin() as session:
        hold.outbox.publish(session, "orders.created", {}, key="o-1")
    drain(hold)
    with opened(url, clock) as stranger:
        assert sorted(types(stranger, "o-1")) == ["operation_succeeded", "publish_succeeded"]
        assert all(stranger.audit.verify_all())
        bare = DatabaseAuditSink(stranger.sessions, stranger.tables.audit_events)
        assert [event.event_type for event in bare.read("o-1")] == [
            event.event_type for event in hold.audit.read("o-1")
        ]
        events = stranger.tables.audit_events
        with stranger.sessions.begin() as session:
            forged = events.update().where(events.c.event_type == "operation_succeeded")
            session.execute(forged.values(event_type="operation_failed"))
        (broken,) = [one for one in stranger.audit.verify_all() if not one]
        assert broken.reason == "hash"


def test_what_is_done_to_an_entry_of_an_operation_that_nobody_here_knows_is_audited(
    hold: Holdfast, url: str, clock: ManualClock
) -> None:
    hold.operation("charge")(lambda order: None)
    given_up, cancelled, crashed = (
        put(hold, "charge", order, order=order) for order in ("given up", "cancelled", "crashed")
    )
    hold.outbox.cancel([given_up])
    with opened(url, clock) as stranger:
        stranger.outbox.requeue([given_up])
        stranger.outbox.cancel([given_up, cancelled])
        assert types(stranger, "given up") == ["operation_failed", "operation_requeued", "operation_failed"]
        assert types(stranger, "cancelled") == ["operation_failed"]
        assert {facts["operation"] for subject in ("given up", "cancelled") for _, facts in said(hold, subject)} == {
            "charge"
        }
        for _ in range(8):
            assert crashed in {entry.entry_id for entry in hold.outbox.claim_batch()}
            clock.advance(HOUR)
        drain(stranger)
        ((kind, facts),) = said(stranger, "crashed")
        assert (kind, facts["operation"], facts["error"]) == ("operation_failed", "charge", "AttemptsExhausted")


def test_an_operation_that_is_left_out_by_name_leaves_nothing_in_the_trail(hold: Holdfast, clock: ManualClock) -> None:
    @hold.operation(events=None, max_attempts=1)
    def ping(order: str) -> None:
        if order == "broken":
            raise ValueError

    ids = [put(hold, "ping", order, order=order) for order in ("well", "broken")]
    drain(hold)
    hold.outbox.requeue(ids)
    hold.outbox.cancel(ids)
    assert hold.outbox.status_counts()["abandoned"] == 1
    assert hold.audit.page() == []


def test_steps_of_a_saga_are_audited_as_the_functions_that_they_are(hold: Holdfast) -> None:
    def ship(order: str) -> Any:
        return Discard("NoStock")

    def pay(order: str) -> None: ...
    def pay_back(order: str) -> None: ...

    order = Saga("order", [Step("pay", pay, compensation=pay_back), Step("ship", ship)])
    with hold.sessions.begin() as session:
        hold.sagas.start(session, hold.saga(order), {"order": "o-1"}, subject_id="o-1")
    drain(hold)
    ended = [(kind, facts.get("operation")) for kind, facts in said(hold, "o-1") if kind.startswith("operation")]
    assert ended == [
        ("operation_succeeded", "order.pay"),
        ("operation_failed", "order.ship"),
        ("operation_succeeded", "order.pay.undo"),
    ]
    assert types(hold, "o-1")[-1] == "saga_compensated"
    assert all(hold.audit.verify_all())


def test_names_of_its_own_stay_and_say_whose_outcome_it_is(hold: Holdfast) -> None:
    hold.operation("charge", events=StepEvents.of("charge"))(lambda order: None)
    put(hold, "charge", "o-1", order="o-1")
    drain(hold)
    assert said(hold, "o-1") == [("charge_succeeded", {"target": "bank", "external": True, "attempts": 1})]


def test_the_names_that_operations_have_by_default_are_built_in() -> None:
    assert set(OPERATION_EVENTS) | set(PUBLISH_EVENTS) <= set(AuditEventType)
    assert Operation(name="charge", call=print).events == OPERATION_EVENTS
    assert publish_operation(Publishers()).events == PUBLISH_EVENTS


@pytest.mark.parametrize(
    ("options", "complaint"),
    [
        (
            {"events": "charge"},
            r"StepEvents, or None for no audit, got 'charge'; use StepEvents.of\('charge'\)",
        ),
        ({"events": StepEvents("", "b", "c")}, r"events.succeeded: no event can have ''"),
        ({"events": StepEvents("a", "b", "c" * 65)}, r"events.requeued: no event can have 'ccc"),
        ({"events": StepEvents("a", "b\x00", "c")}, r"events.failed: no event can have 'b\\x00'"),
        ({"labels": {"share": 0.5}}, r"labels: no event can have \{'share': 0.5\}"),
        ({"facts": frozenset({"target"})}, "cannot have 'target', which the trail says by itself"),
        ({"labels": {"operation": "pay"}}, "cannot have 'operation', which the trail says by itself"),
    ],
    ids=str,
)
def test_what_no_event_can_hold_is_refused_when_an_operation_is_made(options: dict[str, Any], complaint: str) -> None:
    with pytest.raises(ConfigurationError, match=complaint):
        Operation(name="charge", call=print, **options)
