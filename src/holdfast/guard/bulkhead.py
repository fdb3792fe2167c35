"""Bulkhead: at most so many calls at once, and a bounded queue for the rest."""

from __future__ import annotations

import math
import threading
from collections import deque
from dataclasses import dataclass
from typing import Any

from holdfast.core.context import ResilienceContext
from holdfast.core.outcome import Outcome
from holdfast.errors import BulkheadFull, PolicyError
from holdfast.guard.call import Call, Next
from holdfast.guard.driver import Driver, Waiter


@dataclass(frozen=True, slots=True)
class Bulkhead:
    """`limit` calls run, `queue` more wait; a wait is bounded by the deadline and by `max_wait`."""

    limit: int
    queue: int = 0
    max_wait: float | None = None
    name: str | None = None
    id: str | None = None

    def __post_init__(self) -> None:
        check_limits("Bulkhead", "limit", self.limit, "queue", self.queue, self.max_wait)


def check_limits(owner: str, limit_field: str, limit: Any, queue_field: str, queue: Any, max_wait: Any = None) -> None:
    """Raises PolicyError for limits that cannot work."""
    if isinstance(limit, bool) or not isinstance(limit, int) or limit < 1:
        raise PolicyError(
            f"{owner}.{limit_field} must be a whole number of at least 1, got {limit!r}; use 1 for one call at a time"
        )
    if isinstance(queue, bool) or not isinstance(queue, int) or queue < 0:
        raise PolicyError(
            f"{owner}.{queue_field} must be a whole number, 0 or more, got {queue!r}; use 0 to refuse when busy"
        )
    if max_wait is not None and not (isinstance(max_wait, (int, float)) and max_wait >= 0):
        raise PolicyError(
            f"{owner}.max_wait must be seconds, 0 or more, got {max_wait!r}; leave it out to wait for the deadline"
        )


class Ticket:
    """A place in a queue that needs to know more than who waits."""

    __slots__ = ("granted", "waiter")

    def __init__(self, waiter: Waiter) -> None:
        self.waiter = waiter
        self.granted = False


class Slots:
    """Free slots and those who wait for them, shared by threads and loops.

    A slot is a token in a deque. Taking one is a single atomic pop, and a newcomer leaves it alone while anybody
    waits. Giving one back puts it down *before* looking for waiters, and a waiter queues *before* it looks for
    slots; so one of the two always sees the other, and the slot goes to the head of the queue.
    """

    __slots__ = ("debt", "_lock", "free", "limit", "queue_limit", "waiting")

    def __init__(self, limit: int, queue_limit: int) -> None:
        self.limit = limit
        self.queue_limit = queue_limit
        self.free: deque[None] = deque([None] * limit)
        self.waiting: deque[Waiter] = deque()
        self.debt = 0  # slots that must not come back, because the limit shrank
        self._lock = threading.RLock()

    def take(self) -> bool:
        """Take a free slot if nobody is before us."""
        if self.waiting:
            return False
        try:
            self.free.pop()
        except IndexError:
            return False
        return True

    def give(self) -> None:
        """Give a slot back: to the first in the queue, if there is one."""
        self._put_back()
        if self.waiting:
            self.hand_over()

    def _put_back(self) -> None:
        if self.debt:
            with self._lock:
                if self.debt:
                    self.debt -= 1
                    return
        self.free.append(None)

    def enter(self, ticket: Waiter) -> bool:
        """Queue up; False when the queue is full."""
        lock = self._lock
        lock.acquire()  # half the price of `with`
        try:
            if len(self.waiting) >= self.queue_limit:
                # A slot may have come free since the caller looked.
                if self.free and not self.waiting and self._pop():
                    ticket.granted = True
                    return True
                return False
            self.waiting.append(ticket)
        finally:
            lock.release()
        if self.free:
            self.hand_over()
        return True

    def leave(self, ticket: Waiter) -> bool:
        """Stop waiting; True when the slot had been handed over already."""
        with self._lock:
            granted, ticket.granted = ticket.granted, False
            if not granted and ticket in self.waiting:
                self.waiting.remove(ticket)
            return granted

    def hand_over(self) -> None:
        """Give free slots to waiters, first come first served."""
        waiting, free, lock = self.waiting, self.free, self._lock
        while True:
            woken: list[Waiter] = []
            lock.acquire()
            try:
                while waiting and free:
                    if not self._pop():
                        break  # a newcomer was quicker
                    ticket = waiting.popleft()
                    ticket.granted = True
                    woken.append(ticket)
            finally:
                lock.release()
            lost = 0
            for ticket in woken:
                # Its event loop is closed: the slot goes on to the next, unless the dying waiter passes it on itself.
                lost += not ticket.wake() and self.leave(ticket)
            if not lost:
                return
            for _ in range(lost):
                self._put_back()

    def _pop(self) -> bool:
        try:
            self.free.pop()
        except IndexError:
            return False
        return True

    def change(self, limit: int, queue_limit: int) -> None:
        """New limits for what is running; shrinking waits until slots drain."""
        with self._lock:
            self.queue_limit = queue_limit
            self.debt -= limit - self.limit
            self.limit = limit
            while self.debt > 0 and self._pop():
                self.debt -= 1
            while self.debt < 0:
                self.debt += 1
                self.free.append(None)
        self.hand_over()

    @property
    def in_use(self) -> int:
        return self.limit + self.debt - len(self.free)


class BulkheadStrategy:
    """Holds a slot while the rest of the pipeline runs."""

    kind = "bulkhead"
    passes_context = True

    def __init__(
        self,
        name: str = "bulkhead",
        max_concurrent: int = 1,
        max_queued: int = 32,
        *,
        max_wait: float | None = None,
        slots: Slots | None = None,
    ) -> None:
        check_limits("BulkheadStrategy", "max_concurrent", max_concurrent, "max_queued", max_queued, max_wait)
        self.name = name
        self.max_wait = max_wait
        self.slots = Slots(max_concurrent, max_queued) if slots is None else slots

    def adopt(self, old: BulkheadStrategy, now: float) -> None:
        """Go on with the slots of an older strategy, under this one's limits."""
        limit, queue_limit = self.slots.limit, self.slots.queue_limit
        self.slots = old.slots
        self.slots.change(limit, queue_limit)

    async def execute(self, nxt: Next, ctx: ResilienceContext) -> Outcome[Any]:
        call: Call = ctx.call
        slots = self.slots
        if call.replay is None and not slots.take():
            refusal = await self._queue(call, ctx)
            if refusal is not None:
                return refusal
        try:
            return await nxt(ctx)
        finally:
            slots.give()

    async def queue_up(self, driver: Driver) -> bool:
        """Wait for a slot as long as it takes; False when the queue is full."""
        ticket = driver.waiter()
        if not self.slots.enter(ticket):
            return False
        if not ticket.granted:
            try:
                await driver.park(ticket, None)
            except BaseException:
                self._withdraw(ticket)
                raise
        return True

    async def _park(self, driver: Driver, ticket: Waiter, limit: float | None) -> bool:
        try:
            return await driver.park(ticket, limit)
        except BaseException:
            self._withdraw(ticket)
            raise

    def _withdraw(self, ticket: Waiter) -> None:
        if self.slots.leave(ticket):
            self.slots.give()  # handed to us too late; the next one takes it

    async def _queue(self, call: Call, ctx: ResilienceContext) -> Outcome[Any] | None:
        driver: Driver = call.driver
        began = call.clock.monotonic()
        ticket = driver.waiter()
        if not self.slots.enter(ticket):
            error = BulkheadFull(self.name, None, f"{self.slots.limit} running and {self.slots.queue_limit} waiting")
            return call.refuse(error, self.name)
        if not ticket.granted:
            limit = ctx.deadline.clamp(self.max_wait)
            late = BulkheadFull(self.name, None, f"no slot came free within {limit:.3g} s")
            try:
                woken = await self._park(driver, ticket, None if limit == math.inf else limit)
            except BaseException:
                if not call.cut:
                    raise
                return call.refuse(late, self.name)  # a limit around us ended the wait: refused, as in a sync call
            if not woken and not self.slots.leave(ticket):
                return call.refuse(late, self.name)
        call.wait += call.clock.monotonic() - began
        return None

    def describe(self) -> str:
        return f"bulkhead {self.name!r}: {self.slots.limit} at once, {self.slots.queue_limit} waiting"
