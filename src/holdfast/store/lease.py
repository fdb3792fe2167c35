"""A lock that many hosts share: held for a time, and fenced by a token."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from holdfast.store.change import change
from holdfast.store.ids import new_record_id
from holdfast.store.port import Store
from holdfast.store.record import Index, Kind, evolve


class LeaseRecord(NamedTuple):
    """`due_at` is when it ends by itself; a lease without holder stays, so that `term` never repeats."""

    id: str
    version: int
    due_at: int | None
    holder: str | None
    term: int


LEASE = Kind("lease", LeaseRecord, indexes=(Index((), "due_at"),))


def acquire(store: Store, name: str, seconds: float) -> str | None:
    """A token for the lease, or None while somebody else holds it."""
    now = store.now()
    token, until = new_record_id(now), now + round(seconds * 1e6)

    def take(found: LeaseRecord | None) -> LeaseRecord | None:
        if found is None:
            return LeaseRecord(name, 1, until, token, 1)
        if found.holder is not None and found.due_at is not None and found.due_at > store.now():
            return None
        return evolve(found, holder=token, due_at=until, term=found.term + 1)

    return token if change(store, LEASE, name, take)[1] is not None else None


def extend(store: Store, name: str, token: str, seconds: float) -> bool:
    """Hold on to the lease; False when it has been lost."""
    until = store.now() + round(seconds * 1e6)
    return _as_holder(store, name, token, lambda held: evolve(held, due_at=until))


def release(store: Store, name: str, token: str) -> bool:
    """Give the lease back; False when it has been lost."""
    return _as_holder(store, name, token, lambda held: evolve(held, holder=None, due_at=None))


def move_end(store: Store, name: str, step: Callable[[int | None], int | None]) -> None:
    """Move the end of a lease that nobody ever holds, as `step` says of the end that it has; None leaves it."""

    def moved(found: LeaseRecord | None) -> LeaseRecord | None:
        until = step(None if found is None else found.due_at)
        if until is None:
            return None
        return LeaseRecord(name, 1, until, None, 1) if found is None else evolve(found, due_at=until)

    change(store, LEASE, name, moved)


def _as_holder(store: Store, name: str, token: str, step: Callable[[LeaseRecord], LeaseRecord]) -> bool:
    def decide(found: LeaseRecord | None) -> LeaseRecord | None:
        return step(found) if found is not None and found.holder == token else None

    return change(store, LEASE, name, decide)[1] is not None
