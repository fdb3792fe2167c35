"""The public suite on every store of ours."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from holdfast.store.port import Store
from holdfast.testing.store import StoreConformance
from tests.stores import STORES, Place, fresh_place


class TestEveryStore(StoreConformance):
    @pytest.fixture(params=STORES)
    def place(self, request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Place]:
        with fresh_place(request.param, tmp_path) as place:
            yield place

    @pytest.fixture
    def store(self, place: Place) -> Iterator[Store]:
        store = place.open()
        yield store
        store.close()

    @pytest.fixture
    def second_store(self, place: Place, store: Store) -> Iterator[Store]:
        if place.name == "memory":
            yield store  # a place in memory is one object, and whoever shares it holds that
            return
        store = place.open()
        yield store
        store.close()
