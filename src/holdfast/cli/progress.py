"""Seeing a bulk operation through: worked off by a thread of ours or by others, with a bar where somebody looks."""

from __future__ import annotations

import os
import threading
import time
from typing import Final

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from holdfast.cli.exits import ExitCode
from holdfast.cli.output import note
from holdfast.letters.bulk import Bulk, BulkProgress

LOOK_EVERY_S: Final = 0.2
_REST_S: Final = 1.0


def follow(bulk: Bulk, begun: BulkProgress, *, runs_here: bool) -> BulkProgress:
    """The operation at its end, or as far as it was when the user interrupted.

    Interrupted, it begins nothing new here; what is left waits in the store for a worker.
    """
    stop = threading.Event()
    trouble: list[Exception] = []
    worker = threading.Thread(target=_work, args=(bulk, begun.id, stop, trouble), name="holdfast-bulk", daemon=True)
    try:
        try:
            if runs_here and not begun.is_over:
                worker.start()
            _watch(bulk, begun, trouble)
            _wait_for(worker)
        except KeyboardInterrupt:
            stop.set()
            if worker.is_alive():
                note("stopping: what has begun is finished; Ctrl-C again ends it now")
            _wait_for(worker)
    except KeyboardInterrupt:
        os._exit(ExitCode.ABORTED)  # threads that run user code cannot be ended in any other way
    finally:
        stop.set()
    if trouble:
        raise trouble[0]
    return bulk.progress(begun.id) or begun


def bar() -> Progress:
    """A bar on stderr, if somebody looks at it."""
    console = Console(stderr=True)
    return Progress(
        TextColumn("{task.description}", markup=False),
        BarColumn(),
        MofNCompleteColumn(),
        TimeRemainingColumn(),
        console=console,
        disable=not console.is_terminal,
    )


def _watch(bulk: Bulk, begun: BulkProgress, trouble: list[Exception]) -> None:
    """Show how far it is until it is over."""
    last = begun
    with bar() as shown:
        task = shown.add_task(begun.action.value, total=begun.total, completed=begun.done)
        while not last.is_over and not trouble:
            time.sleep(LOOK_EVERY_S)
            last = bulk.progress(begun.id) or last
            shown.update(task, completed=last.done, description=_words(last))


def _wait_for(worker: threading.Thread) -> None:
    # In pieces: a signal that comes just before a thread begins to wait for another one is handled when that has ended.
    while worker.is_alive():
        worker.join(LOOK_EVERY_S)


def _work(bulk: Bulk, id: str, stop: threading.Event, trouble: list[Exception]) -> None:
    """Run it to its end. An operation that waits for a breaker, or that another worker holds, is asked again."""
    try:
        while not stop.is_set():
            progress = bulk.run(id, stop)
            if progress is None or progress.is_over:
                return
            stop.wait(_REST_S)
    except Exception as error:  # handed to the thread that watches
        trouble.append(error)


def _words(progress: BulkProgress) -> str:
    return f"{progress.action.value} ({progress.note})" if progress.note else progress.action.value
