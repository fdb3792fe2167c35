"""The runner: claims entries, makes their calls, and settles what comes of them."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Iterable, Sequence
from datetime import datetime, timedelta
from functools import partial
from inspect import iscoroutinefunction, signature
from typing import Any, Final, Literal
from uuid import UUID

import sqlalchemy as sa
from sqlalchemy.orm import Session

from holdfast.audit.event import AuditSink
from holdfast.core.check import check_queues
from holdfast.core.clock import SYSTEM_CLOCK, Clock
from holdfast.errors import PolicyError
from holdfast.outbox.backoff import ATTEMPTS, BackoffPolicy
from holdfast.outbox.batch import Batch, Claimed, Parts
from holdfast.outbox.calling import Caller
from holdfast.outbox.entry import OutboxEntry
from holdfast.outbox.hooks import Hooks
from holdfast.outbox.judge import Judge
from holdfast.outbox.lanes import TargetLimits
from holdfast.outbox.operation import OperationRegistry, Targets
from holdfast.outbox.outbox import DEFAULT_QUEUE, Outbox
from holdfast.outbox.reporting import Reporter
from holdfast.outbox.settler import Settler
from holdfast.outbox.signal import AbandonedHook
from holdfast.outbox.verification import Verification
from holdfast.telemetry.hub import Hub, default_hub

_SHARE_OF_LEASE: Final = 0.8  # what a call may use of it
_PATIENCE: Final = 3  # so many cancellations end the waiting for calls and settles
_NOTHING: Final = timedelta(0)


class SagaRunner:
    """Makes the calls of an outbox: at least once each, with the same idempotency key every time.

    `run_once` does one batch; call it from whatever the application has, or use `OutboxWorker`. Several runners, in any
    number of processes, share an outbox. `registry` finds the targets of operations that have none of their own;
    `audit` gets every terminal outcome, in the transaction that writes it where the sink can join one (None: no trail).

    `concurrency` calls run at a time (default: the whole batch), each for at most `timeout` (default: 0.8 of the
    lease, which is renewed meanwhile). A run that is cancelled gives running calls `grace` to end. `unknown_target`
    says what becomes of an entry whose resolver nobody registered: `abandon`, or `defer` for rolling deploys. An entry
    that was parked more than `max_parks` times, or has waited longer than `max_park_age`, is told to the hook's
    `on_overdue`; a success that could not be verified in `verify_attempts` attempts, to its `on_unverified`.
    """

    def __init__(
        self,
        registry: Targets,
        outbox: Outbox,
        audit: AuditSink | None,
        *,
        max_attempts: int = ATTEMPTS,
        batch_size: int = 50,
        backoff: BackoffPolicy | None = None,
        on_abandoned: AbandonedHook | None = None,
        operations: OperationRegistry | None = None,
        concurrency: int | None = None,
        timeout: timedelta | None = None,
        grace: timedelta = timedelta(seconds=10),
        unknown_target: Literal["abandon", "defer"] = "abandon",
        queues: Sequence[str] = (DEFAULT_QUEUE,),
        max_parks: int | None = None,
        max_park_age: timedelta | None = None,
        verify_attempts: int = 8,
        clock: Clock | None = None,
        telemetry: Hub | None = None,
        rng: Callable[[], float] | None = random.random,
    ) -> None:
        _check_parts(registry, outbox, audit, backoff, on_abandoned)
        policy = BackoffPolicy() if backoff is None else backoff
        _check_spans(timeout=timeout, grace=grace, max_park_age=max_park_age)
        limit = policy.lease * _SHARE_OF_LEASE if timeout is None else timeout
        wide = batch_size if concurrency is None else concurrency
        _check_numbers(
            max_attempts=max_attempts, batch_size=batch_size, concurrency=wide, verify_attempts=verify_attempts
        )
        if not _NOTHING < limit < policy.lease:
            raise PolicyError(
                f"SagaRunner.timeout must be above 0 and below the lease ({policy.lease}), got {limit}; "
                "give a BackoffPolicy with a longer lease for longer calls"
            )
        if unknown_target not in ("abandon", "defer"):
            raise PolicyError(f"SagaRunner.unknown_target must be 'abandon' or 'defer', got {unknown_target!r}")
        check_queues("SagaRunner.queues", queues)
        self.outbox = outbox
        self._queues = tuple(queues)
        self.batch_size = batch_size
        self._backoff = policy
        self._clock: Clock = clock or outbox.clock or SYSTEM_CLOCK
        hub = default_hub() if telemetry is None else telemetry
        self._reporter = Reporter(hub)
        self._verification = Verification(
            outbox, backoff=policy, rng=rng, attempts=verify_attempts, audited=audit is not None
        )
        self._verify_from = self._clock.monotonic()
        self._caller = Caller(self._clock, limit.total_seconds(), wide, hub)
        self._parts = Parts(
            outbox=outbox,
            registry=registry,
            operations=outbox.operations if operations is None else operations,
            judge=Judge(
                max_attempts=max_attempts,
                backoff=policy,
                rng=rng,
                unknown_target=unknown_target,
                audited=audit is not None,
            ),
            settler=Settler(outbox, self._verification, audit, self._reporter.troubled),
            verification=self._verification,
            hooks=Hooks(on_abandoned, outbox.sessions),
            reporter=self._reporter,
            caller=self._caller,
            limits=TargetLimits(),
            clock=self._clock,
            lease=policy.lease,
            grace=grace.total_seconds(),
            concurrency=wide,
            max_parks=max_parks,
            max_park_age=max_park_age,
        )

    async def run_once(self) -> int:
        """Claim a batch of due entries, call them, and settle the results as they arrive; how many were claimed.

        Whatever a call does becomes the outcome of its entry; only what is no Exception (SystemExit, say) is raised
        here, after all others were settled. If this is cancelled, calls that have returned are settled and those that
        have not begun are given back.
        """
        return await self.run_batch(lambda number: None)

    def claim(self) -> Claimed | None:
        """Claim a batch for `run_batch` in this thread: for a loop that has nothing else to do, which a thread of its
        own for the claim would only keep waiting. None where sessions are async."""
        if self.outbox.is_async:
            return None
        claimed = self._claim()
        self._heed(claimed)
        return claimed

    async def run_batch(self, claimed: Callable[[int], object], ready: Claimed | None = None) -> int:
        """`run_once`, which tells how many entries it has claimed before it calls them; `ready` are claimed already."""
        batch = Batch(self._parts)

        def done(what: Claimed) -> None:
            if ready is None:
                self._heed(what)
            claimed(len(what.entries))

        # A task of its own: whoever cancels this one must not tear a settle apart.
        claiming = partial(self.outbox.sessions.hop, self._claim)
        work = asyncio.get_running_loop().create_task(batch.run(claiming, done, ready))
        try:
            number = await asyncio.shield(work)
        except asyncio.CancelledError:
            await self._stop(batch, work)
            raise
        if batch.fatal is not None:
            raise batch.fatal
        return number

    async def _stop(self, batch: Batch, work: asyncio.Task[int]) -> None:
        for _ in range(_PATIENCE):
            if work.done():
                break
            batch.stop()
            try:
                await asyncio.wait([work])
            except asyncio.CancelledError:  # somebody is in a hurry
                continue
        if work.done() and not work.cancelled() and (error := work.exception()) is not None:
            self._reporter.troubled("stop", error if isinstance(error, Exception) else RuntimeError(str(error)))

    def close(self) -> None:
        """Let go of the threads in which sync calls run."""
        self._caller.close()

    def _claim(self) -> Claimed:
        """Claim what is due. Due verifications are looked for now and then only."""
        verifies = any(one.verify is not None for one in self._parts.operations)
        looks = verifies and self._clock.monotonic() >= self._verify_from
        outbox = self.outbox
        claim = outbox.claiming(self.batch_size, lease=self._backoff.lease, queues=self._queues)
        if len(self._queues) == 1 and not looks:
            entries = outbox.run_alone(claim)
            results = outbox.run(partial(self._results, entries)) if _needed(entries) else {}
            return Claimed(entries, (), results, entries[0].last_attempt_at if entries else None)

        def work(session: Session) -> Claimed:
            entries = claim(session)
            checks = self._verification.claim(session, self.batch_size) if looks else ()
            now: datetime | None = entries[0].last_attempt_at if entries else None
            if now is None and checks:
                now = outbox.now(session)
            return Claimed(entries, checks, self._results(entries, session), now)

        return outbox.run(work)

    def _results(self, entries: Sequence[OutboxEntry], session: Session) -> dict[UUID, Any]:
        """Of the entries on which these depend."""
        needed = _needed(entries)
        if not needed:
            return {}
        column = self.outbox.tables.outbox.c
        found = sa.select(column.entry_id, column.result).where(column.entry_id.in_(needed))
        return {row.entry_id: row.result for row in session.execute(found)}

    def _heed(self, claimed: Claimed) -> None:
        now = self._clock.monotonic()
        if now >= self._verify_from and len(claimed.checks) < self.batch_size:
            self._verify_from = now + self._backoff.base_delay.total_seconds()
        self._reporter.claimed(self._queues, claimed.entries)


def _needed(entries: Sequence[OutboxEntry]) -> set[UUID]:
    return {entry.depends_on for entry in entries if entry.depends_on is not None}


def check_options(of: str, options: Iterable[str]) -> None:
    """Raises TypeError for one that no runner has: whoever is given some may have no use for them yet."""
    known = [name for name, one in signature(SagaRunner).parameters.items() if one.kind is one.KEYWORD_ONLY]
    for name in options:
        if name not in known:
            story = f"{of} got {name!r}, which neither it nor a SagaRunner takes; a SagaRunner takes {', '.join(known)}"
            raise TypeError(f"{story}. What workflows take is given to hold.workflows.worker(…)")


def _check_parts(registry: Any, outbox: Any, audit: Any, backoff: Any, hook: Any) -> None:
    """Raises PolicyError for what cannot be used, before a call finds out."""
    if not isinstance(outbox, Outbox):
        raise PolicyError(f"SagaRunner.outbox must be an Outbox, got a {type(outbox).__name__}")
    if backoff is not None and not isinstance(backoff, BackoffPolicy):
        raise PolicyError(f"SagaRunner.backoff must be a BackoffPolicy, got {backoff!r}")
    needed = (("registry", registry, "get"), ("audit", audit, "append"), ("on_abandoned", hook, "on_abandoned"))
    for name, part, method in needed:
        if (part is not None or name == "registry") and not callable(getattr(part, method, None)):
            raise PolicyError(f"SagaRunner.{name} must have a method {method}, and a {type(part).__name__} has none")
        if part is not None and iscoroutinefunction(getattr(part, method)):
            raise PolicyError(f"SagaRunner.{name}.{method} must be a plain method: it is called, and not awaited")


def _check_numbers(**numbers: Any) -> None:
    for name, number in numbers.items():
        if isinstance(number, bool) or not isinstance(number, int) or number < 1:
            raise PolicyError(f"SagaRunner.{name} must be a whole number of at least 1, got {number!r}")


def _check_spans(**spans: Any) -> None:
    for name, span in spans.items():
        if span is not None and (not isinstance(span, timedelta) or span < _NOTHING):
            raise PolicyError(f"SagaRunner.{name} must be a timedelta that is not below 0, got {span!r}")
