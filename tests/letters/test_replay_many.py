"""Batch replay: many letters, a few at a time."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Sequence
from typing import Any

import pytest

from holdfast.backends.memory import MemoryStore
from holdfast.errors import PolicyError
from holdfast.guard.retry import Retry
from holdfast.letters.data import FailedOperationData
from holdfast.letters.events import LetterReplayed
from holdfast.letters.pace import BatchPolicy, replay_many
from holdfast.machine.dead_letter import LETTER
from holdfast.machine.drain import LARGEST_SHARE
from holdfast.store.port import Change, Store, Swap
from holdfast.telemetry.events import GuardEvent
from holdfast.testing.clock import ManualClock
from tests.letters.replay_kit import Kit


def test_all_that_is_due_is_replayed_in_several_threads(store: Store, clock: ManualClock) -> None:
    kit = Kit(store, clock)
    kit.register()
    for n in range(130):
        kit.letter(f"o{n}")
    result = replay_many(kit.replayer, "payments", policy=BatchPolicy(concurrency=4))
    assert (result.counts["succeeded"], result.left) == (130, {})
    assert sorted(kit.calls) == sorted(f"o{n}" for n in range(130))
    [one] = {letter.resolution_type for letter in kit.letters.find(status="resolved", limit=200)}
    assert one == "scheduled_batch"


def test_no_more_than_the_limit_run_at_once() -> None:
    kit = Kit()
    running, most, lock = 0, 0, threading.Lock()
    together = threading.Barrier(3, timeout=20)

    def charge(order_id: str, amount: int) -> None:
        nonlocal running, most
        with lock:
            running += 1
            most = max(most, running)
        together.wait()
        with lock:
            running -= 1

    kit.register(charge)
    for n in range(12):
        kit.letter(f"o{n}")
    result = replay_many(kit.replayer, "payments", policy=BatchPolicy(concurrency=3))
    assert (result.done, most) == (12, 3)


def test_it_stops_when_the_breaker_opens() -> None:
    kit = Kit()
    kit.register()
    for n in range(200):
        kit.letter(f"o{n}")
    kit.broken = True
    result = replay_many(kit.replayer, "payments", policy=BatchPolicy(concurrency=1))
    assert len(kit.calls) == 3  # the breaker trips at three; the rest of the batch is left
    assert result.counts["failed"] == 3
    assert "payments" in result.left
    assert result.done == 50


def test_an_open_breaker_lets_one_letter_try() -> None:
    kit = Kit()
    kit.register()
    for n in range(5):
        kit.letter(f"o{n}")
    kit.open_circuit()
    assert replay_many(kit.replayer, "payments").left == {"payments": "the breaker of 'payments' is open"}
    kit.clock.advance(30)
    kit.broken = True
    assert replay_many(kit.replayer, "payments").done == 1
    kit.broken = False
    kit.clock.advance(30)
    assert replay_many(kit.replayer, "payments").counts["succeeded"] == 5


def test_limits_hold_in_all_and_by_domain_and_priority_goes_first() -> None:
    kit = Kit()
    for domain in ("a", "b", "c"):
        kit.handlers.register_function(domain, "f", lambda name: kit.calls.append(name))
        for _ in range(5):
            kit.letters.create(domain, "X", request_data={"function": "f", "args": {"name": domain}})
    policy = BatchPolicy(limit=9, concurrency=1, caps={"c": 3}, priority=("c", "nobody"))
    result = replay_many(kit.replayer, policy=policy)
    assert kit.calls == [*"ccc", *"aaaaa", "b"]
    assert result.left == {"c": "the limit was reached", "b": "the limit was reached"}


def test_a_rate_is_kept() -> None:
    kit = Kit()
    kit.register()
    for n in range(100):
        kit.letter(f"o{n}")
    began = kit.clock.monotonic()
    replay_many(kit.replayer, "payments", policy=BatchPolicy(concurrency=1, per_second=10))
    assert kit.clock.monotonic() - began == pytest.approx(10)


def test_only_the_failure_type_that_is_asked_for() -> None:
    kit = Kit()
    kit.register()
    kit.letter("a", "X"), kit.letter("b", "Y")
    replay_many(kit.replayer, "payments", failure_type="Y")
    assert kit.calls == ["b"]


def test_failing_letters_do_not_come_twice_in_one_run() -> None:
    kit = Kit()
    kit.register(guard=kit.make_guard(Retry(attempts=1)))
    kit.broken = True
    for n in range(30):
        kit.letter(f"o{n}")
    assert replay_many(kit.replayer).counts["failed"] == 30
    assert len(kit.calls) == 30


def test_everything_else_is_done_before_a_failure_of_ours_is_raised() -> None:
    class Died(BaseException):
        pass

    kit = Kit()

    def charge(order_id: str, amount: int) -> None:
        kit.calls.append(order_id)
        if order_id == "o0":
            raise Died

    kit.register(charge, guard=kit.make_guard(Retry(attempts=1)))
    ids = [kit.letter(f"o{n}").id for n in range(10)]
    with pytest.raises(Died):
        replay_many(kit.replayer, "payments", policy=BatchPolicy(concurrency=3))
    assert sorted(kit.calls) == [f"o{n}" for n in range(10)]
    assert [kit.status(id) for id in ids] == ["replaying", *["resolved"] * 9]


class Writing(MemoryStore):
    """Counts the commits of letters, and how many letters each had."""

    def __init__(self, clock: ManualClock) -> None:
        super().__init__(clock)
        self.commits: list[int] = []

    def commit(self, changes: Sequence[Change], **options: Any) -> None:
        self.commits.append(sum(isinstance(one, Swap) and one.kind is LETTER for one in changes))
        super().commit(changes, **options)


def test_quick_letters_share_their_commits(clock: ManualClock) -> None:
    store = Writing(clock)
    kit = Kit(store, clock)
    kit.register()
    for n in range(400):
        kit.letter(f"o{n}")
    store.commits.clear()
    assert replay_many(kit.replayer, "payments").counts["succeeded"] == 400
    assert sum(store.commits) == 800  # each is acquired, and each is completed
    assert len(store.commits) < 400
    assert max(store.commits) >= LARGEST_SHARE


def test_slow_letters_are_acquired_when_they_are_begun(clock: ManualClock) -> None:
    """What a process that dies would cost an attempt is what it was at."""
    kit = Kit(clock=clock)
    ahead: list[int] = []

    def charge(order_id: str, amount: int) -> None:
        clock.advance(1)
        kit.calls.append(order_id)
        ahead.append(40 - kit.letters.count(status="pending") - len(kit.calls))

    kit.register(charge)
    for n in range(40):
        kit.letter(f"o{n}")
    replay_many(kit.replayer, "payments", policy=BatchPolicy(concurrency=2))
    assert max(ahead) <= 1  # the other thread's


def test_what_has_ended_is_written_while_another_letter_takes_its_time(store: Store, clock: ManualClock) -> None:
    kit = Kit(store, clock)
    others_are_done = threading.Event()

    def charge(order_id: str, amount: int) -> None:
        if order_id == "o99":
            for _ in range(2000):
                if kit.letters.count(status="resolved") == 99:
                    others_are_done.set()
                    return
                threading.Event().wait(0.01)

    kit.register(charge)
    for n in range(100):
        kit.letter(f"o{n}")
    assert replay_many(kit.replayer, "payments", policy=BatchPolicy(concurrency=2)).counts["succeeded"] == 100
    assert others_are_done.is_set()


def test_letters_that_were_acquired_and_not_begun_are_given_back_when_it_stops(
    store: Store, clock: ManualClock
) -> None:
    kit, stop = Kit(store, clock), threading.Event()

    def charge(order_id: str, amount: int) -> None:
        kit.calls.append(order_id)
        if len(kit.calls) >= 60:
            stop.set()

    kit.register(charge)
    ids = [kit.letter(f"o{n}").id for n in range(100)]
    result = replay_many(kit.replayer, "payments", policy=BatchPolicy(concurrency=2), stop=stop)
    statuses = Counter(kit.status(id) for id in ids)
    assert result.left == {"payments": "stopped"}
    assert statuses == {"resolved": len(kit.calls), "pending": 100 - len(kit.calls)}
    assert len(kit.calls) < 65
    for id in ids:
        letter = kit.letters.get_by_id(id)
        assert letter is not None
        assert letter.retry_count == (letter.status == "resolved")


def test_an_interrupt_leaves_no_letter_in_our_hands() -> None:
    """Ctrl-C comes to the thread that writes the ends down."""
    kit, interrupted = Kit(), threading.Event()

    def interrupt(event: GuardEvent) -> None:
        if isinstance(event, LetterReplayed) and not interrupted.is_set():
            interrupted.set()
            raise KeyboardInterrupt

    kit.register()
    kit.hub.register(interrupt)
    for n in range(100):
        kit.letter(f"o{n}")
    with pytest.raises(KeyboardInterrupt):
        replay_many(kit.replayer, "payments", policy=BatchPolicy(concurrency=4))
    assert kit.letters.count(status="resolved") == len(kit.calls)
    assert kit.letters.count(status="replaying") == 0
    assert kit.replayer.heart._held == {}


def test_a_letter_that_changed_since_it_was_read_is_read_again(store: Store, clock: ManualClock) -> None:
    """Of letters that are acquired in one step, an operator has resolved one and changed another one."""
    kit = Kit(store, clock)

    class Handler:
        def can_replay(self, op: FailedOperationData) -> tuple[bool, str]:
            if op.entity_id == "o18":
                kit.letters.mark_as_resolved(op.id, "manual")
            if op.entity_id == "o19":
                kit.letters.increment_retry_count(op.id)
            return True, ""

        def replay(self, op: FailedOperationData) -> None:
            kit.calls.append(op.entity_id)

    kit.handlers.register("payments", Handler())
    ids = [kit.letter(f"o{n}").id for n in range(20)]
    result = replay_many(kit.replayer, "payments", policy=BatchPolicy(concurrency=2))
    assert result.counts == {"succeeded": 19, "skipped": 1}
    assert "o18" not in kit.calls
    assert [len(kit.letters.get_attempts(id)) for id in ids[17:]] == [1, 0, 1]


def test_ends_are_written_one_by_one_where_a_letter_changed_meanwhile(store: Store, clock: ManualClock) -> None:
    """A beat of the heart changes what was acquired, and an operator takes a letter away."""
    kit = Kit(store, clock)
    ids = [kit.letter(f"o{n}").id for n in range(60)]

    def charge(order_id: str, amount: int) -> None:
        if order_id == "o30":
            kit.replayer.heart.beat()
            kit.letters.update_status(ids[30], "reviewing")

    kit.register(charge)
    result = replay_many(kit.replayer, "payments", policy=BatchPolicy(concurrency=4))
    assert result.counts == {"succeeded": 59, "lost": 1}
    assert kit.status(ids[30]) == "reviewing"
    assert Counter(kit.status(id) for id in ids) == {"resolved": 59, "reviewing": 1}


def test_no_further_letter_is_acquired_once_the_breaker_has_opened() -> None:
    kit = Kit()
    kit.register()
    ids = [kit.letter(f"o{n}").id for n in range(50)]
    kit.broken = True
    result = replay_many(kit.replayer, "payments", policy=BatchPolicy(concurrency=1))
    assert result.counts == {"failed": 3, "returned": 1, "skipped": 46}
    assert sum(len(kit.letters.get_attempts(id)) for id in ids) == 4


@pytest.mark.parametrize("wrong", [{"concurrency": 0}, {"per_second": 0}])
def test_a_policy_that_cannot_work_is_refused(wrong: dict[str, int]) -> None:
    with pytest.raises(PolicyError, match=next(iter(wrong))):
        BatchPolicy(**wrong)  # type: ignore[arg-type]
