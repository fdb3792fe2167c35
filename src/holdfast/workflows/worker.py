"""The worker: claims work, runs it, and carries on what others have left."""

from __future__ import annotations

import asyncio
import os
import threading
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, Final

from holdfast.core.clock import SYSTEM_CLOCK, Clock
from holdfast.store.port import Store, Subscription
from holdfast.workflows.execution import BulkheadLimits
from holdfast.workflows.functions import TaskFunction
from holdfast.workflows.presence import Presence
from holdfast.workflows.records import WorkflowRecord
from holdfast.workflows.registry import TaskRegistry
from holdfast.workflows.runs import Blueprints
from holdfast.workflows.settling import WAKE
from holdfast.workflows.shift import Shift

AWAY_S: Final = 2.0
"""How long to wait at most before a store that was away is asked again."""


class WorkflowWorker:
    """Runs the tasks that it knows. `start` and `stop` a thread of its own, or `run` here.

    `threads` and `async_tasks` are how many calls of one task type run at once, if `bulkheads` does not list the type.
    A worker may be started again after it was stopped, and in a forked process.
    """

    def __init__(
        self,
        store: Store,
        tasks: Mapping[str, TaskFunction[Any, Any]],
        registry: TaskRegistry,
        blueprints: Blueprints,
        *,
        guard: Callable[[str], Any],
        told: Callable[[WorkflowRecord], None],
        queues: Sequence[str] = ("default",),
        threads: int = 10,
        async_tasks: int = 100,
        bulkheads: BulkheadLimits | None = None,
        beat_s: float = 0.5,
        ttl_s: float = 3.0,
        idle_s: float = 5.0,
        clock: Clock = SYSTEM_CLOCK,
    ) -> None:
        self._store = store
        self._clock = clock
        self._beat_s = beat_s
        self._make = partial(
            Shift, store, tasks, registry, blueprints, guard=guard, told=told, queues=queues, threads=threads,
            async_tasks=async_tasks, bulkheads=bulkheads, beat_s=beat_s, ttl_s=ttl_s, idle_s=idle_s, clock=clock,
        )  # fmt: skip
        self._shift = self._make()
        self._thread: threading.Thread | None = None

    @property
    def presence(self) -> Presence:
        return self._shift.presence

    def start(self) -> WorkflowWorker:
        """Work in a thread of its own; one that works already goes on."""
        shift = self._shift
        works = self._thread is not None and self._thread.is_alive() and shift.process == os.getpid()
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
        """Work until `stop` is called. Raises SystemExit or KeyboardInterrupt if a task did."""
        self._run(self._fresh())

    def run_once(self) -> int:
        """Do what is due, and what follows from it, in this moment; how many items were taken. For tests and cron.

        Raises StoreError; what came of tasks meanwhile is written by the next call.
        """
        shift = self._shift
        if shift.is_over or shift.stopping.is_set() or shift.process != os.getpid():
            shift = self._fresh()
        return shift.do_due()

    async def arun(self) -> None:
        """Work as a task until it is cancelled or `stop` is called."""
        work = asyncio.ensure_future(asyncio.to_thread(self._run, self._fresh()))
        try:
            await asyncio.shield(work)
        except asyncio.CancelledError:
            self.stop(0)
            await work
            raise

    def wake(self) -> None:
        """Look now."""
        self._shift.wake.set()

    def cut(self, workflow: str, reason: str) -> None:
        """Ask the tasks of a workflow that run here to stop: it was cancelled."""
        self._shift.hands.cut(reason, workflow=workflow)

    def stats(self) -> dict[str, dict[str, int]]:
        """The slots of each task type: how many are taken, how its calls ended."""
        return self._shift.hands.stats()

    def _fresh(self) -> Shift:
        """A shift that nobody works in. What a stopped one still has to do it does by itself."""
        used = self._shift.is_over or self._shift.stopping.is_set() or self._shift.process != os.getpid()
        if used:
            self._shift = self._make()
        return self._shift

    def _run(self, shift: Shift) -> None:
        self._work(shift)
        if shift.interrupt is not None:
            raise shift.interrupt

    def _work(self, shift: Shift) -> None:
        subscription: Subscription | None = None
        woken, away_s = True, self._beat_s
        try:
            while not shift.stopping.is_set():
                shift.wake.clear()
                try:
                    if subscription is None:
                        subscription = self._store.subscribe(WAKE, shift.wake.set)
                    wait = shift.look(woken=woken)
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
