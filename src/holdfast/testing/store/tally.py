"""What `tally` promises: counts that are right after whatever happened."""

from __future__ import annotations

import random
from collections import Counter
from functools import partial
from typing import Any

import pytest

from holdfast.errors import Conflict
from holdfast.store.port import Change, Delete, Insert, Store, Swap
from holdfast.store.query import ANY, Condition, among, equal, outside
from holdfast.store.record import evolve
from holdfast.testing.store.kinds import ITEM, PLAIN, Item, Plain, everything, fill, item
from holdfast.testing.store.threads import at_once

_LANES, _STATES = ("left", "right"), ("new", "old", "odd")


def counts(items: list[Item], *by: str) -> dict[tuple[Any, ...], int]:
    return dict(Counter(tuple(getattr(one, name) for name in by) for one in items))


class TallyConformance:
    def test_an_empty_store_has_no_groups(self, store: Store) -> None:
        assert store.tally(ITEM) == {}
        assert store.tally(ITEM, ("lane",)) == {}
        assert store.tally(ITEM, ("size",)) == {}
        assert store.tally(ITEM, arrivals=True) == {}
        assert store.tally(PLAIN) == {}

    def test_counted_fields_are_grouped_in_the_order_asked_for(self, store: Store) -> None:
        fill(store, [item("a"), item("b"), item("c", lane="right"), item("d", state="old")])
        assert store.tally(ITEM) == {(): 4}
        assert store.tally(ITEM, ("lane",)) == {("left",): 3, ("right",): 1}
        assert store.tally(ITEM, ("lane", "state")) == {("left", "new"): 2, ("right", "new"): 1, ("left", "old"): 1}
        assert store.tally(ITEM, ("state", "lane")) == {("new", "left"): 2, ("new", "right"): 1, ("old", "left"): 1}

    def test_counts_are_narrowed_by_conditions(self, store: Store) -> None:
        fill(store, [item("a"), item("b"), item("c", lane="right"), item("d", state="old")])
        assert store.tally(ITEM, ("lane",), equal(state="new")) == {("left",): 2, ("right",): 1}
        assert store.tally(ITEM, (), equal(state="new", lane="left")) == {(): 2}
        assert store.tally(ITEM, ("state",), (among("lane", ("left", "up")),)) == {("new",): 2, ("old",): 1}
        assert store.tally(ITEM, (), (outside("state", ("new",)),)) == {(): 1}
        assert store.tally(ITEM, (), equal(state="never")) == {}
        assert store.tally(ITEM, ("lane",), (among("state", ()),)) == {}

    def test_fields_that_nobody_counts_are_counted_when_asked(self, store: Store) -> None:
        items = fill(store, [item(f"{n}", size=n % 3, label=None if n % 2 else "x") for n in range(10)])
        assert store.tally(ITEM, ("size",)) == counts(items, "size")
        assert store.tally(ITEM, ("label", "lane")) == counts(items, "label", "lane")
        assert store.tally(ITEM, (), (Condition("size", ">", 0),)) == {(): 6}
        assert store.tally(ITEM, ("lane",), (Condition("label", "is null"),)) == {("left",): 5}
        assert store.tally(ITEM, ("lane",), (Condition("lane", "<", "m"), Condition("size", "=", 1))) == {("left",): 3}
        assert store.tally(ITEM, (), (Condition("size", ">", 5),)) == {}

    def test_a_kind_without_counts_is_counted(self, store: Store) -> None:
        store.commit([Insert(PLAIN, Plain(f"{n}", 1, None, "x" if n else None)) for n in range(3)])
        assert store.tally(PLAIN) == {(): 3}
        assert store.tally(PLAIN, ("value",)) == {("x",): 2, (None,): 1}

    @pytest.mark.parametrize("lane", ["", " ", "a:b", "a|b", "a,b", '["a","b"]', "%", "é", "🙂", "A", "a", "null", "0"])
    def test_odd_values_are_groups_like_any_other(self, store: Store, lane: str) -> None:
        fill(store, [item("a", lane=lane), item("b", lane=lane, state=lane), item("c", lane="other")])
        assert store.tally(ITEM, ("lane",)) == {(lane,): 2, ("other",): 1}
        assert store.tally(ITEM, ("lane", "state"), equal(lane=lane)) == {(lane, "new"): 1, (lane, lane): 1}
        assert store.tally(ITEM, ("lane",), arrivals=True) == {(lane,): 2, ("other",): 1}

    def test_groups_that_look_alike_are_different(self, store: Store) -> None:
        lanes = ("a", "A", "a ", "é", "e\u0301", "", " ")
        fill(store, [item(f"{n}", lane=lane) for n, lane in enumerate(lanes)])
        assert store.tally(ITEM, ("lane",)) == {(lane,): 1 for lane in lanes}

    def test_counts_follow_swaps_and_deletes(self, store: Store) -> None:
        a, b = fill(store, [item("a"), item("b")])
        store.commit([Swap(ITEM, a, evolve(a, state="old")), Delete(ITEM, b)])
        assert store.tally(ITEM, ("state",)) == {("old",): 1}

    def test_arrivals_are_never_lowered(self, store: Store) -> None:
        a, b, _ = fill(store, [item("a"), item("b"), item("c", lane="right")])
        store.commit([Swap(ITEM, a, evolve(a, lane="right")), Delete(ITEM, b)])
        store.sweep(ITEM, equal(state="new"))
        assert store.tally(ITEM) == {}
        assert store.tally(ITEM, ("lane",), arrivals=True) == {("left",): 2, ("right",): 1}
        assert store.tally(ITEM, arrivals=True) == {(): 3}
        assert store.tally(ITEM, (), equal(lane="left"), arrivals=True) == {(): 2}
        fill(store, [item("b")])
        assert store.tally(ITEM, ("lane",), (outside("lane", ("right",)),), arrivals=True) == {("left",): 3}

    def test_an_unknown_field_is_a_mistake(self, store: Store) -> None:
        for by in (("colour",), ("lane", "colour")):
            with pytest.raises(ValueError, match="colour"):
                store.tally(ITEM, by)
        with pytest.raises(ValueError, match="colour"):
            store.tally(ITEM, (), equal(colour="red"))

    def test_arrivals_know_only_their_own_fields(self, store: Store) -> None:
        fill(store, [item("a")])
        with pytest.raises(ValueError, match="state"):
            store.tally(ITEM, ("state",), arrivals=True)
        with pytest.raises(ValueError, match="state"):
            store.tally(ITEM, (), equal(state="new"), arrivals=True)

    @pytest.mark.parametrize("seed", [1, 2])
    def test_counts_equal_a_count_after_any_history(self, store: Store, seed: int) -> None:
        rng = random.Random(seed)
        arrived: Counter[str] = Counter()
        for step in range(60):
            _make_history(store, rng, step, arrived)
            if step % 10 == 9:
                items = everything(store)
                for by in ((), ("lane",), ("state",), ("lane", "state")):
                    assert store.tally(ITEM, by) == counts(items, *by)
                assert store.tally(ITEM, ("lane",), equal(state="old")) == counts(
                    [one for one in items if one.state == "old"], "lane"
                )
                assert store.tally(ITEM, ("lane",), arrivals=True) == {(lane,): n for lane, n in arrived.items()}

    def test_counts_are_right_when_many_write_at_once(self, store: Store) -> None:
        fill(store, [item(f"shared{n}", due_at=n) for n in range(10)])
        arrived: Counter[str] = Counter()

        def write(name: int) -> None:
            rng = random.Random(name)
            for step in range(25):
                _make_history(store, rng, step, arrived, f"{name}-")

        at_once([partial(write, name) for name in range(4)])
        items = everything(store)
        assert store.tally(ITEM, ("lane", "state")) == counts(items, "lane", "state")
        assert store.tally(ITEM, where=ANY) == ({(): len(items)} if items else {})


def _make_history(store: Store, rng: random.Random, step: int, arrived: Counter[str], name: str = "") -> None:
    """One random act; losing is a part of history."""
    match rng.randrange(6):
        case 0 | 1:
            new = [item(f"{name}{step}.{n}", lane=rng.choice(_LANES), state=rng.choice(_STATES)) for n in range(5)]
            fill(store, new)
            arrived.update(one.lane for one in new)
        case 2 | 3:
            found = store.page(ITEM, by=rng.choice(("id", "due_at")), descending=rng.random() < 0.5, limit=6)
            swaps: list[Change] = [
                Swap(ITEM, one, evolve(one, lane=rng.choice(_LANES), state=rng.choice(_STATES))) for one in found[2:]
            ]
            try:
                store.commit([*swaps, *(Delete(ITEM, one) for one in found[:2])])
            except Conflict:
                pass
        case 4:
            store.claim(ITEM, equal(state=rng.choice(_STATES)), lambda one: evolve(one, state="old"), limit=4)
        case _:
            state = rng.choice(_STATES)
            store.sweep(ITEM, equal(lane=rng.choice(_LANES)), rng.choice(({"state": state}, None)), limit=3)
