"""What becomes of an entry, for everything that its call can do."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta, timezone
from typing import Any

import pytest

from holdfast.errors import CircuitOpen, PolicyError, RateLimited, ResolverError
from holdfast.outbox.backoff import BackoffPolicy
from holdfast.outbox.operation import CallContext, Discard, Done, Operation, OperationRegistry, Park, RetryAfter
from holdfast.outbox.resolver import ResolverErasure, ResolverScheduledErasure
from holdfast.outbox.runner import SagaRunner
from holdfast.outbox.subject import Correction, PiiCategory
from tests.databases import Database
from tests.databases import database as database
from tests.outbox.runner_kit import BACKOFF, SEND, Desk, send

SECOND = timedelta(seconds=1)


@pytest.fixture
def desk(database: Database) -> Desk:
    return Desk(database.sessions)


async def test_a_call_that_answers_has_succeeded(desk: Desk) -> None:
    id = desk.put_one()
    assert await desk.runner().run_once() == 1
    entry = desk.get(id)
    assert (entry.status, entry.attempts, entry.claim_token, entry.next_attempt_at) == ("succeeded", 1, None, None)
    assert desk.trail.said == [("send_succeeded", {"target": "mail", "external": True, "attempts": 1})]
    assert desk.history(id) == []  # the entry itself says all of it
    assert await desk.runner().run_once() == 0


async def test_an_empty_outbox_gives_nothing_to_do(desk: Desk) -> None:
    assert await desk.runner().run_once() == 0


async def test_a_result_is_kept_and_only_registered_facts_are_audited(desk: Desk) -> None:
    desk.mail.answers = lambda context: Done({"ticket": 7}, {"code": 250, "address": "ada@example.org"})
    id = desk.put_one()
    await desk.runner().run_once()
    assert desk.get(id).result == {"ticket": 7}
    assert desk.trail.said == [("send_succeeded", {"target": "mail", "external": True, "attempts": 1, "code": 250})]


async def test_the_erasure_of_a_subject_completes_with_its_last_entry(desk: Desk) -> None:
    desk.crm.erases = lambda ref: ResolverErasure(resolver="crm", already_absent=True)
    ids = [desk.erase(), desk.erase()]
    assert await desk.runner(batch_size=1).run_once() == 1
    assert desk.trail.types == ["erasure_step_succeeded"]
    await desk.runner().run_once()
    facts = {"target": "crm", "strategy": "delete", "external": True, "already_absent": True, "attempts": 1}
    step = ("erasure_step_succeeded", facts)
    assert desk.trail.said == [step, step, ("erasure_completed", {})]
    assert [event.entry_id for event in desk.trail.events[:2]] == ids
    assert {event.subject_ref for event in desk.trail.events} == {"ada"}


async def test_an_ordinary_error_is_tried_again_after_a_growing_delay(desk: Desk) -> None:
    desk.mail.answers = _raise(ConnectionError("ada@example.org is unreachable"))
    id, runner = desk.put_one(), desk.runner()
    for attempt, seconds in ((1, 30), (2, 60), (3, 120)):
        assert await runner.run_once() == 1
        entry = desk.get(id)
        assert (entry.status, entry.attempts, entry.last_error) == ("failed", attempt, "ConnectionError")
        assert desk.after(id) == timedelta(seconds=seconds)
        desk.clock.advance(seconds - 1)
        assert await runner.run_once() == 0
        desk.clock.advance(1)
    assert desk.trail.events == []
    assert desk.history(id) == [(n, "failed", "ConnectionError") for n in (1, 2, 3)]


async def test_the_last_attempt_abandons_loudly(desk: Desk) -> None:
    desk.mail.answers = _raise(OSError("no"))
    id, runner = desk.put_one(), desk.runner(max_attempts=2)
    await runner.run_once()
    desk.clock.advance(30)
    await runner.run_once()
    entry = desk.get(id)
    assert (entry.status, entry.attempts, entry.last_error, entry.next_attempt_at) == ("abandoned", 2, "OSError", None)
    facts = {"target": "mail", "external": True, "error": "OSError", "attempts": 2, "abandoned": True}
    assert desk.trail.said == [("send_failed", facts)]
    (signal,) = desk.pager.abandoned
    assert (signal.entry_id, signal.error, signal.attempts, signal.operation) == (id, "OSError", 2, SEND)
    assert (signal.resolver, signal.subject_id) == ("mail", "ada")
    assert desk.history(id) == [(1, "failed", "OSError"), (2, "abandoned", "OSError")]


async def test_a_resolver_error_abandons_at_once(desk: Desk) -> None:
    desk.crm.erases = _raise(ResolverError("never"))
    id = desk.erase()
    await desk.runner().run_once()
    assert (desk.get(id).status, desk.get(id).attempts) == ("abandoned", 1)
    facts = {"target": "crm", "strategy": "delete", "external": True}
    facts |= {"error": "ResolverError", "attempts": 1, "abandoned": True}
    assert desk.trail.said == [("erasure_step_failed", facts)]


async def test_an_error_that_the_operation_calls_permanent_abandons_at_once(database: Database) -> None:
    desk = Desk(database.sessions, permanent=(KeyError,))
    desk.mail.answers = _raise(KeyError("address"))
    id = desk.put_one()
    await desk.runner().run_once()
    assert (desk.get(id).status, desk.get(id).last_error) == ("abandoned", "KeyError")


async def test_rectify_without_the_capability_is_abandoned(desk: Desk) -> None:
    corrections = (Correction(category=PiiCategory.CONTACT, value="new@example.org"),)
    id = desk.put_one("crm", "rectify", corrections=corrections)
    await desk.runner().run_once()
    assert (desk.get(id).status, desk.get(id).corrections) == ("abandoned", ())
    assert desk.column(id, "payload") is None
    facts = {"target": "crm", "external": True, "error": "ResolverError", "attempts": 1, "abandoned": True}
    assert desk.trail.said == [("rectification_step_failed", facts)]


async def test_an_unknown_resolver_is_abandoned_or_deferred_as_the_runner_says(desk: Desk) -> None:
    deferred = desk.put_one("nobody", "erase")
    await desk.runner(unknown_target="defer").run_once()
    entry = desk.get(deferred)
    assert (entry.status, entry.attempts, entry.last_error) == ("failed", 0, "ResolverError")
    assert desk.after(deferred) == 30 * SECOND
    desk.clock.advance(30)
    await desk.runner().run_once()
    assert (desk.get(deferred).status, desk.get(deferred).last_error) == ("abandoned", "ResolverError")
    assert len(desk.pager.abandoned) == 1


async def test_an_operation_may_say_itself_what_an_unknown_target_means(database: Database) -> None:
    desk = Desk(database.sessions, unknown_target="defer")
    id = desk.put_one("nobody")
    await desk.runner().run_once()
    assert (desk.get(id).status, desk.get(id).attempts) == ("failed", 0)


async def test_an_unknown_operation_is_left_for_a_runner_that_knows_it(desk: Desk) -> None:
    id = desk.put_one(operation="charge", payload={"amount": 5})
    await desk.runner().run_once()
    entry = desk.get(id)
    assert (entry.status, entry.attempts, entry.last_error) == ("failed", 0, "UnknownOperation")
    assert entry.payload == {"amount": 5}


@pytest.mark.parametrize("answer", [7, "ok", object(), Done(result=object()), RetryAfter(5), Park("soon")])  # type: ignore[arg-type]
async def test_a_foreign_answer_abandons_its_entry_alone(desk: Desk, answer: Any) -> None:
    good, bad = desk.put_many(2)
    desk.mail.answers = lambda context: answer if context.entry_id == bad else None
    assert await desk.runner().run_once() == 2
    assert (desk.get(bad).status, desk.get(bad).last_error) == ("abandoned", "ResolverContractError")
    assert desk.get(good).status == "succeeded"


async def test_a_resolver_that_answers_with_a_foreign_type_is_abandoned(desk: Desk) -> None:
    desk.crm.erases = lambda ref: {"erased": True}
    id = desk.erase()
    await desk.runner().run_once()
    assert (desk.get(id).status, desk.get(id).last_error) == ("abandoned", "ResolverContractError")


@pytest.mark.parametrize(
    ("refusal", "wait"),
    [(CircuitOpen("mail", 45.0), 45), (RateLimited("mail", 0.5), 0.5), (CircuitOpen("mail"), 30)],
)
async def test_a_guards_refusal_costs_no_attempt(desk: Desk, refusal: Exception, wait: float) -> None:
    desk.mail.answers = _raise(refusal)
    id, runner = desk.put_one(), desk.runner(max_attempts=1)
    for _ in range(3):
        await runner.run_once()
        entry = desk.get(id)
        assert (entry.status, entry.attempts, entry.last_error) == ("failed", 0, type(refusal).__name__)
        assert desk.after(id) == timedelta(seconds=wait)
        desk.clock.advance(wait)
    desk.mail.answers = lambda context: None
    await runner.run_once()
    assert (desk.get(id).status, desk.get(id).attempts) == ("succeeded", 1)


async def test_retry_after_puts_the_entry_back_at_the_given_time(desk: Desk) -> None:
    desk.mail.answers = lambda context: RetryAfter(timedelta(minutes=5), "Busy")
    id = desk.put_one()
    await desk.runner().run_once()
    assert (desk.get(id).status, desk.get(id).attempts, desk.get(id).last_error) == ("failed", 0, "Busy")
    assert desk.after(id) == timedelta(minutes=5)
    assert desk.history(id) == [(1, "refunded", "Busy")]


@pytest.mark.parametrize("delay", [timedelta(0), timedelta(hours=-1), timedelta.min, timedelta(microseconds=1)])
async def test_a_retry_after_no_time_at_all_does_not_spin(desk: Desk, delay: timedelta) -> None:
    """It costs no attempt, so nothing else would ever end it."""
    desk.mail.answers = lambda context: RetryAfter(delay)
    id, runner = desk.put_one(), desk.runner(max_attempts=1)
    assert [await runner.run_once() for _ in range(3)] == [1, 0, 0]
    assert (desk.get(id).status, desk.get(id).attempts, desk.after(id)) == ("failed", 0, timedelta(seconds=1))


async def test_discard_abandons_with_its_reason(desk: Desk) -> None:
    desk.mail.answers = lambda context: Discard("Bounced\x00" + "x" * 300)
    id = desk.put_one()
    await desk.runner().run_once()
    entry = desk.get(id)
    assert (entry.status, entry.last_error) == ("abandoned", "Bounced" + "x" * 248)


async def test_a_parked_entry_waits_for_the_vendors_horizon_with_a_new_budget(desk: Desk) -> None:
    horizon = datetime(2026, 3, 1, 2, tzinfo=timezone(timedelta(hours=2)))
    desk.crm.schedule_erasure = _giving(ResolverScheduledErasure(resolver="crm", expires_at=horizon))  # type: ignore[attr-defined]
    id = desk.erase()
    await desk.runner().run_once()
    entry = desk.get(id)
    assert (entry.status, entry.attempts, entry.next_attempt_at) == ("scheduled", 0, datetime(2026, 3, 1, tzinfo=UTC))
    facts = {"target": "crm", "external": True, "expires_at": "2026-03-01T00:00:00+00:00", "prior_attempts": 1}
    assert desk.trail.said == [("erasure_expiry_scheduled", facts)]
    gone = ResolverScheduledErasure(resolver="crm", already_absent=True)
    desk.crm.schedule_erasure = _giving(gone)  # type: ignore[attr-defined]
    desk.clock.advance((datetime(2026, 3, 1, tzinfo=UTC) - desk.clock.wall()).total_seconds())
    await desk.runner().run_once()
    facts = {"target": "crm", "external": True, "verified_expiry": True, "already_absent": True, "attempts": 1}
    assert desk.trail.said[1:] == [("erasure_step_succeeded", facts), ("erasure_completed", {})]


async def test_a_horizon_in_the_past_waits_a_step_of_the_backoff(desk: Desk) -> None:
    past = desk.clock.wall() - timedelta(days=1)
    desk.mail.answers = lambda context: Park(past)
    id = desk.put_one(attempts=2)
    await desk.runner().run_once()
    assert desk.after(id) == timedelta(seconds=120)
    assert desk.trail.said[0][1]["expires_at"] == past.isoformat()  # the vendor's own
    assert desk.trail.said[0][1]["prior_attempts"] == 3


async def test_an_entry_that_is_put_off_too_often_is_told_as_overdue(desk: Desk) -> None:
    desk.mail.answers = lambda context: Park(desk.clock.wall() + SECOND * 100)
    id, runner = desk.put_one(), desk.runner(max_parks=2)
    for parks in (1, 2, 3):
        await runner.run_once()
        assert len(desk.pager.overdue) == max(0, parks - 2)
        desk.clock.advance(100)
    assert desk.pager.overdue[0].entry_id == id
    assert desk.get(id).status == "scheduled"


async def test_an_entry_that_is_put_off_for_too_long_is_told_as_overdue(desk: Desk) -> None:
    desk.mail.answers = lambda context: Park(desk.clock.wall() + SECOND * 100)
    desk.put_one()
    runner = desk.runner(max_park_age=timedelta(seconds=150))
    for told in (0, 0, 1):
        await runner.run_once()
        assert len(desk.pager.overdue) == told
        desk.clock.advance(100)


async def test_an_entry_that_crashes_its_runners_is_abandoned_uncalled(desk: Desk) -> None:
    id = desk.put_one()
    for _ in range(3):
        assert len(desk.outbox.claim_batch(lease=SECOND)) == 1
        desk.clock.advance(2)
    assert await desk.runner(max_attempts=3).run_once() == 1
    assert desk.mail.called == []
    entry = desk.get(id)
    assert (entry.status, entry.attempts, entry.last_error) == ("abandoned", 3, "AttemptsExhausted")
    facts = {"target": "mail", "external": True, "error": "AttemptsExhausted", "attempts": 3, "abandoned": True}
    assert desk.trail.said == [("send_failed", facts)]
    assert desk.pager.abandoned[0].error == "AttemptsExhausted"


async def test_a_class_name_of_any_length_can_be_stored(desk: Desk) -> None:
    error = type("E" * 5000, (Exception,), {})
    desk.mail.answers = _raise(error())
    id = desk.put_one()
    await desk.runner(max_attempts=1).run_once()
    assert desk.get(id).last_error == "E" * 255
    assert desk.pager.abandoned[0].error == "E" * 255
    assert desk.trail.said[0][1]["error"] == "E" * 255


async def test_the_idempotency_key_is_the_same_for_every_attempt(desk: Desk) -> None:
    desk.mail.answers = _raise(OSError())
    id, runner = desk.put_one(headers={"traceparent": "00-1"}, payload={"to": "x"}), desk.runner()
    await runner.run_once()
    desk.clock.advance(30)
    await runner.run_once()
    assert desk.mail.keys == [str(id), str(id)]
    first, second = desk.mail.contexts
    assert (first.attempt, second.attempt) == (1, 2)
    assert (first.idempotency_key, first.payload, first.headers) == (str(id), {"to": "x"}, {"traceparent": "00-1"})
    assert (first.target, first.operation, first.subject_id) == ("mail", SEND, "ada")


async def test_a_resolver_that_asks_for_the_key_gets_it(desk: Desk) -> None:
    seen: list[Any] = []

    async def erase_subject(ref: Any, *, idempotency_key: Any) -> ResolverErasure:
        seen.append(idempotency_key)
        return ResolverErasure(resolver="crm")

    desk.crm.erase_subject = erase_subject  # type: ignore[method-assign]
    id = desk.erase()
    await desk.runner().run_once()
    assert seen == [id]


async def test_a_dependent_entry_gets_what_the_one_before_gave(desk: Desk) -> None:
    desk.mail.answers = lambda context: Done({"n": 1})
    first = desk.put_one()
    await desk.runner().run_once()
    desk.put_one(depends_on=first)
    await desk.runner().run_once()
    assert [context.previous for context in desk.mail.contexts] == [None, {"n": 1}]


async def test_operations_have_policies_of_their_own(database: Database) -> None:
    backoff = BackoffPolicy(base_delay=timedelta(seconds=7))
    desk = Desk(database.sessions, max_attempts=2, backoff=backoff)
    desk.mail.answers = _raise(OSError())
    id = desk.put_one()
    await desk.runner().run_once()
    assert desk.after(id) == timedelta(seconds=7)
    desk.clock.advance(7)
    await desk.runner().run_once()
    assert desk.get(id).status == "abandoned"


async def test_the_callers_own_writes_commit_with_the_success(database: Database) -> None:
    from tests.databases import ORDERS

    def shipped(session: Any, entry: Any, result: Any) -> None:
        session.execute(ORDERS.insert(), {"id": result["order"], "note": "shipped"})

    desk = Desk(database.sessions, complete_in=shipped)
    good, bad = desk.put_many(2)
    desk.mail.answers = lambda context: Done({"order": 1} if context.entry_id == good else {})
    await desk.runner().run_once()
    assert desk.statuses([good, bad]) == ["succeeded", "in_flight"]
    with database.engine.connect() as connection:
        assert connection.execute(ORDERS.select()).all() == [(1, "shipped")]


async def test_entries_of_other_queues_are_left_alone(desk: Desk) -> None:
    slow, usual = desk.put_one(queue="slow"), desk.put_one()
    assert await desk.runner(queues=("slow",)).run_once() == 1
    assert desk.statuses([slow, usual]) == ["succeeded", "pending"]


async def test_an_operation_without_events_is_not_audited(database: Database) -> None:
    desk = Desk(database.sessions, events=None)
    desk.put_one()
    await desk.runner().run_once()
    assert desk.trail.events == []


def test_a_runner_that_cannot_work_is_refused(database: Database) -> None:
    desk = Desk(database.sessions)
    for wrong in ({"max_attempts": 0}, {"batch_size": 0}, {"concurrency": 0}, {"timeout": BACKOFF.lease}):
        with pytest.raises(PolicyError):
            desk.runner(**wrong)
    with pytest.raises(PolicyError, match="unknown_target"):
        desk.runner(unknown_target="ignore")
    with pytest.raises(PolicyError, match="queues"):
        desk.runner(queues="default")


async def test_a_runner_may_have_operations_of_its_own(desk: Desk) -> None:
    seen: list[CallContext] = []

    async def call(target: Any, context: CallContext) -> None:
        seen.append(context)

    desk.put_one()
    own = OperationRegistry(Operation(name=SEND, call=call))
    await SagaRunner(desk.registry, desk.outbox, None, operations=own, telemetry=desk.hub).run_once()
    assert len(seen) == 1
    assert send  # the registered one was not used
    assert desk.mail.called == []


def _raise(error: Exception) -> Any:
    def answer(context: Any) -> Any:
        raise error

    return answer


def _giving(value: Any) -> Any:
    async def method(ref: Any) -> Any:
        return value

    return method
