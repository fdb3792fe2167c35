"""The throttle: notes 2.10."""

from __future__ import annotations

import asyncio
import threading
from typing import Any

import pytest

from holdfast.core.outcome import Evidence, OutcomeKind, Verdict
from holdfast.errors import Throttled
from holdfast.guard.guard import Guard
from holdfast.guard.throttle import LiveThrottle, Throttle, ThrottleFigures, ThrottleStrategy, build
from holdfast.guard.timeout import Timeout
from holdfast.machine.breaker import Breaker
from holdfast.machine.retry import Retry
from holdfast.machine.trip import consecutive
from holdfast.telemetry.events import LoadShed
from holdfast.telemetry.hub import Hub
from tests.guard.colours import Interrupted


@pytest.fixture
def path() -> str:
    """A guard with a Throttle is never fused."""
    return "fused"


def throttle(**options: Any) -> ThrottleStrategy:
    return ThrottleStrategy("x", policy=Throttle(**{"min_executions": 4, **options}))


def counts(strategy: ThrottleStrategy, clock: Any) -> tuple[int, int]:
    return strategy.throttle.figures(clock.monotonic())[1:]


def test_nothing_is_shed_while_calls_succeed(colour: Any, clock: Any, guard_of: Any) -> None:
    strategy = throttle()
    guard, fn = guard_of(strategy, rng=lambda: 0.0), colour.fn(["value"])
    assert all(colour.run(guard, fn).is_success for _ in range(20))
    assert counts(strategy, clock) == (20, 20)


def test_calls_are_shed_by_chance_once_too_many_have_failed(colour: Any, guard_of: Any, recorder: Any) -> None:
    draws = iter([0.79, 0.8])
    strategy = throttle()
    guard, fn = guard_of(strategy, rng=lambda: next(draws)), colour.fn([OSError("down")])
    guard.telemetry.register(recorder)
    for _ in range(4):  # below the minimum nothing is drawn
        assert colour.run(guard, fn).kind is OutcomeKind.TRANSIENT_FAILURE
    shed = colour.run(guard, fn)  # 4 / (4 + 1) = 0.8
    assert (shed.kind, shed.reason, shed.retry_after, fn.calls) == (OutcomeKind.REJECTED, "throttled", None, 4)
    assert isinstance(shed.error, Throttled)
    assert "shedding 80%: 0 of 4 calls succeeded in the last 60 s" in str(shed.error)
    assert shed.metadata["figures"] == ThrottleFigures(0.8, 4, 0)
    assert [(event.name, event.reason) for event in recorder.of(LoadShed)] == [("x", "throttled")]
    assert colour.run(guard, fn).kind is OutcomeKind.TRANSIENT_FAILURE
    assert fn.calls == 5


def test_a_shed_call_is_not_counted(colour: Any, clock: Any, guard_of: Any) -> None:
    strategy = throttle()
    guard, fn = guard_of(strategy, rng=lambda: 0.0), colour.fn([OSError("down")])
    for _ in range(10):
        colour.run(guard, fn)
    assert counts(strategy, clock) == (4, 0)


def test_the_share_never_exceeds_the_cap_so_that_recovery_can_show(colour: Any, guard_of: Any) -> None:
    guard, fn = guard_of(throttle(cap=0.5)), colour.fn([OSError("down")])  # the die always shows 0.5
    for _ in range(20):
        colour.run(guard, fn)
    assert fn.calls == 20


def test_failures_are_forgotten_after_the_window(colour: Any, clock: Any, guard_of: Any) -> None:
    guard, fn = guard_of(throttle(window=10), rng=lambda: 0.0), colour.fn([OSError("down")] * 4 + ["up"])
    for _ in range(5):
        colour.run(guard, fn)
    assert fn.calls == 4
    clock.advance(10)
    assert colour.run(guard, fn).value == "up"


@pytest.mark.parametrize(
    ("verdict", "counted"),
    [
        (OutcomeKind.SUCCESS, (1, 1)),
        (OutcomeKind.PARTIAL, (1, 1)),
        (OutcomeKind.TIMEOUT, (1, 0)),
        (OutcomeKind.TRANSIENT_FAILURE, (1, 0)),
        (OutcomeKind.TERMINAL_FAILURE, (0, 0)),
        (OutcomeKind.REJECTED, (0, 0)),
        (Verdict(OutcomeKind.TRANSIENT_FAILURE, evidence=Evidence.SUCCESS), (1, 1)),
        (Verdict(OutcomeKind.TRANSIENT_FAILURE, evidence=Evidence.NEUTRAL), (0, 0)),
    ],
    ids=str,
)
def test_outcomes_are_counted_by_their_evidence(
    colour: Any, clock: Any, guard_of: Any, verdict: Any, counted: tuple[int, int]
) -> None:
    strategy = throttle()
    colour.run(guard_of(strategy, result_classifier=lambda _: verdict), colour.fn(["value"]))
    assert counts(strategy, clock) == counted


def test_interruptions_and_passthrough_exceptions_are_not_counted(colour: Any, clock: Any, guard_of: Any) -> None:
    strategy = throttle()
    guard = guard_of(strategy, passthrough=(KeyError,))
    for error in (Interrupted, KeyError):
        with pytest.raises(error):
            colour.run(guard, colour.fn([error()]))
    assert counts(strategy, clock) == (0, 0)


def test_a_call_cut_by_our_own_time_limit_counts_as_failed(clock: Any, guard_of: Any) -> None:
    strategy = throttle()

    async def body() -> None:
        await clock.asleep(60)

    outcome = asyncio.run(guard_of(Timeout(total=5), strategy).arun(body))
    assert outcome.kind is OutcomeKind.TIMEOUT
    assert counts(strategy, clock) == (1, 0)


def test_the_throttle_sees_calls_and_not_attempts(colour: Any, clock: Any, guard_of: Any) -> None:
    strategy = throttle()
    colour.run(guard_of(strategy, Retry(attempts=3, base=0)), colour.fn([OSError("1"), OSError("2"), "third"]))
    assert counts(strategy, clock) == (1, 1)


def test_a_refusal_further_in_is_not_counted(colour: Any, clock: Any, guard_of: Any) -> None:
    strategy = throttle()
    guard, fn = guard_of(strategy, Breaker(consecutive(1))), colour.fn([OSError("down")])
    for _ in range(3):
        colour.run(guard, fn)
    assert counts(strategy, clock) == (1, 0)


def test_a_reload_keeps_the_counts(colour: Any, clock: Any, guard_of: Any) -> None:
    guard, fn = guard_of(throttle(), rng=lambda: 0.3), colour.fn([OSError("down")])
    for _ in range(4):
        colour.run(guard, fn)
    assert colour.run(guard, fn).reason == "throttled"
    changed = throttle(cap=0.2)
    guard.replace(changed)
    assert counts(changed, clock) == (4, 0)
    assert colour.run(guard, fn).reason is None


def test_a_window_of_another_length_starts_anew() -> None:
    live = LiveThrottle(Throttle(min_executions=1))
    live.record(0.0, success=False)
    live.change(Throttle(min_executions=1, window=30))
    assert live.figures(0.0) == ThrottleFigures(0.0, 0, 0)


def test_threads_and_tasks_count_together_exactly() -> None:
    strategy = throttle(min_executions=1_000_000)
    guard = Guard("x", strategy, telemetry=Hub())

    def body(number: int) -> int:
        if number % 2:
            raise OSError("odd")
        return number

    def in_thread() -> None:
        for number in range(500):
            guard.run(body, number)

    async def in_tasks() -> None:
        await asyncio.gather(*(guard.arun(body, number) for number in range(500)))

    threads = [threading.Thread(target=in_thread) for _ in range(3)]
    threads.append(threading.Thread(target=lambda: asyncio.run(in_tasks())))
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    _, executions, successes = strategy.throttle.figures(guard._setting.clock.monotonic())
    assert (executions, successes) == (2000, 1000)


def test_the_policy_builds_one_strategy_named_like_the_guard(guard_of: Any) -> None:
    [made] = build(Throttle(), guard_of()._setting)
    assert (made.name, made.kind) == ("x", "throttle")
    assert made.describe() == "throttle 'x': below 90% successes in 60 s, at most 90% shed"
