"""Who is next when more is asked for than can be done: whoever has had least of late.

A line for each caller, so that one who asks for very much waits behind all who ask for little. Time is an argument.
"""

from __future__ import annotations

import math
from collections import OrderedDict, deque
from typing import Final, Generic, TypeVar

T = TypeVar("T")
MOST_CALLERS: Final = 10_000
FADES_S: Final = 10.0
"""After so long about a third of what a caller had still counts."""


class Lines(Generic[T]):
    """At most `most` wait, in a line for each caller. What callers had is remembered for 10,000 of them."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._lines: dict[str, deque[T]] = {}
        self._waiting = 0
        self._had: OrderedDict[str, tuple[float, float]] = OrderedDict()

    def __len__(self) -> int:
        return self._waiting

    def enter(self, caller: str, one: T) -> T | None:
        """Stand in the caller's line. Who has to go for that: nobody, the last one of the longest line, or `one`."""
        own = self._lines.get(caller, ())
        gone = None
        if self._waiting >= self._most:
            longest = max(self._lines, key=lambda name: len(self._lines[name]), default=caller)
            if len(self._lines.get(longest, ())) <= len(own) + 1:
                return one
            gone = self._lines[longest].pop()  # not empty without it: it was longer than another by two
            self._waiting -= 1
        self._lines.setdefault(caller, deque()).append(one)
        self._waiting += 1
        return gone

    def leave(self, caller: str, one: T) -> None:
        """Stand in line no more, called or not."""
        line = self._lines.get(caller)
        if line is not None and one in line:
            line.remove(one)
            self._took(caller, line)

    def call(self, now: float) -> T | None:
        """The first one in the line of the caller who has had least; None where nobody waits."""
        if not self._lines:
            return None
        caller = min(self._lines, key=lambda name: self._had_by(name, now))
        line = self._lines[caller]
        one = line.popleft()
        self._took(caller, line)
        return one

    def charge(self, caller: str, seconds: float, now: float) -> None:
        """Note what a caller had."""
        self._had[caller] = (self._had_by(caller, now) + seconds, now)
        self._had.move_to_end(caller)
        if len(self._had) > MOST_CALLERS:
            self._had.popitem(last=False)

    def _had_by(self, caller: str, now: float) -> float:
        seconds, at = self._had.get(caller, (0.0, now))
        return seconds * math.exp((at - now) / FADES_S)

    def _took(self, caller: str, line: deque[T]) -> None:
        self._waiting -= 1
        if not line:
            del self._lines[caller]
