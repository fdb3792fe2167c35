"""Other policies for one block, and new ones for everybody, with the live state kept."""

from __future__ import annotations

import asyncio
import threading

import pytest

from holdfast import (
    Breaker,
    Bulkhead,
    CircuitState,
    Fallback,
    InMemoryMetrics,
    OutcomeKind,
    PolicyError,
    RateLimit,
    Reloaded,
    ReloadFailed,
    Retry,
    Timeout,
    consecutive,
    count,
    deadline,
    remaining_time,
)
from tests.guard.colours import Slow

K = OutcomeKind
DOWN = OSError("down")


def slots_of(guard):
    [bulkhead] = [strategy for strategy in guard.plan.strategies if strategy.kind == "bulkhead"]
    return bulkhead.slots


# Override.


def test_an_overridden_policy_holds_inside_the_block_only(colour, guard_of):
    guard = guard_of(Retry(attempts=3, base=0))
    with guard.override(Retry(attempts=1)):
        assert colour.run(guard, colour.fn([DOWN])).attempts == 1
    assert colour.run(guard, colour.fn([DOWN])).attempts == 3


def test_a_decorated_function_heeds_an_override(colour, guard_of):
    guard = guard_of(Retry(attempts=3, base=0))
    fn = guard.outcome(colour.fn([DOWN]))
    assert colour.plain(fn).attempts == 3
    with guard.override(Retry(attempts=2, base=0)):
        assert colour.plain(fn).attempts == 2
    assert colour.plain(fn).attempts == 3


def test_an_override_ends_with_an_exception_too(colour, guard_of):
    guard = guard_of(Retry(attempts=3, base=0))
    with pytest.raises(KeyError), guard.override(Retry(attempts=1)):
        raise KeyError
    assert colour.run(guard, colour.fn([DOWN])).attempts == 3


def test_a_policy_may_be_added_by_an_override(colour, guard_of, clock):
    guard = guard_of(Retry(attempts=2, base=0))
    with guard.override(Timeout(total=5), Fallback(value="spare")):
        assert colour.run(guard, colour.fn([Slow(clock, 60, "up")])).value == "spare"
    assert colour.run(guard, colour.fn([DOWN])).error is DOWN


def test_the_inner_override_wins_and_the_outer_one_stays_for_the_rest(colour, guard_of):
    guard = guard_of(Retry(attempts=3, base=0))
    with guard.override(Retry(attempts=2, base=0), Fallback(value="spare")):
        with guard.override(Retry(attempts=5, base=0)):
            outcome = colour.run(guard, colour.fn([DOWN]))
            assert (outcome.attempts, outcome.value) == (5, "spare")
        assert colour.run(guard, colour.fn([DOWN])).attempts == 2


def test_an_override_concerns_its_own_guard_only(colour, guard_of):
    one, two = guard_of(Retry(attempts=2, base=0), name="one"), guard_of(Retry(attempts=3, base=0), name="two")
    with one.override(Retry(attempts=1)):
        assert colour.run(two, colour.fn([DOWN])).attempts == 3
        assert colour.run(one, colour.fn([DOWN])).attempts == 1


def test_an_override_reaches_nested_calls(colour, guard_of):
    outer, inner = guard_of(name="outer"), guard_of(Retry(attempts=3, base=0), name="inner")
    fn = colour.fn([DOWN])

    def body():
        outcome = yield colour.inner(inner, fn)
        return outcome

    with inner.override(Retry(attempts=2, base=0)):
        assert colour.call(outer, colour.fn(body)).attempts == 2


def test_an_override_under_a_deadline_keeps_the_deadline(colour, guard_of, clock):
    guard = guard_of(Retry(attempts=3, base=0))
    with deadline(5, clock=clock), guard.override(Retry(attempts=1)):
        assert colour.call(guard, colour.fn(lambda: remaining_time())) == 5
        assert colour.run(guard, colour.fn([Slow(clock, 60, "up")])).kind is K.TIMEOUT


def test_a_deadline_inside_an_override_keeps_the_override(colour, guard_of, clock):
    guard = guard_of(Retry(attempts=3, base=0))
    with guard.override(Retry(attempts=1)), deadline(5, clock=clock):
        assert colour.run(guard, colour.fn([DOWN])).attempts == 1


def test_live_state_is_shared_with_the_block(colour, guard_of):
    guard = guard_of(Retry(attempts=1), Breaker(consecutive(2)), Bulkhead(3), RateLimit(1, burst=3))
    with guard.override(Retry(attempts=2, base=0)):
        colour.run(guard, colour.fn([DOWN]))
        assert guard.circuit.state is CircuitState.OPEN
    assert colour.run(guard, colour.fn(["up"])).reason == "circuit_open"
    assert colour.run(guard, colour.fn(["up"])).reason == "circuit_open"
    assert colour.run(guard, colour.fn(["up"])).reason == "rate_limited"


@pytest.mark.parametrize("policy", [Breaker(), Bulkhead(3), RateLimit(3)], ids=lambda policy: type(policy).__name__)
def test_a_policy_with_shared_state_cannot_be_overridden_for_one_block(guard_of, policy):
    guard = guard_of(policy)
    with pytest.raises(PolicyError, match=r"shared state.*guard\.replace"), guard.override(policy):
        pytest.fail("was let in")


def test_two_retries_in_one_override_are_refused(guard_of):
    with pytest.raises(PolicyError), guard_of().override(Retry(), Retry(attempts=2)):
        pytest.fail("was let in")


def test_tasks_override_independently(guard_of):
    guard = guard_of(Retry(attempts=9, base=0))

    async def down() -> None:
        await asyncio.sleep(0)
        raise DOWN

    async def call_with(attempts: int) -> int:
        with guard.override(Retry(attempts=attempts, base=0)):
            await asyncio.sleep(0)
            return (await guard.arun(down)).attempts

    async def main() -> list[int]:
        return await asyncio.gather(*(call_with(attempts) for attempts in (1, 2, 3, 4)))

    assert asyncio.run(main()) == [1, 2, 3, 4]


def test_calls_in_an_overridden_block_are_counted(colour, guard_of):
    guard, metrics = guard_of(Retry(attempts=2, base=0)), InMemoryMetrics()
    guard.telemetry.register(metrics)
    with guard.override(Retry(attempts=1)):
        colour.run(guard, colour.fn(["up"]))
    assert metrics.snapshot()["counts_by_operation_outcome"] == {"x/success": 1}


def test_a_replaced_guard_under_an_override_finishes_the_block_with_the_override(colour, guard_of):
    guard = guard_of(Retry(attempts=3, base=0))
    with guard.override(Retry(attempts=2, base=0)):
        guard.replace(Retry(attempts=5, base=0))
        assert colour.run(guard, colour.fn([DOWN])).attempts == 2
    assert colour.run(guard, colour.fn([DOWN])).attempts == 5


# Reload.


def test_new_calls_use_the_new_policy(colour, guard_of):
    guard = guard_of(Retry(attempts=3, base=0))
    guard.replace(Retry(attempts=2, base=0))
    assert colour.run(guard, colour.fn([DOWN])).attempts == 2
    assert guard.policies == (Retry(attempts=2, base=0),)


def test_functions_that_were_decorated_before_use_the_new_policy(colour, guard_of):
    guard = guard_of(Retry(attempts=3, base=0))
    value, outcome = guard(colour.fn(["up"])), guard.outcome(colour.fn([DOWN]))
    assert colour.plain(value) == "up"
    for attempts in (2, 4):
        guard.replace(Retry(attempts=attempts, base=0))
        assert colour.plain(value) == "up"
        assert colour.plain(outcome).attempts == attempts


def test_a_function_decorated_before_raises_its_exception_after_a_reload(colour, guard_of):
    guard = guard_of(Retry(attempts=3, base=0))
    fn = guard(colour.fn([DOWN]))
    guard.replace(Retry(attempts=2, base=0))
    with pytest.raises(OSError, match="down"):
        colour.plain(fn)


def test_the_other_policies_stay(colour, guard_of):
    guard = guard_of(Retry(attempts=3, base=0), Fallback(value="spare"))
    guard.replace(Retry(attempts=2, base=0))
    outcome = colour.run(guard, colour.fn([DOWN]))
    assert (outcome.value, outcome.attempts) == ("spare", 2)


def test_a_policy_may_be_added(colour, guard_of):
    guard = guard_of()
    guard.replace(Retry(attempts=2, base=0), Breaker(consecutive(9)))
    assert colour.run(guard, colour.fn([DOWN])).attempts == 2
    assert guard.circuit.look("failure_count") == 2


def test_a_running_call_finishes_on_the_old_policies(colour, guard_of):
    guard, gate = guard_of(Retry(attempts=3, base=0)), colour.gate()

    def first():
        yield gate.wait()
        raise DOWN

    running = colour.enter(guard, colour.fn([first, DOWN, "up"]))
    guard.replace(Retry(attempts=1))
    gate.open()
    assert running.outcome().value == "up"


def test_an_open_circuit_stays_open(colour, guard_of, clock):
    guard = guard_of(Breaker(consecutive(1), open_for=30))
    colour.run(guard, colour.fn([DOWN]))
    guard.replace(Breaker(consecutive(1), open_for=60))
    clock.advance(10)
    assert colour.run(guard, colour.fn(["up"])).retry_after == 20
    clock.advance(20)
    colour.run(guard, colour.fn([DOWN]))
    assert guard.circuit.next_test == clock.monotonic() + 60


def test_failures_counted_before_count_after_if_the_rules_are_equal(colour, guard_of):
    guard = guard_of(Breaker(count(3)))
    for _ in range(2):
        colour.run(guard, colour.fn([DOWN]))
    guard.replace(Breaker(count(3), open_for=99))
    colour.run(guard, colour.fn([DOWN]))
    assert guard.circuit.state is CircuitState.OPEN


def test_a_circuit_survives_the_reload_of_another_policy(colour, guard_of):
    guard = guard_of(Breaker(consecutive(1)), Retry(attempts=2, base=0))
    colour.run(guard, colour.fn([DOWN]))
    guard.replace(Retry(attempts=5, base=0))
    assert guard.circuit.state is CircuitState.OPEN
    assert colour.run(guard, colour.fn(["up"])).reason == "circuit_open"


def test_a_call_that_began_before_a_reload_settles_on_the_same_circuit(colour, guard_of):
    guard, gate = guard_of(Breaker(consecutive(1))), colour.gate()

    def body():
        yield gate.wait()
        raise DOWN

    running = colour.enter(guard, colour.fn(body))
    guard.replace(Retry(attempts=1))
    gate.open()
    running.outcome()
    assert guard.circuit.state is CircuitState.OPEN


def test_a_circuit_of_another_policy_id_starts_anew(colour, guard_of):
    guard = guard_of(Breaker(consecutive(1), id="one"))
    colour.run(guard, colour.fn([DOWN]))
    guard.replace(Breaker(consecutive(1), id="two"))
    assert guard.circuit.state is CircuitState.CLOSED


def test_slots_in_use_are_still_in_use(colour, guard_of):
    guard, gate = guard_of(Bulkhead(1)), colour.gate()

    def body():
        yield gate.wait()
        return "held"

    holder = colour.enter(guard, colour.fn(body))
    colour.until(lambda: slots_of(guard).in_use == 1)
    guard.replace(Retry(attempts=2, base=0))
    assert colour.run(guard, colour.fn(["up"])).reason == "bulkhead_full"
    guard.replace(Bulkhead(2))
    assert colour.run(guard, colour.fn(["up"])).value == "up"
    guard.replace(Bulkhead(1))
    assert colour.run(guard, colour.fn(["up"])).reason == "bulkhead_full"
    gate.open()
    assert holder.outcome().value == "held"
    assert colour.run(guard, colour.fn(["up"])).value == "up"
    assert slots_of(guard).in_use == 0


def test_tokens_spent_are_still_spent(colour, guard_of):
    guard = guard_of(RateLimit(1, burst=2))
    for _ in range(2):
        colour.run(guard, colour.fn(["up"]))
    guard.replace(Retry(attempts=2))
    assert colour.run(guard, colour.fn(["up"])).reason == "rate_limited"
    guard.replace(RateLimit(1, burst=4))
    assert colour.run(guard, colour.fn(["up"])).reason == "rate_limited"


@pytest.mark.parametrize(
    "policies",
    [("not a policy",), (Retry(), Retry(attempts=2)), (Breaker(), "x")],
    ids=["no policy", "two retries", "mixed"],
)
def test_policies_that_cannot_work_leave_the_old_ones_in_force(colour, guard_of, recorder, policies):
    guard = guard_of(Retry(attempts=3, base=0), Breaker(consecutive(99)))
    guard.telemetry.register(recorder)
    colour.run(guard, colour.fn([DOWN]))
    with pytest.raises(PolicyError):
        guard.replace(*policies)
    assert [type(event) for event in recorder.events if isinstance(event, Reloaded | ReloadFailed)] == [ReloadFailed]
    guard.telemetry.unregister(recorder)
    assert colour.run(guard, colour.fn([DOWN])).attempts == 3
    assert guard.circuit.look("failure_count") == 6


def test_a_reload_is_an_event(guard_of, recorder):
    guard = guard_of(Retry())
    guard.telemetry.register(recorder)
    guard.replace(Retry(attempts=2))
    [event] = recorder.of(Reloaded)
    assert event.operation_key == "x"


def test_a_new_limit_cuts_new_calls(colour, guard_of, clock):
    guard = guard_of(Timeout(total=5))
    guard.replace(Timeout(total=10))
    assert colour.run(guard, colour.fn([Slow(clock, 7, "up")])).value == "up"
    assert colour.run(guard, colour.fn([Slow(clock, 70, "up")])).kind is K.TIMEOUT


def test_reloading_under_load_loses_no_call_and_no_slot(guard_of):
    guard, outcomes, stop = guard_of(Bulkhead(4, queue=100), Retry(attempts=2, base=0)), [], threading.Event()
    fetch = guard.outcome(lambda: "up")

    def caller() -> None:
        while not stop.is_set():
            outcomes.append(fetch().value)

    threads = [threading.Thread(target=caller) for _ in range(3)]
    for thread in threads:
        thread.start()
    for number in range(60):
        guard.replace(Retry(attempts=1 + number % 3, base=0), Bulkhead(2 + number % 3, queue=100))
    stop.set()
    for thread in threads:
        thread.join(10)
    assert set(outcomes) <= {"up"}
    assert slots_of(guard).in_use == 0
    assert slots_of(guard).debt == 0


def test_many_reloads_do_not_pile_up_plans(guard_of):
    import gc

    from holdfast.guard.plan import Plan

    guard = guard_of(Retry(attempts=2, base=0))
    fn = guard(lambda: "up")
    for _ in range(50):
        guard.replace(Retry(attempts=2, base=0))
        fn()
    gc.collect()
    mine = [plan for plan in gc.get_objects() if type(plan) is Plan and plan.owner is guard]
    assert len(mine) <= 3
