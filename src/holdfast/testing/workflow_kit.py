"""Workflows in a test: in memory, at a time that the test moves, without threads."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from random import Random
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from holdfast.app import Holdfast
from holdfast.backends.open import open_store
from holdfast.kinds import KINDS as ALL_KINDS
from holdfast.machine.finalizer import FINALIZER
from holdfast.machine.workflow import WorkflowStatus
from holdfast.store.port import Store
from holdfast.store.query import Condition, equal
from holdfast.testing.clock import ManualClock
from holdfast.testing.failpoints import Failpoints, ProcessDied, Side
from holdfast.testing.inline import InlineCrew
from holdfast.workflows.handle import WorkflowRun
from holdfast.workflows.records import KINDS, SERVING, WORKER
from holdfast.workflows.task_context import TaskContext, current_task
from holdfast.workflows.worker import WorkflowWorker

if TYPE_CHECKING:  # whoever has no transactional task does without SQLAlchemy
    from holdfast.outbox.works import Works

BEAT_S: Final = 0.5
TTL_S: Final = 3.0
YEAR_S: Final = 366 * 86400.0
OWN_FILE: Final = "sqlite://"
_SIGNS_OF_LIFE: Final = (WORKER, SERVING)
"""Kinds whose times are those of workers, and no work."""


class Effect(NamedTuple):
    """Something that a step has done to the world."""

    name: str
    key: Any
    step: str
    declared: str | None
    """What its task says of its effects."""


class _Process:
    """A worker, and what it wants done."""

    def __init__(self, worker: WorkflowWorker, crew: InlineCrew) -> None:
        self.worker = worker
        self.crew = crew


class _Holdfast(Holdfast):
    """On a store with failpoints. Sessions on its database are the program's own, and need none."""

    def __init__(self, points: Any, store: Store, clock: ManualClock) -> None:
        super().__init__(points, clock=clock, background=False)
        self._bare = store

    def _make_works(self) -> Works:
        from holdfast.outbox.works import Works

        return Works(self._bare, hub=self.telemetry, clock=self._given_clock)


class WorkflowTestKit:
    """An engine with virtual time: `with WorkflowTestKit() as kit:`.

    Nothing happens by itself. `run_until_idle` does what is due, in this thread; `finish` also skips the time that a
    workflow waits for. Without a `seed` everything happens in the order in which it came; with one the order is
    shuffled, the same way for the same seed. `workers` take turns, each as a process of its own. `url` is
    `memory://`, `sqlite://` for a database of its own, which goes with the kit, `sqlite:///…`, or a store on the same
    `clock`.
    """

    def __init__(
        self,
        url: str | Store = "memory://",
        *,
        seed: int | None = None,
        workers: int = 1,
        clock: ManualClock | None = None,
        **options: Any,
    ) -> None:
        if workers < 1:
            raise ValueError(f"WorkflowTestKit.workers must be at least 1, got {workers!r}")
        self.clock = ManualClock() if clock is None else clock
        self._folder: TemporaryDirectory[str] | None = None
        if url == OWN_FILE:  # not in memory: the session of a transactional task is another connection
            self._folder = TemporaryDirectory(prefix="holdfast-", ignore_cleanup_errors=True)
            url = f"sqlite:///{Path(self._folder.name, 'kit.db').as_posix()}"
        store = open_store(url, clock=self.clock, kinds=ALL_KINDS) if isinstance(url, str) else url
        self.points = Failpoints(store)
        self.points.is_watched = False
        self.store: Any = self.points
        self.hold = _Holdfast(self.points, store, self.clock)
        self.workflows = self.hold.workflows
        self.ran: list[TaskContext] = []
        """The tasks whose bodies have run, in that order."""
        self.effects: list[Effect] = []
        self.runs: list[WorkflowRun] = []
        """What was started."""
        self.world: Callable[[], Any] | None = None
        """Gives what is to be the same whatever crashes: a JSON value, for the crash matrix."""
        self.crashes = 0
        self._options = {"beat_s": BEAT_S, "ttl_s": TTL_S, **options}
        self._chance = None if seed is None else Random(seed)
        self._crew = [self._process() for _ in range(workers)]

    def start(self, workflow: Any, /, *args: Any, **kwargs: Any) -> WorkflowRun:
        """Start a workflow as `hold.workflows.start` does. Nothing of it runs yet."""
        run = self.workflows.start(workflow, *args, **kwargs)
        self.runs.append(run)
        return run

    def signal(self, run: WorkflowRun, name: str, value: Any = None) -> bool:
        """Send a signal; whether somebody waited for it."""
        return self.workflows.signal(run.id, name, value)

    def run_until_idle(self) -> None:
        """Do everything that is due now, and what follows from it, at no time."""
        crashes = -1
        while crashes != self.crashes:  # who dies as it leaves is found out about some seconds later: more may be due
            crashes = self.crashes
            while self._turn():
                pass
            for process in [*self._crew]:
                self._do(process, process.worker.presence.leave)

    def advance(self, seconds: float | timedelta) -> None:
        """Let time pass; whatever comes due on the way is done at its moment."""
        wanted = seconds.total_seconds() if isinstance(seconds, timedelta) else float(seconds)
        end = self.clock.monotonic() + wanted
        self.run_until_idle()
        while (wait := self._next_due()) is not None and self.clock.monotonic() + wait <= end:
            self.clock.advance(wait)
            self.run_until_idle()
        self.clock.advance(max(0.0, end - self.clock.monotonic()))
        self.run_until_idle()

    def skip_time(self) -> bool:
        """Go to the moment at which the next thing is due, and do it; False when nothing is waited for."""
        self.run_until_idle()
        wait = self._next_due()
        if wait is None:
            return False
        self.clock.advance(wait)
        self.run_until_idle()
        return True

    def finish(self, run: WorkflowRun, *, within: float | timedelta = YEAR_S) -> Any:
        """What the workflow returns, once all the time has passed that it waits for.

        Raises AssertionError when it waits for something else, or for longer than `within`, and TaskError when it did
        not succeed.
        """
        limit = within.total_seconds() if isinstance(within, timedelta) else within
        end = self.clock.monotonic() + limit
        self.run_until_idle()
        while not run.status.is_complete:
            if not self.skip_time():
                raise AssertionError(f"workflow {run.id} does not go on by itself; {self._waits(run)}")
            if self.clock.monotonic() > end:
                raise AssertionError(f"workflow {run.id} has not ended within {limit:g} s; {self._waits(run)}")
        return run.result(0)

    def log(self, run: WorkflowRun) -> list[str]:
        """What happened, such as `stage_started charge`."""
        entries = self.workflows.log(run.id, limit=100_000)
        return [f"{entry.type} {entry.stage}" if entry.stage else entry.type for entry in entries]

    def effect(self, name: str, key: Any = None) -> None:
        """To be called where a step changes the world, or by what stands in for it.

        The same `key` twice means that it happened twice; without one, each step has its own.
        """
        here = current_task()
        task = None if here is None else self.workflows.tasks.get(here.task)
        of_stage = None if here is None else self.workflows.registry.effect_of(here.task)
        declared = of_stage if task is None else task.effect
        used = here.idempotency_key.removeprefix(here.workflow_id) if key is None and here is not None else key
        step = "elsewhere" if here is None else here.ref
        self.effects.append(Effect(name, used, step, None if declared is None else str(declared)))

    def crash(self, worker: int = 0) -> None:
        """A worker's process dies now; another one takes its place, and finds out."""
        self._bury(self._crew[worker])

    def crash_at(self, number: int, side: Side | str = Side.BEFORE) -> None:
        """A process dies before or after the `number`-th change of the store that a worker makes from now on."""
        self.points.crash(number, side)

    def close(self) -> None:
        for process in self._crew:
            process.crew.close()
            process.worker.close()
        self.hold.close()
        if self._folder is not None:
            self._folder.cleanup()

    def __enter__(self) -> WorkflowTestKit:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    def _process(self) -> _Process:
        crew = InlineCrew(self._chance, self.ran.append)
        return _Process(self.workflows.worker(crew=crew, **self._options), crew)

    def _turn(self) -> bool:
        """Have one of the workers do one thing; False when there is nothing to do for any of them."""
        busy = [process for process in self._crew if len(process.crew)]
        if busy and (self._chance is None or self._chance.random() < 0.8):
            process = busy[0] if self._chance is None else self._chance.choice(busy)
            self._do(process, process.crew.do_one)
            return True
        order = list(self._crew)
        if self._chance is not None:
            self._chance.shuffle(order)
        again = False
        for process in order:
            # Messages are handled at once: what follows from them is in the store, and due.
            again |= self._do(process, process.worker.look) == 0
            if self._chance is not None and len(process.crew):
                break  # the others look later, or never
        return again or any(len(process.crew) for process in self._crew)

    def _do(self, process: _Process, act: Callable[[], Any]) -> Any:
        """As the process does it; if it dies of that, another one comes."""
        self.points.is_watched = True
        try:
            return act()
        except ProcessDied:
            return None
        finally:
            self.points.is_watched = False
            if self.points.is_dead:
                self.points.revive()
                self._bury(process)

    def _bury(self, dead: _Process) -> None:
        """Until the others have noticed. They go on meanwhile, as they would."""
        self.crashes += 1
        dead.crew.close()
        for row in self.store.page(FINALIZER, equal(owner=dead.worker.presence.id), by="id", limit=1000):
            self.workflows.finalizers.forget(row.id)  # a callback dies with its process
        self._crew[self._crew.index(dead)] = self._process()
        for _ in range(round(self._options["ttl_s"] / self._options["beat_s"]) + 4):
            for process in self._crew:
                self._do(process, process.worker.look)
            self.clock.advance(self._options["beat_s"])

    def _next_due(self) -> float | None:
        """In how many seconds something is due that is not due yet."""
        now = self.store.now()
        later = (Condition("due_at", ">", now),)
        kinds = [kind for kind in KINDS if kind not in _SIGNS_OF_LIFE]
        found = [one.due_at for kind in kinds for one in self.store.page(kind, later, by="due_at", limit=1)]
        return min(found) / 1e6 - now / 1e6 + 1e-6 if found else None

    def _waits(self, run: WorkflowRun) -> str:
        stages = [
            f"{ref} is {status.value}"
            for ref, status in self.workflows.stages(run.id).items()
            if status.is_active and status is not WorkflowStatus.NOT_STARTED
        ]
        lost = [f"nobody takes {one.stage} ({one.type})" for one in self.workflows.work(run.id) if one.due_at]
        waits = [
            f"it waits for signal {entry.facts['waits_for']!r}"
            for entry in self.workflows.log(run.id, limit=100_000)
            if entry.type == "stage_suspended" and entry.facts.get("waits_for")
        ]
        return "; ".join([f"it is {run.status.value}", *stages, *lost, *waits[-1:]])
