"""Conditions as text: what they may say, what they mean, and what they refuse."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.errors import PermanentError, WorkflowDefinitionError
from holdfast.workflows.expressions import DEEPEST, LONGEST, Expression, evaluate

NAMES: dict[str, Any] = {
    "order": {"total": 120, "country": "DE", "items": [{"sku": "a"}, {"sku": "b"}], "paid": True, "note": None},
    "limit": 100,
    "tags": ["new", "big"],
}


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("limit", 100),
        ("order.total", 120),
        ("order['total']", 120),
        ("order.items[0].sku", "a"),
        ("order.items[-1]['sku']", "b"),
        ("order.total > limit", True),
        ("limit <= 100 < order.total", True),
        ("100 < limit < order.total", False),
        ("order.total != -1.5", True),
        ("'new' in tags", True),
        ("'new' not in tags", False),
        ("order.country in ['DE', 'FR']", True),
        ("order.country in ('US', 'FR')", False),
        ("'total' in order", True),
        ("'E' in order.country", True),
        ("not order.paid", False),
        ("order.paid and order.total", 120),
        ("missing or 'nobody'", "nobody"),
        ("'large' if order.total > 100 else 'small'", "large"),
        ("order.note is None and order.paid is True", True),
        ("order.paid == true and order.note == null and order.paid is not false", True),
        ("[limit, 'x', (1, None)]", [100, "x", (1, None)]),
        ("  limit  ", 100),
    ],
)
def test_a_condition_means_what_it_says(text: str, value: object) -> None:
    assert evaluate(text, NAMES) == value


@pytest.mark.parametrize(
    "text",
    [
        "missing",
        "missing.deeper.still",
        "order.missing",
        "order['missing']",
        "tags[2]",
        "tags[-3]",
        "tags['new']",
        "tags[true]",
        "limit.total",
        "limit[0]",
        "order[tags]",
        "order[(tags, 1)]",
    ],
)
def test_what_is_not_there_is_none(text: str) -> None:
    assert evaluate(text, NAMES) is None


@pytest.mark.parametrize(
    "text", ["missing > 3", "missing < 3", "3 >= missing", "missing <= missing", "1 in missing", "(tags, 1) in order"]
)
def test_none_is_neither_below_nor_above_nor_in_anything(text: str) -> None:
    assert evaluate(text, NAMES) is False


def test_an_attribute_is_never_one_of_a_python_object() -> None:
    class Order:
        secret = "s"

    names = {"order": Order(), "items": [], "data": {}}
    for text in (
        "order.secret",
        "order.__class__",
        "items.__class__",
        "data.keys",
        "data.__class__.__mro__",
        "''.join",
    ):
        assert evaluate(text, names) is None
    assert evaluate("data.keys", {"data": {"keys": 3}}) == 3


@pytest.mark.parametrize(
    ("text", "what", "character"),
    [
        ("limit + 1 > 3", "arithmetic", 1),
        ("len(tags) > 1", "a call", 1),
        ("limit > 1 and len(tags)", "a call", 15),
        ("~limit", "arithmetic", 1),
        ("-limit", "arithmetic", 1),
        ("limit > -(-1)", "arithmetic", 9),
        ("tags[0:1]", "a slice", 6),
        ("lambda: 1", "a lambda", 1),
        ("(x := 1)", "an assignment", 2),
        ("f'{limit}'", "an f-string", 1),
        ("{'a': 1}", "a dict", 1),
        ("{1, 2}", "a set", 1),
        ("[*tags]", "unpacking", 2),
        ("[x for x in tags]", "ListComp", 1),
        ("b'x' == limit", "bytes literal", 1),
        ("...", "ellipsis literal", 1),
        ("limit is 100", "`is` between two values (write ==)", 1),
        ("'ü' == f(1)", "a call", 8),
    ],
)
def test_anything_else_is_refused_with_its_name_and_place(text: str, what: str, character: int) -> None:
    with pytest.raises(WorkflowDefinitionError) as refused:
        Expression.parse(text)
    assert refused.value.code == "bad_expression"
    assert f"{what} is not allowed at character {character};" in str(refused.value)


@pytest.mark.parametrize("text", ["", "a b", "a ==", "import os", "a\nb", "a = 1", "a\0b", "(((", "else"])
def test_what_is_no_expression_is_refused(text: str) -> None:
    with pytest.raises(WorkflowDefinitionError, match="bad_expression"):
        Expression.parse(text)


def test_a_syntax_error_says_where() -> None:
    with pytest.raises(WorkflowDefinitionError, match="at character 12"):
        Expression.parse("a == 1 and and b")


def test_what_is_no_text_is_refused() -> None:
    with pytest.raises(WorkflowDefinitionError, match="got 3"):
        Expression.parse(3)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "text",
    [
        "a" * (LONGEST + 1),
        "not " * (DEEPEST + 1) + "a",
        "[" * 190 + "]" * 190,
        "a" + ".b" * 900,
        "a or " * 3 + "(" * 300,
    ],
)
def test_size_and_depth_are_bounded(text: str) -> None:
    with pytest.raises(WorkflowDefinitionError):
        Expression.parse(text)


def test_values_without_an_order_are_named() -> None:
    with pytest.raises(PermanentError, match=r"'tags > limit': list and int have no order"):
        evaluate("tags > limit", NAMES)


def test_the_part_that_does_not_matter_is_not_evaluated() -> None:
    assert evaluate("limit == 100 or tags > limit", NAMES) is True
    assert evaluate("limit == 1 and tags > limit", NAMES) is False
    assert evaluate("1 if limit == 100 else tags > limit", NAMES) == 1
    assert evaluate("limit > 200 > tags", NAMES) is False


def test_equal_texts_are_equal_expressions() -> None:
    assert Expression.parse("a > 1") == Expression.parse(" a > 1 ")
    assert len({Expression.parse("a"), Expression.parse("a"), Expression.parse("b")}) == 2


@pytest.mark.filterwarnings("ignore::SyntaxWarning", "ignore::DeprecationWarning")
@given(st.text(max_size=60) | st.text("ab.[]()<>=!'\"and or not in 0123 if else,", max_size=60))
def test_every_text_is_evaluated_or_refused_by_name(text: str) -> None:
    try:
        evaluate(text, {"a": {"b": [1]}, "b": "x"})
    except (WorkflowDefinitionError, PermanentError):
        pass
