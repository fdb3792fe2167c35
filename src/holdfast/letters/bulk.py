"""Bulk operations: replay, resolve or discard every letter that a filter finds, durably.

An operation is a record in the store. Any worker can run it, and carry on where another one died: what was done is
saved after each chunk, and the letters since then are looked at again, protected by their own state. What fails after
the start is not part of it. Letters of one entity are taken one after the other.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace
from datetime import datetime
from typing import Any, Final

from holdfast.core.redact import redact
from holdfast.errors import StoreError
from holdfast.letters.events import BulkChanged
from holdfast.letters.filing import WAKE
from holdfast.letters.heartbeat import Heart, Hold
from holdfast.letters.order import KeyOf, entity_of
from holdfast.letters.pace import Crew, key_of
from holdfast.letters.replay import Replayer, ReplayOutcome, ReplayResult
from holdfast.letters.values import identity, sought
from holdfast.machine import bulk as machine
from holdfast.machine.bulk import BULK, BulkAction, BulkRecord, BulkState, Step
from holdfast.machine.dead_letter import ACTIVE, IN_FLIGHT, LETTER, LetterRecord, operate
from holdfast.machine.drain import LARGEST_BATCH, Batch
from holdfast.store.change import change
from holdfast.store.codec import from_json, instant, maybe_instant, micros, to_json
from holdfast.store.ids import new_record_id
from holdfast.store.port import Insert
from holdfast.store.query import Condition, Cursor, Where, among, equal

CONCERNED: Final[dict[BulkAction, frozenset[str]]] = {
    BulkAction.REPLAY: frozenset({"pending"}),
    BulkAction.FORCE_REPLAY: frozenset({"pending", "requires_review"}),
    BulkAction.RESOLVE: ACTIVE - IN_FLIGHT,
    BulkAction.DISCARD: ACTIVE - IN_FLIGHT,
}
"""The statuses on which an action acts; letters in any other one are not part of the operation."""

_STATUS: Final = {BulkAction.RESOLVE: ("resolved", "manual"), BulkAction.DISCARD: ("rejected", "rejected")}
_TRIGGER: Final = {BulkAction.REPLAY: "manual_replay", BulkAction.FORCE_REPLAY: "force_redrive"}
_FAILED: Final = (ReplayOutcome.FAILED, ReplayOutcome.UNSETTLED, ReplayOutcome.LOST)
_CHUNK: Final = 500
_BEATS: Final = 4
_PATIENCE_S: Final = 30.0
_SECOND: Final = 1_000_000


@dataclass(frozen=True, slots=True)
class LetterFilter:
    """Which letters are meant: all that are given must be equal; both ends of the time are included."""

    status: str | None = None
    domain: str | None = None
    failure_type: str | None = None
    entity_type: str | None = None
    entity_id: str | None = None
    user_id: int | str | None = None
    created_from: datetime | None = None
    created_to: datetime | None = None

    def where(self) -> Where:
        texts = ("status", "domain", "failure_type", "entity_type", "entity_id")
        given = {name: sought(name, value) for name in texts if (value := getattr(self, name)) is not None}
        found = list(equal(**given))
        if self.user_id is not None:
            found.append(Condition("user_id", "=", identity("user_id", self.user_id)))
        if self.created_from is not None:
            found.append(Condition("created_at", ">=", micros(self.created_from)))
        if self.created_to is not None:
            found.append(Condition("created_at", "<=", micros(self.created_to)))
        return tuple(found)

    def to_json(self) -> str:
        return to_json({name: value for name, value in asdict(self).items() if value is not None})

    @classmethod
    def from_json(cls, text: str) -> LetterFilter:
        given: dict[str, Any] = from_json(text)
        for name in ("created_from", "created_to"):
            if name in given:
                given[name] = datetime.fromisoformat(given[name])
        return cls(**given)


@dataclass(frozen=True, slots=True)
class BulkPreview:
    """What an operation would act on: how many letters, by domain and by status, and the oldest few."""

    total: int
    by_domain: dict[str, int]
    by_status: dict[str, int]
    sample: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class BulkProgress:
    """How far an operation is. `note` says why it waits, failed or was aborted."""

    id: str
    action: BulkAction
    state: BulkState
    filter: LetterFilter
    total: int
    done: int
    succeeded: int
    failed: int
    skipped: int
    requested_by: str
    reason: str
    note: str
    created_at: datetime
    started_at: datetime | None
    finished_at: datetime | None

    @property
    def is_over(self) -> bool:
        return self.state in machine.FINISHED


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
        """What the operation would act on now; nothing is changed."""
        where = _scope(filter, BulkAction(action), self._store.now())
        tally, page = self._store.tally, self._store.page(LETTER, where, by="created_at", limit=5)
        by_status = {status: number for (status,), number in tally(LETTER, ("status",), where).items()}
        by_domain = {domain: number for (domain,), number in tally(LETTER, ("domain",), where).items()}
        return BulkPreview(sum(by_status.values()), by_domain, by_status, tuple(letter.id for letter in page))

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

        Raises ValueError when `confirm_count` is not the number of letters that match now.
        """
        now, verb = self._store.now(), BulkAction(action)
        total = sum(self._store.tally(LETTER, (), _scope(filter, verb, now)).values())
        if confirm_count is not None and confirm_count != total:
            raise ValueError(f"{total} letters match, not {confirm_count} as confirmed; look again with dry_run")
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

    def find(self, state: BulkState | str | None = None, limit: int = 50) -> list[BulkProgress]:
        """The operations, newest first."""
        where = equal(state=None if state is None else str(state))
        found = self._store.page(BULK, where, by="created_at", descending=True, limit=max(0, limit))
        return [progress_of(record) for record in found]

    def run_due(self, stop: threading.Event | None = None) -> list[BulkProgress]:
        """Run every operation that waits for a worker and that this process can do something for, each for its turn."""
        due = Condition("due_at", "<=", self._store.now())
        halt = threading.Event() if stop is None else stop
        ran = [self.run(record.id, halt, self._turn_s) for record in self._ours(due) if not halt.is_set()]
        return [progress for progress in ran if progress is not None]

    def next_s(self) -> float | None:
        """Seconds until an operation wants this worker; None when none does."""
        now = self._store.now()
        first = next(iter(self._ours(Condition("due_at", "is set"))), None)
        return None if first is None else max(0.0, ((first.due_at or 0) - now) / 1e6)

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
                self._work(taken, hold, crew, halt, ends)
        except StoreError:
            raise
        except Exception as error:  # a fault of ours, or a filter from another version: do not try for ever
            note = redact(f"{type(error).__name__}: {error}")
            change(self._store, BULK, id, lambda found: machine.fail(found, token, note, self._store.now()))
            raise
        found = self._store.get(BULK, (id,))[0]
        return None if found is None else self._told(found)

    def _ours(self, due: Condition) -> list[BulkRecord]:
        """Operations, the longest due first. Those whose domain only another program can replay are left to that."""
        handlers = self._replayer.handlers

        def is_ours(record: BulkRecord) -> bool:
            if BulkAction(record.action) in _STATUS:
                return True
            domain = LetterFilter.from_json(record.filter).domain
            return bool(handlers.domains if domain is None else handlers.routes(domain))

        return [record for record in self._store.page(BULK, (due,), by="due_at", limit=100) if is_ours(record)]

    def _work(self, record: BulkRecord, hold: Hold, crew: Crew, stop: threading.Event, ends: float | None) -> None:
        action, batch = BulkAction(record.action), Batch()
        where = _scope(LetterFilter.from_json(record.filter), action, record.upper_at)
        while True:
            # What was done ahead of the cursor must be in the page again, or it would be forgotten and done twice.
            size = _CHUNK if action in _STATUS else batch.size if record.ahead == "[]" else LARGEST_BATCH
            after = None if record.cursor_id is None else Cursor(record.cursor_at, record.cursor_id)
            page = self._store.page(LETTER, where, by="created_at", after=after, limit=size)
            if not page:
                self._save(hold, lambda r: machine.finish(r, hold.token, _still(r), self._store.now()))
                return
            ahead = set(from_json(record.ahead))
            fresh = [letter for letter in page if letter.id not in ahead]
            results = self._deal(action, fresh, record, crew, stop, hold)
            step, waits = _step(record, page, results)
            saved = self._keep(hold, step, waits, stop)
            if saved is None or waits is not None:
                return
            record, batch = saved, batch.after(step.succeeded + step.failed, step.failed)
            if ends is not None and self._replayer.clock.monotonic() >= ends:
                self._save(hold, lambda r: machine.park(r, hold.token, _still(r), self._store.now(), ""))
                return

    def _keep(self, hold: Hold, step: Step, waits: ReplayResult | None, stop: threading.Event) -> BulkRecord | None:
        """Save a chunk: the operation as it goes on, or parked where it cannot; None when it is no longer ours."""
        now = self._store.now()
        if waits is None:
            return self._save(hold, lambda r: machine.advance(r, hold.token, step, now, self._lease))
        wait = 0.0 if stop.is_set() else waits.retry_after or _PATIENCE_S
        until = now + round(min(wait, _PATIENCE_S) * _SECOND)
        return self._save(hold, lambda r: machine.park(r, hold.token, step, until, f"waits: {waits.reason}"))

    def _deal(
        self,
        action: BulkAction,
        letters: Sequence[LetterRecord],
        record: BulkRecord,
        crew: Crew,
        stop: threading.Event,
        hold: Hold,
    ) -> dict[str, ReplayResult]:
        """Do it to these letters; what came of each, by id."""
        if action in _STATUS:
            return self._settle(action, letters, record)

        def replay(group: list[LetterRecord]) -> list[ReplayResult]:
            return [stopped(one) if stop.is_set() or hold.lost else self._replay(action, one, record) for one in group]

        def stopped(letter: LetterRecord) -> ReplayResult:
            return ReplayResult(letter.id, ReplayOutcome.REFUSED, "the worker stops", domain_barred=True)

        return {one.id: one for group in crew.map(replay, self._by_entity(letters)) for one in group}

    def _replay(self, action: BulkAction, letter: LetterRecord, record: BulkRecord) -> ReplayResult:
        force, by = action is BulkAction.FORCE_REPLAY, record.requested_by or None
        result = self._replayer.replay(letter.id, force=force, trigger=_TRIGGER[action], by=by)
        handlers = self._replayer.handlers
        if handlers.domains and not handlers.routes(letter.domain) and not LetterFilter.from_json(record.filter).domain:
            # One domain of many that nobody here knows: passed over, or the operation might never end.
            return replace(result, domain_barred=False)
        return result

    def _by_entity(self, letters: Sequence[LetterRecord]) -> list[list[LetterRecord]]:
        """The letters in groups that keep their order, as a recovery would keep it."""
        handlers = self._replayer.handlers
        orders: dict[str, KeyOf] = {
            name: key_of(handlers, name) or entity_of for name in {one.domain for one in letters}
        }
        groups: dict[Any, list[LetterRecord]] = {}
        for letter in letters:
            key = orders[letter.domain](letter)
            groups.setdefault(letter.id if key is None else (letter.domain, key), []).append(letter)
        return list(groups.values())

    def _settle(
        self, action: BulkAction, letters: Sequence[LetterRecord], record: BulkRecord
    ) -> dict[str, ReplayResult]:
        """Resolve or discard in one step; letters that somebody holds just now are passed over."""
        status, how = _STATUS[action]
        by, now = identity("requested_by", record.requested_by or None), self._store.now()
        where = (among("id", [letter.id for letter in letters]), among("status", CONCERNED[action]))

        def decide(letter: LetterRecord) -> LetterRecord:
            return operate(letter, now, status, resolution_type=how, note=record.reason, resolved_by=by)

        changed = self._store.claim(LETTER, where, decide, by="created_at", limit=len(letters)) if letters else []
        done = {letter.id for letter in changed}
        outcomes = ((one.id, ReplayOutcome.SUCCEEDED if one.id in done else ReplayOutcome.SKIPPED) for one in letters)
        return {id: ReplayResult(id, outcome) for id, outcome in outcomes}

    def _extend(self, id: str, token: str) -> bool:
        now = self._store.now()

        def extend(found: BulkRecord | None) -> BulkRecord | None:
            return None if found is None else machine.advance(found, token, _still(found), now, self._lease)

        return change(self._store, BULK, id, extend)[1] is not None

    def _save(self, hold: Hold, decide: Callable[[BulkRecord], BulkRecord | None]) -> BulkRecord | None:
        return change(self._store, BULK, hold.id, lambda found: None if found is None else decide(found))[1]

    def _told(self, record: BulkRecord) -> BulkProgress:
        self._replayer.hub.emit(
            BulkChanged(
                LetterFilter.from_json(record.filter).domain or "", "", record.id, record.action, record.state,
                record.done, record.total, record.succeeded, record.failed, record.skipped, record.note,
            )
        )  # fmt: skip
        return progress_of(record)


def progress_of(record: BulkRecord) -> BulkProgress:
    return BulkProgress(
        record.id, BulkAction(record.action), BulkState(record.state), LetterFilter.from_json(record.filter),
        record.total, record.done, record.succeeded, record.failed, record.skipped, record.requested_by, record.reason,
        record.note, instant(record.created_at), maybe_instant(record.started_at), maybe_instant(record.finished_at),
    )  # fmt: skip


def _scope(filter: LetterFilter, action: BulkAction, upper: int) -> Where:
    return (
        *filter.where(),
        among("status", sorted(CONCERNED[action])),
        Condition("created_at", "<=", upper),
    )


def _step(
    record: BulkRecord, page: Sequence[LetterRecord], results: dict[str, ReplayResult]
) -> tuple[Step, ReplayResult | None]:
    """What a chunk adds to the record, and the result that makes the operation wait, if one does."""
    waits = next((one for letter in page if (one := results.get(letter.id)) is not None and one.domain_barred), None)
    done = [one for one in results.values() if not one.domain_barred]
    at, id, beyond = record.cursor_at, record.cursor_id, []
    is_ahead = False
    for letter in page:
        one = results.get(letter.id)
        undone = one is not None and one.domain_barred
        is_ahead = is_ahead or undone
        if not is_ahead:
            at, id = letter.created_at, letter.id
        elif not undone:
            beyond.append(letter.id)
    return (
        Step(
            at,
            id,
            to_json(beyond),
            succeeded=sum(one.outcome is ReplayOutcome.SUCCEEDED for one in done),
            failed=sum(one.outcome in _FAILED for one in done),
            skipped=sum(one.outcome in (ReplayOutcome.SKIPPED, ReplayOutcome.REFUSED) for one in done),
        ),
        waits,
    )


def _still(record: BulkRecord) -> Step:
    return Step(record.cursor_at, record.cursor_id, record.ahead)
