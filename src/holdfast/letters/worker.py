"""The worker: recovery, bulk operations, due retries and maintenance, without a task queue.

It may run on many hosts: everything it does is leased or fenced in the store. It wakes when letters or breakers change
and polls in between, ever more slowly while there is nothing to do.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, TypeVar

from holdfast.core.check import check_seconds
from holdfast.core.redact import redact
from holdfast.core.working import Working
from holdfast.letters.bulk import Bulk, BulkProgress
from holdfast.letters.events import WorkerTroubled
from holdfast.letters.filing import WAKE
from holdfast.letters.maintenance import Maintenance, MaintenanceReport
from holdfast.letters.recovery import Drained, Recovery, Waiting
from holdfast.letters.replay import Replayer
from holdfast.machine.bulk import BulkRecord
from holdfast.store.port import Subscription
from holdfast.telemetry.events import CircuitStateChanged, GuardEvent

TOPICS: Final = (WAKE, "breakers")
_log: Final = logging.getLogger("holdfast")
_SHORTEST_S: Final = 0.1
T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class WorkerPolicy:
    """How often it looks: between `poll_s` and `idle_s` seconds; maintenance each `maintain_every_s`, on one host."""

    poll_s: float = 1.0
    idle_s: float = 30.0
    maintain_every_s: float = 60.0

    def __post_init__(self) -> None:
        for name in ("poll_s", "idle_s", "maintain_every_s"):
            check_seconds(f"WorkerPolicy.{name}", getattr(self, name), "give seconds")


@dataclass(slots=True)
class WorkReport:
    """What one look at the store brought; `next_s` is when something is known to be due."""

    drained: list[Drained] = field(default_factory=list)
    bulks: list[BulkProgress] = field(default_factory=list)
    maintenance: MaintenanceReport | None = None
    chores: dict[str, Any] = field(default_factory=dict)
    troubles: dict[str, str] = field(default_factory=dict)
    next_s: float | None = None

    @property
    def busy(self) -> bool:
        """Whether there was anything to do."""
        return any(drain.rounds for drain in self.drained) or bool(self.bulks or self.maintenance or self.chores)


class Worker(Working):
    """Runs in a thread (`start`, `stop`, or a `with` block), as an asyncio task (`await arun()`), or here (`run`);
    `run_once` for cron.

    `chores` are further functions to call at every look, by name; what they return counts as work when it is true.
    """

    def __init__(
        self,
        replayer: Replayer,
        *,
        recovery: Recovery | None = None,
        bulk: Bulk | None = None,
        maintenance: Maintenance | None = None,
        chores: Mapping[str, Callable[[], Any]] | None = None,
        policy: WorkerPolicy | None = None,
    ) -> None:
        self._replayer = replayer
        self._store = replayer.repository.store
        self._clock = replayer.clock
        self._recovery = Recovery(replayer) if recovery is None else recovery
        self._bulk = Bulk(replayer) if bulk is None else bulk
        if maintenance is None:
            maintenance = Maintenance(replayer.repository, hub=replayer.hub, clock=replayer.clock)
        self._maintenance = maintenance
        self._chores = dict(chores or {})
        self._policy = WorkerPolicy() if policy is None else policy
        self._stop = threading.Event()
        self._wake = threading.Event()
        self._thread: threading.Thread | None = None
        self._listener = _Wakes(self.wake)
        self._also: Callable[[], object] | None = None
        self._subscriptions: list[Subscription] = []

    def run_once(self) -> WorkReport:
        """Look once and do what is due. A part that fails is told of and leaves the others alone."""
        report = WorkReport()
        for name, chore in self._chores.items():
            if done := self._part(report, name, chore, None):
                report.chores[name] = done
        every = self._policy.maintain_every_s
        report.maintenance = self._part(report, "maintenance", lambda: self._maintenance.run_if_due(every), None)
        bulks: list[BulkRecord] = self._part(report, "bulk", self._bulk.waiting, [])
        report.bulks = self._part(report, "bulk", lambda: self._bulk.run_due(self._stop, bulks), [])
        letters: Waiting = self._part(report, "recovery", self._recovery.waiting, {})
        report.drained = self._part(report, "recovery", lambda: self._recovery.run(self._stop, letters), [])
        known = [drain.next_s for drain in report.drained]
        calm = not (report.drained or report.bulks or report.troubles)  # then nothing has changed since it was asked
        known += [self._part(report, "schedule", lambda: self._recovery.next_s(letters if calm else None), None)]
        known += [self._part(report, "schedule", lambda: self._bulk.next_s(bulks if calm else None), None)]
        report.next_s = min((seconds for seconds in known if seconds is not None), default=None)
        return report

    def run(self) -> None:
        """Work in this thread until `stop` is called from another one."""
        self._open()
        try:
            wait = self._policy.poll_s
            while self._goes_on(self._wake):
                wait = self.pause_s(self.run_once(), wait)
                looked = self._clock.monotonic()
                if self._clock.wait(self._wake, wait):
                    wait = self._policy.poll_s
                    if (rest := self._rest_s(looked)) > 0:
                        self._clock.wait(self._stop, rest)
        finally:
            self._close()

    def start(self) -> Worker:
        """Work in a thread of its own; a worker that runs already goes on."""
        if self._thread is None or not self._thread.is_alive():
            self._stop.clear()
            self._thread = threading.Thread(target=self.run, name="holdfast-worker", daemon=True)
            self._thread.start()
        return self

    def stop(self, timeout: float | None = None) -> bool:
        """Begin nothing new and wait for what runs; False when that took longer than `timeout` seconds.

        What still runs then keeps its lease, and is another worker's when it runs out.
        """
        self._stop.set()
        self.wake()
        thread = self._thread
        if thread is not None and thread is not threading.current_thread():
            thread.join(timeout)
            return not thread.is_alive()
        return True

    def wake(self) -> None:
        """Look now."""
        self._wake.set()
        if (also := self._also) is not None:
            also()

    async def arun(self) -> None:
        """Work as a task until it is cancelled or `stop` is called; async functions are replayed on this loop."""
        import asyncio  # a worker in a thread does without

        loop = asyncio.get_running_loop()
        woken = asyncio.Event()
        self._also = lambda: loop.call_soon_threadsafe(woken.set)
        self._replayer.loops.lend(loop)
        await asyncio.to_thread(self._open)
        wait = self._policy.poll_s
        try:
            while self._goes_on(woken):
                wait = self.pause_s(await _to_the_end(asyncio.to_thread(self.run_once), self._stop.set), wait)
                looked = self._clock.monotonic()
                if await _either(woken.wait(), self._clock.asleep(wait)):
                    wait = self._policy.poll_s
                    if not self._stop.is_set() and (rest := self._rest_s(looked)) > 0:
                        await self._clock.asleep(rest)
        finally:
            self._also = None
            self._replayer.loops.lend(None)
            self._close()

    def _goes_on(self, woken: Any) -> bool:
        """Whether to look again. Cleared before it is asked: whoever stops it sets first one and then the other."""
        woken.clear()
        return not self._stop.is_set()

    def pause_s(self, report: WorkReport, last: float) -> float:
        """How long to wait after this look: short after work, twice as long each time there is none."""
        policy = self._policy
        wait = policy.poll_s if report.busy else min(policy.idle_s, max(policy.poll_s, last * 2))
        return wait if report.next_s is None else max(_SHORTEST_S, min(wait, report.next_s))

    def _rest_s(self, looked: float) -> float:
        """What is left of the shortest time between two looks: one serves letters that come by the thousand."""
        return looked + _SHORTEST_S - self._clock.monotonic()

    def _part(self, report: WorkReport, name: str, work: Callable[[], T], nothing: T) -> T:
        if self._stop.is_set():
            return nothing
        try:
            return work()
        except Exception as error:  # a store that is away, a chore's own fault: the worker outlives it
            words = redact(f"{type(error).__name__}: {error}")
            if name not in report.troubles:
                report.troubles[name] = words
                _log.warning("worker: %s failed: %s", name, words)
                self._replayer.hub.emit(WorkerTroubled("", "", name, words))
            return nothing

    def _open(self) -> None:
        self._replayer.hub.register(self._listener)
        for topic in TOPICS:
            try:
                self._subscriptions.append(self._store.subscribe(topic, self.wake))
            except Exception as error:  # polling does without
                _log.warning("worker: no wake-ups from %s: %s", self._store.url, redact(str(error)))

    def _close(self) -> None:
        self._replayer.hub.unregister(self._listener)
        while self._subscriptions:
            self._subscriptions.pop().close()
        self._replayer.close()


class _Wakes:
    """Listens for circuits that change, quietly: a worker must not make every guarded call loud."""

    quiet = True
    wants: Sequence[type[GuardEvent]] = (CircuitStateChanged,)

    def __init__(self, wake: Callable[[], object]) -> None:
        self._wake = wake

    def on_event(self, event: GuardEvent) -> None:
        self._wake()


async def _to_the_end(work: Any, stop: Callable[[], object]) -> Any:
    """The result of work in a thread, which cannot be cancelled: asked to stop, it is waited for."""
    import asyncio

    task = asyncio.ensure_future(work)
    try:
        return await asyncio.shield(task)
    except asyncio.CancelledError:
        stop()
        await asyncio.wait({task})
        raise


async def _either(first: Any, second: Any) -> bool:
    """Wait for one of two; whether it was the first."""
    import asyncio

    tasks = [asyncio.ensure_future(first), asyncio.ensure_future(second)]
    try:
        await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        return bool(tasks[0].done())
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
