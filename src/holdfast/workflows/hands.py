"""Running tasks, each type within its own slots; and having it written down what came of them."""

from __future__ import annotations

import asyncio
import threading
from asyncio import CancelledError
from collections import Counter, deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from typing import Any, Final

from holdfast.core.clock import SYSTEM_CLOCK, Clock, TimerHandle
from holdfast.workflows.bulkheads import TaskBulkheadManager
from holdfast.workflows.calling import Call
from holdfast.workflows.execution import BulkheadLimits, ExecutionResult, Limits
from holdfast.workflows.records import ItemRecord
from holdfast.workflows.resilience import BulkheadConfig
from holdfast.workflows.settling import Settling
from holdfast.workflows.threads import Alarms, Threads

Way = Callable[[Call], Callable[..., Any]]
HOOKS: Final = "holdfast.hooks"
"""The type whose slots `on_timeout` is called in: those of its own type may all be hung."""
HOOK_S: Final = 30.0
AHEAD: Final = 8
"""How many calls per slot are worth having here, of a type whose calls are quick."""
QUICK_S: Final = 0.02
MOST_WAITS: Final = 1000


class WorkerLimits:
    """The slots of a worker: those of the listed types, and for any other so many threads, or so many async calls."""

    def __init__(
        self, threads: int, tasks: int, is_async: Callable[[str], bool], listed: BulkheadLimits | None
    ) -> None:
        self._plain = BulkheadConfig(max_concurrent=threads)
        self._async = BulkheadConfig(max_concurrent=tasks)
        self._is_async = is_async
        self._listed = {} if listed is None else dict(listed.bulkheads_dict())

    def get_bulkhead(self, task_type: str, /) -> Limits:
        return self._listed.get(task_type) or (self._async if self._is_async(task_type) else self._plain)

    def bulkheads_dict(self) -> Mapping[str, Limits]:
        return self._listed


class Hands:
    """Has the calls that are ours: those that run, and those that wait for a slot. `interrupted` hears of a task that
    raised SystemExit or KeyboardInterrupt, `troubled` of a store that is away."""

    def __init__(
        self,
        settling: Settling,
        way: Way,
        limits: BulkheadLimits,
        *,
        clock: Clock,
        troubled: Callable[[Exception], None],
        interrupted: Callable[[BaseException], None],
    ) -> None:
        self._settling = settling
        self._way = way
        self._limits = limits
        self._clock = clock
        self._troubled = troubled
        self._interrupted = interrupted
        alarms = Alarms(clock if clock is SYSTEM_CLOCK else Unhurried(clock))
        self._slots = TaskBulkheadManager(limits, clock=clock, alarms=alarms)
        self._writers = Threads("holdfast-settle", 10.0)
        lock = threading.Lock()
        self._lock = lock
        self._quiet = threading.Condition(lock)
        self._held: dict[tuple[str, int], str] = {}
        self._count: Counter[str] = Counter()
        self._promised: Counter[str] = Counter()
        self._ready: dict[str, deque[Call]] = {}
        self._running: dict[tuple[str, int], Call] = {}
        self._broken: list[ItemRecord] = []
        self._pace: dict[str, float] = {}
        self._nudged = self._closed = False

    @property
    def busy(self) -> int:
        """How many items are here: running, waiting, or not written down yet."""
        return len(self._held)

    def room(self, type: str) -> int:
        """How many more items of a type are worth having here."""
        if not type:
            return MOST_WAITS - self._count[type]
        pace = self._pace.get(type)
        if pace is not None and pace < QUICK_S:
            return AHEAD * self._limits.get_bulkhead(type).max_concurrent - self._count[type]
        return self._slots.free_slots(type) - self._promised[type] - len(self._ready.get(type, ()))

    def is_hungry(self, type: str) -> bool:
        """Whether so much room is free that it is worth to claim."""
        if not type:
            return False
        pace, slots = self._pace.get(type), self._limits.get_bulkhead(type).max_concurrent
        return 2 * self.room(type) >= (AHEAD * slots if pace is not None and pace < QUICK_S else slots)

    def holds(self, item: ItemRecord) -> bool:
        return (item.id, item.version) in self._held

    def hold(self, items: Iterable[ItemRecord]) -> None:
        """These are ours now."""
        with self._lock:
            for item in items:
                key = (item.id, item.version)
                if key not in self._held:
                    self._held[key] = item.type
                    self._count[item.type] += 1

    def let_go(self, items: Iterable[ItemRecord]) -> None:
        """These are not ours any more: settled, given back, or lost."""
        with self._lock:
            for item in items:
                type = self._held.pop((item.id, item.version), None)
                if type is not None:
                    self._count[type] -= 1
            if not self._held:
                self._quiet.notify_all()

    def take(self, calls: Sequence[Call]) -> None:
        """Make these calls, of items that we hold."""
        with self._lock:
            for call in calls:
                self._ready.setdefault(call.item.type, deque()).append(call)
        self.fill(dict.fromkeys(call.item.type for call in calls))

    def fill(self, types: Iterable[str] | None = None) -> None:
        """Have every free slot used, of these types or of all."""
        for type in list(self._ready) if types is None else types:
            while (call := self._next(type)) is not None:
                try:
                    self._begin(call)
                finally:
                    with self._lock:
                        self._promised[type] -= 1

    def _next(self, type: str) -> Call | None:
        with self._lock:
            waiting = self._ready.get(type)
            if not waiting or self._closed or self._slots.free_slots(type) <= self._promised[type]:
                return None
            self._promised[type] += 1
            call = waiting.popleft()
            call.began_at = self._clock.monotonic()
            self._running[call.key] = call
            return call

    def _begin(self, call: Call) -> None:
        try:
            work = call.work(self._way(call))
            told = partial(self._ended, call)
            call.ticket = self._slots.submit(call.item.type, work, on_done=told, timeout=call.task.timeout)
        except Exception as error:  # its guard is not there, or its time limit is none
            self._ended(call, ExecutionResult(False, error=error))
            return
        if call.cut_by is not None:
            call.ticket.cancel(call.cut_by)

    def _ended(self, call: Call, result: ExecutionResult) -> None:
        """Called by whoever learns of the end: a thread of the type, the loop, or the one that watches the time."""
        type, error = call.item.type, result.error
        with self._lock:
            self._running.pop(call.key, None)
            if result.run_s:
                pace = self._pace.get(type, result.run_s)
                self._pace[type] = pace + (result.run_s - pace) / 8
            stops = error is not None and not isinstance(error, Exception | CancelledError)
            if stops:
                self._broken.append(call.item)
            is_ours = call.key in self._held
        if stops:
            assert error is not None
            self._interrupted(error)
            return
        hook = call.on_timeout() if result.timed_out and is_ours else None
        if not is_ours:
            pass  # it was lost meanwhile, and its result is nobody's
        elif hook is not None:
            self._slots.submit(HOOKS, hook, on_done=partial(self._after_hook, call, result), timeout=HOOK_S)
        else:
            self._settling.put(call.ended(result))
        self.fill((type,))
        if result.timed_out or call.task.is_async or _on_loop():
            self.nudge()
        else:
            self.flush()

    def _after_hook(self, call: Call, timed_out: ExecutionResult, answer: ExecutionResult) -> None:
        """`on_timeout` may have given a result in place of the task."""
        given = answer.success and answer.result is not None
        self._settling.put(call.returned(answer.result) if given else call.ended(timed_out))
        self.nudge()

    def nudge(self) -> None:
        """There is something to write down, and whoever says so must not do it."""
        with self._lock:
            if self._nudged:
                return
            self._nudged = True
        if not self._writers.run(self._write):
            self._nudged = False  # no thread to be had; whoever looks next tries again

    def _write(self) -> None:
        self._nudged = False
        self.flush()
        self._writers.about_to_be_free()

    def flush(self) -> None:
        try:
            self._settling.flush()
        except Exception as error:  # the store is away: what came of the calls waits here
            self._troubled(error)

    def cut(self, reason: str, *, workflow: str | None = None, items: Iterable[ItemRecord] = ()) -> None:
        """Nobody wants the results any more of these items, or of a workflow's: ask the tasks to stop."""
        keys = {(item.id, item.version) for item in items}
        with self._lock:
            found = [call for key, call in self._running.items() if key in keys or call.item.workflow == workflow]
        for call in found:
            call.cut_by = reason
            if call.ticket is not None:
                call.ticket.cancel(reason)

    def running_since(self, at: float) -> list[ItemRecord]:
        """The items whose calls began before that."""
        with self._lock:
            return [call.item for call in self._running.values() if call.began_at <= at]

    def lose(self) -> list[ItemRecord]:
        """Nothing that is here is ours any more; gives what ran, or waited to. What runs is not asked to stop yet."""
        with self._lock:
            lost = [call.item for call in self._running.values()]
            lost += [call.item for waiting in self._ready.values() for call in waiting]
            self._ready.clear()
            self._held.clear()
            self._count.clear()
            self._quiet.notify_all()
        return lost

    def drop_waiting(self) -> list[ItemRecord]:
        """Take back what has not begun, and what an interrupt has broken off; they are still held."""
        with self._lock:
            dropped = [call.item for waiting in self._ready.values() for call in waiting] + self._broken
            self._ready.clear()
            self._broken = []
        return dropped

    def wait_idle(self, timeout: float) -> bool:
        """Wait until nothing is here; False when it takes longer, in real seconds."""
        with self._quiet:
            return self._quiet.wait_for(lambda: not self._held, timeout)

    def close(self) -> None:
        """Begin nothing more, and let go of threads."""
        with self._lock:
            self._closed = True
        self._slots.shutdown(wait=False)
        self._writers.close()

    def stats(self) -> dict[str, dict[str, int]]:
        """The figures of each type's slots."""
        return self._slots.get_all_stats()


class Unhurried:
    """A clock that those who watch time limits do not move: a manual one jumps when somebody waits."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self.monotonic = clock.monotonic
        self.wall = clock.wall
        self.sleep = clock.sleep
        self.asleep = clock.asleep

    def wait(self, event: threading.Event, seconds: float | None) -> bool:
        until = None if seconds is None else self.monotonic() + seconds
        while not event.wait(0.01):
            if until is not None and self.monotonic() >= until:
                return False
        return True

    def call_at(self, when: float, callback: Callable[[], object]) -> TimerHandle:
        return self._clock.call_at(when, callback)


def _on_loop() -> bool:
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return False
    return True
