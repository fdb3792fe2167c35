"""Hedging: when an answer is slow to come, ask once more and take the first good answer.

Every run of the call, the primary included, is a branch with a call record and a property bag of its own, so that runs
in several threads share nothing. The race alone decides, in the caller's thread or task. A branch that ends after the
race is over closes its own result.
"""

from __future__ import annotations

import math
import threading
from collections.abc import Callable
from copy import copy
from dataclasses import dataclass
from functools import partial
from typing import Any

from holdfast.core.context import CURRENT, ResilienceContext, new_link
from holdfast.core.outcome import Outcome, OutcomeKind
from holdfast.errors import PolicyError
from holdfast.guard.call import IDEMPOTENT, Call, Next, Setting
from holdfast.guard.driver import Branch
from holdfast.guard.retry import LiveBudget, discard
from holdfast.machine.budget import Budget
from holdfast.machine.quantile import MovingQuantile
from holdfast.telemetry.events import Hedged


@dataclass(frozen=True, slots=True)
class Hedge:
    """Start up to `max_hedged` more runs of an idempotent call, each `delay` seconds after the last one.

    A delay of 0 starts all at once, a negative one each only when the one before has failed. A handled failure starts
    the next at once. With `quantile` the delay is that quantile of recent successful durations; `delay` holds until
    `min_samples` are known. `handles(outcome)` tells which outcomes are not accepted (default: the retryable kinds),
    `actions(number)` what hedge number 1, 2, … calls instead of the function (None: the same), with the same
    arguments. `budget` bounds the share of hedges among the calls in flight.

    Sync calls run in threads; the losers cannot be cancelled there and run out by themselves.
    """

    delay: float = 2.0
    max_hedged: int = 1
    quantile: float | None = None
    min_samples: int = 20
    budget: Budget | float | None = None
    handles: Callable[[Outcome[Any]], bool] | None = None
    actions: Callable[[int], Callable[..., Any] | None] | None = None
    id: str | None = None

    def __post_init__(self) -> None:
        if not _is_number(self.delay):
            raise PolicyError(
                f"Hedge.delay must be a finite number of seconds, got {self.delay!r}; use -1 for one run after another"
            )
        if not _is_whole(self.max_hedged) or not 1 <= self.max_hedged <= 10:
            raise PolicyError(
                f"Hedge.max_hedged must be from 1 to 10, got {self.max_hedged!r}; leave the Hedge out for none"
            )
        if self.quantile is not None and not (_is_number(self.quantile) and 0 < self.quantile < 1):
            raise PolicyError(
                f"Hedge.quantile must be above 0 and below 1, got {self.quantile!r}; use 0.95 for the slowest 5 %"
            )
        if not _is_whole(self.min_samples) or self.min_samples < 1:
            raise PolicyError(f"Hedge.min_samples must be at least 1, got {self.min_samples!r}")
        for field in ("handles", "actions"):
            value = getattr(self, field)
            if value is not None and not callable(value):
                raise PolicyError(f"Hedge.{field} must be a function, got {value!r}; leave it out for the default")
        if isinstance(self.budget, (int, float)):
            object.__setattr__(self, "budget", Budget.of(self.budget))

    def strategies(self, setting: Setting) -> list[HedgeStrategy]:
        return [HedgeStrategy(self)]

    def accepts(self, outcome: Outcome[Any]) -> bool:
        return not (outcome.kind.is_retryable if self.handles is None else self.handles(outcome))


def _is_number(value: Any) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool) and math.isfinite(value)


def _is_whole(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


class LiveDurations:
    """Recent successful durations, shared by threads and loops."""

    __slots__ = ("_lock", "_moving")

    def __init__(self, min_samples: int) -> None:
        self._moving = MovingQuantile(max(200, min_samples))
        self._lock = threading.RLock()

    def record(self, seconds: float) -> None:
        with self._lock:
            self._moving.record(seconds)

    def quantile(self, q: float, min_samples: int) -> float | None:
        """The quantile, or None while there are too few samples."""
        with self._lock:
            return self._moving.quantile(q) if self._moving.ready(min_samples) else None


class HedgeStrategy:
    """Races runs of everything inside against each other."""

    kind = "hedge"
    passes_context = True

    def __init__(self, policy: Hedge | None = None, *, budget: LiveBudget | None = None) -> None:
        self.policy = Hedge() if policy is None else policy
        if budget is None and isinstance(self.policy.budget, Budget):
            budget = LiveBudget(self.policy.budget)
        self.budget = budget
        self.durations = None if self.policy.quantile is None else LiveDurations(self.policy.min_samples)

    async def execute(self, nxt: Next, ctx: ResilienceContext) -> Outcome[Any]:
        if ctx.get(IDEMPOTENT) is False:
            return await nxt(ctx)
        if self.budget is None:
            return await Race(self, nxt, ctx).run()
        self.budget.begin_execution()
        try:
            return await Race(self, nxt, ctx).run()
        finally:
            self.budget.end_execution()

    def delay(self) -> float:
        """Seconds until the next hedge, as of now."""
        policy = self.policy
        if self.durations is None or policy.quantile is None:
            return policy.delay
        learnt = self.durations.quantile(policy.quantile, policy.min_samples)
        return policy.delay if learnt is None else learnt

    def describe(self) -> str:
        policy = self.policy
        when = "one after another"
        if policy.delay >= 0:
            when = f"after {policy.delay:g} s each" if policy.delay else "at once"
        if policy.quantile is not None:
            learnt = f"after the {policy.quantile:g} quantile of recent durations"
            when = f"{learnt}, {when} below {policy.min_samples} of them"
        return f"hedge: up to {policy.max_hedged} more, {when}"


class Run:
    """One branch of a race. The branch itself sets `outcome`, and only while the race is on."""

    __slots__ = ("budget", "call", "ctx", "handle", "kind", "made", "number", "outcome")

    handle: Branch

    def __init__(self, number: int, ctx: ResilienceContext, budget: LiveBudget | None) -> None:
        self.number = number
        self.ctx = ctx
        self.call: Call = ctx.call
        self.budget = budget  # what to give back when the run ends
        self.outcome: Outcome[Any] | None = None
        self.kind: OutcomeKind | None = None
        self.made = 0  # attempts taken over from its call


class Race:
    """The runs of one hedged call."""

    __slots__ = (
        "_began", "_call", "_call_id", "_ctx", "_delay", "_ended", "_last_start", "_lock", "_nxt", "_over", "_running",
        "_runs", "_strategy",
    )  # fmt: skip

    def __init__(self, strategy: HedgeStrategy, nxt: Next, ctx: ResilienceContext) -> None:
        self._strategy = strategy
        self._nxt = nxt
        self._ctx = ctx
        self._delay = strategy.delay()
        self._call: Call = ctx.call
        self._call_id = self._call.call_id  # drawn before the call is copied, or every copy would draw its own
        self._began: float = self._call.clock.monotonic()
        self._last_start: float = self._began
        self._runs: list[Run] = []
        self._running: list[Run] = []  # those that have not been judged yet
        self._ended = False  # no more hedges
        self._over = False  # decided, or the caller is gone
        self._lock = threading.RLock()

    async def run(self) -> Outcome[Any]:
        """The first accepted outcome, or the primary's."""
        try:
            winner = await self._decide()
            await self._finish(winner)
        except BaseException:
            await self._finish(None)
            raise
        return self._deliver(winner)

    async def _decide(self) -> Run:
        self._launch(0, self._call.fn)
        while self._running:
            patience = self._patience()
            if patience == 0:
                self._start_next()
                continue
            await self._call.driver.first_done([run.handle for run in self._running], patience)
            for run in [run for run in self._running if run.handle.done]:
                self._running.remove(run)
                if self._accepts(run):
                    return run
        return self._runs[0]

    def _may_start(self) -> bool:
        return not (self._ended or len(self._runs) > self._strategy.policy.max_hedged or self._ctx.deadline.expired())

    def _patience(self) -> float | None:
        """Seconds until the next hedge is due; None if time starts no more."""
        if self._delay < 0 or not self._may_start():
            return None
        return max(0.0, self._last_start + self._delay - self._call.clock.monotonic())

    def _accepts(self, run: Run) -> bool:
        """Whether a run that has ended decides the race.

        Raises what came out of the run instead of an outcome; that decides too.
        """
        call = self._call
        try:
            outcome: Outcome[Any] = run.handle.result()
        except BaseException:
            self._ctx.merge(run.ctx)
            raise
        self._take_trail(run)
        if call.ask(self._strategy.policy.accepts, outcome) is False:
            self._start_next()
            call.report_attempts(last=False)
            return False
        # A refused run never ran: it must not end those that do, and the next one would be refused as well.
        self._ended = self._ended or outcome.kind is OutcomeKind.REJECTED
        return outcome.kind is not OutcomeKind.REJECTED

    def _start_next(self) -> None:
        if not self._may_start():
            return
        call = self._call
        number, budget = len(self._runs), self._strategy.budget
        action = call.ask(self._action, number)
        if action is None or (budget is not None and not budget.try_begin_retry()):
            self._ended = True
            return
        try:
            self._launch(number, action)
        except RuntimeError:  # no more threads: the runs that there are must do
            self._ended = True
            if budget is not None:
                budget.end_retry()
            return
        call.emit(Hedged(call.operation_key, self._call_id, number, self._last_start - self._began))

    def _action(self, number: int) -> Callable[..., Any]:
        actions = self._strategy.policy.actions
        action = None if actions is None else actions(number)
        return self._call.fn if action is None else action

    def _launch(self, number: int, fn: Callable[..., Any]) -> None:
        call = self._call
        self._last_start = call.clock.monotonic()
        ctx = self._ctx.fork()
        ctx.call = branch = copy(call)
        branch.fn, branch.trail, branch.reported, branch.cut = fn, [], 0, 0
        if number:
            branch.delay = self._last_start - self._began
        call.replay, call.wait, call.delay = None, 0.0, 0.0  # the primary has them
        run = Run(number, ctx, self._strategy.budget if number else None)
        run.handle = call.driver.start(partial(self._branch, run))
        self._runs.append(run)
        self._running.append(run)

    async def _branch(self, run: Run) -> Outcome[Any]:
        """The work of a branch, in its own thread or task and a copy of the caller's context."""
        CURRENT.set(new_link(run.call, CURRENT.get(), run.ctx))
        monotonic, durations = run.call.clock.monotonic, self._strategy.durations
        started = monotonic()
        try:
            outcome = await self._nxt(run.ctx)
        finally:
            self._release(run)
        if durations is not None and outcome.kind is OutcomeKind.SUCCESS:
            durations.record(monotonic() - started)
        with self._lock:
            late = self._over
            if not late:
                run.outcome, run.kind = outcome, outcome.kind
        if late:
            await discard(run.call, outcome)
        return outcome

    def _release(self, run: Run) -> None:
        with self._lock:
            budget, run.budget = run.budget, None
        if budget is not None:
            budget.end_retry()

    def _take_trail(self, run: Run) -> None:
        """Add what a run has recorded to the call's own trail."""
        trail = self._call.trail
        for attempt in run.call.trail[run.made :]:
            attempt.number = len(trail)
            trail.append(attempt)
        run.made = len(run.call.trail)

    async def _finish(self, winner: Run | None) -> None:
        """End what still runs, wait for it where that is possible, and close every result but the winner's."""
        call = self._call
        with self._lock:
            self._over = True
        losers = [run for run in self._runs if not run.handle.done]
        for run in losers:
            run.call.cut = run.call.cut or call.cut  # below, a time limit of ours is no mere cancellation
        await call.driver.cancel([run.handle for run in losers])
        for run in self._runs:
            if run.handle.done:
                self._release(run)  # a task that was cancelled before its first step could not
                self._take_trail(run)
            if run is winner:
                continue
            try:
                if run.handle.done:
                    run.handle.result()
            except BaseException:
                pass  # asked for only because asyncio complains of exceptions that nobody saw
            outcome, run.outcome = run.outcome, None
            if outcome is not None:
                await discard(call, outcome)

    def _deliver(self, winner: Run) -> Outcome[Any]:
        call = self._call
        outcome = winner.outcome
        assert outcome is not None
        self._ctx.merge(winner.ctx)
        hedges = len(self._runs) - 1
        if not hedges and outcome.kind is OutcomeKind.SUCCESS and len(call.trail) == outcome.attempts:
            return outcome
        # Runs that were cut off have recorded nothing, but they were calls.
        cut_off = sum(1 for run in self._runs if not run.made and run.kind is None)
        notes = {**call.notes(), "hedges": hedges, "winner": winner.number} if hedges else call.notes()
        return outcome.evolve(attempts=len(call.trail) + cut_off, metadata=notes)
