"""A repository of dead letters on every store, at a time that stands still until it is moved."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from holdfast.letters.repository import FailedOperationRepository
from holdfast.store.port import Store
from holdfast.testing.clock import ManualClock
from tests.guard.colours import colour as colour
from tests.stores import STORES, fresh_store


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture(params=STORES)
def store(request: pytest.FixtureRequest, tmp_path: Path, clock: ManualClock) -> Iterator[Store]:
    with fresh_store(request.param, tmp_path, clock=clock) as store:
        yield store


@pytest.fixture
def letters(store: Store) -> FailedOperationRepository:
    return FailedOperationRepository(store)
