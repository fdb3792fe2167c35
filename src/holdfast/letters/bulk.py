"""Bulk operations: replay, resolve or discard every letter that a filter finds, durably.

An operation is a record in the store. Any worker can run it, and carry on where another one died: what was done is
saved after each chunk, and the letters since then are looked at again, protected by their own state. What fails after
the start is not part of it. Letters of one entity are taken one after the other, and a domain that is barred leaves
the others alone.
"""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Sequence
from typing import Any, Final

from holdfast.core.redact import redact
from holdfast.errors import InvalidValue, StoreError
from holdfast.letters.crew import Crew
from holdfast.letters.data import cursor_of
from holdfast.letters.events import BulkChanged
from holdfast.letters.filing import WAKE
from holdfast.letters.heartbeat import Heart, Hold
from holdfast.letters.replay import Replayer
from holdfast.letters.scope import (
    CONCERNED,
    BulkPreview,
    BulkProgress,
    LetterFilter,
    progress_of,
    scope_of,
    upper_of,
    whole_scope_of,
)
from holdfast.letters.values import status_value
from holdfast.letters.walk import SETTLES, Walk
from holdfast.machine import bulk as machine
from holdfast.machine.bulk import BULK, BulkAction, BulkRecord, BulkState
from holdfast.machine.dead_letter import LETTER
from holdfast.store.change import change
from holdfast.store.ids import new_record_id
from holdfast.store.port import Insert
from holdfast.store.query import Condition, equal

__all__ = ["Bulk", "BulkPreview", "BulkProgress", "CONCERNED", "LetterFilter", "progress_of"]

_BEATS: Final = 4
_SECOND: Final = 1_000_000


class Bulk:
    """Starts, runs and stops bulk operations.

    One that a worker has run for `turn_s` seconds lets others, and the worker's other work, have their turn.
    """

    def __init__(
        self, replayer: Replayer, *, concurrency: int = 8, lease_s: float = 60.0, turn_s: float = 30.0
    ) -> None:
        self._replayer = replayer
        self._store = replayer.repository.store
        self._concurrency = concurrency
        self._lease = round(lease_s * _SECOND)
        self._turn_s = turn_s
        self._heart = Heart(self._extend, lease_s / _BEATS)

    def dry_run(self, filter: LetterFilter, action: BulkAction | str = BulkAction.REPLAY) -> BulkPreview:
        """What the operation would act on now; nothing is changed. Raises ValueError for an unknown status, action."""
        now, verb = self._store.now(), _checked(filter, action)
        page = self._store.page(LETTER, scope_of(filter, verb, now), by="created_at", limit=5)
        by_status: Counter[str] = Counter()
        by_domain: Counter[str] = Counter()
        for (status, domain), number in self._count(filter, verb, now).items():
            by_status[status] += number
            by_domain[domain] += number
        sample = tuple(letter.id for letter in page)
        return BulkPreview(by_status.total(), dict(by_domain), dict(by_status), sample)

    def start(
        self,
        filter: LetterFilter,
        action: BulkAction | str = BulkAction.REPLAY,
        *,
        confirm_count: int | None = None,
        requested_by: str = "",
        reason: str = "",
    ) -> BulkProgress:
        """A new operation, for a worker to run.

        Raises ValueError for an unknown status or action, and when `confirm_count` is not the number of letters that
        match now.
        """
        now, verb = self._store.now(), _checked(filter, action)
        total = sum(self._count(filter, verb, now).values())
        if confirm_count is not None and confirm_count != total:
            raise InvalidValue(f"{total} letters match, not {confirm_count} as confirmed; look again with dry_run")
        record = machine.start(new_record_id(now), now, verb, filter.to_json(), total, requested_by, redact(reason))
        self._store.commit([Insert(BULK, record)], wake=WAKE)
        return self._told(record)

    def abort(self, id: str, *, by: str = "") -> bool:
        """Stop an operation; what was done stays done. False if it is over already."""
        now = self._store.now()
        after = change(self._store, BULK, id, lambda found: machine.abort(found, by, now))[1]
        if after is not None:
            self._told(after)
        return after is not None

    def progress(self, id: str) -> BulkProgress | None:
        found = self._store.get(BULK, (id,))[0]
        return None if found is None else progress_of(found)

    def find(
        self, state: BulkState | str | None = None, limit: int = 50, after: str | None = None
    ) -> list[BulkProgress]:
        """The operations, newest first; `after` is the `cursor` of the last one of the page before."""
        where = equal(state=None if state is None else str(state))
        found = self._store.page(
            BULK, where, by="created_at", descending=True, after=cursor_of(after), limit=max(0, limit)
        )
        return [progress_of(record) for record in found]

    def waiting(self) -> list[BulkRecord]:
        """Operations that wait for a worker, the longest due first; those that only another program can replay are
        left to that."""
        handlers = self._replayer.handlers

        def is_ours(record: BulkRecord) -> bool:
            if BulkAction(record.action) in SETTLES:
                return True
            domain = LetterFilter.from_json(record.filter).domain
            return bool(handlers.domains if domain is None else handlers.routes(domain))

        found = self._store.page(BULK, (Condition("due_at", "is set"),), by="due_at", limit=100)
        return [record for record in found if is_ours(record)]

    def run_due(
        self, stop: threading.Event | None = None, waiting: Sequence[BulkRecord] | None = None
    ) -> list[BulkProgress]:
        """Run every operation that is due and that this process can do something for, each for its turn.

        `waiting` is what `waiting()` has just said; without it that is asked here.
        """
        halt = threading.Event() if stop is None else stop
        known = self.waiting() if waiting is None else waiting
        now = self._store.now() if known else 0
        due = [record.id for record in known if record.due_at is not None and record.due_at <= now]
        ran = [self.run(id, halt, self._turn_s) for id in due if not halt.is_set()]
        return [progress for progress in ran if progress is not None]

    def next_s(self, waiting: Sequence[BulkRecord] | None = None) -> float | None:
        """Seconds until an operation wants this worker; None when none does."""
        known = self.waiting() if waiting is None else waiting
        return max(0.0, ((known[0].due_at or 0) - self._store.now()) / 1e6) if known else None

    def run(self, id: str, stop: threading.Event | None = None, turn_s: float | None = None) -> BulkProgress | None:
        """Carry an operation on to its end, until it is aborted, or until a breaker makes it wait.

        The progress so far; None for an unknown id. Another worker's operation is left to that one. With `turn_s` it
        is let go after so many seconds, for any worker to carry on.
        """
        now = self._store.now()
        token = new_record_id(now)
        taken = change(self._store, BULK, id, lambda found: machine.take(found, token, now, self._lease))[1]
        if taken is None:
            return self.progress(id)
        hold, halt = Hold(id, token), threading.Event() if stop is None else stop
        ends = None if turn_s is None else self._replayer.clock.monotonic() + turn_s
        try:
            with self._heart.holding(hold), self._replayer.heart.awake(), Crew(self._concurrency) as crew:
                Walk(self._replayer, taken, hold, crew, halt, self._lease).go(ends)
        except StoreError:
            raise
        except Exception as error:  # a fault of ours, or a filter from another version: do not try for ever
            note = redact(f"{type(error).__name__}: {error}")
            change(self._store, BULK, id, lambda found: machine.fail(found, token, note, self._store.now()))
            raise
        found = self._store.get(BULK, (id,))[0]
        return None if found is None else self._told(found)

    def _count(self, filter: LetterFilter, action: BulkAction, now: int) -> dict[tuple[Any, ...], int]:
        """How many letters the action would act on, by status and domain."""
        by, counted = ("status", "domain"), whole_scope_of(filter, action)
        if counted is not None:
            # From the counters, less what came later, of which there is little; unless some comes just now.
            late = (*counted, Condition("created_at", ">", upper_of(filter, now)))
            later = self._store.tally(LETTER, by, late)
            every = Counter(self._store.tally(LETTER, by, counted))
            if self._store.tally(LETTER, by, late) == later:
                every.subtract(later)
                return {values: number for values, number in every.items() if number > 0}
        return self._store.tally(LETTER, by, scope_of(filter, action, now))

    def _extend(self, id: str, token: str) -> bool:
        now = self._store.now()

        def extend(found: BulkRecord | None) -> BulkRecord | None:
            return None if found is None else machine.extend(found, token, now, self._lease)

        return change(self._store, BULK, id, extend)[1] is not None

    def _told(self, record: BulkRecord) -> BulkProgress:
        self._replayer.hub.emit(
            BulkChanged(
                LetterFilter.from_json(record.filter).domain or "", "", record.id, record.action, record.state,
                record.done, record.total, record.succeeded, record.failed, record.skipped, record.note,
            )
        )  # fmt: skip
        return progress_of(record)


def _checked(filter: LetterFilter, action: str) -> BulkAction:
    """The action. Raises ValueError for what can be done to no letter, and for a status that no letter ever has: as a
    filter that only matches nothing, but here somebody would wait for what never happens."""
    if filter.status is not None:
        status_value(filter.status)
    try:
        return BulkAction(action)
    except ValueError:
        raise InvalidValue(f"{action!r} is no action of a bulk operation; use one of {', '.join(BulkAction)}") from None
