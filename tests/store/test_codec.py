"""What becomes of Python values in a store, and what is refused."""

from __future__ import annotations

import json
from collections import OrderedDict, defaultdict
from datetime import UTC, date, datetime, time, timedelta, timezone
from decimal import Decimal
from enum import Enum, IntEnum, StrEnum
from typing import Any, NamedTuple
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.store.codec import (
    DEEPEST,
    clean_text,
    duration,
    from_json,
    instant,
    maybe_instant,
    maybe_micros,
    micros,
    simple_to_json,
    to_json,
)


class Colour(Enum):
    RED = "red"
    PAIR = (1, "two")
    WHEN = date(2026, 1, 2)
    RATIO = 0.5


class Level(IntEnum):
    HIGH = 3


class Shape(StrEnum):
    ROUND = "round"


class Old(str, Enum):  # noqa: UP042  # people have them
    WAY = "way"


class Point(NamedTuple):
    x: int
    y: int


class Chatty(str):
    """A text with more to say."""

    __slots__ = ()


def nested(depth: int, leaf: Any) -> Any:
    for _ in range(depth):
        leaf = [leaf]
    return leaf


@pytest.mark.parametrize(
    ("value", "stored"),
    [
        (None, None),
        (True, True),
        (False, False),
        (0, 0),
        (-(2**80), -(2**80)),
        (0.1, 0.1),
        (-0.0, -0.0),
        (1e300, 1e300),
        ("", ""),
        ("🙂é", "🙂é"),
        ((1, (2, 3)), [1, [2, 3]]),
        (Point(1, 2), [1, 2]),
        ([], []),
        ({}, {}),
        (OrderedDict(b=1, a=2), {"b": 1, "a": 2}),
        (defaultdict(int, a=1), {"a": 1}),
        (datetime(2026, 1, 2, 3, 4, 5, 6, tzinfo=UTC), "2026-01-02T03:04:05.000006+00:00"),
        (datetime(2026, 1, 2, tzinfo=timezone(timedelta(hours=2))), "2026-01-02T00:00:00+02:00"),
        (datetime(2026, 1, 2), "2026-01-02T00:00:00"),  # noqa: DTZ001  # a naive time stays naive inside JSON
        (date(2026, 1, 2), "2026-01-02"),
        (time(3, 4), "03:04:00"),
        (Decimal("1.10"), "1.10"),
        (Decimal("NaN"), "NaN"),
        (UUID(int=1), "00000000-0000-0000-0000-000000000001"),
        (Colour.RED, "red"),
        (Colour.PAIR, [1, "two"]),
        (Colour.WHEN, "2026-01-02"),
        (Colour.RATIO, 0.5),
        (Level.HIGH, 3),
        (Shape.ROUND, "round"),
        (Old.WAY, "way"),
        (Chatty("x"), "x"),
        ({Shape.ROUND: 1, Old.WAY: 2, Chatty("k"): 3}, {"round": 1, "way": 2, "k": 3}),
    ],
    ids=repr,
)
def test_a_value_is_stored_as_json(value: Any, stored: Any) -> None:
    read = from_json(to_json(value))
    assert read == stored
    assert type(read) is type(stored)


@pytest.mark.parametrize(
    "value", [object(), b"x", bytearray(b"x"), {1, 2}, frozenset(), 1j, timedelta(1), int, len, iter([])]
)
def test_what_is_not_json_is_refused_with_its_place(value: Any) -> None:
    with pytest.raises(TypeError, match=rf"value\.order\[1\] is a {type(value).__name__}"):
        to_json({"order": [1, value]})


@pytest.mark.parametrize("key", [1, None, True, 1.5, ("a",), Level.HIGH, date(2026, 1, 1), b"x"])
def test_keys_are_texts(key: Any) -> None:
    with pytest.raises(TypeError, match="keys of stored data are texts"):
        to_json({"a": {key: 1}})


@pytest.mark.parametrize("value", [float("nan"), float("inf"), -float("inf")])
def test_numbers_that_json_cannot_hold_are_refused_with_their_place(value: float) -> None:
    with pytest.raises(ValueError, match=r"value\.a\[0\] is .*JSON cannot hold"):
        to_json({"a": [value]})


@pytest.mark.parametrize(
    "leaf", [1, "text", None, 0.5, Decimal(1), date(2026, 1, 1), Colour.RED, Colour.RATIO, Level.HIGH]
)
def test_a_hundred_levels_are_deep_enough_for_any_leaf(leaf: Any) -> None:
    assert json.loads(to_json(nested(DEEPEST, leaf))) == nested(DEEPEST, json.loads(to_json(leaf)))
    with pytest.raises(ValueError, match="nested more than 100 deep"):
        to_json(nested(DEEPEST + 1, leaf))


def test_dicts_count_as_levels_and_empty_ones_as_well() -> None:
    assert to_json(nested(DEEPEST - 1, {}))
    with pytest.raises(ValueError, match="nested more than 100 deep"):
        to_json(nested(DEEPEST, {}))


def test_a_value_that_contains_itself_is_refused_in_a_short_line() -> None:
    endless: list[Any] = []
    endless.append(endless)
    with pytest.raises(ValueError, match=r"^tree\.root(\[0\]){5}…(\[0\]){6} is nested more than 100 deep"):
        to_json({"root": endless}, "tree")


def test_the_way_to_the_culprit_begins_with_what_it_is_called() -> None:
    with pytest.raises(TypeError, match=r"^metadata\.a\[1\] is a set"):
        to_json({"a": [1, {2}]}, "metadata")
    with pytest.raises(TypeError, match=r"^metadata is a set"):
        to_json({"metadata": {2}}, "")


@pytest.mark.parametrize(
    ("text", "stored"),
    [
        ("a\0b", "a\ufffdb"),
        ("\0", "\ufffd"),
        ("\ud800", "\ufffd"),
        ("x\udfffy", "x\ufffdy"),
        ("é\0", "é\ufffd"),
        ("\ud83d\ude00", "\ufffd\ufffd"),
        ("🙂\uffff\x01", "🙂\uffff\x01"),
    ],
    ids=ascii,
)
def test_what_some_store_cannot_hold_becomes_a_replacement_character(text: str, stored: str) -> None:
    assert clean_text(text) == stored
    assert from_json(to_json({text: [text]})) == {stored: [stored]}


def test_a_text_of_a_subclass_becomes_a_plain_one() -> None:
    assert type(clean_text(Chatty("x"))) is str
    assert type(clean_text(Chatty("é"))) is str


def test_json_is_short_and_readable() -> None:
    assert to_json({"a": [1, "é"], "b": None}) == '{"a":[1,"é"],"b":null}'


def test_nothing_handed_in_is_changed() -> None:
    value = {"a": (1, [Decimal(2)])}
    to_json(value)
    assert value == {"a": (1, [Decimal(2)])}


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    max_leaves=20,
)


@given(JSON)
def test_everything_that_is_json_comes_back_as_it_was(value: Any) -> None:
    assert from_json(to_json(value)) == json.loads(json.dumps(value).replace("\\u0000", "\\ufffd"))


@given(st.dictionaries(st.text() | st.integers(), JSON) | JSON)
def test_the_quick_way_gives_the_same_text_or_none(value: Any) -> None:
    quick = simple_to_json(value)
    assert quick is None or quick == to_json(value)


@pytest.mark.parametrize(
    "value",
    [1.5, "\0", "\ud800", Colour.RED, Level.HIGH, Chatty("x"), (1,), {1: 2}, {"\0": 1}, {Shape.ROUND: 1}],
)
def test_the_quick_way_leaves_all_that_is_not_simple_to_the_other(value: Any) -> None:
    for around in (value, [value], OrderedDict(a=1), {"a": value}, {"a": [1, {"b": value}]}):
        assert simple_to_json(around) is None
    simple = {"a": "é", "n": 1, "yes": True, "no": None, "more": [{"b": [[], {}]}]}
    assert simple_to_json(simple) == '{"a":"é","n":1,"yes":true,"no":null,"more":[{"b":[[],{}]}]}'


def test_the_quick_way_gives_up_at_once_on_what_contains_itself_many_times() -> None:
    endless: list[Any] = []
    endless += [endless] * 10
    assert simple_to_json(endless) is None
    assert simple_to_json(nested(DEEPEST, 1)) is not None
    assert simple_to_json(nested(DEEPEST + 1, 1)) is None


@given(st.text(st.characters()))
def test_a_stored_text_is_never_one_that_cannot_be_held(text: str) -> None:
    cleaned = clean_text(text)
    assert "\0" not in cleaned.encode("utf-8").decode()
    assert len(cleaned) == len(text)


@given(st.datetimes(datetime(2, 1, 1), datetime(9998, 1, 1), timezones=st.timezones()))  # noqa: DTZ001  # bounds
def test_times_come_back_to_the_microsecond(at: datetime) -> None:
    back = instant(micros(at))
    assert back == at.astimezone(UTC)
    assert back.tzinfo is UTC


def test_a_naive_time_is_read_as_utc() -> None:
    naive = datetime(2026, 1, 2, 3, 4)  # noqa: DTZ001  # the point
    assert micros(naive) == micros(naive.replace(tzinfo=UTC))


def test_the_absence_of_a_time_stays_absent() -> None:
    assert maybe_micros(None) is None
    assert maybe_instant(None) is None
    assert maybe_instant(maybe_micros(datetime(1970, 1, 1, tzinfo=UTC))) == datetime(1970, 1, 1, tzinfo=UTC)


def test_times_before_1970_are_negative() -> None:
    assert micros(datetime(1969, 12, 31, 23, 59, 59, 999_999, tzinfo=UTC)) == -1


def test_a_span_is_microseconds() -> None:
    assert duration(timedelta(seconds=1.5)) == 1_500_000
    assert duration(timedelta(microseconds=-1)) == -1
