"""Who works: workers that say what they can do, those that have work in hand, and work of somebody who is gone."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import StrEnum
from typing import Any, Final

from holdfast.store.codec import from_json, instant
from holdfast.store.ids import WIDTH
from holdfast.store.port import Store
from holdfast.store.query import Condition, equal
from holdfast.workflows.records import ITEM, SERVING, WORKER, ItemRecord, ServingRecord, WorkerRecord
from holdfast.workflows.serving import COUNTS_S

_MOST: Final = 1000
_TIME_DIGITS: Final = 14


class WorkerState(StrEnum):
    """How a worker stands."""

    BUSY = "busy"
    """It has work in hand."""
    IDLE = "idle"
    LATE = "late"
    """It has given no sign of life for too long; whoever lives takes its work soon."""
    GONE = "gone"
    """It has work and no row: it died, and its work will be taken from it."""


@dataclass(frozen=True, slots=True)
class WorkerSeen:
    """A worker, as far as it is known. Who only looks in with `run_once` shows itself while it has work."""

    id: str
    """Also the owner of what it has in hand."""
    state: WorkerState
    host: str
    pid: int | None
    since: datetime | None
    seen_at: datetime | None
    """The last sign of life."""
    counts_until: datetime | None
    """When it counts as dead, unless it gives another one."""
    queues: tuple[str, ...]
    tasks: tuple[str, ...]
    versions: tuple[str, ...] | None
    """The code versions whose runs it takes; None: all."""
    in_hand: int


def workers(store: Store) -> list[WorkerSeen]:
    """Everybody who is alive or has work, the longest serving first; a thousand at most."""
    now = store.now()
    # The items first: whoever has one then has had a row before.
    held = {owner: n for (owner,), n in store.tally(ITEM, ("owner",), (Condition("owner", "is set"),)).items()}
    present = {one.id: one for one in store.page(WORKER, by="id", limit=_MOST)}
    found: list[WorkerSeen] = []
    for row in store.page(SERVING, by="id", limit=_MOST):
        about = from_json(row.about or "{}")
        id = str(about.get("worker") or row.id)
        found.append(_serving(row, about, id, present.pop(id, None), held.pop(id, 0), now))
    found += [_present(row, held.pop(row.id, 0), now) for row in present.values()]
    found += [_gone(owner, number) for owner, number in held.items()]
    return sorted(found, key=lambda one: one.id)


def in_hand(store: Store, worker: str, limit: int = 100) -> Sequence[ItemRecord]:
    """What a worker has in hand, the oldest first."""
    return store.page(ITEM, equal(owner=worker), by="id", limit=limit)


def _serving(
    row: ServingRecord, about: dict[str, Any], id: str, present: WorkerRecord | None, number: int, now: int
) -> WorkerSeen:
    until, ttl = row.due_at or 0, COUNTS_S
    if present is not None:  # it renews that one far more often
        until, ttl = present.due_at or 0, float(about.get("ttl_s", COUNTS_S))
    state = WorkerState.LATE if until <= now else WorkerState.BUSY if number else WorkerState.IDLE
    versions = None if row.versions is None else tuple(from_json(row.versions))
    since = instant(about["since"]) if "since" in about else _made(row.id)
    return WorkerSeen(
        id, state, str(about.get("host", "")), about.get("pid"), since, instant(until) - timedelta(seconds=ttl),
        instant(until), tuple(from_json(row.queues)), tuple(from_json(row.tasks)), versions, number,
    )  # fmt: skip


def _present(row: WorkerRecord, number: int, now: int) -> WorkerSeen:
    until = row.due_at or 0
    state = WorkerState.LATE if until <= now or not row.process else WorkerState.BUSY if number else WorkerState.IDLE
    pid = row.process.partition(" ")[0]
    return WorkerSeen(
        row.id, state, row.host.partition(" ")[0], int(pid) if pid.isdecimal() else None, _made(row.id), None,
        instant(until), (), (), None, number,
    )  # fmt: skip


def _gone(owner: str, number: int) -> WorkerSeen:
    return WorkerSeen(owner, WorkerState.GONE, "", None, _made(owner), None, None, (), (), None, number)


def _made(id: str) -> datetime | None:
    """When an id was made, which its first digits say."""
    try:
        return instant(int(id[:_TIME_DIGITS], 16)) if len(id) == WIDTH else None
    except ValueError:
        return None
