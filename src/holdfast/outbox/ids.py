"""Ids of outbox entries: UUIDs of version 7, ascending in the order in which a process makes them."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable
from uuid import UUID

_VERSION_7 = 0x7 << 76
_VARIANT = 0x2 << 62


def entry_ids() -> Callable[[], UUID]:
    """A source of ids: 60 bits of time in steps of a quarter of a microsecond, then chance.

    New rows land at the end of an index, and entries of the same time keep the order in which they were made.
    """
    lock = threading.RLock()  # a finalizer may enqueue while this very thread makes an id
    last = 0

    def renew() -> None:
        nonlocal lock
        lock = threading.RLock()

    if hasattr(os, "register_at_fork"):
        os.register_at_fork(after_in_child=renew)

    def new_id() -> UUID:
        nonlocal last
        milliseconds, rest = divmod(time.time_ns(), 1_000_000)
        with lock:
            last = max(last + 1, milliseconds << 12 | rest * 4096 // 1_000_000)
            ticks = last
        chance = int.from_bytes(os.urandom(8), "big") >> 2
        return UUID(int=(ticks >> 12) << 80 | _VERSION_7 | (ticks & 0xFFF) << 64 | _VARIANT | chance)

    return new_id


# As in core/ids.py: it lives in a closure, and no decision depends on an id.
new_entry_id = entry_ids()
