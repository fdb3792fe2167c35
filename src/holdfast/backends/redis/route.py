"""Which index answers a question, between which bounds, and what is left to ask of the documents."""

from __future__ import annotations

from itertools import product
from typing import Any, Final, NamedTuple

from holdfast.backends.redis.layout import ID, NUMBER, Layout, order, storable, token, utf8
from holdfast.store.query import COMPARISONS, Condition, Cursor, Where
from holdfast.store.record import Index, Value

_MANY_SETS: Final = 64


class Bound(NamedTuple):
    """A place in an index set, itself inside or not."""

    at: bytes
    inside: bool

    def __bytes__(self) -> bytes:
        return (b"[" if self.inside else b"(") + self.at


class Route(NamedTuple):
    """The index sets to walk in their common order, the bounds, and the conditions for documents."""

    by: Index
    groups: list[tuple[str, ...]]
    low: bytes
    high: bytes
    rest: Where


def route(
    layout: Layout[Any], where: Where, by: str | None, *, descending: bool = False, after: Cursor | None = None
) -> Route | None:
    """The way to the matching records in the order of `by`, or in any for None; None if no index has that order."""
    given = {c.field: c for c in where if c.operator in ("=", "in")}
    usable = [
        (_rank(index, given, where), index)
        for index in layout.indexes
        if given.keys() >= set(index.equal) and (_holds_all(layout, index, where) if by is None else index.by == by)
    ]
    if not usable:
        return None
    index = max(usable)[1]
    used = [given[name] for name in index.equal]
    groups = list(product(*(tokens(condition) for condition in used)))
    bounding = [c for c in where if c.field == index.by and (c.operator in COMPARISONS or _pins(layout, c))]
    used += [c for c in where if c.field == index.by and c.operator == "is set"]
    rest = tuple(c for c in where if not any(c is one for one in (*used, *bounding)))
    low, high = _bounds(layout.style[index.by], bounding, descending, after)
    return Route(index, groups, low, high, rest)


def _rank(index: Index, given: dict[str, Condition], where: Where) -> tuple[bool, int, bool]:
    sets = 1
    for name in index.equal:
        condition = given[name]
        sets *= 1 if condition.operator == "=" else len(condition.value)
    bounded = any(c.field == index.by and c.operator in COMPARISONS for c in where)
    return sets <= _MANY_SETS, len(index.equal), bounded


def _holds_all(layout: Layout[Any], index: Index, where: Where) -> bool:
    """Whether no matching record is missing because its order field is None."""
    if index.by not in layout.nullable:
        return True
    return any(c.field == index.by and (c.operator in COMPARISONS or c.operator == "is set") for c in where)


def _pins(layout: Layout[Any], condition: Condition) -> bool:
    kind = int if layout.style[condition.field] == NUMBER else str
    return condition.operator == "=" and isinstance(condition.value, kind)


def tokens(condition: Condition) -> list[str]:
    """The JSON texts of the values that `=`, `in` or `not in` names; what cannot be stored equals nothing."""
    values = (condition.value,) if condition.operator == "=" else condition.value
    return list(dict.fromkeys(token(value) for value in values if storable(value)))


def _bounds(style: int, conditions: list[Condition], descending: bool, after: Cursor | None) -> tuple[bytes, bytes]:
    lows, highs = [], []
    for _, operator, value in conditions:
        if operator in (">", ">=", "="):
            lows.append(_edge(value, style, beyond=operator == ">", inside=operator != ">"))
        if operator in ("<", "<=", "="):
            highs.append(_edge(value, style, beyond=operator != "<", inside=operator != "<"))
    if after is not None:
        (highs if descending else lows).append(_place(after, style, descending))
    low = max(lows, key=lambda bound: (bound.at, not bound.inside), default=None)
    high = min(highs, key=lambda bound: (bound.at, bound.inside), default=None)
    return b"-" if low is None else bytes(low), b"+" if high is None else bytes(high)


def _edge(value: Value, style: int, *, beyond: bool, inside: bool) -> Bound:
    """Before all records with this value, or beyond them: no id begins with the byte 255."""
    at = order(value, style)
    if style == ID:
        return Bound(at, inside)
    return Bound(at + b"\xff", False) if beyond else Bound(at, inside)


def _place(after: Cursor, style: int, descending: bool) -> Bound:
    if style != ID:
        return Bound(order(after.value, style) + utf8(after.id), False)
    value = str(after.value)
    return Bound(utf8(value), after.id > value if descending else after.id < value)
