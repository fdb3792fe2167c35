"""Change one record as a machine says: read, ask, swap, and ask again when somebody else was faster."""

from __future__ import annotations

import random
import time
from collections.abc import Callable
from typing import Final

from holdfast.errors import Conflict
from holdfast.store.port import Change, Delete, Insert, Store, Swap
from holdfast.store.record import Kind, R

PATIENCE_S: Final = 15.0


def change(
    store: Store,
    kind: Kind[R],
    id: str,
    decide: Callable[[R | None], R | None],
    *,
    wake: Callable[[R | None, R], str | None] | None = None,
) -> tuple[R | None, R | None]:
    """The record before and after; `decide` sees None for one that is not there, and says None to change nothing.

    `wake` names the topic of a change that others should hear of. Raises Conflict if others were faster for 15 seconds.
    """
    give_up = time.monotonic() + PATIENCE_S
    tries = 0
    while True:
        before = store.get(kind, (id,))[0]
        after = decide(before)
        if after is None:
            return before, None
        step: Change = Insert(kind, after) if before is None else Swap(kind, before, after)
        try:
            store.commit([step], wake=None if wake is None else wake(before, after))
        except Conflict:
            tries += 1
            if time.monotonic() > give_up:
                raise
            # Whoever lost spreads out, or the same ones would meet again.
            time.sleep(random.random() * min(0.02, 0.0005 * (1 << min(tries, 6))))
        else:
            return before, after


def remove(store: Store, kind: Kind[R], id: str) -> R | None:
    """Delete a record whatever its version; the record that went."""
    while True:
        found = store.get(kind, (id,))[0]
        if found is None:
            return None
        try:
            store.commit([Delete(kind, found)])
        except Conflict:
            continue
        return found
