"""Timeout: a limit for the whole call, one for each attempt, or both."""

from __future__ import annotations

import threading
from copy import copy
from dataclasses import dataclass
from typing import Any

from holdfast.core.check import check_seconds
from holdfast.core.context import CURRENT, PARENT, ResilienceContext, new_link, withdraw
from holdfast.core.outcome import Evidence, Outcome, OutcomeKind
from holdfast.errors import PolicyError
from holdfast.guard.call import ENDPOINT, Call, Next, TimeLimit
from holdfast.guard.perform import in_time, within
from holdfast.guard.retry import discard


@dataclass(frozen=True, slots=True)
class Timeout:
    """Seconds for the whole call and for each attempt.

    An async function is cut. A sync one cannot be: it reads `remaining_time()`, and a result that comes late is a
    TIMEOUT. With `abandon=True` it runs in a thread of its own and the caller walks away on time.
    """

    total: float | None = None
    attempt: float | None = None
    abandon: bool = False
    id: str | None = None

    def __post_init__(self) -> None:
        if self.total is None and self.attempt is None:
            raise PolicyError("Timeout needs total, attempt or both, got neither; use Timeout(total=10)")
        for field in ("total", "attempt"):
            value = getattr(self, field)
            if value is not None:
                check_seconds(f"Timeout.{field}", value, "leave it out for no limit")
        if self.total is not None and self.attempt is not None and self.attempt > self.total:
            raise PolicyError(
                f"Timeout.attempt must not be longer than total, got attempt={self.attempt:g} > total={self.total:g}; "
                "shorten attempt or raise total"
            )


class TimeoutStrategy:
    """Tightens the deadline for everything inside and ends it by then.

    `strays` counts abandoned threads that are still at work.
    """

    passes_context = True

    def __init__(self, timeout_s: float, *, kind: str = "timeout", abandon: bool = False) -> None:
        check_seconds("TimeoutStrategy.timeout_s", timeout_s, "leave the strategy out for no limit")
        self.timeout_s = timeout_s
        self.kind = kind
        self.abandon = abandon
        self.which: TimeLimit = "attempt" if kind == "attempt_timeout" else "total"
        self.strays = 0
        self._lock = threading.RLock()

    async def execute(self, nxt: Next, ctx: ResilienceContext) -> Outcome[Any]:
        call: Call = ctx.call
        which: TimeLimit = self.which if call.retry_domain is None else "attempt"
        # A replayed first attempt began before this path did; its limit counts from then.
        begun = call.clock.monotonic() if call.replay is None else call.replay.started
        cut = call.replay is not None and call.replay.timed_out and call.replay.which == self.which
        deadline = ctx.deadline.tighten(begun + self.timeout_s)
        if deadline.remaining() <= 0 and call.replay is None:
            return call.time_out(which, self.timeout_s, "had run out before it began").evolve(
                evidence=Evidence.NEUTRAL, metadata={"started": False}
            )
        abandons = self.abandon and not call.driver.is_async
        if deadline is ctx.deadline and not abandons:
            return await nxt(ctx)  # whoever set the tighter one ends it
        inner = ctx.tightened(deadline)
        token = None
        if call.setting.context:
            token = CURRENT.set(new_link(call, _outside(CURRENT.get(), call), inner))
        try:
            if abandons:
                outcome = await self._abandoning(nxt, inner, call, which)
            else:
                outcome = await within(call, nxt, inner, self.timeout_s, which)
        finally:
            withdraw(token)
        if outcome.stopped_by == "deadline" and deadline is not ctx.deadline:
            # Our own limit forbade the retry that was due, so it names the result.
            await discard(call, outcome)
            if cut:  # and had ended the attempt, which was told then
                return call.time_out(which, self.timeout_s, "ran out", told=True)
            cause = call.last_error
            if cause is None and getattr(outcome.error, "limit", None) != self.timeout_s:
                cause = outcome.error  # an attempt that its own limit ended
            return call.time_out(which, self.timeout_s, "does not allow another attempt", cause)
        return outcome

    async def _abandoning(self, nxt: Next, ctx: ResilienceContext, call: Call, which: TimeLimit) -> Outcome[Any]:
        """Run the rest in a thread, on a copy of the call: what a stray still does must not show in this one."""
        branch_ctx = ctx.fork()
        branch_ctx.call = branch = copy(call)
        branch.trail = list(call.trail)
        call.replay = None  # the branch carries it on
        ended = strayed = False

        async def work() -> Outcome[Any]:
            nonlocal ended
            outcome = None
            if call.setting.context:  # this thread has a copy of the caller's context
                CURRENT.set(new_link(branch, _outside(CURRENT.get(), call), branch_ctx))
            try:
                outcome = await nxt(branch_ctx)
                return outcome
            finally:
                with self._lock:
                    ended = True
                    self.strays -= strayed
                if strayed and outcome is not None:
                    await discard(branch, outcome)  # nobody is there to take it

        started, at = call.clock.monotonic(), ctx.deadline.at
        outcome = await call.driver.bounded(work, at, branch, abandon=True)
        if isinstance(outcome, Outcome):
            call.trail[:], call.reported = branch.trail, branch.reported
            ctx.merge(branch_ctx)
            return in_time(call, outcome, at, self.timeout_s, which)
        with self._lock:
            strayed = not ended
            self.strays += strayed
            # What the stray still adds goes to its own list.
            call.trail[:], call.reported = branch.trail, branch.reported
            branch.trail = list(branch.trail)
        call.record(OutcomeKind.TIMEOUT, call.clock.monotonic() - started, None, ctx.get(ENDPOINT))
        return call.time_out(which, self.timeout_s, "ran out").evolve(metadata={"abandoned": True})

    def describe(self) -> str:
        how = ", abandoning sync calls" if self.abandon else ""
        return f"{self.kind.replace('_', ' ')}: {self.timeout_s:g} s{how}"


def _outside(link: Any, call: Call) -> Any:
    """The link above this call's own, so that a chain of tightened deadlines does not look like nested calls."""
    while link is not None and link[0] is call:
        link = link[PARENT]
    return link
