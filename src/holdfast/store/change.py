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
    known: R | None = None,
    wake: Callable[[R | None, R], str | None] | None = None,
) -> tuple[R | None, R | None]:
    """The record before and after; `decide` sees None for one that is not there, and says None to change nothing.

    `known` is the record as it was seen last: it saves a read, and the swap tells whether it still is. `wake` names the
    topic of a change that others should hear of. Raises Conflict if others were faster for 15 seconds.
    """
    give_up = time.monotonic() + PATIENCE_S
    tries = 0
    while True:
        is_guess = known is not None
        before, known = store.get(kind, (id,))[0] if known is None else known, None
        after = decide(before)
        if after is None:
            if is_guess:
                continue
            return before, None
        step: Change = Insert(kind, after) if before is None else Swap(kind, before, after)
        try:
            store.commit([step], wake=None if wake is None else wake(before, after))
        except Conflict:
            if is_guess:
                continue
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
