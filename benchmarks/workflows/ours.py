"""Holdfast's workflows, as a program uses them: tasks and workflows as functions, and a worker in the same process."""

import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from time import perf_counter, process_time, sleep
from typing import Any

import holdfast as hf
from benchmarks.outbox.counting import PostgresLog
from benchmarks.outbox.setup import Counted, Watched
from benchmarks.store.counting import SqliteTrace
from benchmarks.workflows.rows import STEPS
from benchmarks.workflows.setup import Setup
from benchmarks.workflows.timing import timed
from holdfast.backends.sql import migrate

CALM_S = 3.0
"""What an idle worker gets before it is watched: at first it looks more often."""
PATIENCE_S = 300.0


@hf.task
def step(number: int) -> int:
    return number + 1


@hf.task
def add(*numbers: int) -> int:
    return sum(numbers)


@hf.workflow
def short(number: int) -> Any:
    for _ in range(STEPS):
        number = step(number)
    return number


def long(steps: int) -> Any:
    @hf.workflow(name=f"long_{steps}")
    def long(number: int) -> Any:
        for _ in range(steps):
            number = step(number)
        return number

    return long


def fan(width: int) -> Any:
    @hf.workflow(name=f"fan_{width}")
    def fan(number: int) -> Any:
        first = step(number)
        return add(*[step(first) for _ in range(width)])

    return fan


@hf.workflow
def single(number: int) -> Any:
    return step(number)


class Ours:
    label = "ours"

    def __init__(self, setup: Setup, store: str, place: str = "mine") -> None:
        self.setup = setup
        url = setup.url(store, place)
        self._count: Callable[[Callable[[], object]], dict[str, float]]
        if store == "sqlite":
            # Before anything is connected; the process has other files open, whose watchers look, too.
            trace = SqliteTrace(url.removeprefix("sqlite:///"))
            self._count = lambda run: _without_transactions(trace.count(run, everywhere=True))
        else:
            # A pipeline is one transaction without saying so: its commits cannot be told from the log.
            log = PostgresLog(url)
            self._count = lambda run: {"statements": log.count(run)["statements"]}
            migrate.upgrade(url)
        self.hold = hf.Holdfast(url, background=False, telemetry=hf.Hub())
        self.flows = self.hold.workflows
        self.flows.register(step, add)

    @contextmanager
    def working(self) -> Iterator[None]:
        worker = self.flows.worker().start()
        try:
            yield
        finally:
            worker.stop()

    def timed(self, run: Callable[[], int], repeat: int = 1) -> Watched:
        inner = timed(run, repeat)

        def figures(samples: int) -> list[float]:
            with self.working():
                run()
                found: list[float] = inner.figures(samples)
                return found

        return Watched(figures)

    def run_one(self, workflow: Any, expected: int, done: int) -> int:
        assert self.flows.start(workflow, 0).result(PATIENCE_S) == expected
        return done

    def run_crowd(self) -> int:
        number = self.setup.crowd
        runs = self.flows.start_many(short, [(0,)] * number)
        for run in runs:
            assert run.result(PATIENCE_S) == STEPS
        return number * STEPS

    def chain(self) -> Watched:
        chain, steps = long(self.setup.chain), self.setup.chain
        return self.timed(lambda: self.run_one(chain, steps, steps))

    def crowd(self) -> Watched:
        return self.timed(self.run_crowd)

    def latency(self) -> Watched:
        return self.timed(lambda: self.run_one(short, STEPS, 1), repeat=10)

    def fan(self) -> Watched:
        workflow = fan(100)
        return self.timed(lambda: self.run_one(workflow, 200, 1), repeat=3)

    def start(self) -> Watched:
        def one() -> int:
            self.flows.start(short, 0)
            return 1

        return self._then_done(timed(one, repeat=50))

    def start_many(self) -> Watched:
        def one() -> int:
            return len(self.flows.start_many(short, [(0,)] * self.setup.crowd))

        return self._then_done(timed(one))

    def _then_done(self, inner: Watched) -> Watched:
        """Nothing of it is left for others to carry on."""

        def figures(samples: int) -> list[float]:
            found: list[float] = inner.figures(samples)
            worker = self.flows.worker()
            worker.run_once()
            worker.close()
            return found

        return Watched(figures)

    def count_chain(self) -> Counted:
        chain, steps = long(self.setup.chain), self.setup.chain
        return self._counted(lambda: self.run_one(chain, steps, steps))

    def count_crowd(self) -> Counted:
        return self._counted(self.run_crowd)

    def _counted(self, run: Callable[[], int]) -> Counted:
        def count() -> dict[str, float]:
            with self.working():
                run()
                used = process_time()
                steps = run()
                used = process_time() - used
                counts = self._count(run)
            return {what: number / steps for what, number in counts.items()} | {"cpu ms": used / steps * 1e3}

        return Counted(count)

    def idle(self) -> Counted:
        def count() -> dict[str, float]:
            with self.working():
                self.run_one(single, 1, 1)
                sleep(min(CALM_S, self.setup.idle_s))
                began = perf_counter()
                counts = self._count(lambda: sleep(self.setup.idle_s))
                took = perf_counter() - began
            return {"statements": counts["statements"] / took}

        return Counted(count)

    def importing(self) -> Counted:
        code = (
            "from time import perf_counter as t; a = t(); from holdfast import Holdfast, task, workflow; b = t(); "
            f"Holdfast('sqlite:///{self.setup.folder}/opened.db').workflows; print(b - a, t() - a)"
        )
        # As it is installed: with its bytecode, which the first run writes.
        env = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
        env["PYTHONPYCACHEPREFIX"] = f"{self.setup.folder}/bytecode"

        def run() -> list[float]:
            ended = subprocess.run([sys.executable, "-c", code], capture_output=True, check=True, env=env)
            return [float(word) * 1e3 for word in ended.stdout.split()]

        def count() -> dict[str, float]:
            run()
            imported, opened = (min(times) for times in zip(*(run() for _ in range(5)), strict=True))
            return {"ms": imported, "ms, and opened": opened}

        return Counted(count)


def _without_transactions(counts: dict[str, int]) -> dict[str, float]:
    return {"statements": counts["sent"] - 2 * counts["commits"], "commits": counts["commits"]}
