"""Leases on every store, on a clock that moves when told."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from holdfast.store import lease
from holdfast.store.port import Store
from holdfast.testing.clock import ManualClock
from tests.stores import STORES, fresh_store


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture(params=STORES)
def store(request: pytest.FixtureRequest, tmp_path: Path, clock: ManualClock) -> Iterator[Store]:
    with fresh_store(request.param, tmp_path, clock=clock) as store:
        yield store


def test_a_lease_is_held_until_its_time_is_over(store: Store, clock: ManualClock) -> None:
    first = lease.acquire(store, "drain", 10)
    assert first is not None
    clock.advance(9.999)
    assert lease.acquire(store, "drain", 10) is None
    clock.advance(0.001)
    second = lease.acquire(store, "drain", 10)
    assert second not in (None, first)


def test_a_holder_that_extends_keeps_its_lease(store: Store, clock: ManualClock) -> None:
    token = lease.acquire(store, "drain", 10)
    assert token is not None
    for _ in range(3):
        clock.advance(9)
        assert lease.extend(store, "drain", token, 10)
    clock.advance(9)
    assert lease.acquire(store, "drain", 10) is None


def test_a_late_holder_whose_lease_nobody_took_may_go_on(store: Store, clock: ManualClock) -> None:
    token = lease.acquire(store, "drain", 10)
    assert token is not None
    clock.advance(60)
    assert lease.extend(store, "drain", token, 10)
    assert lease.acquire(store, "drain", 10) is None


def test_a_late_holder_whose_lease_was_taken_can_do_nothing(store: Store, clock: ManualClock) -> None:
    late = lease.acquire(store, "drain", 10)
    assert late is not None
    clock.advance(10)
    owner = lease.acquire(store, "drain", 10)
    assert owner is not None
    assert not lease.extend(store, "drain", late, 100)
    assert not lease.release(store, "drain", late)
    clock.advance(9)
    assert lease.acquire(store, "drain", 10) is None
    assert lease.release(store, "drain", owner)


def test_a_released_lease_is_free_at_once_and_gone_for_its_holder(store: Store) -> None:
    token = lease.acquire(store, "drain", 1000)
    assert token is not None
    assert lease.release(store, "drain", token)
    assert not lease.release(store, "drain", token)
    assert not lease.extend(store, "drain", token, 1000)
    assert lease.acquire(store, "drain", 1000) is not None


def test_every_holder_has_a_term_of_its_own(store: Store) -> None:
    for term in (1, 2, 3):
        token = lease.acquire(store, "drain", 1000)
        (found,) = store.get(lease.LEASE, ("drain",))
        assert found is not None
        assert (found.holder, found.term) == (token, term)
        assert token is not None
        lease.release(store, "drain", token)


def test_a_lease_that_never_was_cannot_be_extended_or_released(store: Store) -> None:
    assert not lease.extend(store, "drain", "token", 10)
    assert not lease.release(store, "drain", "token")
    assert store.get(lease.LEASE, ("drain",)) == [None]
