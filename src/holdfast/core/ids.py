"""Identifiers that are unique enough to join log lines and cheap enough to give one to every call."""

from __future__ import annotations

import os
import random
from collections.abc import Callable


def id_source() -> Callable[[], str]:
    """Make an independent source of 12 hexadecimal characters (48 random bits). Not for secrets.

    A Mersenne twister seeded by the system: `getrandbits` is one C call, hence atomic between threads, and needs
    no system call per id. A forked child would repeat its parent's ids, so it seeds itself anew;
    that hook lives as long as the process, so make a source once.
    """
    twister = random.Random(os.urandom(32))
    draw = twister.getrandbits
    if hasattr(os, "register_at_fork"):
        os.register_at_fork(after_in_child=lambda: twister.seed(os.urandom(32)))

    def new_id() -> str:
        return f"{draw(48):012x}"

    return new_id


# The twister lives in a closure: nothing here can be reset or replaced by a test, nor is there a need for it, as no
# decision depends on an id.
new_call_id = id_source()
"""A new call id of 12 hexadecimal characters."""
