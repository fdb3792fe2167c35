"""Throttle: shed a share of the calls, the larger the more of the recent ones failed."""

from __future__ import annotations

import threading
from typing import Any, NamedTuple

from holdfast.core.context import ResilienceContext
from holdfast.core.outcome import Evidence, Outcome
from holdfast.errors import Throttled
from holdfast.guard.call import Call, Next, Setting
from holdfast.machine.throttle import Throttle, ThrottleLedger

__all__ = ["LiveThrottle", "Throttle", "ThrottleFigures", "ThrottleStrategy", "build"]


def build(policy: Throttle, setting: Setting) -> list[ThrottleStrategy]:
    """The strategies that a Throttle stands for."""
    return [ThrottleStrategy(setting.name, policy=policy)]


class ThrottleFigures(NamedTuple):
    """What a decision rests on: the share to shed, and the counts in the window."""

    probability: float
    executions: int
    successes: int


class LiveThrottle:
    """A throttle's counts, shared by threads and loops."""

    __slots__ = ("_ledger", "_lock")

    def __init__(self, policy: Throttle) -> None:
        self._ledger = ThrottleLedger(policy)
        self._lock = threading.RLock()

    def figures(self, now: float) -> ThrottleFigures:
        """The numbers of this moment."""
        with self._lock:
            return ThrottleFigures(self._ledger.probability(now), *self._ledger.counts(now))

    def record(self, now: float, success: bool) -> None:
        """Count one execution that ended."""
        with self._lock:
            self._ledger.record(now, success)

    def change(self, policy: Throttle) -> None:
        """Other limits; counting starts anew only if the window has another length."""
        with self._lock:
            if policy.window == self._ledger.policy.window:
                self._ledger.policy = policy
            else:
                self._ledger = ThrottleLedger(policy)


class ThrottleStrategy:
    """Draws before each pass whether to shed it, and counts what the others came to.

    Refusals, cancellations and whatever else says nothing about the dependency are not counted.
    """

    kind = "throttle"
    passes_context = True

    def __init__(
        self, name: str = "throttle", *, policy: Throttle | None = None, throttle: LiveThrottle | None = None
    ) -> None:
        self.name = name
        self.policy = Throttle() if policy is None else policy
        self.throttle = LiveThrottle(self.policy) if throttle is None else throttle

    def adopt(self, old: ThrottleStrategy, now: float) -> None:
        """Go on with the counts of an older strategy, under this one's limits."""
        self.throttle = old.throttle
        self.throttle.change(self.policy)

    async def execute(self, nxt: Next, ctx: ResilienceContext) -> Outcome[Any]:
        call: Call = ctx.call
        throttle, monotonic = self.throttle, call.clock.monotonic
        figures = throttle.figures(monotonic())
        if figures.probability > 0 and call.setting.rng() < figures.probability:
            return self._shed(call, figures)
        try:
            outcome = await nxt(ctx)
        except BaseException:
            if call.cut:  # a time limit of ours, not the caller's cancellation
                throttle.record(monotonic(), success=False)
            raise
        evidence = outcome.kind.evidence if outcome.evidence is None else outcome.evidence
        if evidence is not Evidence.NEUTRAL:
            throttle.record(monotonic(), evidence is Evidence.SUCCESS)
        return outcome

    def _shed(self, call: Call, figures: ThrottleFigures) -> Outcome[Any]:
        text = (
            f"shedding {figures.probability:.0%}: {figures.successes} of {figures.executions} calls succeeded "
            f"in the last {self.policy.window:g} s"
        )
        return call.refuse(Throttled(self.name, None, text), self.name, figures=figures)

    def describe(self) -> str:
        policy = self.policy
        return (
            f"throttle {self.name!r}: below {policy.threshold:.0%} successes in {policy.window:g} s, "
            f"at most {policy.cap:.0%} shed"
        )
