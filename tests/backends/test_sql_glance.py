"""Seeing that another process has written to an SQLite file without a statement, and what the eye may miss."""

from __future__ import annotations

import os
import sqlite3
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from holdfast.backends.sql.glance import ANYWAY_S, SETTLES_S, looking
from holdfast.backends.sql.store import SqlStore
from holdfast.store.port import Insert
from holdfast.testing import ManualClock
from holdfast.testing.store.kinds import ITEM, item

OTHER_PROCESS = """
import sys
from holdfast.backends.sql.store import SqlStore
from holdfast.store.port import Insert
from holdfast.testing.store.kinds import ITEM, item

store = SqlStore(sys.argv[1])
store.commit([Insert(ITEM, item(sys.argv[2]))], wake="topic")
store.close()
"""
LOOK_S = 0.1


class Seen:
    """A file that is looked at, the statements that this took, and a second connection that keeps its log."""

    def __init__(self, path: Path, through: Path) -> None:
        self.url = f"sqlite:///{path}"
        self.store = SqlStore(self.url)
        self.store.commit([Insert(ITEM, item("first"))], wake="topic")
        self.log = Path(f"{path}-wal")
        self.clock = ManualClock()
        self.reader = sqlite3.connect(through, isolation_level=None)
        self.statements: list[str] = []
        self.look = looking(self.reader, str(through), self.clock.monotonic)
        assert self.look() == {"topic": 1}
        self.clock.advance(SETTLES_S)
        self.look()
        self.reader.set_trace_callback(self.statements.append)

    def write_elsewhere(self, name: str) -> None:
        assert subprocess.run([sys.executable, "-c", OTHER_PROCESS, self.url, name]).returncode == 0

    def write_unseen(self, name: str) -> None:
        """Write to a log that starts again, and give it its old time."""
        before = os.stat(self.log)
        self.write_elsewhere(name)
        os.utime(self.log, ns=(before.st_atime_ns, before.st_mtime_ns))
        after = os.stat(self.log)
        assert (after.st_size, after.st_mtime_ns) == (before.st_size, before.st_mtime_ns)

    def touch(self) -> None:
        found = os.stat(self.log)
        os.utime(self.log, ns=(found.st_atime_ns, found.st_mtime_ns + 1))

    def close(self) -> None:
        self.reader.close()
        self.store.close()


@pytest.fixture
def seen(tmp_path: Path) -> Iterator[Seen]:
    made = Seen(tmp_path / "store.db", tmp_path / "store.db")
    yield made
    made.close()


def start_log_again(seen: Seen) -> None:
    """What is written next goes to the beginning of the log, which keeps its size."""
    with sqlite3.connect(seen.log.with_name("store.db")) as connection:
        assert connection.execute("PRAGMA wal_checkpoint(RESTART)").fetchone()[0] == 0
    connection.close()
    seen.look()
    seen.clock.advance(SETTLES_S)
    seen.look()
    seen.statements.clear()


def test_a_commit_of_another_process_is_seen_at_the_next_look(seen: Seen) -> None:
    seen.clock.advance(LOOK_S)
    assert seen.look() is None
    seen.write_elsewhere("second")
    seen.clock.advance(LOOK_S)
    assert seen.look() == {"topic": 2}


def test_a_file_that_nobody_writes_to_is_asked_now_and_then_only(seen: Seen) -> None:
    for _ in range(600):
        seen.clock.advance(LOOK_S)
        assert seen.look() is None
    assert 600 * LOOK_S / ANYWAY_S - 1 <= len(seen.statements) <= 600 * LOOK_S / ANYWAY_S


def test_a_commit_that_can_be_read_only_after_its_log_was_seen_is_not_missed(seen: Seen) -> None:
    start_log_again(seen)
    seen.touch()  # the frames are written, and the disk takes its time
    seen.clock.advance(LOOK_S)
    assert seen.look() is None
    seen.write_unseen("second")
    seen.clock.advance(LOOK_S)
    assert seen.look() == {"topic": 2}


def test_a_commit_that_the_file_does_not_show_is_found_after_a_while(seen: Seen) -> None:
    start_log_again(seen)
    seen.write_unseen("second")
    seen.clock.advance(LOOK_S)
    assert seen.look() is None
    assert not seen.statements
    seen.clock.advance(ANYWAY_S)
    assert seen.look() == {"topic": 2}


def test_a_file_is_seen_through_a_link(tmp_path: Path) -> None:
    (tmp_path / "folder").mkdir()
    (tmp_path / "link.db").symlink_to(tmp_path / "folder" / "store.db")
    seen = Seen(tmp_path / "folder" / "store.db", tmp_path / "link.db")
    seen.write_elsewhere("second")
    seen.clock.advance(LOOK_S)
    assert seen.look() == {"topic": 2}
    seen.close()


def test_what_could_not_be_read_is_asked_for_again_at_the_next_look(seen: Seen) -> None:
    seen.write_elsewhere("second")
    seen.clock.advance(LOOK_S)
    seen.reader.set_progress_handler(lambda: 1, 1)  # interrupts whatever is asked
    assert seen.look() is None
    seen.reader.set_progress_handler(None, 1)
    seen.clock.advance(SETTLES_S + LOOK_S)
    assert seen.look() == {"topic": 2}
