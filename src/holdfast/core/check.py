"""Refusals of values that cannot work: what was wrong, which value, what to do."""

from __future__ import annotations

import math
from typing import Any, Final

from holdfast.errors import PolicyError

LONGEST_S: Final = 1e9
"""Some thirty years: what is longer is a mistake, and too much for the clocks of some systems."""


def check_numbers(owner: str, **values: object) -> None:
    """Refuses anything but numbers (a bool is none). Raises PolicyError."""
    for field, value in values.items():
        if isinstance(value, bool) or not isinstance(value, int | float):
            raise PolicyError(f"{owner}.{field} must be a number, got {value!r}; give it without quotes")


def check_whole(field: str, value: object, fix: str) -> None:
    """Refuses anything but an int of at least 1. Raises PolicyError."""
    if isinstance(value, bool) or not isinstance(value, int) or value < 1:
        raise PolicyError(f"{field} must be a whole number of at least 1, got {value!r}; {fix}")


def check_seconds(field: str, value: object, fix: str) -> None:
    """Refuses anything but a finite number of seconds above 0. Raises PolicyError."""
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 < value < math.inf:
        raise PolicyError(f"{field} must be a finite number of seconds above 0, got {value!r}; {fix}")


def check_wait(field: str, value: object, fix: str) -> None:
    """The same for a time that is stored, which has an upper limit besides. Raises PolicyError."""
    check_seconds(field, value, fix)
    if isinstance(value, int | float) and value > LONGEST_S:
        raise PolicyError(f"{field} must be at most {LONGEST_S:g} seconds, which is thirty years, got {value:g}; {fix}")


def check_text(field: str, value: object) -> None:
    """Refuses anything but a text. Raises PolicyError."""
    if not isinstance(value, str):
        raise PolicyError(f"{field} must be a text, got {value!r}")


def check_queues(field: str, queues: Any) -> None:
    """Refuses what names no queue, and a text, which would be one queue for each letter. Raises PolicyError."""
    if isinstance(queues, str) or not queues:
        raise PolicyError(f"{field} must name at least one queue, got {queues!r}; use ('default',)")
