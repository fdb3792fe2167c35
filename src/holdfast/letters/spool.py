"""A file for letters that the store could not take: one JSON line each, read back when the store works again."""

from __future__ import annotations

import logging
import os
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

from holdfast.store.codec import from_json, to_json

try:
    import fcntl
except ImportError:  # Windows: processes need a spool file each
    fcntl = None  # type: ignore[assignment]

SCHEMA: Final = 1
_DONE: Final = b"#"  # in the place of a line's first byte: its letter is through
_log = logging.getLogger("holdfast")


class Spool:
    """Appends are synced to the disk before they return. Several processes may share the file."""

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.path = Path(path)
        self._lock = threading.Lock()
        self._reading = threading.Lock()

    def __bool__(self) -> bool:
        """Whether something is waiting."""
        return self.path.exists() or bool(self._taken())

    def size(self) -> int:
        """How many bytes wait, those included that somebody reads just now."""
        sizes = 0
        for path in (self.path, *self._taken()):
            try:
                sizes += path.stat().st_size
            except FileNotFoundError:  # there is nothing, or it is through
                pass
        return sizes

    def append(self, *entries: dict[str, Any]) -> None:
        """All or none. Raises OSError when the disk does not take them."""
        lines = b"".join(to_json({"schema": SCHEMA, "entry": entry}).encode() + b"\n" for entry in entries)
        self.path.parent.mkdir(parents=True, exist_ok=True)
        with self._exclusive():
            handle = os.open(self.path, os.O_RDWR | os.O_APPEND | os.O_CREAT, 0o600)
            try:
                _write(handle, lines)
            finally:
                os.close(handle)

    def ingest(self, put: Callable[[dict[str, Any]], object]) -> int:
        """Hand every line to `put` once, and forget a file when all of its lines are through; how many there were.

        Only the line at which a process dies is handed over again. What `put` raises is raised, and the rest is kept;
        but a line that is no letter, which is also what a TypeError or a ValueError of `put` says, is left in a file
        `.bad` beside it. Nothing is done while another thread or process is at it.
        """
        if not self or not self._reading.acquire(blocking=False):
            return 0
        try:
            with self._exclusive():
                if self.path.exists():
                    # New letters go to a new file meanwhile.
                    name = f"{self.path.name}.{os.getpid()}-{os.urandom(4).hex()}.taken"
                    self.path.rename(self.path.with_name(name))
            return sum(self._ingest_file(taken, put) for taken in self._taken())
        finally:
            self._reading.release()

    def _ingest_file(self, taken: Path, put: Callable[[dict[str, Any]], object]) -> int:
        try:
            file = taken.open("r+b", buffering=0)
        except FileNotFoundError:
            return 0  # another process was faster
        with file:
            if not _claim(file.fileno()):
                return 0
            done, at = 0, 0
            for line in file.read().split(b"\n"):
                if line and not line.startswith(_DONE):
                    done += self._hand_over(line, put)
                    _write_at(file.fileno(), at, _DONE)
                at += len(line) + 1
            taken.unlink(missing_ok=True)
        return done

    def _hand_over(self, line: bytes, put: Callable[[dict[str, Any]], object]) -> bool:
        try:
            put(_entry(line))
        except (TypeError, ValueError) as error:
            _log.error("a line of the spool is no dead letter (%s); it is kept in %s.bad", error, self.path)
            handle = os.open(f"{self.path}.bad", os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
            try:
                os.write(handle, line + b"\n")
            finally:
                os.close(handle)
            return False
        return True

    def _taken(self) -> list[Path]:
        return sorted(self.path.parent.glob(f"{self.path.name}.*.taken")) if self.path.parent.is_dir() else []

    @contextmanager
    def _exclusive(self) -> Iterator[None]:
        """Alone among threads and processes, so that nobody appends to a file that is being taken away."""
        with self._lock, open(f"{self.path}.lock", "w") as gate:
            if fcntl is not None:
                fcntl.flock(gate, fcntl.LOCK_EX)
            yield


def _write(handle: int, lines: bytes) -> None:
    """Append whole lines or nothing; a disk that is full may take half of one without a word."""
    end = os.lseek(handle, 0, os.SEEK_END)
    if end:
        os.lseek(handle, end - 1, os.SEEK_SET)
        if os.read(handle, 1) != b"\n":
            lines = b"\n" + lines  # a process died in the middle of the line before
    try:
        written = os.write(handle, lines)
        if written < len(lines):
            raise OSError(f"only {written} of {len(lines)} bytes could be written")
        os.fsync(handle)
    except OSError:
        os.ftruncate(handle, end)
        raise


def _write_at(handle: int, at: int, text: bytes) -> None:
    os.lseek(handle, at, os.SEEK_SET)
    os.write(handle, text)


def _claim(handle: int) -> bool:
    """Whether this process is the one that reads the file, until it closes it."""
    if fcntl is None:
        return True
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def _entry(line: bytes) -> dict[str, Any]:
    """Raises ValueError for a line that is no letter of this version."""
    read = from_json(line.decode())
    entry = read.get("entry") if isinstance(read, dict) and read.get("schema") == SCHEMA else None
    if isinstance(entry, dict):
        return entry
    raise ValueError("no entry of this version")
