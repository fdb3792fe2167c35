"""One worker between its start and its end: what it has, and what it does about it."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Mapping, Sequence
from contextvars import Context
from functools import partial
from typing import Any, Final

from holdfast.core.clock import Clock
from holdfast.core.redact import redact
from holdfast.errors import StoreError
from holdfast.store.port import Store
from holdfast.workflows.beginning import First, Wanted
from holdfast.workflows.children import SubWorkflow
from holdfast.workflows.circuits import WorkflowCircuitFactory
from holdfast.workflows.claiming import NO_ROOM, PRIORITIES, Claiming
from holdfast.workflows.cleaning import Cleaning
from holdfast.workflows.configs import Configs
from holdfast.workflows.crew import Crew
from holdfast.workflows.execution import BulkheadLimits
from holdfast.workflows.finalizers import FinalizerRegistry
from holdfast.workflows.finalizing import PREFIX
from holdfast.workflows.functions import TaskFunction
from holdfast.workflows.guarded import way_of
from holdfast.workflows.handing_out import HandingOut
from holdfast.workflows.hands import Hands
from holdfast.workflows.isolation import ProcessIsolation
from holdfast.workflows.ownership import Ownership
from holdfast.workflows.parking import Parking
from holdfast.workflows.preparing import Ending
from holdfast.workflows.presence import Presence
from holdfast.workflows.rates import Rates
from holdfast.workflows.readying import Readying
from holdfast.workflows.records import ItemRecord, WorkflowRecord
from holdfast.workflows.registry import TaskRegistry
from holdfast.workflows.reporting import Reporter
from holdfast.workflows.run import Run
from holdfast.workflows.runs import Blueprints, Runs
from holdfast.workflows.serving import Serving
from holdfast.workflows.session_step import SessionStep
from holdfast.workflows.settling import Settling
from holdfast.workflows.ticker import Ticker
from holdfast.workflows.ticking import Ticking
from holdfast.workflows.transactions import SessionsOf, Transactions
from holdfast.workflows.upkeep import Upkeep
from holdfast.workflows.worker_limits import WorkerLimits

OTHERS_S: Final = 1.0
"""How often to look at least while others have work: if one of them is killed, nothing else will tell."""
MOST_LOOKS: Final = 20
"""How often somebody who looks once looks again for what was due and others were about to take: they may not."""
_log: Final = logging.getLogger("holdfast")


class Shift:
    """`look` again and again, then `drain`; or `do_due` once."""

    def __init__(
        self,
        store: Store,
        tasks: Mapping[str, TaskFunction[Any, Any]],
        registry: TaskRegistry,
        blueprints: Blueprints,
        configs: Configs,
        finalizers: FinalizerRegistry,
        *,
        guard: Callable[[str], Any],
        sessions: SessionsOf,
        told: Callable[[WorkflowRecord, Run], None],
        reporter: Reporter,
        ending: Ending,
        parking: Parking,
        deliver: Callable[[ItemRecord], None],
        recover: Callable[[], int],
        child: Callable[[SubWorkflow], Wanted],
        schedules: Ticking,
        rates: Rates,
        queues: Sequence[str],
        versions: Sequence[str] | None,
        threads: int,
        async_tasks: int,
        bulkheads: BulkheadLimits | None,
        isolation: ProcessIsolation | None,
        beat_s: float,
        ttl_s: float,
        idle_s: float,
        retention_days: int | None,
        clock: Clock,
        crew: Crew,
    ) -> None:
        self._poll_s = configs.handler.poll_frequency_ms / 1000
        self._circuits = WorkflowCircuitFactory(configs.resilience, clock=clock)
        self._tasks = tasks
        self._registry = registry
        self._finalizers = finalizers
        self._told = told
        self._parking = parking
        self._queues = tuple(queues)
        self._rates = rates
        self._versions = versions
        self.serving = Serving(store, self._queues, versions, lambda: self.presence.about())
        # Each look at all queues is so many statements; with nothing to do there is at most one in a second.
        self._idle_s = max(idle_s, len(self._queues) + 1.0)
        self._beat_s = beat_s
        self._ttl_s = ttl_s
        self._clock = clock
        strict = configs.engine.merge_strict
        self._runs = Runs(store, blueprints, strict=strict)
        self.presence = Presence(store, beat_s=beat_s, ttl_s=ttl_s, clock=clock)
        self._upkeep = Upkeep(
            store, self.presence, blueprints, finalizers, self._circuits, reporter, recover=recover,
            retention_days=retention_days,
        )  # fmt: skip
        readying = Readying(
            store, tasks, registry, finalizers, self.presence, child=child, isolation=isolation, usual=configs.usual,
            clock=clock,
        )  # fmt: skip
        self._handing_out = HandingOut(store, self._runs, readying, deliver)
        self._settling = Settling(
            store, self._runs, owner=lambda: self.presence.id, room=self._own_room, may_own=self._may_own,
            hand_out=self._handing_out.hand_out, settled=self._settled, told=self._over, ending=ending,
            stored=reporter.stored, retries=configs.handler.concurrency_max_retries,
        )  # fmt: skip
        limits = WorkerLimits(
            threads, async_tasks, lambda name: isolation is None and name in tasks and tasks[name].is_async, bulkheads,
            configs.handler.default_task_timeout_seconds,
        )  # fmt: skip
        self.wake = threading.Event()
        step = SessionStep(
            store, blueprints, reporter, strict=strict, owner=lambda: self.presence.id, ending=ending,
            over=self._over, done=self._changed_apart,
        )  # fmt: skip
        transactions = Transactions(sessions, step.write, step.committed)
        self.hands = Hands(
            self._settling, lambda call: reporter.traced(call, way_of(call, guard, transactions)), limits, clock=clock,
            crew=crew, began=reporter.began, troubled=self.trouble, interrupted=self._interrupted,
            freed=self._freed, circuit_of=self._circuits.passage,
        )  # fmt: skip
        self.at_hand = self.hands.at_hand
        self._cleaning = Cleaning(
            store, finalizers, owner=lambda: self.presence.id, caller=self.hands.caller,
            done=lambda item: self.at_hand.let_go((item,)), troubled=self._unfinalized, crew=crew,
        )  # fmt: skip
        self._handing_out.attend(self._settling, self.hands, self._cleaning)
        self._ownership = Ownership(store, self.presence, self._settling, self.hands, self._handing_out, self._cleaning)
        self._claiming = Claiming(
            store, self.at_hand, self.presence, rates, queues=self._queues, versions=versions, room=self._room,
            renew=partial(self._ownership.renew, only_if_due=True), idle_s=self._idle_s, clock=clock,
        )  # fmt: skip
        finalizers.attend(self)
        self._ticker = Ticker(store, schedules, beat_s=beat_s, done=self.wake.set, troubled=self.trouble, crew=crew)
        self.stopping = threading.Event()
        self.works = self.looks = self.is_over = False
        self.interrupt: BaseException | None = None
        """What a task raised to end the program."""
        self._trouble: Exception | None = None
        self._beat_at = self._claim_at = self._tick_at = float("-inf")
        self._looked_at = float("-inf")
        self._busy_at = self._clock.monotonic()
        self._pause_s = self._poll_s

    def look(self, *, woken: bool = False) -> float:
        """Show that we live, take what is due, and say when to look again. Raises StoreError."""
        at = self._clock.monotonic()
        if self._ownership.in_doubt:
            self._ownership.find_lost()
        if self._parking.bring_forward(self._queues, PRIORITIES, self._known):
            woken = True
        if at >= self._beat_at:
            self._beat_at = at + self._beat_s
            self.serving.declare(self._known)
            if self._beat(at):
                woken = True
        self._carry_on()
        if self.at_hand.busy or woken:
            self._busy_at = at
        if woken:
            self._pause_s = self._poll_s
        if woken or at >= self._tick_at:
            self._tick_at = at + self._ticker.look()
        if woken or self._claiming.is_full or at >= self._claim_at or self._is_idle_since(at):
            self._looked_at = at
            taken, first = self._claim()
            if taken and not self.at_hand.busy:
                return 0.0
            # A wake-up may be missed: who has nothing to do looks again soon, then less and less often.
            self._claim_at = at + min(self._idle_s if self.at_hand.busy else self._pause_s, first)
            self._pause_s = self._poll_s if taken else min(self._idle_s, 2 * self._pause_s)
        return self._until(self._clock.monotonic())

    def _is_idle_since(self, at: float) -> bool:
        """Whether there is nothing to do, and the last look for something is as long ago as it should be then."""
        return not self.at_hand.busy and at >= self._looked_at + self._pause_s

    def _until(self, at: float) -> float:
        due_in = max(0.001, min(self._claim_at, self._tick_at) - at)
        if self.at_hand.busy:
            return min(self._beat_s, due_in)
        wait = min(self._pause_s, due_in)
        if self.presence.is_shown:  # it leaves as soon as it may, and not some looks later
            wait = min(wait, max(0.001, self._leaves_at - at, self._beat_at - at))
        return min(wait, OTHERS_S) if self.presence.others else wait

    @property
    def _leaves_at(self) -> float:
        """When we take our row away, if nothing comes."""
        return self._busy_at + self._ttl_s / 2

    def do_due(self) -> int:
        """Do what is due, and what follows from it, in this moment; how many items were taken. Raises StoreError."""
        taken = looks = 0
        self._trouble = None
        self.presence.bury(patient=False)
        if self._finalizers.has_local:
            self._ownership.find_lost()
        self._parking.bring_forward(self._queues, PRIORITIES, self._known)
        self._carry_on()
        while True:
            self._ticker.fire_due()
            number, _ = self._claim()
            taken += number
            if not number and not self.at_hand.busy:
                looks += 1
                if not self._claiming.was_late or looks == MOST_LOOKS:
                    break
            while not self.at_hand.wait_idle(self._beat_s):
                if self.interrupt is not None:
                    self._ownership.give_back()
                    raise self.interrupt
                if self._trouble is not None:
                    self._ownership.in_doubt, trouble = True, self._trouble
                    raise trouble
                self._ownership.renew()
                self._carry_on()
        self._upkeep.prune(self._clock.monotonic())
        if not self._finalizers.has_local:
            self.presence.leave()
        return taken

    def begin(self, firsts: Sequence[First]) -> bool:
        """Store new workflows, and take up what comes first of them; False: somebody else has to. Raises StoreError."""
        if not all(run.record.queue in self._queues and self._serves(run.code) for run, _ in firsts):
            return False
        with self.at_hand.reserved():
            if not self.works or self.stopping.is_set():
                return False
            try:
                # In a context of its own: what is called next knows nothing of whoever started it.
                return Context().run(self._settling.begin, firsts, self.hands.leave_it)
            except StoreError as error:
                self.trouble(error)
                raise

    def has(self, workflow: str) -> bool:
        """Whether it goes on here, as far as we know."""
        return (not self.is_over and self._settling.has(workflow)) or workflow in self._settling.untold

    def drain(self) -> None:
        """Give back what has not begun, wait for what has, and leave."""
        while True:
            try:
                self._ownership.give_back()
                if self.at_hand.busy:
                    self._ownership.renew()
                    self._carry_on()
                if self.at_hand.wait_idle(self._beat_s):
                    break
            except Exception as error:  # the store is away: what came of the calls is kept until it is back
                self.trouble(error)
                self.at_hand.wait_idle(self._beat_s)
        self.close()
        try:
            self.presence.leave()
            self.serving.withdraw()
        except StoreError as error:
            self.trouble(error)

    def close(self) -> None:
        """Let go of threads."""
        self.is_over = True
        self.hands.close()
        self._ticker.close()
        self._cleaning.close()

    def heard(self, workflow: str) -> None:
        """Somebody else in this process has changed a workflow."""
        self._settling.heard(workflow)

    def trouble(self, error: Exception) -> None:
        """The store did not do, or did and could not say so."""
        self._trouble = error
        self._ownership.in_doubt = True
        _log.warning("workflows: %s", redact(f"{type(error).__name__}: {error}"))

    def _beat(self, at: float) -> bool:
        """Whether there is something to claim now."""
        if self.at_hand.busy or self._finalizers.has_local:
            if self._ownership.renew():
                self._ownership.cut_lost(at)
                if self._finalizers.has_local:
                    self._ownership.find_lost()  # others hand on to us what only we can call
        elif self.presence.is_shown and at >= self._leaves_at:
            with self._settling.writing:  # or something might just become ours
                if not self.at_hand.busy:
                    self.presence.leave()
        return self._upkeep.do_due(at) > 0

    def cut(self, workflow: str, reason: str) -> None:
        """Ask the tasks of a workflow that has ended to stop; not those of one that runs again since."""
        try:
            self._ownership.cut_gone(self.at_hand.running_for(workflow), reason)
        except StoreError as error:  # they are asked at a later beat
            self.trouble(error)

    def _carry_on(self) -> None:
        """What could not be done at once: write, read, or begin it now."""
        self._handing_out.begin_postponed()
        if self._settling.waits:
            self._settling.take_up()
            self.hands.nudge()
        self.hands.abandon_hung()
        self.hands.fill()

    @property
    def _known(self) -> tuple[str, ...]:
        return ("", *self._tasks, *self._registry, *self._finalizers.types())

    def _serves(self, code: str | None) -> bool:
        return self._versions is None or code in self._versions

    def _may_own(self) -> bool:
        """Whether new work may be ours. What waits in the store goes first, if there was no room for it."""
        waits = self.looks or self._claiming.is_full or self.wake.is_set()
        return not waits and self.presence.is_lasting

    def _room(self, type: str) -> int:
        known = not type or type in self._tasks or type in self._registry or type.startswith(PREFIX)
        return self.hands.room(type) if known and not self.stopping.is_set() else NO_ROOM

    def _own_room(self, type: str) -> int:
        """The same for what a step here makes. What has a rate is claimed by everybody, or it would not be counted."""
        return NO_ROOM if self._rates.limits(self._queues, type) else self._room(type)

    def _claim(self) -> tuple[int, float]:
        """Take what is due. How many items, and in how many seconds the next one is due."""
        items, first = self._claiming.claim(self._known)
        taken = len(items)
        self.at_hand.hold(items)
        self._handing_out.begin(items)
        return taken, first

    def _unfinalized(self, item: ItemRecord, error: Exception) -> None:
        """A stage that could not be cleaned up: the store is away, or somebody has to look."""
        if isinstance(error, StoreError):
            self._handing_out.postponed.append(item)
            self.trouble(error)
        else:
            _log.exception("workflow %s, stage %s: put aside", item.workflow, item.ref, exc_info=error)
            self._settling.put_aside(item, error)
            self.at_hand.let_go((item,))

    def _settled(self, items: Sequence[ItemRecord]) -> None:
        self.at_hand.let_go(items)
        if self._claiming.is_full and any(self.hands.is_hungry(type) for type in {item.type for item in items}):
            self.wake.set()

    def _changed_apart(self, workflow: str) -> None:
        self._settling.heard(workflow)
        self.wake.set()

    def _freed(self, type: str) -> None:
        self.hands.fill((type,))
        if self._claiming.is_full and self.hands.is_hungry(type):
            self.wake.set()

    def _over(self, run: Run) -> None:
        try:
            self._told(run.record, run)
        except Exception:
            _log.exception("workflows: what follows the end of %s failed", run.id)
        self._circuits.clear_workflow_circuits(run.id)
        self.cut(run.id, "its workflow has ended")

    def _interrupted(self, error: BaseException) -> None:
        _log.error("workflows: a task raised %s, which stops this worker", type(error).__name__)
        self.interrupt = error
        self.stopping.set()
        self.wake.set()
