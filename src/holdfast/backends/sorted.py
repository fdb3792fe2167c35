"""A sorted list of keys that stays quick when it is long: a list of short sorted lists."""

from __future__ import annotations

from bisect import bisect_left, bisect_right, insort
from collections.abc import Iterator
from typing import Any, Final

Key = tuple[Any, str]
_FULL: Final = 1000


class SortedKeys:
    """Keys `(value, id)` in ascending order, each at most once."""

    __slots__ = ("_chunks", "_tops")

    def __init__(self) -> None:
        self._chunks: list[list[Key]] = []
        self._tops: list[Key] = []  # the greatest key of each chunk

    def __bool__(self) -> bool:
        return bool(self._chunks)

    def add(self, key: Key) -> None:
        at = bisect_left(self._tops, key)
        if at == len(self._tops):
            if not self._tops:
                self._chunks.append([key])
                self._tops.append(key)
                return
            at -= 1
        chunk = self._chunks[at]
        insort(chunk, key)
        if len(chunk) > _FULL:
            half = len(chunk) // 2
            self._chunks.insert(at + 1, chunk[half:])
            del chunk[half:]
            self._tops.insert(at, chunk[-1])
            at += 1
        self._tops[at] = self._chunks[at][-1]

    def discard(self, key: Key) -> None:
        at = bisect_left(self._tops, key)
        if at == len(self._tops):
            return
        chunk = self._chunks[at]
        place = bisect_left(chunk, key)
        if place == len(chunk) or chunk[place] != key:
            return
        del chunk[place]
        if chunk:
            self._tops[at] = chunk[-1]
        else:
            del self._chunks[at], self._tops[at]

    def ascending(self, after: Key | None = None) -> Iterator[Key]:
        """The keys beyond `after`; the list must not change meanwhile."""
        first = 0 if after is None else bisect_right(self._tops, after)
        for at in range(first, len(self._chunks)):
            chunk = self._chunks[at]
            yield from chunk if after is None or at > first else chunk[bisect_right(chunk, after) :]

    def descending(self, before: Key | None = None) -> Iterator[Key]:
        """The keys below `before`, greatest first."""
        last = len(self._chunks) - 1 if before is None else min(bisect_left(self._tops, before), len(self._chunks) - 1)
        for at in range(last, -1, -1):
            chunk = self._chunks[at]
            yield from reversed(chunk if before is None or at < last else chunk[: bisect_left(chunk, before)])
