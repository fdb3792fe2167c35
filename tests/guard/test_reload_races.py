"""Reloads that meet each other, calls, overrides and shared breakers."""

from __future__ import annotations

import asyncio
import sys
import threading
from collections.abc import Callable, Iterator

import pytest

from holdfast import (
    Breaker,
    Bulkhead,
    CircuitBreakerStrategy,
    CircuitState,
    Guard,
    Hub,
    OutcomeKind,
    Retry,
    Timeout,
    count,
    ratio,
)
from holdfast.testing.clock import ManualClock
from tests.guard.colours import PATIENCE_S

K = OutcomeKind
DOWN = OSError("down")
OPEN, CLOSED = CircuitState.OPEN, CircuitState.CLOSED


def fail() -> None:
    raise DOWN


def policy_of(guard: Guard, kind: type) -> object:
    [found] = [policy for policy in guard.policies if type(policy) is kind]
    return found


@pytest.fixture
def impatient() -> Iterator[None]:
    """Threads take turns as often as possible."""
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    yield
    sys.setswitchinterval(before)


def at_once(*actions: Callable[[], object]) -> None:
    """Run the actions in threads that begin together; what one of them raises fails the test."""
    barrier, failures = threading.Barrier(len(actions)), []

    def run(action: Callable[[], object]) -> None:
        barrier.wait(PATIENCE_S)
        try:
            action()
        except BaseException as error:
            failures.append(error)

    threads = [threading.Thread(target=run, args=(action,), daemon=True) for action in actions]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(PATIENCE_S)
    assert not failures


# Two reloads at once.


class Meeting:
    """A policy whose strategies are made while another reload is on its way."""

    kind = "custom"
    passes_context = True

    def __init__(self, meanwhile: Callable[[], object]) -> None:
        self._meanwhile = meanwhile
        self._met = False

    def strategies(self, setting):
        if not self._met:
            self._met = True
            self._meanwhile()
        return [self]

    async def execute(self, nxt, ctx):
        return await nxt(ctx)


def test_a_reload_that_begins_during_another_one_is_not_lost(guard_of):
    guard = guard_of(Retry(attempts=1))
    other = threading.Thread(target=guard.replace, args=(Retry(attempts=5),), daemon=True)

    def meanwhile() -> None:
        other.start()
        other.join(0.1)  # ends here when nothing keeps the two apart

    guard.replace(Meeting(meanwhile))
    other.join(PATIENCE_S)
    assert policy_of(guard, Retry).attempts == 5
    assert policy_of(guard, Meeting)


def test_concurrent_reloads_of_different_policies_lose_none(impatient, clock):
    for _ in range(100):
        guard = Guard("x", Retry(attempts=1), clock=clock, telemetry=Hub(clock=clock))
        at_once(lambda g=guard: g.replace(Retry(attempts=5)), lambda g=guard: g.replace(Timeout(total=3)))
        assert policy_of(guard, Retry).attempts == 5
        assert policy_of(guard, Timeout).total == 3


def test_calls_during_reloads_keep_the_bulkhead_balanced(impatient, clock):
    guard = Guard("x", Bulkhead(2, queue=9), clock=clock, telemetry=Hub(clock=clock))
    guarded = guard(lambda: "up")

    def reload() -> None:
        for limit in range(60):
            guard.replace(Bulkhead(2 + limit % 3, queue=9))

    def call() -> None:
        for _ in range(200):
            assert guarded() == "up"

    at_once(reload, call, call)
    [bulkhead] = guard.plan.strategies
    assert (bulkhead.slots.in_use, len(bulkhead.slots.waiting), bulkhead.slots.debt) == (0, 0, 0)
    assert bulkhead.slots.limit == 2 + 59 % 3


def test_a_rehearsal_that_ends_during_reloads_leaves_their_policies(impatient, clock):
    for _ in range(50):
        guard = Guard("x", Retry(attempts=4, base=0), clock=clock, telemetry=Hub(clock=clock))

        def rehearse(guard: Guard = guard) -> None:
            with guard.testing(attempts=2):
                guard.run(fail)

        at_once(rehearse, lambda g=guard: g.replace(Timeout(total=3)))
        assert policy_of(guard, Timeout).total == 3


# Overrides.


def test_an_override_does_not_make_the_guard_forget_the_ids_of_its_policies(guard_of):
    guard = guard_of(Breaker(count(1, window=60), id="b"), Retry(attempts=1))
    guard.run(fail)
    with guard.override(Retry(attempts=2)):
        pass
    guard.replace(Breaker(count(2, window=60), id="b"))
    assert guard.circuit.state is OPEN


def test_an_override_decorates_an_async_function_until_it_has_been_awaited(guard_of):
    guard, tried = guard_of(Retry(attempts=3, base=0)), []

    async def fail_async() -> None:
        tried.append(1)
        raise DOWN

    @guard.override(Retry(attempts=1))
    async def handle() -> None:
        await guard.arun(fail_async)

    asyncio.run(handle())
    assert len(tried) == 1
    asyncio.run(handle())
    assert len(tried) == 2
    asyncio.run(guard.arun(fail_async))
    assert len(tried) == 5


# A breaker that several guards share on purpose.


def test_a_new_breaker_for_one_guard_leaves_the_one_it_shared_with_others_alone(path):
    clock = ManualClock()
    shared = CircuitBreakerStrategy("family", policy=Breaker(count(50, window=60)))
    one, other = (
        Guard(name, shared, clock=clock, telemetry=Hub(clock=clock), fused=path == "fused") for name in ("one", "other")
    )
    one.replace(Breaker(ratio(0.5, min_calls=10, window=60)))
    for _ in range(40):
        other.run(int)
    for _ in range(49):
        other.run(fail)
    assert (one.circuit is other.circuit, other.circuit.state, one.circuit.state) == (False, CLOSED, CLOSED)
    other.run(fail)
    assert (other.circuit.state, one.circuit.state) == (OPEN, CLOSED)
