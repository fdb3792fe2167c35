"""Ids of outbox entries: UUIDs of version 7, ascending in the order in which a process makes them."""

from __future__ import annotations

import os
import struct
import threading
import time
from collections.abc import Callable
from uuid import UUID, SafeUUID

_VERSION_7 = 0x7 << 76
_VARIANT = 0x2 << 62
_AHEAD = 64


def entry_ids() -> tuple[Callable[[int], list[UUID]], Callable[[], UUID]]:
    """A source of so many ids at once, and of one: 60 bits of time in steps of a quarter of a microsecond, then chance.

    New rows land at the end of an index, and entries of the same time keep the order in which they were made.
    """
    lock = threading.RLock()  # a finalizer may enqueue while this very thread makes an id
    last = 0
    chances: list[int] = []  # fetched ahead: to ask the system for each costs more than all the rest

    def renew() -> None:
        nonlocal lock
        lock = threading.RLock()
        chances.clear()  # or parent and child would have the same

    if hasattr(os, "register_at_fork"):
        os.register_at_fork(after_in_child=renew)

    def fetch(number: int) -> None:
        chances.extend(struct.unpack(f">{number}Q", os.urandom(8 * number)))

    def new_ids(number: int) -> list[UUID]:
        nonlocal last
        ticks = _ticks()
        with lock:
            first = ticks if ticks > last else last + 1
            last = first + number - 1
            if len(chances) < number:
                fetch(number + _AHEAD)
            mine = chances[-number:]
            del chances[-number:]
        return [*map(_uuid, range(first, first + number), mine)]

    def new_id() -> UUID:
        nonlocal last
        ticks = _ticks()
        with lock:
            last = ticks = ticks if ticks > last else last + 1
            if not chances:
                fetch(_AHEAD)
            chance = chances.pop()
        return _uuid(ticks, chance)

    return new_ids, new_id


def _ticks() -> int:
    milliseconds, rest = divmod(time.time_ns(), 1_000_000)
    return milliseconds << 12 | rest * 4096 // 1_000_000


def _uuid(ticks: int, chance: int) -> UUID:
    """As UUID(int=…), which checks for three times as long what cannot be wrong here."""
    made = _new(UUID)
    _put_int(made, (ticks >> 12) << 80 | _VERSION_7 | (ticks & 0xFFF) << 64 | _VARIANT | chance >> 2)
    _put_safe(made, _UNKNOWN)
    return made


_UNKNOWN = SafeUUID.unknown
_new = object.__new__
_put_int, _put_safe = (vars(UUID)[name].__set__ for name in ("int", "is_safe"))

# As in core/ids.py: it lives in a closure, and no decision depends on an id.
new_entry_ids, new_entry_id = entry_ids()
