"""Who is alive: one row per worker that has work, renewed while it has; and taking work away from whoever is dead.

A row is renewed every beat, which gives it a new version. Its `due_at` is on the store's time. Whoever finds it past
that waits for two beats of his own clock whether the version changes, for the store's time may have jumped; and a row
that stays as it is for the whole time to live is dead whatever the store's time says. A worker of this host whose
process is gone is dead at once.

A burial begins with a new version of the row: from then on its worker knows, at the next beat, that nothing is his. It
ends when the row is gone. Until then the row is of who buries. If his process is gone, whoever is on the same host
finishes it at once, and so does he himself if the store was away in the midst of it; otherwise the row runs out.
"""

from __future__ import annotations

import logging
import os
import socket
import threading
from typing import Any, Final, NamedTuple

from holdfast.core.clock import SYSTEM_CLOCK, Clock
from holdfast.errors import Conflict
from holdfast.store.codec import from_json, plain_to_json
from holdfast.store.ids import new_record_id
from holdfast.store.port import Delete, Insert, Store, Swap
from holdfast.store.query import Condition, equal
from holdfast.store.record import evolve
from holdfast.workflows.records import ITEM, WORKER, ItemRecord, WorkerRecord
from holdfast.workflows.settling import WAKE

MOST_CRASHES: Final = 10
"""How many workers may die of a task, or beside it, before it fails."""
_BATCH: Final = 500
_log: Final = logging.getLogger("holdfast")


class Sight(NamedTuple):
    """A row as we saw it first at this version, and when, by our own clock."""

    version: int
    at: float


class Presence:
    """This worker's row. `ttl_s` after the last sign of life its work is somebody else's."""

    def __init__(self, store: Store, *, beat_s: float = 0.5, ttl_s: float = 3.0, clock: Clock = SYSTEM_CLOCK) -> None:
        self._store = store
        self._beat = beat_s
        self._ttl = ttl_s
        self._clock = clock
        self._lock = threading.Lock()
        self._record: WorkerRecord | None = None
        self._seen: dict[str, Sight] = {}
        self._id: str | None = None
        self.others = 0
        """How many other workers had a row when we last looked."""

    @property
    def id(self) -> str:
        if self._id is None:
            self._id = new_record_id(self._store.now())
        return self._id

    def about(self) -> dict[str, Any]:
        """Who we are, for whoever looks: also while we have nothing to do, and no row."""
        return {"worker": self.id, "host": socket.gethostname(), "pid": os.getpid(), "ttl_s": self._ttl}

    @property
    def is_shown(self) -> bool:
        """Whether there is a row of ours, as far as we know."""
        return self._record is not None

    def show(self) -> bool:
        """Give a sign of life; False when we were declared dead: nothing that we had is ours, and our id is new."""
        with self._lock:
            for _ in range(2):
                until = self._store.now() + round(self._ttl * 1e6)
                old = self._record
                new = self._first(until) if old is None else evolve(old, due_at=until)
                try:
                    self._store.commit([Insert(WORKER, new) if old is None else Swap(WORKER, old, new)])
                except Conflict:
                    # Perhaps the beat before was stored, and the answer was lost.
                    found = self._store.get(WORKER, [self.id])[0]
                    if found is not None and found.about == _ALIVE and found.process == new.process:
                        self._record = found
                        continue
                    break
                self._record = new
                return True
            self._record = self._id = None
            return False

    @property
    def is_lasting(self) -> bool:
        """Whether there is a row of ours that will not run out soon."""
        record = self._record
        return record is not None and (record.due_at or 0) - self._store.now() >= self._ttl * 5e5

    def be_there(self) -> bool:
        """Have a row that will not run out soon, before something is ours; False as `show`."""
        return self.is_lasting or self.show()

    def leave(self) -> None:
        """Take the row away. Nothing may be ours any more."""
        with self._lock:
            record, self._record = self._record, None
            if record is not None:
                try:
                    self._store.commit([Delete(WORKER, record)])
                except Conflict:
                    _log.warning("workflows: worker %s was declared dead, and has nothing to lose", self._id)
                    self._id = None

    def bury(self, *, patient: bool = True) -> int:
        """Take the work away from everyone who is dead; how many items that were.

        Without patience a row that is past its time is enough, for somebody who looks only once.
        """
        rows = [one for one in self._store.page(WORKER, by="id", limit=_BATCH) if one.id != self._id]
        self.others = len(rows)
        now, here, at = self._store.now(), host(), self._clock.monotonic()
        freed = 0
        for row in rows:
            sight = self._seen.get(row.id)
            if sight is None or sight.version != row.version:
                sight = self._seen[row.id] = Sight(row.version, at)
            late = (row.due_at or 0) <= now and (not patient or at - sight.at >= 2 * self._beat)
            stiff = at - sight.at >= self._ttl + self._beat
            about = _about(row)
            if late or stiff or about.get("buried_by", "") == self._id or _is_gone(about, here):
                freed += self._bury(row)
        self._seen = {row.id: self._seen[row.id] for row in rows}
        return freed

    def _bury(self, row: WorkerRecord) -> int:
        until = self._store.now() + round(self._ttl * 1e6)
        whose = {"buried_by": self.id, "host": host(), "process": process_of(os.getpid())}
        grave = evolve(row, due_at=until, host="", process="", about=plain_to_json(whose))
        try:
            self._store.commit([Swap(WORKER, row, grave)])
        except Conflict:
            return 0  # he lives, or somebody else buries him
        freed = self.take_from(row.id)
        try:
            self._store.commit([Delete(WORKER, grave)], wake=WAKE if freed else None)
        except Conflict:
            pass  # it took us so long that somebody else has done it, too
        return freed

    def take_from(self, owner: str, *, crashed: bool = True) -> int:
        """Make everything of an owner anybody's. What was under way goes before all that waits: it has had its turn.
        Not so what a worker has died of before, or beside: it may be what kills them, and takes its place at the end.
        """
        now, freed = self._store.now(), 0
        fronts = self._fronts(owner, now)

        def free(item: ItemRecord) -> ItemRecord | None:
            due = now if item.crashes else fronts.get((item.queue, item.priority), now)
            return evolve(item, owner=None, due_at=due, crashes=item.crashes + crashed)

        while found := self._store.claim(ITEM, equal(owner=owner), free, by="id", limit=_BATCH):
            freed += len(found)
        return freed

    def _fronts(self, owner: str, now: int) -> dict[tuple[str, int], int]:
        """By queue and priority of what an owner has, the time that is just before that of whatever waits there."""
        fronts: dict[tuple[str, int], int] = {}
        for queue, priority in self._store.tally(ITEM, ("queue", "priority"), equal(owner=owner)):
            first = self._store.page(ITEM, equal(queue=queue, priority=priority), by="due_at", limit=1)
            fronts[queue, priority] = min(now, (first[0].due_at or now) - 1) if first else now
        return fronts

    def adopt_orphans(self) -> int:
        """Free what belongs to somebody who has no row: he claimed it after he was buried, and died then."""
        owners = [owner for (owner,) in self._store.tally(ITEM, ("owner",), (Condition("owner", "is set"),))]
        # The rows are read after the items: whoever has an item had a row before.
        rows = self._store.get(WORKER, owners)
        return sum(
            self.take_from(owner) for owner, row in zip(owners, rows, strict=True) if row is None and owner != self._id
        )

    def _first(self, until: int) -> WorkerRecord:
        return WorkerRecord(self.id, 1, until, host(), process_of(os.getpid()) or "", _ALIVE)


_ALIVE: Final = "{}"


def host() -> str:
    """This host since its last start, and which processes are seen from here; nothing where that is not known."""
    try:
        with open("/proc/sys/kernel/random/boot_id") as file:
            return f"{socket.gethostname()} {file.read().strip()} {os.readlink('/proc/self/ns/pid')}"
    except OSError:
        return ""


def process_of(number: int) -> str | None:
    """Number and start of a process; None if there is none of that number."""
    try:
        with open(f"/proc/{number}/stat") as file:
            fields = file.read().rpartition(")")[2].split()
    except OSError:
        return None
    return None if fields[0] == "Z" else f"{number} {fields[19]}"


def _about(row: WorkerRecord) -> dict[str, Any]:
    """Whose row it is: a worker, or who buries him."""
    return {"host": row.host, "process": row.process} if row.about == _ALIVE else from_json(row.about)


def _is_gone(about: dict[str, Any], here: str) -> bool:
    """Whether he was a process of this host, and is none any more."""
    process: str | None = about.get("process")
    if not here or not process or about.get("host") != here:
        return False
    return process_of(int(process.split()[0])) != process
