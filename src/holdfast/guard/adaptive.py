"""Adaptive limit: as many calls at once as the dependency takes without getting slower."""

from __future__ import annotations

from typing import Any

from holdfast.core.context import ResilienceContext
from holdfast.core.outcome import Evidence, Outcome
from holdfast.errors import BulkheadFull
from holdfast.guard.call import Call, Next, Setting
from holdfast.guard.driver import Waiter
from holdfast.guard.priority import Priority, PrioritySlots, PriorityTicket, await_slot, priority_of
from holdfast.machine.adaptive import AdaptiveLimit, Limiter, class_rate

__all__ = ["AdaptiveLimit", "AdaptiveLimitStrategy", "AdaptiveSlots", "build"]


def build(policy: AdaptiveLimit, setting: Setting) -> list[AdaptiveLimitStrategy]:
    """The strategies that an AdaptiveLimit stands for."""
    return [AdaptiveLimitStrategy(setting.name, policy=policy)]


class LuckyTicket(PriorityTicket):
    """A place in the queue for whoever drew well enough."""

    __slots__ = ("draw",)

    def __init__(self, waiter: Waiter, since: float, priority: Priority, draw: float) -> None:
        super().__init__(waiter, since, priority)
        self.draw = draw


class AdaptiveSlots(PrioritySlots):
    """Slots whose number follows the limiter. The queue refuses by chance, more as it grows, the least urgent first."""

    __slots__ = ("limiter",)

    def __init__(self, policy: AdaptiveLimit) -> None:
        self.limiter = Limiter(policy)
        super().__init__(self.limiter.limit, 0)

    def settle(self, now: float, rtt: float | None, inflight: int) -> None:
        """Give a slot back with the call's seconds; None where they say nothing about the dependency's speed."""
        with self._lock:
            self.running -= 1
            if rtt is not None and self.limiter.sample(now, rtt, inflight):
                self.limit = self.limiter.limit
            chosen = self._grant(now)
        self._wake(chosen, now)

    def reject_rate(self, priority: Priority) -> float:
        """The share of calls of this class that are refused while all slots are taken."""
        return class_rate(self.limiter.reject_rate(self.queued), priority, len(Priority))

    def adapt(self, policy: AdaptiveLimit, now: float) -> None:
        """Go on under another policy with what was learnt."""
        with self._lock:
            self.limiter.change(policy)
            self.limit = self.limiter.limit
            chosen = self._grant(now)
        self._wake(chosen, now)

    def _has_room(self, ticket: PriorityTicket) -> bool:
        assert isinstance(ticket, LuckyTicket)
        return ticket.draw >= self.reject_rate(ticket.priority)


class AdaptiveLimitStrategy:
    """Holds a slot while the rest of the pipeline runs and tells the limiter how long an answer took.

    Timeouts, cancellations and failures release the slot without a sample: a dependency that fails fast is not fast.
    """

    kind = "adaptive"
    passes_context = True

    def __init__(
        self,
        name: str = "adaptive limit",
        *,
        policy: AdaptiveLimit | None = None,
        slots: AdaptiveSlots | None = None,
    ) -> None:
        self.name = name
        self.policy = AdaptiveLimit() if policy is None else policy
        self.slots = AdaptiveSlots(self.policy) if slots is None else slots

    def adopt(self, old: AdaptiveLimitStrategy, now: float) -> None:
        """Go on with the slots and the learnt limit of an older strategy, within this one's bounds."""
        self.slots = old.slots
        self.slots.adapt(self.policy, now)

    async def execute(self, nxt: Next, ctx: ResilienceContext) -> Outcome[Any]:
        call: Call = ctx.call
        slots, priority, monotonic = self.slots, priority_of(ctx), call.clock.monotonic
        if not slots.take():
            refusal = await self._queue(call, ctx, priority)
            if refusal is not None:
                return refusal
        inflight, began, made, rtt = slots.running, monotonic(), len(call.trail), None
        try:
            outcome = await nxt(ctx)
            if _evidence(outcome) is Evidence.SUCCESS and len(call.trail) > made:
                # After a retry the last attempt alone tells how fast the dependency is.
                rtt = monotonic() - began if len(call.trail) == made + 1 else call.trail[-1].service
            return outcome
        finally:
            slots.settle(monotonic(), rtt, inflight)

    async def _queue(self, call: Call, ctx: ResilienceContext, priority: Priority) -> Outcome[Any] | None:
        slots = self.slots
        ticket = LuckyTicket(call.driver.waiter(), call.clock.monotonic(), priority, call.setting.rng())
        if not slots.enter(ticket):
            text = f"{slots.running} running, the limit is {slots.limit}, {slots.queued} waiting"
            return call.refuse(BulkheadFull(self.name, None, text), self.name)
        waited = await await_slot(slots, ticket, ctx)
        if waited is None:
            return None
        return call.refuse(BulkheadFull(self.name, None, f"no slot came free within {waited:.3g} s"), self.name)

    def describe(self) -> str:
        policy = self.policy
        queue = "nothing waits" if policy.queue is None else "{:g} to {:g} times as many wait".format(*policy.queue)
        return f"adaptive limit {self.name!r}: {self.slots.limit} at once now, {policy.min} to {policy.max}, {queue}"


def _evidence(outcome: Outcome[Any]) -> Evidence:
    return outcome.kind.evidence if outcome.evidence is None else outcome.evidence
