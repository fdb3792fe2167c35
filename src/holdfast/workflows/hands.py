"""Running tasks, each type within its own slots; and having it written down what came of them."""

from __future__ import annotations

import asyncio
from collections import Counter, deque
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import Any, Final

from holdfast.core.clock import SYSTEM_CLOCK, Clock
from holdfast.workflows.at_hand import AtHand
from holdfast.workflows.bulkheads import TaskBulkheadManager
from holdfast.workflows.calling import Call
from holdfast.workflows.crew import Crew
from holdfast.workflows.execution import BulkheadLimits, ExecutionResult, TaskCircuit
from holdfast.workflows.finalizing import FINALIZER_S, HOOKS, PREFIX, Caller
from holdfast.workflows.lanes import Lanes
from holdfast.workflows.pace import Pace
from holdfast.workflows.records import ItemRecord
from holdfast.workflows.settling import Settling
from holdfast.workflows.task_call import Turn
from holdfast.workflows.threads import Unhurried

Way = Callable[[Call], Callable[..., Any]]
HUNG_S: Final = 30.0
"""How long a call that was asked to stop may take to do so."""
MOST_WAITS: Final = 1000


class Hands:
    """Has the calls that are ours: those that run, and those that wait for a slot. `interrupted` hears of a task that
    raised what stops its crew, `troubled` of a store that is away, `freed` of a type whose hung call has ended at last.
    Each call passes its circuit."""

    def __init__(
        self,
        settling: Settling,
        way: Way,
        limits: BulkheadLimits,
        *,
        clock: Clock,
        began: Callable[[Call], None],
        crew: Crew,
        troubled: Callable[[Exception], None],
        interrupted: Callable[[BaseException], None],
        freed: Callable[[str], object],
        circuit_of: Callable[[str, str], TaskCircuit] | None = None,
    ) -> None:
        self._circuit_of = circuit_of
        self._settling = settling
        self._way = way
        self._limits = limits
        self._clock = clock
        self._began = began
        self._troubled = troubled
        self._interrupted = interrupted
        alarms = crew.alarms(clock if clock is SYSTEM_CLOCK else Unhurried(clock))
        self._slots = TaskBulkheadManager(limits, clock=clock, alarms=alarms, crew=crew, freed=freed)
        self._crew = crew
        self._stops = crew.stops
        self._writers = crew.threads("holdfast-settle", 10.0)
        self.at_hand = AtHand(limits)
        self._lock, self._ready, self._running = self.at_hand.lock, self.at_hand.ready, self.at_hand.running
        self._promised: Counter[str] = Counter()
        self._pace = Pace(limits)
        self._lanes = Lanes(
            self, self.at_hand, self._pace, settling=settling, slots=self._slots, writers=self._writers, clock=clock
        )
        self._nudged = False

    def room(self, type: str) -> int:
        """How many more items of a type are worth having here."""
        if ahead := self._pace.ahead(type):
            return ahead - self.at_hand.count[type]
        if _needs_no_slot(type):
            return MOST_WAITS - self.at_hand.count[type]
        return self._slots.free_slots(type) - self._promised[type] - len(self._ready.get(type, ()))

    def is_hungry(self, type: str) -> bool:
        """Whether so much room is free that it is worth to claim."""
        if _needs_no_slot(type):
            return False
        return 2 * self.room(type) >= (self._pace.ahead(type) or self._limits.get_bulkhead(type).max_concurrent)

    def take(self, calls: Sequence[Call]) -> None:
        """Make these calls, of items that we hold."""
        with self._lock:
            types: dict[str, None] = {}
            for call in calls:
                type = call.item.type
                if type not in self._ready:
                    self._ready[type] = deque()
                self._ready[type].append(call)
                if type not in self._lanes.back_soon:
                    types[type] = None
        if types:
            self.fill(types)

    def fill(self, types: Iterable[str] | None = None, *, at_once: bool = False) -> None:
        """Have every free slot used, of these types or of all. Light calls are for the thread that makes one of their
        type already, if there is one; not `at_once`."""
        for type in list(self._ready) if types is None else types:
            while (call := self._next(type, at_once)) is not None:
                try:
                    self._begin(call, alone=at_once)
                finally:
                    with self._lock:
                        self._promised[type] -= 1
            waits = self._ready.get(type) and type not in self._lanes.back_soon
            if self._pace.is_light(type) and (waits or self._slots.is_behind(type)):
                self._lanes.watch()

    def _next(self, type: str, at_once: bool) -> Call | None:
        with self._lock:
            waiting = self._ready.get(type)
            if not waiting or self.at_hand.is_closed:
                return None
            if type in self._lanes.calls and self._pace.is_light(type) and not at_once:
                return None
            if self._slots.free_slots(type) <= self._promised[type]:
                return None
            self._promised[type] += 1
            call = waiting.popleft()
            call.began_at = self._clock.monotonic()
            self._running[call.key] = call
            if self._pace.is_light(type) and not (at_once or call.task.is_async):
                self._lanes.calls[type] = call
            return call

    def turn(self, call: Call) -> Turn:
        """Raises WorkflowDefinitionError for a guard that is not there, or does not fit."""
        of = self._circuit_of
        # What was asked for is not there yet: that says nothing of a dependency, and is asked again in its own time.
        circuit = None if of is None or call.task.verifies else of(call.item.workflow, call.item.type)
        work = call.work(self._way(call), self._began)
        return Turn(work, partial(self.ended, call), circuit, partial(self._lanes.follow, call))

    def _begin(self, call: Call, *, alone: bool) -> None:
        if call.is_late:
            late = TimeoutError("its time is over")
            self.ended(call, ExecutionResult(False, error=late, timed_out=True))
            return
        try:
            turn = self.turn(call)
            call.ticket = self._slots.submit(
                call.item.type, turn.work, on_done=turn.on_done, timeout=call.task.timeout, circuit=turn.circuit,
                patient=self._pace.is_light(call.item.type), then=None if alone else turn.then,
            )  # fmt: skip
        except Exception as error:  # its guard is not there, or its time limit is none
            self.ended(call, ExecutionResult(False, error=error))
            return
        if call.cut_by is not None:
            call.cut(call.cut_by)

    def ended(self, call: Call, result: ExecutionResult) -> None:
        """Called by whoever learns of the end: a thread of the type, the loop, or the one that watches the time."""
        type, error = call.item.type, result.error
        with self._lock:
            self._running.pop(call.key, None)
            if self._lanes.calls.get(type) is call:
                del self._lanes.calls[type]
            self._pace.note_end(type, result.run_s)
            stops = isinstance(error, self._stops)
            if stops:
                self.at_hand.broken.append(call.item)
            is_ours = call.key in self.at_hand.held
        if stops:
            assert error is not None
            self._interrupted(error)
            return
        hook = call.on_timeout() if result.timed_out and is_ours and not call.is_settled else None
        if call.is_settled:
            self.at_hand.let_go((call.item,))
        elif not is_ours:
            pass  # it was lost meanwhile, and its result is nobody's
        elif hook is not None:
            self._slots.submit(HOOKS, hook, on_done=partial(self._after_hook, call, result), timeout=FINALIZER_S)
        else:
            self._settling.put(call.ended(result))
        self.fill((type,))
        # What follows is done first, so that it is written with this one; unless it takes long, for then the thread
        # that was nudged is quicker.
        if result.timed_out or call.task.is_async or _on_loop():
            self.nudge()
        elif not self._slots.follows(type):
            self.flush(type)
        else:
            self._lanes.heed(type)

    def _after_hook(self, call: Call, timed_out: ExecutionResult, answer: ExecutionResult) -> None:
        """`on_timeout` may have given a result in place of the task."""
        given = answer.success and answer.result is not None
        self._settling.put(call.returned(answer.result) if given else call.ended(timed_out))
        self.nudge()

    @property
    def caller(self) -> Caller:
        """What calls finalizers."""
        return Caller(self._slots, self._crew)

    def nudge(self) -> None:
        """There is something to write down, and whoever says so must not do it."""
        with self._lock:
            if self._nudged:
                return
            self._nudged = True
        if not self._writers.run(self._write_all):
            self._nudged = False  # no thread to be had; whoever looks next tries again

    def _write_all(self) -> None:
        self._nudged = False
        self.flush()
        self._writers.about_to_be_free()

    def flush(self, type: str | None = None) -> None:
        """Write down what waits. A thread that makes the calls of a type lets others make the next one, if it stays."""

        def again() -> bool:
            if type is not None:
                self._slots.takes_longer(type)
            return True

        self.write(again)

    def write(self, again: Callable[[], bool]) -> None:
        """The same, asking before what came meanwhile is written, too."""
        try:
            self._settling.flush(again)
        except Exception as error:  # the store is away: what came of the calls waits here
            self._troubled(error)

    def leave_it(self) -> bool:
        """For one who has written what is his: somebody else writes the rest."""
        self.nudge()
        return False

    def cut(self, reason: str, items: Iterable[ItemRecord]) -> None:
        """Nobody wants the results of these items any more: ask the tasks to stop."""
        keys = {(item.id, item.version) for item in items}
        with self._lock:
            found = [call for key, call in self._running.items() if key in keys]
        at = self._clock.monotonic()
        for call in found:
            call.cut_by, call.cut_at = reason, at
            call.cut(reason)

    def abandon_hung(self) -> None:
        """Wait no longer for calls that were asked to stop and did not. They keep their slots until they end."""
        before = self._clock.monotonic() - HUNG_S
        with self._lock:
            hung = [call for call in self._running.values() if call.cut_by is not None and call.cut_at <= before]
        for call in hung:
            call.cut(str(call.cut_by), abandon=True)

    def close(self) -> None:
        """Begin nothing more, and let go of threads."""
        with self._lock:
            self.at_hand.is_closed = True
        self._slots.shutdown(wait=False)
        self._writers.close()

    def stats(self) -> dict[str, dict[str, int]]:
        """The figures of each type's slots."""
        return self._slots.get_all_stats()


def _needs_no_slot(type: str) -> bool:
    return not type or type.startswith(PREFIX)


def _on_loop() -> bool:
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return False
    return True
