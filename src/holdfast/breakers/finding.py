"""Stored breakers, a page at a time, and what processes tell each other about one."""

from __future__ import annotations

from holdfast.breakers.data import CircuitBreakerStateData, state_data
from holdfast.errors import InvalidValue
from holdfast.machine.breaker_fleet import Fleet, read
from holdfast.machine.breaker_record import BREAKER, BreakerRecord, known_state
from holdfast.store.codec import clean_text
from holdfast.store.port import Store
from holdfast.store.query import Cursor, equal

_LARGEST = 2**63 - 1


def find_breakers(
    store: Store, *, state: str | None = None, after: str | None = None, limit: int = 100
) -> list[tuple[str, CircuitBreakerStateData]]:
    """Breakers with the cursor of each: by name, or those of a state with the one that opened first at the beginning.

    Raises ValueError for a state or a cursor that is none.
    """
    where = () if state is None else equal(state=known_state(state).value)
    cursor = None if after is None else _cursor(after, by_name=state is None)
    found = store.page(BREAKER, where, by="id" if state is None else "open_order", after=cursor, limit=limit)
    return [(f"{record.open_order}:{record.id}", state_data(record)) for record in found]


def count_breakers(store: Store) -> dict[str, int]:
    """How many breakers there are, by state."""
    return {state: number for (state,), number in store.tally(BREAKER, ("state",)).items()}


def find_breaker(store: Store, name: str) -> tuple[CircuitBreakerStateData, Fleet] | None:
    """A breaker, and what processes tell each other about it; None if there is none."""
    record: BreakerRecord | None = store.get(BREAKER, (clean_text(name),))[0]
    return None if record is None else (state_data(record), read(record))


def _cursor(after: str, *, by_name: bool) -> Cursor:
    opened, found, name = after.partition(":")
    if not found or not opened.isascii() or not opened.isdecimal() or not (at := int(opened[:20])) <= _LARGEST:
        raise InvalidValue(f"{after!r} is no cursor of a list of breakers; use `next` of the page before")
    name = clean_text(name)
    return Cursor(name, name) if by_name else Cursor(at, name)
