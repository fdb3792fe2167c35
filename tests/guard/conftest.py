"""What every guard test shares; see `tests/guard/colours.py`."""

from __future__ import annotations

from tests.guard.colours import clock, colour, guard_of, path, recorder

__all__ = ["clock", "colour", "guard_of", "path", "recorder"]
