"""`holdfast worker`: drain, retry and tidy up in a process of its own, and say what is done."""

from __future__ import annotations

import os
import signal
import sys
import threading
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from queue import SimpleQueue
from types import FrameType
from typing import Any, Final

import click

from holdfast.cli.exits import ExitCode
from holdfast.cli.output import document, plain, say
from holdfast.cli.session import Session, pass_session, store_options
from holdfast.cli.upkeep import Upkeep
from holdfast.letters.events import CATALOGUE
from holdfast.telemetry.events import CircuitStateChanged, GuardEvent

MAINTENANCE_ONLY: Final = (
    "without --app nothing can be replayed here: this worker does maintenance only "
    "(releases, expires, archives, purges)"
)
_QUIET: Final = ("event", "severity", "tags", "operation_key", "call_id")


@click.command()
@click.option("--once", is_flag=True, help="Do what is due and end: for cron.")
@click.option("--json", "as_json", is_flag=True, help="Print a JSON document per line.")
@store_options
@pass_session
def worker(session: Session, once: bool, as_json: bool) -> int:
    """Drain, retry and tidy up until it is stopped.

    With --app it replays what the program's functions and handlers can replay; without, it only does maintenance. Any
    number of workers may run at the same time.

    The first SIGINT or SIGTERM lets it finish what it has begun; the second ends it now.
    """
    journal = Journal(as_json)
    hold = session.hold(create=session.has_app)
    # A store that is not there is an error now; one that goes away later is waited for.
    hold.store.ping()
    work: Any = hold.worker() if session.has_app else Upkeep(hold)
    hold.telemetry.register(journal)
    try:
        with Signals() as signals:
            journal.tell("worker started", store=hold.store.url, process=os.getpid())
            if not session.has_app:
                journal.tell(MAINTENANCE_ONLY)
            report = _work_until(signals, work, work.run_once if once else work.run, journal)
            journal.tell("worker stopped")
    finally:
        hold.telemetry.unregister(journal)
    return ExitCode.FAILED if once and report.troubles else ExitCode.OK


def _work_until(signals: Signals, work: Any, run: Callable[[], Any], journal: Journal) -> Any:
    """Run in a thread to its end, which a signal brings near; what came of it."""
    came: list[Any] = []
    trouble: list[Exception] = []

    def job() -> None:
        try:
            came.append(run())
        except Exception as error:  # raised again in the thread that waits
            trouble.append(error)
        finally:
            signals.happened.put(None)

    thread = threading.Thread(target=job, name="holdfast-worker", daemon=True)
    thread.start()
    if signals.happened.get() is not None:
        journal.tell("stopping: what has begun is finished; a second signal ends it now")
        work.stop()
    thread.join()
    if trouble:
        raise trouble[0]
    return came[0]


class Signals:
    """SIGINT and SIGTERM: `happened` gets the first one, the second one ends the process."""

    def __init__(self) -> None:
        # May be put to from within a signal handler, whatever the main thread is doing; an Event may not.
        self.happened: SimpleQueue[int | None] = SimpleQueue()
        self._asked = False
        self._before: dict[int, Any] = {}

    def __enter__(self) -> Signals:
        for number in (signal.SIGINT, signal.SIGTERM):
            self._before[number] = signal.signal(number, self._ask)
        return self

    def __exit__(self, *exc: object) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)

    def _ask(self, number: int, frame: FrameType | None) -> None:
        if self._asked:
            os._exit(ExitCode.ABORTED)  # threads that run user code cannot be ended in any other way
        self._asked = True
        self.happened.put(number)


class Journal:
    """Listens to what the worker does, and prints it line by line."""

    quiet = True
    wants: Sequence[type[GuardEvent]] = (*CATALOGUE, CircuitStateChanged)

    def __init__(self, as_json: bool) -> None:
        self._as_json = as_json
        self._lock = threading.Lock()

    def on_event(self, event: GuardEvent) -> None:
        fields = event.as_dict()
        fields.pop("at", None)  # told when it is printed, in one format
        if self._as_json:
            self._print(fields)
            return
        said = {name: value for name, value in fields.items() if name not in _QUIET and value not in (None, "", 0)}
        details = [f"{name}={_word(value)}" for name, value in said.items()]
        name = event.event_name.partition(".")[2].replace("_", " ")
        self._print(" ".join([name, *([event.operation_key] if event.operation_key else []), *details]))

    def tell(self, text: str, **fields: Any) -> None:
        """Say something about the worker itself."""
        if self._as_json:
            self._print({"event": "worker", "message": text, **fields})
        else:
            self._print(" ".join([text, *(f"{name}={value}" for name, value in fields.items())]))

    def _print(self, line: str | dict[str, Any]) -> None:
        now = datetime.now(UTC)
        with self._lock:
            if isinstance(line, dict):
                document({"at": plain(now), **line}, indent=None)
            else:
                say(f"{now:%Y-%m-%d %H:%M:%S} {line}")
                sys.stdout.flush()


def _word(value: Any) -> str:
    return f"{value:.3g}" if isinstance(value, float) else str(value)
