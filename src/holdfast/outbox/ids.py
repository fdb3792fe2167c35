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


def entry_ids() -> Callable[[int], list[UUID]]:
    """A source of so many ids at once: 60 bits of time in steps of a quarter of a microsecond, then chance.

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

    def new_ids(number: int) -> list[UUID]:
        nonlocal last
        milliseconds, rest = divmod(time.time_ns(), 1_000_000)
        with lock:
            first = max(last + 1, milliseconds << 12 | rest * 4096 // 1_000_000)
            last = first + number - 1
            if len(chances) < number:
                more = number + _AHEAD
                chances.extend(struct.unpack(f">{more}Q", os.urandom(8 * more)))
            mine = chances[-number:]
            del chances[-number:]
        return [
            _uuid((ticks >> 12) << 80 | _VERSION_7 | (ticks & 0xFFF) << 64 | _VARIANT | chance >> 2)
            for ticks, chance in enumerate(mine, first)
        ]

    return new_ids


def _uuid(number: int) -> UUID:
    """As UUID(int=number), which checks for three times as long what cannot be wrong here."""
    made = _new(UUID)
    _put(made, "int", number)
    _put(made, "is_safe", _UNKNOWN)
    return made


_UNKNOWN = SafeUUID.unknown
_new = object.__new__
_put = object.__setattr__

# As in core/ids.py: it lives in a closure, and no decision depends on an id.
new_entry_ids = entry_ids()


def new_entry_id() -> UUID:
    return new_entry_ids(1)[0]
