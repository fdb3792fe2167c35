"""Reading all that matches, page by page."""

from __future__ import annotations

import pytest

from holdfast.store import paging
from holdfast.store.paging import every
from holdfast.store.port import Insert, Store
from holdfast.store.query import equal
from holdfast.testing.store import ITEM, item


@pytest.fixture(autouse=True)
def small_pages(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(paging, "PAGE", 4)


@pytest.mark.parametrize("number", [0, 1, 3, 4, 5, 8, 11])
def test_every_record_is_given_once_and_in_order(store: Store, number: int) -> None:
    records = [item(f"i{at:02}", size=at // 3, lane="even" if at % 2 == 0 else "odd") for at in range(number)]
    store.commit([Insert(ITEM, one) for one in records])
    assert [*every(store, ITEM)] == records
    assert [*every(store, ITEM, equal(lane="odd"))] == records[1::2]
    assert [*every(store, ITEM, by="size", descending=True)] == records[::-1]


def test_a_record_that_goes_meanwhile_does_not_end_it(store: Store) -> None:
    records = [item(f"i{at:02}") for at in range(10)]
    store.commit([Insert(ITEM, one) for one in records])
    seen = every(store, ITEM)
    first = [next(seen) for _ in range(4)]
    store.sweep(ITEM, equal(id=first[-1].id))
    assert [*first, *seen] == records
