"""The worker: claims work, runs it, and carries on what others have left."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, Final

from holdfast.core.check import check_queues
from holdfast.core.clock import SYSTEM_CLOCK, Clock
from holdfast.core.forks import renew_in_forks
from holdfast.core.working import Working
from holdfast.errors import ConfigurationError, PolicyError
from holdfast.store.port import Store, Subscription
from holdfast.workflows.beginning import First, Wanted
from holdfast.workflows.children import SubWorkflow
from holdfast.workflows.configs import Configs
from holdfast.workflows.crew import Crew
from holdfast.workflows.execution import BulkheadLimits
from holdfast.workflows.finalizers import FinalizerRegistry
from holdfast.workflows.functions import TaskFunction
from holdfast.workflows.isolation import ProcessIsolation
from holdfast.workflows.parking import Parking
from holdfast.workflows.preparing import Ending
from holdfast.workflows.presence import Presence
from holdfast.workflows.rates import Rates
from holdfast.workflows.records import ItemRecord, WorkflowRecord
from holdfast.workflows.registry import TaskRegistry
from holdfast.workflows.reporting import Reporter
from holdfast.workflows.run import Run
from holdfast.workflows.runs import Blueprints
from holdfast.workflows.settling import WAKE
from holdfast.workflows.shift import Shift
from holdfast.workflows.ticking import Ticking
from holdfast.workflows.transactions import SessionsOf

AWAY_S: Final = 2.0
"""How long to wait at most before a store that was away is asked again."""


class WorkflowWorker(Working):
    """Runs the tasks that it knows. `start` and `stop` a thread of its own, or have it work for a `with`
    block, or `run` here.

    `threads` and `async_tasks` are how many calls of one task type run at once, if `bulkheads` does not list the type.
    With `versions` it takes only workflows that were started with one of these code versions.
    `application` says where other processes find the tasks, `"shop.app:hold"`: `isolation_mode`
    "process" needs it.
    With `retention_days` it deletes workflows that ended so long ago.
    A worker may be started again after it was stopped, and in a forked process.
    """

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
        queues: Sequence[str] = ("default",),
        versions: Sequence[str] | None = None,
        threads: int = 10,
        async_tasks: int = 100,
        bulkheads: BulkheadLimits | None = None,
        application: str | None = None,
        beat_s: float = 0.5,
        ttl_s: float = 3.0,
        idle_s: float = 5.0,
        retention_days: int | None = None,
        clock: Clock = SYSTEM_CLOCK,
        crew: Crew | None = None,
    ) -> None:
        check_queues("WorkflowWorker.queues", queues)
        if isinstance(versions, str):  # one version for each letter
            raise PolicyError(f"WorkflowWorker.versions must be a list of texts, got {versions!r}; use [{versions!r}]")
        self._store = store
        self._clock = clock
        self._beat_s = beat_s
        self._make = partial(
            Shift, store, tasks, registry, blueprints, configs, finalizers, guard=guard, sessions=sessions, told=told,
            reporter=reporter, ending=ending, parking=parking, deliver=deliver, recover=recover, child=child,
            schedules=schedules, rates=rates, queues=queues, versions=versions, threads=threads,
            async_tasks=async_tasks, bulkheads=bulkheads, isolation=_isolation(configs, application), beat_s=beat_s,
            ttl_s=ttl_s, idle_s=idle_s, retention_days=retention_days, clock=clock,
            crew=Crew() if crew is None else crew,
        )  # fmt: skip
        self._begin_process()
        renew_in_forks(self._begin_process)

    def _begin_process(self) -> None:
        """Also a forked one: what its parent is at, and whoever holds a lock there, is the parent's."""
        self._shift = self._make()
        self._thread: threading.Thread | None = None

    @property
    def presence(self) -> Presence:
        return self._shift.presence

    def start(self) -> WorkflowWorker:
        """Work in a thread of its own; one that works already goes on."""
        shift = self._shift
        works = self._thread is not None and self._thread.is_alive()
        if not works or shift.stopping.is_set():
            shift = self._fresh()
            self._thread = threading.Thread(target=self._work, args=(shift,), name="holdfast-workflows", daemon=True)
            self._thread.start()
        return self

    def stop(self, timeout: float | None = None) -> bool:
        """Begin nothing new, give back what has not begun, and wait for what has; False when that takes longer."""
        self._shift.stopping.set()
        self._shift.wake.set()
        thread = self._thread
        if thread is not None and thread is not threading.current_thread():
            thread.join(timeout)
            return not thread.is_alive()
        return True

    def close(self) -> None:
        """Let go of threads, for one that was never started."""
        self._shift.close()

    def run(self) -> None:
        """Work until `stop` is called. Raises KeyboardInterrupt if a task did."""
        self._run(self._fresh())

    def run_once(self) -> int:
        """Do what is due, and what follows from it, in this moment; how many items were taken. For tests and cron.

        Raises StoreError; what came of tasks meanwhile is written by the next call.
        """
        shift = self._shift
        if shift.is_over or shift.stopping.is_set():
            shift = self._fresh()
        return shift.do_due()

    def look(self) -> float:
        """Show that we live, take what is due, and say in how many seconds to look again; for who drives it by hand.

        Raises StoreError, and KeyboardInterrupt if a task did.
        """
        if self._shift.interrupt is not None:
            raise self._shift.interrupt
        return self._shift.look(woken=True)

    async def arun(self) -> None:
        """Work as a task until it is cancelled or `stop` is called."""
        work = asyncio.ensure_future(asyncio.to_thread(self._run, self._fresh()))
        try:
            await asyncio.shield(work)
        except asyncio.CancelledError:
            self.stop(0)
            await work
            raise

    def begin(self, firsts: Sequence[First]) -> bool:
        """Store new workflows and take up their first work, if this worker is at work. Raises StoreError."""
        return self._shift.begin(firsts)

    def has(self, workflow: str) -> bool:
        """Whether a workflow goes on here, as far as this worker knows."""
        return self._shift.has(workflow)

    def wake(self) -> None:
        """Look now."""
        self._shift.wake.set()

    def heard(self, workflow: str) -> None:
        """Somebody in this process has changed a workflow."""
        self._shift.heard(workflow)

    def cut(self, workflow: str, reason: str) -> None:
        """Ask the tasks of a workflow that run here to stop: it was cancelled."""
        self._shift.cut(workflow, reason)

    def stats(self) -> dict[str, dict[str, int]]:
        """The slots of each task type: how many are taken, how its calls ended."""
        return self._shift.hands.stats()

    def _fresh(self) -> Shift:
        """A shift that nobody works in. What a stopped one still has to do it does by itself."""
        if self._shift.is_over or self._shift.stopping.is_set():
            self._shift = self._make()
        return self._shift

    def _run(self, shift: Shift) -> None:
        self._work(shift)
        if shift.interrupt is not None:
            raise shift.interrupt

    def _work(self, shift: Shift) -> None:
        subscription: Subscription | None = None
        woken, away_s = True, self._beat_s
        shift.works = True
        try:
            while not shift.stopping.is_set():
                shift.looks = True
                shift.wake.clear()
                try:
                    if subscription is None:
                        subscription = self._store.subscribe(WAKE, shift.wake.set)
                    wait = shift.look(woken=woken)
                    shift.looks = False
                except Exception as error:  # the store is away: what runs goes on, and is written later
                    shift.trouble(error)
                    self._clock.wait(shift.stopping, away_s)
                    woken, away_s = True, min(AWAY_S, 2 * away_s)
                else:
                    woken, away_s = self._clock.wait(shift.wake, wait), self._beat_s
        finally:
            if subscription is not None:
                subscription.close()
            shift.stopping.set()
            shift.drain()


def _isolation(configs: Configs, application: str | None) -> ProcessIsolation | None:
    if configs.engine.isolation_mode == "thread":
        return None
    if application is None:
        raise ConfigurationError(
            'isolation_mode is "process", and a process must find the tasks by itself: name them in '
            'hold.worker(application="shop.app:hold")'
        )
    return ProcessIsolation(application)
