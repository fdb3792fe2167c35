"""What `Guard.testing` does: fewer attempts and no backoff, for everybody who uses the guard."""

from __future__ import annotations

from dataclasses import replace
from types import TracebackType
from typing import Any

from holdfast.core.context import ResilienceContext
from holdfast.core.outcome import Outcome
from holdfast.errors import PolicyError
from holdfast.guard.call import Next
from holdfast.guard.guard import Guard
from holdfast.guard.plan import CHANGING, Plan
from holdfast.guard.retry import RetryStrategy
from holdfast.guard.scope import Scope
from holdfast.machine.retry import Retry


def rehearse(guard: Guard, attempts: int | None, wait: bool) -> Scope[None]:
    """See `Guard.testing`.

    Raises PolicyError for a number of attempts that cannot be.
    """
    if attempts is not None and (type(attempts) is not int or attempts < 1):
        raise PolicyError(
            f"guard {guard.name!r}: testing(attempts=...) must be at least 1, got {attempts!r}; use 1 for no retry, "
            "or None to leave the number as it is"
        )
    return Scope(lambda: Rehearsal(guard, attempts, wait))


class Rehearsal:
    """One block in which a guard is tested. It puts a plan over the guard's own, which it shares all live state with.

    Blocks of different threads may end in any order: a plan goes when its own block and every later one has ended.
    """

    __slots__ = ("_attempts", "_guard", "_over", "_wait", "outer", "own", "plan_before")

    def __init__(self, guard: Guard, attempts: int | None, wait: bool) -> None:
        self._guard = guard
        self._attempts = attempts
        self._wait = wait
        self._over = False
        self.outer: Rehearsal | None = None
        self.own: RetryStrategy | None = None  # the guard's, whatever blocks are around this one
        self.plan_before: Plan | None = None

    def __enter__(self) -> None:
        guard = self._guard
        with CHANGING:
            before = guard.plan
            retry = before.first(RetryStrategy)
            if retry is None:
                return  # one attempt and no backoff by nature
            self.outer = retry.rehearsal if isinstance(retry, RehearsedRetry) else None
            self.own = retry if self.outer is None else self.outer.own
            self.plan_before = before
            assert self.own is not None
            rehearsed = RehearsedRetry(self, self.own, self._capped(self.own.policy), prompt=not self._wait)
            strategies = tuple(rehearsed if strategy is retry else strategy for strategy in before.strategies)
            guard._use(before.policies, strategies)
            before.retire()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        guard = self._guard
        self._over = True
        with CHANGING:
            now = plan = guard.plan
            while (rehearsal := _rehearsal_of(plan)) is not None and rehearsal._over:
                assert rehearsal.plan_before is not None
                plan = rehearsal.plan_before
            if plan is not now:
                plan.retire(False)
                guard.plan = plan
                guard._entries = {}
                now.retire()

    def _capped(self, policy: Retry) -> Retry:
        attempts = policy.attempts
        if self._attempts is not None:
            attempts = self._attempts if attempts is None else min(attempts, self._attempts)
        return replace(policy, attempts=attempts, base=policy.base if self._wait else 0.0)


class RehearsedRetry(RetryStrategy):
    """The guard's retry under another policy. A prompt one does not heed a failure's own hint (Retry-After) either."""

    def __init__(self, rehearsal: Rehearsal, own: RetryStrategy, policy: Retry, *, prompt: bool) -> None:
        super().__init__(policy=policy, budget=own.budget)
        self.rehearsal = rehearsal
        self._prompt = prompt

    async def execute(self, nxt: Next, ctx: ResilienceContext) -> Outcome[Any]:
        if not self._prompt:
            return await super().execute(nxt, ctx)
        hint: float | None = None

        async def at_once(inner: ResilienceContext) -> Outcome[Any]:
            nonlocal hint
            outcome = await nxt(inner)
            hint = outcome.retry_after
            return outcome.evolve(retry_after=0.0) if outcome.is_retryable and hint else outcome

        outcome = await super().execute(at_once, ctx)
        return outcome if outcome.retry_after == hint else outcome.evolve(retry_after=hint)


def _rehearsal_of(plan: Plan) -> Rehearsal | None:
    retry = plan.first(RetryStrategy)
    return retry.rehearsal if isinstance(retry, RehearsedRetry) else None
