"""Workers to be killed: `python -m tests.workflows.fleet_process URL FOLDER BEAT_S TTL_S` forks one for each line
that it reads, and says its number. They end with it. A line such as `7 before` makes one that dies before its seventh
change of the store.

A worker of a fork begins in milliseconds, so a thousand of them can die in minutes.
"""

from __future__ import annotations

import logging
import os
import signal
import socket
import sys
import time
from collections.abc import Callable
from datetime import datetime, timedelta
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import Any

from holdfast.backends.open import open_store
from holdfast.core.clock import SYSTEM_CLOCK, SystemClock
from holdfast.testing.failpoints import Failpoints
from holdfast.workflows import presence
from holdfast.workflows.functions import task, workflow
from holdfast.workflows.records import KINDS
from holdfast.workflows.task_context import current_task
from holdfast.workflows.workflows import Workflows

FOLDER = Path(sys.argv[2]) if len(sys.argv) > 2 else Path(os.devnull)
STEP_S = 0.003
STEPS = 7  # of a diamond


class SteppedClock(SystemClock):
    """The machine's clock, set wrong by as many seconds as the file `ahead` says."""

    def __init__(self, folder: Path) -> None:
        self._file = folder / "ahead"

    def wall(self) -> datetime:
        try:
            ahead = float(self._file.read_text() or 0)
        except FileNotFoundError:
            ahead = 0.0
        return super().wall() + timedelta(seconds=ahead)


class Losses(logging.Handler):
    """Writes down which worker has lost its lease, and lives: the machine was too slow for it."""

    def emit(self, record: logging.LogRecord) -> None:
        if "declared dead" in record.getMessage():
            with (FOLDER / "lost").open("a") as file:
                file.write(f"{os.getpid()}\n")


@task
def step(number: int) -> int:
    here = current_task()
    assert here is not None
    # One write of one line: what is killed has written all of it or nothing.
    journal = os.open(FOLDER / "journal", os.O_WRONLY | os.O_APPEND)
    os.write(journal, f"{time.monotonic()} {os.getpid()} {here.idempotency_key}\n".encode())
    os.close(journal)
    SYSTEM_CLOCK.sleep(STEP_S)
    return number + 1


@task
async def add(*numbers: int) -> int:
    return sum(numbers)


@workflow
def diamond(number: int) -> Any:
    """Two chains of three steps, and their sum."""
    left = right = step(number)
    for _ in range(3):
        left, right = step(left), step(right)
    return add(left, right)


def flows_at(url: str, folder: Path) -> Workflows:
    store = (
        open_store(url, kinds=KINDS, clock=SteppedClock(folder))
        if _is_stepped(folder)
        else open_store(url, kinds=KINDS)
    )
    flows = Workflows(store)
    flows.register(step, add)
    return flows


def _is_stepped(folder: Path) -> bool:
    return (folder / "ahead").exists()


def _work(url: str, plan: list[str]) -> None:
    if (FOLDER / "elsewhere").exists():  # nobody can see that its process is gone
        name = f"{socket.gethostname()}-{os.getpid()}"
        presence.host = lambda: name
    flows = flows_at(url, FOLDER)
    if plan:
        points: Any = Failpoints(flows._store, die=lambda: os.kill(os.getpid(), signal.SIGKILL))
        points.crash(int(plan[0]), plan[1])
        flows._store = points
    logging.getLogger("holdfast").addHandler(Losses())
    flows.worker(beat_s=float(sys.argv[3]), ttl_s=float(sys.argv[4])).run()


def serve(work: Callable[[list[str]], None]) -> None:
    """Fork a worker for each line of the input, which does this with the line's words."""
    for name in ("store", "sqlite", "postgres", "migrate"):
        import_module(f"holdfast.backends.sql.{name}")  # or each fork would do it
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # the dead leave no zombies
    children: list[int] = []
    for line in sys.stdin:
        child = os.fork()
        if child == 0:
            try:
                work(line.split())
            finally:
                os._exit(1)
        children.append(child)
        sys.stdout.write(f"{child}\n")
        sys.stdout.flush()
    for child in children:
        try:
            os.kill(child, signal.SIGKILL)
        except ProcessLookupError:
            pass


if __name__ == "__main__":
    serve(partial(_work, sys.argv[1]))
