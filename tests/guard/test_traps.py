"""The traps of the originals (and of others), each shown not to be ours: one test per trap that a guard can show."""

from __future__ import annotations

import asyncio
import threading
import traceback

import pytest

from holdfast import (
    Breaker,
    Bulkhead,
    CallCompleted,
    CallInterrupted,
    CircuitState,
    CircuitStateChanged,
    Fallback,
    Guard,
    Hub,
    InMemoryMetrics,
    LoadShed,
    OutcomeKind,
    PolicyError,
    ResilienceContext,
    Retry,
    RetryScheduled,
    Timeout,
    TypedKey,
    consecutive,
    count,
    current_context,
    deadline,
    remaining_time,
    use_context,
)
from holdfast.core.backoff import delay
from holdfast.testing.clock import ManualClock
from tests.guard.colours import Interrupted, Slow

K = OutcomeKind
DOWN = OSError("down")
CLOSED, OPEN, HALF_OPEN = CircuitState.CLOSED, CircuitState.OPEN, CircuitState.HALF_OPEN


def tripped(colour, guard_of, *more, **options):
    guard = guard_of(Breaker(consecutive(1)), *more, **options)
    colour.run(guard, colour.fn([DOWN]))
    assert guard.circuit.state is OPEN
    return guard


# Seed 003.


def test_003_half_open_does_not_admit_everyone(colour, guard_of, clock):
    guard, gate = tripped(colour, guard_of), colour.gate()
    clock.advance(30)

    def body():
        yield gate.wait()

    probe, other = colour.enter(guard, colour.fn(body)), colour.fn(["up"])
    colour.until(lambda: guard.circuit.state is HALF_OPEN)
    assert {colour.run(guard, other).kind for _ in range(10)} == {K.REJECTED}
    assert other.calls == 0
    gate.open()
    probe.outcome()


def test_003_asking_whether_a_call_may_go_does_not_leak_a_permit(colour, guard_of, clock):
    guard = tripped(colour, guard_of)
    clock.advance(30)
    for _ in range(5):
        assert guard.circuit.look("peek") is None
    assert colour.run(guard, colour.fn(["up"])).value == "up"
    assert guard.circuit.state is CLOSED


def test_003_an_error_that_does_not_count_does_not_leak_the_probes_permit(colour, guard_of, clock):
    guard = tripped(colour, guard_of, passthrough=(KeyError,))
    clock.advance(30)
    for step in (Interrupted(), KeyError("mine")):
        with pytest.raises(type(step)):
            colour.run(guard, colour.fn([step]))
    assert colour.run(guard, colour.fn(["up"])).value == "up"


def test_003_jitter_comes_before_the_cap_and_large_numbers_do_not_overflow():
    for k in (0, 10, 1000, 100_000):
        for jitter in ("none", "full", "equal", "proportional", "decorrelated", "spread"):
            assert 0 <= delay("exponential", 1.0, 10.0, 30.0, jitter, k, lambda: 0.999, 29.0) <= 30


def test_003_decorrelated_jitter_never_goes_below_the_base():
    assert delay("exponential", 2.0, 2.0, 30.0, "decorrelated", 0, lambda: 0.0, 0.001) >= 2.0


def test_003_a_wall_clock_that_steps_back_does_not_hold_the_breaker_open(colour, guard_of):
    class Wild(ManualClock):
        stepped = 0.0

        def wall(self):
            from datetime import timedelta

            return super().wall() - timedelta(seconds=self.stepped)

    clock = Wild()
    guard = tripped(colour, guard_of, clock=clock)
    clock.stepped = 3600.0
    clock.advance(30)
    assert colour.run(guard, colour.fn(["up"])).value == "up"


def test_003_a_policy_cannot_be_changed_under_a_running_call(colour, guard_of):
    policy = Retry(attempts=3, base=0)
    with pytest.raises(AttributeError):
        policy.attempts = 1  # type: ignore[misc]
    guard = guard_of(policy)
    fn = colour.fn([lambda: guard.replace(Retry(attempts=1)) or (_ for _ in ()).throw(DOWN), DOWN, "up"])
    assert colour.run(guard, fn).value == "up"


def test_003_the_failure_count_is_never_stale(colour, guard_of, clock):
    guard = guard_of(Breaker(count(5, window=60)))
    colour.run(guard, colour.fn([DOWN]))
    clock.advance(61)
    assert guard.circuit.look("failure_count") == 0


def test_003_failures_do_not_grow_while_open(colour, guard_of):
    guard, gate = guard_of(Breaker(consecutive(1))), colour.gate()

    def late():
        yield gate.wait()
        raise DOWN

    running = [colour.enter(guard, colour.fn(late)) for _ in range(3)]
    colour.run(guard, colour.fn([DOWN]))
    gate.open()
    for handle in running:
        handle.outcome()
    assert guard.circuit.look("failure_count") == 1


def test_003_a_stale_success_does_not_close_a_half_open_breaker(colour, guard_of, clock):
    guard, old, new = guard_of(Breaker(consecutive(1))), colour.gate(), colour.gate()

    def waiting_for(gate):
        def body():
            yield gate.wait()
            return "up"

        return colour.fn(body)

    stale = colour.enter(guard, waiting_for(old))
    colour.run(guard, colour.fn([DOWN]))
    clock.advance(30)
    probe = colour.enter(guard, waiting_for(new))
    colour.until(lambda: guard.circuit.state is HALF_OPEN)
    old.open()
    stale.outcome()
    assert guard.circuit.state is HALF_OPEN
    new.open()
    probe.outcome()
    assert guard.circuit.state is CLOSED


def test_003_every_transition_is_recorded_once_also_open_to_half_open(colour, guard_of, clock, recorder):
    guard = guard_of(Breaker(consecutive(1)))
    guard.telemetry.register(recorder)
    colour.run(guard, colour.fn([DOWN]))
    clock.advance(30)
    colour.run(guard, colour.fn(["up"]))
    assert [(event.from_state, event.to_state) for event in recorder.of(CircuitStateChanged)] == [
        ("closed", "open"), ("open", "half_open"), ("half_open", "closed"),
    ]  # fmt: skip


def test_003_the_breaker_is_asked_inside_the_retry_loop(colour, guard_of):
    fn = colour.fn([DOWN])
    outcome = colour.run(guard_of(Retry(attempts=9, base=0), Breaker(consecutive(2))), fn)
    assert (outcome.reason, fn.calls) == ("circuit_open", 2)


def test_003_the_total_time_bounds_the_running_attempt_too(colour, guard_of, clock):
    outcome = colour.run(guard_of(Timeout(total=5), Retry(attempts=3, base=0)), colour.fn([Slow(clock, 60, "up")]))
    assert outcome.kind is K.TIMEOUT
    assert clock.monotonic() == (1005 if colour.is_async else 1060)


def test_003_a_timeout_is_recorded_as_a_timeout(colour, guard_of):
    metrics, guard = InMemoryMetrics(), guard_of()
    guard.telemetry.register(metrics)
    colour.run(guard, colour.fn([TimeoutError("slow")]))
    assert metrics.snapshot()["counts_by_operation_outcome"] == {"x/timeout": 1}


# Seed 004.


def test_004_interactive_priority_zero_is_a_value_and_not_absent():
    priority, ctx = TypedKey[int]("priority"), ResilienceContext("op")
    ctx.set(priority, 0)
    assert ctx.get(priority, 1) == 0
    assert ctx.derive_child().get(priority, 1) == 0


def test_004_a_nested_deadline_does_not_extend_its_parent(colour, guard_of, clock):
    with deadline(5, clock=clock), deadline(60, clock=clock):
        assert colour.call(guard_of(Timeout(total=60)), colour.fn(lambda: remaining_time())) == 5


def test_004_a_timeout_is_visible_in_the_context(colour, guard_of):
    ctx = colour.call(guard_of(Timeout(total=5)), colour.fn(lambda: current_context()))
    assert ctx.deadline.remaining() == 5


def test_004_a_deadline_alone_cuts_a_running_call(colour, guard_of, clock):
    with deadline(5, clock=clock):
        assert colour.run(guard_of(), colour.fn([Slow(clock, 60, "up")])).kind is K.TIMEOUT


def test_004_a_slow_sync_function_under_a_timeout_is_no_success(guard_of, clock):
    outcome = guard_of(Timeout(total=5)).run(lambda: clock.sleep(60))
    assert outcome.kind is K.TIMEOUT
    assert outcome.late


def test_004_a_refusal_neither_closes_a_half_open_breaker_nor_resets_the_streak(colour, guard_of, clock):
    refusing = tripped(colour, guard_of, name="inner")
    refusing.circuit.command("isolate")

    def body():
        value = yield colour.inner_call(refusing, colour.fn(["up"]))
        return value

    guard = guard_of(Breaker(consecutive(2)))
    colour.run(guard, colour.fn([DOWN]))
    assert colour.run(guard, colour.fn(body)).kind is K.REJECTED
    assert guard.circuit.look("failure_count") == 1
    colour.run(guard, colour.fn([DOWN]))
    clock.advance(30)
    colour.run(guard, colour.fn(body))
    assert guard.circuit.state is HALF_OPEN


def test_004_terminal_probes_do_not_keep_the_breaker_half_open_for_ever(colour, guard_of, clock):
    guard = tripped(colour, guard_of)
    clock.advance(30)
    colour.run(guard, colour.fn([TypeError("bug")]))
    assert guard.circuit.state is CLOSED


def test_004_a_late_failure_does_not_prolong_the_open_time(colour, guard_of, clock):
    guard, gate = guard_of(Breaker(consecutive(1))), colour.gate()

    def late():
        yield gate.wait()
        raise DOWN

    running = colour.enter(guard, colour.fn(late))
    colour.run(guard, colour.fn([DOWN]))
    due = guard.circuit.next_test
    clock.advance(20)
    gate.open()
    running.outcome()
    assert guard.circuit.next_test == due


def test_004_a_queue_of_zero_does_not_refuse_when_idle(colour, guard_of):
    assert colour.run(guard_of(Bulkhead(1, queue=0)), colour.fn(["up"])).value == "up"


def test_004_waiters_are_served_in_order(colour, guard_of):
    guard, gate, order = guard_of(Bulkhead(1, queue=9)), colour.gate(), []
    [bulkhead] = guard.plan.strategies

    def hold():
        yield gate.wait()

    handles = [colour.enter(guard, colour.fn(hold))]
    colour.until(lambda: bulkhead.slots.in_use == 1)
    for name in range(4):
        handles.append(colour.start(guard, colour.fn([lambda name=name: order.append(name)])))
        colour.until(lambda name=name: len(bulkhead.slots.waiting) == name + 1)
    gate.open()
    for handle in handles:
        handle.outcome()
    assert order == [0, 1, 2, 3]


def test_004_state_is_not_bound_to_one_loop(guard_of, clock):
    guard = guard_of(Bulkhead(2, queue=2), Breaker(consecutive(3)), Retry(attempts=2, base=0), Timeout(total=60))

    async def down() -> None:
        raise DOWN

    def loop() -> None:
        outcomes.append(asyncio.run(guard.arun(down)).kind)

    outcomes: list[K] = []
    for _ in range(2):
        thread = threading.Thread(target=loop)
        thread.start()
        thread.join(10)
    assert outcomes == [K.TRANSIENT_FAILURE, K.REJECTED]
    assert guard.run(lambda: "up").reason == "circuit_open"


def test_004_an_async_fallback_is_awaited_and_sees_the_outcome(guard_of):
    async def spare(outcome):
        await asyncio.sleep(0)
        return outcome.detail

    async def down():
        raise DOWN

    assert asyncio.run(guard_of(Fallback(spare)).acall(down)) == "OSError: down"


def test_004_a_passthrough_timeout_error_is_not_swallowed(colour, guard_of):
    class Mine(TimeoutError):
        pass

    guard = guard_of(Timeout(total=5), Retry(attempts=3, base=0), Fallback(value="spare"), passthrough=(Mine,))
    with pytest.raises(Mine):
        colour.run(guard, colour.fn([Mine("through")]))


def test_004_a_classifier_that_says_success_or_raises_does_not_escape_the_call(colour, guard_of):
    def broken(_):
        raise RuntimeError("classifier bug")

    assert colour.run(guard_of(classify=lambda _: K.SUCCESS), colour.fn([DOWN])).kind is K.SUCCESS
    assert colour.run(guard_of(classify=broken), colour.fn([DOWN])).kind is K.TERMINAL_FAILURE
    assert colour.run(guard_of(result_classifier=broken), colour.fn(["up"])).kind is K.TERMINAL_FAILURE


def test_004_a_partial_result_has_a_value_and_a_timeout_an_error_with_its_cause(colour, guard_of, clock):
    partial = colour.run(guard_of(result_classifier=lambda _: K.PARTIAL), colour.fn([[1]]))
    assert partial.value == [1]
    timeout = colour.run(
        guard_of(Timeout(total=5), Retry(attempts=3, base=0)), colour.fn([DOWN, Slow(clock, 60, "up")])
    )
    assert isinstance(timeout.error, TimeoutError)
    assert timeout.error.__cause__ is DOWN


def test_004_cancelled_passed_through_retried_and_refused_calls_are_told(colour, guard_of, clock, recorder):
    guard = guard_of(Retry(attempts=2, base=0), passthrough=(KeyError,))
    guard.telemetry.register(recorder)
    for step in (Interrupted(), KeyError("mine")):
        with pytest.raises(type(step)):
            colour.run(guard, colour.fn([step]))
    colour.run(guard, colour.fn([DOWN, "up"]))
    with deadline(-1, clock=clock):
        colour.run(guard, colour.fn(["up"]))
    assert [event.reason for event in recorder.of(CallInterrupted)] == ["interrupted", "passthrough"]
    assert len(recorder.of(RetryScheduled)) == 1
    assert [event.outcome for event in recorder.of(CallCompleted)] == [K.SUCCESS, K.REJECTED]
    assert [event.reason for event in recorder.of(LoadShed)] == ["deadline_expired"]


def test_004_the_call_count_does_not_stop_at_the_ring_size(colour, guard_of):
    metrics, guard = InMemoryMetrics(ring_size=10), guard_of()
    guard.telemetry.register(metrics)
    fn = colour.fn(["up"])
    for _ in range(25):
        colour.run(guard, fn)
    assert metrics.snapshot()["call_count"] == 25


def test_004_stacked_retries_do_not_multiply(colour, guard_of):
    with pytest.raises(PolicyError):
        guard_of(Retry(), Retry())
    fn, inner = colour.fn([DOWN]), guard_of(Retry(attempts=3, base=0), name="inner")

    def body():
        value = yield colour.inner_call(inner, fn)
        return value

    colour.run(guard_of(Retry(attempts=3, base=0), name="outer"), colour.fn(body))
    assert fn.calls == 3


def test_004_two_guards_of_the_same_policies_share_no_state(colour, guard_of):
    policies = (Breaker(consecutive(1)), Bulkhead(1))
    one, two = guard_of(*policies, name="one"), guard_of(*policies, name="two")
    colour.run(one, colour.fn([DOWN]))
    assert colour.run(two, colour.fn(["up"])).value == "up"


def test_004_programming_errors_are_not_retried(colour, guard_of):
    for bug in (TypeError, AttributeError, NameError, AssertionError, NotImplementedError, ImportError):
        fn = colour.fn([bug("bug")])
        colour.run(guard_of(Retry(attempts=3, base=0)), fn)
        assert fn.calls == 1


def test_004_unwrapping_does_not_grow_the_traceback(colour, guard_of):
    outcome = colour.run(guard_of(Retry(attempts=2, base=0)), colour.fn([OSError("down")]))
    lengths = set()
    for _ in range(4):
        with pytest.raises(OSError, match="down") as caught:
            outcome.unwrap()
        lengths.add(len(traceback.extract_tb(caught.value.__traceback__)))
    assert len(lengths) == 1


def test_004_keys_do_not_collide_by_name(colour, guard_of):
    ctx = ResilienceContext("op")
    ctx.set(TypedKey[int]("id"), 7)
    with use_context(ctx):
        seen = colour.call(guard_of(Timeout(total=5)), colour.fn(lambda: current_context()))
    assert seen.get(TypedKey[int]("id")) == 7
    assert seen.get(TypedKey[str]("id")) is None


def test_004_a_sync_call_makes_no_event_loop(guard_of, monkeypatch):
    monkeypatch.setattr(asyncio, "new_event_loop", lambda: pytest.fail("a loop was made"))
    guard = guard_of(Retry(attempts=3, base=0), Breaker(consecutive(9)), Timeout(total=5), Bulkhead(1, queue=1))
    assert guard.call(lambda: "up") == "up"
    assert guard.run(lambda: 1 / 0).attempts == 3


# Others.


def test_polly_a_cancelled_probe_does_not_close_the_breaker(guard_of, clock):
    guard = guard_of(Breaker(consecutive(1)))

    async def main() -> None:
        async def down() -> None:
            raise DOWN

        await guard.arun(down)
        clock.advance(30)
        probe = asyncio.ensure_future(guard.arun(asyncio.sleep, 60))
        await asyncio.sleep(0)
        probe.cancel()
        with pytest.raises(asyncio.CancelledError):
            await probe

    asyncio.run(main())
    assert guard.circuit.state is HALF_OPEN


def test_pybreaker_callers_of_one_breaker_run_at_the_same_time():
    guard, together = Guard("x", Breaker(), telemetry=Hub()), threading.Barrier(4, timeout=10)
    threads = [threading.Thread(target=guard.call, args=(together.wait,)) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(10)
    assert not together.broken


def test_purgatory_half_open_is_limited(colour, guard_of, clock):
    guard, gate = tripped(colour, guard_of), colour.gate()
    clock.advance(30)

    def body():
        yield gate.wait()

    probe = colour.enter(guard, colour.fn(body))
    colour.until(lambda: guard.circuit.state is HALF_OPEN)
    assert colour.run(guard, colour.fn(["up"])).reason == "circuit_open"
    gate.open()
    probe.outcome()


def test_hyx_three_attempts_are_three_calls(colour, guard_of):
    fn = colour.fn([DOWN])
    colour.run(guard_of(Retry(attempts=3, base=0)), fn)
    assert fn.calls == 3
