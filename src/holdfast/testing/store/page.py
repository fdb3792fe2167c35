"""What `page` promises: the matching records in one order, page after page."""

from __future__ import annotations

import random
from collections.abc import Callable
from functools import partial
from itertools import product
from typing import Any

import pytest

from holdfast.store.port import FOREVER, Delete, Insert, Store
from holdfast.store.query import ANY, Condition, Cursor, Where, among, equal, outside
from holdfast.store.record import evolve
from holdfast.testing.store.kinds import ITEM, PART, PLAIN, Item, Part, Plain, fill, item

C = Condition
_TEXTS = (*" !ABZa", "a ", "a!", "aa", "b", "z", "é", "ÿ", "Ω", "中", "\ue000", "\uffff", "𐀀", "🙂")
_WHOLES = ("", "b", "b.1", "b.", "b-", "b/", "b0", "B", "b ", "ü", "𐀀")

# Each condition beside what it means.
_WHERES: dict[str, tuple[Where, Callable[[Item], bool]]] = {
    "all": (ANY, lambda r: True),
    "equal text": ((C("state", "=", "b"),), lambda r: r.state == "b"),
    "equal number": ((C("size", "=", 3),), lambda r: r.size == 3),
    "equal none": ((C("label", "=", None),), lambda r: r.label is None),
    "equal two": (equal(state="a", lane="left"), lambda r: r.state == "a" and r.lane == "left"),
    "another case": ((C("state", "=", "A"),), lambda r: False),
    "in": ((among("state", ("a", "c")),), lambda r: r.state in ("a", "c")),
    "in twice the same": ((among("state", ("a", "a")),), lambda r: r.state == "a"),
    "in none": ((among("state", ()),), lambda r: False),
    "in with null": ((among("label", ("x", None)),), lambda r: r.label in ("x", None)),
    "in numbers": ((among("rank", (1, 2)),), lambda r: r.rank in (1, 2)),
    "in two fields": (
        (among("state", ("a", "b", "?")), among("lane", ("left", "?"))),
        lambda r: r.state in ("a", "b") and r.lane == "left",
    ),
    "not in": ((outside("state", ("a", "c")),), lambda r: r.state == "b"),
    "not in nothing": ((outside("state", ()),), lambda r: True),
    "not in lets null pass": ((outside("label", ("x", "y")),), lambda r: r.label not in ("x", "y")),
    "not in with null": ((outside("label", ("x", None)),), lambda r: r.label not in ("x", None)),
    "less": ((C("size", "<", 3),), lambda r: r.size < 3),
    "at most": ((C("size", "<=", 3),), lambda r: r.size <= 3),
    "greater": ((C("size", ">", 3),), lambda r: r.size > 3),
    "at least": ((C("size", ">=", 3),), lambda r: r.size >= 3),
    "between": ((C("size", ">", 1), C("size", "<=", 4)), lambda r: 1 < r.size <= 4),
    "nowhere": ((C("size", ">", 4), C("size", "<", 1)), lambda r: False),
    "less where null": ((C("rank", "<", 2),), lambda r: r.rank is not None and r.rank < 2),
    "at least where null": ((C("rank", ">=", -1),), lambda r: r.rank is not None and r.rank >= -1),
    "text below": ((C("label", "<", "y"),), lambda r: r.label is not None and r.label < "y"),
    "text from": ((C("label", ">=", "X"),), lambda r: r.label is not None and r.label >= "X"),
    "id above": ((C("id", ">", "020"),), lambda r: r.id > "020"),
    "null": ((C("rank", "is null"),), lambda r: r.rank is None),
    "set": ((C("label", "is set"),), lambda r: r.label is not None),
    "due": (
        (C("state", "=", "a"), C("due_at", "<=", 5), C("rank", "is set")),
        lambda r: r.state == "a" and r.due_at is not None and r.due_at <= 5 and r.rank is not None,
    ),
    "without an index": ((C("body", "=", "even"), C("version", "=", 1)), lambda r: r.body == "even"),
    "contradiction": ((C("state", "=", "a"), among("state", ("b", "c"))), lambda r: False),
    "both": ((among("state", ("a", "b")), outside("state", ("b",))), lambda r: r.state == "a"),
}


def assorted(number: int = 120) -> list[Item]:
    """Items with many ties and gaps, the same ones every time."""
    rng = random.Random(7)
    return [
        item(
            f"{n:03}",
            due_at=rng.choice((None, -5, 0, 3, 5, 9)),
            state=rng.choice("abc"),
            lane=rng.choice(("left", "right")),
            size=rng.randrange(-1, 7),
            rank=rng.choice((None, -2, 0, 1, 2)),
            label=rng.choice((None, "", "X", "x", "y", "é", "🙂")),
            token=rng.choice((None, f"t{n}")),
            body="even" if n % 2 == 0 else "odd",
        )
        for n in rng.sample(range(number), number)
    ]


def ordered(items: list[Item], by: str, descending: bool = False) -> list[Item]:
    """What a page shows of these: None is not in the order."""
    there = [one for one in items if getattr(one, by) is not None]
    return sorted(there, key=lambda one: (getattr(one, by), one.id), reverse=descending)


def ids(items: list[Any]) -> list[str]:
    return [one.id for one in items]


class PageConformance:
    @pytest.mark.parametrize("by", ["id", "due_at", "size", "rank", "label", "token", "body", "version"])
    def test_conditions_and_order_mean_the_same_on_every_store(self, store: Store, by: str) -> None:
        items = fill(store, assorted())
        for (name, (where, holds)), descending in product(_WHERES.items(), (False, True)):
            page = partial(store.page, ITEM, where, by=by, descending=descending)
            expected = ordered([one for one in items if holds(one)], by, descending)
            assert page(limit=1000) == expected, name
            assert page(limit=5, offset=3) == expected[3:8], name
            if len(expected) > 4:
                cursor = Cursor(getattr(expected[3], by), expected[3].id)
                assert page(after=cursor, limit=5) == expected[4:9], name

    def test_a_kind_without_indexes_is_paged_by_any_field(self, store: Store) -> None:
        values = ["b", None, "a", "", "B", "b"]
        plains = [Plain(f"{n}", 1, 9 - n if n % 2 else None, value) for n, value in enumerate(values)]
        store.commit([Insert(PLAIN, one) for one in plains])
        assert ids(store.page(PLAIN)) == ["0", "1", "2", "3", "4", "5"]
        assert ids(store.page(PLAIN, by="value")) == ["3", "4", "2", "0", "5"]
        assert ids(store.page(PLAIN, by="due_at", descending=True)) == ["1", "3", "5"]
        assert ids(store.page(PLAIN, (C("value", ">=", "a"),), by="value", descending=True)) == ["5", "0", "2"]
        assert ids(store.page(PLAIN, (C("value", "is null"),))) == ["1"]

    @pytest.mark.parametrize("descending", [False, True])
    @pytest.mark.parametrize("by", ["id", "size", "due_at", "label"])
    def test_a_cursor_walks_through_everything_once(self, store: Store, by: str, descending: bool) -> None:
        where = equal(state="a")
        items = [one for one in fill(store, assorted()) if one.state == "a"]
        seen: list[Item] = []
        cursor: Cursor | None = None
        while found := store.page(ITEM, where, by=by, descending=descending, after=cursor, limit=7):
            seen += found
            cursor = Cursor(getattr(found[-1], by), found[-1].id)
        assert seen == ordered(items, by, descending)

    def test_a_cursor_is_steady_while_records_come_and_go(self, store: Store) -> None:
        items = fill(store, [item(f"m{n}", size=n) for n in range(6)])
        first = store.page(ITEM, by="size", limit=3)
        fill(store, [item("early", size=-1), item("a", size=2), item("late", size=4)])
        store.commit([Delete(ITEM, items[2]), Delete(ITEM, items[3])])
        rest = store.page(ITEM, by="size", after=Cursor(first[-1].size, first[-1].id), limit=10)
        assert ids(first) == ["m0", "m1", "m2"]
        assert ids(rest) == ["late", "m4", "m5"]

    def test_offset_counts_from_the_cursor(self, store: Store) -> None:
        fill(store, [item(f"{n}", size=n) for n in range(10)])
        assert ids(store.page(ITEM, by="size", after=Cursor(3, "3"), offset=2, limit=2)) == ["6", "7"]
        assert ids(store.page(ITEM, by="size", descending=True, after=Cursor(3, "3"), offset=2, limit=2)) == ["0"]

    @pytest.mark.parametrize("whole", _WHOLES)
    def test_the_parts_of_a_whole_are_found_whatever_it_is_called(self, store: Store, whole: str) -> None:
        parts = [Part(f"{one}.{n}", 1, n, one, n) for one in _WHOLES for n in range(9)]
        store.commit([Insert(PART, one) for one in parts])
        own, where = [one for one in parts if one.whole == whole], equal(whole=whole)
        assert store.page(PART, where) == own
        assert store.page(PART, where, by="size", descending=True) == own[::-1]
        assert store.page(PART, (*where, C("id", ">", own[2].id), C("id", "<=", own[6].id))) == own[3:7]
        assert store.page(PART, (*where, C("id", ">=", ""), C("id", "<", "\U0010ffff"))) == own
        for end in ("", "\U0010ffff", own[4].id):
            up, down = [one for one in own if one.id > end], [one for one in own[::-1] if one.id < end]
            assert store.page(PART, where, after=Cursor(end, end), limit=3) == up[:3]
            assert store.page(PART, where, descending=True, after=Cursor(end, end), limit=3) == down[:3]
        assert store.tally(PART, ("whole",), where) == {(whole,): 9}
        assert len(store.page(PART, (among("whole", (whole, "nobody")),), limit=3)) == 3
        assert store.claim(PART, where, evolve, by="id", limit=2) == [evolve(one) for one in own[:2]]
        assert store.sweep(PART, where, by="id", limit=4) == 4
        assert store.sweep(PART, where) == 5
        assert store.tally(PART) == {(): len(parts) - 9}

    def test_an_offset_beyond_the_end_gives_nothing(self, store: Store) -> None:
        fill(store, [item("a")])
        assert store.page(ITEM, offset=5) == []

    @pytest.mark.parametrize("by", ["id", "size", "due_at"])
    def test_limits_and_offsets_below_zero_act_as_zero(self, store: Store, by: str) -> None:
        fill(store, [item("a"), item("b")])
        assert store.page(ITEM, by=by, limit=0) == []
        assert store.page(ITEM, by=by, limit=-1) == []
        assert ids(store.page(ITEM, by=by, offset=-3, limit=1)) == ["a"]

    def test_a_page_has_a_hundred_records_unless_told(self, store: Store) -> None:
        fill(store, [item(f"{n:03}") for n in range(120)])
        assert ids(store.page(ITEM)) == [f"{n:03}" for n in range(100)]
        assert len(store.page(ITEM, limit=10**9)) == 120

    def test_ties_are_ordered_by_id(self, store: Store) -> None:
        fill(store, [item(id, size=1, due_at=1) for id in ("c", "a", "B", "d", "é", "b")])
        assert ids(store.page(ITEM, by="size")) == ["B", "a", "b", "c", "d", "é"]
        assert ids(store.page(ITEM, equal(state="new"), by="due_at", descending=True)) == ["é", "d", "c", "b", "a", "B"]

    @pytest.mark.parametrize("by", ["label", "id", "body"])
    def test_texts_are_in_the_order_of_their_code_points(self, store: Store, by: str) -> None:
        texts = _TEXTS if by == "id" else ("", *_TEXTS)
        shuffled = random.Random(3).sample(texts, len(texts))
        values = [{"label": t, "body": t, "id": t if by == "id" else f"{n}"} for n, t in enumerate(shuffled)]
        fill(store, [item(**value) for value in values])
        assert [getattr(one, by) for one in store.page(ITEM, equal(lane="left"), by=by)] == list(texts)
        for at, text in enumerate(texts):
            below = store.page(ITEM, (C(by, "<", text),), by=by)
            assert [getattr(one, by) for one in below] == list(texts[:at])
            after = store.page(ITEM, by=by, after=Cursor(text, "\U0010ffff" if by != "id" else text))
            assert [getattr(one, by) for one in after] == list(texts[at + 1 :])

    @pytest.mark.parametrize("by", ["size", "due_at", "number"])
    def test_numbers_are_in_the_order_of_their_value(self, store: Store, by: str) -> None:
        numbers = [-FOREVER, -(2**53), -10, -9, -1, 0, 1, 9, 10, 11, 10**15, 2**53 - 2, 2**53 - 1, 2**53, FOREVER]
        shuffled = random.Random(3).sample(numbers, len(numbers))
        fill(store, [item(f"{n}", **{by: number}) for n, number in enumerate(shuffled)])
        assert [getattr(one, by) for one in store.page(ITEM, by=by)] == numbers
        for at, number in enumerate(numbers):
            above = store.page(ITEM, (C(by, ">", number),), by=by)
            assert [getattr(one, by) for one in above] == numbers[at + 1 :]

    def test_a_condition_holds_as_many_values_as_it_must(self, store: Store) -> None:
        items = fill(store, [item(f"{n:05}", size=n) for n in range(4000)])
        wanted = [one.id for one in items[::2]]
        assert ids(store.page(ITEM, (among("id", wanted),), limit=5000)) == wanted
        assert ids(store.page(ITEM, (outside("id", wanted),), limit=5000)) == [one.id for one in items[1::2]]
        assert ids(store.page(ITEM, (among("size", range(3990, 9000)),), by="size")) == ids(items[3990:])

    def test_values_that_look_like_patterns_are_values(self, store: Store) -> None:
        fill(store, [item("a", state="%", label="*"), item("b", state="x", label="x")])
        assert ids(store.page(ITEM, equal(state="%"))) == ["a"]
        assert ids(store.page(ITEM, equal(label="*"))) == ["a"]
        assert store.page(ITEM, equal(state="_")) == []

    def test_an_unknown_field_or_operator_is_a_mistake(self, store: Store) -> None:
        fill(store, [item("a")])
        with pytest.raises(ValueError, match="colour"):
            store.page(ITEM, equal(colour="red"))
        with pytest.raises(ValueError, match="colour"):
            store.page(ITEM, by="colour")
        with pytest.raises(ValueError, match="like"):
            store.page(ITEM, (C("state", "like", "a%"),))  # type: ignore[arg-type]  # the point
        with pytest.raises(ValueError, match="colour"):
            store.claim(ITEM, equal(colour="red"), lambda found: found, limit=1)
        with pytest.raises(ValueError, match="colour"):
            store.claim(ITEM, ANY, lambda found: found, by="colour", limit=1)

    def test_an_empty_store_has_empty_pages(self, store: Store) -> None:
        assert store.page(ITEM) == []
        assert store.page(PLAIN, by="value", descending=True) == []
        assert store.page(ITEM, equal(state="x"), by="due_at", after=Cursor(5, "5")) == []
