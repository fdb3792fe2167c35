"""Kinds as they are declared: what a backend learns of a record, and which declarations are refused."""

from __future__ import annotations

from enum import StrEnum
from typing import Any, NamedTuple, Optional

import pytest

from holdfast.store.record import Column, Index, Kind, evolve
from holdfast.testing.store import ITEM, PLAIN, item


class Head(NamedTuple):
    id: str
    version: int
    due_at: int | None


class Level(StrEnum):
    LOW = "low"


class Typed(NamedTuple):
    id: str
    version: int
    due_at: int | None
    level: Level
    old_style: Optional[str]  # noqa: UP045  # people write it
    count: int


def test_the_smallest_record_is_its_head() -> None:
    kind = Kind("head", Head)
    assert [column.name for column in kind.columns] == ["id", "version", "due_at"]
    assert kind.searched == {"id"}


def test_columns_know_type_and_nullability() -> None:
    assert Kind("typed", Typed).columns == (
        Column("id", True, False),
        Column("version", False, False),
        Column("due_at", False, True),
        Column("level", True, False),
        Column("old_style", True, True),
        Column("count", False, False),
    )


def test_searched_are_the_texts_that_something_looks_up() -> None:
    assert ITEM.searched == {"id", "state", "lane", "label", "token"}
    assert PLAIN.searched == {"id"}


def test_a_row_becomes_a_record() -> None:
    assert ITEM.make(list(item("a", size=3))) == item("a", size=3)


def test_the_next_version_is_one_more() -> None:
    changed = evolve(item("a"), size=3)
    assert changed == item("a", size=3, version=2)
    assert evolve(changed).version == 3


def test_kinds_are_keys() -> None:
    assert {ITEM: 1, PLAIN: 2}[ITEM] == 1
    assert len({ITEM, PLAIN, Kind("head", Head)}) == 3


def test_ids_within_a_field_are_an_index_by_it() -> None:
    kind = Kind("typed", Typed, indexes=(Index((), "count"),), within="level")
    assert kind.indexes == (Index((), "count"), Index(("level",), "id"))
    assert Kind("typed", Typed, indexes=kind.indexes, within="level") == kind
    assert kind.searched == {"id", "level"}


@pytest.mark.parametrize("name", ["version", "old_style", "level", "due_at"])
def test_a_record_is_born_with_a_number(name: str) -> None:
    with pytest.raises(TypeError, match=f"a whole number that is always there, '{name}' is not"):
        Kind("typed", Typed, born=name)


@pytest.mark.parametrize("name", ["id", "old_style", "count"])
def test_ids_are_within_a_text_that_is_always_there(name: str) -> None:
    with pytest.raises(TypeError, match=f"within a text that is always there, '{name}' is not"):
        Kind("typed", Typed, within=name)


class _NoHead(NamedTuple):
    key: str
    version: int
    due_at: int | None


class _OtherOrder(NamedTuple):
    version: int
    id: str
    due_at: int | None


class _TooShort(NamedTuple):
    id: str
    version: int


class _NumberId(NamedTuple):
    id: int
    version: int
    due_at: int | None


class _MaybeId(NamedTuple):
    id: str | None
    version: int
    due_at: int | None


class _TextVersion(NamedTuple):
    id: str
    version: str
    due_at: int | None


class _TextDue(NamedTuple):
    id: str
    version: int
    due_at: str | None


class _Float(NamedTuple):
    id: str
    version: int
    due_at: int | None
    ratio: float


class _Bool(NamedTuple):
    id: str
    version: int
    due_at: int | None
    flag: bool


class _Either(NamedTuple):
    id: str
    version: int
    due_at: int | None
    value: str | int


class _Dict(NamedTuple):
    id: str
    version: int
    due_at: int | None
    payload: dict[str, str]


class _Anything(NamedTuple):
    id: str
    version: int
    due_at: int | None
    payload: Any


class _NoTuple:
    id: str
    version: int
    due_at: int | None


@pytest.mark.parametrize("record", [_NoHead, _OtherOrder, _TooShort, _NumberId, _MaybeId, _TextVersion, _TextDue])
def test_the_head_of_a_record_is_fixed(record: Any) -> None:
    with pytest.raises(TypeError, match=r"kind 'bad': the first fields must be id: str, version: int, due_at"):
        Kind("bad", record)


@pytest.mark.parametrize(
    ("record", "field"),
    [(_Float, "ratio"), (_Bool, "flag"), (_Either, "value"), (_Dict, "payload"), (_Anything, "payload")],
)
def test_a_field_is_a_text_or_a_whole_number(record: Any, field: str) -> None:
    with pytest.raises(TypeError, match=rf"kind 'bad': field '{field}' must be a text or a whole number"):
        Kind("bad", record)


def test_a_record_is_a_named_tuple() -> None:
    with pytest.raises(TypeError, match="kind 'bad': a record is a NamedTuple"):
        Kind("bad", _NoTuple)


@pytest.mark.parametrize(
    "declaration",
    [
        {"indexes": (Index(("colour",), "id"),)},
        {"indexes": (Index((), "colour"),)},
        {"unique": ("colour",)},
        {"tally": ("id", "colour")},
        {"arrivals": ("colour",)},
        {"keyed": {"colour": 3}},
    ],
    ids=lambda declaration: next(iter(declaration)),
)
def test_a_declaration_names_fields_that_are_there(declaration: dict[str, Any]) -> None:
    with pytest.raises(TypeError, match=r"kind 'bad' has no field 'colour'; it has id, version, due_at"):
        Kind("bad", Head, **declaration)
