"""`holdfast serve`: the console and the API of a store, until it is stopped."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from types import FrameType
from typing import TYPE_CHECKING, Any, Final, NoReturn

import click

from holdfast.cli.exits import WrongUsage
from holdfast.cli.output import note, say
from holdfast.cli.session import Session, pass_session, settings, store_options
from holdfast.cli.upkeep import Upkeep
from holdfast.server.run import HOST, PORT

if TYPE_CHECKING:
    from holdfast.app import Holdfast

LOOK_ONLY: Final = (
    "without --app the functions of your program are not here: letters and entries can be seen and decided on, "
    "and its workers replay and call"
)
NOBODY: Final = "nobody could sign in; make a user first: holdfast access add-user NAME --role admin"
_STOP_S: Final = 10.0


@click.command()
@click.option("--host", help=f"The address to listen on. [default: as the settings say, else {HOST}]")
@click.option(
    "--port",
    type=click.IntRange(0, 65535),
    help=f"The port; 0 takes a free one. [default: as the settings say, else {PORT}]",
)
@click.option(
    "--auth/--no-auth",
    "required",
    default=None,
    help="Whether everybody has to sign in. [default: as soon as there are accounts]",
)
@click.option(
    "--allow-host",
    "names",
    multiple=True,
    metavar="HOST",
    help="A name by which it may be asked, such as that of a proxy; can be given again.",
)
@click.option("--worker", "works", is_flag=True, help="Do a worker's part here as well.")
@store_options
@pass_session
def serve(
    session: Session, host: str | None, port: int | None, required: bool | None, names: tuple[str, ...], works: bool
) -> None:
    """Serve the console and the API until it is stopped.

    With --app letters are replayed here with the program's functions and handlers; with --url a store is shown without
    its program. Only this machine can reach it, unless --host says otherwise and somebody can sign in.
    """
    from holdfast.server import run

    with stoppable():
        has_app = session.has_app
        usual = settings().server  # also of a program that was not made from settings
        hold = session.hold(create=has_app)
        has_accounts = hold.access.has_accounts  # a store that is away, or of another revision, says so now
        if required and not has_accounts:
            raise WrongUsage(f"--auth: {NOBODY}")

        def told(url: str) -> None:
            say(f"Holdfast is at {url}, on {hold.store.url}; Ctrl-C ends it")
            if not has_app:
                note(LOOK_ONLY)

        with working(hold, session.program) if works else nullcontext():
            run.serve(
                hold, host=usual.host if host is None else host, port=usual.port if port is None else port,
                required=usual.required if required is None else required, hosts=names or usual.hosts,
                https=usual.https, limits=usual.limits, has_program=has_app, told=told,
            )  # fmt: skip


@contextmanager
def stoppable() -> Iterator[None]:
    """SIGINT and SIGTERM end what is done in it, which is no error."""
    before = {number: signal.signal(number, _interrupt) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield
    except KeyboardInterrupt:
        pass
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


@contextmanager
def working(hold: Holdfast, program: str | None) -> Iterator[None]:
    """A worker at work meanwhile; without the program it does maintenance only."""
    worker: Any = Upkeep(hold) if program is None else hold.worker(application=program)
    thread = threading.Thread(target=worker.run, name="holdfast-worker", daemon=True)
    thread.start()
    try:
        yield
    finally:
        # In a thread as well: what a task does may take longer than whoever stops the server waits.
        threading.Thread(target=worker.stop, name="holdfast-stop", daemon=True).start()
        thread.join(_STOP_S)


def _interrupt(number: int, frame: FrameType | None) -> NoReturn:
    raise KeyboardInterrupt
