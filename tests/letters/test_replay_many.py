"""Batch replay: many letters, a few at a time."""

from __future__ import annotations

import threading

import pytest

from holdfast.errors import PolicyError
from holdfast.guard.retry import Retry
from holdfast.letters.pace import BatchPolicy, Crew, replay_many
from holdfast.store.port import Store
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
    assert len(kit.calls) == 3  # the breaker trips at three; the rest of the batch is returned
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


def test_a_crew_finishes_every_job_before_it_raises() -> None:
    done: list[int] = []

    def job(n: int) -> int:
        if n == 0:
            raise LookupError("first")
        done.append(n)
        return n

    with Crew(3) as crew, pytest.raises(LookupError):
        crew.map(job, range(10))
    assert sorted(done) == list(range(1, 10))


@pytest.mark.parametrize("wrong", [{"concurrency": 0}, {"per_second": 0}])
def test_a_policy_that_cannot_work_is_refused(wrong: dict[str, int]) -> None:
    with pytest.raises(PolicyError, match=next(iter(wrong))):
        BatchPolicy(**wrong)  # type: ignore[arg-type]
