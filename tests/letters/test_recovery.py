"""Automatic recovery: what drains, when, how fast and in which order."""

from __future__ import annotations

import threading
from datetime import timedelta
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.backends.memory import MemoryStore
from holdfast.guard.rate_limit import RateLimit
from holdfast.guard.retry import Retry
from holdfast.letters.data import FailedOperationData
from holdfast.letters.events import DrainEnded, LetterReplayed
from holdfast.letters.gates import Gates
from holdfast.letters.recovery import Recovery, RecoveryPolicy
from holdfast.machine.breaker import Breaker
from holdfast.machine.drain import DOMAIN
from holdfast.machine.trip import consecutive
from holdfast.store import lease
from holdfast.store.port import Store
from holdfast.testing.clock import ManualClock
from tests.letters.replay_kit import OPEN, Kit

FAILED = "MAX_RETRIES_CONNECTIONERROR"


def test_nothing_goes_out_while_the_breaker_is_open(store: Store, clock: ManualClock) -> None:
    kit = Kit(store, clock)
    kit.register()
    letter = kit.letter()
    kit.open_circuit()
    [drained] = kit.recovery.run()
    assert (drained.rounds, drained.reason) == (0, "the breaker of 'payments' is open")
    assert drained.next_s == pytest.approx(30)
    assert kit.letters.get_attempts(letter.id) == []


def test_the_first_letter_is_the_half_open_probe_and_the_rest_follows(store: Store, clock: ManualClock) -> None:
    kit = Kit(store, clock)
    kit.register()
    letters = [kit.letter(f"o{n}") for n in range(20)]
    kit.open_circuit()
    clock.advance(30)
    [drained] = kit.recovery.run()
    assert (drained.succeeded, drained.reason) == (20, "empty")
    assert kit.calls == [f"o{n}" for n in range(20)]
    assert kit.guard.circuit.state == "closed"
    stored = [kit.letters.get_by_id(letter.id) for letter in letters]
    types = [one.resolution_type for one in stored if one is not None]
    assert types == ["auto_replay_recovery", *["auto_replay_circuit_close"] * 19]
    assert drained.rounds == 5  # 1 as the trial, 2, 4, 8 and what is left


def test_a_failed_trial_opens_the_breaker_again_and_only_one_letter_was_tried() -> None:
    kit = Kit()
    kit.register()
    for n in range(5):
        kit.letter(f"o{n}")
    kit.open_circuit()
    kit.broken = True
    kit.clock.advance(30)
    kit.recovery.run()
    assert kit.calls == ["o0"]
    assert kit.guard.circuit.state == "open"


def test_where_traffic_has_stopped_trials_back_off_and_success_starts_the_sweep() -> None:
    kit = Kit()
    guard = kit.make_guard(Breaker(consecutive(1), open_for=1.0))
    kit.guard = guard
    kit.register(guard=guard)
    for n in range(12):
        kit.letter(f"o{n}", max_retries=9)
    kit.broken = True
    guard.run(kit.charge, "live")
    kit.calls.clear()
    tried: list[float] = []
    start = kit.clock.monotonic()
    while kit.clock.monotonic() - start < 1500:
        kit.clock.advance(1)
        before = len(kit.calls)
        kit.recovery.run()
        tried += [kit.clock.monotonic() - start] * (len(kit.calls) - before)
    gaps = [round(b - a) for a, b in pairwise(tried)]
    assert gaps[:4] == [60, 120, 240, 480]
    kit.broken = False
    for _ in range(4):
        kit.clock.advance(540)
        kit.recovery.run()
    kit.clock.advance(3600)
    kit.recovery.run()
    assert kit.letters.count(status="resolved") == 12


def test_a_breaker_that_live_calls_closed_ends_the_waiting_for_a_trial() -> None:
    kit = Kit()
    kit.register()
    kit.letter("o1", max_retries=5)
    kit.letter("o2")
    kit.open_circuit()
    kit.clock.advance(30)
    kit.broken = True
    kit.recovery.run()  # the trial fails: the next one is due in 60 s
    kit.broken = False
    kit.clock.advance(30)
    assert "next trial is due in" in kit.recovery.drain("payments").reason
    kit.guard.run(lambda: None)  # a live call finds that it is back
    [drained] = kit.recovery.run()
    assert drained.succeeded == 2
    record = kit.store.get(DOMAIN, ("payments",))[0]
    assert record is not None
    assert record.trials == 0


class OneLeave:
    """Other processes, who give the leave to probe to one at a time, and never to us."""

    def __init__(self) -> None:
        self.asked_for = 0

    def moves(self, trigger: Any, now: float) -> bool:
        return True

    def lets_probe(self, now: float) -> bool:
        return False

    def asked(self, answer: Any, now: float) -> None:
        self.asked_for += 1

    def judges(self, outage: Any, now: float, error: BaseException | None) -> bool:
        return False

    def nudge(self) -> None: ...


def test_a_drain_whose_trial_is_not_due_leaves_the_fleets_one_probe_to_live_calls() -> None:
    kit = Kit()
    kit.register()
    kit.letter("o1", max_retries=5)
    kit.open_circuit()
    kit.clock.advance(30)
    kit.broken = True
    kit.recovery.run()  # the trial fails: the next one is due in 60 s
    others = OneLeave()
    kit.guard.circuit.remote = others
    kit.clock.advance(30)
    for _ in range(5):  # each new letter makes it look again
        kit.recovery.run()
    assert others.asked_for == 0
    kit.clock.advance(31)
    kit.recovery.run()
    assert others.asked_for == 1


def test_who_only_looks_at_a_breaker_whose_time_is_over_sees_that_a_trial_is_due() -> None:
    """Leave to probe is given to whoever asks, so one who does not would be told for ever to wait a moment."""
    kit = Kit()
    kit.register()
    kit.open_circuit()
    others = OneLeave()
    kit.guard.circuit.remote = others
    gates = kit.replayer.gates
    before = gates.standing("payments", knocks=False)
    assert (before.way, before.retry_after) == ("barred", 30.0)
    kit.clock.advance(30)
    after = gates.standing("payments", knocks=False)
    assert (after.way, after.retry_after, others.asked_for) == ("trial", None, 0)
    assert after.reason == "the breaker of 'payments' is open, and a trial is due"
    assert gates.standing("payments").way == "barred"
    assert others.asked_for == 1


def test_the_drain_leaves_the_trial_to_a_live_call() -> None:
    kit = Kit()
    guard = kit.make_guard(Breaker(consecutive(1), open_for=30.0, successes=2))
    kit.guard = guard
    kit.register(guard=guard)
    kit.letter()
    guard.run(_raise)
    kit.clock.advance(30)
    seen: list[str] = []
    guard.run(lambda: seen.append(kit.recovery.drain("payments").reason))
    assert seen == ["live calls try it already"]
    assert kit.calls == []


def test_only_what_declares_itself_goes_out_by_itself() -> None:
    kit = Kit()
    kit.register(replay_on={FAILED})
    kinds = [OPEN, FAILED, "MAX_RETRIES_VALUEERROR"]
    letters = {kind: kit.letter(f"o-{kind}", kind) for kind in kinds}
    kit.clock.advance(60)
    kit.recovery.run()
    assert [kit.status(letters[kind].id) for kind in kinds] == ["resolved", "resolved", "pending"]


def test_by_default_programming_errors_are_left_for_a_person() -> None:
    kit = Kit()
    kit.register()
    broken, transient = kit.letter("a", "MAX_RETRIES_TYPEERROR"), kit.letter("b", FAILED)
    kit.clock.advance(60)
    kit.recovery.run()
    assert (kit.status(broken.id), kit.status(transient.id)) == ("pending", "resolved")


def test_a_handlers_domain_drains_open_circuit_captures_and_what_it_declares() -> None:
    class Handler:
        failure_types = (FAILED,)

        def can_replay(self, op: FailedOperationData) -> tuple[bool, str]:
            return True, ""

        def replay(self, op: FailedOperationData) -> None: ...

    kit = Kit()
    kit.handlers.register("payments", Handler())
    letters = [kit.letter(kind, kind) for kind in (OPEN, FAILED, "SOMETHING_ELSE")]
    kit.clock.advance(60)
    kit.recovery.run()
    assert [kit.status(letter.id) for letter in letters] == ["resolved", "resolved", "pending"]


def test_a_fresh_failure_rests_before_it_goes_out() -> None:
    kit = Kit()
    kit.register()
    letter = kit.letter(failure_type=FAILED)
    kit.recovery.run()
    assert kit.status(letter.id) == "pending"
    kit.clock.advance(30)
    kit.recovery.run()
    assert kit.status(letter.id) == "resolved"


def test_a_failing_entity_is_parked_and_blocks_no_other() -> None:
    kit = Kit()
    done: list[tuple[str, int]] = []

    def charge(order_id: str, amount: int) -> None:
        if order_id == "bad":
            raise ConnectionError("only for this one")
        done.append((order_id, amount))

    kit.register(charge, guard=kit.make_guard(Retry(attempts=1)))
    orders = ["bad", "a", "bad", "b", "a", "bad", "c"]
    letters = [
        kit.letter(order, request_data={"function": "charge", "args": {"order_id": order, "amount": n}}, max_retries=9)
        for n, order in enumerate(orders)
    ]
    kit.recovery.run()
    assert done == [("a", 1), ("b", 3), ("a", 4), ("c", 6)]
    attempts = [len(kit.letters.get_attempts(letter.id)) for letter in letters]
    assert attempts == [1, 1, 0, 1, 1, 0, 1]


def test_an_entity_waits_for_its_older_letter_also_when_a_person_has_it() -> None:
    kit = Kit()
    kit.register()
    old, young = kit.letter("o1"), kit.letter("o1")
    kit.letters.update_status(old.id, "requires_review")
    kit.recovery.run()
    assert kit.status(young.id) == "pending"
    kit.letters.mark_as_resolved(old.id, "manual_fix")
    kit.recovery.run()
    assert kit.status(young.id) == "resolved"


def test_a_handler_may_say_what_keeps_its_order() -> None:
    class Handler:
        def __init__(self) -> None:
            self.fail: set[str] = {"o1"}
            self.seen: list[str | None] = []

        def can_replay(self, op: FailedOperationData) -> tuple[bool, str]:
            return True, ""

        def entity_key(self, op: FailedOperationData) -> Any:
            return op.metadata.get("tenant")

        def replay(self, op: FailedOperationData) -> None:
            self.seen.append(op.entity_id)
            if op.entity_id in self.fail:
                raise ConnectionError("down")

    kit, handler = Kit(), Handler()
    kit.handlers.register("payments", handler)
    for order, tenant in (("o1", "x"), ("o2", "x"), ("o3", "y"), ("o4", None)):
        kit.letter(order, metadata={"tenant": tenant})
    kit.recovery.run()
    assert handler.seen == ["o1", "o3", "o4"]


@given(
    st.lists(st.tuples(st.sampled_from("abcd"), st.integers(0, 3)), max_size=25),
    st.integers(1, 8),
)
def test_for_one_entity_a_younger_letter_never_passes_an_older_one(
    plan: list[tuple[str, int]], concurrency: int
) -> None:
    """Each letter fails so many times before it succeeds; whatever is resolved is resolved in order of creation."""
    kit = Kit()
    left = {n: failures for n, (_, failures) in enumerate(plan)}
    started: list[tuple[str, int]] = []
    lock = threading.Lock()

    def charge(order_id: str, amount: int) -> None:
        with lock:
            started.append((order_id, amount))
            left[amount] -= 1
            if left[amount] >= 0:
                raise ConnectionError("not yet")

    kit.register(charge, guard=kit.make_guard(Retry(attempts=1)))
    letters = [
        kit.letter(order, request_data={"function": "charge", "args": {"order_id": order, "amount": n}}, max_retries=9)
        for n, (order, _) in enumerate(plan)
    ]
    recovery = Recovery(kit.replayer, RecoveryPolicy(concurrency=concurrency))
    for _ in range(120):
        recovery.run()
        kit.clock.advance(600)
        if all(kit.status(letter.id) == "resolved" for letter in letters):
            break
    assert all(kit.status(letter.id) == "resolved" for letter in letters)
    for order in "abcd":
        mine = [n for name, n in started if name == order]
        assert mine == sorted(mine)


def test_two_workers_do_not_drain_one_domain_at_once() -> None:
    kit = Kit()
    kit.register()
    kit.letter()
    token = lease.acquire(kit.store, "drain:payments", 60)
    assert kit.recovery.drain("payments").reason == "another worker drains it"
    assert token is not None
    lease.release(kit.store, "drain:payments", token)
    assert kit.recovery.drain("payments").succeeded == 1


def test_a_drain_whose_worker_died_is_taken_over_when_its_lease_ends() -> None:
    kit = Kit()
    kit.register()
    kit.letter()
    lease.acquire(kit.store, "drain:payments", 60)
    kit.clock.advance(61)
    assert kit.recovery.drain("payments").succeeded == 1


def test_a_drain_that_lost_its_lease_stops() -> None:
    kit = Kit()

    def charge(order_id: str, amount: int) -> None:
        kit.calls.append(order_id)
        kit.clock.advance(61)
        lease.acquire(kit.store, "drain:payments", 60)
        kit.recovery._heart.beat()

    kit.register(charge)
    for n in range(5):
        kit.letter(f"o{n}")
    assert kit.recovery.drain("payments").reason == "the lease was lost"
    assert kit.calls == ["o0"]


def test_a_stop_is_heeded_between_letters() -> None:
    kit, stop = Kit(), threading.Event()

    def charge(order_id: str, amount: int) -> None:
        kit.calls.append(order_id)
        if len(kit.calls) == 2:
            stop.set()

    kit.register(charge)
    letters = [kit.letter(f"o{n}") for n in range(9)]
    assert kit.recovery.drain("payments", stop).reason == "stopped"
    assert kit.calls == ["o0", "o1"]
    assert [kit.status(letter.id) for letter in letters[2:]] == ["pending"] * 7
    assert sum(len(kit.letters.get_attempts(letter.id)) for letter in letters) == 2


def test_a_drain_that_meets_a_limit_waits_and_returns_what_it_took() -> None:
    kit = Kit()
    kit.register(guard=kit.make_guard(RateLimit(3, per=60.0)))
    letters = [kit.letter(f"o{n}") for n in range(6)]
    kit.recovery.run()
    assert len(kit.calls) == 3
    assert [kit.status(letter.id) for letter in letters] == ["resolved"] * 3 + ["pending"] * 3
    kit.clock.advance(60)
    kit.recovery.run()
    assert len(kit.calls) == 6
    retries = [kit.letters.get_by_id(letter.id) for letter in letters]
    assert {one.retry_count for one in retries if one is not None} == {1}


def test_a_letter_without_any_attempts_does_not_hold_the_drain_up() -> None:
    kit = Kit()
    kit.register()
    never, fine = kit.letter("a", max_retries=0), kit.letter("b")
    assert kit.recovery.drain("payments").reason == "empty"
    assert (kit.status(never.id), kit.status(fine.id)) == ("pending", "resolved")


def test_letters_of_a_function_that_is_not_here_are_left_to_those_who_have_it() -> None:
    kit = Kit()
    kit.register()
    strange = kit.letter("a", request_data={"function": "refund", "args": {}})
    fine = kit.letter("b")
    kit.recovery.run()
    assert (kit.status(strange.id), kit.status(fine.id)) == ("pending", "resolved")
    assert kit.letters.get_attempts(strange.id) == []


UNREPLAYABLE: dict[str, Any] = {"function": "charge", "args": {"order_id": "***"}, "masked": ["order_id"]}


def test_a_letter_that_cannot_be_replayed_does_not_use_the_trial_up() -> None:
    kit = Kit()
    kit.register()
    kit.letter("bad", request_data=UNREPLAYABLE)
    kit.clock.advance(1)
    fine = kit.letter("fine")
    kit.open_circuit()
    kit.clock.advance(30)
    [drained] = kit.recovery.run()
    assert (drained.succeeded, kit.status(fine.id), kit.guard.circuit.state) == (1, "resolved", "closed")


def test_letters_that_are_refused_are_told_once_and_then_rest() -> None:
    kit = Kit()
    kit.register()
    kit.letter("bad", request_data=UNREPLAYABLE)
    for _ in range(9):
        [drained] = kit.recovery.run()
        assert (drained.rounds, drained.reason) == (0, "empty")
        kit.clock.advance(30)
    assert [event.outcome for event in kit.told(LetterReplayed)] == ["refused"]
    kit.clock.advance(60)
    kit.recovery.run()
    assert len(kit.told(LetterReplayed)) == 2  # by now somebody may have mended it


def test_a_key_that_cannot_be_told_does_not_stop_the_domain() -> None:
    class Handler:
        def can_replay(self, op: FailedOperationData) -> tuple[bool, str]:
            return True, ""

        def entity_key(self, op: FailedOperationData) -> Any:
            return op.metadata["tenant"]

        def replay(self, op: FailedOperationData) -> None: ...

    kit = Kit()
    kit.handlers.register("payments", Handler())
    odd = [kit.letter("a"), kit.letter("b", metadata={"tenant": ["not", "hashable"]})]
    fine = kit.letter("c", metadata={"tenant": "t"})
    kit.recovery.run()
    assert [kit.status(letter.id) for letter in (*odd, fine)] == ["resolved"] * 3


def test_a_domain_that_fails_leaves_the_others_alone() -> None:
    kit = Kit()
    kit.register()
    letter = kit.letter()
    kit.handlers.register_function("broken", "f", lambda: None)
    kit.letters.create("broken", OPEN)
    standing = kit.replayer.gates.standing

    def fails(domain: str, **options: Any) -> Any:
        if domain == "broken":
            raise LookupError("a fault")
        return standing(domain, **options)

    kit.replayer.gates.standing = fails  # type: ignore[method-assign]
    with pytest.raises(LookupError):
        kit.recovery.run()
    assert kit.status(letter.id) == "resolved"


def test_a_domain_with_much_to_do_lets_the_others_have_their_turn() -> None:
    kit = Kit()
    done: list[str] = []

    def slow(order_id: str, amount: int) -> None:
        done.append("payments")
        kit.clock.advance(10)

    kit.register(slow)
    for n in range(200):
        kit.letter(f"o{n}")
    kit.handlers.register_function("stock", "f", lambda: done.append("stock"))
    kit.letters.create("stock", OPEN, request_data={"function": "f", "args": {}})
    drained = {one.domain: one for one in kit.recovery.run()}
    assert drained["payments"].reason == "its turn is over"
    assert drained["payments"].next_s == 0.0
    assert drained["stock"].succeeded == 1
    assert done.count("payments") < 20
    while kit.letters.count_all():
        kit.recovery.run()
    assert done.count("payments") == 200


def test_a_paused_domain_does_not_drain() -> None:
    kit = Kit()
    kit.register()
    letter = kit.letter()
    kit.replayer.gates.pause("payments", reason="calm")
    kit.recovery.run()
    assert kit.status(letter.id) == "pending"


def test_slow_answers_slow_the_drain_down() -> None:
    kit = Kit()

    def charge(order_id: str, amount: int) -> None:
        kit.calls.append(order_id)
        kit.clock.advance(1.0 if len(kit.calls) > 15 else 0.1)

    kit.register(charge, guard=kit.make_guard(Retry(attempts=1)))
    for n in range(40):
        kit.letter(f"o{n}")
    drained = kit.recovery.drain("payments")
    assert drained.succeeded == 40
    assert drained.rounds > 6  # 1, 2, 4, 8, 16 and 9 if nothing had slowed down


def test_a_drain_is_told_once_when_it_did_something() -> None:
    kit = Kit()
    kit.register()
    kit.recovery.drain("payments")
    assert kit.told(DrainEnded) == []
    kit.letter()
    kit.recovery.drain("payments")
    [event] = kit.told(DrainEnded)
    assert (event.operation_key, event.succeeded, event.reason) == ("payments", 1, "empty")


class States:
    """Shared breaker states as a repository tells them."""

    def __init__(self, clock: ManualClock, state: str, pinned: bool = False) -> None:
        self.state, self.pinned = state, pinned
        self.opened_at = clock.wall() - timedelta(seconds=10)
        self.is_open, self.is_closed = state == "open", state == "closed"

    def pin_active(self, now: Any) -> bool:
        return self.pinned

    def get_by_service_name(self, service_name: str) -> Any:
        return self


def test_a_domain_without_a_guard_here_heeds_the_shared_breaker() -> None:
    kit = Kit()
    kit.handlers.register_function("payments", "charge", kit.charge)

    def standing(state: str, pinned: bool = False) -> Any:
        return Gates(kit.store, kit.handlers, States(kit.clock, state, pinned)).standing("payments")

    assert standing("closed").way == "clear"
    assert standing("half_open").way == "trial"
    assert (standing("open").way, standing("open").retry_after) == ("barred", 50.0)
    assert "operator" in standing("open", pinned=True).reason
    states = States(kit.clock, "open")
    kit.clock.advance(50)
    assert Gates(kit.store, kit.handlers, states).standing("payments").way == "trial"


def test_the_next_due_letter_is_known() -> None:
    kit = Kit()
    kit.register(guard=kit.make_guard(Retry(attempts=1)))
    assert kit.recovery.next_s() is None
    kit.broken = True
    kit.letter()
    kit.recovery.run()
    assert kit.recovery.next_s() == pytest.approx(30, abs=1)


def test_reading_the_queue_does_not_grow_with_what_cannot_go() -> None:
    """A thousand parked letters are read about once by a drain that has many rounds."""
    reads = 0

    class Counting(MemoryStore):
        def page(self, *args: Any, **kwargs: Any) -> Any:
            nonlocal reads
            found = super().page(*args, **kwargs)
            reads += len(found)
            return found

    clock = ManualClock()
    kit = Kit(Counting(clock), clock)
    kit.register(guard=kit.make_guard(Retry(attempts=1)))
    head = kit.letter("slow")
    kit.letters.update_status(head.id, "requires_review")
    for _ in range(1000):
        kit.letter("slow")
    for n in range(200):
        kit.letter(f"o{n}")
    reads = 0
    assert kit.recovery.drain("payments").succeeded == 200
    assert reads < 4_000


def test_an_entity_with_very_many_letters_is_read_about_once() -> None:
    """One letter of it goes out at a time, and neither the rest of it nor its order is read anew for each."""
    reads = 0

    class Counting(MemoryStore):
        def page(self, *args: Any, **kwargs: Any) -> Any:
            nonlocal reads
            found = super().page(*args, **kwargs)
            reads += len(found)
            return found

        def get(self, kind: Any, ids: Any) -> Any:
            nonlocal reads
            found = super().get(kind, ids)
            reads += len(found)
            return found

    clock = ManualClock()
    kit = Kit(Counting(clock), clock)
    seen: list[int] = []
    kit.register(lambda order_id, amount: seen.append(amount), guard=kit.make_guard(Retry(attempts=1)))
    for n in range(600):
        kit.letter("hot", request_data={"function": "charge", "args": {"order_id": "hot", "amount": n}})
        if n % 60 == 0:
            kit.letter(f"o{n}", request_data={"function": "charge", "args": {"order_id": "o", "amount": -n}})
    reads = 0
    assert kit.recovery.drain("payments").succeeded == 610
    assert [n for n in seen if n > 0] == list(range(1, 600))
    assert reads < 610 * 40


def _raise() -> None:
    raise ConnectionError("down")
