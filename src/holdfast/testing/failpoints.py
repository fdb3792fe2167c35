"""Every change that the engine makes of its store, as a point at which its process can die.

A store that is wrapped in `Failpoints` notes each `commit`, `claim` and `sweep`, named after the function of the engine
that asked for it. It can be told to die before or after one of them. A store that is not wrapped knows nothing of it.
"""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable
from enum import StrEnum
from typing import Any, Final, NamedTuple

from holdfast.errors import StoreUnavailable
from holdfast.store.port import Delete, Insert, Store, Swap
from holdfast.workflows.records import ItemRecord

CHANGING: Final = frozenset({"commit", "claim", "sweep"})
READING: Final = frozenset({"get", "page", "tally"})
_ENGINE: Final = "holdfast.workflows."


class Side(StrEnum):
    BEFORE = "before"
    AFTER = "after"


class Point(NamedTuple):
    """A change of the store."""

    number: int
    """From 1, in the order in which they were made."""
    name: str
    """The module and the function that asked for it, such as `settling._commit`."""
    line: int
    """Of the module."""
    steps: tuple[str, ...]
    """The stages whose work was claimed or written down."""


class ProcessDied(StoreUnavailable):
    """The process that asked is dead: nothing that it does reaches the store any more."""


class Failpoints:
    """A store, and what is changed in it. `die` ends the process really, for one that was started for that."""

    def __init__(self, store: Store, *, die: Callable[[], None] | None = None) -> None:
        self._store = store
        self._die = die
        self._lock = threading.Lock()
        self._number = 0
        self._plans: set[tuple[int, Side]] = set()
        self.hits: list[Point] = []
        self.is_watched = True
        """Whether changes are counted now."""
        self.is_dead = False
        self.deaths = 0

    def crash(self, number: int, side: Side | str) -> None:
        """Die at the `number`-th change from now on."""
        if number < 1:
            raise ValueError(f"crash.number counts from 1, got {number!r}")
        with self._lock:
            self._plans.add((self._number + number, Side(side)))

    def revive(self) -> None:
        """What comes now is another process."""
        self.is_dead = False

    def __getattr__(self, name: str) -> Any:
        verb = getattr(self._store, name)
        if name in CHANGING:
            return lambda *args, **options: self._change(verb, args, options)
        if name in READING:
            return lambda *args, **options: self._read(verb, args, options)
        return verb

    def _read(self, verb: Callable[..., Any], args: Any, options: Any) -> Any:
        if self.is_dead:
            raise ProcessDied("the process is dead")
        return verb(*args, **options)

    def _change(self, verb: Callable[..., Any], args: Any, options: Any) -> Any:
        if self.is_dead:
            raise ProcessDied("the process is dead")
        if not self.is_watched:
            return verb(*args, **options)
        name, line = _asked_by()
        with self._lock:
            self._number = number = self._number + 1
        self._meet(number, Side.BEFORE, name)
        answer = verb(*args, **options)
        self.hits.append(Point(number, name, line, _steps(args, answer)))
        self._meet(number, Side.AFTER, name)
        return answer

    def _meet(self, number: int, side: Side, name: str) -> None:
        if (number, side) not in self._plans:
            return
        self.is_dead = True
        self.deaths += 1
        if self._die is not None:
            self._die()
        raise ProcessDied(f"the process died {side.value} {name}")


def _asked_by() -> tuple[str, int]:
    """The function of the engine that is nearest, and the line in it."""
    frame = sys._getframe(2)
    while frame is not None:
        module = frame.f_globals.get("__name__", "")
        if module.startswith(_ENGINE):
            return f"{module.removeprefix(_ENGINE)}.{frame.f_code.co_name}", frame.f_lineno
        frame = frame.f_back  # type: ignore[assignment]  # None at the outermost
    return "elsewhere", 0


def _steps(args: Any, answer: Any) -> tuple[str, ...]:
    if isinstance(answer, list):
        items = answer
    else:
        items = [_before(change) for change in args[0]] if args and isinstance(args[0], list) else []
    found = (one.ref for one in items if isinstance(one, ItemRecord) and one.owner is not None)
    return tuple(dict.fromkeys(found))


def _before(change: Any) -> Any:
    if isinstance(change, Swap):
        return change.old
    return change.record if isinstance(change, Delete) else None if isinstance(change, Insert) else change
