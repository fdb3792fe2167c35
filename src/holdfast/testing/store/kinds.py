"""The kinds that the suite stores: with what is searched and counted, with nothing of that, and parts of a whole."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final, NamedTuple

from holdfast.store.lease import LEASE
from holdfast.store.port import Insert, Store
from holdfast.store.record import Index, Kind


class Item(NamedTuple):
    """A record with searched, ordered, unique and counted fields."""

    id: str
    version: int
    due_at: int | None
    state: str
    lane: str
    size: int
    rank: int | None
    label: str | None
    token: str | None
    number: int | None
    body: str


class Plain(NamedTuple):
    """A record of a kind without any index, unique field or count."""

    id: str
    version: int
    due_at: int | None
    value: str | None


class Part(NamedTuple):
    """A record whose id begins with that of a whole, and is given again when it is gone."""

    id: str
    version: int
    due_at: int | None
    whole: str
    size: int
    made_at: int = 0
    body: str = ""


ITEM: Final = Kind(
    "conformance_item",
    Item,
    indexes=(
        Index((), "due_at"),
        Index(("state",), "due_at"),
        Index(("lane", "state"), "size"),
        Index(("state",), "rank"),
        Index(("lane",), "label"),
        Index(("label",), "size"),
    ),
    unique=("token", "number"),
    tally=("lane", "state"),
    arrivals=("lane",),
    keyed={"label": 120},
)
PLAIN: Final = Kind("conformance_plain", Plain)
PART: Final = Kind("conformance_part", Part, within="whole", born="made_at")
_ITEM: Final = Item("", 1, 0, "new", "left", 0, None, None, None, None, "")
CONFORMANCE_KINDS: Final[tuple[Kind[Any], ...]] = (ITEM, PLAIN, PART, LEASE)


def item(id: str, **values: Any) -> Item:
    """A new item with these values."""
    return _ITEM._replace(id=id, **values)


def fill(store: Store, items: Iterable[Item]) -> list[Item]:
    """Keep these items; they are given back as a list."""
    kept = list(items)
    store.commit([Insert(ITEM, one) for one in kept])
    return kept


def everything(store: Store) -> list[Item]:
    """All items, by id."""
    return store.page(ITEM, limit=1_000_000)
