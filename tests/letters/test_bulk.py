"""Bulk operations: durable, resumable, abortable."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

from holdfast.backends.memory import MemoryStore
from holdfast.errors import CircuitOpen, StoreUnavailable
from holdfast.guard.guard import Guard
from holdfast.guard.retry import Retry
from holdfast.letters.bulk import Bulk, BulkProgress, LetterFilter
from holdfast.letters.data import FailedOperationData, FailedOperationStatus
from holdfast.letters.events import BulkChanged
from holdfast.letters.filing import WAKE
from holdfast.machine.breaker import Breaker
from holdfast.machine.dead_letter import LETTER
from holdfast.machine.trip import consecutive
from holdfast.store.port import Change, Store
from holdfast.testing.clock import ManualClock
from tests.letters.replay_kit import Kit

PAYMENTS = LetterFilter(domain="payments")


class Died(BaseException):
    """The end of a process, as far as a test can play it."""


def filed(kit: Kit, number: int) -> list[str]:
    made = []
    for n in range(number):
        made.append(kit.letter(f"o{n}").id)
        kit.clock.advance(0.001)
    return made


def run(bulk: Bulk, id: str, stop: threading.Event | None = None) -> BulkProgress:
    progress = bulk.run(id, stop)
    assert progress is not None
    return progress


def test_every_letter_that_matched_at_the_start_is_replayed_once(store: Store, clock: ManualClock) -> None:
    kit = Kit(store, clock)
    kit.register()
    bulk = Bulk(kit.replayer, concurrency=1)
    ids = filed(kit, 120)
    begun = bulk.start(PAYMENTS, requested_by="ops", reason="after the outage", confirm_count=120)
    clock.advance(1)
    later = kit.letter("later")
    done = run(bulk, begun.id)
    assert (done.state, done.total, done.done, done.succeeded) == ("done", 120, 120, 120)
    assert kit.calls == [f"o{n}" for n in range(120)]
    assert kit.status(later.id) == "pending"
    stored = kit.letters.get_by_id(ids[0])
    assert stored is not None
    assert (stored.resolution_type, stored.resolved_by_id) == ("manual_replay", "ops")


def test_a_dry_run_says_what_would_happen_and_changes_nothing(store: Store, clock: ManualClock) -> None:
    kit = Kit(store, clock)
    ids = filed(kit, 7)
    kit.letters.update_status(ids[0], "requires_review")
    bulk = Bulk(kit.replayer)
    plain, forced = bulk.dry_run(PAYMENTS), bulk.dry_run(PAYMENTS, "force_replay")
    assert (plain.total, plain.by_status, plain.by_domain) == (6, {"pending": 6}, {"payments": 6})
    assert forced.by_status == {"pending": 6, "requires_review": 1}
    assert forced.sample == tuple(ids[:5])
    assert bulk.find() == []


@pytest.mark.parametrize("filter", [PAYMENTS, LetterFilter(), LetterFilter(domain="payments", entity_type="order")])
def test_a_dry_run_counts_up_to_a_time_from_counters_as_from_a_look_at_each(
    store: Store, clock: ManualClock, filter: LetterFilter
) -> None:
    kit = Kit(store, clock)
    ids = filed(kit, 5)
    snapshot = replace(filter, created_to=clock.wall())
    clock.advance(1)
    later = filed(kit, 3)
    bulk = Bulk(kit.replayer)
    assert (bulk.dry_run(filter).total, bulk.dry_run(snapshot).total) == (8, 5)
    kit.letters.update_status(ids[0], "requires_review")
    kit.letters.update_status(later[0], "requires_review")
    forced = bulk.dry_run(snapshot, "force_replay")
    assert (forced.by_status, forced.by_domain) == ({"pending": 4, "requires_review": 1}, {"payments": 5})
    assert bulk.start(snapshot, confirm_count=4).total == 4
    assert bulk.dry_run(replace(snapshot, domain="nowhere")).total == 0


def test_an_unknown_action_is_refused_with_those_that_there_are(store: Store, clock: ManualClock) -> None:
    bulk = Bulk(Kit(store, clock).replayer)
    for ask in (bulk.start, bulk.dry_run):
        with pytest.raises(ValueError, match=r"'burn' is no action .*replay, force_replay, resolve, discard"):
            ask(PAYMENTS, "burn")


def test_a_status_that_no_letter_has_is_refused_with_those_that_there_are(store: Store, clock: ManualClock) -> None:
    bulk = Bulk(Kit(store, clock).replayer)
    for ask in (bulk.start, bulk.dry_run):
        for status in ("PENDING", "done", ""):
            with pytest.raises(ValueError, match=f"'{status}' is no status; use one of pending, replaying, "):
                ask(replace(PAYMENTS, status=status), "discard")
    assert bulk.find() == []
    assert bulk.start(replace(PAYMENTS, status=FailedOperationStatus.PENDING)).total == 0


def test_an_operation_on_one_letter_leaves_the_others_alone(store: Store, clock: ManualClock) -> None:
    kit = Kit(store, clock)
    kit.register()
    ids = filed(kit, 3)
    bulk = Bulk(kit.replayer)
    done = run(bulk, bulk.start(LetterFilter(id=ids[1]), confirm_count=1).id)
    assert (done.filter.id, done.succeeded, done.done) == (ids[1], 1, 1)
    assert [kit.status(id) for id in ids] == ["pending", "resolved", "pending"]


def test_operations_are_found_page_by_page(store: Store, clock: ManualClock) -> None:
    kit = Kit(store, clock)
    bulk = Bulk(kit.replayer)
    made = []
    for _ in range(3):
        made.append(bulk.start(PAYMENTS).id)
        clock.advance(1)
    first = bulk.find(limit=2)
    assert [one.id for one in (*first, *bulk.find(limit=2, after=first[-1].cursor))] == made[::-1]
    with pytest.raises(ValueError, match="no cursor"):
        bulk.find(after="nonsense")


def test_a_wrong_confirmation_starts_nothing() -> None:
    kit = Kit()
    filed(kit, 3)
    bulk = Bulk(kit.replayer)
    with pytest.raises(ValueError, match="3 letters match, not 2 as confirmed"):
        bulk.start(PAYMENTS, confirm_count=2)
    with pytest.raises(ValueError, match="nonsense"):
        bulk.start(PAYMENTS, "nonsense")
    assert bulk.find() == []


@pytest.mark.parametrize(("action", "status"), [("resolve", "resolved"), ("discard", "rejected")])
def test_resolving_and_discarding_say_who_and_why(store: Store, clock: ManualClock, action: str, status: str) -> None:
    kit = Kit(store, clock)
    ids = filed(kit, 6)
    held = kit.letters.try_acquire_for_replay(ids[2], 3)
    assert held is not None
    bulk = Bulk(kit.replayer)
    begun = bulk.start(PAYMENTS, action, requested_by="ops", reason="refunded by hand")
    done = run(bulk, begun.id)
    assert (done.state, done.succeeded) == ("done", 5)
    assert kit.status(ids[2]) == "replaying"
    stored = kit.letters.get_by_id(ids[0])
    assert stored is not None
    assert (stored.status, stored.resolved_by_id, stored.resolution_note) == (status, "ops", "refunded by hand")


def test_failures_and_refusals_are_counted() -> None:
    kit = Kit()
    kit.register(guard=kit.make_guard(Retry(attempts=1)))
    kit.broken = True
    filed(kit, 2)
    kit.letter("x", request_data={"function": "gone", "args": {}})
    bulk = Bulk(kit.replayer, concurrency=1)
    done = run(bulk, bulk.start(PAYMENTS).id)
    assert (done.succeeded, done.failed, done.skipped) == (0, 2, 1)


def test_a_breaker_that_opens_makes_it_wait_and_it_carries_on_without_repeating() -> None:
    kit = Kit()
    kit.register()
    ids = filed(kit, 10)
    bulk = Bulk(kit.replayer, concurrency=1)
    begun = bulk.start(PAYMENTS)

    def charge(order_id: str, amount: int) -> None:
        kit.calls.append(order_id)
        if len(kit.calls) >= 4 and kit.broken:
            raise ConnectionError("down")

    kit.handlers._functions.clear()
    kit.register(charge)
    kit.broken = True
    waiting = run(bulk, begun.id)  # three succeed, three fail, the breaker opens
    assert (waiting.state, waiting.done, waiting.failed) == ("running", 6, 3)
    assert "waits: the breaker of 'payments' is open" in waiting.note
    assert bulk.run_due() == []
    kit.broken = False
    kit.clock.advance(30)
    [done] = bulk.run_due()
    assert (done.state, done.done, done.succeeded, done.failed) == ("done", 10, 7, 3)
    assert len(kit.calls) == 10
    assert [kit.status(id) for id in ids[3:6]] == ["pending"] * 3


def test_a_worker_that_dies_is_followed_by_another_one(store: Store, clock: ManualClock) -> None:
    kit = Kit(store, clock)
    died = False

    def charge(order_id: str, amount: int) -> None:
        nonlocal died
        kit.calls.append(order_id)
        if order_id == "o60" and not died:
            died = True
            raise Died

    kit.register(charge, guard=kit.make_guard(Retry(attempts=1)))
    filed(kit, 80)
    bulk = Bulk(kit.replayer, concurrency=1)
    begun = bulk.start(PAYMENTS)
    with pytest.raises(Died):
        bulk.run(begun.id)
    progress = bulk.progress(begun.id)
    assert progress is not None
    assert (progress.state, progress.done) == ("running", 50)
    assert bulk.run_due() == []
    clock.advance(61)
    [done] = bulk.run_due()
    # o60 is in the hands of the dead worker until its own lease ends; the rest was done once each.
    assert (done.state, kit.calls.count("o60"), len(kit.calls)) == ("done", 1, 80)
    assert done.succeeded == 69  # o50 to o59 were resolved after the last save, and are not counted again


def test_an_abort_stops_it_and_what_was_done_stays_done(store: Store, clock: ManualClock) -> None:
    kit = Kit(store, clock)
    bulk = Bulk(kit.replayer, concurrency=1)

    def charge(order_id: str, amount: int) -> None:
        kit.calls.append(order_id)
        if len(kit.calls) == 5:
            assert bulk.abort(begun.id, by="ops")

    kit.register(charge)
    filed(kit, 120)
    begun = bulk.start(PAYMENTS)
    aborted = run(bulk, begun.id)
    assert (aborted.state, aborted.note, aborted.is_over) == ("aborted", "aborted by ops", True)
    assert len(kit.calls) == 50  # the chunk that ran
    assert not bulk.abort(begun.id)
    assert bulk.run_due() == []


def test_an_abort_is_noticed_by_the_next_heartbeat() -> None:
    kit = Kit()
    bulk = Bulk(kit.replayer, concurrency=1)

    def charge(order_id: str, amount: int) -> None:
        kit.calls.append(order_id)
        if len(kit.calls) == 5:
            bulk.abort(begun.id)
            bulk._heart.beat()

    kit.register(charge)
    filed(kit, 20)
    begun = bulk.start(PAYMENTS)
    run(bulk, begun.id)
    assert len(kit.calls) == 5


def test_a_stopping_worker_saves_where_it_is(store: Store, clock: ManualClock) -> None:
    kit, stop = Kit(store, clock), threading.Event()

    def charge(order_id: str, amount: int) -> None:
        kit.calls.append(order_id)
        if len(kit.calls) == 5:
            stop.set()

    kit.register(charge)
    filed(kit, 20)
    bulk = Bulk(kit.replayer, concurrency=1)
    begun = bulk.start(PAYMENTS)
    assert run(bulk, begun.id, stop).done == 5
    [done] = bulk.run_due()
    assert (done.state, done.done, len(kit.calls)) == ("done", 20, 20)


def test_what_was_done_beyond_the_place_where_it_waits_is_not_done_again() -> None:
    """With several threads the letters after a refused one may be done already."""
    kit = Kit()
    waits = {"o1"}

    def charge(order_id: str, amount: int) -> None:
        if order_id in waits:
            raise CircuitOpen("bank", 5.0)
        kit.calls.append(order_id)
        raise ConnectionError("no route to the bank")

    kit.handlers.register_function("payments", "charge", charge)
    filed(kit, 4)
    bulk = Bulk(kit.replayer, concurrency=1)
    begun = bulk.start(PAYMENTS)
    waiting = run(bulk, begun.id)
    assert (waiting.done, waiting.failed) == (3, 3)
    waits.clear()
    kit.clock.advance(3600)
    [done] = bulk.run_due()
    assert (done.state, done.done, done.failed) == ("done", 4, 4)
    assert sorted(kit.calls) == ["o0", "o1", "o2", "o3"]


def test_letters_of_one_entity_are_taken_one_after_the_other() -> None:
    kit = Kit()
    running: set[str] = set()
    clashes: list[str] = []
    seen: list[tuple[str, int]] = []
    lock = threading.Lock()

    def charge(order_id: str, amount: int) -> None:
        with lock:
            if order_id in running:
                clashes.append(order_id)
            running.add(order_id)
            seen.append((order_id, amount))
        with lock:
            running.discard(order_id)

    kit.register(charge)
    for n in range(60):
        order = f"o{n % 4}"
        kit.letter(order, request_data={"function": "charge", "args": {"order_id": order, "amount": n}})
    bulk = Bulk(kit.replayer, concurrency=8)
    assert run(bulk, bulk.start(PAYMENTS).id).succeeded == 60
    assert clashes == []
    for order in {name for name, _ in seen}:
        numbers = [n for name, n in seen if name == order]
        assert numbers == sorted(numbers)


def test_a_filter_finds_what_it_says_and_survives_the_store() -> None:
    kit = Kit()
    mine = kit.letter("a", user_id=7)
    kit.clock.advance(10)
    kit.letter("b", user_id="7")
    late = kit.letter("c", "MAX_RETRIES_OSERROR")
    now = kit.clock.wall()
    bulk = Bulk(kit.replayer)
    assert bulk.dry_run(LetterFilter(user_id=7)).sample == (mine.id,)
    assert bulk.dry_run(LetterFilter(entity_id="c", entity_type="order")).sample == (late.id,)
    assert bulk.dry_run(LetterFilter(failure_type="MAX_RETRIES_OSERROR")).sample == (late.id,)
    assert bulk.dry_run(LetterFilter(created_to=now - timedelta(seconds=5))).sample == (mine.id,)
    assert bulk.dry_run(LetterFilter(status="archived")).total == 0
    wanted = LetterFilter("pending", "payments", user_id=7, created_from=now - timedelta(days=1), created_to=now)
    assert LetterFilter.from_json(wanted.to_json()) == wanted
    assert bulk.start(wanted).filter == wanted


def test_the_operations_are_listed_newest_first_and_told() -> None:
    kit = Kit()
    kit.register()
    filed(kit, 1)
    bulk = Bulk(kit.replayer)
    woken: list[int] = []
    kit.store.subscribe(WAKE, lambda: woken.append(1))
    first = bulk.start(PAYMENTS)
    kit.clock.advance(1)
    second = bulk.start(PAYMENTS, "resolve")
    assert woken == [1, 1]
    assert [one.id for one in bulk.find()] == [second.id, first.id]
    bulk.abort(second.id)
    assert [one.id for one in bulk.find("aborted")] == [second.id]
    assert [one.id for one in bulk.find("pending")] == [first.id]
    assert [event.state for event in kit.told(BulkChanged)] == ["pending", "pending", "aborted"]
    assert bulk.progress("nowhere") is None
    assert bulk.run("nowhere") is None


class Failing(MemoryStore):
    """Raises what it is given when letters are written."""

    error: Exception | None = None

    def commit(self, changes: Sequence[Change], **options: Any) -> None:
        if self.error is not None and any(change.kind is LETTER for change in changes):
            raise self.error
        super().commit(changes, **options)


def test_a_fault_ends_the_operation_with_a_note(clock: ManualClock) -> None:
    store = Failing(clock)
    kit = Kit(store, clock)
    kit.register()
    filed(kit, 3)
    bulk = Bulk(kit.replayer)
    begun = bulk.start(PAYMENTS)
    store.error = LookupError("a fault of ours")
    with pytest.raises(LookupError):
        bulk.run(begun.id)
    progress = bulk.progress(begun.id)
    assert progress is not None
    assert (progress.state, progress.note) == ("failed", "LookupError: a fault of ours")


def test_a_store_that_goes_away_does_not_end_the_operation(clock: ManualClock) -> None:
    store = Failing(clock)
    kit = Kit(store, clock)
    kit.register()
    filed(kit, 3)
    bulk = Bulk(kit.replayer)
    begun = bulk.start(PAYMENTS)
    store.error = StoreUnavailable("gone")
    with pytest.raises(StoreUnavailable):
        bulk.run(begun.id)
    store.error = None
    kit.clock.advance(61)
    [done] = bulk.run_due()
    assert (done.state, done.succeeded) == ("done", 3)


def test_an_operation_over_letters_that_nobody_here_can_replay_waits_for_somebody_who_can(clock: ManualClock) -> None:
    """Two programs on one store: the wrong one must not use the operation up."""
    wrong = Kit(clock=clock)
    right = Kit(wrong.store, clock)
    right.register()
    filed(wrong, 3)
    begun = Bulk(wrong.replayer).start(PAYMENTS)
    waits = run(Bulk(wrong.replayer), begun.id)
    assert (waits.is_over, waits.done) == (False, 0)
    assert "is registered for domain 'payments' in this process" in waits.note
    clock.advance(60)
    assert run(Bulk(right.replayer), begun.id).succeeded == 3


def test_a_worker_leaves_an_operation_to_those_who_can_do_it(clock: ManualClock) -> None:
    wrong = Kit(clock=clock)
    wrong.handlers.register_function("mail", "send", lambda: None)
    right = Kit(wrong.store, clock)
    right.register()
    filed(wrong, 3)
    begun = Bulk(wrong.replayer).start(PAYMENTS)
    assert Bulk(wrong.replayer).next_s() is None
    assert Bulk(wrong.replayer).run_due() == []
    [done] = Bulk(right.replayer).run_due()
    assert (done.id, done.succeeded) == (begun.id, 3)


def test_of_many_domains_those_that_nobody_here_knows_are_passed_over() -> None:
    kit = Kit()
    kit.register()
    filed(kit, 2)
    strange = kit.letters.create("mail", "X")
    bulk = Bulk(kit.replayer, concurrency=1)
    done = run(bulk, bulk.start(LetterFilter()).id)
    assert (done.state, done.succeeded, done.skipped) == ("done", 2, 1)
    assert kit.status(strange.id) == "pending"


def test_a_long_operation_lets_other_work_have_its_turn(store: Store, clock: ManualClock) -> None:
    kit = Kit(store, clock)

    def charge(order_id: str, amount: int) -> None:
        kit.calls.append(order_id)
        clock.advance(1)

    kit.register(charge)
    filed(kit, 120)
    bulk = Bulk(kit.replayer, concurrency=1, turn_s=30)
    first, second = bulk.start(PAYMENTS), bulk.start(PAYMENTS, "resolve")
    assert [(one.state, one.done) for one in bulk.run_due()] == [("running", 50), ("done", 70)]
    assert (bulk.progress(first.id) or second).note == ""
    [done] = bulk.run_due()
    assert (done.state, done.done, len(kit.calls)) == ("done", 50, 50)


def test_what_was_done_ahead_is_remembered_also_when_the_pages_become_smaller() -> None:
    kit = Kit()
    waits = {"o150"}  # the first of a batch that has grown to 55

    def charge(order_id: str, amount: int) -> None:
        if order_id in waits:
            raise CircuitOpen("bank", 5.0)
        kit.calls.append(order_id)
        raise ConnectionError("no route to the bank")

    kit.handlers.register_function("payments", "charge", charge)
    filed(kit, 300)
    bulk = Bulk(kit.replayer, concurrency=1)
    begun = bulk.start(PAYMENTS, "force_replay")
    for _ in range(4):
        run(bulk, begun.id)
        kit.clock.advance(60)
    waits.clear()
    assert run(bulk, begun.id).state == "done"
    assert len(kit.calls) == len(set(kit.calls)) == 300


class Shops:
    """Letters of several domains, each with a guard of its own."""

    def __init__(self, kit: Kit, names: str, number: int) -> None:
        self.kit = kit
        self.down: set[str] = set()
        self.guards = {name: self._open(name) for name in names}
        self.ids: dict[str, list[str]] = {name: [] for name in names}
        for n in range(number):
            for name in names:
                request = {"function": "serve", "args": {"number": n}}
                self.ids[name].append(kit.letters.create(name, "X", request_data=request, max_retries=9).id)
                kit.clock.advance(0.001)

    def _open(self, name: str) -> Guard:
        breaker = Breaker(consecutive(3), open_for=30.0)
        guard = Guard(name, breaker, clock=self.kit.clock, telemetry=self.kit.hub, rng=lambda: 0.5)

        def serve(number: int) -> None:
            self.kit.calls.append((name, number))
            if name in self.down:
                raise ConnectionError("closed")

        self.kit.handlers.register_function(name, "serve", serve, guard)
        return guard

    def statuses(self, name: str) -> Counter[str]:
        return Counter(self.kit.status(id) for id in self.ids[name])


@pytest.mark.parametrize("concurrency", [1, 4])
def test_a_barred_domain_leaves_the_others_alone_and_is_come_back_to(
    store: Store, clock: ManualClock, concurrency: int
) -> None:
    kit = Kit(store, clock)
    shops = Shops(kit, "abc", 70)
    kit.replayer.gates.pause("b", by="ops")
    bulk = Bulk(kit.replayer, concurrency=concurrency)
    begun = bulk.start(LetterFilter())
    waiting = run(bulk, begun.id)
    assert (waiting.state, waiting.total, waiting.done, waiting.succeeded) == ("running", 210, 140, 140)
    assert waiting.note == "waits: replay of 'b' is paused by ops"
    assert [shops.statuses(name)["resolved"] for name in "abc"] == [70, 0, 70]
    kit.replayer.gates.resume("b")
    assert bulk.run_due() == []
    clock.advance(30)
    [done] = bulk.run_due()
    assert (done.state, done.done, done.succeeded, done.note) == ("done", 210, 210, "")
    assert Counter(kit.calls).most_common(1)[0][1] == 1


def test_a_breaker_that_opens_half_way_costs_the_other_domains_nothing(store: Store, clock: ManualClock) -> None:
    kit = Kit(store, clock)
    shops = Shops(kit, "ab", 120)
    shops.down.add("a")
    bulk = Bulk(kit.replayer, concurrency=1)
    begun = bulk.start(LetterFilter())
    waiting = run(bulk, begun.id)
    assert (waiting.state, waiting.succeeded, waiting.failed) == ("running", 120, 3)
    assert waiting.note == "waits: the breaker of 'a' is open"
    shops.down.clear()
    clock.advance(30)
    other = Bulk(kit.replayer, concurrency=4)  # whoever carries it on knows how far each domain is
    [done] = other.run_due()
    assert (done.state, done.done, done.succeeded, done.failed) == ("done", 240, 237, 3)
    assert max(Counter(kit.calls).values()) == 1


def test_a_domain_whose_time_has_come_is_taken_up_while_the_others_still_go_on(clock: ManualClock) -> None:
    kit = Kit(clock=clock)
    shops = Shops(kit, "ab", 200)
    for _ in range(3):
        shops.guards["a"].run(_fail)

    def serve(number: int) -> None:
        kit.calls.append(("b", number))
        clock.advance(0.5)

    kit.handlers._functions.pop("b")
    kit.handlers.register_function("b", "serve", serve, shops.guards["b"])
    bulk = Bulk(kit.replayer, concurrency=1)
    done = run(bulk, bulk.start(LetterFilter()).id)
    assert (done.state, done.succeeded) == ("done", 400)
    first, last = kit.calls.index(("a", 0)), max(at for at, call in enumerate(kit.calls) if call[0] == "b")
    assert 0 < first < last


def test_all_reasons_for_waiting_are_told_and_the_first_to_end_counts() -> None:
    kit = Kit()
    shops = Shops(kit, "ab", 2)
    kit.replayer.gates.pause("b", by="ops")
    for _ in range(3):
        shops.guards["a"].run(_fail)
    kit.clock.advance(20)
    bulk = Bulk(kit.replayer)
    waits = run(bulk, bulk.start(LetterFilter()).id)
    assert waits.note == "waits: the breaker of 'a' is open; replay of 'b' is paused by ops"
    assert bulk.next_s() == pytest.approx(10, abs=0.1)


def test_a_worker_that_dies_is_followed_in_every_domain(clock: ManualClock) -> None:
    kit = Kit(clock=clock)
    shops = Shops(kit, "ab", 80)

    def serve(number: int) -> None:
        kit.calls.append(("b", number))
        if number == 60 and kit.calls.count(("b", 60)) == 1:
            raise Died

    kit.handlers._functions.pop("b")
    kit.handlers.register_function("b", "serve", serve, shops.guards["b"])
    bulk = Bulk(kit.replayer, concurrency=1)
    begun = bulk.start(LetterFilter())
    with pytest.raises(Died):
        bulk.run(begun.id)
    clock.advance(61)
    [done] = bulk.run_due()
    assert (done.state, done.succeeded) == ("done", 149)  # ten were done after the last save, and one is the dead one's
    assert max(Counter(kit.calls).values()) == 1
    assert shops.statuses("a") + shops.statuses("b") == {"resolved": 159, "replaying": 1}


def _fail() -> None:
    raise ConnectionError("down")


def test_letters_of_one_key_of_a_handler_are_taken_one_after_the_other() -> None:
    kit = Kit()
    running: set[str] = set()
    clashes: list[str] = []
    gate = threading.Event()

    class Handler:
        def can_replay(self, op: FailedOperationData) -> tuple[bool, str]:
            return True, ""

        def entity_key(self, op: FailedOperationData) -> Any:
            return op.metadata["tenant"]

        def replay(self, op: FailedOperationData) -> None:
            tenant = op.metadata["tenant"]
            if tenant in running:
                clashes.append(tenant)
            running.add(tenant)
            gate.wait(0.001)
            running.discard(tenant)

    kit.handlers.register("payments", Handler())
    for n in range(40):
        kit.letter(f"o{n}", metadata={"tenant": "x" if n % 2 else "y"})
    bulk = Bulk(kit.replayer, concurrency=8)
    assert run(bulk, bulk.start(PAYMENTS).id).succeeded == 40
    assert clashes == []
