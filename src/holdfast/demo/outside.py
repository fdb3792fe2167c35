"""The world outside the shop: a bank, a warehouse and a post office, with a book in a file of their own.

It outlives the processes that call it. What it is asked it does once for each key, and it remembers how
often it was asked.
"""

from __future__ import annotations

import sqlite3
import time
from collections.abc import Iterator
from contextlib import contextmanager
from enum import StrEnum
from pathlib import Path
from typing import Final

_TAKES_S: Final = 0.01
_PATIENCE_S: Final = 10.0
_TABLES: Final = """
    CREATE TABLE IF NOT EXISTS outages (system TEXT PRIMARY KEY);
    CREATE TABLE IF NOT EXISTS asked (what TEXT NOT NULL, about TEXT NOT NULL, key TEXT NOT NULL);
    CREATE INDEX IF NOT EXISTS asked_for ON asked (what, about);
    CREATE TABLE IF NOT EXISTS done (what TEXT NOT NULL, key TEXT NOT NULL, about TEXT NOT NULL,
                                     PRIMARY KEY (what, key)) WITHOUT ROWID;
"""


class System(StrEnum):
    """Who can be called, and can be down."""

    PAYMENTS = "payments"
    STOCK = "stock"
    MAIL = "mail"


class Outside:
    """Whoever the shop calls. `file` is their book."""

    def __init__(self, file: Path) -> None:
        self._file = file
        with self._book() as book:
            book.executescript(_TABLES)

    def ask(self, system: System, what: str, key: str, about: str, takes_s: float = _TAKES_S) -> str:
        """Have something done, once for the key, however often it is asked for.

        Raises ConnectionError while the system is down.
        """
        with self._book() as book:
            down = book.execute("SELECT 1 FROM outages WHERE system = ?", (system,)).fetchone()
            if down is None:
                book.execute("INSERT INTO asked VALUES (?, ?, ?)", (what, about, key))
        if down is not None:
            raise ConnectionError(f"503: {system} is down")
        time.sleep(takes_s)
        with self._book() as book:
            book.execute("INSERT OR IGNORE INTO done VALUES (?, ?, ?)", (what, key, about))
        return f"{what} {about}"

    def fail(self, system: System) -> None:
        """From now on nothing answers."""
        with self._book() as book:
            book.execute("INSERT OR IGNORE INTO outages VALUES (?)", (system,))

    def repair(self, system: System) -> None:
        """It answers again."""
        with self._book() as book:
            book.execute("DELETE FROM outages WHERE system = ?", (system,))

    def down(self) -> tuple[str, ...]:
        """The systems that are down."""
        with self._book() as book:
            return tuple(name for (name,) in book.execute("SELECT system FROM outages ORDER BY system"))

    def asked(self, what: str, about: str) -> int:
        """How often that was asked for and not refused."""
        with self._book() as book:
            found = book.execute("SELECT count(*) FROM asked WHERE what = ? AND about = ?", (what, about))
            return int(found.fetchone()[0])

    def times_done(self, what: str) -> dict[str, int]:
        """What was done, and how often: for each thing it is about, the number of keys."""
        with self._book() as book:
            return dict(book.execute("SELECT about, count(*) FROM done WHERE what = ? GROUP BY about", (what,)))

    @contextmanager
    def _book(self) -> Iterator[sqlite3.Connection]:
        book = sqlite3.connect(self._file, timeout=_PATIENCE_S, isolation_level=None)
        try:
            book.execute("PRAGMA journal_mode=WAL")
            book.execute("PRAGMA synchronous=OFF")  # a power failure may have this file
            yield book
        finally:
            book.close()
