"""The end of attempts: what it means for each letter, and its way into the store, many in one step."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import StrEnum
from functools import partial
from typing import TYPE_CHECKING, Final, NamedTuple

from holdfast.core.backoff import Backoff
from holdfast.core.clock import Clock
from holdfast.core.redact import redact
from holdfast.errors import Conflict, StoreUnavailable
from holdfast.letters.desk import Decide
from holdfast.letters.handlers import Ended, Ending, Route
from holdfast.letters.values import resolver
from holdfast.machine import dead_letter as machine
from holdfast.store.codec import clean_text, instant, micros

if TYPE_CHECKING:
    from holdfast.letters.data import FailedOperationData
    from holdfast.letters.replaying import Replayed
    from holdfast.letters.repository import FailedOperationRepository

_FIRST_WAIT_S: Final = 0.05
_OURS: Final = ("succeeded", "failed", "returned")  # how an attempt ends in the hands of its owner


class ReplayOutcome(StrEnum):
    """What came of a replay.

    `refused`: a gate or the handler said no, no attempt was used. `skipped`: it was not there to be taken. `returned`:
    the guard refused before the function ran, the attempt was given back. `started`: it goes on elsewhere, as a
    workflow does, and its end ends the letter. `unsettled`: the work may still run, or the store was away, so the lease
    runs out first. `lost`: the lease ran out before the end, which does not count.
    """

    SUCCEEDED = "succeeded"
    FAILED = "failed"
    REFUSED = "refused"
    RETURNED = "returned"
    SKIPPED = "skipped"
    STARTED = "started"
    UNSETTLED = "unsettled"
    LOST = "lost"


_OPEN: Final = {Ending.MAY_RUN_ON: ReplayOutcome.UNSETTLED, Ending.GOES_ON: ReplayOutcome.STARTED}
"""Endings that leave the letter as it is."""


@dataclass(frozen=True, slots=True)
class ReplayResult:
    """What came of one replay: why, the letter's status now, the number of the attempt, and when the next is due.

    `domain_barred` says that no letter of the domain would have fared better.
    """

    id: str
    outcome: ReplayOutcome
    reason: str = ""
    status: str = ""
    attempt: int = 0
    duration_s: float = 0.0
    retry_at: datetime | None = None
    retry_after: float | None = None
    domain_barred: bool = False


class Taken(NamedTuple):
    """A letter in our hands, and who replays it. `asked_s`: what it took to ask whether it can be."""

    op: FailedOperationData
    route: Route
    replayed: Replayed
    trigger: str
    asked_s: float = 0.0

    def unused(self, reason: str) -> Finished:
        """Its end when it was never begun."""
        return Finished(self, Ended(Ending.NEVER_RAN, None, reason), 0.0)


class Finished(NamedTuple):
    """An attempt that has ended, and how long it took."""

    taken: Taken
    ended: Ended
    took: float


class _End(NamedTuple):
    """What is written of an attempt's end, and its result when that is done; nothing where the work may run on."""

    op: FailedOperationData
    write: Decide | None
    result: ReplayResult


class Settling:
    """Writes the ends of attempts down, each fenced by its token."""

    def __init__(
        self,
        repository: FailedOperationRepository,
        clock: Clock,
        delays: Backoff,
        rng: Callable[[], float] = random.random,
        patience_s: float = 30.0,
    ) -> None:
        self._repository = repository
        self._clock = clock
        self._delays = delays
        self._rng = rng
        self._patience_s = patience_s

    def settle(self, finished: Sequence[Finished], by: int | str | None) -> list[ReplayResult]:
        """What came of these attempts, once it is written: in one commit, but for those that changed meanwhile."""
        who = resolver("resolved_by_id", by)
        ends = [self._end_of(one, who) for one in finished]
        give_up = self._clock.monotonic() + self._patience_s
        steps = [(end.op, end.write) for end in ends if end.write is not None]
        unsure = False
        try:
            after = iter(self._repository.change_known(steps))
        except (StoreUnavailable, Conflict):
            after, unsure = iter([None] * len(steps)), True
        results = []
        for end in ends:
            if end.write is not None and next(after) is None:
                results.append(_settled(end, self._write(end.op, end.write, give_up, unsure)))
            else:
                results.append(end.result)
        return results

    def _end_of(self, finished: Finished, who: str | None) -> _End:
        (op, _, _, trigger, _), ended, took = finished
        attempt, note = op.retry_count, redact(clean_text(ended.detail)) if ended.detail else ""
        token, retry_at = op.attempt_token or "", None
        complete = partial(machine.complete, token=token, resolved_by=who)
        write: Decide
        if (open := _OPEN.get(ended.ending)) is not None:
            return _End(op, None, ReplayResult(op.id, open, note, "replaying", attempt, took))
        if ended.ending is Ending.SUCCEEDED:
            outcome, status = ReplayOutcome.SUCCEEDED, "resolved"
            write = partial(complete, success=True, resolution_type=trigger)
        elif ended.ending is Ending.NEVER_RAN:
            outcome, status, attempt = ReplayOutcome.RETURNED, "pending", attempt - 1
            write = partial(machine.return_attempt, token=token)
        else:
            outcome = ReplayOutcome.FAILED
            exhausted = attempt >= (op.max_retries if op.attempt_cap is None else op.attempt_cap)
            status = "requires_review" if exhausted else "pending"
            retry_at = None if exhausted else self._retry_at(attempt, ended.retry_after)
            due = None if retry_at is None else micros(retry_at)
            details = {"error_type": "" if ended.error is None else type(ended.error).__name__}
            write = partial(complete, success=False, note=note, details=details, retry_at=due)
        barred = outcome is ReplayOutcome.RETURNED
        return _End(
            op, write, ReplayResult(op.id, outcome, note, status, attempt, took, retry_at, ended.retry_after, barred)
        )

    def _retry_at(self, attempt: int, hint: float | None) -> datetime:
        wait = max(self._delays.delay(attempt - 1, self._rng), min(hint or 0.0, self._delays.cap))
        return instant(self._repository.store.now()) + timedelta(seconds=wait)

    def _write(self, op: FailedOperationData, write: Decide, give_up: float, unsure: bool) -> bool | None:
        """Whether the attempt was ours to end; None when the store stayed away. `unsure`: it may be written already."""
        wait = _FIRST_WAIT_S
        while True:
            try:
                if self._repository.change_read(op.id, write) is not None:
                    return True
                # An answer that was lost on the way may have been a yes.
                ended = self._repository.get_attempts(op.id) if unsure else ()
                return any(one.token == op.attempt_token and one.outcome in _OURS for one in ended)
            except (StoreUnavailable, Conflict):
                unsure = True
                if self._clock.monotonic() + wait > give_up:
                    return None
                self._clock.sleep(wait)
                wait = min(wait * 2, 2.0)


def _settled(end: _End, written: bool | None) -> ReplayResult:
    """The result of an end that was not written at once."""
    if written:
        return end.result
    if written is None:
        reason = f"the store is away; the attempt {end.result.outcome.value}, and its lease runs out"
        outcome, status = ReplayOutcome.UNSETTLED, "replaying"
    else:
        reason = "the lease was lost: another worker owns the letter, or an operator has changed it"
        outcome, status = ReplayOutcome.LOST, ""
    return ReplayResult(end.op.id, outcome, reason, status, end.result.attempt, end.result.duration_s)
