"""Where captured failures go: into the store, within its capacity, or into the spool while the store is away."""

from __future__ import annotations

import logging
import os
import threading
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING, Any, Final, Literal

from holdfast.core.clock import SYSTEM_CLOCK, Clock
from holdfast.core.redact import redact
from holdfast.errors import StoreUnavailable
from holdfast.letters.buffer import Buffer
from holdfast.letters.overflow import Capacity, Rejection, Room
from holdfast.letters.spool import Spool
from holdfast.store.ids import new_record_id

if TYPE_CHECKING:
    from concurrent.futures import ThreadPoolExecutor

    from holdfast.letters.data import FailedOperationData
    from holdfast.letters.repository import FailedOperationRepository

_log: Final = logging.getLogger("holdfast")
_QUIET_S: Final = 60.0
_TIMES: Final = ("expires_at", "created_at")
_WRITERS: Final = 4

Entry = dict[str, Any]
"""The arguments of `FailedOperationRepository.create`."""


@dataclass(frozen=True, slots=True)
class Kept:
    """What became of a failure: the stored letter, a place in the spool, or the reason why it was not kept."""

    letter: FailedOperationData | None = None
    rejected: Rejection | None = None
    spooled: bool = False
    error: Exception | None = None

    @property
    def how(self) -> Literal["stored", "spooled", "rejected", "lost"]:
        if self.letter is not None:
            return "stored"
        return "spooled" if self.spooled else "lost" if self.rejected is None else "rejected"

    @property
    def is_kept(self) -> bool:
        return self.letter is not None or self.spooled


Settled = Callable[[Kept], object]


class LetterBox:
    """Takes entries and never raises for a store that is away. `counts` tells what became of them."""

    def __init__(
        self,
        repository: FailedOperationRepository,
        capacity: Capacity | None = None,
        spool: Spool | None = None,
        clock: Clock = SYSTEM_CLOCK,
    ) -> None:
        self.repository = repository
        self.spool = spool
        self.room = Room(repository, Capacity() if capacity is None else capacity)
        self.buffer: Buffer[tuple[Entry, Settled]] = Buffer(self._write)
        self.counts = {"stored": 0, "rejected": 0, "spooled": 0, "lost": 0, "ingested": 0}
        self._clock = clock
        self._lock = threading.Lock()
        self._warned: dict[str, float] = {}
        self._writers: tuple[int, ThreadPoolExecutor] | None = None
        self._behind = spool is not None  # an earlier process may have left something

    def put(self, entry: Entry, connection: Any = None) -> Kept:
        """Keep one failure. What cannot be kept is logged and counted."""
        try:
            # A transaction of the caller's may hold the locks that evicting would wait for.
            rejected = self.room.make(entry["domain"], may_evict=connection is None)
            if rejected is None and self.room.is_crowded:
                self._warn("crowded", "more dead letters than there is room for, and none may go: %s", entry["domain"])
            if rejected is not None:
                self._count("rejected")
                self._warn(rejected, "a dead letter of %s was rejected: %s", entry["domain"], rejected)
                return Kept(rejected=rejected)
            letter = self.repository.create(**entry, connection=connection)
        except Exception as error:  # the caller's own failure must reach the caller, whatever ours is
            return self._set_aside(entry, error)
        self._count("stored")
        if self._behind and connection is None:
            self._catch_up()
        return Kept(letter)

    def post(self, entry: Entry, settled: Settled) -> bool:
        """Keep one failure a little later; `settled` is told what became of it. False if it must be `put`."""
        return self.buffer.add((entry, settled))

    def put_many(self, entries: Sequence[Entry]) -> list[Kept]:
        """As `put` for each, in one commit where there is room for all of them."""
        try:
            if len(entries) == 1 or not self._fit(entries):
                return [self.put(entry) for entry in entries]
            letters = self.repository.create_many(entries)
        except StoreUnavailable as error:
            return self._set_all_aside(entries, error)
        except Exception:  # one that cannot be stored must not cost the others
            return [self.put(entry) for entry in entries]
        self._count("stored", len(letters))
        if self._behind:
            self._catch_up()
        return [Kept(letter) for letter in letters]

    def flush(self) -> None:
        """Write what waits in the buffer, and return when it is written."""
        self.buffer.flush()

    def writers(self) -> ThreadPoolExecutor:
        """Threads in which letters are written while an event loop goes on.

        Not the loop's own, which in an outage may all be waiting: for a name to be resolved, or for this very call.
        """
        from concurrent.futures import ThreadPoolExecutor  # for asyncio only, which has loaded it

        with self._lock:
            if self._writers is None or self._writers[0] != os.getpid():
                # A forked child has its parent's pool without the threads.
                self._writers = os.getpid(), ThreadPoolExecutor(_WRITERS, "holdfast-letters")
            return self._writers[1]

    def close(self) -> None:
        """Write what waits, and wait for what is being written. The box may be used again."""
        self.buffer.close()
        with self._lock:
            made, self._writers = self._writers, None
        if made is not None and made[0] == os.getpid():
            made[1].shutdown()

    def lose(self, domain: str, error: Exception, number: int = 1) -> None:
        """Log and count a failure of which no letter could be made."""
        self._count("lost", number)
        self._warn("lost", "a dead letter of %s could not be stored and is lost: %s", domain, _said(error))

    def ingest(self) -> int:
        """Store what waits in the spool; raises when the store is still away."""
        if self.spool is None or not self.spool:
            return 0
        done = self.spool.ingest(lambda entry: self.repository.create(**_with_times(entry)))
        self._count("ingested", done)
        return done

    def _catch_up(self) -> None:
        """The store works: what waits in the spool goes first thing, worker or not."""
        self._behind = False
        try:
            self.ingest()
        except Exception:  # away again; the letters stay where they are
            self._behind = True

    def _write(self, batch: Sequence[tuple[Entry, Settled]]) -> None:
        for (_, settled), kept in zip(batch, self.put_many([entry for entry, _ in batch]), strict=True):
            settled(kept)

    def _fit(self, entries: Sequence[Entry]) -> bool:
        """Whether the store has room for all of these, so that nothing has to give way."""
        capacity, repository = self.room.capacity, self.repository
        if repository.count_all() + len(entries) > capacity.total:
            return False
        domains = Counter(entry["domain"] for entry in entries)
        return all(repository.count_by_domain(domain) + new <= capacity.per_domain for domain, new in domains.items())

    def _set_aside(self, entry: Entry, error: Exception) -> Kept:
        return self._set_all_aside((entry,), error)[0]

    def _set_all_aside(self, entries: Sequence[Entry], error: Exception) -> list[Kept]:
        domain, number = entries[0]["domain"], len(entries)
        if self.spool is None:
            self.lose(domain, error, number)
            return [Kept(error=error)] * number
        try:
            failed_at = self._clock.wall()
            self.spool.append(*(_aside(entry, failed_at) for entry in entries))
        except Exception as fault:  # the disk is full, the folder is gone: there is nowhere else to go
            if number > 1:  # perhaps there is for some
                return [self._set_aside(entry, error) for entry in entries]
            self._count("lost")
            story = "a dead letter of %s is lost: %s, and the spool: %s"
            self._warn("lost", story, domain, _said(error), _said(fault))
            return [Kept(error=error)]
        self._count("spooled", number)
        self._behind = True
        self._warn("spooled", "dead letters of %s go to the spool %s: %s", domain, self.spool.path, _said(error))
        return [Kept(spooled=True, error=error)] * number

    def _count(self, what: str, number: int = 1) -> None:
        with self._lock:
            self.counts[what] += number

    def _warn(self, what: str, message: str, *values: Any) -> None:
        """One line a minute for each kind of trouble: an outage of the store must not be one of the log as well."""
        now = self._clock.monotonic()
        with self._lock:
            if now - self._warned.get(what, -_QUIET_S) < _QUIET_S:
                return
            self._warned[what] = now
        _log.warning(message, *values)


def _aside(entry: Entry, failed_at: datetime) -> Entry:
    """With the time at which it failed, by which letters are ordered.

    The line at which a process dies is read back twice; the key makes one letter of it.
    """
    key = entry.get("dedup_key") or f"spool-{new_record_id(0)}"
    return {"created_at": failed_at, **entry, "dedup_key": key}


def _said(error: Exception) -> str:
    """A database's message may quote what was to be stored."""
    return redact(f"{type(error).__name__}: {error}")


def _with_times(entry: Entry) -> Entry:
    """An entry from the spool, with its times as times again."""
    times = {name: datetime.fromisoformat(entry[name]) for name in _TIMES if entry.get(name)}
    return {**entry, **times}
