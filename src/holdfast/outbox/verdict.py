"""How far the verification of a success is: the words that the row of an entry, and those who ask for it, have."""

from __future__ import annotations

from datetime import datetime
from typing import Final

PENDING: Final = "pending"
CONFIRMED: Final = "confirmed"
FAILED: Final = "failed"
"""The target denies it."""
GIVEN_UP: Final = "given_up"
"""Nobody asks any more. The row says pending then, and no time to ask again."""
UNVERIFIED: Final = (FAILED, GIVEN_UP)
"""Only an operator can have them asked again."""


def word_of(verification: str | None, verify_at: datetime | None) -> str | None:
    """What a row says; None of a success that nobody asks about."""
    return GIVEN_UP if verification == PENDING and verify_at is None else verification
