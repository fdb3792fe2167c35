"""Prove a store: every sentence of `holdfast.store.port` as a test that any backend can run.

    import pytest
    from holdfast.testing.store import CONFORMANCE_KINDS, StoreConformance

    class TestMyStore(StoreConformance):
        @pytest.fixture
        def store(self):
            store = MyStore("my://…", kinds=CONFORMANCE_KINDS)  # at an empty place
            yield store
            store.close()

        @pytest.fixture
        def second_store(self, store):  # where two store objects can share a place
            second = MyStore(store.url, kinds=CONFORMANCE_KINDS)
            yield second
            second.close()

`holdfast.testing.store.machine` compares a store with the memory store over random histories; it needs hypothesis.
Call `pytest.register_assert_rewrite("holdfast.testing.store")` before the import to see the values in failed asserts.
"""

from holdfast.testing.store.conformance import StoreConformance
from holdfast.testing.store.kinds import CONFORMANCE_KINDS, ITEM, PLAIN, Item, Plain, item

__all__ = ["CONFORMANCE_KINDS", "ITEM", "PLAIN", "Item", "Plain", "StoreConformance", "item"]
