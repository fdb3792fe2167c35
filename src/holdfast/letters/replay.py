"""Replay: call again what failed, one owner at a time, and write down what came of it."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import StrEnum
from functools import partial
from typing import TYPE_CHECKING, Final

from holdfast.core.backoff import Backoff, Jitter
from holdfast.core.clock import SYSTEM_CLOCK, Clock
from holdfast.core.redact import redact
from holdfast.errors import Conflict, StoreUnavailable
from holdfast.letters.events import LetterReplayed
from holdfast.letters.gates import BreakerStates, Gates, Standing, Way
from holdfast.letters.handlers import Ended, Ending, ReplayHandlers, Route
from holdfast.letters.heartbeat import Heart
from holdfast.letters.loops import Loops
from holdfast.letters.replaying import replaying
from holdfast.store.codec import clean_text, instant
from holdfast.telemetry.hub import Hub, default_hub

if TYPE_CHECKING:
    from holdfast.letters.data import FailedOperationData
    from holdfast.letters.repository import FailedOperationRepository

DELAYS: Final = Backoff(base=30.0, cap=3600.0, jitter=Jitter.EQUAL)
HEARTBEAT_S: Final = 20.0
PATIENCE_S: Final = 30.0
_FIRST_WAIT_S: Final = 0.05
_OURS: Final = ("succeeded", "failed", "returned")  # how an attempt ends in the hands of its owner


class ReplayOutcome(StrEnum):
    """What came of a replay.

    `refused`: a gate or the handler said no, no attempt was used. `skipped`: it was not there to be taken. `returned`:
    the guard refused before the function ran, the attempt was given back. `unsettled`: the work may still run, or the
    store was away, so the lease runs out first. `lost`: the lease ran out before the end, which does not count.
    """

    SUCCEEDED = "succeeded"
    FAILED = "failed"
    REFUSED = "refused"
    RETURNED = "returned"
    SKIPPED = "skipped"
    UNSETTLED = "unsettled"
    LOST = "lost"


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


class Replayer:
    """Replays letters, fenced by the token of the attempt and kept alive by a heartbeat.

    `max_retries` caps the attempts of all letters; None leaves it to each letter. After a failure the next attempt is
    due after `delays`. A store that goes away is waited for `patience_s` seconds before the end of a replay is left to
    the lease.
    """

    def __init__(
        self,
        repository: FailedOperationRepository,
        handlers: ReplayHandlers,
        breakers: BreakerStates | None = None,
        *,
        clock: Clock = SYSTEM_CLOCK,
        hub: Hub | None = None,
        delays: Backoff = DELAYS,
        rng: Callable[[], float] = random.random,
        max_retries: int | None = None,
        heartbeat_s: float = HEARTBEAT_S,
        patience_s: float = PATIENCE_S,
    ) -> None:
        self.repository = repository
        self.handlers = handlers
        self.hub = default_hub() if hub is None else hub
        self.gates = Gates(repository.store, handlers, breakers, self.hub)
        self.loops = Loops()
        self.clock = clock
        self.heart = Heart(repository.heartbeat, heartbeat_s)
        self._delays = delays
        self._rng = rng
        self._max_retries = max_retries
        self._patience_s = patience_s

    def replay(
        self, id: str, *, force: bool = False, trigger: str | None = None, by: int | str | None = None
    ) -> ReplayResult:
        """Replay one letter now. `force` starts a new budget of attempts, also for one that requires review.

        Raises StoreUnavailable when the store is away before the replay began.
        """
        op = self.repository.get_by_id(id)
        if op is None:
            return ReplayResult(str(id), ReplayOutcome.REFUSED, "there is no such letter")
        refused = self._refused(op.id, op.status, self.gates.standing(op.domain))
        if refused is not None:
            return self._told(op, refused, trigger or "")
        why = trigger or ("force_redrive" if force else "manual_replay")
        return self.attempt(op, force=force, trigger=why, by=by)

    def attempt(
        self, op: FailedOperationData, *, force: bool = False, trigger: str, by: int | str | None = None
    ) -> ReplayResult:
        """Replay a letter whose domain's gates have been asked."""
        route = self.handlers.find(op)
        reason = self.handlers.missing(op) if route is None else self._why_not(route, op)
        if route is None or reason is not None:
            # Another process may know how to replay what this one knows nothing of.
            unknown = not self.handlers.routes(op.domain)
            refused = ReplayResult(op.id, ReplayOutcome.REFUSED, reason or "", op.status, domain_barred=unknown)
            return self._told(op, refused, trigger)
        cap = op.max_retries if self._max_retries is None else self._max_retries
        taken = self.repository.try_acquire_for_replay(op.id, cap, force, trigger=trigger)
        if taken is None:
            skipped = ReplayResult(op.id, ReplayOutcome.SKIPPED, self._why_skipped(op, cap, force), op.status)
            return self._told(op, skipped, trigger)
        return self._perform(taken, route, trigger, by)

    def close(self) -> None:
        """End the loop on which async functions are replayed, if there is one."""
        self.loops.close()

    def _why_not(self, route: Route, op: FailedOperationData) -> str | None:
        try:
            return route.refusal(op)
        except Exception as error:  # user code, before an attempt is used
            return redact(f"can_replay failed: {type(error).__name__}: {error}")

    def _refused(self, id: str, status: str, standing: Standing) -> ReplayResult | None:
        if standing.way is not Way.BARRED:
            return None
        return ReplayResult(
            id, ReplayOutcome.REFUSED, standing.reason, status, retry_after=standing.retry_after, domain_barred=True
        )

    def _why_skipped(self, op: FailedOperationData, cap: int, force: bool) -> str:
        if op.status != "pending" and not (force and op.status == "requires_review"):
            return f"it is {op.status}"
        if op.retry_count >= min(cap, op.max_retries) and not force:
            return f"its {op.retry_count} attempts are used up; force starts a new budget"
        if op.next_attempt_at is not None and not force:
            return f"its next attempt is due at {op.next_attempt_at:%Y-%m-%d %H:%M:%S} UTC"
        return "another worker was faster"

    def _perform(self, op: FailedOperationData, route: Route, trigger: str, by: int | str | None) -> ReplayResult:
        started = self.clock.monotonic()
        with replaying(op) as replayed, self.heart.holding(replayed):
            ended = route.run(op, replayed.key, self.loops)
            took = self.clock.monotonic() - started
            result = self._settle(op, ended, trigger, by, took)
        return self._told(op, result, trigger, ended)

    def _settle(
        self, op: FailedOperationData, ended: Ended, trigger: str, by: int | str | None, took: float
    ) -> ReplayResult:
        """Write down the end of an attempt, if it is still ours."""
        attempt, note = op.retry_count, redact(clean_text(ended.detail))
        token, retry_at = op.attempt_token or "", None
        complete = partial(self.repository.complete_replay, op.id, resolved_by_id=by, attempt_token=token, known=op)
        write: Callable[[], bool]
        if ended.ending is Ending.MAY_RUN_ON:
            return ReplayResult(op.id, ReplayOutcome.UNSETTLED, note, "replaying", attempt, took)
        if ended.ending is Ending.SUCCEEDED:
            outcome, status = ReplayOutcome.SUCCEEDED, "resolved"
            write = partial(complete, success=True, resolution_type=trigger)
        elif ended.ending is Ending.NEVER_RAN:
            outcome, status, attempt = ReplayOutcome.RETURNED, "pending", attempt - 1
            write = partial(self.repository.return_attempt, op.id, token)
        else:
            outcome = ReplayOutcome.FAILED
            exhausted = attempt >= (op.max_retries if op.attempt_cap is None else op.attempt_cap)
            status = "requires_review" if exhausted else "pending"
            retry_at = None if exhausted else self._retry_at(attempt, ended.retry_after)
            details = {"error_type": "" if ended.error is None else type(ended.error).__name__}
            write = partial(complete, success=False, note=note, error_details=details, retry_at=retry_at)
        written = self._write(op.id, token, write)
        if written is None:
            reason = f"the store is away; the attempt {ended.ending.value}, and its lease runs out"
            return ReplayResult(op.id, ReplayOutcome.UNSETTLED, reason, "replaying", attempt, took)
        if not written:
            reason = "the lease was lost: another worker owns the letter, or an operator has changed it"
            return ReplayResult(op.id, ReplayOutcome.LOST, reason, "", attempt, took)
        barred = outcome is ReplayOutcome.RETURNED
        return ReplayResult(op.id, outcome, note, status, attempt, took, retry_at, ended.retry_after, barred)

    def _retry_at(self, attempt: int, hint: float | None) -> datetime:
        wait = max(self._delays.delay(attempt - 1, self._rng), min(hint or 0.0, self._delays.cap))
        return instant(self.repository.store.now()) + timedelta(seconds=wait)

    def _write(self, id: str, token: str, write: Callable[[], bool]) -> bool | None:
        """Whether the attempt was ours to end; None when the store stayed away."""
        give_up = self.clock.monotonic() + self._patience_s
        wait, unsure = _FIRST_WAIT_S, False
        while True:
            try:
                if write():
                    return True
                # An answer that was lost on the way may have been a yes.
                return unsure and any(a.token == token and a.outcome in _OURS for a in self.repository.get_attempts(id))
            except (StoreUnavailable, Conflict):
                unsure = True
                if self.clock.monotonic() + wait > give_up:
                    return None
                self.clock.sleep(wait)
                wait = min(wait * 2, 2.0)

    def _told(
        self, op: FailedOperationData, result: ReplayResult, trigger: str, ended: Ended | None = None
    ) -> ReplayResult:
        error = None if ended is None or ended.error is None else type(ended.error).__name__
        self.hub.emit(
            LetterReplayed(
                op.domain, "", result.id, result.outcome.value, result.attempt, trigger, result.duration_s,
                result.status, error, result.reason or None,
            )
        )  # fmt: skip
        return result
