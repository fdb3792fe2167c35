"""Priority bulkhead: a bulkhead whose slots go to the most urgent class that waits."""

from __future__ import annotations

import math
import threading
from collections import deque
from dataclasses import dataclass
from enum import IntEnum
from typing import Any, Final

from holdfast.core.context import ResilienceContext, TypedKey
from holdfast.core.outcome import Outcome
from holdfast.errors import BulkheadFull, PolicyError
from holdfast.guard.bulkhead import Ticket, check_limits
from holdfast.guard.call import Call, Next, Setting
from holdfast.guard.driver import Waiter


class Priority(IntEnum):
    """How urgent a call is; lower goes first."""

    INTERACTIVE = 0
    WORKFLOW = 1
    BACKGROUND = 2


PRIORITY: Final = TypedKey[Priority]("holdfast.priority")
"""The call's class in the context's properties; calls below inherit it. Absent means WORKFLOW."""


def priority_of(ctx: ResilienceContext) -> Priority:
    """The class of a call.

    Raises ValueError for a property that is no Priority.
    """
    given = ctx.get(PRIORITY)
    return Priority.WORKFLOW if given is None else Priority(given)


@dataclass(frozen=True, slots=True)
class PriorityBulkhead:
    """`limit` calls run; in *each* class `queue` more wait. A running call is never interrupted for an urgent one.

    With `ageing`, a waiting call counts one class more urgent for every so many seconds it has waited, so that a
    steady stream of urgent calls cannot starve the others.
    """

    limit: int
    queue: int = 32
    max_wait: float | None = None
    ageing: float | None = None
    name: str | None = None
    id: str | None = None

    def __post_init__(self) -> None:
        check_limits("PriorityBulkhead", "limit", self.limit, "queue", self.queue, self.max_wait)
        check_ageing("PriorityBulkhead", self.ageing)

    def strategies(self, setting: Setting) -> list[PriorityBulkheadStrategy]:
        name = self.name or setting.name
        return [
            PriorityBulkheadStrategy(name, self.limit, self.queue, max_wait=self.max_wait, ageing=self.ageing)
        ]  # fmt: skip


def check_ageing(owner: str, ageing: Any) -> None:
    """Raises PolicyError for an ageing time that cannot work."""
    if ageing is not None and not (isinstance(ageing, (int, float)) and 0 < ageing < math.inf):
        raise PolicyError(f"{owner}.ageing must be seconds above 0, got {ageing!r}; leave it out for strict priorities")


class PriorityTicket(Ticket):
    """A place in the queue of a class."""

    __slots__ = ("priority", "since")

    def __init__(self, waiter: Waiter, since: float, priority: Priority) -> None:
        super().__init__(waiter)
        self.since = since
        self.priority = priority


class PrioritySlots:
    """Slots and a queue per class, shared by threads and loops; every decision is made under one lock.

    A slot that comes free goes to a waiter under the same lock. So whenever a slot is free nobody waits, and a newcomer
    that finds one passes nobody.
    """

    __slots__ = ("_lock", "ageing", "limit", "queue_limit", "running", "waiting")

    def __init__(self, limit: int, queue_limit: int, ageing: float | None = None) -> None:
        self.limit = limit
        self.queue_limit = queue_limit
        self.ageing = ageing
        self.running = 0
        self.waiting: tuple[deque[PriorityTicket], ...] = tuple(deque() for _ in Priority)
        self._lock = threading.RLock()

    def take(self) -> bool:
        """Take a free slot, if there is one."""
        with self._lock:
            return self._take()

    def enter(self, ticket: PriorityTicket) -> bool:
        """Queue up, or take a slot that came free meanwhile; False when the queue is full."""
        with self._lock:
            if self._take():
                ticket.granted = True
                return True
            if not self._has_room(ticket):
                return False
            self.waiting[ticket.priority].append(ticket)
            return True

    def leave(self, ticket: PriorityTicket) -> bool:
        """Stop waiting; True when the slot had been handed over already."""
        with self._lock:
            granted, ticket.granted = ticket.granted, False
            if not granted and ticket in self.waiting[ticket.priority]:
                self.waiting[ticket.priority].remove(ticket)
            return granted

    def give(self, now: float) -> None:
        """Give a slot back: to the most urgent who waits, first come first served within a class."""
        with self._lock:
            self.running -= 1
            chosen = self._grant(now)
        self._wake(chosen, now)

    def change(self, limit: int, queue_limit: int, ageing: float | None, now: float) -> None:
        """New limits for what is running; shrinking waits until slots drain."""
        with self._lock:
            self.limit, self.queue_limit, self.ageing = limit, queue_limit, ageing
            chosen = self._grant(now)
        self._wake(chosen, now)

    @property
    def queued(self) -> int:
        return sum(map(len, self.waiting))

    def _take(self) -> bool:
        if self.running >= self.limit:
            return False
        self.running += 1
        return True

    def _has_room(self, ticket: PriorityTicket) -> bool:
        return len(self.waiting[ticket.priority]) < self.queue_limit

    def _grant(self, now: float) -> list[PriorityTicket]:
        chosen: list[PriorityTicket] = []
        while self.running < self.limit and any(self.waiting):
            ticket = self._most_urgent(now)
            self.waiting[ticket.priority].popleft()
            ticket.granted = True
            self.running += 1
            chosen.append(ticket)
        return chosen

    def _most_urgent(self, now: float) -> PriorityTicket:
        heads = [queue[0] for queue in self.waiting if queue]
        ageing = self.ageing
        if ageing is None:
            return heads[0]
        return min(
            heads, key=lambda ticket: (max(0, ticket.priority - int((now - ticket.since) / ageing)), ticket.since)
        )

    def _wake(self, chosen: list[PriorityTicket], now: float) -> None:
        while chosen:
            lost = sum(not ticket.waiter.wake() and self.leave(ticket) for ticket in chosen)
            if not lost:
                return
            with self._lock:  # their event loops are gone: the slots go on to the next
                self.running -= lost
                chosen = self._grant(now)


async def await_slot(
    slots: PrioritySlots, ticket: PriorityTicket, ctx: ResilienceContext, max_wait: float | None = None
) -> float | None:
    """Wait for the slot of a ticket that has entered; None once it is ours, else the seconds waited in vain."""
    call: Call = ctx.call
    if not ticket.granted:
        limit = ctx.deadline.clamp(max_wait)
        try:
            woken = await call.driver.park(ticket.waiter, None if limit == math.inf else limit)
        except BaseException:
            if slots.leave(ticket):
                slots.give(call.clock.monotonic())  # handed to us too late; the next one takes it
            if not call.cut:
                raise
            return limit  # a limit around us ended the wait: refused, as in a sync call
        if not woken and not slots.leave(ticket):
            return limit
    call.wait += call.clock.monotonic() - ticket.since
    return None


class PriorityBulkheadStrategy:
    """Holds a slot while the rest of the pipeline runs; the call's class comes from the property `PRIORITY`."""

    kind = "bulkhead"
    passes_context = True

    def __init__(
        self,
        name: str = "bulkhead",
        max_concurrent: int = 1,
        max_queued: int = 32,
        *,
        max_wait: float | None = None,
        ageing: float | None = None,
        slots: PrioritySlots | None = None,
    ) -> None:
        owner = "PriorityBulkheadStrategy"
        check_limits(owner, "max_concurrent", max_concurrent, "max_queued", max_queued, max_wait)
        check_ageing(owner, ageing)
        self.name = name
        self.max_wait = max_wait
        self.slots = PrioritySlots(max_concurrent, max_queued, ageing) if slots is None else slots

    def adopt(self, old: PriorityBulkheadStrategy, now: float) -> None:
        """Go on with the slots of an older strategy, under this one's limits."""
        mine, self.slots = self.slots, old.slots
        self.slots.change(mine.limit, mine.queue_limit, mine.ageing, now)

    async def execute(self, nxt: Next, ctx: ResilienceContext) -> Outcome[Any]:
        call: Call = ctx.call
        slots, priority = self.slots, priority_of(ctx)
        if not slots.take():
            refusal = await self._queue(call, ctx, priority)
            if refusal is not None:
                return refusal
        try:
            return await nxt(ctx)
        finally:
            slots.give(call.clock.monotonic())

    async def _queue(self, call: Call, ctx: ResilienceContext, priority: Priority) -> Outcome[Any] | None:
        slots = self.slots
        ticket = PriorityTicket(call.driver.waiter(), call.clock.monotonic(), priority)
        if not slots.enter(ticket):
            text = f"{slots.limit} running and {slots.queue_limit} {priority.name.lower()} calls waiting"
            return call.refuse(BulkheadFull(self.name, None, text), self.name)
        waited = await await_slot(slots, ticket, ctx, self.max_wait)
        if waited is None:
            return None
        return call.refuse(BulkheadFull(self.name, None, f"no slot came free within {waited:.3g} s"), self.name)

    def describe(self) -> str:
        slots = self.slots
        aged = "" if slots.ageing is None else f", one class up every {slots.ageing:g} s"
        return f"priority bulkhead {self.name!r}: {slots.limit} at once, {slots.queue_limit} waiting per class{aged}"
