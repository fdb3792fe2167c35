"""Accounts on every store, at a time that stands still until it is moved."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from holdfast import Hub
from holdfast.access.access import Access
from holdfast.access.passwords import Passwords
from holdfast.access.records import KINDS
from holdfast.store.port import Store
from holdfast.testing.clock import ManualClock
from tests.stores import STORES, fresh_store

CHEAP = Passwords(time_cost=1, memory_kib=8, lanes=1)
"""What a password costs is no part of these tests."""


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture(params=STORES)
def store(request: pytest.FixtureRequest, tmp_path: Path, clock: ManualClock) -> Iterator[Store]:
    with fresh_store(request.param, tmp_path, KINDS, clock) as store:
        yield store


@pytest.fixture
def hub() -> Hub:
    return Hub()


@pytest.fixture
def access(store: Store, clock: ManualClock, hub: Hub) -> Access:
    return Access(store, clock, hub=hub, passwords=CHEAP)
