"""Python's garbage collector in a program that is there to work: `holdfast worker`, `holdfast serve`.

What a program has loaded stays, and to look at it again and again takes as long as a sixth of the work. And what work
makes is dropped in the order in which it is done with: to look for cycles in it after every 700 objects finds nothing,
and moves what waits for its commit to where only a full collection looks.
"""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

YOUNG: Final = 10_000
"""How many objects more than before there are when the young ones are looked at."""


def relieve() -> None:
    """Have the collector leave alone what is here now, and come less often. Who has turned it off, or told it to come
    less often still, is obeyed."""
    gc.collect()
    gc.freeze()
    first, *later = gc.get_threshold()
    if 0 < first < YOUNG:
        gc.set_threshold(YOUNG, *later)


@contextmanager
def as_before() -> Iterator[None]:
    """The collector is as it was, afterwards."""
    threshold = gc.get_threshold()
    try:
        yield
    finally:
        gc.unfreeze()
        gc.set_threshold(*threshold)
