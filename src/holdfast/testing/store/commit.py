"""What `commit` promises: all or nothing, fenced by the version, one holder of a unique value."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial

import pytest

from holdfast.errors import Conflict
from holdfast.store.port import Change, Delete, Insert, Store, Swap
from holdfast.store.record import evolve
from holdfast.testing.store.kinds import ITEM, PART, PLAIN, Part, Plain, everything, fill, item
from holdfast.testing.store.threads import at_once

_MANY = 5000


def refused(store: Store, changes: Sequence[Change]) -> tuple[int, ...]:
    """The positions that the commit lost; nothing else may have happened."""
    before, counts = everything(store), store.tally(ITEM, ("lane", "state"))
    arrived = store.tally(ITEM, ("lane",), arrivals=True)
    with pytest.raises(Conflict) as caught:
        store.commit(changes)
    assert everything(store) == before
    assert store.tally(ITEM, ("lane", "state")) == counts
    assert store.tally(ITEM, ("lane",), arrivals=True) == arrived
    return caught.value.lost


class CommitConformance:
    def test_an_insert_of_an_id_that_is_there_conflicts(self, store: Store) -> None:
        fill(store, [item("a", size=1)])
        assert refused(store, [Insert(ITEM, item("a", size=2))]) == (0,)

    def test_a_swap_puts_the_next_version_in_place(self, store: Store) -> None:
        (a,) = fill(store, [item("a")])
        b = evolve(a, state="old", size=7, label="x", due_at=None)
        store.commit([Swap(ITEM, a, b)])
        assert store.get(ITEM, ("a",)) == [b]
        assert b.version == 2

    def test_a_swap_from_a_version_of_the_past_conflicts(self, store: Store) -> None:
        (a,) = fill(store, [item("a")])
        store.commit([Swap(ITEM, a, evolve(a, size=1))])
        assert refused(store, [Swap(ITEM, a, evolve(a, size=2))]) == (0,)

    def test_a_swap_or_delete_of_what_is_not_there_conflicts(self, store: Store) -> None:
        fill(store, [item("a")])
        ghost = item("ghost")
        assert refused(store, [Swap(ITEM, ghost, evolve(ghost, size=1))]) == (0,)
        assert refused(store, [Delete(ITEM, ghost)]) == (0,)
        nothing = Plain("ghost", 1, None, None)
        assert refused(store, [Swap(PLAIN, nothing, evolve(nothing, value="x"))]) == (0,)
        assert refused(store, [Delete(PLAIN, nothing)]) == (0,)

    def test_a_delete_of_a_version_of_the_past_conflicts(self, store: Store) -> None:
        (a,) = fill(store, [item("a")])
        b = evolve(a)
        store.commit([Swap(ITEM, a, b)])
        assert refused(store, [Delete(ITEM, a)]) == (0,)
        store.commit([Delete(ITEM, b)])
        assert store.get(ITEM, ("a",)) == [None]

    def test_a_record_made_anew_under_an_old_id_is_not_the_old_one(self, store: Store) -> None:
        (a,) = fill(store, [item("a")])
        b = evolve(a)
        store.commit([Swap(ITEM, a, b)])
        store.commit([Delete(ITEM, b)])
        fill(store, [item("a", size=9)])
        assert refused(store, [Swap(ITEM, b, evolve(b))]) == (0,)
        assert store.get(ITEM, ("a",)) == [item("a", size=9)]

    def test_only_the_version_tells_whether_a_record_is_as_it_was_read(self, store: Store) -> None:
        # A caller that knows id and version need not have the other values right, also when the commit is undone.
        a, _ = fill(store, [item("a", size=5, token="t"), item("b", lane="right")])
        guess = item("a", size=1, lane="right", state="guess")
        gone = item("b", size=1)
        changes: list[Change] = [Swap(ITEM, guess, evolve(a, size=6)), Delete(ITEM, gone)]
        assert refused(store, [*changes, Delete(ITEM, item("ghost"))]) == (2,)
        store.commit(changes)
        assert everything(store) == [evolve(a, size=6)]
        assert store.tally(ITEM, ("lane", "state")) == {("left", "new"): 1}

    def test_a_record_made_anew_is_swapped_as_a_whole(self, store: Store) -> None:
        # Whoever read the first of two records of one id and version may swap the second; nothing of it may stay.
        (a,) = fill(store, [item("a", body="first" * 2000, label="x")])
        store.commit([Delete(ITEM, a)])
        fill(store, [item("a", body="second" * 2000, label="y")])
        store.commit([Swap(ITEM, a, evolve(a, size=1))])
        assert store.get(ITEM, ("a",)) == [evolve(a, size=1)]

    def test_what_a_record_was_born_with_tells_it_from_an_earlier_one(self, store: Store) -> None:
        old, new = Part("w.a", 1, None, "w", 1, 10, "first" * 2000), Part("w.a", 1, None, "w", 1, 11, "second")
        store.commit([Insert(PART, old)])
        store.commit([Delete(PART, old)])
        store.commit([Insert(PART, new), Insert(PART, Part("w.b", 1, None, "w", 1))])
        for late in (evolve(old, size=2), evolve(old, body=""), evolve(old, made_at=11), evolve(old)):
            assert refused(store, [Swap(PART, old, late)]) == (0,)
            assert refused(store, [Insert(ITEM, item("x")), Swap(PART, old, late)]) == (1,)
        assert refused(store, [Delete(PART, old)]) == (0,)
        assert refused(store, [Insert(ITEM, item("x")), Delete(PART, old)]) == (1,)
        assert store.get(PART, ("w.a",)) == [new]
        last = evolve(new, size=3)
        store.commit([Insert(ITEM, item("x")), Swap(PART, new, last)])
        assert refused(store, [Swap(PART, new, evolve(new))]) == (0,)
        assert refused(store, [Delete(PART, new)]) == (0,)
        assert store.get(PART, ("w.a",)) == [last]
        store.commit([Swap(PART, last, evolve(last, body="third" * 2000))])
        store.commit([Delete(PART, one) for one in store.page(PART)])
        assert store.page(PART) == []

    def test_many_are_deleted_only_if_all_are_those_that_were_read(self, store: Store) -> None:
        parts = [Part(f"w.{n:03}", 1, None, "w", 1, n) for n in range(120)]
        store.commit([Insert(PART, one) for one in parts])
        late = [one._replace(made_at=one.made_at + 1) if one.id == "w.077" else one for one in parts]
        assert refused(store, [Delete(PART, one) for one in late]) == (77,)
        assert refused(store, [Swap(PART, one, evolve(one, size=2)) for one in late]) == (77,)
        assert store.page(PART, limit=200) == parts
        store.commit([Swap(PART, one, evolve(one, size=2)) for one in parts])
        store.commit([Delete(PART, evolve(one, size=2)) for one in parts])
        assert store.page(PART) == []

    def test_all_changes_are_made_or_none(self, store: Store) -> None:
        a, b, c = fill(store, [item("a"), item("b"), item("c", token="t")])
        stale = evolve(b, size=1)
        lost = refused(
            store,
            [
                Insert(ITEM, item("d", token="u")),
                Swap(ITEM, a, evolve(a, state="old")),
                Swap(ITEM, stale, evolve(stale)),
                Delete(ITEM, c),
            ],
        )
        assert lost == (2,)
        fill(store, [item("e", token="u")])

    def test_every_change_that_could_not_be_made_is_named(self, store: Store) -> None:
        items = fill(store, [item(f"{n}") for n in range(10)])
        changes: list[Change] = [
            Insert(ITEM, item("3")),
            Insert(ITEM, item("new")),
            Swap(ITEM, items[1], evolve(items[1])),
            Swap(ITEM, evolve(items[2]), evolve(items[2])),
            Delete(ITEM, evolve(items[4])),
            Delete(ITEM, items[5]),
            Insert(PLAIN, Plain("p", 1, None, None)),
            Delete(PLAIN, Plain("q", 1, None, None)),
        ]
        assert refused(store, changes) == (0, 3, 4, 7)
        assert store.get(PLAIN, ("p",)) == [None]

    def test_the_same_new_id_twice_conflicts(self, store: Store) -> None:
        assert refused(store, [Insert(ITEM, item("a")), Insert(ITEM, item("a", size=2))]) == (1,)

    def test_changes_of_several_kinds_live_or_die_together(self, store: Store) -> None:
        (a,) = fill(store, [item("a")])
        plain = Plain("p", 1, None, "x")
        store.commit([Insert(PLAIN, plain), Swap(ITEM, a, evolve(a, size=1))])
        assert refused(store, [Swap(PLAIN, plain, evolve(plain, value="y")), Swap(ITEM, a, evolve(a))]) == (1,)
        assert store.get(PLAIN, ("p",)) == [plain]

    def test_the_changes_of_a_commit_follow_one_another(self, store: Store) -> None:
        a = item("a")
        b, c = evolve(a, size=1), evolve(evolve(a, size=1), size=2)
        store.commit([Insert(ITEM, a), Swap(ITEM, a, b), Swap(ITEM, b, c)])
        assert store.get(ITEM, ("a",)) == [c]
        store.commit([Delete(ITEM, c), Insert(ITEM, item("a", size=9))])
        assert store.get(ITEM, ("a",)) == [item("a", size=9)]
        assert store.tally(ITEM) == {(): 1}
        assert store.tally(ITEM, arrivals=True) == {(): 2}

    def test_no_changes_are_no_mistake(self, store: Store) -> None:
        store.commit([])
        assert everything(store) == []

    @pytest.mark.parametrize(("field", "value"), [("token", "t"), ("token", ""), ("number", 7), ("number", 0)])
    def test_a_unique_value_is_held_once(self, store: Store, field: str, value: str | int) -> None:
        fill(store, [item("a", **{field: value}), item("b")])
        assert refused(store, [Insert(ITEM, item("c", **{field: value}))]) == (0,)
        b = item("b")
        assert refused(store, [Swap(ITEM, b, evolve(b, **{field: value}))]) == (0,)

    def test_the_holder_keeps_its_unique_value_over_a_swap(self, store: Store) -> None:
        (a,) = fill(store, [item("a", token="t", number=1)])
        store.commit([Swap(ITEM, a, evolve(a, size=1))])
        assert refused(store, [Insert(ITEM, item("b", token="t"))]) == (0,)

    def test_none_is_unique_any_number_of_times(self, store: Store) -> None:
        items = fill(store, [item(f"{n}", token="t" if n == 3 else None) for n in range(10)])
        store.commit([Swap(ITEM, items[3], evolve(items[3], token=None))])
        assert store.tally(ITEM, where=()) == {(): 10}

    def test_unique_values_are_compared_as_they_are(self, store: Store) -> None:
        tokens = ("t", "T", "t ", " t", "", " ", "tt", "é", "e\u0301", "🙂", "ß", "ss")
        items = fill(store, [item(f"{n}", token=token) for n, token in enumerate(tokens)])
        assert store.get(ITEM, [one.id for one in items]) == items

    def test_a_delete_or_a_swap_frees_a_unique_value(self, store: Store) -> None:
        a, b = fill(store, [item("a", token="a"), item("b", token="b")])
        store.commit([Delete(ITEM, a)])
        store.commit([Swap(ITEM, b, evolve(b, token="a"))])
        fill(store, [item("c", token="b")])
        assert refused(store, [Insert(ITEM, item("d", token="a"))]) == (0,)

    def test_a_unique_value_changes_hands_within_a_commit(self, store: Store) -> None:
        a, b, c = fill(store, [item("a", token="a"), item("b", token="b"), item("c")])
        store.commit(
            [
                Delete(ITEM, a),
                Insert(ITEM, item("d", token="a")),
                Swap(ITEM, b, evolve(b, token=None)),
                Swap(ITEM, c, evolve(c, token="b")),
            ]
        )
        assert [one.token for one in everything(store)] == [None, "b", "a"]

    def test_two_inserts_of_one_unique_value_conflict(self, store: Store) -> None:
        assert refused(store, [Insert(ITEM, item("a", token="t")), Insert(ITEM, item("b", token="t"))]) == (1,)

    def test_a_conflict_over_a_unique_value_names_its_position_among_many(self, store: Store) -> None:
        fill(store, [item("holder", token="t77")])
        changes = [Insert(ITEM, item(f"{n:03}", token=f"t{n}")) for n in range(100)]
        assert refused(store, changes) == (77,)

    def test_thousands_of_changes_are_one_commit(self, store: Store) -> None:
        items = fill(store, [item(f"{n:05}", token=f"{n}", size=n) for n in range(_MANY)])
        assert store.tally(ITEM) == {(): _MANY}
        swapped = [evolve(one, size=one.size + 1, state="old") for one in items]
        store.commit([Swap(ITEM, old, new) for old, new in zip(items, swapped, strict=True)])
        assert everything(store) == swapped
        assert refused(store, [*(Delete(ITEM, one) for one in swapped), Delete(ITEM, item("ghost"))]) == (_MANY,)
        store.commit([Delete(ITEM, one) for one in swapped])
        assert everything(store) == []
        assert store.tally(ITEM) == {}

    def test_of_many_who_insert_one_id_one_succeeds(self, store: Store) -> None:
        assert len(_winners(store, lambda n: Insert(ITEM, item("a", size=n)))) == 1

    def test_of_many_who_insert_one_unique_value_one_succeeds(self, store: Store) -> None:
        winners = _winners(store, lambda n: Insert(ITEM, item(f"{n}", token="t")))
        assert [one.id for one in everything(store)] == [f"{n}" for n in winners]
        assert len(winners) == 1

    def test_of_many_who_swap_one_version_one_succeeds(self, store: Store) -> None:
        (a,) = fill(store, [item("a")])
        winners = _winners(store, lambda n: Swap(ITEM, a, evolve(a, size=n)))
        assert [one.size for one in everything(store)] == winners

    def test_commits_that_meet_in_opposite_order_both_end(self, store: Store) -> None:
        fill(store, [item("a"), item("b")])

        def both_up(first: str, second: str) -> int:
            done = 0
            for _ in range(20):
                pair = [one for one in store.get(ITEM, (first, second)) if one is not None]
                try:
                    store.commit([Swap(ITEM, one, evolve(one, size=one.size + 1)) for one in pair])
                    done += 1
                except Conflict:
                    pass
            return done

        done = sum(at_once([lambda: both_up("a", "b"), lambda: both_up("b", "a")] * 2))
        assert [one.size for one in everything(store)] == [done, done]


def _winners(store: Store, change: Callable[[int], Change]) -> list[int]:
    def try_one(n: int) -> bool:
        try:
            store.commit([change(n)])
        except Conflict:
            return False
        return True

    return [n for n, won in enumerate(at_once([partial(try_one, n) for n in range(8)])) if won]
