"""Many callers at once: never above the limit, one winner, nothing lost."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import pytest

from holdfast.breakers.repository import CircuitBreakerStateRepository

THREADS = 8


def at_once(fn: Callable[[int], Any], threads: int = THREADS) -> list[Any]:
    """What `fn` gave in so many threads that began together."""
    start, results = threading.Barrier(threads), [None] * threads
    errors: list[BaseException] = []

    def run(number: int) -> None:
        start.wait()
        try:
            results[number] = fn(number)
        except BaseException as error:
            errors.append(error)

    workers = [threading.Thread(target=run, args=(number,)) for number in range(threads)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    if errors:
        raise errors[0]
    return results


@pytest.fixture
def rounds(size: int) -> int:
    return 5 * size


def test_concurrent_creators_all_get_the_same_breaker(breakers, rounds):
    for number in range(rounds):
        made = at_once(lambda _, name=f"api-{number}": breakers.get_or_create(name))
        assert all(one == made[0] for one in made)


def test_half_open_slots_are_never_above_the_limit(breakers, rounds):
    for number in range(rounds):
        name = f"api-{number}"
        breakers.record_failure_with_open_check(name, 1)
        answers = at_once(lambda _, name=name: breakers.try_acquire_half_open_slot(name, 2, 60))
        assert sorted(granted for granted, _, _ in answers) == [False] * 6 + [True] * 2
        assert [answer for answer in answers if answer[1] == "open"] == [(True, "open", "half_open")]
        assert breakers.get_by_service_name(name).half_open_request_count == 2


def test_exactly_one_success_closes(breakers, rounds):
    for number in range(rounds):
        name = f"api-{number}"
        breakers.get_or_create(name)
        breakers.update_state(name, "half_open")
        attempts = at_once(lambda _, name=name: breakers.record_success_with_close_check(name, 3))
        assert sum(attempt.did_close for attempt in attempts) == 1
        assert breakers.get_by_service_name(name).success_count == THREADS - 3


def test_exactly_one_failure_opens(breakers, rounds):
    for number in range(rounds):
        name = f"api-{number}"
        attempts = at_once(lambda _, name=name: breakers.record_failure_with_open_check(name, 5))
        assert sum(attempt.did_open for attempt in attempts) == 1
        assert breakers.get_by_service_name(name).failure_count == THREADS


def test_no_count_is_lost(breakers, size):
    each = 10 * size

    def count(number: int) -> None:
        for _ in range(each):
            (breakers.record_failure if number % 2 else breakers.record_success)("api")

    at_once(count)
    state = breakers.get_by_service_name("api")
    assert (state.failure_count, state.success_count) == (each * THREADS // 2, each * THREADS // 2)


def test_forced_states_are_told_apart_by_what_came_before(breakers, rounds):
    for number in range(rounds):
        name = f"api-{number}"
        answers = at_once(lambda n, name=name: breakers.atomic_force_open(name, f"by {n}", n))
        assert sorted(before for _, before, _ in answers) == ["closed"] + ["open"] * 7
        state = breakers.get_by_service_name(name)
        assert state.control_reason == f"by {state.controlled_by_id}"
        resets = at_once(lambda n, name=name: breakers.atomic_reset(name, f"by {n}"))
        assert sorted(before for _, before, _ in resets) == ["closed"] * 7 + ["open"]


def test_a_deletion_has_one_author(breakers: CircuitBreakerStateRepository, rounds):
    for _ in range(rounds):
        breakers.get_or_create("api")
        assert sum(at_once(lambda _: breakers.delete_state("api"))) == 1
