"""Retry: run the rest of the pipeline again while the outcome is retryable."""

from __future__ import annotations

import math
import threading
from typing import Any

from holdfast.core.classify import was_not_sent
from holdfast.core.context import CURRENT, PARENT, ResilienceContext, retried_above
from holdfast.core.outcome import Outcome, StoppedBy
from holdfast.errors import BudgetExhausted
from holdfast.guard.call import IDEMPOTENT, Call, Next
from holdfast.guard.invoke import invoke
from holdfast.machine.breaker import Control
from holdfast.machine.budget import Budget, BudgetLedger
from holdfast.machine.retry import Retry, RetrySafety, next_step
from holdfast.telemetry.events import RetryDeferred, RetryScheduled

# Looking a member up in its class costs as much as a call.
ALWAYS, IDEMPOTENT_ONLY, NEVER = RetrySafety.ALWAYS, RetrySafety.IDEMPOTENT, RetrySafety.NEVER

__all__ = ["LiveBudget", "Retry", "RetrySafety", "RetryStrategy"]


class LiveBudget(BudgetLedger):
    """A retry budget shared by the calls of a guard, in any thread."""

    __slots__ = ("_lock",)

    def __init__(self, policy: Budget) -> None:
        super().__init__(policy)
        self._lock = threading.RLock()

    def begin_execution(self) -> None:
        with self._lock:
            super().begin_execution()

    def end_execution(self) -> None:
        with self._lock:
            super().end_execution()

    def try_begin_retry(self) -> bool:
        with self._lock:
            return super().try_begin_retry()

    def end_retry(self) -> None:
        with self._lock:
            super().end_retry()

    def acquire(self, name: str = "") -> None:
        """Begin a retry of one's own under this budget; end it with `end_retry`.

        Raises BudgetExhausted when there is nothing left.
        """
        if not self.try_begin_retry():
            raise BudgetExhausted(name, None, f"{self.inflight} retries among {self.executions} calls in flight")


class RetryStrategy:
    """The retry loop, one for both colours. It ends on success, on a refusal, and when nothing allows another try."""

    kind = "retry"
    passes_context = True

    def __init__(
        self,
        max_attempts: int | None = 3,
        base_delay_s: float = 0.5,
        max_delay_s: float = 30.0,
        *,
        policy: Retry | None = None,
        budget: LiveBudget | None = None,
    ) -> None:
        self.policy = Retry(max_attempts, base_delay_s, max_delay_s) if policy is None else policy
        if budget is None and isinstance(self.policy.budget, Budget):
            budget = LiveBudget(self.policy.budget)
        self.budget = budget

    async def execute(self, nxt: Next, ctx: ResilienceContext) -> Outcome[Any]:
        call: Call = ctx.call
        outer_domain = call.retry_domain
        deferred_to = self._deferred_to(call)
        if self.policy.attempts != 1:
            call.retry_domain = self.policy.domain
        if self.budget is not None:
            self.budget.begin_execution()
        # A call that leaves the short way may have made attempts before the one to replay, and settled that one too.
        settled = None if call.replay is None else call.replay.outcome
        made = 1 if call.replay is None else len(call.trail) + (settled is None)
        try:
            if settled is None:
                outcome = await nxt(ctx)
            else:
                call.replay, outcome = None, settled
            if not outcome.kind.is_retryable:
                return outcome
            return await self._persist(nxt, ctx, outcome, deferred_to, made)
        finally:
            call.retry_domain = outer_domain
            if self.budget is not None:
                self.budget.end_execution()

    async def _persist(
        self, nxt: Next, ctx: ResilienceContext, outcome: Outcome[Any], deferred_to: str | None, made: int
    ) -> Outcome[Any]:
        """Go on after `made` attempts, the last of them with a retryable outcome."""
        call: Call = ctx.call
        policy, rng, driver, hub = self.policy, call.setting.rng, call.driver, call.setting.hub
        deadline = ctx.deadline
        conditional = deferred_to is not None or policy.health is not None or self.budget is not None
        wait = 0.0
        while True:
            remaining = math.inf if deadline.at == math.inf else deadline.remaining()
            safe = self._repeatable(ctx) or self._never_sent(outcome)
            step = next_step(policy, made, outcome, rng, wait if made > 1 else None, remaining, safe)
            if step is None:
                return outcome
            if not isinstance(step, str):
                wait = step if step == 0.0 or self._worth_waiting(call, step) else 0.0
                step = self._forbidden(call, made, deferred_to) if conditional else None
            if step is not None:
                return outcome.evolve(metadata={"stopped_by": step, "trail": call.trail})
            try:
                if hub.loud:
                    if nxt is invoke:
                        call.report_attempts(last=False)
                    else:  # something in between may refuse: whether this was the last one will be known then
                        call.decided_at = call.clock.wall()
                    hub.emit_loud(RetryScheduled(call.operation_key, call.call_id, made - 1, wait))
                if policy.on_retry is not None:
                    call.ask(policy.on_retry, made - 1, outcome, wait)
                if outcome.error is None or "result" in outcome.metadata:
                    await discard(call, outcome)
                if wait > 0:
                    await driver.sleep(wait)
                call.delay = wait
                made += 1
                outcome = await nxt(ctx)
            finally:
                if self.budget is not None:
                    self.budget.end_retry()

    def _worth_waiting(self, call: Call, wait: float) -> bool:
        """False when the breaker will still refuse after the wait: then its refusal may come at once."""
        if call.circuit is None:
            return True
        if call.circuit.control is Control.ISOLATED:
            return False
        bar = call.circuit.bar
        return bar is None or bar[0] <= call.clock.monotonic() + wait

    def _deferred_to(self, call: Call) -> str | None:
        """The surrounding call that retries this failure domain already."""
        if call.retry_domain == self.policy.domain:
            return call.operation_key
        link = CURRENT.get() if call.setting.context else None
        if link is None or link[PARENT] is None:
            return None
        while link is not None and link[0] is call:  # our own links, one per deadline that was tightened
            link = link[PARENT]
        outer = retried_above(link, self.policy.domain)
        return None if outer is None else outer.operation_key

    def _forbidden(self, call: Call, made: int, deferred_to: str | None) -> StoppedBy | None:
        if deferred_to is not None:
            call.emit(RetryDeferred(call.operation_key, call.call_id, made - 1, deferred_to))
            return "nested"
        if self.policy.health is not None and call.ask(self.policy.health) is False:
            return "health_gate"
        if self.budget is not None and not self.budget.try_begin_retry():
            return "budget"
        return None

    def _repeatable(self, ctx: ResilienceContext) -> bool:
        """Whether the call may be made again whatever became of it."""
        safety = self.policy.safety
        return safety is ALWAYS or (safety is IDEMPOTENT_ONLY and ctx.get(IDEMPOTENT) is not False)

    def _never_sent(self, outcome: Outcome[Any]) -> bool:
        known = self.policy.safety is not NEVER and outcome.error is not None
        return known and was_not_sent(outcome.error)  # type: ignore[arg-type]  # not None, as just asked

    def describe(self) -> str:
        return f"retry: {self.policy.describe()}"


async def discard(call: Call, outcome: Outcome[Any]) -> None:
    """Let go of a result that nobody will see, e.g. a response whose connection must go back to its pool."""
    result: Any = outcome.value if outcome.kind.has_value else outcome.metadata.get("result")
    try:
        if call.driver.is_async and hasattr(result, "aclose"):
            await result.aclose()
        elif callable(close := getattr(result, "close", None)):
            close()
    except Exception:  # its trouble must not replace the result that the caller gets
        import logging

        logging.getLogger("holdfast").warning("%s: could not close %r", call.operation_key, result, exc_info=True)
