"""A fleet of workers in processes of their own, whoever does something to them, and what must be true afterwards."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
from collections import defaultdict
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple

from holdfast.core.clock import SYSTEM_CLOCK
from holdfast.errors import StoreUnavailable
from holdfast.machine.workflow import WorkflowStatus
from holdfast.store.query import Cursor
from holdfast.workflows.presence import process_of
from holdfast.workflows.records import EVENT, ITEM, WORKFLOW, EventRecord
from tests.workflows import fleet_process
from tests.workflows.fleet_process import STEPS, diamond, flows_at

ROOT = Path(__file__).parents[2]
WORKERS, THREADS = 3, 10
PATIENCE_S = 120.0
SOON_S = 2.0


class Made(NamedTuple):
    """A line of the journal: a body that has begun."""

    at: float
    pid: int
    key: str


class Fleet:
    """Workers on one store, which are dead after `ttl_s` without a sign of life. `elsewhere`: each as if it were on a
    host of its own. `stepped`: their clocks, and that of the store, can be set wrong by `step_clock`. `module` is a
    program that calls `fleet_process.serve`."""

    def __init__(
        self,
        url: str,
        folder: Path,
        seed: int,
        *,
        workers: int = WORKERS,
        beat_s: float = 0.5,
        ttl_s: float = 3.0,
        elsewhere: bool = False,
        stepped: bool = False,
        module: str = fleet_process.__name__,
    ) -> None:
        self._folder = folder
        (folder / "journal").touch()
        if elsewhere:
            (folder / "elsewhere").touch()
        if stepped:
            self.step_clock(0.0)
        self.rng = random.Random(seed)
        self.flows = flows_at(url, folder)
        self.runs: list[Any] = []
        self.gone: dict[int, float] = {}
        """Workers that were killed or frozen, and when."""
        words = [sys.executable, "-m", module, url, str(folder), str(beat_s), str(ttl_s)]
        env = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
        self._mother = subprocess.Popen(
            words, cwd=ROOT, env=env, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        self.pids: list[int] = []
        self.join(workers)

    def start(self, number: int) -> None:
        for _ in range(number):
            self.runs.append(self._start(10 * len(self.runs)))

    def _start(self, number: int) -> Any:
        while True:  # as a client does whose server is restarted
            try:
                return self.flows.start(diamond, number, idempotency_key=f"order-{number}")
            except StoreUnavailable:
                SYSTEM_CLOCK.sleep(0.05)

    def join(self, number: int = 1) -> None:
        """So many more workers."""
        self.pids += [self._spawn() for _ in range(number)]

    def wait_for_work(self) -> None:
        """Until a task begins; for a second at most, if there is nothing to do."""
        before = os.path.getsize(self._folder / "journal")
        for _ in range(200):
            if os.path.getsize(self._folder / "journal") > before:
                return
            SYSTEM_CLOCK.sleep(0.005)

    def kill_one(self) -> None:
        """A worker dies, and another one comes."""
        pid = self.pids.pop(self.rng.randrange(len(self.pids)))
        os.kill(pid, signal.SIGKILL)
        self.gone[pid] = SYSTEM_CLOCK.monotonic()
        self.join()

    def die_at(self, number: int, side: str) -> None:
        """One more worker, which dies at a change of the store; returns when it has."""
        pid = self._spawn(f"{number} {side}")
        while process_of(pid) is not None:
            SYSTEM_CLOCK.sleep(0.005)
        self.gone[pid] = SYSTEM_CLOCK.monotonic()

    def freeze_one(self) -> int:
        pid = self.rng.choice(self.pids)
        os.kill(pid, signal.SIGSTOP)
        self.gone[pid] = SYSTEM_CLOCK.monotonic()
        return pid

    def thaw(self, pid: int) -> None:
        os.kill(pid, signal.SIGCONT)

    def step_clock(self, ahead: float) -> None:
        (self._folder / "ahead.new").write_text(str(ahead))
        os.replace(self._folder / "ahead.new", self._folder / "ahead")

    def pause(self, shortest: float, longest: float) -> None:
        SYSTEM_CLOCK.sleep(self.rng.uniform(shortest, longest))

    def wait(self) -> None:
        """Until every workflow has ended, or for two minutes in which none does."""
        last, until = -1, 0.0
        while (done := self.ended()) < len(self.runs):
            now = SYSTEM_CLOCK.monotonic()
            if done > last:
                last, until = done, now + PATIENCE_S
            assert now < until, f"{len(self.runs) - done} workflows do not end"
            SYSTEM_CLOCK.sleep(0.05)

    def ended(self) -> int:
        try:
            counts = self.flows._store.tally(WORKFLOW, ("status",))
        except StoreUnavailable:
            return 0
        assert set(counts) <= {(WorkflowStatus.RUNNING.value,), (WorkflowStatus.SUCCEEDED.value,)}, counts
        return counts.get((WorkflowStatus.SUCCEEDED.value,), 0)

    def close(self) -> None:
        for pid in self.pids:
            os.kill(pid, signal.SIGCONT)
        assert self._mother.stdin is not None
        self._mother.stdin.close()
        self._mother.wait(30)
        assert self._mother.stdout is not None
        self._mother.stdout.close()
        self.flows._store.close()

    def check(self, *, most_again: int | None = None) -> str:
        """What must be true at the end; gives the figures.

        Only what a worker had begun that has died is run again, or has lost its lease on a slow machine; or
        `most_again` bodies where workers were cut off from the store.
        """
        late = self.lost()
        assert [run.result(0) for run in self.runs] == [2 * (10 * n + 4) for n in range(len(self.runs))]
        assert self.flows._store.page(ITEM, limit=10) == []
        made = self._made()
        assert len(made) == STEPS * len(self.runs)
        again = [one for several in made.values() for one in several[:-1]]
        if most_again is None:
            strays = [one for one in again if one.pid not in self.gone and one.pid not in late]
            assert not strays, f"run again though nobody died: {strays[:5]}"
        most_again = max(most_again or 0, THREADS * (len(self.gone) + len(late)))
        assert len(again) <= most_again, f"{len(again)} run again, and {most_again} may be"
        self._check_log()
        deaths = f"{len(self.runs)} workflows, {len(self.gone)} died, {len(late)} lost their lease"
        return f"{deaths}, {len(again)} bodies run again; {self._delays()}"

    def lost(self) -> list[int]:
        """The workers that live and have lost their lease, as often as they did."""
        file = self._folder / "lost"
        found = [int(line) for line in file.read_text().splitlines()] if file.exists() else []
        return [pid for pid in found if pid not in self.gone]

    def journal(self) -> Iterator[Made]:
        for line in (self._folder / "journal").read_text().splitlines():
            at, pid, key = line.split()
            yield Made(float(at), int(pid), key)

    def _check_log(self) -> None:
        """Each stage has ended once: what came late was not written."""
        ends: dict[str, int] = defaultdict(int)
        after: Cursor | None = None
        page: list[EventRecord]
        while page := self.flows._store.page(EVENT, by="id", after=after, limit=1000):
            after = Cursor(page[-1].id, page[-1].id)
            for one in page:
                ends[one.workflow] += one.events.count('"stage_ended"')
        assert set(ends.values()) == {STEPS + 1}, set(ends.values())

    def _made(self) -> dict[str, list[Made]]:
        made = defaultdict[str, list[Made]](list)
        for one in self.journal():
            made[one.key].append(one)
        return made

    def waits_after_death(self) -> list[float]:
        """How long it took after each death until something was run again that its worker had begun. Behind a queue of
        other work that takes as long as the queue is."""
        first: dict[int, float] = {}
        for several in self._made().values():
            for one, next in pairwise(several):
                if one.pid in self.gone:
                    first[one.pid] = min(first.get(one.pid, 1e9), next.at - self.gone[one.pid])
        return sorted(first.values())

    def _delays(self) -> str:
        waits = self.waits_after_death()
        if not waits:
            return "nothing was under way"
        soon = sum(wait <= SOON_S for wait in waits)
        return (
            f"the first of them after {waits[len(waits) // 2]:.2f} s (median), within {SOON_S:g} s after {soon} of the "
            f"{len(waits)} deaths that left some, after {waits[-1]:.2f} s (longest)"
        )

    def _spawn(self, plan: str = "") -> int:
        mother = self._mother
        assert mother.stdin is not None
        assert mother.stdout is not None
        mother.stdin.write(f"{plan}\n")
        mother.stdin.flush()
        return int(mother.stdout.readline())
