"""Members of enumerations, for code that is run all the time."""

from __future__ import annotations

from collections.abc import Iterator
from enum import Enum
from typing import Any, TypeVar, cast

E = TypeVar("E", bound=Enum)


class _Members:
    def __init__(self, enum: type[Enum]) -> None:
        self._enum = enum
        self.__dict__.update(enum.__members__)

    def __call__(self, value: Any) -> Enum:
        return self._enum(value)

    def __iter__(self) -> Iterator[Enum]:
        return iter(self._enum)


def members(enum: type[E]) -> type[E]:
    """An enumeration whose members are found twice as fast or more: they are attributes of a plain object. Before
    Python 3.12 an enumeration itself takes 80 ns to find one. No class: not for annotations, nor for `isinstance`."""
    return cast("type[E]", _Members(enum))
