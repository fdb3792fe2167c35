"""`guard.testing`: fewer attempts, no backoff, for everybody, until the block ends."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from typing import Any

import pytest

from holdfast import Breaker, Budget, Bulkhead, CircuitOpen, Guard, PolicyError, Retry, RetryScheduled, Timeout
from holdfast.guard.retry import RetryStrategy
from holdfast.machine.trip import consecutive
from holdfast.testing import Flaky, ManualClock, recording
from tests.guard.colours import Colour

GuardOf = Callable[..., Guard]


class Hinted(ConnectionError):
    """A failure that asks to be retried later."""

    retry_after = 7.0


def test_a_tested_guard_makes_one_attempt(colour: Colour, guard_of: GuardOf) -> None:
    guard = guard_of(Retry(attempts=5))
    fn = colour.fn([OSError("down")])
    with guard.testing():
        outcome = colour.run(guard, fn)
    assert (outcome.attempts, fn.calls) == (1, 1)
    assert colour.run(guard, fn).attempts == 5


def test_more_attempts_take_no_time(colour: Colour, guard_of: GuardOf, clock: ManualClock) -> None:
    guard = guard_of(Retry(attempts=5, base=10, jitter="none"))
    fn = colour.fn([OSError("down")])
    with guard.testing(attempts=3):
        outcome = colour.run(guard, fn)
    assert (outcome.attempts, clock.slept) == (3, [])


def test_a_hint_of_the_failure_takes_no_time_either_and_stays_readable(
    colour: Colour, guard_of: GuardOf, clock: ManualClock
) -> None:
    guard = guard_of(Retry(attempts=3))
    fn = colour.fn([Hinted("busy")])
    with guard.testing(attempts=2):
        outcome = colour.run(guard, fn)
    assert (outcome.attempts, outcome.retry_after, clock.slept) == (2, 7.0, [])


def test_a_refusal_after_a_hint_tells_its_own_retry_after(colour: Colour, guard_of: GuardOf) -> None:
    guard = guard_of(Retry(attempts=3), Breaker(consecutive(1), open_for=30))
    with guard.testing(attempts=2):
        outcome = colour.run(guard, colour.fn([Hinted("busy")]))
    assert (outcome.reason, outcome.retry_after) == ("circuit_open", 30.0)


def test_with_wait_the_backoff_takes_its_time(colour: Colour, guard_of: GuardOf, clock: ManualClock) -> None:
    guard = guard_of(Retry(attempts=5, base=10, jitter="none"))
    fn = colour.fn([OSError("down"), Hinted("busy"), OSError("down")])
    with guard.testing(attempts=3, wait=True):
        assert colour.run(guard, fn).attempts == 3
    assert clock.slept == [10, 7.0]


@pytest.mark.parametrize(("own", "cap", "made"), [(2, 5, 2), (None, 3, 3), (4, None, 4)])
def test_attempts_are_capped_and_never_raised(
    colour: Colour, guard_of: GuardOf, own: int | None, cap: int | None, made: int
) -> None:
    guard = guard_of(Retry(attempts=own))
    with guard.testing(attempts=cap):
        assert colour.run(guard, colour.fn([OSError("down")])).attempts == made


def test_functions_decorated_before_and_inside_are_tested(colour: Colour, guard_of: GuardOf) -> None:
    guard = guard_of(Retry(attempts=3, base=0))
    before = colour.fn([OSError("down")])
    decorated = guard(before)
    inside = colour.fn([OSError("down")])
    with guard.testing():
        late = guard(inside)
        for fn in (decorated, late):
            with pytest.raises(OSError, match="down"):
                colour.plain(fn)
        assert (before.calls, inside.calls) == (1, 1)
    for fn in (decorated, late):
        with pytest.raises(OSError, match="down"):
            colour.plain(fn)
    assert (before.calls, inside.calls) == (4, 4)


def test_the_block_form_is_tested_too(guard_of: GuardOf) -> None:
    guard, rounds = guard_of(Retry(attempts=3, base=0)), 0
    with guard.testing(), pytest.raises(OSError, match="down"):
        for attempt in guard.attempts():
            with attempt:
                rounds += 1
                raise OSError("down")
    assert rounds == 1


def test_other_threads_are_tested_too(guard_of: GuardOf) -> None:
    guard = guard_of(Retry(attempts=3, base=0))
    fn, outcomes = Flaky(OSError("down")), []
    with guard.testing():
        thread = threading.Thread(target=lambda: outcomes.append(guard.run(fn)))
        thread.start()
        thread.join()
    assert [outcome.attempts for outcome in outcomes] == [1]


def test_the_circuit_counts_on_through_the_block(colour: Colour, guard_of: GuardOf) -> None:
    guard = guard_of(Retry(attempts=3, base=0), Breaker(consecutive(3)))
    circuit, fn = guard.circuit, colour.fn([OSError("down")])
    with guard.testing():
        colour.run(guard, fn)
        colour.run(guard, fn)
        assert guard.circuit is circuit
    colour.run(guard, fn)
    assert (circuit.state, fn.calls) == ("open", 3)


def test_slots_and_budget_are_shared_with_the_block(guard_of: GuardOf) -> None:
    guard = guard_of(Retry(attempts=3, budget=Budget()), Bulkhead(2))
    own = guard.plan.strategies
    with guard.testing():
        tested = guard.plan.strategies
        assert tested[0] is own[0]
        assert tested[1].budget is own[1].budget is not None
    assert guard.plan.strategies == own


def test_of_nested_blocks_the_inner_one_counts(colour: Colour, guard_of: GuardOf) -> None:
    guard = guard_of(Retry(attempts=5, base=0))
    fn = colour.fn([OSError("down")])
    with guard.testing():
        with guard.testing(attempts=3):
            assert colour.run(guard, fn).attempts == 3
        assert colour.run(guard, fn).attempts == 1
    assert colour.run(guard, fn).attempts == 5


def test_blocks_may_end_in_any_order(guard_of: GuardOf) -> None:
    guard = guard_of(Retry(attempts=5, base=0))
    own, fn = guard.plan, Flaky(OSError("down"))
    decorated = guard.outcome(fn)
    first, second = guard.testing(), guard.testing(attempts=2)
    first.__enter__()
    second.__enter__()
    first.__exit__(None, None, None)
    assert (guard.run(fn).attempts, decorated().attempts) == (2, 2)
    second.__exit__(None, None, None)
    assert guard.plan is own
    assert (guard.run(fn).attempts, decorated().attempts) == (5, 5)


def test_the_guard_is_put_back_when_the_block_fails(guard_of: GuardOf) -> None:
    guard = guard_of(Retry(attempts=5))
    own = guard.plan
    with pytest.raises(ZeroDivisionError), guard.testing():
        raise ZeroDivisionError
    assert guard.plan is own
    assert not own.shut


def test_policies_replaced_inside_stay(colour: Colour, guard_of: GuardOf) -> None:
    guard = guard_of(Retry(attempts=5, base=0), Breaker(consecutive(50)))
    circuit, fn = guard.circuit, colour.fn([OSError("down")])
    with guard.testing(), guard.testing(attempts=2):
        guard.replace(Retry(attempts=4, base=0))
        assert colour.run(guard, fn).attempts == 4
    assert colour.run(guard, fn).attempts == 4
    assert guard.policies == (guard.policies[0], Retry(attempts=4, base=0))
    assert guard.circuit is circuit
    with guard.testing():
        assert colour.run(guard, fn).attempts == 1
    assert colour.run(guard, fn).attempts == 4


def test_the_policies_of_a_tested_guard_are_its_own(guard_of: GuardOf) -> None:
    guard = guard_of(Retry(attempts=5), Timeout(total=9))
    with guard.testing():
        assert guard.policies == (Retry(attempts=5), Timeout(total=9))
        assert guard.describe().max_calls == 1


def test_an_override_of_something_else_keeps_the_cap_and_one_of_the_retry_wins(
    colour: Colour, guard_of: GuardOf
) -> None:
    guard = guard_of(Retry(attempts=5, base=0))
    fn = colour.fn([OSError("down")])
    with guard.testing():
        with guard.override(Timeout(total=9)):
            assert colour.run(guard, fn).attempts == 1
        with guard.override(Retry(attempts=4, base=0)):
            assert colour.run(guard, fn).attempts == 4


def test_a_guard_without_retry_is_left_alone(colour: Colour, guard_of: GuardOf) -> None:
    guard = guard_of(Breaker())
    own = guard.plan
    with guard.testing():
        assert guard.plan is own
        assert colour.run(guard, colour.fn(["ok"])).value == "ok"


def test_a_retry_strategy_shared_with_another_guard_is_tested_in_one_only(guard_of: GuardOf) -> None:
    shared = RetryStrategy(3, 0)
    tested, other = guard_of(shared), guard_of(shared)
    fn = Flaky(OSError("down"))
    with tested.testing():
        assert (tested.run(fn).attempts, other.run(fn).attempts) == (1, 3)


def test_retries_inside_the_block_are_told_without_a_wait(guard_of: GuardOf) -> None:
    guard = guard_of(Retry(attempts=3))
    with guard.testing(attempts=2), recording(hub=guard.telemetry) as recorder:
        guard.run(Flaky(Hinted("busy")))
    assert [event.wait for event in recorder.of(RetryScheduled)] == [0.0]


def test_it_decorates_a_function(guard_of: GuardOf) -> None:
    guard = guard_of(Retry(attempts=3, base=0))

    @guard.testing(attempts=2)
    def check(fn: Any) -> int:
        """Says how many."""
        return guard.run(fn).attempts

    assert [check(Flaky(OSError("down"))) for _ in range(2)] == [2, 2]
    assert guard.run(Flaky(OSError("down"))).attempts == 3
    assert (check.__name__, check.__doc__) == ("check", "Says how many.")


async def test_it_decorates_an_async_function_until_that_has_ended(guard_of: GuardOf) -> None:
    guard = guard_of(Retry(attempts=3, base=0))
    fn = Flaky(OSError("down"))

    @guard.testing(attempts=2)
    async def check() -> int:
        await asyncio.sleep(0)
        return (await guard.arun(fn.async_)).attempts

    assert await check() == 2
    assert (await guard.arun(fn.async_)).attempts == 3


@pytest.mark.parametrize("attempts", [0, -1, True, 1.5, "2"])
def test_an_impossible_number_of_attempts_is_refused_at_once(guard_of: GuardOf, attempts: Any) -> None:
    with pytest.raises(PolicyError, match=r"testing\(attempts=...\) must be at least 1"):
        guard_of(Retry()).testing(attempts=attempts)


def test_threads_that_test_and_use_one_guard_leave_it_as_it_was() -> None:
    guard = Guard("busy", Retry(attempts=3, base=0))
    own, made, decorated = guard.plan, [], guard.outcome(Flaky(OSError("down")))

    def work() -> None:
        for _ in range(50):
            with guard.testing(attempts=2):
                made.append(decorated().attempts)
                made.append(guard.run(Flaky(OSError("down"))).attempts)

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert set(made) == {2}
    assert len(made) == 400
    assert guard.plan is own
    assert (decorated().attempts, own.shut) == (3, False)


def test_an_open_circuit_refuses_in_the_block_as_ever(colour: Colour, guard_of: GuardOf) -> None:
    guard = guard_of(Retry(attempts=3, base=0), Breaker(consecutive(2)))
    fn = colour.fn([OSError("down")])
    with guard.testing(attempts=3), pytest.raises(CircuitOpen) as refused:
        colour.call(guard, fn)
    assert isinstance(refused.value.__cause__, OSError)
    assert fn.calls == 2
