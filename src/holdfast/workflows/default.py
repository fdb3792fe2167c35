"""What programs get that have no engine at hand: the object of the first engine that is there, else one of its own."""

from __future__ import annotations

from collections.abc import Callable
from typing import Generic, TypeVar
from weakref import ref

T = TypeVar("T")


class Default(Generic[T]):
    """`offer` is called by engines, `get` by whoever has none. An engine that is gone makes room for the next one."""

    def __init__(self, alone: Callable[[], T]) -> None:
        self._alone = alone()
        self._first: Callable[[], T | None] = lambda: None

    def get(self) -> T:
        return self._first() or self._alone

    def offer(self, one: T) -> None:
        """Be the one, if there is no other."""
        if self._first() is None:
            self._first = ref(one)
