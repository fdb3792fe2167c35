from __future__ import annotations

import asyncio
import inspect

from holdfast.breakers.repository import CircuitBreakerStateRepository
from holdfast.breakers.threaded import AsyncCircuitBreakerStateRepository


def test_the_async_face_has_every_method():
    names = {
        name for name, _ in inspect.getmembers(CircuitBreakerStateRepository, inspect.isfunction) if name[0] != "_"
    }
    assert names <= {name for name, _ in inspect.getmembers(AsyncCircuitBreakerStateRepository, inspect.isfunction)}


async def test_it_does_the_same_from_a_coroutine(breakers):
    face = AsyncCircuitBreakerStateRepository(breakers)
    assert (await face.get_or_create("api")).is_closed
    attempts = await asyncio.gather(*(face.record_failure_with_open_check("api", 3) for _ in range(8)))
    assert sum(attempt.did_open for attempt in attempts) == 1
    assert (await face.try_acquire_half_open_slot("api", 1, 60)) == (True, "open", "half_open")
    assert (await face.record_success_with_close_check("api", 1)).did_close
    assert (await face.atomic_force_open("api", "drill")) == (True, "closed", "open")
    assert breakers.get_by_service_name("api").control_reason == "drill"
