"""The test kit is tested in both colours, as guards are; see `tests/guard/colours.py`."""

from __future__ import annotations

from tests.guard.colours import clock, colour, guard_of, path

__all__ = ["clock", "colour", "guard_of", "path"]
