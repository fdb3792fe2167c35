"""Replay: call again what failed, one owner at a time, and write down what came of it."""

from __future__ import annotations

import random
import threading
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Final

from holdfast.core.backoff import Backoff, Jitter
from holdfast.core.clock import SYSTEM_CLOCK, Clock
from holdfast.core.redact import redact
from holdfast.letters.events import LetterReplayed
from holdfast.letters.gates import BreakerStates, Gates, Standing, Way
from holdfast.letters.handlers import Ended, Ending, ReplayHandlers, Route
from holdfast.letters.heartbeat import Heart
from holdfast.letters.replaying import Replayed, as_replay, trace_of
from holdfast.letters.settling import Finished, ReplayOutcome, ReplayResult, Settling, Taken
from holdfast.store.codec import clean_text
from holdfast.telemetry.causation import CAUSATION
from holdfast.telemetry.hub import Hub, default_hub

if TYPE_CHECKING:
    from holdfast.letters.data import FailedOperationData
    from holdfast.letters.loops import Loops
    from holdfast.letters.repository import FailedOperationRepository
    from holdfast.telemetry.tracing import Spans

__all__ = ["Replayer", "ReplayOutcome", "ReplayResult", "DELAYS", "HEARTBEAT_S", "PATIENCE_S"]

DELAYS: Final = Backoff(base=30.0, cap=3600.0, jitter=Jitter.EQUAL)
HEARTBEAT_S: Final = 20.0
PATIENCE_S: Final = 30.0


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
        self._loops: Loops | None = None
        self._lock = threading.Lock()
        self.clock = clock
        self.heart = Heart(repository.heartbeat, heartbeat_s)
        self._settling = Settling(repository, clock, delays, rng, patience_s)
        self._max_retries = max_retries

    @property
    def loops(self) -> Loops:
        """Where async functions are replayed; made with the first replay, for it loads asyncio."""
        from holdfast.letters.loops import Loops

        with self._lock:
            if self._loops is None:
                self._loops = Loops()
            return self._loops

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
        with self.heart.awake():
            taken, results = self.take([op], lambda _: trigger, force=force)
            try:
                return self.settle([self.perform(one) for one in taken], by)[0] if taken else results[0]
            finally:
                self.let_go(taken)

    def take(
        self, ops: Sequence[FailedOperationData], trigger_of: Callable[[FailedOperationData], str], *, force: bool
    ) -> tuple[list[Taken], list[ReplayResult]]:
        """Acquire, in one step, those of the letters that can be replayed, and what is to say of the others.

        Whoever takes letters lets them go.
        """
        wanted: list[tuple[FailedOperationData, Route, str]] = []
        results = []
        began = self.clock.monotonic()
        for op in ops:
            route = self.handlers.find(op)
            reason = self.handlers.missing(op) if route is None else self._why_not(route, op)
            if route is None or reason is not None:
                # Another process may know how to replay what this one knows nothing of.
                unknown = not self.handlers.routes(op.domain)
                refused = ReplayResult(op.id, ReplayOutcome.REFUSED, reason or "", op.status, domain_barred=unknown)
                results.append(self._told(op, refused, trigger_of(op)))
            else:
                wanted.append((op, route, clean_text(trigger_of(op))))
        asked_s = (self.clock.monotonic() - began) / max(1, len(ops))
        letters, triggers = [op for op, _, _ in wanted], [trigger for _, _, trigger in wanted]
        acquired = self.repository.acquire_known(letters, triggers, self._max_retries, force) if wanted else []
        taken = []
        for (op, route, trigger), held in zip(wanted, acquired, strict=True):
            if held is None:
                skipped = ReplayResult(op.id, ReplayOutcome.SKIPPED, self._why_skipped(op, force), op.status)
                results.append(self._told(op, skipped, trigger))
            else:
                taken.append(Taken(held, route, Replayed(held), trigger, asked_s))
        self.heart.hold([one.replayed for one in taken])
        return taken, results

    def perform(self, taken: Taken) -> Finished:
        """Call again what failed."""
        if taken.replayed.lost:
            return taken.unused("the lease was lost")
        started = self.clock.monotonic()
        spans = self.hub.spans
        ended = self._run(taken) if spans is None else self._run_traced(taken, spans)
        return Finished(taken, ended, self.clock.monotonic() - started)

    def settle(self, finished: Sequence[Finished], by: int | str | None) -> list[ReplayResult]:
        """Write down what came of these attempts, as far as they are still ours, and tell it."""
        results = self._settling.settle(finished, by)
        for one, result in zip(finished, results, strict=True):
            self._told(one.taken.op, result, one.taken.trigger, one.ended)
        return results

    def let_go(self, taken: Sequence[Taken]) -> None:
        """No longer keep these letters alive."""
        self.heart.let_go([one.replayed for one in taken])

    def close(self) -> None:
        """End the loop on which async functions are replayed, if there is one."""
        if self._loops is not None:
            self._loops.close()

    def _run(self, taken: Taken) -> Ended:
        return as_replay(taken.replayed, lambda: taken.route.run(taken.op, taken.replayed.key, self.loops))

    def _run_traced(self, taken: Taken, spans: Spans) -> Ended:
        """In a span of its own, which is linked to the one in which the call failed."""
        op, replayed = taken.op, taken.replayed
        about: dict[str, str | int] = {
            "letter.id": op.id, "letter.domain": op.domain, "letter.attempt": replayed.attempt,
            "letter.trigger": taken.trigger, CAUSATION.name: replayed.cause,
        }  # fmt: skip
        with spans.open(f"replay {op.domain}", trace_of(op), about) as span:
            ended = self._run(taken)
            span.note("letter.ending", ended.ending.value)
            if ended.ending in (Ending.FAILED, Ending.MAY_RUN_ON):
                span.failed("" if ended.error is None else type(ended.error).__name__)
            return ended

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

    def _why_skipped(self, op: FailedOperationData, force: bool) -> str:
        cap = op.max_retries if self._max_retries is None else self._max_retries
        if op.status != "pending" and not (force and op.status == "requires_review"):
            return f"it is {op.status}"
        if op.retry_count >= min(cap, op.max_retries) and not force:
            return f"its {op.retry_count} attempts are used up; force starts a new budget"
        if op.next_attempt_at is not None and not force:
            return f"its next attempt is due at {op.next_attempt_at:%Y-%m-%d %H:%M:%S} UTC"
        return "another worker was faster"

    def _told(
        self, op: FailedOperationData, result: ReplayResult, trigger: str, ended: Ended | None = None
    ) -> ReplayResult:
        if not self.hub.hears(LetterReplayed):
            return result
        error = None if ended is None or ended.error is None else type(ended.error).__name__
        self.hub.emit(
            LetterReplayed(
                op.domain, "", result.id, result.outcome.value, result.attempt, trigger, result.duration_s,
                result.status, error, result.reason or None,
            )
        )  # fmt: skip
        return result
