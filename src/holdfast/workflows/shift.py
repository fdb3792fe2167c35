"""One worker between its start and its end: what it has, and what it does about it."""

from __future__ import annotations

import logging
import os
import threading
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, Final

from holdfast.core.clock import Clock
from holdfast.core.redact import redact
from holdfast.errors import Conflict, StoreError, TaskError
from holdfast.machine.run import Advance, Missing, Work
from holdfast.machine.workflow import WorkflowStatus
from holdfast.store.port import Store, Swap
from holdfast.store.query import Condition, among, equal
from holdfast.store.record import evolve
from holdfast.workflows.binding import resolve, sources
from holdfast.workflows.calling import Call, described
from holdfast.workflows.execution import BulkheadLimits
from holdfast.workflows.functions import TaskFunction
from holdfast.workflows.hands import Hands, WorkerLimits
from holdfast.workflows.plan import StageExtras
from holdfast.workflows.presence import MOST_CRASHES, Presence
from holdfast.workflows.records import ITEM, ItemRecord, WorkflowRecord
from holdfast.workflows.registry import TaskRegistry
from holdfast.workflows.run import Run
from holdfast.workflows.runs import Blueprints, Runs
from holdfast.workflows.settling import WAKE, Settlement, Settling
from holdfast.workflows.stage_tasks import StageTask, shown

PRIORITIES: Final = (1, 0, -1)
MOST_CLAIMED: Final = 500
ORPHANS_S: Final = 60.0
"""How often to look for items whose owner has no row."""
LONG_S: Final = 1.0
"""A call that runs longer is asked about: it may be cancelled, or not be ours any more."""
_NONE: Final = -(1 << 30)
_log: Final = logging.getLogger("holdfast")


class Shift:
    """`look` again and again, then `drain`; or `do_due` once."""

    def __init__(
        self,
        store: Store,
        tasks: Mapping[str, TaskFunction[Any, Any]],
        registry: TaskRegistry,
        blueprints: Blueprints,
        *,
        guard: Callable[[str], Any],
        told: Callable[[WorkflowRecord], None],
        queues: Sequence[str],
        threads: int,
        async_tasks: int,
        bulkheads: BulkheadLimits | None,
        beat_s: float,
        ttl_s: float,
        idle_s: float,
        clock: Clock,
    ) -> None:
        self._store = store
        self._tasks = tasks
        self._registry = registry
        self._guard = guard
        self._told = told
        self._queues = tuple(queues)
        # Each look at all queues is so many statements; with nothing to do there is at most one in a second.
        self._idle_s = max(idle_s, len(self._queues) * len(PRIORITIES) + 1.0)
        self._beat_s = beat_s
        self._ttl_s = ttl_s
        self._clock = clock
        self._runs = Runs(store, blueprints)
        self.presence = Presence(store, beat_s=beat_s, ttl_s=ttl_s, clock=clock)
        self._settling = Settling(
            store, self._runs, owner=lambda: self.presence.id, room=self._room, hand_out=self._hand_out,
            settled=self._settled, told=self._over,
        )  # fmt: skip
        limits = WorkerLimits(threads, async_tasks, lambda name: name in tasks and tasks[name].is_async, bulkheads)
        self.hands = Hands(
            self._settling, self._way, limits, clock=clock, troubled=self.trouble, interrupted=self._interrupted
        )
        self.process = os.getpid()
        self.wake = threading.Event()
        self.stopping = threading.Event()
        self.is_over = False
        self.interrupt: BaseException | None = None
        """What a task raised to end the program."""
        self._trouble: Exception | None = None
        self._postponed: list[ItemRecord] = []
        self._in_doubt = self._is_full = False
        self._beat_at = self._claim_at = self._orphans_at = float("-inf")
        self._busy_at = self._clock.monotonic()
        self._pause_s = LONG_S

    def look(self, *, woken: bool = False) -> float:
        """Show that we live, take what is due, and say when to look again. Raises StoreError."""
        at = self._clock.monotonic()
        if self._in_doubt:
            self._find_lost()
        if at >= self._beat_at:
            self._beat_at = at + self._beat_s
            if self._beat(at):
                woken = True
        self._carry_on()
        if self.hands.busy or woken:
            self._busy_at, self._pause_s = at, LONG_S
        if woken or self._is_full or at >= self._claim_at:
            taken, first = self._claim()
            if taken and not self.hands.busy:
                return 0.0
            self._claim_at = at + min(self._idle_s, first)
            if not (taken or woken):
                self._pause_s = min(self._idle_s, 2 * self._pause_s)
        return self._until(self._clock.monotonic())

    def _until(self, at: float) -> float:
        if self.hands.busy:
            return min(self._beat_s, max(0.0, self._claim_at - at))
        wait = min(self._pause_s, max(0.0, self._claim_at - at))
        if self.presence.is_shown:
            wait = min(wait, self._ttl_s / 2)
        # Somebody else has work; if he is killed, nothing else will tell.
        return min(wait, LONG_S) if self.presence.others else wait

    def do_due(self) -> int:
        """Do what is due, and what follows from it, in this moment; how many items were taken. Raises StoreError."""
        taken = 0
        self._trouble = None
        self.presence.bury(patient=False)
        self._carry_on()
        while True:
            number, _ = self._claim()
            taken += number
            if not number and not self.hands.busy:
                break
            while not self.hands.wait_idle(self._beat_s):
                if self.interrupt is not None:
                    self._give_back()
                    raise self.interrupt
                if self._trouble is not None:
                    self._in_doubt, trouble = True, self._trouble
                    raise trouble
                self._renew()
                self._carry_on()
        self.presence.leave()
        return taken

    def drain(self) -> None:
        """Give back what has not begun, wait for what has, and leave."""
        while True:
            try:
                self._give_back()
                if self.hands.busy:
                    self._renew()
                    self._carry_on()
                if self.hands.wait_idle(self._beat_s):
                    break
            except Exception as error:  # the store is away: what came of the calls is kept until it is back
                self.trouble(error)
                self.hands.wait_idle(self._beat_s)
        self.close()
        try:
            self.presence.leave()
        except StoreError as error:
            self.trouble(error)

    def close(self) -> None:
        """Let go of threads."""
        self.is_over = True
        self.hands.close()

    def trouble(self, error: Exception) -> None:
        """The store did not do, or did and could not say so."""
        self._trouble = error
        self._in_doubt = True
        _log.warning("workflows: %s", redact(f"{type(error).__name__}: {error}"))

    def _beat(self, at: float) -> bool:
        """Whether there is something to claim now."""
        if self.hands.busy:
            if self._renew():
                self._cut_lost(at)
        elif self.presence.is_shown and at - self._busy_at >= self._ttl_s / 2:
            self.presence.leave()
        freed = self.presence.bury()
        if at >= self._orphans_at:
            self._orphans_at = at + ORPHANS_S
            freed += self.presence.adopt_orphans()
        return freed > 0

    def _renew(self, *, only_if_due: bool = False) -> bool:
        """Show that we live. Who was declared dead drops everything that he has, and goes on as somebody else."""
        before = self.presence.id
        if self.presence.be_there() if only_if_due else self.presence.show():
            return True
        with self._settling.writing:
            lost = self.hands.lose()
            self._postponed.clear()
            # What was written under the old name since it was taken from us.
            self.presence.take_from(before, crashed=False)
        self.hands.cut("another worker has it", items=lost)
        _log.warning("workflows: worker %s was declared dead; %s items are somebody else's now", before, len(lost))
        return False

    def _cut_lost(self, at: float) -> None:
        """Tasks that have run for a while and are not wanted any more: cancelled by somebody, or not ours."""
        items = self.hands.running_since(at - LONG_S)[:MOST_CLAIMED]
        if items:
            found = self._store.get(ITEM, [item.id for item in items])
            lost = [item for item, one in zip(items, found, strict=True) if one != item]
            self.hands.cut("its workflow goes on without it", items=lost)

    def _find_lost(self) -> None:
        """A claim or a commit may have been made without our hearing of it: what is ours in the store, is it here?"""
        with self._settling.writing:
            found = self._store.page(ITEM, equal(owner=self.presence.id), by="id", limit=10 * MOST_CLAIMED)
            lost = [item for item in found if not self.hands.holds(item)]
            self.hands.hold(lost)
            self._postponed += lost
        self._in_doubt = False

    def _carry_on(self) -> None:
        """What could not be done at once: write, read, or begin it now."""
        if self._postponed:
            items, self._postponed = self._postponed, []
            self._begin(items)
        if self._settling.waits:
            self._settling.take_up()
            self.hands.nudge()
        self.hands.fill()

    def _room(self, type: str) -> int:
        known = not type or type in self._tasks or type in self._registry
        return self.hands.room(type) if known and not self.stopping.is_set() else _NONE

    def _claim(self) -> tuple[int, float]:
        """Take what is due. How many items, and in how many seconds the next one is due."""
        known = ("", *self._tasks, *self._registry)
        rooms = {type: room for type in known if (room := self._room(type)) > 0}
        self._is_full = False
        now, first, items = self._store.now(), self._idle_s, list[ItemRecord]()

        def take(item: ItemRecord) -> ItemRecord | None:
            if rooms.get(item.type, 0) <= 0:
                return None
            rooms[item.type] -= 1
            return evolve(item, owner=self.presence.id, due_at=None)

        for queue in self._queues if rooms else ():
            for priority in PRIORITIES:
                where = (*equal(queue=queue, priority=priority), among("type", tuple(rooms)))
                next = self._store.page(ITEM, where, by="due_at", limit=1)
                wait = ((next[0].due_at or 0) - now) / 1e6 if next else first
                if wait > 0 or not self._renew(only_if_due=True):
                    first = min(first, max(0.001, wait))
                    continue
                limit = min(MOST_CLAIMED, sum(max(0, room) for room in rooms.values()) or 1)
                due = (*where, Condition("due_at", "<=", now))
                items += self._store.claim(ITEM, due, take, limit=limit)
        self._is_full = len(rooms) < len(known) or any(room <= 0 for room in rooms.values())
        taken = len(items)
        self.hands.hold(items)
        self._begin(items)
        return taken, first

    def _begin(self, items: list[ItemRecord]) -> None:
        """Read what is needed for items that we hold, and have them done."""
        if not items:
            return
        items.reverse()
        try:
            with self._settling.writing:
                self._runs.refresh(item.workflow for item in items)
                while items:
                    run = self._runs.get(items[-1].workflow)
                    if run is None:
                        self._settling.put_aside(items[-1])
                        self.hands.let_go((items[-1],))
                    else:
                        self._hand_out(((items[-1], run),))
                    items.pop()
        finally:
            self._postponed += items
            if self._settling.waits:
                self.hands.nudge()

    def _hand_out(self, items: Sequence[tuple[ItemRecord, Run]]) -> None:
        """Called by whoever writes: nobody else changes runs meanwhile."""
        self.hands.hold(item for item, _ in items)
        calls: list[Call] = []
        for item, run in items:
            if run.state.status is WorkflowStatus.PAUSED:
                self._settling.put(Settlement(item, partial(_wait_on, item)))
                continue
            if item.kind != "run":
                self._settling.put(Settlement(item, partial(_fire, item)))
                continue
            try:
                if item.crashes >= MOST_CRASHES:
                    raise TaskError(f"{item.crashes} workers died while they ran it")
                calls.append(self._call(item, run))
            except StoreError:
                self._postponed.append(item)
            except Exception as error:
                story = described(error)
                self._settling.put(Settlement(item, partial(_fail, item.ref, story)))
        self.hands.take(calls)

    def _call(self, item: ItemRecord, run: Run) -> Call:
        extras = run.blueprint.extras[item.ref]
        args, kwargs = extras.args, extras.kwargs
        needed = {ref for binding in (*args, *kwargs.values()) for ref in sources(binding)}
        run.read(self._store, (item.ref, *needed))

        def left(ref: str) -> Any:
            return run.stage(ref).outputs.get("result")

        if item.type not in self._tasks:
            return self._stage_call(item, run, extras)
        return Call(
            item,
            self._tasks[item.type],
            [resolve(binding, run.inputs, left) for binding in args],
            {name: resolve(binding, run.inputs, left) for name, binding in kwargs.items()},
            self._registry.judge,
        )

    def _stage_call(self, item: ItemRecord, run: Run, extras: StageExtras) -> Call:
        """A call of a task that is shown its stage."""
        while True:
            try:
                stage = shown(run, run.stage(item.ref))
            except Missing as missing:
                run.read(self._store, missing.refs)
            else:
                break
        task = StageTask(item.type, self._registry.resolve(item.type), stage, extras.tasks[item.at])
        return Call(item, task, [], {}, self._registry.judge)

    def _way(self, call: Call) -> Callable[..., Any]:
        """The function, through its guard."""
        task = call.task
        if task.guard is None:
            return task.function
        guard = self._guard(task.guard)
        make = guard.acall if task.is_async else guard.call
        return lambda *args, **kwargs: make(task.function, *args, **kwargs)

    def _settled(self, items: Sequence[ItemRecord]) -> None:
        self.hands.let_go(items)
        if self._is_full and any(self.hands.is_hungry(type) for type in {item.type for item in items}):
            self.wake.set()

    def _over(self, record: WorkflowRecord) -> None:
        self.hands.cut("its workflow has ended", workflow=record.id)
        try:
            self._told(record)
        except Exception:
            _log.exception("workflows: what follows the end of %s failed", record.id)

    def _interrupted(self, error: BaseException) -> None:
        self.interrupt = error
        self.stopping.set()
        self.wake.set()

    def _give_back(self) -> None:
        """What has not begun is anybody's."""
        items = [*self.hands.drop_waiting(), *self._postponed]
        self._postponed = []
        while items:
            item = items[-1]
            try:
                free = evolve(item, owner=None, due_at=self._store.now())
                self._store.commit([Swap(ITEM, item, free)], wake=WAKE)
            except Conflict:
                pass  # it is somebody else's by now
            except BaseException:
                self._postponed += items
                raise
            self.hands.let_go((items.pop(),))


def _wait_on(item: ItemRecord, step: Advance) -> None:
    """Freed while its workflow was paused: it is held like the others."""
    waits = item.kind != "run"
    step.work.append(Work(item.ref, item.at, costs=0, waits=waits, what=item.kind if waits else "wait"))


def _fire(item: ItemRecord, step: Advance) -> None:
    step.fire(item.kind, item.ref)


def _fail(ref: str, story: dict[str, Any], step: Advance) -> None:
    step.fail(ref, story)
