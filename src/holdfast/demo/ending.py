"""Signals that end the demo."""

from __future__ import annotations

import signal
from types import FrameType
from typing import Any


class Stopped(Exception):
    """Somebody wants the demo to end."""


class Ending:
    """SIGINT and SIGTERM, remembered: whoever waits on the stage asks for them.

    A handler that raised, or took a lock, could strike anywhere, also where something is being tidied up.
    """

    def __init__(self) -> None:
        self.is_wanted = False
        self._before: dict[int, Any] = {}

    def __enter__(self) -> Ending:
        for number in (signal.SIGINT, signal.SIGTERM):
            self._before[number] = signal.signal(number, self._want)
        return self

    def __exit__(self, *exc: object) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)

    def check(self) -> None:
        """Raises Stopped when somebody wants an end."""
        if self.is_wanted:
            raise Stopped

    def _want(self, number: int, frame: FrameType | None) -> None:
        self.is_wanted = True
