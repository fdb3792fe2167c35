"""What workers can do: each that stays says so in a row of its own, and work that none of them can do is found."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final, NamedTuple

from holdfast.errors import Conflict
from holdfast.store.codec import from_json, instant, plain_to_json
from holdfast.store.ids import new_record_id
from holdfast.store.port import Delete, Insert, Store, Swap
from holdfast.store.query import Condition, equal
from holdfast.store.record import evolve
from holdfast.workflows.records import ITEM, SERVING, WORKFLOW, ItemRecord, ServingRecord

COUNTS_S: Final = 180.0
"""How long a row counts after it was last renewed."""
RENEW_S: Final = 60.0
_MOST_WORKERS: Final = 1000


class Serving:
    """The row of one worker. `versions` are the code versions whose runs it takes; None: all. `who` says who it is."""

    def __init__(
        self,
        store: Store,
        queues: Sequence[str],
        versions: Sequence[str] | None,
        who: Callable[[], Mapping[str, Any]] = dict,
    ) -> None:
        self._store = store
        self._who = who
        self._since = 0
        self._queues = plain_to_json(list(queues))
        self._versions = None if versions is None else plain_to_json(sorted(versions))
        self._record: ServingRecord | None = None

    def declare(self, tasks: Iterable[str]) -> None:
        """Say what we can do, unless it was said a moment ago. Raises StoreError."""
        known, now = plain_to_json(sorted(tasks)), self._store.now()
        self._since = self._since or now
        about = plain_to_json({**self._who(), "since": self._since})
        old = self._record
        is_said = old is not None and (old.tasks, old.about) == (known, about)
        if old is not None and is_said and (old.due_at or 0) - now > (COUNTS_S - RENEW_S) * 1e6:
            return
        until = now + round(COUNTS_S * 1e6)
        if old is None:
            new = ServingRecord(new_record_id(now), 1, until, self._queues, known, self._versions, about)
        else:
            new = evolve(old, due_at=until, tasks=known, about=about)
        try:
            self._store.commit([Insert(SERVING, new) if old is None else Swap(SERVING, old, new)])
        except Conflict:
            self._record = None  # somebody has tidied up after us: next time we come anew
        else:
            self._record = new

    def withdraw(self) -> None:
        """We stop. Raises StoreError."""
        record, self._record = self._record, None
        if record is not None:
            try:
                self._store.commit([Delete(SERVING, record)])
            except Conflict:
                pass


@dataclass(frozen=True, slots=True)
class Stranded:
    """Work that is due and that no worker can take."""

    workflow_id: str
    name: str
    stage: str
    task: str
    queue: str
    code_version: str | None
    since: datetime
    reason: str


class _Offer(NamedTuple):
    queues: frozenset[str]
    tasks: frozenset[str]
    versions: frozenset[str] | None


def stranded(store: Store, limit: int, workflow: str | None = None) -> list[Stranded]:
    """What no worker can take, what has waited longest first; of all workflows, or of one."""
    now = store.now()
    offers = _offers(store, now)
    due = (*equal(workflow=workflow), Condition("due_at", "<=", now))
    found: list[tuple[ItemRecord, str]] = []
    for queue, type, code in store.tally(ITEM, ("queue", "type", "code"), due):
        reason = _why(offers, queue, type, code)
        if reason is not None:
            where = (*equal(queue=queue, type=type), Condition("code", "=", code), *due)
            items = store.page(ITEM, where, by="due_at", limit=limit)
            found += [(item, reason) for item in items]
    found = sorted(found, key=lambda one: (one[0].due_at or 0, one[0].id))[:limit]
    workflows = store.get(WORKFLOW, [item.workflow for item, _ in found])
    return [
        Stranded(
            item.workflow, "" if one is None else one.name, item.ref, item.type, item.queue, item.code,
            instant(item.due_at or now), reason,
        )
        for (item, reason), one in zip(found, workflows, strict=True)
    ]  # fmt: skip


def stranded_numbers(store: Store) -> Counter[str]:
    """How much due work no worker can take, by queue."""
    now, found = store.now(), Counter[str]()
    offers = _offers(store, now)
    due = store.tally(ITEM, ("queue", "type", "code"), (Condition("due_at", "<=", now),))
    for (queue, type, code), number in due.items():
        if _why(offers, queue, type, code) is not None:
            found[queue] += number
    return found


def tidy(store: Store) -> int:
    """Remove the rows of workers that have not renewed them; how many there were."""
    return store.sweep(SERVING, (Condition("due_at", "<=", store.now()),))


def _offers(store: Store, now: int) -> list[_Offer]:
    rows = store.page(SERVING, (Condition("due_at", ">", now),), by="id", limit=_MOST_WORKERS)
    return [
        _Offer(_set(one.queues), _set(one.tasks), None if one.versions is None else _set(one.versions)) for one in rows
    ]


def _why(offers: Sequence[_Offer], queue: str, type: str, code: str | None) -> str | None:
    """Why nobody takes such work; None: somebody can."""
    if not offers:
        return "no worker is there"
    tests: dict[str, Callable[[_Offer], bool]] = {
        f"takes queue {queue!r}": lambda one: queue in one.queues,
        f"knows task {type!r}": lambda one: not type or type in one.tasks,
        f"serves code version {code!r}": lambda one: one.versions is None or code in one.versions,
    }
    if any(all(test(one) for test in tests.values()) for one in offers):
        return None
    lacking = [words for words, test in tests.items() if not any(test(one) for one in offers)]
    return f"no worker {lacking[0] if lacking else ' and '.join(tests)}"


def _set(text: str) -> frozenset[str]:
    return frozenset(from_json(text))
