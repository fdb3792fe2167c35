"""Functions, exceptions and arguments that look odd are guarded like any other."""

from __future__ import annotations

import asyncio
import copy
import functools
import pickle
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any
from unittest.mock import AsyncMock, MagicMock, Mock

import pytest

from holdfast import (
    Breaker,
    Bulkhead,
    Deadline,
    Fallback,
    GuardTimeout,
    OutcomeKind,
    PolicyError,
    RateLimit,
    Retry,
    Timeout,
    count,
)

K = OutcomeKind
DOWN = OSError("down")


def full(guard_of, **options):
    """A guard whose generated code uses every name that it can use."""
    return guard_of(
        Retry(attempts=2, base=0, budget=0.2), Bulkhead(1), Timeout(total=5), Breaker(count(100, window=60)), **options
    )


# Names that the generated code might use as well.


NAMES = ["type", "len", "IndexError", "BaseException", "ValueError", "hasattr", "fn", "guarded", "self", "plan"]


@pytest.mark.parametrize("name", NAMES)
def test_a_parameter_may_have_the_name_of_a_builtin(colour, guard_of, name):
    made: dict[str, Any] = {}
    prefix = "async " if colour.is_async else ""
    exec(f"{prefix}def shadow({name}, other=1):\n    return {name}, other", made)
    guard = full(guard_of)
    guarded = guard(made["shadow"])
    assert colour.plain(guarded, "x") == ("x", 1)
    assert colour.plain(guarded, **{name: "y", "other": 2}) == ("y", 2)
    [bulkhead] = [strategy for strategy in guard.plan.strategies if strategy.kind == "bulkhead"]
    assert bulkhead.slots.in_use == 0


@pytest.mark.parametrize("name", NAMES)
def test_a_failing_function_with_such_a_parameter_fails_as_itself(colour, guard_of, name):
    made: dict[str, Any] = {"DOWN": DOWN}
    prefix = "async " if colour.is_async else ""
    exec(f"{prefix}def shadow({name}):\n    raise DOWN", made)
    guard = full(guard_of)
    with pytest.raises(OSError, match="down"):
        colour.plain(guard(made["shadow"]), "x")
    [bulkhead] = [strategy for strategy in guard.plan.strategies if strategy.kind == "bulkhead"]
    assert bulkhead.slots.in_use == 0


def test_a_full_bulkhead_is_noticed_by_a_function_with_a_parameter_called_index_error(colour, guard_of):
    guard = guard_of(Bulkhead(1, queue=0))
    fn = colour.fn(["up"])
    gate = colour.gate()

    def hold():
        yield gate.wait()

    holder = colour.enter(guard, colour.fn(hold))
    made: dict[str, Any] = {}
    exec(f"{'async ' if colour.is_async else ''}def shadow(IndexError):\n    return IndexError", made)
    with pytest.raises(Exception, match="1 running and 0 waiting"):
        colour.plain(guard(made["shadow"]), "x")
    gate.open()
    holder.outcome()
    assert colour.run(guard, fn).value == "up"


# Exceptions that do not let themselves be changed.


@dataclass(frozen=True)
class Frozen(Exception):
    code: int


def test_a_frozen_exception_is_retried_and_raised_as_itself(colour, guard_of):
    guard, error = guard_of(Retry(attempts=3, base=0)), Frozen(1)
    fn = colour.fn([error])
    with pytest.raises(Frozen) as caught:
        colour.call(guard, fn)
    assert (caught.value, fn.calls) == (error, 3)


def test_the_outcome_of_a_frozen_exception_holds_it(colour, guard_of):
    fn = colour.fn([Frozen(1)])
    outcome = colour.run(guard_of(Retry(attempts=3, base=0)), fn)
    assert (outcome.error, outcome.attempts, fn.calls) == (Frozen(1), 3, 3)


def test_a_frozen_exception_in_a_block_is_raised_as_itself(guard_of):
    guard, tried = guard_of(Retry(attempts=3, base=0)), []
    with pytest.raises(Frozen):
        for attempt in guard.attempts():
            with attempt:
                tried.append(1)
                raise Frozen(1)
    assert len(tried) == 3


# Callables that are no functions.


def finite(work: Callable[[], Any]) -> Any:
    """Every attribute of a mock is a mock again; the traceback of such a recursion would take minutes to print."""
    try:
        return work()
    except RecursionError:
        pass
    return pytest.fail("followed a mock's attributes without end", pytrace=False)


@pytest.mark.parametrize("kind", [Mock, MagicMock])
def test_a_mock_is_a_sync_function(guard_of, kind):
    guard, fn = full(guard_of), kind(return_value=3)
    assert finite(lambda: guard(fn)(1, key=2)) == 3
    assert finite(lambda: guard.call(fn, 1, key=2)) == 3
    assert fn.call_args_list == [((1,), {"key": 2})] * 2


def test_an_async_mock_is_an_async_function(guard_of):
    guard, fn = full(guard_of), AsyncMock(return_value=3)
    assert asyncio.run(finite(lambda: guard(fn)(1))) == 3
    assert asyncio.run(guard.acall(fn, 1)) == 3
    assert fn.await_count == 2


class Unhashable:
    """Equal to everything, and so without a hash."""

    def __eq__(self, other: object) -> bool:
        return True

    def __call__(self, x: int) -> int:
        return x


def test_a_callable_without_a_hash_survives_a_reload(guard_of):
    guard = guard_of(Retry(attempts=1))
    guarded = guard(Unhashable())
    assert guarded(1) == 1
    guard.replace(Retry(attempts=2))
    assert guarded(2) == 2


def test_callables_that_are_equal_to_each_other_are_not_mixed_up_by_a_reload(guard_of):
    class Equal:
        def __init__(self, value: int) -> None:
            self.value = value

        def __eq__(self, other: object) -> bool:
            return True

        def __hash__(self) -> int:
            return 1

        def __call__(self) -> int:
            return self.value

    guard = guard_of(Retry(attempts=1))
    first, second = guard(Equal(1)), guard(Equal(2))
    guard.replace(Retry(attempts=2))
    assert (first(), second()) == (1, 2)


@pytest.mark.parametrize(
    ("fn", "args", "result"),
    [
        (int, ("12",), 12),
        (len, ([1],), 1),
        (str.upper, ("a",), "A"),
        ({}.get, (1, 2), 2),
        (functools.partial(int, base=16), ("ff",), 255),
        (functools.lru_cache(lambda x: x), (1,), 1),
    ],
    ids=["class", "builtin", "method", "bound", "partial", "cached"],
)
def test_builtins_and_their_like_are_guarded(guard_of, fn, args, result):
    guard = full(guard_of)
    assert guard(fn)(*args) == result
    assert guard.call(fn, *args) == result


def test_an_object_with_an_attribute_called_func_is_not_taken_for_a_partial(guard_of):
    class Job:
        async def func(self) -> None: ...

        def __call__(self) -> str:
            return "done"

    assert guard_of()(Job())() == "done"


# Functions of the user that fail, or return what they were given.


def test_a_fallback_that_unwraps_its_outcome_does_not_make_an_error_its_own_cause(colour, guard_of):
    error = OSError("down")
    outcome = colour.run(guard_of(Fallback(lambda failed: failed.unwrap())), colour.fn([error]))
    assert outcome.error is error
    assert error.__cause__ is None


def test_a_classifier_that_raises_what_it_was_given_does_not_make_an_error_its_own_context(colour, guard_of):
    def classify(error: Exception) -> OutcomeKind:
        raise error

    error = OSError("down")
    outcome = colour.run(guard_of(Retry(attempts=1), classify=classify), colour.fn([error]))
    assert outcome.error is error
    assert error.__context__ is not error


@pytest.mark.parametrize(("make", "value"), [(list, []), (dict, {}), (int, 0), (str, "")])
def test_a_class_as_fallback_makes_an_empty_value(colour, guard_of, make, value):
    assert colour.call(guard_of(Fallback(make)), colour.fn([DOWN])) == value


def test_a_rate_limit_key_without_a_hash_is_a_terminal_failure(colour, guard_of):
    outcome = colour.run(guard_of(RateLimit(10, by=lambda ctx: [])), colour.fn(["up"]))
    assert outcome.kind is K.TERMINAL_FAILURE
    assert isinstance(outcome.error, TypeError)


@pytest.mark.parametrize("kind", [StopIteration, StopAsyncIteration])
def test_what_ends_an_iteration_cannot_pass_through(guard_of, kind):
    with pytest.raises(PolicyError, match=kind.__name__):
        guard_of(passthrough=kind)
    with pytest.raises(PolicyError, match=kind.__name__):
        guard_of(passthrough=(KeyError, kind))


# Copies.


def test_a_deadline_can_be_copied(clock):
    limit = Deadline.after(5, clock)
    assert copy.copy(limit) == copy.deepcopy(limit) == limit
    assert copy.deepcopy({"limit": limit})["limit"].remaining() == 5


def test_a_pickled_deadline_takes_the_time_that_is_left(clock):
    pickled = pickle.dumps(Deadline.after(5000, clock))
    clock.advance(60)  # another process has another clock
    assert 4990 < pickle.loads(pickled).remaining() <= 5000
    assert pickle.loads(pickle.dumps(Deadline.never())) == Deadline.never()


def test_a_guard_refuses_to_be_copied(guard_of):
    guard = guard_of(Retry(attempts=1))
    for make in (copy.copy, copy.deepcopy):
        with pytest.raises(TypeError, match="cannot be copied"):
            make(guard)
    assert guard.call(lambda: "up") == "up"


def test_a_timeout_shows_its_fields_and_survives_pickling():
    error = GuardTimeout("pay", 1.5, "ran out")
    assert repr(error).startswith("GuardTimeout('pay', 1.5")
    again = pickle.loads(pickle.dumps(error))
    assert (again.guard, again.limit, again.detail) == ("pay", 1.5, "ran out")


def test_the_fields_of_a_timeout_are_not_taken_for_those_of_an_os_error():
    error = GuardTimeout("pay", 1.5, "ran out")
    assert (error.errno, error.strerror, error.filename) == (None, None, None)
    assert repr(error) == "GuardTimeout('pay', 1.5, 'ran out')"
