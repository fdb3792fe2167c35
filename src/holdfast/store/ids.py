"""Ids of stored records: opaque, of fixed width, and ascending in the order in which a process makes them."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from typing import Final

WIDTH: Final = 24


def record_ids() -> Callable[[int], str]:
    """A source of ids: 14 hexadecimal digits of the given microseconds, 10 that tell this source from any other.

    When the time stands still or runs backwards, the first part still goes up by one: ids keep the order of creation.
    """
    lock = threading.Lock()
    last = 0
    own = os.urandom(5).hex()

    def renew() -> None:
        nonlocal lock, own
        lock, own = threading.Lock(), os.urandom(5).hex()

    if hasattr(os, "register_at_fork"):
        os.register_at_fork(after_in_child=renew)

    def new_id(now: int) -> str:
        nonlocal last
        with lock:
            last = max(last + 1, now)
            return f"{last:014x}{own}"

    return new_id


# As in core/ids.py: it lives in a closure, and no decision depends on an id.
new_record_id = record_ids()
