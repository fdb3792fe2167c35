"""What a saga may look like, and what is said where it may not."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from holdfast.errors import ConfigurationError
from holdfast.outbox.operation import Operation
from holdfast.outbox.sagas.sagas import Saga, Step
from tests.databases import fresh_database
from tests.outbox.sagas import Shop


def test_steps_come_one_after_the_other_unless_they_say_otherwise() -> None:
    saga = Saga("s", [Step("a", "x"), Step("b", "x"), Step("c", "x", after=["a"]), Step("d", "x", after=())])
    assert [step.after for step in saga.plan] == [(), ("a",), ("a",), ()]


@pytest.mark.parametrize(
    ("steps", "story"),
    [
        ([], "has no steps"),
        ([Step("a", "x"), Step("a", "x")], "two steps 'a'"),
        ([Step("a", "x", after=["z"])], "comes after 'z', which saga 's' does not have"),
        ([Step("a", "x", after=["b"]), Step("b", "x", after=["a"])], "comes after itself"),
        ([Step("a", "x", pivot=True), Step("b", "x", pivot=True)], "several pivots"),
        ([Step("a", "x", pivot=True), Step("b", "x", after=())], "'b' runs beside the pivot 'a'"),
    ],
)
def test_a_saga_that_cannot_be_meant_is_refused_at_once(steps: list[Step], story: str) -> None:
    with pytest.raises(ConfigurationError, match=story):
        Saga("s", steps)


@pytest.mark.parametrize(
    ("make", "story"),
    [
        (lambda: Step("", "x"), "1 to 255 characters"),
        (lambda: Step("a", "x", after="b"), "a list of names"),
        (lambda: Step("a", "x", compensation_payload={}), "not with which operation"),
        (lambda: Saga("", [Step("a", "x")]), "1 to 255 characters"),
        (lambda: Saga("s", [Step("a", "x")], version=0), "at least 1, got 0"),
        (lambda: Saga("s", Step("a", "x")), "a list of Step"),  # type: ignore[arg-type]
        (lambda: Saga("s", ["a"]), "a list of Step"),  # type: ignore[list-item]
        (lambda: Saga("s", [Step("a", "x")], deadline=timedelta(0)), "above 0"),
    ],
)
def test_wrong_values_are_named(make: Any, story: str) -> None:
    with pytest.raises(ConfigurationError, match=story):
        make()


@pytest.fixture
def shop(tmp_path: Path) -> Any:
    with fresh_database("sqlite", tmp_path) as database:
        yield Shop(database)


def test_an_operation_that_nobody_registered_is_refused(shop: Shop) -> None:
    with pytest.raises(ConfigurationError, match="no operation 'fly' is registered, only charge, refund"):
        shop.sagas.register(Saga("s", [Step("a", "fly")]))


def test_the_same_definition_may_come_twice_and_another_one_needs_a_version(shop: Shop) -> None:
    saga = Saga("s", [Step("a", "ship")])
    shop.sagas.register(saga)
    shop.sagas.register(saga)
    with pytest.raises(ConfigurationError, match="another version 1 already"):
        shop.sagas.register(Saga("s", [Step("b", "ship")]))


def test_an_operation_that_a_step_brings_along_is_registered_with_the_budget_of_a_compensation(shop: Shop) -> None:
    call, undo = (Operation(name=name, call=lambda target, context: None) for name in ("fly", "land"))
    shop.sagas.register(Saga("s", [Step("a", call, compensation=undo)]))
    assert [shop.operations.find(name).max_attempts for name in ("fly", "land")] == [None, 32]  # type: ignore[union-attr]


def test_a_function_with_too_long_a_name_asks_for_an_operation(shop: Shop) -> None:
    with pytest.raises(ConfigurationError, match="too long for an operation"):
        shop.sagas.register(Saga("s" * 20, [Step("a" * 20, lambda: None)]))


def test_an_unknown_saga_or_wrong_data_is_refused_before_anything_is_written(shop: Shop) -> None:
    shop.sagas.register(Saga("s", [Step("a", "ship")]))
    with pytest.raises(ConfigurationError, match="no saga 'other'; known: s"):
        shop.start("other")
    with pytest.raises(TypeError, match="data is a dict, got list"):
        shop.start("s", [1])
    for wrong, story in (
        ({"data": {"x": object()}}, r"data\.x is a object"),
        ({"data": {"x": float("nan")}}, r"data\.x is nan"),
        ({"data": {"x": "a\0"}}, r"data\.x holds U\+0000"),
        ({"subject_id": "x" * 256}, "subject_id must have 1 to 255"),
        ({"subject_id": ""}, "subject_id must have 1 to 255"),
        ({"subject_id": 7}, "subject_id must be a text"),
        ({"saga_id": "x"}, "saga_id must be a UUID"),
        ({"key": 7}, "key must be a text"),
    ):
        with pytest.raises(ValueError, match=story):
            shop.start("s", **wrong)
    assert (shop.rows(), shop.sagas.find()) == ({}, ())
