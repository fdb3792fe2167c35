"""Claiming what is due: in which order, from when on, by whom, and for how long."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from typing import Any
from uuid import UUID

import pytest
import sqlalchemy as sa

from holdfast.machine.outbox_entry import OutboxStatus
from holdfast.outbox.outbox import Outbox
from holdfast.testing import ManualClock
from tests.databases import DATABASES, Database
from tests.outbox.entries import (
    HOUR,
    LEASE,
    MINUTE,
    START,
    abandon,
    enqueue,
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
TICK = timedelta(microseconds=1)
SERVERS = [name for name in DATABASES if name != "sqlite"]


def test_a_claim_is_the_attempt(outbox: Outbox, clock: ManualClock) -> None:
    (entry,) = enqueue(outbox, make_entry(status="failed", attempts=2, last_error="Boom"))
    (claimed,) = outbox.claim_batch(lease=LEASE)
    assert claimed == stored(outbox, entry)
    assert (claimed.status, claimed.attempts, claimed.last_error) == (S.IN_FLIGHT, 3, "Boom")
    assert (claimed.last_attempt_at, claimed.next_attempt_at) == (START, START + LEASE)
    assert claimed.claim_token is not None
    assert claimed.claimed_by == outbox.name
    assert outbox.claim_batch() == ()


def test_what_is_claimed_is_what_is_stored(outbox: Outbox) -> None:
    everything = {
        "payload": {"a": [1, "ä"]}, "headers": {"traceparent": "00-1"}, "ordering_key": "k", "dedupe_key": "d",
        "saga_id": UUID(int=7), "step": "charge", "direction": "forward", "depends_on": UUID(int=8), "parks": 2,
        "last_error": "Boom", "queue": "other", "operation": "charge", "attempts": 3, "result": {"r": 1},
    }  # fmt: skip
    enqueue(outbox, make_entry(), make_rectify("bob"), make_entry("eve", **everything))
    claimed = [*outbox.claim_batch(9), *outbox.claim_batch(9, queues=["other"])]
    assert [entry.subject_id for entry in claimed] == ["ann", "bob", "eve"]
    assert claimed == [stored(outbox, entry) for entry in claimed]


def test_nothing_due_and_no_room_give_nothing(outbox: Outbox) -> None:
    assert outbox.claim_batch() == ()
    enqueue(outbox, make_entry())
    assert outbox.claim_batch(0) == outbox.claim_batch(-1) == ()
    assert len(outbox.claim_batch(1)) == 1


def test_the_default_limit_is_fifty(outbox: Outbox) -> None:
    enqueue(outbox, *(make_entry() for _ in range(51)))
    assert len(outbox.claim_batch()) == 50
    assert len(outbox.claim_batch()) == 1


def test_the_oldest_come_first_and_of_one_age_the_lower_id(outbox: Outbox) -> None:
    entries = enqueue(
        outbox,
        make_entry(at=START - MINUTE, entry_id=UUID(int=0x9000_7000_8000_0000_0000_0000)),
        make_entry(at=START - MINUTE, entry_id=UUID(int=0x1000_7000_8000_0000_0000_0000)),
        make_entry(at=START - HOUR),
        make_entry(at=START - 2 * HOUR, status="failed", next_attempt_at=START),
        make_entry(at=START - MINUTE / 2, status="scheduled", next_attempt_at=START),
    )
    third, second, first, oldest, last = entries
    assert ids_of(outbox.claim_batch(2)) == ids_of([oldest, first])
    assert ids_of(outbox.claim_batch()) == ids_of([second, third, last])


@pytest.mark.parametrize("status", ["pending", "failed", "in_flight", "scheduled"])
def test_a_gate_opens_at_its_very_moment(outbox: Outbox, clock: ManualClock, status: str) -> None:
    """Pending: a delayed start; failed: a backoff; in flight: the lease of a runner that died; scheduled: a horizon."""
    token = UUID(int=7) if status == "in_flight" else None
    (entry,) = enqueue(outbox, make_entry(status=status, next_attempt_at=START + MINUTE, claim_token=token))
    clock.advance(60 - 1e-6)
    assert outbox.claim_batch() == ()
    clock.advance(1e-6)
    (claimed,) = outbox.claim_batch()
    assert claimed.entry_id == entry.entry_id
    assert claimed.claim_token not in (None, token)


@pytest.mark.parametrize("status", ["succeeded", "abandoned"])
def test_what_has_ended_is_never_claimed(outbox: Outbox, status: str) -> None:
    enqueue(outbox, make_entry(status=status))
    assert outbox.claim_batch() == ()


def test_a_claim_reads_the_servers_clock_unless_another_one_is_given(database: Database) -> None:
    outbox = open_outbox(database)
    enqueue(outbox, make_entry())
    before = outbox.run(outbox.now)
    (claimed,) = outbox.claim_batch(lease=HOUR)
    assert claimed.last_attempt_at is not None
    assert claimed.next_attempt_at is not None
    assert before <= claimed.last_attempt_at <= outbox.run(outbox.now)
    assert abs(claimed.next_attempt_at - claimed.last_attempt_at - HOUR) <= TICK


def test_every_batch_has_a_token_of_its_own(outbox: Outbox) -> None:
    enqueue(outbox, *(make_entry() for _ in range(4)))
    one, two = outbox.claim_batch(2), outbox.claim_batch(2)
    assert len({entry.claim_token for entry in one}) == len({entry.claim_token for entry in two}) == 1
    assert one[0].claim_token != two[0].claim_token


def test_claimers_at_once_share_the_work_and_none_gets_what_another_has(database: Database) -> None:
    outbox = open_outbox(database)
    entries = enqueue(outbox, *(make_entry() for _ in range(120)))
    gate = threading.Barrier(6)

    def claim(_: int) -> list[UUID]:
        mine: list[UUID] = []
        gate.wait()
        while len(found := outbox.claim_batch(7)):
            mine += ids_of(found)
        return mine

    with ThreadPoolExecutor(6) as pool:
        claimed = [id for mine in pool.map(claim, range(6)) for id in mine]
    claimed += ids_of(outbox.claim_batch(200))  # what was locked by somebody else at somebody's last look
    assert sorted(claimed) == sorted(ids_of(entries))


@pytest.mark.parametrize("database", SERVERS, indirect=True)
def test_rows_that_somebody_has_locked_are_passed_over(database: Database) -> None:
    """SQLite has one writer at a time, who has locked all of them."""
    outbox = open_outbox(database)
    held, free = enqueue(outbox, make_entry(at=START - HOUR), make_entry())
    table = database.tables.outbox
    with database.sessions.begin() as session:
        locked = sa.select(table.c.entry_id).where(table.c.entry_id == held.entry_id).with_for_update()
        assert session.execute(locked).scalar() == held.entry_id
        assert ids_of(outbox.claim_batch()) == [free.entry_id]
    assert ids_of(outbox.claim_batch()) == [held.entry_id]


# -- order per key


def test_entries_of_a_key_are_claimed_one_after_the_other(outbox: Outbox) -> None:
    first, second, plain, other = enqueue(
        outbox,
        make_entry(at=START - 3 * MINUTE, ordering_key="k"),
        make_entry(at=START - 2 * MINUTE, ordering_key="k"),
        make_entry(at=START - MINUTE),
        make_entry(at=START, ordering_key="K"),
    )
    batch = outbox.claim_batch()
    assert ids_of(batch) == ids_of([first, plain, other])
    assert outbox.claim_batch() == ()
    assert outbox.mark_succeeded(batch[0], on_subject_complete=nothing)
    assert ids_of(outbox.claim_batch()) == [second.entry_id]


@pytest.mark.parametrize("status", ["failed", "scheduled", "pending", "in_flight"])
def test_a_head_that_waits_holds_up_the_younger_ones(outbox: Outbox, clock: ManualClock, status: str) -> None:
    head, young = enqueue(
        outbox,
        make_entry(at=START - HOUR, ordering_key="k", status=status, next_attempt_at=START + MINUTE),
        make_entry(ordering_key="k"),
    )
    assert outbox.claim_batch() == ()
    clock.advance(60)
    assert ids_of(outbox.claim_batch()) == [head.entry_id]
    assert status_of(outbox, young) == S.PENDING


@pytest.mark.parametrize("abandoned_head", ["skip", "block"])
def test_an_abandoned_head_is_skipped_or_blocks_as_told(
    database: Database, clock: ManualClock, abandoned_head: Any
) -> None:
    outbox = open_outbox(database, clock, abandoned_head=abandoned_head)
    (head,) = abandon(outbox, make_entry(ordering_key="k", operation="ping"))
    (young,) = enqueue(outbox, make_entry(at=START + TICK, ordering_key="k", operation="ping"))
    assert ids_of(outbox.claim_batch()) == ([young.entry_id] if abandoned_head == "skip" else [])
    if abandoned_head == "block":
        outbox.requeue([head.entry_id])
        (again,) = outbox.claim_batch()
        assert outbox.mark_succeeded(again, on_subject_complete=nothing)
        assert ids_of(outbox.claim_batch()) == [young.entry_id]


def test_a_requeued_head_waits_for_the_younger_one_that_is_being_called(outbox: Outbox) -> None:
    (head,) = abandon(outbox, make_entry(ordering_key="k", operation="ping"))
    enqueue(outbox, make_entry(at=START + TICK, ordering_key="k", operation="ping"))
    (young,) = outbox.claim_batch()
    outbox.requeue([head.entry_id])
    assert outbox.claim_batch() == ()
    assert outbox.mark_succeeded(young, on_subject_complete=nothing)
    assert ids_of(outbox.claim_batch()) == [head.entry_id]


def test_claimers_at_once_never_have_two_of_one_key(database: Database) -> None:
    outbox = open_outbox(database)
    enqueue(outbox, *(make_entry(at=START + n * TICK, ordering_key=f"k{n % 5}") for n in range(60)))
    under_way: set[str] = set()
    lock, done = threading.Lock(), []

    def work(_: int) -> None:
        while outbox.status_counts()[S.SUCCEEDED] < 60:
            for entry in outbox.claim_batch(3):
                key = str(entry.ordering_key)
                with lock:
                    assert key not in under_way
                    under_way.add(key)
                    done.append((key, entry.enqueued_at))
                with lock:
                    under_way.remove(key)
                assert outbox.mark_succeeded(entry, on_subject_complete=nothing)

    with ThreadPoolExecutor(4) as pool:
        list(pool.map(work, range(4)))
    for key in {key for key, _ in done}:
        times = [at for other, at in done if other == key]
        assert times == sorted(times)
    assert len(done) == 60


def test_behind_a_long_backlog_of_one_key_the_others_have_their_turn(outbox: Outbox) -> None:
    """Longer than what a claim looks at to see which keys have several."""
    hot = enqueue(outbox, *(make_entry(at=START + n * TICK, ordering_key="hot") for n in range(150)))
    plain, other, second = enqueue(
        outbox,
        make_entry(at=START + 200 * TICK),
        make_entry(at=START + 201 * TICK, ordering_key="other"),
        make_entry(at=START + 202 * TICK, ordering_key="other"),
    )
    batch = outbox.claim_batch(10)
    assert ids_of(batch) == ids_of([hot[0], plain, other])
    assert outbox.claim_batch(10) == ()
    for entry in batch:
        assert outbox.mark_succeeded(entry, on_subject_complete=nothing)
    assert ids_of(outbox.claim_batch(10)) == ids_of([hot[1], second])


# -- queues


def test_of_several_queues_the_first_come_first(outbox: Outbox) -> None:
    slow, fast, usual = enqueue(
        outbox, make_entry(at=START - HOUR, queue="slow"), make_entry(queue="fast"), make_entry(at=START - 2 * HOUR)
    )
    assert ids_of(outbox.claim_batch(1, queues=("fast", "slow"))) == [fast.entry_id]
    assert ids_of(outbox.claim_batch(queues=("fast", "slow"))) == [slow.entry_id]
    assert ids_of(outbox.claim_batch()) == [usual.entry_id]


def test_queues_of_a_claim_are_asked_until_the_limit_is_reached(outbox: Outbox) -> None:
    enqueue(outbox, *(make_entry(queue=queue) for queue in "aaabbb"))
    claimed = outbox.claim_batch(4, queues=("a", "b"))
    assert [entry.queue for entry in claimed] == ["a", "a", "a", "b"]


def test_queues_that_differ_in_case_are_two(outbox: Outbox) -> None:
    enqueue(outbox, make_entry(queue="Slow"))
    outbox.pause("Slow")
    assert outbox.pause("slow")
    assert outbox.claim_batch(queues=("slow",)) == ()
    assert outbox.resume("slow")
    assert outbox.claim_batch(queues=("slow",)) == ()
    assert outbox.resume("Slow")
    assert len(outbox.claim_batch(queues=("Slow",))) == 1


# -- holding on


def test_a_renewed_claim_lasts_a_lease_from_now(outbox: Outbox, clock: ManualClock) -> None:
    enqueue(outbox, make_entry(), make_entry())
    one, two = outbox.claim_batch(lease=LEASE)
    clock.advance(240)
    assert outbox.renew([one], lease=LEASE) == {one.entry_id}
    clock.advance(60)
    assert ids_of(outbox.claim_batch()) == [two.entry_id]
    assert stored(outbox, one).next_attempt_at == START + timedelta(minutes=9)
    assert stored(outbox, one).attempts == 1


def test_what_is_no_longer_held_is_not_renewed(outbox: Outbox, clock: ManualClock) -> None:
    enqueue(outbox, *(make_entry() for _ in range(3)))
    lost, settled, held = outbox.claim_batch(lease=LEASE)
    assert outbox.mark_succeeded(settled, on_subject_complete=nothing)
    clock.advance(300)
    (taken, _) = outbox.claim_batch(2, lease=LEASE)
    assert taken.entry_id == lost.entry_id
    assert outbox.renew([lost, settled, held], lease=HOUR) == set()
    assert outbox.renew([taken]) == {taken.entry_id}
    assert outbox.renew([]) == set()


def test_a_lease_that_ran_out_unnoticed_is_renewed_and_settles(outbox: Outbox, clock: ManualClock) -> None:
    enqueue(outbox, make_entry(), make_entry())
    one, two = outbox.claim_batch(lease=LEASE)
    clock.advance(10_000)
    assert outbox.renew([one]) == {one.entry_id}
    assert outbox.mark_succeeded(two, on_subject_complete=nothing)


def test_a_released_entry_is_due_at_once_and_has_lost_no_attempt(outbox: Outbox) -> None:
    enqueue(outbox, make_entry(), make_entry(status="failed", attempts=3, last_error="Boom"))
    claimed = outbox.claim_batch()
    assert outbox.release(claimed) == [True, True]
    assert outbox.release(claimed) == [False, False]
    assert [stored(outbox, one).attempts for one in claimed] == [0, 3]
    assert raw(outbox, claimed[0], "claim_token") is None
    assert len(outbox.claim_batch()) == 2


# -- the backlog


@pytest.mark.parametrize("database", ["sqlite"], indirect=True)
def test_a_claim_goes_by_the_indexes_however_much_is_parked_or_done(database: Database, clock: ManualClock) -> None:
    """Nothing sorts the backlog: each part of a claim reads an index in its order and stops at the limit. What servers
    plan for small tables says nothing; that their claims do not slow down is measured."""
    outbox = open_outbox(database, clock)
    plans: list[str] = []

    def explain(connection: Any, cursor: Any, statement: str, parameters: Any, *rest: Any) -> None:
        if statement.startswith("WITH") or "fresh_at" in statement:
            cursor.execute(f"EXPLAIN QUERY PLAN {statement}", parameters)
            plans.extend(row[3] for row in cursor.fetchall())

    enqueue(outbox, make_entry())
    sa.event.listen(database.engine, "before_cursor_execute", explain)
    assert len(outbox.claim_batch()) == 1
    text = "\n".join(plans)
    assert "holdfast_outbox_fresh" in text
    assert "holdfast_outbox_gate" in text
    assert "SCAN holdfast_outbox\n" not in text + "\n"


@pytest.mark.parametrize("database", ["postgres"], indirect=True)
def test_the_turn_is_not_judged_of_every_entry_in_the_backlog_of_a_key(database: Database, clock: ManualClock) -> None:
    outbox = open_outbox(database, clock)
    enqueue(outbox, *(make_entry(at=START + n * TICK, ordering_key="hot") for n in range(2_000)))
    enqueue(outbox, *(make_entry(at=START + HOUR + n * TICK, ordering_key=f"k{n}") for n in range(50)))
    with database.engine.begin() as connection:  # or the server may have looked at the table while it was empty
        connection.execute(sa.text("ANALYZE holdfast_outbox"))
    judged: list[int] = []

    def explain(connection: Any, cursor: Any, statement: str, parameters: Any, *rest: Any) -> None:
        if statement.startswith("WITH"):  # it is run, and claims
            cursor.execute(f"EXPLAIN (ANALYZE, FORMAT JSON) {statement}", parameters)
            judged.append(most_loops(cursor.fetchone()[0][0]["Plan"]))

    sa.event.listen(database.engine, "before_cursor_execute", explain)
    outbox.claim_batch()
    assert outbox.status_counts()[S.IN_FLIGHT] >= 50
    assert judged[0] <= 100


def most_loops(plan: dict[str, Any]) -> int:
    """How often a part of the plan was run that runs once for each row."""
    return max([plan["Actual Loops"], *(most_loops(part) for part in plan.get("Plans", ()))])
