"""One change to all records that match, made by the server in steps."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from json import loads
from typing import Any, Final

from holdfast.backends.redis.layout import Layout, token, utf8
from holdfast.backends.redis.link import Link
from holdfast.backends.redis.route import Route
from holdfast.backends.redis.scripts import script
from holdfast.backends.redis.walk import CHANGES, Walk, count_fields, tests, to_text
from holdfast.store.query import Where
from holdfast.store.record import Record, Value

EVERY: Final = 1 << 53


class Sweeping:
    """Gives values to records, or deletes them for None; both ways tell how many records matched."""

    def __init__(self, link: Link, layout: Layout[Any], where: Where, change: Mapping[str, Value] | None) -> None:
        self._link = link
        self._layout = layout
        self._where = where
        steps = None if change is None else [[layout.at[name], token(value)] for name, value in change.items()]
        self._question = {"plan": loads(layout.plan), "change": steps, "width": layout.width}

    def along(self, way: Route, limit: int) -> int:
        """The first records on the way, which the change must not move forwards on it."""
        seen = count_fields(self._layout, way.rest, self._layout.head)
        walk = Walk(self._link, "sweep", self._layout, way, fields=seen, **self._question)
        swept = 0
        while swept < limit and not walk.done:
            swept += walk.go(limit - swept)[0]
        return swept

    def these(self, records: Sequence[Record]) -> int:
        """Those of the records that still match."""
        layout = self._layout
        question = {
            **self._question,
            "documents": layout.documents.decode(),
            "tests": tests(layout, self._where),
            "fields": count_fields(layout, self._where, layout.head),
            "ids": True,
        }
        ids = [utf8(record.id) for record in records]
        swept = 0
        for at in range(0, len(ids), CHANGES):
            arguments = (utf8(to_text(question)), b"-", b"+", *ids[at : at + CHANGES])
            swept += self._link.call(script("sweep"), layout.documents, *arguments, writes=True)[1]
        return swept
