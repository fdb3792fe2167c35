"""All that matches, read page by page."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from holdfast.store.port import Store
from holdfast.store.query import ANY, Cursor, Where
from holdfast.store.record import Kind, R

PAGE: Final = 1000


def every(store: Store, kind: Kind[R], where: Where = ANY, *, by: str = "id", descending: bool = False) -> Iterator[R]:
    """The matching records in the order of `by`. Each page is as it was when it was read."""
    after: Cursor | None = None
    while True:
        found = store.page(kind, where, by=by, descending=descending, after=after, limit=PAGE)
        yield from found
        if len(found) < PAGE:
            return
        after = Cursor(getattr(found[-1], by), found[-1].id)
