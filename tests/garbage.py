"""What an action leaves to the garbage collector."""

from __future__ import annotations

import gc
from collections.abc import Callable


def garbage_of(action: Callable[[], object], *, warm_up: int = 3, runs: int = 10) -> int:
    """How many objects of so many runs only the collector could free."""
    for _ in range(warm_up):
        action()
    gc.collect()
    gc.disable()
    try:
        for _ in range(runs):
            action()
        return gc.collect()
    finally:
        gc.enable()
