"""Result cache: notes 2.12."""

from __future__ import annotations

import asyncio
import threading
from functools import partial
from typing import Any

import pytest

from holdfast.core.outcome import Outcome, OutcomeKind
from holdfast.errors import PolicyError
from holdfast.guard.cache import Cache, CacheStrategy, Entries
from holdfast.guard.fallback import Fallback
from holdfast.guard.guard import Guard
from holdfast.guard.rate_limit import RateLimit
from holdfast.machine.retry import Retry
from holdfast.telemetry.events import AttemptCompleted, CallCompleted
from holdfast.telemetry.hub import Hub


@pytest.fixture
def path() -> str:
    """A guard with a Cache is never fused."""
    return "fused"


def entries_of(guard: Guard) -> Entries:
    found = guard.plan.first(CacheStrategy)
    assert found is not None
    return found.entries


def test_a_known_success_is_answered_without_a_call(colour: Any, guard_of: Any) -> None:
    guard, fn = guard_of(Cache(ttl=60)), colour.fn(lambda key: f"value of {key}")
    first, second = colour.run(guard, fn, "a"), colour.run(guard, fn, "a")
    assert (first.value, second.value, fn.calls) == ("value of a", "value of a", 1)
    assert "cached" not in first.metadata
    assert (second.kind, second.metadata, second.attempts) == (OutcomeKind.SUCCESS, {"cached": True}, 0)


def test_none_is_a_value_that_is_cached(colour: Any, guard_of: Any) -> None:
    guard, fn = guard_of(Cache(ttl=60)), colour.fn([None])
    assert [colour.run(guard, fn).value for _ in range(2)] == [None, None]
    assert fn.calls == 1


def test_other_arguments_are_another_call(colour: Any, guard_of: Any) -> None:
    guard, fn = guard_of(Cache(ttl=60)), colour.fn(lambda *args, **kwargs: (args, kwargs))
    for args, kwargs in [((1,), {}), ((2,), {}), ((1,), {"a": 1}), ((1,), {"a": 1, "b": 2}), ((1,), {"b": 2, "a": 1})]:
        assert colour.run(guard, fn, *args, **kwargs).value == (args, kwargs)
    assert fn.calls == 4


def test_another_function_is_another_call(colour: Any, guard_of: Any) -> None:
    guard = guard_of(Cache(ttl=60))
    assert colour.run(guard, colour.fn(["users"]), 1).value == "users"
    assert colour.run(guard, colour.fn(["orders"]), 1).value == "orders"


def test_an_entry_leaves_when_its_time_is_over_and_a_hit_does_not_prolong_it(
    colour: Any, clock: Any, guard_of: Any
) -> None:
    guard, fn = guard_of(Cache(ttl=60)), colour.fn(["old", "new"])
    colour.run(guard, fn)
    for seconds in (30.0, 29.0):
        clock.advance(seconds)
        assert colour.run(guard, fn).value == "old"
    clock.advance(1.0)
    assert colour.run(guard, fn).value == "new"


def test_the_time_counts_from_the_end_of_the_call(colour: Any, clock: Any, guard_of: Any) -> None:
    def body() -> Any:
        yield colour.sleep(clock, 50)
        return "value"

    guard, fn = guard_of(Cache(ttl=60)), colour.fn(body)
    colour.run(guard, fn)
    clock.advance(59)
    colour.run(guard, fn)
    assert fn.calls == 1


@pytest.mark.parametrize("kind", [kind for kind in OutcomeKind if kind is not OutcomeKind.SUCCESS])
def test_only_successes_are_stored(colour: Any, guard_of: Any, kind: OutcomeKind) -> None:
    guard = guard_of(Cache(ttl=60), result_classifier=lambda value: kind if value == "bad" else None)
    fn = colour.fn(["bad", "good", "never"])
    assert colour.run(guard, fn).kind is kind
    assert [colour.run(guard, fn).value for _ in range(2)] == ["good", "good"]
    assert fn.calls == 2


def test_a_refusal_is_not_stored_and_a_hit_needs_no_admission(colour: Any, clock: Any, guard_of: Any) -> None:
    guard, fn = guard_of(Cache(ttl=600), RateLimit(0.01, burst=1)), colour.fn(lambda key: key)
    assert colour.run(guard, fn, "a").is_success
    assert colour.run(guard, fn, "b").kind is OutcomeKind.REJECTED
    assert colour.run(guard, fn, "a").metadata["cached"]
    clock.advance(100)
    assert colour.run(guard, fn, "b").is_success


def test_a_fallback_s_value_is_not_stored(colour: Any, guard_of: Any) -> None:
    guard, fn = guard_of(Cache(ttl=60), Fallback(value="substitute")), colour.fn([OSError("down"), "real"])
    assert [colour.run(guard, fn).value for _ in range(2)] == ["substitute", "real"]


def test_a_success_after_retries_is_stored(colour: Any, guard_of: Any) -> None:
    guard, fn = guard_of(Cache(ttl=60), Retry(attempts=2, base=0)), colour.fn([OSError("down"), "value"])
    assert [colour.run(guard, fn).value for _ in range(2)] == ["value", "value"]
    assert fn.calls == 2


def test_the_least_recently_used_entry_leaves_first(colour: Any, guard_of: Any) -> None:
    guard, fn = guard_of(Cache(ttl=60, max_entries=2)), colour.fn(lambda key: key)
    for key in "abac":  # b is now the oldest
        colour.run(guard, fn, key)
    assert (fn.calls, len(entries_of(guard))) == (3, 2)
    colour.run(guard, fn, "a")
    assert fn.calls == 3
    colour.run(guard, fn, "b")
    assert fn.calls == 4


def test_arguments_that_cannot_be_hashed_are_not_cached(colour: Any, guard_of: Any) -> None:
    guard, fn = guard_of(Cache(ttl=60)), colour.fn(lambda items: len(items))
    assert [colour.run(guard, fn, [1, 2]).value for _ in range(2)] == [2, 2]
    assert (fn.calls, len(entries_of(guard))) == (2, 0)


def test_a_key_of_one_s_own_takes_the_arguments(colour: Any, guard_of: Any) -> None:
    guard = guard_of(Cache(ttl=60, key=lambda items, **_: tuple(items)))
    fn = colour.fn(lambda items, trace: trace)
    assert [colour.run(guard, fn, [1], trace=trace).value for trace in ("t1", "t2")] == ["t1", "t1"]


def test_a_key_of_none_means_that_the_call_is_not_cached(colour: Any, guard_of: Any) -> None:
    guard = guard_of(Cache(ttl=60, key=lambda fresh: None if fresh else "k"))
    fn = colour.fn(lambda fresh: None)
    for fresh in (False, False, True, True):
        colour.run(guard, fn, fresh)
    assert fn.calls == 3


def test_a_key_keeps_functions_apart_and_finds_closures_again(guard_of: Any) -> None:
    guard = guard_of(Cache(ttl=60, key=lambda *args: "k"))

    def user_of(number: int) -> str:
        return guard.call(lambda: f"user {number}")

    def order_of(number: int) -> str:
        return guard.call(lambda: f"order {number}")

    assert [user_of(1), user_of(2), order_of(3)] == ["user 1", "user 1", "order 3"]


def test_a_partial_counts_as_its_function_under_a_key(guard_of: Any) -> None:
    def load(number: int) -> int:
        return number

    guard = guard_of(Cache(ttl=60, key=lambda: "k"))
    assert [guard.call(partial(load, 1)), guard.call(partial(load, 2))] == [1, 1]


def test_a_callable_object_counts_as_its_class_under_a_key(guard_of: Any) -> None:
    class Load:
        def __init__(self, number: int) -> None:
            self.number = number

        def __call__(self) -> int:
            return self.number

    guard = guard_of(Cache(ttl=60, key=lambda: "k"))
    assert [guard.call(Load(1)), guard.call(Load(2)), guard.call(lambda: 3)] == [1, 1, 3]


@pytest.mark.parametrize("key", [lambda: 1 / 0, list])
def test_a_key_that_fails_is_logged_and_the_call_is_not_cached(
    colour: Any, guard_of: Any, caplog: Any, key: Any
) -> None:
    guard, fn = guard_of(Cache(ttl=60, key=key)), colour.fn(["value"])
    assert [colour.run(guard, fn).value for _ in range(2)] == ["value", "value"]
    assert fn.calls == 2
    assert "callback" in caplog.text


def test_a_success_is_stored_once(clock: Any) -> None:
    entries = Entries(60.0, 10)
    entries.store("k", "first", None, 0.0)
    entries.store("k", "second", None, 30.0)
    found = entries.find("k", 59.9)
    assert found is not None
    assert found.value == "first"
    assert entries.find("k", 60.0) is None
    entries.store("k", "second", None, 60.0)
    assert entries.find("k", 60.0) is not None


def test_a_hit_is_a_completed_call_without_attempts(colour: Any, guard_of: Any, recorder: Any) -> None:
    guard, fn = guard_of(Cache(ttl=60)), colour.fn(["value"])
    colour.run(guard, fn)
    guard.telemetry.register(recorder)
    colour.run(guard, fn)
    assert [event.attempts for event in recorder.of(CallCompleted)] == [0]
    assert recorder.of(AttemptCompleted) == []


def test_a_reload_keeps_the_entries_under_the_new_limits(colour: Any, clock: Any, guard_of: Any) -> None:
    guard, fn = guard_of(Cache(ttl=60)), colour.fn(lambda key: key)
    for key in "abc":
        colour.run(guard, fn, key)
    clock.advance(20)
    guard.replace(Cache(ttl=30, max_entries=2))
    assert colour.run(guard, fn, "c").metadata["cached"]
    assert len(entries_of(guard)) == 2
    clock.advance(10)
    colour.run(guard, fn, "c")
    assert fn.calls == 4


def test_entries_can_be_cleared(colour: Any, guard_of: Any) -> None:
    guard, fn = guard_of(Cache(ttl=60)), colour.fn(["old", "new"])
    colour.run(guard, fn)
    entries_of(guard).clear()
    assert colour.run(guard, fn).value == "new"


def test_a_decorated_method_caches_per_instance(guard_of: Any) -> None:
    guard = guard_of(Cache(ttl=60))

    class Shop:
        def __init__(self, name: str) -> None:
            self.name = name
            self.calls = 0

        @guard
        def price(self, item: str) -> str:
            self.calls += 1
            return f"{item} at {self.name}"

    one, two = Shop("one"), Shop("two")
    assert [shop.price("x") for shop in (one, two, one)] == ["x at one", "x at two", "x at one"]
    assert (one.calls, two.calls) == (1, 1)


def test_threads_and_tasks_share_one_bounded_cache() -> None:
    guard = Guard("x", Cache(ttl=60, max_entries=8), telemetry=Hub())
    wrong: list[Any] = []

    def load(key: int) -> int:
        return key * 10

    def check(key: int, outcome: Outcome[int]) -> None:
        if outcome.value != key * 10:
            wrong.append((key, outcome))

    def in_thread(offset: int) -> None:
        for step in range(500):
            key = (step * 7 + offset) % 20
            check(key, guard.run(load, key))

    async def in_tasks() -> None:
        async def one(key: int) -> None:
            check(key, await guard.arun(load, key))

        await asyncio.gather(*(one(step % 20) for step in range(500)))

    threads = [threading.Thread(target=in_thread, args=(offset,)) for offset in range(3)]
    threads.append(threading.Thread(target=lambda: asyncio.run(in_tasks())))
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert wrong == []
    assert len(entries_of(guard)) == 8


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"ttl": 0}, "Cache.ttl must be seconds above 0, got 0"),
        ({"ttl": True}, "Cache.ttl"),
        ({"ttl": "1"}, "Cache.ttl"),
        ({"ttl": 1, "max_entries": 0}, "Cache.max_entries"),
        ({"ttl": 1, "max_entries": 1.5}, "Cache.max_entries"),
        ({"ttl": 1, "key": "id"}, "Cache.key"),
    ],
)
def test_an_impossible_cache_is_refused_when_it_is_built(options: dict[str, Any], message: str) -> None:
    with pytest.raises(PolicyError, match=message):
        Cache(**options)


def test_a_cache_describes_itself() -> None:
    assert CacheStrategy(Cache(ttl=60)).describe() == "cache: 60 s, at most 1024 entries"
