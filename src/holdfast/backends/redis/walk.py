"""What the walking scripts are asked: the question as JSON, the bounds, and the index sets."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any, Final

from holdfast.backends.redis.layout import Layout, order, token, utf8
from holdfast.backends.redis.link import Link
from holdfast.backends.redis.route import Route, route, tokens
from holdfast.backends.redis.scripts import script
from holdfast.store.query import COMPARISONS, Condition, Where
from holdfast.store.record import R

# Limits of one call, so that none takes more than some ten milliseconds of the server's time.
SCANNED: Final = 2000  # records that are looked at
PASSED: Final = 20_000  # index members that are passed over
DOCUMENTS: Final = 1000  # records that are given back
CHANGES: Final = 250
_BATCH: Final = 256
_READING: Final = ("page", "count")


class Walk:
    """One question to a walking script, asked in as many calls as it takes. `done` once there is nothing left."""

    def __init__(
        self,
        link: Link,
        name: str,
        layout: Layout[Any],
        way: Route,
        *,
        descending: bool = False,
        fields: int | None = None,
        **question: Any,
    ) -> None:
        self._link = link
        self._name = name
        self._way = way
        self._low, self._high = way.low, way.high
        self._down = descending
        self._keys = [utf8(layout.index_key(way.by, group)) for group in way.groups]
        self._question = {
            "documents": layout.documents.decode(),
            "style": layout.style[way.by.by],
            "down": descending,
            "tests": tests(layout, way.rest),
            "fields": count_fields(layout, way.rest) if fields is None else fields,
            **question,
        }
        self.done = not way.groups or impossible(way.rest)

    def go(self, want: int, skip: int = 0) -> list[Any]:
        """The script's next answer, of which up to `want` records are part, without the first `skip`."""
        ask = utf8(to_text({**self._question, **self._limits(want, skip)}))
        call = (ask, self._low, self._high, *self._keys)
        answer: list[Any]
        last, *answer = self._link.call(script(self._name), self._keys[0], *call, writes=self._name not in _READING)
        if not last:
            self.done = True
        elif self._down:
            self._high = b"(" + last
        else:
            self._low = b"(" + last
        return answer

    def _limits(self, want: int, skip: int) -> dict[str, int]:
        want = min(want, DOCUMENTS if self._name in _READING else CHANGES)
        looking = self._name != "page" or bool(self._way.rest)
        sets = len(self._keys)
        batch = want + 1 if sets == 1 else want // sets + 8
        return {
            "want": want,
            "skip": skip,
            "batch": max(batch, _BATCH // sets) if looking else batch,
            "budget": SCANNED if looking else PASSED,
        }


def all_records(link: Link, layout: Layout[R], where: Where) -> list[R]:
    """All matching records, in the order of some index."""
    way = route(layout, where, None)
    assert way is not None, "the index by id answers everything"
    walk = Walk(link, "page", layout, way)
    documents: list[bytes] = []
    while not walk.done:
        documents += walk.go(DOCUMENTS)[1:]
    return layout.records(documents)


def to_text(question: Any) -> str:
    return json.dumps(question, ensure_ascii=False, separators=(",", ":"))


def tests(layout: Layout[Any], where: Where) -> list[list[Any]]:
    """The conditions as `lua/walk.lua` reads them."""
    return [_test(layout, condition) for condition in where]


def count_fields(layout: Layout[Any], where: Where, names: Sequence[str] = ()) -> int:
    """How many fields of a document a script must see for these conditions and names."""
    return max((layout.at[name] for name in (*names, *(c.field for c in where))), default=1)


def impossible(where: Where) -> bool:
    """Whether no record can match."""
    return any(c.operator in ("=", "in") and not tokens(c) for c in where)


def _test(layout: Layout[Any], condition: Condition) -> list[Any]:
    field, operator, value = condition
    at = layout.at[field]
    if operator in COMPARISONS:
        style = layout.style[field]
        order(value, style)  # complains of a value that has no order here
        return [at, operator, token(value), style]
    if operator in ("is null", "is set"):
        return [at, "in" if operator == "is null" else "out", ["null"]]
    return [at, "out" if operator == "not in" else "in", tokens(condition)]
