"""What `sweep` promises: one change to all that match, or their end."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial

import pytest

from holdfast.errors import Conflict
from holdfast.store.change import change
from holdfast.store.port import Delete, Store, Swap
from holdfast.store.query import ANY, Condition, among, equal, outside
from holdfast.store.record import Value, evolve
from holdfast.testing.store.kinds import ITEM, PLAIN, Item, everything, fill, item
from holdfast.testing.store.threads import at_once, repeatedly


class SweepConformance:
    def test_a_sweep_gives_its_values_to_all_that_match(self, store: Store) -> None:
        a, b, c = fill(store, [item("a"), item("b", state="old"), item("c", size=4)])
        assert store.sweep(ITEM, equal(state="new"), {"state": "old", "due_at": None, "label": "x"}) == 2
        swept = [evolve(one, state="old", due_at=None, label="x") for one in (a, c)]
        assert everything(store) == [swept[0], b, swept[1]]

    def test_a_sweep_for_none_deletes(self, store: Store) -> None:
        _, b, _ = fill(store, [item("a", token="t"), item("b", state="old"), item("c")])
        assert store.sweep(ITEM, equal(state="new")) == 2
        assert everything(store) == [b]
        assert store.tally(ITEM, ("state",)) == {("old",): 1}
        assert store.page(ITEM, by="due_at") == [b]
        fill(store, [item("a", token="t")])

    def test_a_sweep_of_nothing_is_zero(self, store: Store) -> None:
        fill(store, [item("a")])
        assert store.sweep(ITEM, equal(state="never"), {"size": 1}) == 0
        assert store.sweep(ITEM, equal(state="never")) == 0
        assert store.sweep(PLAIN, ANY) == 0
        assert everything(store) == [item("a")]

    def test_a_sweep_reaches_everything_without_conditions(self, store: Store) -> None:
        fill(store, [item(f"{n:04}", due_at=None if n % 2 else n) for n in range(2500)])
        assert store.sweep(ITEM, ANY, {"size": 5}) == 2500
        assert store.tally(ITEM, ("size", "version")) == {(5, 2): 2500}
        assert store.sweep(ITEM, ANY) == 2500
        assert everything(store) == []
        assert store.tally(ITEM) == {}

    def test_every_condition_can_sweep(self, store: Store) -> None:
        fill(store, [item(f"{n}", size=n, rank=n if n % 2 else None) for n in range(10)])
        assert store.sweep(ITEM, (Condition("size", "<", 4), Condition("rank", "is set")), {"state": "x"}) == 2
        assert store.sweep(ITEM, (among("id", ("5", "6", "ghost")), outside("id", ("6",))), {"state": "x"}) == 1
        assert store.sweep(ITEM, (Condition("rank", ">=", 7),), {"state": "x"}) == 2
        assert [one.id for one in everything(store) if one.state == "x"] == ["1", "3", "5", "7", "9"]

    @pytest.mark.parametrize("values", [{"state": "old"}, None])
    def test_a_limited_sweep_takes_the_first_ones(self, store: Store, values: Mapping[str, Value] | None) -> None:
        fill(store, [item(id, due_at=at, size=-at) for id, at in (("a", 4), ("b", 1), ("c", 3), ("d", 2), ("e", 1))])
        assert store.sweep(ITEM, equal(state="new"), values, by="due_at", limit=3) == 3
        left = [one.id for one in store.page(ITEM, equal(state="new"), by="due_at")]
        assert left == ["c", "a"]
        assert store.sweep(ITEM, equal(state="new"), values, limit=1) == 1
        assert [one.id for one in store.page(ITEM, equal(state="new"))] == ["c"]
        assert store.sweep(ITEM, equal(state="new"), values, by="size", limit=100) == 1

    def test_a_record_that_moves_on_in_the_order_is_swept_once(self, store: Store) -> None:
        fill(store, [item(f"{n:03}", due_at=n) for n in range(150)])
        assert store.sweep(ITEM, ANY, {"due_at": 1000}, by="due_at", limit=1000) == 150
        assert store.sweep(ITEM, ANY, {"size": 1}, by="version", limit=1000) == 150
        assert {one.version for one in everything(store)} == {3}

    @pytest.mark.parametrize("limit", [0, -1])
    def test_a_limit_below_one_sweeps_nothing(self, store: Store, limit: int) -> None:
        items = fill(store, [item("a"), item("b")])
        assert store.sweep(ITEM, ANY, {"size": 1}, limit=limit) == 0
        assert store.sweep(ITEM, ANY, limit=limit) == 0
        assert everything(store) == items

    def test_a_record_without_a_value_in_the_order_field_is_not_swept(self, store: Store) -> None:
        fill(store, [item("a", due_at=None), item("b"), item("c")])
        assert store.sweep(ITEM, ANY, {"size": 1}, by="due_at", limit=10) == 2
        assert store.sweep(ITEM, ANY, by="due_at", limit=10) == 2
        assert everything(store) == [item("a", due_at=None)]

    def test_a_sweep_fences_out_whoever_read_earlier(self, store: Store) -> None:
        a, b = fill(store, [item("a"), item("b")])
        store.sweep(ITEM, equal(state="new"), {"state": "new"})
        for step in (Swap(ITEM, a, evolve(a)), Delete(ITEM, b)):
            with pytest.raises(Conflict):
                store.commit([step])
        assert {one.version for one in everything(store)} == {2}

    def test_a_sweep_keeps_indexes_and_unique_values_right(self, store: Store) -> None:
        fill(store, [item("a", token="t", rank=1, due_at=1), item("b", rank=2, due_at=2)])
        store.sweep(ITEM, equal(id="a"), {"rank": 3, "due_at": 3, "token": None, "lane": "right"})
        assert [one.id for one in store.page(ITEM, by="rank")] == ["b", "a"]
        assert [one.id for one in store.page(ITEM, equal(state="new"), by="due_at")] == ["b", "a"]
        assert store.tally(ITEM, ("lane",)) == {("left",): 1, ("right",): 1}
        fill(store, [item("c", token="t")])
        store.sweep(ITEM, equal(id="a"), {"rank": None})
        assert [one.id for one in store.page(ITEM, by="rank")] == ["b"]

    def test_a_sweep_that_breaks_uniqueness_conflicts_and_changes_nothing(self, store: Store) -> None:
        items = fill(store, [item("a"), item("b"), item("c", token="t", state="old")])
        for token in ("t", "new"):
            with pytest.raises(Conflict):
                store.sweep(ITEM, equal(state="new"), {"token": token})
            assert everything(store) == items
        assert store.sweep(ITEM, equal(id="c"), {"token": "t"}) == 1

    def test_an_unknown_field_is_a_mistake(self, store: Store) -> None:
        items = fill(store, [item("a")])
        with pytest.raises(ValueError, match="colour"):
            store.sweep(ITEM, equal(colour="red"), {"size": 1})
        with pytest.raises(ValueError, match="colour"):
            store.sweep(ITEM, ANY, {"colour": "red"})
        with pytest.raises(ValueError, match="colour"):
            store.sweep(ITEM, ANY, by="colour", limit=1)
        assert everything(store) == items

    def test_sweeps_and_changes_of_the_same_records_lose_nothing(self, store: Store) -> None:
        fill(store, [item(f"{n}") for n in range(3)])

        def up(found: Item | None) -> Item:
            assert found is not None
            return evolve(found, size=found.size + 1)

        changing = [repeatedly(20, partial(change, store, ITEM, f"{n % 3}", up)) for n in range(6)]
        sweeping = repeatedly(20, partial(store.sweep, ITEM, equal(state="new"), {"label": "swept"}))
        at_once([*changing, sweeping, sweeping])
        assert [(one.size, one.version) for one in everything(store)] == [(40, 81)] * 3

    def test_many_sweepers_delete_each_record_once(self, store: Store) -> None:
        fill(store, [item(f"{n:03}", state="old") for n in range(200)])

        def sweep_all() -> int:
            swept = 0
            while store.page(ITEM, limit=1):
                swept += store.sweep(ITEM, equal(state="old"), limit=9)
            return swept

        assert sum(at_once([sweep_all] * 4)) == 200
        assert store.tally(ITEM) == {}
