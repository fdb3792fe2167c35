"""Whether another process has written to an SQLite file, without asking SQLite."""

from __future__ import annotations

import os
import sqlite3
import time
from collections.abc import Callable
from typing import Final

from holdfast.backends.sql.schema import WAKE_TABLE
from holdfast.backends.sql.watch import Look

SETTLES_S: Final = 1.0
ANYWAY_S: Final = 5.0
Mark = tuple[int, int, int]


def looking(reader: sqlite3.Connection, path: str, clock: Callable[[], float] = time.monotonic) -> Look:
    """How often each topic was woken; None while the file looks as it did before.

    Every commit writes to the log beside the file, so its size or its time changes: a `stat` of some microseconds tells
    that nothing has happened, and no statement is sent. What it may miss:

    - The frames of a commit are in the log before it can be read; the wait for the disk lies in between. So after a
      change SQLite is asked at every look until the log has been still for `SETTLES_S`.
    - A log that starts again from its beginning keeps its size, and two writes within one tick of the file system's
      clock (10 ms at most) have one time. The second is among those looks as well.
    - File systems that keep attributes for a while, or count time in seconds, and disks that take longer than that:
      SQLite is asked every `ANYWAY_S` in any case. And whoever waits polls.

    The index beside the log (`-shm`) would say it exactly, but has to be opened for it: and when a process closes a
    file, POSIX takes all its locks on that file from it, SQLite's among them.
    """
    # SQLite keeps the log beside the file that a link leads to. Without a log, commits write to the file itself.
    file = os.path.realpath(path)
    log = f"{file}-wal"
    last: Mark | None = None
    still_from = anyway_at = 0.0
    seen = -1

    def look() -> dict[str, int] | None:
        nonlocal last, still_from, anyway_at, seen
        now = clock()
        mark = _mark(log) or _mark(file)
        if mark != last:
            last, still_from = mark, now + SETTLES_S
        if now >= still_from and now < anyway_at:
            return None
        try:
            # Cheaper than the topics: it tells whether another connection has changed anything.
            version = reader.execute("PRAGMA data_version").fetchone()[0]
            news = version != seen
            counts = dict(reader.execute(f"SELECT topic, n FROM {WAKE_TABLE}").fetchall()) if news else None
        except sqlite3.Error:  # busy, or the file is gone: asked again at the next look
            anyway_at = now
            return None
        seen, anyway_at = version, now + ANYWAY_S
        return counts

    return look


def _mark(name: str) -> Mark | None:
    try:
        found = os.stat(name)
    except OSError:  # no log yet, or not any more
        return None
    return found.st_ino, found.st_size, found.st_mtime_ns
