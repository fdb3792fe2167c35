"""Conditions on their own: what each operator means for a value, and which questions are refused."""

from __future__ import annotations

from typing import Any

import pytest

from holdfast.store.query import ANY, Condition, Cursor, among, check, equal, kind_has, matcher, outside
from holdfast.testing.store import ITEM, item


@pytest.mark.parametrize(
    ("operator", "value", "yes", "no"),
    [
        ("=", "a", ["a"], ["A", "", None]),
        ("=", 0, [0], [1, None]),
        ("=", None, [None], ["", 0]),
        ("in", ("a", None), ["a", None], ["b"]),
        ("in", (), [], ["a", None]),
        ("not in", ("a",), ["b", None], ["a"]),
        ("not in", (), ["a", None], []),
        ("<", 3, [2, -1], [3, 4, None]),
        ("<=", 3, [2, 3], [4, None]),
        (">", 3, [4], [3, None]),
        (">=", 3, [3, 4], [2, None]),
        ("<", "b", ["a", "B", ""], ["b", "é", None]),
        (">", "\uffff", ["🙂"], ["a", None]),
        ("is null", None, [None], ["", 0]),
        ("is set", None, ["", 0], [None]),
    ],
)
def test_an_operator_holds_for_these_values(operator: Any, value: Any, yes: list[Any], no: list[Any]) -> None:
    condition = Condition("label", operator, value)
    assert all(condition.holds(actual) for actual in yes)
    assert not any(condition.holds(actual) for actual in no)


def test_equal_leaves_out_what_is_none_but_not_what_is_empty() -> None:
    assert equal(state=None) == ANY
    assert equal(state="", size=0, label=None) == (Condition("state", "=", ""), Condition("size", "=", 0))


def test_among_and_outside_take_any_collection() -> None:
    assert among("size", range(3)) == Condition("size", "in", (0, 1, 2))
    assert outside("state", ["a"]) == Condition("state", "not in", ("a",))


def test_all_conditions_must_hold() -> None:
    matches = matcher(ITEM, (*equal(state="new"), Condition("size", ">", 1)))
    assert matches(item("a", size=2))
    assert not matches(item("a", size=1))
    assert not matches(item("a", size=2, state="old"))
    assert matcher(ITEM, ANY)(item("a"))


def test_an_unknown_field_is_refused_with_those_that_there_are() -> None:
    with pytest.raises(ValueError, match=r"conformance_item has no field 'colour'; it has id, version, due_at, state"):
        check(ITEM, equal(colour="red"))
    with pytest.raises(ValueError, match="no field 'colour'"):
        kind_has(ITEM, ("id", "colour"))


def test_an_unknown_operator_is_refused_with_those_that_there_are() -> None:
    with pytest.raises(ValueError, match=r"'like' is no operator; use one of <, <=, =, >"):
        check(ITEM, [Condition("state", "like", "a%")])  # type: ignore[arg-type]


def test_a_cursor_is_a_value_and_an_id() -> None:
    assert Cursor(5, "a") == (5, "a")
