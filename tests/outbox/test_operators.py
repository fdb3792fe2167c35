"""For whoever looks after the outbox: lists, requeue, cancel, counts, paused queues, and taking out what is old."""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from typing import Any
from uuid import UUID, uuid4

import pytest
import sqlalchemy as sa

from holdfast.audit.event import AuditEvent
from holdfast.errors import ConfigurationError
from holdfast.machine.outbox_entry import OutboxStatus
from holdfast.outbox.counts import SqlStatusCountsSource
from holdfast.outbox.entry import OutboxEntry
from holdfast.outbox.outbox import Outbox
from holdfast.testing import ManualClock
from tests.databases import ORDERS, Database
from tests.outbox.entries import (
    HOUR,
    LEASE,
    MINUTE,
    START,
    abandon,
    enqueue,
    events_of,
    ids_of,
    make_entry,
    make_rectify,
    nothing,
    open_outbox,
    raw,
    status_of,
    stored,
)

S = OutboxStatus
DAY = timedelta(days=1)


class Listing:
    """A sink that cannot join a transaction, and takes only so many events."""

    def __init__(self, room: int = 1000) -> None:
        self.events: list[AuditEvent] = []
        self.room = room

    def append(self, event: AuditEvent) -> None:
        if len(self.events) >= self.room:
            raise ConnectionError("the trail is away")
        self.events.append(event)

    def read(self, subject_ref: str) -> Sequence[AuditEvent]:
        return self.events


# -- lists


def test_abandoned_entries_are_listed_oldest_first(outbox: Outbox) -> None:
    enqueue(outbox, make_entry(), make_entry(status="succeeded"))
    late = enqueue(outbox, *(make_entry(at=START, status="abandoned") for _ in range(3)))
    (early,) = enqueue(outbox, make_entry(at=START - HOUR, status="abandoned"))
    wanted = [early.entry_id, *sorted(ids_of(late))]
    assert ids_of(outbox.list_abandoned()) == wanted
    assert ids_of(outbox.list_abandoned(limit=2)) == wanted[:2]


def test_parked_entries_are_listed_by_the_nearest_horizon(outbox: Outbox) -> None:
    far, near, same = enqueue(
        outbox,
        make_entry(status="scheduled", next_attempt_at=START + DAY),
        make_entry(status="scheduled", next_attempt_at=START + HOUR),
        make_entry(status="scheduled", next_attempt_at=START + HOUR),
    )
    enqueue(outbox, make_entry(status="failed", next_attempt_at=START + MINUTE))
    wanted = [*sorted(ids_of([near, same])), far.entry_id]
    assert ids_of(outbox.list_scheduled()) == wanted
    assert ids_of(outbox.list_scheduled(limit=1)) == wanted[:1]


@pytest.mark.parametrize("name", ["list_abandoned", "list_scheduled"])
def test_a_list_has_a_hundred_entries_unless_told_otherwise(outbox: Outbox, name: str) -> None:
    status = name.removeprefix("list_")
    enqueue(outbox, *(make_entry(status=status, next_attempt_at=START) for _ in range(101)))
    listed = getattr(outbox, name)
    assert (len(listed()), len(listed(limit=500))) == (100, 101)
    assert listed(limit=0) == listed(limit=-5) == ()


# -- requeue


def test_a_requeued_entry_begins_anew_and_the_trail_tells_what_was(outbox: Outbox) -> None:
    (given_up,) = abandon(outbox, make_entry(status="failed", attempts=6))
    (again,) = outbox.requeue([given_up.entry_id, given_up.entry_id])
    assert again == stored(outbox, given_up)
    assert (again.status, again.attempts, again.last_error, again.next_attempt_at) == (S.PENDING, 0, None, None)
    assert (again.entry_id, again.claim_token) == (given_up.entry_id, None)
    event = events_of(outbox, "ann")[-1]
    facts = {"entry_id": str(given_up.entry_id), "resolver": "crm", "prior_attempts": 7, "prior_error": "Boom"}
    assert (event.event_type, event.payload, event.entry_id) == ("erasure_requeued", facts, given_up.entry_id)
    assert ids_of(outbox.claim_batch()) == [given_up.entry_id]


def test_without_an_error_the_trail_tells_of_none(outbox: Outbox) -> None:
    (entry,) = enqueue(outbox, make_entry(status="abandoned"))
    outbox.requeue([entry.entry_id])
    assert "prior_error" not in events_of(outbox, "ann")[-1].payload


def test_what_is_missing_or_not_abandoned_is_passed_over(outbox: Outbox) -> None:
    waiting, done = enqueue(outbox, make_entry(), make_entry(status="succeeded"))
    assert outbox.requeue([uuid4(), waiting.entry_id, done.entry_id]) == ()
    assert outbox.requeue([]) == ()
    assert events_of(outbox, "ann") == []
    given_up = [abandon(outbox, make_entry(at=START - MINUTE))[0] for _ in range(3)]
    again = outbox.requeue(reversed([*ids_of(given_up), waiting.entry_id]))
    assert ids_of(again) == sorted(ids_of(given_up))
    assert outbox.requeue(ids_of(given_up)) == ()
    assert len(events_of(outbox, "ann")) == 3


def test_a_requeue_without_a_trail_is_refused_even_of_nothing(database: Database) -> None:
    outbox = open_outbox(database, audit_sink=None)
    with pytest.raises(ConfigurationError, match="audit_sink"):
        outbox.requeue([])


@pytest.mark.parametrize("operation", ["rectify", "charge"])
def test_an_entry_whose_payload_was_scrubbed_stops_the_whole_requeue(outbox: Outbox, operation: str) -> None:
    (fine,) = abandon(outbox, make_entry())
    entry = make_rectify() if operation == "rectify" else make_entry(operation=operation, payload={"card": "4711"})
    (scrubbed,) = abandon(outbox, entry)
    with pytest.raises(ConfigurationError, match=rf"{scrubbed.entry_id} .*{operation}.* issue it anew"):
        outbox.requeue([fine.entry_id, scrubbed.entry_id])
    assert [status_of(outbox, one) for one in (fine, scrubbed)] == [S.ABANDONED] * 2
    assert events_of(outbox, "ann") == []


def test_a_payload_that_was_kept_makes_an_entry_requeueable(outbox: Outbox) -> None:
    (given_up,) = abandon(outbox, make_entry(operation="ping", payload={"n": 1}))
    assert outbox.requeue([given_up.entry_id])[0].payload == {"n": 1}
    (bare,) = abandon(outbox, make_entry(operation="charge"))  # it never had one
    assert len(outbox.requeue([bare.entry_id])) == 1


def test_when_the_kth_event_cannot_be_written_nothing_goes_back(database: Database, clock: ManualClock) -> None:
    sink = Listing()
    outbox = open_outbox(database, clock, audit_sink=sink)
    given_up = [abandon(outbox, make_entry(at=START - MINUTE))[0] for _ in range(4)]
    for room in (0, 2):
        sink.room = room
        with pytest.raises(ConnectionError):
            outbox.requeue(ids_of(given_up))
        assert [status_of(outbox, one) for one in given_up] == [S.ABANDONED] * 4
    sink.events, sink.room = [], 10
    assert len(outbox.requeue(ids_of(given_up))) == 4
    assert [event.entry_id for event in sink.events] == sorted(ids_of(given_up))


def test_an_entry_whose_dedupe_key_is_taken_is_refused_by_name(outbox: Outbox) -> None:
    (given_up,) = abandon(outbox, make_entry(dedupe_key="d"))
    (live,) = enqueue(outbox, make_entry(dedupe_key="d"))
    with pytest.raises(ConfigurationError, match=rf"{given_up.entry_id} .*{live.entry_id} has its dedupe_key"):
        outbox.requeue([given_up.entry_id])
    assert status_of(outbox, given_up) == S.ABANDONED
    outbox.cancel([live.entry_id])
    with pytest.raises(ConfigurationError, match="dedupe_key"):
        outbox.requeue([given_up.entry_id, live.entry_id])
    assert len(outbox.requeue([given_up.entry_id])) == 1


def test_operators_at_once_requeue_an_entry_once(database: Database) -> None:
    outbox = open_outbox(database)
    given_up = [abandon(outbox, make_entry())[0] for _ in range(10)]
    with ThreadPoolExecutor(4) as pool:
        done = list(pool.map(lambda _: outbox.requeue(ids_of(given_up)), range(4)))
    assert sorted(len(one) for one in done) == [0, 0, 0, 10]
    assert len(events_of(outbox, "ann")) == 10


def test_a_requeue_of_very_many_is_one_transaction(outbox: Outbox) -> None:
    entries = enqueue(outbox, *(make_entry(status="abandoned") for _ in range(1100)))
    assert len(outbox.requeue(ids_of(entries))) == 1100
    assert len(events_of(outbox, "ann")) == 1100


# -- cancel


@pytest.mark.parametrize("status", ["pending", "failed", "scheduled"])
def test_what_nobody_is_calling_can_be_cancelled(outbox: Outbox, status: str) -> None:
    (entry,) = enqueue(outbox, make_rectify(status=status, attempts=2, next_attempt_at=START + HOUR))
    (ended,) = outbox.cancel([entry.entry_id])
    assert ended == stored(outbox, entry)
    assert (ended.status, ended.last_error, ended.next_attempt_at) == (S.ABANDONED, "Cancelled", None)
    assert raw(outbox, entry, "payload") is None
    event = events_of(outbox, "ann")[-1]
    facts = {"target": "crm", "external": True, "error": "Cancelled", "attempts": 2, "abandoned": True}
    assert (event.event_type, event.payload, event.entry_id) == (
        "rectification_step_failed",
        facts,
        entry.entry_id,
    )
    assert outbox.cancel([entry.entry_id]) == ()


def test_what_is_being_called_or_has_ended_is_not_cancelled(outbox: Outbox) -> None:
    enqueue(outbox, make_entry())
    (called,) = outbox.claim_batch()
    done, gone = enqueue(outbox, make_entry(status="succeeded"), make_entry(status="abandoned"))
    assert outbox.cancel([called.entry_id, done.entry_id, gone.entry_id, uuid4()]) == ()
    assert events_of(outbox, "ann") == []


def test_a_cancelled_entry_can_be_requeued_and_holds_up_no_younger_one(outbox: Outbox) -> None:
    head, young = enqueue(outbox, make_entry(at=START - HOUR, ordering_key="k"), make_entry(ordering_key="k"))
    outbox.cancel([head.entry_id])
    assert ids_of(outbox.claim_batch()) == [young.entry_id]
    assert len(outbox.requeue([head.entry_id])) == 1


def test_a_cancel_whose_event_cannot_be_written_changes_nothing(database: Database, clock: ManualClock) -> None:
    outbox = open_outbox(database, clock, audit_sink=Listing(room=1))
    entries = enqueue(outbox, make_entry(), make_entry())
    with pytest.raises(ConnectionError):
        outbox.cancel(ids_of(entries))
    assert [status_of(outbox, one) for one in entries] == [S.PENDING] * 2


# -- counts


def test_every_status_is_counted_also_where_there_is_none(outbox: Outbox) -> None:
    assert outbox.status_counts() == dict.fromkeys(S, 0)
    enqueue(outbox, make_entry(), make_entry(), make_entry(status="abandoned"), make_entry(status="failed"))
    assert outbox.status_counts() == {**dict.fromkeys(S, 0), S.PENDING: 2, S.ABANDONED: 1, S.FAILED: 1}


class Counting:
    """Counts as the original did: every row, in Python."""

    def status_counts(self, outbox: sa.Table, session_factory: Any) -> dict[OutboxStatus, int]:
        with session_factory() as session:
            found = [OutboxStatus(one) for one in session.execute(sa.select(outbox.c.status)).scalars()]
        return {status: found.count(status) for status in S}


class Doubling(SqlStatusCountsSource):
    def status_counts(self, outbox: sa.Table, session_factory: Any) -> dict[OutboxStatus, int]:
        return {status: 2 * number for status, number in super().status_counts(outbox, session_factory).items()}


def test_a_source_of_ones_own_gives_the_same(database: Database, outbox: Outbox) -> None:
    enqueue(outbox, *(make_entry(status=status) for status in S), make_entry())
    counts = outbox.status_counts()
    assert open_outbox(database, status_counts_source=Counting()).status_counts() == counts
    assert open_outbox(database, status_counts_source=SqlStatusCountsSource()).status_counts() == counts
    assert open_outbox(database, status_counts_source=Doubling()).status_counts()[S.PENDING] == 4


def test_counting_is_one_grouped_query(database: Database, outbox: Outbox) -> None:
    enqueue(outbox, make_entry())
    seen: list[str] = []
    sa.event.listen(database.engine, "before_cursor_execute", lambda *args: seen.append(args[2]))
    outbox.status_counts()
    assert len([one for one in seen if "GROUP BY" in one]) == 1


def test_a_status_that_nobody_knows_is_an_error(outbox: Outbox) -> None:
    (entry,) = enqueue(outbox, make_entry())
    table = outbox.tables.outbox
    outbox.run(lambda session: session.execute(table.update().values(status="lost")))
    for ask in (outbox.status_counts, lambda: outbox.get(entry.entry_id)):
        with pytest.raises(ValueError, match="'lost' is no status"):
            ask()


# -- queues


def test_a_paused_queue_takes_entries_and_gives_none(outbox: Outbox) -> None:
    assert outbox.pause("slow", by="ann", reason="the bank is down") is True
    assert outbox.pause("slow") is False
    enqueue(outbox, make_entry(queue="slow"), make_entry())
    assert [entry.queue for entry in outbox.claim_batch(queues=("slow", "default"))] == ["default"]
    (paused,) = outbox.paused()
    assert paused == ("slow", START, "ann", "the bank is down")
    assert outbox.resume("slow") is True
    assert outbox.resume("slow") is False
    assert outbox.paused() == ()
    assert len(outbox.claim_batch(queues=("slow",))) == 1


def test_a_paused_queue_lets_its_running_calls_settle(outbox: Outbox, clock: ManualClock) -> None:
    enqueue(outbox, make_entry(), make_entry())
    one, two = outbox.claim_batch(lease=LEASE)
    outbox.pause()
    assert outbox.renew([one]) == {one.entry_id}
    assert outbox.mark_succeeded(one, on_subject_complete=nothing)
    assert outbox.mark_failed(two, error="Boom", next_attempt_at=START)
    assert outbox.claim_batch() == ()


def test_whoever_pauses_second_changes_nothing(database: Database) -> None:
    outbox = open_outbox(database)
    with ThreadPoolExecutor(6) as pool:
        paused = list(pool.map(lambda n: outbox.pause("slow", by=str(n)), range(6)))
    assert paused.count(True) == 1
    assert outbox.paused()[0].paused_by == str(paused.index(True))


def test_the_lag_of_a_queue_is_that_of_its_oldest_due_entry(outbox: Outbox, clock: ManualClock) -> None:
    assert (outbox.oldest_due(), outbox.lag()) == (None, timedelta(0))
    enqueue(
        outbox,
        make_entry(at=START - HOUR, next_attempt_at=START + HOUR),
        make_entry(at=START - HOUR, status="failed", next_attempt_at=START - MINUTE),
        make_entry(at=START - timedelta(seconds=30)),
        make_entry(at=START - 5 * HOUR, queue="slow"),
    )
    assert (outbox.oldest_due(), outbox.lag()) == (START - MINUTE, MINUTE)
    assert outbox.lag("slow") == 5 * HOUR


# -- prune


def succeeded(outbox: Outbox, *entries: OutboxEntry) -> list[OutboxEntry]:
    return enqueue(outbox, *(one.model_copy(update={"status": S.SUCCEEDED}) for one in entries))


def there(outbox: Outbox, entries: Sequence[OutboxEntry]) -> list[bool]:
    return [outbox.get(entry.entry_id) is not None for entry in entries]


def test_only_old_successes_of_complete_groups_go(outbox: Outbox, clock: ManualClock) -> None:
    old, unfinished, young, failed, unverified, confirmed, alone = succeeded(
        outbox,
        make_entry("ann"),
        make_entry("bob"),
        make_entry("cid", last_attempt_at=START + 9 * DAY),
        make_entry("dan", verification="failed"),
        make_entry("eve", verification="pending", verify_at=START + HOUR),
        make_entry("fay", verification="confirmed"),
        make_entry("bob", operation="ping"),
    )
    kept = enqueue(
        outbox,
        make_entry("bob", status="abandoned", at=START - DAY),
        make_entry("bob", operation="ping", status="failed", at=START - DAY),
        make_entry("gus", status="abandoned"),
    )
    clock.advance(10 * DAY.total_seconds())
    assert outbox.prune(7 * DAY) == 3
    assert there(outbox, [old, unfinished, young, failed, unverified, confirmed, alone]) == [
        False, True, True, True, True, False, False,
    ]  # fmt: skip
    assert there(outbox, kept) == [True] * 3
    assert outbox.prune(7 * DAY) == 0


def test_a_group_of_a_request_of_its_own_is_told_from_the_others(outbox: Outbox, clock: ManualClock) -> None:
    one, two = uuid4(), uuid4()
    first, second, plain = succeeded(outbox, make_rectify(saga_id=one), make_rectify(saga_id=two), make_rectify())
    enqueue(outbox, make_rectify(status="abandoned", saga_id=one))
    clock.advance(DAY.total_seconds())
    assert outbox.prune(HOUR) == 2
    assert there(outbox, [first, second, plain]) == [True, False, False]


def test_a_limit_and_many_chunks(outbox: Outbox, clock: ManualClock) -> None:
    entries = succeeded(outbox, *(make_entry(f"s{n}") for n in range(1203)))
    clock.advance(DAY.total_seconds())
    assert outbox.prune(HOUR, limit=0) == 0
    assert outbox.prune(HOUR, limit=7) == 7
    assert outbox.prune(HOUR) == 1196
    assert outbox.find() == ()
    assert len(entries) == 1203


def test_what_goes_is_archived_in_the_same_transaction(outbox: Outbox, clock: ManualClock) -> None:
    entries = succeeded(outbox, *(make_entry(f"s{n}") for n in range(3)))
    clock.advance(DAY.total_seconds())

    def archive(session: Any, gone: Sequence[OutboxEntry]) -> None:
        session.execute(ORDERS.insert(), [{"id": n + 1, "note": str(one.entry_id)} for n, one in enumerate(gone)])

    def broken(session: Any, gone: Sequence[OutboxEntry]) -> None:
        archive(session, gone)
        raise ZeroDivisionError

    notes = sa.select(ORDERS.c.note)
    with pytest.raises(ZeroDivisionError):
        outbox.prune(HOUR, archive=broken)
    assert (there(outbox, entries), outbox.run(lambda session: session.execute(notes).all())) == ([True] * 3, [])
    assert outbox.prune(HOUR, archive=archive) == 3
    kept = outbox.run(lambda session: session.execute(notes).scalars().all())
    assert sorted(map(UUID, kept)) == sorted(ids_of(entries))


def test_the_history_of_attempts_goes_with_its_entry_and_audit_events_stay(outbox: Outbox, clock: ManualClock) -> None:
    (entry,) = succeeded(outbox, make_entry())
    assert outbox.audit_sink is not None
    outbox.audit_sink.append(AuditEvent(event_type="erasure_completed", subject_ref="ann", occurred_at=START))
    row = {"entry_id": entry.entry_id, "claim_token": uuid4(), "number": 1, "finished_at": START, "outcome": "failed"}
    outbox.run(lambda session: session.execute(outbox.tables.attempts.insert(), row))
    assert len(outbox.attempts(entry.entry_id)) == 1
    clock.advance(DAY.total_seconds())
    assert outbox.prune(HOUR) == 1
    assert outbox.attempts(entry.entry_id) == ()
    assert len(events_of(outbox, "ann")) == 1
