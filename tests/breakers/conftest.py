"""A breaker repository on every store, with time under the test's hand."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from holdfast.breakers.repository import CircuitBreakerStateRepository
from holdfast.machine.breaker_record import BREAKER
from holdfast.store.port import Store
from holdfast.testing.clock import ManualClock
from tests.stores import STORES, fresh_store


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture(params=STORES)
def store(request: pytest.FixtureRequest, tmp_path: Path, clock: ManualClock) -> Iterator[Store]:
    with fresh_store(request.param, tmp_path, (BREAKER,), clock) as store:
        yield store


@pytest.fixture
def breakers(store: Store, clock: ManualClock) -> CircuitBreakerStateRepository:
    return CircuitBreakerStateRepository(store, clock)
