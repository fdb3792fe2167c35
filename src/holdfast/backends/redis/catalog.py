"""Which kinds the server holds and how their documents lie, written down there by whoever used a kind first.

New fields may be added to a kind at any time: they are None in older documents. Other indexes, unique fields or
counters have to be built from the stored records first (`reindex`), so until then they are refused.
"""

from __future__ import annotations

import json
from typing import Any

from holdfast.backends.redis.layout import Layout, searched, utf8
from holdfast.backends.redis.link import Link
from holdfast.backends.redis.route import route
from holdfast.backends.redis.walk import CHANGES, Walk
from holdfast.errors import SchemaError
from holdfast.store.query import ANY
from holdfast.store.record import Index, Kind, R


class Catalog:
    def __init__(self, link: Link, prefix: str) -> None:
        self._link = link
        self._prefix = prefix
        self._key = utf8(f"{{{prefix}}}:kinds")
        self._layouts: dict[Kind[Any], Layout[Any]] = {}

    def layout(self, kind: Kind[R]) -> Layout[R]:
        """How the kind lies in the server; asks it when the kind is used for the first time.

        Raises SchemaError if the stored records were made for other indexes or by a newer program.
        """
        found = self._layouts.get(kind)
        if found is None:
            found = self._layouts[kind] = self._read(kind)
        return found

    def reindex(self, kind: Kind[Any]) -> int:
        """Build the indexes and counters of the kind from its records; nobody else may write meanwhile. How many."""
        stored, new = self._described(kind), _description(kind)
        columns = self._columns(kind, stored)
        layout = Layout(self._prefix, kind, columns)
        former = Kind(
            kind.name,
            kind.record,
            indexes=tuple(Index(tuple(names), by) for names, by in stored["indexes"]),
            unique=tuple(stored["unique"]),
        )
        before = Layout(self._prefix, former, columns)
        counters = [layout.counter, *([layout.arrivals] if stored["arrivals"] != new["arrivals"] else [])]
        self._link.read(b"DEL", *counters)
        moved = self._move(before, layout, keep_arrivals=layout.arrivals not in counters)
        self._describe(kind, {**new, "columns": columns})
        self._layouts.pop(kind, None)
        return moved

    def _move(self, before: Layout[Any], layout: Layout[Any], keep_arrivals: bool) -> int:
        way = route(layout, ANY, "id")
        assert way is not None, "there is always an index by id"
        old, new = json.loads(before.plan), json.loads(layout.plan)
        if keep_arrivals:
            new[5] = []
        seen = max(before.searched, layout.searched)
        walk = Walk(self._link, "reindex", layout, way, old=old, new=new, fields=seen)
        moved = 0
        while not walk.done:
            number, *clash = walk.go(CHANGES)
            moved += number
            if clash:
                raise SchemaError(f"{layout.kind.name} {clash[0].decode()} has a value that must be unique and is not")
        return moved

    def _read(self, kind: Kind[R]) -> Layout[R]:
        stored, ours = self._described(kind), _description(kind)
        columns = self._columns(kind, stored)
        if {**stored, "columns": ()} != {**ours, "columns": ()}:
            raise SchemaError(
                f"{self._link.url} holds {kind.name} records that are indexed for another version; stop all programs "
                f"that write there and call RedisStore.reindex once"
            )
        if len(columns) > len(stored["columns"]):
            self._describe(kind, {**stored, "columns": columns})
        return Layout(self._prefix, kind, columns)

    def _columns(self, kind: Kind[Any], stored: dict[str, Any]) -> list[str]:
        known: list[str] = stored["columns"]
        if unknown := [name for name in known if name not in kind.positions]:
            raise SchemaError(
                f"{self._link.url} holds {kind.name} records with the field {unknown[0]!r}, which this program does "
                f"not know; upgrade the program"
            )
        return known + [name for name in _description(kind)["columns"] if name not in known]

    def _described(self, kind: Kind[Any]) -> dict[str, Any]:
        """The kind as it is stored, which is as we know it if nobody stored any before."""
        field = utf8(kind.name)
        text = self._link.read(b"HGET", self._key, field)
        if text is None:
            self._link.read(b"HSETNX", self._key, field, utf8(json.dumps(_description(kind))))
            text = self._link.read(b"HGET", self._key, field)
        found: dict[str, Any] = json.loads(text)
        return found

    def _describe(self, kind: Kind[Any], description: dict[str, Any]) -> None:
        self._link.read(b"HSET", self._key, utf8(kind.name), utf8(json.dumps(description)))


def _description(kind: Kind[Any]) -> dict[str, Any]:
    columns = searched(kind)
    return {
        "columns": columns + [column.name for column in kind.columns if column.name not in columns],
        "indexes": sorted([list(index.equal), index.by] for index in kind.indexes),
        "unique": sorted(kind.unique),
        "tally": list(kind.tally),
        "arrivals": list(kind.arrivals),
    }
