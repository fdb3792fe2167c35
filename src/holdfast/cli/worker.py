"""`holdfast worker`: drain, retry, call and tidy up in a process of its own, and say what is done."""

from __future__ import annotations

import logging
import os
import signal
import sys
import threading
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from types import FrameType
from typing import Any, Final

import click

from holdfast.cli.exits import ExitCode, WrongUsage
from holdfast.cli.output import clean, document, shortened
from holdfast.cli.session import Session, pass_session, store_options
from holdfast.cli.upkeep import Upkeep
from holdfast.core.collector import as_before, relieve
from holdfast.letters import events as letters
from holdfast.machine.drain import DOMAIN
from holdfast.outbox import events as outbox
from holdfast.telemetry.events import CircuitStateChanged, GuardEvent
from holdfast.views.plain import plain
from holdfast.workflows import events as workflows

MAINTENANCE_ONLY: Final = (
    "without --app nothing can be replayed or called here: this worker does maintenance only "
    "(releases, expires, archives, purges)"
)
_END: Final = b"\0"
_TOLD_APART: Final = ("abandoned", "parked", "refunded")  # outcomes of calls that have events of their own
_NAMED_WHOLE: Final = (*outbox.CATALOGUE, *workflows.CATALOGUE)
_REPORTS_EVENTS: Final = "reporting"  # logs nothing that it does not emit as well
_QUIET: Final = ("event", "severity", "tags", "operation_key", "call_id")


@click.command()
@click.option("--once", is_flag=True, help="Do what is due and end: for cron.")
@click.option(
    "--queue",
    "queues",
    multiple=True,
    metavar="NAME",
    help="Take work from this queue of the outbox and of workflows; can be given again, the first one goes first. "
    "[default: default]",
)
@click.option("--json", "as_json", is_flag=True, help="Print a JSON document per line.")
@store_options
@pass_session
def worker(session: Session, once: bool, queues: tuple[str, ...], as_json: bool) -> int:
    """Drain, retry, call and tidy up until it is stopped.

    With --app it replays dead letters with the program's functions and handlers, makes the calls of the outbox with its
    operations, publishers and resolvers, and runs the tasks of workflows that it has registered; without, it only does
    maintenance. Any number of workers may run at the
    same time.

    The first SIGINT or SIGTERM lets it finish what it has begun; the second ends it now.
    """
    if queues and not session.has_app:
        raise WrongUsage("--queue needs --app: without the program's functions nothing can be called")
    journal = Journal(as_json)
    hold = session.hold(create=session.has_app)
    # A store that is not there, or has not got its tables, is an error now; one that goes away later is waited for.
    hold.store.ping()
    hold.store.get(DOMAIN, [""])  # to a ping a server without tables answers, too
    options: dict[str, Any] = {"queues": queues} if queues else {}
    program = session.program
    work: Any = Upkeep(hold) if program is None else hold.worker(application=program, **options)
    hold.telemetry.register(journal)
    try:
        with Signals() as signals, Remarks(journal):
            journal.tell("worker started", store=hold.store.url, process=os.getpid())
            if not session.has_app:
                journal.tell(MAINTENANCE_ONLY)
            with as_before():
                if not once:
                    relieve()
                report = _work_until(signals, work, work.run_once if once else work.run, journal)
            for part in ("outbox", "workflows"):  # what troubles the others is an event
                if once and part in report.troubles:
                    journal.tell(f"{part} failed", error=report.troubles[part])
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
            signals.end()

    thread = threading.Thread(target=job, name="holdfast-worker", daemon=True)
    thread.start()
    if signals.wait():
        journal.tell("stopping: what has begun is finished; a second signal ends it now")
        # In a thread as well, so that this one hears of the second signal.
        threading.Thread(target=work.stop, name="holdfast-stop", daemon=True).start()
        while signals.wait():
            pass
    thread.join()
    if trouble:
        raise trouble[0]
    return came[0]


class Signals:
    """SIGINT and SIGTERM: `wait` hears of the first one, the second one ends the process.

    They come through a pipe: a signal that arrives just before a thread begins to wait for a lock is handled when it
    has the lock, which may be never.
    """

    def __init__(self) -> None:
        self._asked = False
        self._before: dict[int, Any] = {}

    def __enter__(self) -> Signals:
        self._reads, self._writes = os.pipe()
        os.set_blocking(self._writes, False)
        for number in (signal.SIGINT, signal.SIGTERM):
            self._before[number] = signal.signal(number, self._ask)
        self._wakes = signal.set_wakeup_fd(self._writes, warn_on_full_buffer=False)
        return self

    def __exit__(self, *exc: object) -> None:
        signal.set_wakeup_fd(self._wakes)
        for number, handler in self._before.items():
            signal.signal(number, handler)
        for end in (self._reads, self._writes):
            os.close(end)

    def wait(self) -> bool:
        """Whether it was a signal that ended the waiting, and not `end`."""
        while (byte := os.read(self._reads, 1)) != _END:
            if byte[0] in self._before:
                return True
        return False

    def end(self) -> None:
        """Nothing is left to wait for."""
        os.write(self._writes, _END)

    def _ask(self, number: int, frame: FrameType | None) -> None:
        if self._asked:
            os._exit(ExitCode.ABORTED)  # threads that run user code cannot be ended in any other way
        self._asked = True


class Remarks(logging.Handler):
    """Warnings that are no events, in the journal too: where a program has set up no logging, Python would print them
    in between."""

    def __init__(self, journal: Journal) -> None:
        super().__init__(logging.WARNING)
        self._journal = journal
        self._logger = logging.getLogger("holdfast")

    def __enter__(self) -> None:
        if not self._logger.hasHandlers():
            self._logger.addHandler(self)

    def __exit__(self, *exc: object) -> None:
        self._logger.removeHandler(self)

    def emit(self, record: logging.LogRecord) -> None:
        if record.module != _REPORTS_EVENTS:
            self._journal.tell(record.getMessage())


class Journal:
    """Listens to what the worker does, and prints it line by line."""

    quiet = True
    wants: Sequence[type[GuardEvent]] = (
        *letters.CATALOGUE, *outbox.CATALOGUE, *workflows.CATALOGUE, CircuitStateChanged,
    )  # fmt: skip

    def __init__(self, as_json: bool) -> None:
        self._as_json = as_json
        self._lock = threading.Lock()

    def on_event(self, event: GuardEvent) -> None:
        fields = event.as_dict()
        fields.pop("at", None)  # told when it is printed, in one format
        if self._as_json:
            self._print(fields)
            return
        if isinstance(event, outbox.EntryCalled) and event.outcome in _TOLD_APART:
            return
        said = {name: value for name, value in fields.items() if name not in _QUIET and value not in (None, "", 0)}
        details = [f"{name}={_word(value)}" for name, value in said.items()]
        self._print(" ".join([_name(event), *([event.operation_key] if event.operation_key else []), *details]))

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
                # There may be thousands a second: a console would cost more than the calls that they tell of.
                sys.stdout.write(f"{now:%Y-%m-%d %H:%M:%S} {clean(line)}\n")
                sys.stdout.flush()


def _name(event: GuardEvent) -> str:
    """What happened, and of what, unless that is a letter."""
    name = event.event_name if isinstance(event, _NAMED_WHOLE) else event.event_name.partition(".")[2]
    return name.replace(".", " ").replace("_", " ")


def _word(value: Any) -> str:
    return shortened(value) if isinstance(value, float) else str(value)
