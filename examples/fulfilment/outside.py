"""The world outside: files in a folder, because it outlives the processes that call it.

It does what it is asked once for each key, and remembers how often it was asked.
"""

from __future__ import annotations

import os
import time
from pathlib import Path

LOOK_S = 0.02


class Outside:
    """A bank, a warehouse and a courier."""

    def __init__(self, folder: Path) -> None:
        self._journal = folder / "journal"
        self._jam = folder / "jam"

    def charge(self, key: str, cents: int) -> str:
        self._asked("charge", key)
        return f"{cents / 100:.2f} paid"

    def pack(self, key: str, item: str) -> str:
        self._asked("pack", key)
        while self.is_jammed:
            time.sleep(LOOK_S)
        return f"box of {item}"

    def ship(self, key: str, parcel: str) -> str:
        self._asked("ship", key)
        return f"{parcel}, shipped"

    def asked(self, what: str) -> int:
        """How often somebody asked for it."""
        return len(self._keys(what))

    def done(self, what: str) -> int:
        """How often it was done: once for each key."""
        return len(set(self._keys(what)))

    @property
    def is_jammed(self) -> bool:
        return self._jam.exists()

    def jam(self) -> None:
        """Let the conveyor of the warehouse stand still."""
        self._jam.touch()

    def clear(self) -> None:
        self._jam.unlink()

    def _asked(self, what: str, key: str) -> None:
        journal = os.open(self._journal, os.O_WRONLY | os.O_APPEND | os.O_CREAT)
        os.write(journal, f"{what} {key}\n".encode())  # one write is one line, whoever else writes
        os.close(journal)

    def _keys(self, what: str) -> list[str]:
        lines = self._journal.read_text().splitlines() if self._journal.exists() else []
        return [key for one, _, key in (line.partition(" ") for line in lines) if one == what]
