"""Writing down what became of calls: the seed's own methods, the fence around them, and the completion of groups."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta, timezone
from typing import Any
from uuid import uuid4

import pytest
import sqlalchemy as sa
from sqlalchemy.exc import OperationalError

from holdfast.audit.event import AuditEvent
from holdfast.machine.outbox_entry import ABANDON, FAIL, SUCCEED, OutboxStatus
from holdfast.outbox.entry import OutboxEntry
from holdfast.outbox.outbox import Outbox
from holdfast.outbox.settle import Settlement
from holdfast.testing import ManualClock
from tests.databases import Database
from tests.outbox.entries import (
    HOUR,
    LEASE,
    MINUTE,
    START,
    Calls,
    abandon,
    delete_row,
    enqueue,
    make_entry,
    make_rectify,
    nothing,
    open_outbox,
    raw,
    settlement,
    status_of,
    stored,
)

S = OutboxStatus


def claim_one(outbox: Outbox, entry: OutboxEntry | None = None) -> OutboxEntry:
    enqueue(outbox, make_entry() if entry is None else entry)
    (claimed,) = outbox.claim_batch(lease=LEASE)
    return claimed


def succeed(outbox: Outbox, entry: OutboxEntry, completed: Any = nothing) -> bool:
    return outbox.mark_succeeded(entry, on_subject_complete=completed)


def test_a_failure_keeps_the_payload_and_waits_for_its_time(outbox: Outbox) -> None:
    claimed = claim_one(outbox, make_rectify())
    east = timezone(timedelta(hours=2))
    assert outbox.mark_failed(claimed, error="Boom", next_attempt_at=datetime(2026, 1, 1, 4, tzinfo=east)) is True
    entry = stored(outbox, claimed)
    assert (entry.status, entry.attempts, entry.last_error) == (S.FAILED, 1, "Boom")
    assert entry.next_attempt_at == datetime(2026, 1, 1, 2, tzinfo=UTC)
    assert (entry.corrections, entry.claim_token) == (claimed.corrections, None)
    assert outbox.audit_sink is not None
    assert outbox.audit_sink.read("ann") == ()


def test_a_parked_entry_has_a_new_budget(outbox: Outbox) -> None:
    claimed = claim_one(outbox, make_rectify(status="failed", attempts=5, last_error="Boom"))
    assert outbox.mark_scheduled(claimed, resume_at=START + HOUR)
    entry = stored(outbox, claimed)
    assert (entry.status, entry.attempts, entry.last_error, entry.parks) == (S.SCHEDULED, 0, None, 1)
    assert entry.next_attempt_at == START + HOUR
    assert (entry.corrections, entry.claim_token) == (claimed.corrections, None)


@pytest.mark.parametrize("operation", ["rectify", "charge"])
def test_an_abandoned_entry_keeps_no_sensitive_payload(outbox: Outbox, operation: str) -> None:
    entry = make_rectify() if operation == "rectify" else make_entry(operation=operation, payload={"card": "4711"})
    claimed = claim_one(outbox, entry)
    assert outbox.mark_abandoned(claimed, error="Boom")
    found = stored(outbox, claimed)
    assert (found.status, found.attempts, found.last_error, found.next_attempt_at) == (S.ABANDONED, 1, "Boom", None)
    assert (raw(outbox, claimed, "payload"), found.claim_token) == (None, None)


def test_a_succeeded_entry_keeps_no_sensitive_payload_and_another_keeps_its_own(outbox: Outbox) -> None:
    secret = claim_one(outbox, make_rectify())
    assert succeed(outbox, secret)
    found = stored(outbox, secret)
    assert (found.status, found.next_attempt_at, found.claim_token) == (S.SUCCEEDED, None, None)
    assert raw(outbox, secret, "payload") is None
    plain = claim_one(outbox, make_entry(operation="ping", payload={"n": 1}))
    assert succeed(outbox, plain)
    assert stored(outbox, plain).payload == {"n": 1}


# -- the fence

SETTLES: dict[str, Any] = {
    "mark_failed": lambda outbox, entry: outbox.mark_failed(entry, error="Late", next_attempt_at=START),
    "mark_scheduled": lambda outbox, entry: outbox.mark_scheduled(entry, resume_at=START),
    "mark_abandoned": lambda outbox, entry: outbox.mark_abandoned(entry, error="Late"),
    "mark_succeeded": lambda outbox, entry: succeed(outbox, entry, Calls(AssertionError("it was lost"))),
    "release": lambda outbox, entry: outbox.release([entry])[0],
    "settle_batch": lambda outbox, entry: outbox.settle_batch(
        [settlement(entry, FAIL, last_error="Late", next_attempt_at=START)]
    )[0],
}


def row_of(outbox: Outbox, entry: OutboxEntry) -> Any:
    table = outbox.tables.outbox
    found = sa.select(table).where(table.c.entry_id == entry.entry_id)
    row = outbox.run(lambda session: session.execute(found).first())
    return None if row is None else row._asdict()


@pytest.mark.parametrize("settle", SETTLES)
@pytest.mark.parametrize("after", ["another claim", "success", "abandonment", "park", "failure", "requeue", "deletion"])
def test_a_settle_by_a_lost_claim_changes_nothing(outbox: Outbox, clock: ManualClock, settle: str, after: str) -> None:
    lost = claim_one(outbox, make_entry(operation="ping", payload={"n": 1}))
    clock.advance(300)
    (taken,) = outbox.claim_batch(lease=LEASE)
    match after:
        case "success":
            assert succeed(outbox, taken)
        case "abandonment":
            assert outbox.mark_abandoned(taken, error="Boom")
        case "park":
            assert outbox.mark_scheduled(taken, resume_at=START + HOUR)
        case "failure":
            assert outbox.mark_failed(taken, error="Boom", next_attempt_at=START + HOUR)
        case "requeue":
            assert outbox.mark_abandoned(taken, error="Boom")
            assert len(outbox.requeue([taken.entry_id])) == 1
        case "deletion":
            delete_row(outbox, taken)
    before = row_of(outbox, lost)
    assert SETTLES[settle](outbox, lost) is False
    assert row_of(outbox, lost) == before


def test_an_expired_lease_that_nobody_else_claimed_still_settles(outbox: Outbox, clock: ManualClock) -> None:
    claimed = claim_one(outbox)
    clock.advance(100_000)
    assert succeed(outbox, claimed)


def test_an_old_claim_is_not_revived_by_a_counter_that_was_reset(outbox: Outbox, clock: ManualClock) -> None:
    """Attempts alone have a hole: after a park, or a requeue, they begin anew and reach the old number again."""
    old = claim_one(outbox)
    clock.advance(300)
    (second,) = outbox.claim_batch(lease=LEASE)
    assert outbox.mark_scheduled(second, resume_at=START)
    (third,) = outbox.claim_batch(lease=LEASE)
    assert third.attempts == old.attempts == 1
    assert not outbox.mark_failed(old, error="Late", next_attempt_at=START)
    assert status_of(outbox, old) == S.IN_FLIGHT
    assert succeed(outbox, third)


@pytest.mark.parametrize("settle", [name for name in SETTLES if name not in ("mark_succeeded", "release")])
def test_an_entry_built_by_hand_settles_a_row_that_has_not_been_attempted_more_often(
    outbox: Outbox, settle: str
) -> None:
    (entry,) = enqueue(outbox, make_entry(operation="ping"))
    assert SETTLES[settle](outbox, entry) is True
    assert status_of(outbox, entry) != S.PENDING


def test_an_entry_built_by_hand_loses_against_a_later_attempt_and_an_end(outbox: Outbox, clock: ManualClock) -> None:
    mine = claim_one(outbox).model_copy(update={"claim_token": None})
    clock.advance(300)
    (later,) = outbox.claim_batch(lease=LEASE)
    assert not succeed(outbox, mine)
    assert succeed(outbox, later.model_copy(update={"claim_token": None}))
    for settle in SETTLES.values():
        assert settle(outbox, later.model_copy(update={"claim_token": None})) is False
    assert status_of(outbox, later) == S.SUCCEEDED


def test_the_claim_is_checked_for_each_entry_of_a_batch(outbox: Outbox, clock: ManualClock) -> None:
    enqueue(outbox, *(make_entry(f"s{n}") for n in range(5)))
    lost, *kept = outbox.claim_batch(lease=LEASE)
    table = outbox.tables.outbox
    move = table.update().where(table.c.entry_id == lost.entry_id).values(claim_token=uuid4())
    outbox.run(lambda session: session.execute(move))
    outcomes = [Settlement(one, SUCCEED, grouped=True) for one in (kept[0], lost, kept[1])]
    outcomes.append(settlement(kept[2], FAIL, last_error="Boom", next_attempt_at=START + HOUR))
    outcomes.append(settlement(kept[3], ABANDON, last_error="Boom", attempts=1))
    assert outbox.settle_batch(outcomes) == [True, False, True, True, True]
    statuses = [str(status_of(outbox, one)) for one in (lost, *kept)]
    assert statuses == ["in_flight", "succeeded", "succeeded", "failed", "abandoned"]
    assert outbox.settle_batch([]) == []


def test_the_first_of_two_outcomes_of_one_entry_counts(outbox: Outbox) -> None:
    claimed = claim_one(outbox)
    twice = [Settlement(claimed, SUCCEED), settlement(claimed, ABANDON, last_error="Boom", attempts=1)]
    assert outbox.settle_batch(twice) == [True, False]
    assert status_of(outbox, claimed) == S.SUCCEEDED


def test_a_batch_is_written_with_its_events_or_not_at_all(outbox: Outbox) -> None:
    enqueue(outbox, make_entry("a"), make_entry("b"))
    one, two = outbox.claim_batch()
    event = AuditEvent(event_type="charge_succeeded", subject_ref="a", occurred_at=START)
    outcomes = [Settlement(one, SUCCEED, events=(event,)), Settlement(two, SUCCEED, events=(event,))]
    with pytest.raises(Exception, match="twice"):
        outbox.settle_batch(outcomes)
    assert [status_of(outbox, entry) for entry in (one, two)] == [S.IN_FLIGHT] * 2
    assert outbox.settle_batch(outcomes[:1]) == [True]
    assert outbox.audit_sink is not None
    assert outbox.audit_sink.read("a") == (event,)


# -- completion


def test_the_last_success_of_a_subject_completes_it_once(outbox: Outbox) -> None:
    enqueue(outbox, make_entry(), make_entry(), make_entry("bob"))
    one, two, _ = outbox.claim_batch()
    completed = Calls()
    assert succeed(outbox, one, completed)
    assert completed.number == 0
    assert succeed(outbox, two, completed)
    assert completed.number == 1
    assert not succeed(outbox, two, completed)
    assert completed.number == 1


@pytest.mark.parametrize("status", ["pending", "failed", "in_flight", "scheduled", "abandoned"])
def test_a_sibling_of_any_generation_that_has_not_succeeded_blocks_it(outbox: Outbox, status: str) -> None:
    enqueue(outbox, make_entry(status=status, next_attempt_at=START + HOUR, at=START - HOUR))
    claimed = claim_one(outbox)
    completed = Calls()
    assert succeed(outbox, claimed, completed)
    assert completed.number == 0


def test_the_other_operation_and_other_subjects_are_invisible(outbox: Outbox) -> None:
    enqueue(outbox, make_rectify(next_attempt_at=START + HOUR), make_entry("Ann", next_attempt_at=START + HOUR))
    claimed = claim_one(outbox)
    completed = Calls()
    assert succeed(outbox, claimed, completed)
    assert completed.number == 1


def test_each_finished_generation_completes_again_and_overlapping_ones_once(outbox: Outbox) -> None:
    completed = Calls()
    for number in (1, 2):
        assert succeed(outbox, claim_one(outbox), completed)
        assert completed.number == number
    first = claim_one(outbox)
    second = claim_one(outbox)  # asked for before the first one was done
    assert succeed(outbox, first, completed)
    assert completed.number == 2
    assert succeed(outbox, second, completed)
    assert completed.number == 3


def test_a_request_with_an_id_of_its_own_completes_by_itself(outbox: Outbox) -> None:
    one, two = uuid4(), uuid4()
    abandon(outbox, make_rectify(saga_id=one))
    completed = Calls()
    assert succeed(outbox, claim_one(outbox, make_rectify(saga_id=two)), completed)
    assert completed.number == 1
    assert succeed(outbox, claim_one(outbox, make_rectify(saga_id=one)), completed)
    assert completed.number == 1
    assert succeed(outbox, claim_one(outbox, make_rectify()), completed)
    assert completed.number == 2


def test_a_requeued_entry_completes_its_subject_when_it_has_succeeded(outbox: Outbox) -> None:
    (given_up,) = abandon(outbox, make_entry())
    completed = Calls()
    assert succeed(outbox, claim_one(outbox), completed)
    assert completed.number == 0
    outbox.requeue([given_up.entry_id])
    (again,) = outbox.claim_batch()
    assert succeed(outbox, again, completed)
    assert completed.number == 1


def test_a_completion_that_fails_leaves_the_entry_in_flight(outbox: Outbox) -> None:
    claimed = claim_one(outbox, make_rectify())
    before = row_of(outbox, claimed)
    with pytest.raises(ZeroDivisionError):
        succeed(outbox, claimed, Calls(ZeroDivisionError()))
    assert row_of(outbox, claimed) == before
    completed = Calls()
    assert succeed(outbox, claimed, completed)
    assert completed.number == 1


def test_a_transaction_that_is_repeated_tells_of_a_completion_once(outbox: Outbox, database: Database) -> None:
    """The database may undo a transaction at its very end; the caller's own writes are elsewhere, and stay."""
    claimed = claim_one(outbox)
    completed, commits = Calls(), []

    def break_once(connection: Any) -> None:
        commits.append(1)
        if len(commits) == 1:
            raise OperationalError("COMMIT", {}, Exception("database is locked"))

    sa.event.listen(database.engine, "commit", break_once)
    assert succeed(outbox, claimed, completed)
    assert (len(commits), completed.number) == (2, 1)
    assert status_of(outbox, claimed) == S.SUCCEEDED


def test_the_last_entries_of_many_subjects_settled_at_once_complete_each_of_them_once(database: Database) -> None:
    """Runners that finish the last two entries of a subject wait for each other; exactly one sees that all is done."""
    outbox = open_outbox(database)
    subjects = 12
    enqueue(outbox, *(make_entry(f"s{n % subjects}") for n in range(4 * subjects)))
    claimed = outbox.claim_batch(200)
    gate, completed, lock = threading.Barrier(4), list[str](), threading.Lock()

    def note(subject: str) -> None:
        with lock:
            completed.append(subject)

    def work(part: int) -> None:
        mine = claimed[part * subjects : (part + 1) * subjects]
        gate.wait()
        for entry in mine:
            assert outbox.mark_succeeded(entry, on_subject_complete=lambda entry=entry: note(entry.subject_id))

    with ThreadPoolExecutor(4) as pool:
        list(pool.map(work, range(4)))
    assert sorted(completed) == sorted(f"s{n}" for n in range(subjects))


def test_a_long_or_strange_error_is_cut_and_cleaned(outbox: Outbox) -> None:
    claimed = claim_one(outbox)
    assert outbox.mark_failed(claimed, error="E\0" + "x" * 500, next_attempt_at=START + MINUTE)
    assert stored(outbox, claimed).last_error == "E\ufffd" + "x" * 253
