"""One worker's turn at a bulk operation: chunk after chunk, saved after each.

Replays take the domains in turns. One that is barred waits while the others go on, and is looked at again when its
time has come; where only such are left the operation is parked, for any worker to carry on.
"""

from __future__ import annotations

import threading
from collections import Counter, deque
from collections.abc import Callable, Hashable, Iterable, Sequence
from dataclasses import replace
from typing import Final, NamedTuple

from holdfast.letters.crew import Crew, Orders, run_round
from holdfast.letters.gates import Way
from holdfast.letters.heartbeat import Hold
from holdfast.letters.order import entity_of
from holdfast.letters.pace import key_of
from holdfast.letters.replay import Replayer, ReplayOutcome, ReplayResult
from holdfast.letters.scope import CONCERNED, LetterFilter, scope_of
from holdfast.letters.values import identity
from holdfast.machine import bulk as machine
from holdfast.machine.bulk import BULK, BulkAction, BulkRecord, Place, Step
from holdfast.machine.dead_letter import LETTER, LetterRecord, operate
from holdfast.machine.drain import LARGEST_BATCH, Batch
from holdfast.store.change import change
from holdfast.store.query import Cursor, Where, among, equal

SETTLES: Final = {BulkAction.RESOLVE: ("resolved", "manual"), BulkAction.DISCARD: ("rejected", "rejected")}
"""The actions that need nobody to replay anything: the status that they give, and the resolution type."""

_TRIGGER: Final = {BulkAction.REPLAY: "manual_replay", BulkAction.FORCE_REPLAY: "force_redrive"}
_SUCCEEDED: Final = (ReplayOutcome.SUCCEEDED, ReplayOutcome.STARTED)
_FAILED: Final = (ReplayOutcome.FAILED, ReplayOutcome.UNSETTLED, ReplayOutcome.LOST)
_PASSED_OVER: Final = (ReplayOutcome.SKIPPED, ReplayOutcome.REFUSED)
_CHUNK: Final = 500
_PATIENCE_S: Final = 30.0
_SECOND: Final = 1_000_000


class _Barred(NamedTuple):
    """Why a domain's letters cannot go now, and when to look again."""

    reason: str
    until: int


class Walk:
    """Carries an operation on that this worker holds."""

    def __init__(
        self, replayer: Replayer, record: BulkRecord, hold: Hold, crew: Crew, stop: threading.Event, lease: int
    ) -> None:
        self._replayer = replayer
        self._store = replayer.repository.store
        self._record = record
        self._action = BulkAction(record.action)
        self._filter = LetterFilter.from_json(record.filter)
        self._where = scope_of(self._filter, self._action, record.upper_at)
        self._hold = hold
        self._crew = crew
        self._stop = stop
        self._lease = lease
        self._barred: dict[str, _Barred] = {}
        by, force = record.requested_by or None, self._action is BulkAction.FORCE_REPLAY
        self._batches: dict[str, Batch] = {}
        self._domains = deque(self._domains_now())
        self._orders = Orders(lambda op: _TRIGGER[self._action], self._stopped, by, force)

    def go(self, ends: float | None) -> None:
        """Until it is done, no longer ours, or parked: after the chunk in which the time `ends` comes, or to wait."""
        go_on = self._settle if self._action in SETTLES else self._replay
        while not self._hold.lost:
            if self._stop.is_set():
                self._park(self._store.now(), "waits: the worker stops")
                return
            if not go_on():
                return
            if ends is not None and self._replayer.clock.monotonic() >= ends:
                self._park(self._store.now(), "")
                return

    def _settle(self) -> bool:
        """Resolve or discard a chunk in one step; letters that somebody holds just now are passed over."""
        record, (status, how) = self._record, SETTLES[self._action]
        page = self._page(self._where, record.cursor_at, record.cursor_id, _CHUNK)
        if not page:
            return self._finish()
        by, now = identity("requested_by", record.requested_by or None), self._store.now()
        where = (among("id", [letter.id for letter in page]), among("status", CONCERNED[self._action]))

        def decide(letter: LetterRecord) -> LetterRecord:
            return operate(letter, now, status, resolution_type=how, note=record.reason, resolved_by=by)

        done = len(self._store.claim(LETTER, where, decide, by="created_at", limit=len(page)))
        return self._advance(Step(page[-1].created_at, page[-1].id, succeeded=done, skipped=len(page) - done))

    def _replay(self) -> bool:
        """Replay a chunk of the domain whose turn it is."""
        domain, now = None, self._store.now()
        for _ in range(len(self._domains)):
            self._domains.rotate(-1)
            if self._domains[-1] not in self._barred or self._barred[self._domains[-1]].until <= now:
                domain = self._domains[-1]
                break
        if domain is None:
            return self._wait() if self._domains else self._finish()
        self._barred.pop(domain, None)
        way = self._way(domain)
        if way is Way.BARRED:
            return True
        place, batch = machine.place_in(self._record, domain), self._batches.get(domain, Batch())
        # What was done beyond the place must be in the page again, or it would be forgotten and done twice.
        size = LARGEST_BATCH if place.beyond else batch.size
        page = self._page((*self._where, *equal(domain=domain)), place.at, place.id, size)
        if not page:
            self._domains.pop()
            return True
        fresh = [letter for letter in page if letter.id not in place.beyond]
        results = self._deal(domain, fresh[:1] if way is Way.TRIAL else fresh)
        step = _step(self._record, domain, place, page, results)
        self._batches[domain] = batch.after(step.succeeded + step.failed, step.failed)
        return self._advance(step)

    def _deal(self, domain: str, letters: Sequence[LetterRecord]) -> dict[str, ReplayResult]:
        """Replay these letters, those of one entity in rounds one after the other; what came of each, by id."""
        results: dict[str, ReplayResult] = {}
        for number, letters_at_once in enumerate(self._rounds(domain, letters)):
            if number and self._way(domain) is Way.BARRED:
                break
            round_ = run_round(self._replayer, self._crew, letters_at_once, self._orders)
            if self._is_strange(domain):
                # Passed over, or the operation might never end.
                round_ = [replace(one, domain_barred=False) for one in round_]
            results.update((one.id, one) for one in round_)
            barred = next((one for one in round_ if one.domain_barred), None)
            if barred is not None:
                if self._way(domain) is not Way.BARRED:
                    self._bar(domain, barred.reason, barred.retry_after)
                break
        return results

    def _rounds(self, domain: str, letters: Sequence[LetterRecord]) -> list[list[LetterRecord]]:
        """The letters in rounds that keep their order, as a recovery would keep it."""
        key = key_of(self._replayer.handlers, domain) or entity_of
        met: Counter[Hashable] = Counter()
        rounds: list[list[LetterRecord]] = []
        for letter in letters:
            entity = key(letter)
            number = 0 if entity is None else met[entity]
            met[entity] += 1
            if number == len(rounds):
                rounds.append([])
            rounds[number].append(letter)
        return rounds

    def _way(self, domain: str) -> Way:
        """Whether the domain's letters may go; why not is remembered."""
        if self._is_strange(domain):
            return Way.CLEAR
        standing = self._replayer.gates.standing(domain)
        if standing.way is Way.BARRED:
            self._bar(domain, standing.reason, standing.retry_after)
        return standing.way

    def _is_strange(self, domain: str) -> bool:
        """One domain of many, of which nobody here knows anything."""
        handlers = self._replayer.handlers
        return bool(self._filter.domain is None and handlers.domains and not handlers.routes(domain))

    def _bar(self, domain: str, reason: str, retry_after: float | None) -> None:
        wait = min(retry_after or _PATIENCE_S, _PATIENCE_S)
        self._barred[domain] = _Barred(reason, self._store.now() + max(1, round(wait * _SECOND)))

    def _domains_now(self) -> Iterable[str]:
        if self._filter.domain is not None:
            return [self._filter.domain]
        where = (among("status", sorted(CONCERNED[self._action])),)  # the rest of the scope is not counted
        return sorted(domain for (domain,) in self._store.tally(LETTER, ("domain",), where))

    def _page(self, where: Where, at: int | None, id: str | None, limit: int) -> list[LetterRecord]:
        after = None if id is None else Cursor(at, id)
        return self._store.page(LETTER, where, by="created_at", after=after, limit=limit)

    def _stopped(self) -> bool:
        return self._stop.is_set() or self._hold.lost

    def _advance(self, step: Step) -> bool:
        now = self._store.now()
        return self._save(lambda r: machine.advance(r, self._hold.token, step, now, self._lease))

    def _wait(self) -> bool:
        until = min(barred.until for barred in self._barred.values())
        reasons = dict.fromkeys(self._barred[domain].reason for domain in sorted(self._barred))
        return self._park(until, f"waits: {'; '.join(reasons)}")

    def _park(self, until: int, note: str) -> bool:
        self._save(lambda r: machine.park(r, self._hold.token, machine.still(r), until, note))
        return False

    def _finish(self) -> bool:
        now = self._store.now()
        self._save(lambda r: machine.finish(r, self._hold.token, machine.still(r), now))
        return False

    def _save(self, decide: Callable[[BulkRecord], BulkRecord | None]) -> bool:
        """False when it is no longer ours."""
        after = change(self._store, BULK, self._hold.id, lambda found: None if found is None else decide(found))[1]
        if after is None:
            return False
        self._record = after
        return True


def _step(
    record: BulkRecord, domain: str, place: Place, page: Sequence[LetterRecord], results: dict[str, ReplayResult]
) -> Step:
    """What a chunk adds to the record."""
    done = {one.id: one.outcome for one in results.values() if not one.domain_barred}
    dealt_with = {*place.beyond, *done}
    at, id, beyond, in_order = place.at, place.id, [], True
    for letter in page:
        in_order = in_order and letter.id in dealt_with
        if in_order:
            at, id = letter.created_at, letter.id
        elif letter.id in dealt_with:
            beyond.append(letter.id)
    outcomes = list(done.values())
    return Step(
        record.cursor_at,
        record.cursor_id,
        machine.placed(record, domain, Place(at, id, tuple(beyond))),
        succeeded=sum(outcome in _SUCCEEDED for outcome in outcomes),
        failed=sum(outcome in _FAILED for outcome in outcomes),
        skipped=sum(outcome in _PASSED_OVER for outcome in outcomes),
    )
