"""Lanes: tasks that make calls one after the other, as many at a time as are needed and allowed."""

from __future__ import annotations

import asyncio
from collections import Counter, defaultdict, deque
from collections.abc import Callable, Iterable
from contextvars import copy_context

from holdfast.core.clock import Clock, TimerHandle
from holdfast.core.context import CURRENT
from holdfast.outbox.calling import Call, Caller, Cut

Key = tuple[str, str]


class TargetLimits:
    """How many calls a runner makes to one target at a time, over all batches that it has under way."""

    def __init__(self) -> None:
        self._active: Counter[Key] = Counter()
        self._waiting: defaultdict[Key, deque[tuple[Lanes, Call]]] = defaultdict(deque)

    def admit(self, call: Call, lanes: Lanes) -> bool:
        """Whether the call may begin; if not, its lanes get it back when it may."""
        operation = call.operation
        if operation is None or operation.concurrency is None:
            return True
        key = operation.name, call.entry.resolver
        if self._active[key] < operation.concurrency:
            self._active[key] += 1
            return True
        self._waiting[key].append((lanes, call))
        return False

    def release(self, call: Call) -> None:
        """The call has ended: the next one gets its place."""
        operation = call.operation
        if operation is None or operation.concurrency is None:
            return
        key = operation.name, call.entry.resolver
        if waiting := self._waiting.get(key):
            lanes, after = waiting.popleft()
            lanes.resume(after)
        else:
            self._waiting.pop(key, None)
            self._active[key] -= 1
            if not self._active[key]:
                del self._active[key]

    def withdraw(self, lanes: Lanes) -> list[Call]:
        """The calls of these lanes that wait."""
        gone: list[Call] = []
        for key, waiting in self._waiting.items():
            gone += [call for other, call in waiting if other is lanes]
            self._waiting[key] = deque(one for one in waiting if one[0] is not lanes)
        return gone


class Lanes:
    """Makes calls concurrently; `done(call)` is told of each that has ended.

    Another lane is begun only when all those there are wait for something, so calls that never wait share one task.
    """

    def __init__(
        self, caller: Caller, limits: TargetLimits, clock: Clock, concurrency: int, done: Callable[[Call], None]
    ) -> None:
        self._caller = caller
        self._limits = limits
        self._clock = clock
        self._concurrency = concurrency
        self._done = done
        self._ready: deque[tuple[Call, bool]] = deque()  # with whether a place at its target was given already
        self._waiting = 0
        self.running: set[Call] = set()
        self._tasks: set[asyncio.Task[None]] = set()
        self._spare = False
        self._context = copy_context()
        self._timer: TimerHandle | None = None
        self._timer_at = 0.0

    def add(self, calls: Iterable[Call]) -> None:
        self._ready.extend((call, False) for call in calls)
        self._have_spare()

    def resume(self, call: Call) -> None:
        """A call that waited for its target may begin."""
        self._waiting -= 1
        self._ready.appendleft((call, True))
        self._have_spare()

    @property
    def is_idle(self) -> bool:
        return not self._ready and not self._waiting and not self.running

    def take_unstarted(self) -> list[Call]:
        """Give up what has not begun."""
        unstarted = [call for call, _ in self._ready]
        for call, admitted in self._ready:
            if admitted:
                self._limits.release(call)
        self._ready.clear()
        unstarted += self._limits.withdraw(self)
        self._waiting = 0
        return unstarted

    def cut_off(self, why: Cut) -> None:
        """Cancel everything that is under way."""
        for call in list(self.running):
            call.cut_off(why)

    async def close(self) -> None:
        """End the tasks; nothing may be under way."""
        if self._timer is not None:
            self._timer.cancel()
        while self._tasks:
            await asyncio.wait(self._tasks)

    def _have_spare(self) -> None:
        if self._ready and not self._spare and len(self._tasks) < self._concurrency:
            self._spare = True
            # A context of its own, so that no call sees what another one has set.
            task = asyncio.get_running_loop().create_task(self._lane(), context=self._context.copy())
            self._tasks.add(task)
            task.add_done_callback(self._ended)

    def _ended(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            raise error
        self._have_spare()

    async def _lane(self) -> None:
        self._spare = False
        clean, outer, task = copy_context(), CURRENT.get(), asyncio.current_task()
        assert task is not None
        now = self._clock.monotonic()
        while (call := self._next(now)) is not None:
            self._have_spare()
            try:
                await self._caller.make(call, outer, task)
            finally:
                now = call.ended_at = self._clock.monotonic()
                self.running.remove(call)
                self._limits.release(call)
                self._done(call)
            if copy_context() != clean:
                break

    def _next(self, now: float) -> Call | None:
        while self._ready:
            call, admitted = self._ready.popleft()
            if call.cut is not None:  # lost before it began
                if admitted:
                    self._limits.release(call)
                self._done(call)
                continue
            if not admitted and not self._limits.admit(call, self):
                self._waiting += 1
                continue
            assert call.operation is not None
            call.started_at = now
            call.until = now + self._caller.limit(call.operation)
            self.running.add(call)
            if self._timer is None or call.until < self._timer_at:
                self._arm(call.until)
            return call
        return None

    def _arm(self, at: float) -> None:
        """One timer, for the call that must end first: a timer for each would cost more than most calls."""
        if self._timer is not None:
            self._timer.cancel()
        self._timer_at = at
        self._timer = self._clock.call_at(at, self._cut_late_ones)

    def _cut_late_ones(self) -> None:
        now, self._timer = self._clock.monotonic(), None
        for call in list(self.running):
            if call.until <= now:
                call.cut_off(Cut.TIMEOUT)
        left = [call.until for call in self.running if call.cut is None]
        if left:
            self._arm(min(left))
