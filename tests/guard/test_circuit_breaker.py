"""CircuitBreaker, the door that is asked and told by hand."""

from __future__ import annotations

import asyncio
import threading
from contextvars import copy_context
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.errors import PolicyError
from holdfast.guard.circuit_breaker import CircuitBreaker, StampedCircuit
from holdfast.machine.breaker import Breaker, CircuitBreakerState, CircuitState
from holdfast.machine.trip import consecutive
from holdfast.telemetry.events import CircuitStateChanged
from holdfast.telemetry.hub import Hub
from holdfast.testing.clock import ManualClock


class StepClock(ManualClock):
    """A manual clock whose time of day can be set apart from its monotonic time."""

    step = timedelta()

    def wall(self) -> datetime:
        return super().wall() + self.step


def breaker_of(clock: ManualClock, **options: Any) -> CircuitBreaker:
    return CircuitBreaker("p1", clock=clock, telemetry=Hub(clock=clock), **options)


def opened(clock: ManualClock, **options: Any) -> CircuitBreaker:
    breaker = breaker_of(clock, **options)
    for _ in range(breaker.failure_threshold):
        breaker.record_failure()
    assert breaker.state is CircuitState.OPEN
    return breaker


def elsewhere(function: Any, *args: Any) -> Any:
    """Run in another context, as another task or thread would."""
    return copy_context().run(function, *args)


def test_a_new_breaker_has_the_contracts_defaults(clock: ManualClock) -> None:
    breaker = breaker_of(clock)
    assert breaker.model_dump() == {
        "proxy_id": "p1",
        "state": CircuitBreakerState.CLOSED,
        "failure_count": 0,
        "failure_window": breaker.failure_window,
        "failure_threshold": 5,
        "window_duration": 60.0,
        "timeout_duration": 30.0,
        "next_test_time": None,
        "last_state_change": clock.wall(),
    }
    assert not breaker.failure_window
    assert CircuitBreakerState is CircuitState


def test_a_breaker_dumps_to_json_types(clock: ManualClock) -> None:
    dumped = opened(clock, failure_threshold=1).model_dump(mode="json")
    assert dumped["state"] == "open"
    assert dumped["failure_window"] == [clock.wall().timestamp()]
    assert datetime.fromisoformat(dumped["last_state_change"]) == clock.wall()


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("failure_threshold", 0), ("failure_threshold", 1.5), ("window_duration", 0), ("window_duration", -1),
        ("timeout_duration", 0), ("timeout_duration", float("inf")), ("proxy_id", ""), ("proxy_id", 7),
    ],
)  # fmt: skip
def test_an_impossible_value_is_refused_with_field_and_value(field: str, value: Any) -> None:
    with pytest.raises(PolicyError, match=f"CircuitBreaker.{field} must be .*got {value!r}; "):
        CircuitBreaker(**{"proxy_id": "p1", field: value})


def test_it_opens_at_the_threshold_within_the_window(clock: ManualClock) -> None:
    breaker = breaker_of(clock, failure_threshold=3)
    for _ in range(2):
        breaker.record_failure()
        assert breaker.state is CircuitState.CLOSED
    breaker.record_failure()
    assert breaker.state is CircuitState.OPEN
    assert not breaker.should_attempt_request()


def test_a_failure_exactly_one_window_old_still_counts(clock: ManualClock) -> None:
    breaker = breaker_of(clock, failure_threshold=2)
    breaker.record_failure()
    clock.advance(60)
    breaker.record_failure()
    assert breaker.state is CircuitState.OPEN


def test_reading_the_failure_count_prunes_it(clock: ManualClock) -> None:
    breaker = breaker_of(clock)
    breaker.record_failure()
    clock.advance(10)
    breaker.record_failure()
    assert breaker.failure_count == len(breaker.failure_window) == 2
    clock.advance(51)
    assert breaker.failure_count == len(breaker.failure_window) == 1
    clock.advance(10)
    assert breaker.failure_count == len(breaker.failure_window) == 0


def test_the_failure_window_tells_unix_times(clock: ManualClock) -> None:
    breaker = breaker_of(clock)
    breaker.record_failure()
    first = clock.wall().timestamp()
    clock.advance(5)
    breaker.record_failure()
    assert list(breaker.failure_window) == [first, first + 5]
    clock.advance(56)
    assert list(breaker.failure_window) == [first + 5]
    breaker.failure_window.clear()
    assert breaker.failure_count == 1


def test_success_while_closed_changes_nothing(clock: ManualClock) -> None:
    breaker = breaker_of(clock, failure_threshold=3)
    breaker.record_failure()
    breaker.record_success()
    breaker.record_failure()
    assert breaker.failure_count == 2


def test_failures_while_open_change_nothing(clock: ManualClock) -> None:
    breaker = opened(clock)
    due = breaker.next_test_time
    clock.advance(20)
    for _ in range(50):
        breaker.record_failure()
    assert (breaker.failure_count, breaker.next_test_time) == (5, due)


def test_the_next_test_time_is_a_unix_time(clock: ManualClock) -> None:
    breaker = opened(clock, timeout_duration=30)
    assert breaker.next_test_time == clock.wall().timestamp() + 30
    assert breaker.last_state_change == clock.wall()
    assert breaker.last_state_change.tzinfo is UTC


def test_at_the_test_time_one_caller_is_the_probe_and_the_rest_are_refused(clock: ManualClock) -> None:
    breaker = opened(clock)
    clock.advance(29.9)
    assert not breaker.should_attempt_request()
    clock.advance(0.1)
    assert breaker.should_attempt_request()
    assert breaker.state is CircuitState.HALF_OPEN
    assert not any(elsewhere(breaker.should_attempt_request) for _ in range(10))


def test_a_good_probe_closes_and_empties_the_window(clock: ManualClock) -> None:
    breaker = opened(clock)
    clock.advance(30)
    assert breaker.should_attempt_request()
    breaker.record_success()
    assert breaker.state is CircuitState.CLOSED
    assert (breaker.failure_count, breaker.next_test_time) == (0, None)
    assert breaker.last_state_change == clock.wall()


def test_a_bad_probe_reopens_for_the_full_time(clock: ManualClock) -> None:
    breaker = opened(clock)
    clock.advance(40)
    assert breaker.should_attempt_request()
    breaker.record_failure()
    assert breaker.state is CircuitState.OPEN
    assert breaker.next_test_time == clock.wall().timestamp() + 30


def test_a_probe_that_is_never_reported_gives_way_after_the_timeout(clock: ManualClock) -> None:
    breaker = opened(clock)
    clock.advance(30)
    assert elsewhere(breaker.should_attempt_request)
    clock.advance(29)
    assert not breaker.should_attempt_request()
    clock.advance(1)
    assert breaker.should_attempt_request()


def test_a_released_probe_passes_its_turn_on_at_once(clock: ManualClock) -> None:
    breaker = opened(clock)
    clock.advance(30)
    assert breaker.should_attempt_request()
    breaker.release()
    assert elsewhere(breaker.should_attempt_request)
    breaker.release()  # holds nothing any more
    assert not elsewhere(breaker.should_attempt_request)


def test_a_stale_success_does_not_close_a_half_open_breaker(clock: ManualClock) -> None:
    breaker = breaker_of(clock)
    slow = copy_context()
    assert slow.run(breaker.should_attempt_request)
    for _ in range(5):
        breaker.record_failure()
    clock.advance(30)
    assert breaker.should_attempt_request()
    slow.run(breaker.record_success)
    assert breaker.state is CircuitState.HALF_OPEN


def test_a_stale_result_stays_stale_after_a_refusal(clock: ManualClock) -> None:
    breaker = breaker_of(clock)
    slow = copy_context()
    assert slow.run(breaker.should_attempt_request)
    for _ in range(5):
        breaker.record_failure()
    assert not slow.run(breaker.should_attempt_request)
    clock.advance(30)
    assert breaker.should_attempt_request()
    slow.run(breaker.record_success)  # of the request that went out before the breaker opened
    assert breaker.state is CircuitState.HALF_OPEN


def test_a_stale_failure_does_not_reopen_a_breaker_that_recovered(clock: ManualClock) -> None:
    breaker = breaker_of(clock, failure_threshold=1)
    slow = copy_context()
    assert slow.run(breaker.should_attempt_request)
    breaker.record_failure()
    clock.advance(30)
    assert breaker.should_attempt_request()
    breaker.record_success()
    slow.run(breaker.record_failure)
    assert breaker.state is CircuitState.CLOSED
    assert breaker.failure_count == 0


def test_a_bare_result_settles_the_outstanding_probe(clock: ManualClock) -> None:
    breaker = opened(clock)
    clock.advance(30)
    prober = copy_context()
    assert prober.run(breaker.should_attempt_request)
    breaker.record_success()
    assert breaker.state is CircuitState.CLOSED
    prober.run(breaker.record_failure)  # settled already
    assert breaker.failure_count == 0


def test_a_bare_result_is_ignored_while_open_even_when_due(clock: ManualClock) -> None:
    breaker = opened(clock)
    clock.advance(31)
    breaker.record_success()
    assert breaker.state is CircuitState.OPEN


def test_a_permit_is_used_up_by_the_first_report(clock: ManualClock) -> None:
    breaker = breaker_of(clock, failure_threshold=3)
    assert breaker.should_attempt_request()
    for _ in range(3):
        breaker.record_failure()
    assert breaker.state is CircuitState.OPEN


def test_after_its_report_a_caller_has_no_permit_any_more(clock: ManualClock) -> None:
    breaker = breaker_of(clock, failure_threshold=1)
    assert breaker.should_attempt_request()
    breaker.record_failure()
    clock.advance(30)
    assert elsewhere(breaker.should_attempt_request)
    breaker.record_success()  # without a check, so it settles the probe that is out
    assert breaker.state is CircuitState.CLOSED


def test_two_breakers_do_not_share_their_permits(clock: ManualClock) -> None:
    one, other = opened(clock), opened(clock)
    clock.advance(30)
    assert one.should_attempt_request()
    assert other.should_attempt_request()
    one.record_success()
    assert (one.state, other.state) == (CircuitState.CLOSED, CircuitState.HALF_OPEN)


async def test_each_task_reports_for_its_own_check(clock: ManualClock) -> None:
    breaker = breaker_of(clock, failure_threshold=2)
    opened_meanwhile = asyncio.Event()

    async def slow() -> None:
        assert breaker.should_attempt_request()
        await opened_meanwhile.wait()
        breaker.record_success()

    task = asyncio.create_task(slow())
    await asyncio.sleep(0)
    breaker.record_failure()
    breaker.record_failure()
    clock.advance(30)
    assert breaker.should_attempt_request()
    opened_meanwhile.set()
    await task
    assert breaker.state is CircuitState.HALF_OPEN
    await asyncio.to_thread(breaker.record_success)  # the check of this task, reported by its worker thread
    assert breaker.state is CircuitState.CLOSED


@pytest.mark.parametrize("state", ["closed", "open", "half_open", "isolated"])
def test_reset_closes_from_any_state(clock: ManualClock, state: str) -> None:
    breaker = breaker_of(clock) if state == "closed" else opened(clock)
    if state == "half_open":
        clock.advance(30)
        assert breaker.should_attempt_request()
    if state == "isolated":
        breaker.circuit.command("isolate")
        assert breaker.next_test_time is None
    breaker.reset()
    assert breaker.state is CircuitState.CLOSED
    assert (breaker.failure_count, breaker.next_test_time) == (0, None)
    assert breaker.should_attempt_request()


def test_resetting_a_closed_breaker_is_no_state_change(clock: ManualClock) -> None:
    breaker = breaker_of(clock)
    breaker.record_failure()
    made = clock.wall()
    clock.advance(5)
    breaker.reset()
    assert (breaker.last_state_change, breaker.failure_count) == (made, 0)


def test_every_transition_is_told_once_and_in_order(clock: ManualClock) -> None:
    hub, heard = Hub(clock=clock), []
    hub.register(lambda event: heard.append(event))
    breaker = CircuitBreaker("p1", failure_threshold=2, clock=clock, telemetry=hub)
    breaker.record_failure()
    breaker.record_failure()
    clock.advance(30)
    breaker.should_attempt_request()
    breaker.record_failure()
    clock.advance(30)
    breaker.should_attempt_request()
    breaker.record_success()
    assert all(isinstance(event, CircuitStateChanged) and event.name == "p1" for event in heard)
    assert [(event.from_state, event.to_state) for event in heard] == [
        ("closed", "open"),
        ("open", "half_open"),
        ("half_open", "open"),
        ("open", "half_open"),
        ("half_open", "closed"),
    ]
    assert heard[0].failure_count == 2


def test_a_step_of_the_wall_clock_does_not_hold_the_breaker_open() -> None:
    clock = StepClock()
    breaker = opened(clock)
    clock.step = -timedelta(hours=1)
    clock.advance(30)
    assert breaker.should_attempt_request()


def test_the_last_change_keeps_the_time_of_day_it_had() -> None:
    clock = StepClock()
    breaker = opened(clock)
    changed = breaker.last_state_change
    clock.step = timedelta(hours=1)
    assert breaker.last_state_change == changed


def test_a_snapshot_restores_the_remaining_open_time(clock: ManualClock) -> None:
    breaker = opened(clock)
    clock.advance(10)
    kept = breaker.snapshot()
    clock.advance(5)
    again = breaker_of(clock)
    assert again.restore(kept)
    assert again.state is CircuitState.OPEN
    clock.advance(14.9)
    assert not again.should_attempt_request()
    clock.advance(0.1)
    assert again.should_attempt_request()


def test_a_half_open_snapshot_comes_back_open_and_due(clock: ManualClock) -> None:
    breaker = opened(clock)
    clock.advance(30)
    breaker.should_attempt_request()
    again = breaker_of(clock)
    assert again.restore(breaker.snapshot())
    assert again.state is CircuitState.OPEN
    assert again.should_attempt_request()


def test_restored_open_time_is_cut_to_the_timeout(clock: ManualClock) -> None:
    kept = opened(clock, timeout_duration=3600).snapshot()
    again = breaker_of(clock)
    assert again.restore(kept)
    assert again.next_test_time == clock.wall().timestamp() + 30


def test_a_snapshot_from_the_future_counts_as_fresh() -> None:
    clock = StepClock()
    kept = opened(clock).snapshot()
    clock.step = -timedelta(hours=5)
    again = breaker_of(clock)
    assert again.restore(kept)
    assert again.next_test_time == clock.wall().timestamp() + 30


def test_an_old_or_broken_snapshot_is_ignored(clock: ManualClock) -> None:
    kept = opened(clock).snapshot()
    clock.advance(91)
    again = breaker_of(clock)
    assert not again.restore(kept)
    assert not again.restore({})
    assert not again.restore({**kept, "saved_at": "yesterday"})
    assert not again.restore({**kept, "saved_at": clock.wall().isoformat(), "state": "ajar"})
    assert again.state is CircuitState.CLOSED


def test_a_door_over_other_rules_is_refused(clock: ManualClock) -> None:
    circuit = StampedCircuit("p1", Breaker(consecutive(3)), clock, Hub(clock=clock))
    with pytest.raises(PolicyError, match="one count"):
        CircuitBreaker.over(circuit)


def test_of_many_threads_exactly_one_is_the_probe(clock: ManualClock) -> None:
    breaker = opened(clock)
    clock.advance(30)
    start, answers = threading.Barrier(8), []

    def ask() -> None:
        start.wait()
        answers.extend([breaker.should_attempt_request() for _ in range(50)])

    threads = [threading.Thread(target=ask) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert answers.count(True) == 1


def test_failures_of_many_threads_are_all_counted(clock: ManualClock) -> None:
    breaker = breaker_of(clock, failure_threshold=1000)
    threads = [threading.Thread(target=lambda: [breaker.record_failure() for _ in range(100)]) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert breaker.failure_count == 800


@given(
    steps=st.lists(
        st.tuples(st.integers(0, 2), st.sampled_from(["ask", "good", "bad", "wait", "long_wait"])), max_size=80
    )
)
def test_in_any_history_there_is_at_most_one_probe_at_a_time(steps: list[tuple[int, str]]) -> None:
    clock = ManualClock()
    breaker = breaker_of(clock, failure_threshold=2, window_duration=20, timeout_duration=10)
    callers = [copy_context() for _ in range(3)]
    probes: dict[int, float] = {}
    for who, step in steps:
        if step == "ask":
            was_closed = breaker.state is CircuitState.CLOSED
            if callers[who].run(breaker.should_attempt_request) and not was_closed:
                probes[who] = clock.monotonic() + 10
                assert sum(end > clock.monotonic() for end in probes.values()) <= 1
        elif step in ("good", "bad"):
            callers[who].run(breaker.record_success if step == "good" else breaker.record_failure)
            probes.pop(who, None)
            if breaker.state is not CircuitState.HALF_OPEN:
                probes.clear()
        else:
            clock.advance(3 if step == "wait" else 10)
        assert (breaker.next_test_time is None) == (breaker.state is CircuitState.CLOSED)
