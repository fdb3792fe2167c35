"""Looking into the outbox: pages, filters, counts, attempts. On SQLite, PostgreSQL and MariaDB."""

from __future__ import annotations

import threading
from datetime import UTC, timedelta
from typing import Any
from uuid import uuid4

import pytest

from holdfast.machine.outbox_entry import OutboxStatus
from holdfast.outbox.async_outbox import AsyncOutbox
from holdfast.outbox.outbox import Outbox
from holdfast.testing import ManualClock
from tests.databases import Database
from tests.outbox.entries import HOUR, LEASE, START, abandon, enqueue, ids_of, make_entry, open_outbox


def test_pages_go_through_all_entries_in_either_direction(outbox: Outbox) -> None:
    ids = ids_of(enqueue(outbox, *(make_entry() for _ in range(5))))
    for newest_first, expected in ((False, ids), (True, ids[::-1])):
        seen: list[Any] = []
        while page := outbox.find(limit=2, after=seen[-1] if seen else None, newest_first=newest_first):
            seen += ids_of(page)
        assert seen == expected
    assert outbox.find(limit=0) == ()


@pytest.mark.parametrize(
    ("wanted", "expected"),
    [
        ({"status": "pending"}, [1, 2, 3, 4]),
        ({"status": OutboxStatus.ABANDONED}, [0]),
        ({"status": ["abandoned", "pending"], "target": "crm"}, [0, 1, 2, 3]),
        ({"status": []}, []),
        ({"operation": "ping"}, [1]),
        ({"target": "mail"}, [4]),
        ({"subject_id": "bob"}, [2]),
        ({"key": "k"}, [3]),
        ({"key": "k", "status": "pending"}, [3]),
        ({"key": "k", "status": "succeeded"}, []),
        ({"queue": "slow"}, [4]),
        ({"error": "Boom"}, [0]),
        ({"verification": "failed"}, []),
        ({"status": None, "queue": None}, [0, 1, 2, 3, 4]),
    ],
    ids=str,
)
def test_all_that_is_asked_for_must_fit(outbox: Outbox, wanted: Any, expected: list[int]) -> None:
    ids = ids_of(
        [
            *abandon(outbox, make_entry()),
            *enqueue(
                outbox,
                make_entry(operation="ping"),
                make_entry("bob", next_attempt_at=START + HOUR),
                make_entry(ordering_key="k"),
                make_entry(resolver="mail", queue="slow"),
            ),
        ]
    )
    assert [ids.index(id) for id in ids_of(outbox.find(**wanted))] == expected
    assert [ids.index(id) for id in outbox.ids(**wanted)] == expected
    assert outbox.tally(**wanted).get((), 0) == len(expected)


@pytest.mark.parametrize(
    ("wanted", "expected"),
    [
        ("confirmed", [0]),
        ("failed", [1]),
        ("pending", [2, 3]),
        ("given_up", [3]),
        (["failed", "given_up"], [1, 3]),
        ([], []),
        (None, [0, 1, 2, 3, 4]),
    ],
    ids=str,
)
def test_successes_are_found_by_how_far_their_verification_is(outbox: Outbox, wanted: Any, expected: list[int]) -> None:
    states = (("confirmed", None), ("failed", None), ("pending", START + HOUR), ("pending", None), (None, None))
    entries = [make_entry(status="succeeded", verification=word, verify_at=at) for word, at in states]
    ids = ids_of(enqueue(outbox, *entries))
    assert [ids.index(id) for id in outbox.ids(verification=wanted)] == expected
    assert [ids.index(id) for id in ids_of(outbox.find(status="succeeded", verification=wanted))] == expected


def test_a_succeeded_entry_is_found_by_its_key(outbox: Outbox) -> None:
    enqueue(outbox, make_entry(ordering_key="k"))
    [claimed] = outbox.claim_batch(lease=LEASE)
    assert outbox.mark_succeeded(claimed, on_subject_complete=lambda: None)
    assert outbox.ids(key="k") == outbox.ids(key="k", status="succeeded") == (claimed.entry_id,)


def test_what_cannot_be_asked_for_is_refused(outbox: Outbox) -> None:
    enqueue(outbox, make_entry())
    with pytest.raises(ValueError, match="'nonsense' is no status"):
        outbox.find(status="nonsense")
    with pytest.raises(TypeError, match="entries have no 'que' to be found by"):
        outbox.ids(que="slow")  # type: ignore[call-arg]  # what a misspelt filter is
    with pytest.raises(ValueError, match="and not by payload"):
        outbox.tally("payload")


def test_entries_are_counted_by_what_they_have(outbox: Outbox) -> None:
    assert outbox.tally("queue", "status") == outbox.tally() == {}
    abandon(outbox, make_entry())
    enqueue(outbox, make_entry(), make_entry(queue="slow"))
    assert outbox.tally("queue", "status") == {
        ("default", "abandoned"): 1, ("default", "pending"): 1, ("slow", "pending"): 1,
    }  # fmt: skip
    assert outbox.tally("target", "error", status="abandoned") == {("crm", "Boom"): 1}


def test_attempts_come_oldest_first_with_their_times_in_utc(outbox: Outbox, clock: ManualClock) -> None:
    from holdfast.machine.outbox_entry import FAIL
    from holdfast.outbox.settle import Attempt, Settlement

    [entry] = enqueue(outbox, make_entry())
    for number in (1, 2):
        [claimed] = outbox.claim_batch(lease=LEASE)
        assert claimed.claim_token is not None
        made = Attempt(entry.entry_id, claimed.claim_token, number, None, clock.wall(), "failed", "Boom")
        given = {"last_error": "Boom", "next_attempt_at": clock.wall()}
        assert outbox.settle_batch([Settlement(claimed, FAIL, given, attempt=made)]) == [True]
        clock.advance(60)
    found = outbox.attempts(entry.entry_id)
    assert [(one.number, one.started_at, one.outcome) for one in found] == [(1, None, "failed"), (2, None, "failed")]
    assert [one.finished_at for one in found] == [START, START + timedelta(minutes=1)]
    assert {one.finished_at.tzinfo for one in found} == {UTC}
    assert outbox.attempts(uuid4()) == ()


def test_what_prune_would_delete_can_be_counted_first(outbox: Outbox, clock: ManualClock) -> None:
    abandon(outbox, make_entry("bob"))
    enqueue(outbox, make_entry(), make_entry(), make_entry("eve"))
    for claimed in outbox.claim_batch(lease=LEASE):
        outbox.mark_succeeded(claimed, on_subject_complete=lambda: None)
    clock.advance(3600)
    assert outbox.prunable(2 * HOUR) == 0
    number = outbox.prunable(HOUR / 2)
    assert number == 3
    assert outbox.prune(HOUR / 2) == number
    with pytest.raises(ValueError, match="older_than must not be below 0"):
        outbox.prunable(-HOUR)


def test_looking_does_not_wait_for_a_writer(database: Database) -> None:
    """SQLite has one writer at a time; whoever looks must not be one."""
    outbox = open_outbox(database)
    [entry] = enqueue(outbox, make_entry())
    looked = threading.Event()
    seen: list[Any] = []

    def look() -> None:
        seen.extend([outbox.get(entry.entry_id), outbox.find(), outbox.ids(), outbox.tally(), outbox.attempts(uuid4())])
        looked.set()

    def write(session: Any) -> bool:
        session.execute(outbox.tables.outbox.update().values(last_error="Meanwhile"))
        thread = threading.Thread(target=look)
        thread.start()
        done = looked.wait(10)
        threads.append(thread)
        return done

    threads: list[threading.Thread] = []
    assert outbox.run(write)
    threads[0].join()
    assert seen[0].last_error is None


async def test_the_same_can_be_awaited(outbox: Outbox) -> None:
    [entry] = enqueue(outbox, make_entry())
    awaited = AsyncOutbox(outbox)
    assert await awaited.ids(status="pending") == (entry.entry_id,)
    assert await awaited.tally("queue") == {("default",): 1}
    assert ids_of(await awaited.find(limit=1)) == [entry.entry_id]
    assert await awaited.prunable(HOUR) == 0
