"""Commits of many records: databases write them in few statements, and each is written as it is, or none is."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

import pytest

from holdfast.errors import Conflict
from holdfast.store.port import Change, Delete, Insert, Store, Swap
from holdfast.store.record import evolve
from holdfast.testing.store import ITEM, Item, item

SIZES = (1, 2, 24, 25, 26, 49, 50, 51, 130)
TEXTS = ("", "plain", 'it\'s "quoted"', "[1, null]", "naïve ✓", "line\nbreak", "?", ":p0", "0", "x" * 3000)


def items(number: int, **values: object) -> list[Item]:
    return [item(f"i{at:04}", size=at, **values) for at in range(number)]


def fill(store: Store, records: Sequence[Item]) -> list[Item]:
    store.commit([Insert(ITEM, record) for record in records])
    return list(records)


def all_of(store: Store) -> list[Item]:
    return store.page(ITEM, limit=1000)


@pytest.mark.parametrize("number", SIZES)
def test_each_new_record_has_its_own_values_and_those_that_all_share(store: Store, number: int) -> None:
    records = [
        item(f"i{at:04}", due_at=None if at % 2 else at, rank=at - 60, body=TEXTS[at % len(TEXTS)], state="new")
        for at in range(number)
    ]
    assert fill(store, records) == all_of(store)
    assert store.tally(ITEM, ("state",)) == {("new",): number}


@pytest.mark.parametrize("number", SIZES)
def test_new_records_may_differ_in_nothing_but_their_id(store: Store, number: int) -> None:
    records = [item(f"i{at:04}") for at in range(number)]
    assert fill(store, records) == all_of(store)


@pytest.mark.parametrize("number", SIZES)
def test_each_changed_record_has_its_own_values_and_those_that_all_share(store: Store, number: int) -> None:
    old = fill(store, items(number, label="before"))
    new = [
        evolve(one, due_at=None, rank=7, label=None if one.size % 3 else "x", body=TEXTS[one.size % len(TEXTS)])
        for one in old
    ]
    store.commit([Swap(ITEM, before, after) for before, after in zip(old, new, strict=True)])
    assert all_of(store) == new
    store.commit([Delete(ITEM, one) for one in new])
    assert all_of(store) == []


@pytest.mark.parametrize("at", [0, 24, 25, 49, 59])
def test_one_of_many_that_is_there_already_undoes_the_commit_and_is_named(store: Store, at: int) -> None:
    records = items(60)
    there = fill(store, [records[at]._replace(body="there")])
    with pytest.raises(Conflict, match=records[at].id) as caught:
        fill(store, records)
    assert caught.value.lost == (at,)
    assert all_of(store) == there


@pytest.mark.parametrize("at", [0, 24, 25, 49, 59])
def test_one_of_many_that_has_changed_undoes_the_commit_and_is_named(store: Store, at: int) -> None:
    records = fill(store, items(60))
    store.commit([Swap(ITEM, records[at], evolve(records[at], body="other"))])
    before = all_of(store)
    with pytest.raises(Conflict, match=records[at].id) as caught:
        store.commit([Swap(ITEM, one, evolve(one, body=f"mine {one.size}")) for one in records])
    assert caught.value.lost == (at,)
    assert all_of(store) == before


def test_many_records_may_be_made_changed_and_changed_again_in_one_commit(store: Store) -> None:
    first = items(60)
    second = [evolve(one, body=f"second {one.size}") for one in first]
    third = [evolve(one, rank=3) for one in second]
    changes: list[Change] = [Insert(ITEM, one) for one in first]
    changes += [Swap(ITEM, *pair) for pair in zip(first, second, strict=True)]
    changes += [Swap(ITEM, *pair) for pair in zip(second, third, strict=True)]
    store.commit(changes)
    assert all_of(store) == third


def test_neighbours_in_one_commit_may_be_versions_of_one_record(store: Store) -> None:
    (one,) = fill(store, items(1))
    versions = [one]
    for turn in range(60):
        versions.append(evolve(versions[-1], body=f"turn {turn}"))
    store.commit([Swap(ITEM, *pair) for pair in pairwise(versions)])
    assert all_of(store) == versions[-1:]


def test_a_unique_value_may_be_handed_on_along_a_row_of_many(store: Store) -> None:
    old = fill(store, [item(f"i{at:04}", token=f"t{at}") for at in range(60)])
    new = [evolve(one, token=f"t{at - 1}" if at else None) for at, one in enumerate(old)]
    store.commit([Swap(ITEM, *pair) for pair in zip(old, new, strict=True)])
    assert all_of(store) == new


def test_many_of_which_two_want_one_unique_value_are_refused(store: Store) -> None:
    with pytest.raises(Conflict) as caught:
        fill(store, [item(f"i{at:04}", token=f"t{min(at, 40)}") for at in range(42)])
    assert caught.value.lost == (41,)
    assert all_of(store) == []
