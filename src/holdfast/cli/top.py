"""`holdfast top`: everything at a glance, again and again, in a terminal."""

from __future__ import annotations

import os
import select
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, Final

import click
from rich.console import Console
from rich.live import Live

from holdfast.cli.dashboard import SORTS, Course, frame
from holdfast.cli.filters import json_option
from holdfast.cli.output import document
from holdfast.cli.session import Session, pass_session, store_options

SHORTEST_S: Final = 0.2
QUIT: Final = "q"
_UNCUT: Final = 1000
_QUIET: Final[dict[str, Any]] = {"by_severity": {}, "worst": []}


@click.command()
@click.option("--once", is_flag=True, help="Print it once and end; so it is where there is no terminal.")
@click.option(
    "--every", "every_s", type=click.FloatRange(SHORTEST_S), default=1.0, show_default=True, metavar="SECONDS",
    help="How often to look.",
)  # fmt: skip
@json_option
@store_options
@pass_session
def top(session: Session, once: bool, every_s: float, as_json: bool) -> None:
    """Show everything at a glance: breakers, letters, the outbox, workflows, workers, and what has just changed.

    It looks into the store, or asks a server: --url http://127.0.0.1:8400. q quits, s sorts the domains by what waits,
    by age or by name.
    """
    look = _reader(session)
    if as_json:
        document(look())
        return
    colours: Any = None if os.environ.get("NO_COLOR") else "auto"
    console = Console(color_system=colours, highlight=False, markup=False, emoji=False)
    if not console.is_terminal and "COLUMNS" not in os.environ:
        console.width = _UNCUT  # in a pipe nothing is cut
    if once or not console.is_terminal:
        console.print(frame(look(), Course(), height=_UNCUT))
        return
    try:
        _watch(look, console, every_s)
    except KeyboardInterrupt:
        pass  # a way to quit like any other


def figures(hold: Any) -> dict[str, Any]:
    """The document of the overview, as a server would answer it."""
    from holdfast.views.overview import headline, quick_figures, slow_figures

    quick, slow = quick_figures(hold), slow_figures(hold)
    said = headline(quick, slow, _QUIET)
    workflows = {**quick["workflows"], "stranded": slow.pop("stranded")}
    return {**slow, **quick, "workflows": workflows, "store": hold.store.url, "headline": said, "events": []}


def _reader(session: Session) -> Callable[[], dict[str, Any]]:
    remote = session.remote
    if remote is not None:
        return lambda: dict(remote.get("/overview"))
    hold = session.hold()
    hold.store.ping()
    return lambda: figures(hold)


def _watch(look: Callable[[], dict[str, Any]], console: Console, every_s: float) -> None:
    course, sort = Course(), SORTS[0]
    seen = look()
    course.see(seen, time.monotonic())
    with pressed() as key, Live(console=console, auto_refresh=False, screen=True) as live:
        due = time.monotonic() + every_s
        while True:
            shown = frame(seen, course, sort=sort, height=console.height - 1, keys=True)
            live.update(shown, refresh=True)
            match key(max(0.0, due - time.monotonic())):
                case "q" | "Q":
                    return
                case "s":
                    sort = SORTS[(SORTS.index(sort) + 1) % len(SORTS)]
                case "":
                    seen = look()
                    course.see(seen, time.monotonic())
                    due = time.monotonic() + every_s


@contextmanager
def pressed() -> Iterator[Callable[[float], str]]:
    """A function that waits for a key, so many seconds; nothing where none was pressed, or there is no keyboard."""
    try:
        import termios
        import tty
    except ImportError:
        yield _sleep
        return
    try:
        keyboard = sys.stdin.fileno()
        before = termios.tcgetattr(keyboard)
    except (OSError, ValueError, termios.error):
        yield _sleep
        return

    def key(seconds: float) -> str:
        ready, _, _ = select.select([keyboard], [], [], seconds)
        # A keyboard that has ended is always ready, and has nothing to say.
        return (os.read(keyboard, 1).decode("ascii", "replace") or QUIT) if ready else ""

    tty.setcbreak(keyboard)
    try:
        yield key
    finally:
        termios.tcsetattr(keyboard, termios.TCSADRAIN, before)


def _sleep(seconds: float) -> str:
    time.sleep(seconds)
    return ""
