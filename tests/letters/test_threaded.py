"""The asynchronous face: the same names, arguments and results, never on the event loop's thread."""

from __future__ import annotations

import asyncio
import inspect
import threading
from datetime import timedelta

import pytest

from holdfast.backends.memory import MemoryStore
from holdfast.letters.repository import FailedOperationRepository
from holdfast.letters.threaded import AsyncFailedOperationRepository
from holdfast.store.port import Store
from holdfast.testing.clock import ManualClock

METHODS = [
    name
    for name, member in inspect.getmembers(FailedOperationRepository, inspect.isfunction)
    if not name.startswith("_")
]


@pytest.mark.parametrize("name", METHODS)
def test_every_method_has_an_asynchronous_twin_with_the_same_arguments(name: str) -> None:
    twin = getattr(AsyncFailedOperationRepository, name)
    assert inspect.iscoroutinefunction(twin)
    assert inspect.signature(twin) == inspect.signature(getattr(FailedOperationRepository, name))
    assert twin.__doc__ == getattr(FailedOperationRepository, name).__doc__


async def test_a_letters_life_in_a_coroutine(store: Store, clock: ManualClock) -> None:
    letters = AsyncFailedOperationRepository(FailedOperationRepository(store))
    letter = await letters.create("d", "f", user_id=7, dedup_key="k")
    assert (await letters.create("d", "f", dedup_key="k")).occurrences == 2
    held = await letters.try_acquire_for_replay(letter.id, max_retries=2, trigger="t")
    assert held is not None
    assert held.attempt_token is not None
    assert await letters.heartbeat(held.id, held.attempt_token)
    assert await letters.complete_replay(held.id, False, attempt_token=held.attempt_token, known=held)
    (again,) = await letters.acquire_many(domain="d", limit=5, max_retries=2)
    assert await letters.complete_replay(again.id, True)
    assert [attempt.outcome for attempt in await letters.get_attempts(letter.id)] == ["failed", "succeeded"]
    assert [found.id for found in await letters.find(status="resolved")] == [letter.id]
    assert await letters.count(domain="d") == 1
    assert await letters.find_sla_breached(clock.wall(), {"d": timedelta(0)}) == []
    assert (await letters.get_statistics())["total"] == 1
    assert await letters.get_by_id("nothing") is None
    assert await letters.delete(letter.id) is True


async def test_eight_tasks_acquire_a_letter_once(store: Store) -> None:
    letters = AsyncFailedOperationRepository(FailedOperationRepository(store))
    letter = await letters.create("d", "f")
    won = await asyncio.gather(*(letters.try_acquire_for_replay(letter.id, 2) for _ in range(8)))
    assert sum(held is not None for held in won) == 1


async def test_bad_input_raises_where_it_is_awaited() -> None:
    letters = AsyncFailedOperationRepository(FailedOperationRepository(MemoryStore()))
    with pytest.raises(TypeError):
        await letters.create("d", "f", request_data={"x": object()})
    with pytest.raises(ValueError, match="no status"):
        await letters.update_status("id", "gone")
    assert await letters.count() == 0


async def test_a_call_runs_in_one_other_thread() -> None:
    seen: list[int] = []

    class Watched(MemoryStore):
        def now(self) -> int:
            seen.append(threading.get_ident())
            return super().now()

        def get(self, kind, ids):  # type: ignore[no-untyped-def]  # as in the store
            seen.append(threading.get_ident())
            return super().get(kind, ids)

    letters = AsyncFailedOperationRepository(FailedOperationRepository(Watched()))
    letter = await letters.create("d", "f")
    seen.clear()
    await letters.increment_retry_count(letter.id)
    assert len(seen) >= 2
    assert len(set(seen)) == 1
    assert threading.get_ident() not in seen


async def test_it_runs_what_a_subclass_overrides() -> None:
    class Polite(FailedOperationRepository):
        def count_all(self) -> int:
            return 42

    assert await AsyncFailedOperationRepository(Polite(MemoryStore())).count_all() == 42
    assert repr(AsyncFailedOperationRepository(Polite(MemoryStore()))) == (
        "<AsyncFailedOperationRepository of <Polite memory://>>"
    )
