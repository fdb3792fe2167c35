"""Replaying one letter: who may, what is called, and what is written down."""

from __future__ import annotations

import asyncio
import os
import threading
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest

from holdfast.backends.memory import MemoryStore
from holdfast.core.outcome import Outcome, OutcomeKind
from holdfast.errors import CircuitOpen, GuardTimeout, PolicyError, StoreUnavailable
from holdfast.guard.fallback import Fallback
from holdfast.guard.rate_limit import RateLimit
from holdfast.guard.retry import Retry
from holdfast.letters.capture import REPLAYING
from holdfast.letters.data import FailedOperationData
from holdfast.letters.events import LetterReplayed, ReplayPaused
from holdfast.letters.heartbeat import Heart, Hold
from holdfast.letters.replaying import current_idempotency_key, current_replay
from holdfast.machine.breaker import Breaker
from holdfast.machine.trip import consecutive
from holdfast.store.port import Store
from holdfast.testing.clock import ManualClock
from tests.letters.replay_kit import Kit


class Handler:
    """A handler whose answers a test sets."""

    failure_types = ("MAX_RETRIES_CONNECTIONERROR",)

    def __init__(self, act: Callable[[FailedOperationData], Any] = lambda op: None) -> None:
        self.act = act
        self.answer: tuple[bool, str] = (True, "")
        self.seen: list[str] = []

    def can_replay(self, op: FailedOperationData) -> tuple[bool, str]:
        return self.answer

    def replay(self, op: FailedOperationData) -> Any:
        self.seen.append(op.id)
        return self.act(op)


def raising(error: Exception) -> Callable[[FailedOperationData], Any]:
    def act(op: FailedOperationData) -> Any:
        raise error

    return act


def test_a_registered_function_is_called_with_its_arguments_by_name(store: Store, clock: ManualClock) -> None:
    kit = Kit(store, clock)
    kit.register()
    letter = kit.letter("o7")
    result = kit.replayer.replay(letter.id, by=4)
    stored = kit.letters.get_by_id(letter.id)
    assert stored is not None
    assert (result.outcome, result.status, result.attempt) == ("succeeded", "resolved", 1)
    assert kit.calls == ["o7"]
    assert (stored.status, stored.resolution_type, stored.resolved_by_id) == ("resolved", "manual_replay", 4)
    assert [(a.outcome, a.trigger) for a in kit.letters.get_attempts(letter.id)] == [("succeeded", "manual_replay")]


def test_a_failure_waits_longer_each_time_and_ends_with_a_person(store: Store, clock: ManualClock) -> None:
    kit = Kit(store, clock)
    kit.register(guard=kit.make_guard(Retry(attempts=1)))
    kit.broken = True
    letter = kit.letter(max_retries=2)
    first = kit.replayer.replay(letter.id)
    assert (first.outcome, first.status) == ("failed", "pending")
    assert first.retry_at is not None
    assert (first.retry_at - clock.wall()).total_seconds() == 30
    assert kit.replayer.replay(letter.id).outcome == "skipped"
    clock.advance(30)
    second = kit.replayer.replay(letter.id)
    stored = kit.letters.get_by_id(letter.id)
    assert stored is not None
    assert (second.outcome, stored.status, stored.recommended_action) == ("failed", "requires_review", "escalate")
    assert stored.resolution_note == "ConnectionError: no route to the bank"
    assert [a.error_type for a in kit.letters.get_attempts(letter.id)] == ["ConnectionError"] * 2


def test_the_wait_doubles_up_to_an_hour() -> None:
    kit = Kit()
    kit.register(guard=kit.make_guard(Retry(attempts=1)))
    kit.broken = True
    letter = kit.letter(max_retries=20)
    waits = []
    for _ in range(9):
        result = kit.replayer.replay(letter.id)
        assert result.retry_at is not None
        waits.append((result.retry_at - kit.clock.wall()).total_seconds())
        kit.clock.advance(3600)
    assert waits == [30, 60, 120, 240, 480, 960, 1920, 3600, 3600]


def test_force_starts_a_new_budget(store: Store, clock: ManualClock) -> None:
    kit = Kit(store, clock)
    kit.register()
    letter = kit.letter(max_retries=1)
    kit.broken = True
    assert kit.replayer.replay(letter.id).status == "requires_review"
    kit.broken = False
    assert kit.replayer.replay(letter.id).reason == "it is requires_review"
    result = kit.replayer.replay(letter.id, force=True)
    stored = kit.letters.get_by_id(letter.id)
    assert stored is not None
    assert (result.outcome, stored.resolution_type) == ("succeeded", "force_redrive")
    assert stored.recommended_action == ""


def test_a_forced_replay_that_fails_leaves_nothing_of_the_old_budgets_end(store: Store, clock: ManualClock) -> None:
    kit = Kit(store, clock)
    kit.register(guard=kit.make_guard(Retry(attempts=1)))
    kit.broken = True
    letter = kit.letter(max_retries=2)
    for _ in range(2):
        kit.replayer.replay(letter.id)
        clock.advance(3600)
    assert kit.status(letter.id) == "requires_review"
    assert kit.replayer.replay(letter.id, force=True).status == "pending"
    stored = kit.letters.get_by_id(letter.id)
    assert stored is not None
    assert (stored.resolution_type, stored.recommended_action) == ("", "")


def test_without_a_handler_it_is_refused_and_no_attempt_is_used() -> None:
    kit = Kit()
    letter = kit.letter()
    result = kit.replayer.replay(letter.id)
    assert (result.outcome, result.attempt) == ("refused", 0)
    assert result.reason == "no function 'charge' is registered for domain 'payments' in this process"
    assert kit.letters.get_attempts(letter.id) == []


@pytest.mark.parametrize(
    ("request_data", "words"),
    [
        ({"_truncated": True, "original_size": 9}, "no handler"),
        ({"function": "charge", "args": {}, "omitted": {"s": "socket"}}, "not JSON were not kept: s"),
        ({"function": "charge", "args": {"card": "***"}, "masked": ["card"]}, "masked: card"),
        ({"function": "charge", "args": {"wrong": 1}}, "do not fit charge"),
        ({"function": "os.system", "args": {"command": "true"}}, "no function 'os.system'"),
    ],
)
def test_a_request_that_is_not_the_calls_is_refused(request_data: dict[str, Any], words: str) -> None:
    kit = Kit()
    kit.register()
    result = kit.replayer.replay(kit.letter(request_data=request_data).id)
    assert result.outcome == "refused"
    assert words in result.reason
    assert kit.calls == []


def test_an_unknown_id_is_refused() -> None:
    result = Kit().replayer.replay("nowhere")
    assert (result.outcome, result.reason) == ("refused", "there is no such letter")


def test_a_handler_that_says_no_costs_no_attempt() -> None:
    kit, handler = Kit(), Handler()
    kit.handlers.register("payments", handler)
    handler.answer = (False, "the order was cancelled")
    letter = kit.letter()
    assert kit.replayer.replay(letter.id).reason == "the order was cancelled"
    assert (handler.seen, kit.status(letter.id)) == ([], "pending")


def test_a_handler_that_fails_to_answer_costs_no_attempt() -> None:
    kit, handler = Kit(), Handler()
    handler.can_replay = raising(KeyError("order"))  # type: ignore[method-assign, assignment]
    kit.handlers.register("payments", handler)
    assert "can_replay failed: KeyError" in kit.replayer.replay(kit.letter().id).reason


def test_a_handlers_secret_does_not_reach_the_store() -> None:
    kit = Kit()
    kit.handlers.register("payments", Handler(raising(RuntimeError("token=abc123secret refused"))))
    letter = kit.letter()
    kit.replayer.replay(letter.id)
    stored = kit.letters.get_by_id(letter.id)
    assert stored is not None
    assert "abc123secret" not in repr(stored)
    assert "abc123secret" not in repr(kit.letters.get_attempts(letter.id))


def test_a_domain_has_one_handler_and_a_name_one_function() -> None:
    kit = Kit()
    kit.handlers.register("payments", Handler())
    with pytest.raises(PolicyError, match="has a replay handler already"):
        kit.handlers.register("payments", Handler())
    kit.register()
    with pytest.raises(PolicyError, match="another function called 'charge'"):
        kit.register(lambda order_id: None)
    with pytest.raises(TypeError, match="needs can_replay"):
        kit.handlers.register("other", object())  # type: ignore[arg-type]


def test_an_open_breaker_refuses_before_an_attempt_is_used() -> None:
    kit = Kit()
    kit.register()
    kit.open_circuit()
    letter = kit.letter()
    result = kit.replayer.replay(letter.id)
    assert (result.outcome, result.domain_barred) == ("refused", True)
    assert result.reason == "the breaker of 'payments' is open"
    assert result.retry_after == pytest.approx(30)
    assert kit.letters.get_attempts(letter.id) == []


def test_a_guard_that_refuses_before_the_body_returns_the_attempt() -> None:
    kit = Kit()
    guard = kit.make_guard(RateLimit(1, per=60.0))
    kit.register(guard=guard)
    guard.run(lambda: None)  # takes the only token
    letter = kit.letter()
    result = kit.replayer.replay(letter.id)
    stored = kit.letters.get_by_id(letter.id)
    assert stored is not None
    assert (result.outcome, stored.status, stored.retry_count) == ("returned", "pending", 0)
    assert kit.calls == []
    assert [a.outcome for a in kit.letters.get_attempts(letter.id)] == ["returned"]


def test_a_refusal_after_the_body_ran_is_a_failure() -> None:
    kit = Kit()
    guard = kit.make_guard(Retry(attempts=3), Breaker(consecutive(1), open_for=30.0))
    kit.register(guard=guard)
    kit.broken = True
    assert kit.replayer.replay(kit.letter().id).outcome == "failed"
    assert len(kit.calls) == 1


@pytest.mark.parametrize("error", [SystemExit(2), asyncio.CancelledError()])
@pytest.mark.parametrize("guarded", [True, False])
def test_a_function_that_leaves_the_program_only_fails(guarded: bool, error: BaseException) -> None:
    kit = Kit()

    def charge(order_id: str, amount: int) -> None:
        raise error

    if guarded:
        kit.register(charge)
    else:
        kit.handlers.register_function("payments", "charge", charge)
    letter = kit.letter()
    assert kit.recovery.drain("payments").failed == 1
    assert (kit.status(letter.id), len(kit.letters.get_attempts(letter.id))) == ("pending", 1)


def test_a_handlers_own_refusal_returns_the_attempt() -> None:
    kit = Kit()
    kit.handlers.register("payments", Handler(raising(CircuitOpen("bank", 5.0))))
    letter = kit.letter()
    result = kit.replayer.replay(letter.id)
    assert (result.outcome, result.retry_after, kit.status(letter.id)) == ("returned", 5.0, "pending")


def test_a_timeout_whose_work_may_still_run_keeps_its_lease() -> None:
    kit = Kit()
    kit.handlers.register("payments", Handler(raising(GuardTimeout("bank", 1.0))))
    letter = kit.letter()
    assert kit.replayer.replay(letter.id).outcome == "unsettled"
    assert kit.status(letter.id) == "replaying"
    kit.clock.advance(31 * 60)
    assert kit.letters.release_stale_replaying(30) == 1
    assert kit.status(letter.id) == "pending"


def test_a_fallbacks_answer_is_no_success() -> None:
    kit = Kit()
    kit.register(guard=kit.make_guard(Retry(attempts=1), Fallback(lambda: "later")))
    kit.broken = True
    assert kit.replayer.replay(kit.letter().id).outcome == "failed"


def test_a_handler_may_answer_with_an_outcome() -> None:
    kit = Kit()
    failure = Outcome.failure(OutcomeKind.TRANSIENT_FAILURE, ConnectionError("down"))
    kit.handlers.register("payments", Handler(lambda op: failure))
    assert kit.replayer.replay(kit.letter().id).reason == "ConnectionError: down"


@pytest.mark.parametrize("guarded", [True, False])
def test_async_functions_run_on_a_loop_of_the_replayers_own(guarded: bool) -> None:
    kit = Kit()
    seen: list[Any] = []

    async def charge(order_id: str, amount: int) -> None:
        await asyncio.sleep(0)
        seen.append((order_id, current_idempotency_key(), threading.current_thread().name))

    if guarded:
        kit.register(charge)
    else:
        kit.handlers.register_function("payments", "charge", charge)
    letter = kit.letter("o3")
    assert kit.replayer.replay(letter.id).outcome == "succeeded"
    assert seen == [("o3", f"letter-{letter.id}", "holdfast-replay-loop")]
    kit.replayer.close()


def test_the_function_knows_its_key_its_letter_and_that_it_is_a_replay() -> None:
    kit = Kit()
    seen: list[Any] = []

    def charge(order_id: str, amount: int, idempotency_key: str | None = None) -> None:
        replay = current_replay()
        assert replay is not None
        seen.append((idempotency_key, current_idempotency_key(), REPLAYING.get() == replay.id, replay.attempt))
        if len(seen) == 1:
            raise ConnectionError("once more")

    kit.register(charge, guard=kit.make_guard(Retry(attempts=1)))
    letter = kit.letter()
    kit.replayer.replay(letter.id)
    kit.clock.advance(60)
    kit.replayer.replay(letter.id)
    key = f"letter-{letter.id}"
    assert seen == [(key, key, True, 1), (key, key, True, 2)]
    assert current_replay() is None


def test_the_original_calls_key_is_used_again() -> None:
    kit = Kit()
    seen: list[str | None] = []
    kit.register(lambda order_id, amount: seen.append(current_idempotency_key()))
    kit.replayer.replay(kit.letter(metadata={"idempotency_key": "order-7"}).id)
    assert seen == ["order-7"]


def test_positional_and_spread_arguments_find_their_places() -> None:
    kit = Kit()
    seen: list[Any] = []

    def charge(first: int, /, second: int, *rest: int, **more: int) -> None:
        seen.append((first, second, rest, more))

    kit.register(charge)
    kit.replayer.replay(
        kit.letter(request_data={"function": "charge", "args": {"first": 1, "second": 2, "rest": [3, 4], "x": 5}}).id
    )
    assert seen == [(1, 2, (3, 4), {"x": 5})]


def test_a_decorated_function_is_guarded_once() -> None:
    kit = Kit()
    guarded = kit.guard(kit.charge)
    kit.register(guarded)
    kit.broken = True
    for _ in range(2):
        kit.replayer.replay(kit.letter().id)
    assert kit.guard.circuit.look("failure_count") == 2


def test_a_zombie_cannot_complete_an_attempt_that_was_released(store: Store, clock: ManualClock) -> None:
    kit = Kit(store, clock)
    letter = kit.letter()

    def takes_too_long(op: FailedOperationData) -> None:
        clock.advance(31 * 60)
        kit.letters.release_stale_replaying(30)
        assert kit.letters.try_acquire_for_replay(op.id, 3) is not None

    kit.handlers.register("payments", Handler(takes_too_long))
    assert kit.replayer.replay(letter.id).outcome == "lost"
    assert kit.status(letter.id) == "replaying"


def test_a_heartbeat_keeps_the_lease_of_a_long_replay_and_notices_when_it_is_lost() -> None:
    kit = Kit()
    seen: list[bool] = []

    def works_long(op: FailedOperationData) -> None:
        replay = current_replay()
        assert replay is not None
        kit.clock.advance(29 * 60)
        kit.replayer.heart.beat()
        kit.clock.advance(29 * 60)
        assert kit.letters.release_stale_replaying(30) == 0
        seen.append(replay.lost)
        kit.letters.update_status(op.id, "rejected")
        kit.replayer.heart.beat()
        seen.append(replay.lost)

    kit.handlers.register("payments", Handler(works_long))
    letter = kit.letter()
    assert kit.replayer.replay(letter.id).outcome == "lost"
    assert (seen, kit.status(letter.id)) == ([False, True], "rejected")


def test_a_heartbeat_outlives_whatever_one_beat_raises() -> None:
    beats: list[str] = []

    def beat(id: str, token: str) -> bool:
        beats.append(id)
        if id == "odd":
            raise LookupError("nobody thought of it")
        return True

    heart, odd, fine = Heart(beat, 60.0), Hold("odd", "1"), Hold("fine", "2")
    with heart.holding(odd), heart.holding(fine):
        heart.beat()
        heart.beat()
    assert beats == ["odd", "fine"] * 2
    assert (odd.lost, fine.lost) == (False, False)


def test_a_forked_child_replays_by_itself_and_keeps_nothing_of_its_parents_alive() -> None:
    kit = Kit()
    beats: list[str] = []

    async def charge(order_id: str, amount: int) -> None:
        kit.calls.append(order_id)

    kit.register(charge)
    kit.replayer.replay(kit.letter("parent").id)  # the loop of async functions runs in the parent
    heart = Heart(lambda id, token: bool(beats.append(id)) or True, 60.0)
    with heart.holding(Hold("parents", "1")):
        child = os.fork()
        if not child:
            with heart.holding(Hold("childs", "2")):
                heart.beat()
            replayed = kit.replayer.replay(kit.letter("child").id).outcome
            os._exit(0 if beats == ["childs"] and replayed == "succeeded" else 1)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    kit.replayer.close()


def test_a_paused_domain_is_not_replayed_until_it_is_resumed(store: Store, clock: ManualClock) -> None:
    kit = Kit(store, clock)
    kit.register()
    letter = kit.letter()
    kit.replayer.gates.pause("payments", by="ops", reason="the bank asks for calm")
    assert kit.replayer.replay(letter.id).reason == "replay of 'payments' is paused by ops: the bank asks for calm"
    assert kit.replayer.gates.resume("payments")
    assert not kit.replayer.gates.resume("payments")
    assert [event.paused for event in kit.told(ReplayPaused)] == [True, False]
    assert kit.replayer.replay(letter.id).outcome == "succeeded"


def test_a_pause_ends_by_itself() -> None:
    kit = Kit()
    kit.register()
    letter = kit.letter()
    kit.replayer.gates.pause("payments", until=kit.clock.wall() + timedelta(minutes=5))
    assert kit.replayer.replay(letter.id).outcome == "refused"
    kit.clock.advance(300)
    assert kit.replayer.replay(letter.id).outcome == "succeeded"


class AwayStore(MemoryStore):
    """A store that goes away for some writes; `deaf` writes are made and their answer is lost."""

    away = 0
    deaf = 0

    def commit(self, changes: Any, *, wake: str | None = None, connection: Any = None) -> None:
        if self.away:
            self.away -= 1
            raise StoreUnavailable("gone for a moment")
        super().commit(changes, wake=wake, connection=connection)
        if self.deaf:
            self.deaf -= 1
            raise StoreUnavailable("the answer was lost")


@pytest.mark.parametrize("fault", ["away", "deaf"])
def test_a_store_that_goes_away_during_a_replay_is_waited_for(fault: str) -> None:
    clock = ManualClock()
    store = AwayStore(clock)
    kit = Kit(store, clock)
    kit.handlers.register("payments", Handler(lambda op: setattr(store, fault, 1)))
    letter = kit.letter()
    assert kit.replayer.replay(letter.id).outcome == "succeeded"
    assert kit.status(letter.id) == "resolved"


def test_a_store_that_stays_away_leaves_the_letter_to_its_lease() -> None:
    clock = ManualClock()
    store = AwayStore(clock)
    kit = Kit(store, clock)
    kit.handlers.register("payments", Handler(lambda op: setattr(store, "away", 10**6)))
    letter = kit.letter()
    result = kit.replayer.replay(letter.id)
    assert result.outcome == "unsettled"
    store.away = 0
    clock.advance(31 * 60)
    assert kit.letters.release_stale_replaying(30) == 1
    assert kit.status(letter.id) == "pending"


def test_every_replay_is_told() -> None:
    kit = Kit()
    kit.register(guard=kit.make_guard(Retry(attempts=1)))
    letter = kit.letter(max_retries=1)
    kit.broken = True
    kit.replayer.replay(letter.id)
    kit.replayer.replay(letter.id)
    told = kit.told(LetterReplayed)
    assert [(e.outcome, e.status, e.error_type) for e in told] == [
        ("failed", "requires_review", "ConnectionError"),
        ("skipped", "requires_review", None),
    ]
    assert [e.severity for e in told] == ["error", "info"]
