"""What `get` promises, and that values come back as they went in."""

from __future__ import annotations

import pytest

from holdfast.store.port import FOREVER, Insert, Store, Swap
from holdfast.store.record import evolve
from holdfast.testing.store.kinds import ITEM, PLAIN, Plain, fill, item

_LOOKALIKES = ("a", "A", "a ", " a", "á", "a\u0301", "0", "00", "0.0", "None", "a\n", "ß", "ss", "I", "i", "ı")
_STORABLE = ("", " ", "a'b", 'a"b', "%", "_", "*", "[a]", "\\", "a:b{c}", "\n", "🙂", "None")
_ODD = (*_STORABLE, "x" * 10_000, "\0", "a\0b", "\ud800")
_TEXTS = (
    "",
    " ",
    "null",
    "None",
    "trailing ",
    "'; DROP TABLE items; --",
    "%s %(a)s :a ? $1 {} \\ \\n",
    "line\nline\r\nline\ttab",
    "\x01\x1f\x7f\x80\x9f",
    "naïve Ελληνικά 中文 עברית",
    "e\u0301 \u200b\ufeff\u2028",
    "\ud7ff\ue000\uffff",
    "🙂👩‍👩‍👧\U0010ffff",
)
_NUMBERS = (0, -1, 1, 2**31, -(2**31) - 1, 2**53, 2**53 - 1, -(2**53), 1_767_225_600_000_001, FOREVER, -FOREVER)


class GetConformance:
    def test_get_gives_records_in_the_order_asked_for(self, store: Store) -> None:
        a, b, c = fill(store, [item("a"), item("b"), item("c")])
        assert store.get(ITEM, ("c", "a", "b")) == [c, a, b]
        assert store.get(ITEM, ["b", "a", "b"]) == [b, a, b]

    def test_get_gives_none_for_an_id_that_is_not_there(self, store: Store) -> None:
        (a,) = fill(store, [item("a")])
        assert store.get(ITEM, ("x", "a", "y")) == [None, a, None]

    def test_get_of_no_ids_gives_nothing(self, store: Store) -> None:
        assert store.get(ITEM, ()) == []

    def test_odd_ids_are_merely_not_there(self, store: Store) -> None:
        (a,) = fill(store, [item("a")])
        assert store.get(ITEM, (*_ODD, "a")) == [*[None] * len(_ODD), a]
        for odd in _ODD:
            assert store.get(ITEM, (odd,)) == [None]
            assert store.get(PLAIN, (odd,)) == [None]

    def test_an_id_of_another_type_is_merely_not_there(self, store: Store) -> None:
        fill(store, [item("1"), item("None"), item("1.0")])
        assert store.get(ITEM, (1, None, 1.0, b"1", ("1",))) == [None] * 5  # type: ignore[arg-type]  # the point

    def test_ids_that_look_alike_are_different(self, store: Store) -> None:
        items = fill(store, [item(id) for id in _LOOKALIKES])
        assert store.get(ITEM, _LOOKALIKES) == items
        assert store.get(ITEM, ("b", "AA", "a  ")) == [None, None, None]

    def test_odd_ids_can_be_kept(self, store: Store) -> None:
        items = fill(store, [item(id) for id in _STORABLE])
        assert store.get(ITEM, _STORABLE) == items

    def test_many_ids_are_read_at_once(self, store: Store) -> None:
        items = fill(store, [item(f"{n:05}") for n in range(5000)])
        assert store.get(ITEM, [one.id for one in reversed(items)]) == items[::-1]

    def test_kinds_are_kept_apart(self, store: Store) -> None:
        fill(store, [item("same")])
        assert store.get(PLAIN, ("same",)) == [None]
        store.commit([Insert(PLAIN, Plain("same", 1, None, "other"))])
        assert store.get(PLAIN, ("same",)) == [Plain("same", 1, None, "other")]
        assert store.get(ITEM, ("same",)) == [item("same")]

    @pytest.mark.parametrize("text", _TEXTS, ids=ascii)
    def test_texts_come_back_as_they_were(self, store: Store, text: str) -> None:
        kept = item("a", label=text, token=text, state=text, lane=text, body=text)
        fill(store, [kept])
        store.commit([Insert(PLAIN, Plain("p", 1, None, text))])
        assert store.get(ITEM, ("a",)) == [kept]
        assert store.get(PLAIN, ("p",)) == [Plain("p", 1, None, text)]
        swapped = evolve(kept, body=text + text)
        store.commit([Swap(ITEM, kept, swapped)])
        assert store.get(ITEM, ("a",)) == [swapped]

    @pytest.mark.parametrize("number", _NUMBERS)
    def test_whole_numbers_come_back_as_they_were(self, store: Store, number: int) -> None:
        kept = item("a", due_at=number, size=number, rank=number, number=number)
        fill(store, [kept])
        (found,) = store.get(ITEM, ("a",))
        assert found == kept
        assert found is not None
        assert {type(value) for value in (found.version, found.due_at, found.size, found.rank, found.number)} == {int}

    def test_none_is_neither_the_empty_text_nor_zero(self, store: Store) -> None:
        nothing = item("none", due_at=None, rank=None, label=None, token=None, number=None)
        empty = item("empty", due_at=0, rank=0, label="", token="", number=0)
        fill(store, [nothing, empty])
        assert store.get(ITEM, ("none", "empty")) == [nothing, empty]
        store.commit([Insert(PLAIN, Plain("none", 1, None, None)), Insert(PLAIN, Plain("empty", 1, 0, ""))])
        assert store.get(PLAIN, ("none", "empty")) == [Plain("none", 1, None, None), Plain("empty", 1, 0, "")]

    def test_a_large_text_comes_back_whole(self, store: Store) -> None:
        kept = item("a", body="0123456789abcdé🙂" * 65_536)
        fill(store, [kept])
        (found,) = store.get(ITEM, ("a",))
        assert found is not None
        assert found.body == kept.body

    def test_records_are_of_the_kinds_type(self, store: Store) -> None:
        fill(store, [item("a")])
        (found,) = store.get(ITEM, ("a",))
        assert type(found) is ITEM.record
        assert type(store.page(ITEM)[0]) is ITEM.record
