"""What an answer means: for each way in which a call can end, the move that its entry makes.

answer or error                                    move
Done, None                                         succeed
Park                                               park
RetryAfter; a guard's refusal                      refund
Discard; ResolverError, a permanent error          abandon
an answer of another type                          abandon, ResolverContractError
an operation that is unknown                       refund
a target that is unknown                           abandon, or refund
begun more often than allowed, each time to crash  abandon, AttemptsExhausted
another error, a timeout                           fail, or abandon at the last attempt
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import datetime, timedelta
from functools import partial
from typing import Any, Final, Literal

from holdfast.audit.event import AuditEvent
from holdfast.errors import DeadlineExpired, GuardRejected, ResolverContractError, ResolverError
from holdfast.machine.outbox_entry import (
    ABANDON,
    EXHAUSTED,
    FAIL,
    PARK,
    REFUND,
    RELEASE,
    SUCCEED,
    Move,
    is_exhausted,
)
from holdfast.machine.saga import UNDO_ATTEMPTS, Direction
from holdfast.outbox import outcomes
from holdfast.outbox.backoff import BackoffPolicy
from holdfast.outbox.calling import Call
from holdfast.outbox.entry import OutboxEntry
from holdfast.outbox.operation import SOONEST, Discard, Done, Operation, Park, RetryAfter
from holdfast.outbox.runner_errors import error_name
from holdfast.outbox.settle import Attempt, Settlement
from holdfast.outbox.subject import LONGEST, utc
from holdfast.store.codec import plain

Times = tuple[datetime | None, datetime]
UNKNOWN_OPERATION: Final = "UnknownOperation"
_DONE: Final = Done()
_FOREVER_S: Final = 1e9  # a refusal for as long as this, or without an end, says nothing of when to ask again
_PAST: Final[Mapping[str, str]] = {
    SUCCEED.name: "succeeded",
    FAIL.name: "failed",
    REFUND.name: "refunded",
    PARK.name: "parked",
    ABANDON.name: "abandoned",
    RELEASE.name: "released",
}


def outcome_of(settlement: Settlement) -> str:
    """The move in the past tense, as the attempt history and telemetry say it."""
    return _PAST[settlement.move.name]


class Judge:
    """Decides what becomes of entries. It reads no clock: `now` is the time of the database server."""

    def __init__(
        self,
        *,
        max_attempts: int,
        backoff: BackoffPolicy,
        rng: Callable[[], float] | None,
        unknown_target: Literal["abandon", "defer"],
        audited: bool,
    ) -> None:
        self._max_attempts = max_attempts
        self._backoff = backoff
        self._rng = rng
        self._unknown_target = unknown_target
        self._audited = audited

    def budget(self, call: Call) -> int:
        """How many calls an entry may have; the compensation of a saga's step has more than others."""
        own = None if call.operation is None else call.operation.max_attempts
        if own is not None:
            return own
        is_undo = call.entry.direction == Direction.BACKWARD
        return max(self._max_attempts, UNDO_ATTEMPTS) if is_undo else self._max_attempts

    def is_exhausted(self, call: Call) -> bool:
        return is_exhausted(call.entry.attempts, self.budget(call))

    def delay(self, operation: Operation | None, attempts: int) -> timedelta:
        own = None if operation is None else operation.backoff
        return (self._backoff if own is None else own).delay(max(1, attempts), rng=self._rng)

    def settlement(self, call: Call, now: datetime, times: Callable[[Call], Times]) -> Settlement:
        """What becomes of the entry. `times` tells when the call began and ended, if that is to be kept."""
        try:
            settlement = self._ruled(call, now)
        except Exception:  # an answer that cannot be used: not JSON, a time out of range
            settlement = self._abandon(call, now, ResolverContractError.__name__)
        entry = call.entry
        if entry.claim_token is not None and (settlement.move is not SUCCEED or entry.attempts > 1):
            error = settlement.given.get("last_error")
            told = (*times(call), outcome_of(settlement), error)
            settlement.attempt = Attempt(entry.entry_id, entry.claim_token, entry.attempts, *told)
        return settlement

    def release(self, call: Call) -> Settlement:
        """Nobody has called it: as if it had not been claimed."""
        return Settlement(call.entry, RELEASE)

    def _ruled(self, call: Call, now: datetime) -> Settlement:
        if call.exhausted:
            return self._abandon(call, now, EXHAUSTED, self.budget(call))
        if call.unknown:
            return self._unknown(call, now)
        if call.error is not None:
            return self._raised(call, now, call.error)
        match call.answer:
            case None:
                return self._succeed(call, now, _DONE)
            case Done() as done:
                return self._succeed(call, now, done)
            case Park() as park:
                return self._park(call, now, park)
            case RetryAfter(delay, reason):
                return self._refund(call, now, max(delay, SOONEST), _named(reason, "RetryAfter"))
            case Discard(reason):
                return self._abandon(call, now, _named(reason, "Discard"))
        return self._abandon(call, now, ResolverContractError.__name__)

    def _unknown(self, call: Call, now: datetime) -> Settlement:
        """During a rolling deploy others may know what this runner does not."""
        operation = call.operation
        if operation is None:
            # Never given up: its payload might be scrubbed, and nobody here can tell what it means.
            return self._refund(call, now, None, UNKNOWN_OPERATION)
        error = ResolverError.__name__ if call.error is None else error_name(call.error)
        if (operation.unknown_target or self._unknown_target) == "defer":
            return self._refund(call, now, None, error)
        return self._abandon(call, now, error)

    def _raised(self, call: Call, now: datetime, error: BaseException) -> Settlement:
        operation, name = call.operation, error_name(error)
        permanent = () if operation is None else operation.permanent
        if isinstance(error, (ResolverError, *permanent)):
            return self._abandon(call, now, name)
        # An expired deadline is a timeout: the time was spent in the call.
        if isinstance(error, GuardRejected) and not isinstance(error, DeadlineExpired):
            known = error.retry_after
            known = known if known is not None and 0 < known < _FOREVER_S else None
            return self._refund(call, now, None if known is None else timedelta(seconds=known), name)
        attempts = call.entry.attempts
        if attempts >= self.budget(call):
            return self._abandon(call, now, name)
        given = {"last_error": name, "next_attempt_at": now + self.delay(operation, attempts)}
        return self._settled(call, FAIL, given)

    def _succeed(self, call: Call, now: datetime, done: Done) -> Settlement:
        entry, operation = call.entry, call.operation
        assert operation is not None
        given: dict[str, Any] = {}
        if done.result is not None:
            given["result"] = plain(done.result, "result")
        if operation.verify is not None and (operation.can_verify is None or operation.can_verify(call.target)):
            # If this runner dies before it has asked, another one asks once the lease has ended.
            given |= {"verification": "pending", "verify_at": now + self._backoff.lease, "verify_attempts": 1}
        settlement = self._settled(call, SUCCEED, given)
        settlement.grouped = operation.grouped
        if self._audited and operation.events is not None:
            settlement.events = _told(outcomes.succeeded(operation, entry, now, done.facts))
            if operation.grouped:
                settlement.completed = outcomes.completed(operation, entry, now)
        if operation.complete_in is not None:
            settlement.within = partial(_complete, operation.complete_in, entry, done.result)
        return settlement

    def _park(self, call: Call, now: datetime, park: Park) -> Settlement:
        entry, operation = call.entry, call.operation
        assert operation is not None
        until = utc(park.until)
        resume_at = max(until, now + self.delay(operation, entry.attempts))
        settlement = self._settled(call, PARK, {"next_attempt_at": resume_at})
        if self._audited:
            settlement.events = _told(outcomes.parked(operation, entry, now, until, park.facts))
        return settlement

    def _refund(self, call: Call, now: datetime, delay: timedelta | None, error: str) -> Settlement:
        wait = self.delay(call.operation, call.entry.attempts) if delay is None else delay
        return self._settled(call, REFUND, {"last_error": error, "next_attempt_at": now + wait})

    def _abandon(self, call: Call, now: datetime, error: str, attempts: int | None = None) -> Settlement:
        entry, operation = call.entry, call.operation
        made = entry.attempts if attempts is None else attempts
        settlement = self._settled(call, ABANDON, {"last_error": error, "attempts": made})
        if self._audited:
            settlement.events = _told(outcomes.abandoned(operation, entry, now, error, made))
        return settlement

    def _settled(self, call: Call, move: Move, given: dict[str, Any]) -> Settlement:
        return Settlement(call.entry, move, given, call.operation is None or call.operation.sensitive)


def _complete(write: Callable[[Any, Any, Any], None], entry: OutboxEntry, result: Any, session: Any) -> None:
    write(session, entry, result)


def _told(event: AuditEvent | None) -> tuple[AuditEvent, ...]:
    return () if event is None else (event,)


def _named(reason: Any, otherwise: str) -> str:
    """A reason that somebody gave, as every database can keep it."""
    text = reason if isinstance(reason, str) else error_name(reason) if isinstance(reason, Exception) else ""
    return text.replace("\x00", "").encode("utf-8", "replace").decode()[:LONGEST] or otherwise
