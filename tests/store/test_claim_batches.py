"""Claims of many records: databases write them in few statements, and each gets what was decided for it."""

from __future__ import annotations

from enum import StrEnum

import pytest

from holdfast.store.port import Insert, Store
from holdfast.store.query import equal
from holdfast.store.record import evolve
from holdfast.testing.store import ITEM, Item, item

TEXTS = ("", "plain", 'it\'s "quoted"', "[1, null]", "naïve ✓", "line\nbreak", "\\u0041", "0", "x" * 3000)
SIZES = (1, 2, 10, 24, 25, 26, 49, 50, 51, 130)


class Mood(StrEnum):
    HELD = "held"


def fill(store: Store, number: int, **values: object) -> None:
    store.commit([Insert(ITEM, item(f"i{at:04}", due_at=at, size=at, **values)) for at in range(number)])


def stored(store: Store, records: list[Item]) -> list[Item | None]:
    return store.get(ITEM, [record.id for record in records])


@pytest.mark.parametrize("number", SIZES)
def test_each_record_gets_its_own_values_and_those_that_all_share(store: Store, number: int) -> None:
    fill(store, number, label="before")

    def decide(record: Item) -> Item:
        at = record.size
        label = None if at % 3 == 0 else f"label {at}"
        body, token = TEXTS[at % len(TEXTS)], f"token {at}"
        return evolve(record, due_at=None, state=Mood.HELD, rank=7, label=label, body=body, token=token, number=at - 60)

    claimed = store.claim(ITEM, equal(state="new"), decide, limit=number)
    assert [record.size for record in claimed] == list(range(number))
    assert stored(store, claimed) == claimed
    assert {(record.version, record.state, record.rank) for record in claimed} == {(2, "held", 7)}
    assert store.tally(ITEM, ("state",)) == {("held",): number}
    assert store.claim(ITEM, equal(state="new"), decide, limit=number) == []


def test_records_of_one_claim_may_change_different_fields(store: Store) -> None:
    fill(store, 120, lane="left")

    def decide(record: Item) -> Item | None:
        match record.size % 5:
            case 0:
                return None
            case 1:
                return evolve(record)
            case 2:
                return evolve(record, lane="right", rank=record.size)
            case 3:
                return evolve(record, body=f"body {record.size}")
        return evolve(record, lane="right", rank=1, body="same")

    before = store.page(ITEM, limit=120)
    claimed = store.claim(ITEM, equal(state="new"), decide, limit=200)
    assert claimed == [after for record in before if (after := decide(record)) is not None]
    assert stored(store, claimed) == claimed
    assert store.tally(ITEM, ("lane",)) == {("left",): 72, ("right",): 48}
    assert [record for record in store.page(ITEM, limit=120) if record.version == 1] == before[::5]


def test_the_greatest_and_least_numbers_survive_a_claim(store: Store) -> None:
    ends = (2**63 - 1, -(2**63) + 1, 2**53 + 1, 0)
    fill(store, 60)
    claimed = store.claim(ITEM, (), lambda record: evolve(record, rank=ends[record.size % 4]), limit=60)
    assert stored(store, claimed) == claimed
    assert [record.rank for record in claimed[:4]] == list(ends)


def test_records_that_come_back_with_many_patterns_of_values_are_all_written(store: Store) -> None:
    fill(store, 30)
    for turn in range(40):

        def decide(record: Item, turn: int = turn) -> Item:
            own = [record.size if turn >> bit & 1 else turn for bit in range(5)]
            texts = {"label": f"label {own[2]}", "body": f"body {own[3]}", "lane": f"lane {own[4]}"}
            return evolve(record, due_at=1000 * turn + own[0], rank=own[1], **texts)

        claimed = store.claim(ITEM, (), decide, limit=30)
        assert stored(store, claimed) == claimed
        assert len(claimed) == 30
