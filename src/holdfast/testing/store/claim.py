"""What `claim` promises: each record to one claimer, in order, as the machine says."""

from __future__ import annotations

from collections import Counter
from functools import partial

import pytest

from holdfast.errors import Conflict
from holdfast.store.change import change
from holdfast.store.port import Store, Swap
from holdfast.store.query import ANY, Condition, among, equal
from holdfast.store.record import evolve
from holdfast.testing.store.kinds import ITEM, Item, everything, fill, item
from holdfast.testing.store.threads import at_once, repeatedly

NEW = equal(state="new")


def take(found: Item) -> Item:
    return evolve(found, state="taken", due_at=None)


class ClaimConformance:
    def test_a_claim_gives_the_new_versions_in_the_order_of_due_at(self, store: Store) -> None:
        fill(store, [item("a", due_at=30), item("b", due_at=10), item("c", due_at=20), item("d", due_at=10)])
        claimed = store.claim(ITEM, NEW, take, limit=3)
        assert [one.id for one in claimed] == ["b", "d", "c"]
        assert {(one.version, one.state) for one in claimed} == {(2, "taken")}
        assert store.get(ITEM, ("b", "d", "c")) == claimed
        assert store.get(ITEM, ("a",)) == [item("a", due_at=30)]

    def test_a_claim_takes_what_its_conditions_say(self, store: Store) -> None:
        fill(store, [item("a", due_at=1), item("b", due_at=5), item("c", state="old"), item("d", due_at=None)])
        due = (*NEW, Condition("due_at", "<=", 4))
        assert [one.id for one in store.claim(ITEM, due, take, limit=10)] == ["a"]
        assert store.claim(ITEM, due, take, limit=10) == []

    def test_a_claim_follows_another_order_when_told(self, store: Store) -> None:
        fill(store, [item(id, size=size, due_at=None) for id, size in (("a", 3), ("b", -1), ("c", 2))])
        where = equal(lane="left", state="new")
        assert [one.id for one in store.claim(ITEM, where, take, by="size", limit=2)] == ["b", "c"]
        assert [one.id for one in store.claim(ITEM, ANY, take, by="id", limit=2)] == ["a", "b"]

    def test_a_record_without_a_value_in_the_order_field_is_not_claimed(self, store: Store) -> None:
        fill(store, [item("a", due_at=None), item("b", due_at=1)])
        assert [one.id for one in store.claim(ITEM, ANY, take, limit=10)] == ["b"]

    def test_a_claim_merges_the_order_of_several_values(self, store: Store) -> None:
        states = ("new", "old", "other")
        fill(store, [item(f"{n}", state=states[n % 3], due_at=n) for n in range(9)])
        claimed = store.claim(ITEM, (among("state", ("old", "new")),), take, limit=4)
        assert [one.id for one in claimed] == ["0", "1", "3", "4"]

    def test_a_record_that_moves_on_in_the_order_is_claimed_once(self, store: Store) -> None:
        fill(store, [item(f"{n:03}", due_at=n, size=n) for n in range(150)])
        later = store.claim(ITEM, ANY, lambda one: evolve(one, due_at=one.size + 1000), limit=1000)
        assert [one.id for one in later] == [f"{n:03}" for n in range(150)]
        assert {one.version for one in store.claim(ITEM, ANY, evolve, by="version", limit=1000)} == {3}
        assert {one.version for one in everything(store)} == {3}

    def test_a_record_that_moves_on_is_claimed_once_also_when_others_are_left_alone(self, store: Store) -> None:
        fill(store, [item(f"{n:02}", due_at=n) for n in range(20)])

        def every_second(found: Item) -> Item | None:
            return evolve(found, due_at=100) if int(found.id) % 2 else None

        for limit in (12, 15, 1000):
            claimed = store.claim(ITEM, ANY, every_second, limit=limit)
            assert [one.id for one in claimed] == [f"{n:02}" for n in range(1, 20, 2)]

    def test_what_the_machine_leaves_alone_does_not_count(self, store: Store) -> None:
        fill(store, [item(f"{n:03}", due_at=n) for n in range(300)])

        def every_hundredth(found: Item) -> Item | None:
            return take(found) if int(found.id) % 100 == 99 else None

        claimed = store.claim(ITEM, NEW, every_hundredth, limit=2)
        assert [one.id for one in claimed] == ["099", "199"]
        assert [one.id for one in store.claim(ITEM, NEW, every_hundredth, limit=2)] == ["299"]
        assert store.tally(ITEM, ("state",)) == {("taken",): 3, ("new",): 297}

    def test_a_machine_that_says_no_to_all_changes_nothing(self, store: Store) -> None:
        items = fill(store, [item(f"{n}", due_at=n) for n in range(10)])
        assert store.claim(ITEM, ANY, lambda _: None, limit=5) == []
        assert everything(store) == items

    def test_a_machine_that_fails_changes_nothing(self, store: Store) -> None:
        items = fill(store, [item(f"{n}", due_at=n) for n in range(10)])

        def fail_at_five(found: Item) -> Item:
            if found.id == "5":
                raise ZeroDivisionError
            return take(found)

        with pytest.raises(ZeroDivisionError):
            store.claim(ITEM, ANY, fail_at_five, limit=10)
        assert everything(store) == items
        assert len(store.claim(ITEM, ANY, take, limit=100)) == 10

    @pytest.mark.parametrize("limit", [0, -1, -100])
    def test_a_limit_below_one_claims_nothing(self, store: Store, limit: int) -> None:
        items = fill(store, [item("a"), item("b")])
        assert store.claim(ITEM, ANY, take, limit=limit) == []
        assert everything(store) == items

    def test_a_claim_takes_no_more_than_there_is(self, store: Store) -> None:
        assert store.claim(ITEM, ANY, take, limit=10) == []
        fill(store, [item("a")])
        assert len(store.claim(ITEM, ANY, take, limit=10**9)) == 1

    def test_thousands_are_claimed_at_once(self, store: Store) -> None:
        fill(store, [item(f"{n:05}", due_at=n) for n in range(3000)])
        assert [one.id for one in store.claim(ITEM, NEW, take, limit=2500)] == [f"{n:05}" for n in range(2500)]
        assert store.tally(ITEM, ("state",)) == {("taken",): 2500, ("new",): 500}

    def test_a_claim_fences_out_whoever_read_earlier(self, store: Store) -> None:
        (a,) = fill(store, [item("a")])
        (claimed,) = store.claim(ITEM, ANY, take, limit=1)
        with pytest.raises(Conflict):
            store.commit([Swap(ITEM, a, evolve(a))])
        store.commit([Swap(ITEM, claimed, evolve(claimed, state="done"))])

    def test_a_claim_keeps_indexes_counts_and_unique_values_right(self, store: Store) -> None:
        fill(store, [item("a", token="t", rank=1), item("b", rank=2)])
        store.claim(ITEM, equal(token="t"), lambda a: evolve(a, token=None, rank=3, state="old"), limit=1)
        assert [one.id for one in store.page(ITEM, by="rank")] == ["b", "a"]
        assert store.page(ITEM, equal(state="new"), by="rank") == [item("b", rank=2)]
        assert store.tally(ITEM, ("state",)) == {("old",): 1, ("new",): 1}
        fill(store, [item("c", token="t")])

    def test_a_claim_that_breaks_uniqueness_conflicts_and_changes_nothing(self, store: Store) -> None:
        items = fill(store, [item("a"), item("b"), item("c", token="t", due_at=None)])
        for token in ("t", "new"):
            with pytest.raises(Conflict):
                store.claim(ITEM, NEW, lambda found, token=token: evolve(found, token=token), limit=2)  # type: ignore[misc]
            assert everything(store) == items

    def test_many_claimers_share_the_records_and_miss_none(self, store: Store) -> None:
        fill(store, [item(f"{n:03}", due_at=n) for n in range(400)])

        def claim_all(name: str) -> list[str]:
            mine: list[str] = []
            while True:
                found = store.claim(ITEM, NEW, lambda a: evolve(a, state="taken", label=name), limit=7)
                if not found and not store.page(ITEM, NEW, limit=1):
                    return mine
                mine += [one.id for one in found]

        shares = at_once([partial(claim_all, f"{n}") for n in range(8)])
        assert Counter(id for share in shares for id in share) == Counter(f"{n:03}" for n in range(400))
        for name, share in enumerate(shares):
            assert [one.id for one in everything(store) if one.label == f"{name}"] == sorted(share)

    def test_claims_and_changes_of_the_same_records_lose_nothing(self, store: Store) -> None:
        fill(store, [item(f"{n}", due_at=n) for n in range(5)])
        claimed: list[int] = []

        def up(found: Item | None) -> Item:
            assert found is not None
            return evolve(found, size=found.size + 1)

        def claim_some() -> None:
            claimed.append(len(store.claim(ITEM, NEW, up, limit=3)))

        changing = [repeatedly(20, partial(change, store, ITEM, f"{n}", up)) for n in range(4)]
        at_once([*changing, *[repeatedly(20, claim_some)] * 4])
        assert sum(one.size for one in everything(store)) == 80 + sum(claimed)
        assert all(one.version == one.size + 1 for one in everything(store))
