"""The demo from its beginning to its end: sets the stage, tells the story, keeps serving, and tidies up."""

from __future__ import annotations

import json
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING, Final

from holdfast.demo.crew import Crew
from holdfast.demo.customers import Customers
from holdfast.demo.ending import Ending, Stopped
from holdfast.demo.outside import System
from holdfast.demo.shop import DATABASE, open_shop
from holdfast.demo.show import Show, show_for
from holdfast.demo.stage import Broken, Stage
from holdfast.demo.story import CHAPTERS, Chapter, goes_on
from holdfast.demo.summary import Summary, summed_up
from holdfast.demo.twice.figures import totals
from holdfast.demo.twice.picture import draw
from holdfast.demo.twice.run import run_half
from holdfast.demo.twice.summary import closing, heading, rows
from holdfast.errors import ConfigurationError
from holdfast.server import run as serving
from holdfast.server.console import STATIC

if TYPE_CHECKING:
    import socket

    from holdfast.app import Holdfast

HALF_S: Final = 10.0
NOT_BUILT: Final = "the console is not built, so only the API answers; for the console: make console"
_PORTS: Final = 20
_START_S: Final = 20.0
_REST_S: Final = (20.0, 40.0)
_OUTAGE_S: Final = (6.0, 12.0)
_SHOWN: Final = (
    "callers answered", "orders lost for good", "latency p99", "calls made to the dependency",
    "  of them during the outage",
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Options:
    """What the demo is asked for. `stays`: it keeps serving after the story."""

    seed: int = 7
    port: int = serving.PORT
    keep: Path | None = None
    picture: Path | None = None
    stays: bool = False
    quick: bool = False
    as_json: bool = False


def play(options: Options, ending: Ending, chapters: Sequence[Chapter] = CHAPTERS) -> int:
    """Tell the story; the exit status: 1 if it did not come out as it should."""
    try:
        with ExitStack() as tidy:
            return _play(options, ending, chapters, tidy)
    except Stopped:
        if not options.as_json:
            print("\nended; nothing is left running")
        return 0


def _play(options: Options, ending: Ending, chapters: Sequence[Chapter], tidy: ExitStack) -> int:
    listening, url = _listen(options.port)
    tidy.callback(listening.close)
    show = show_for(url, is_silent=options.as_json)
    tidy.callback(show.close)
    show.say("A shop that calls a bank, a warehouse and a post office, which fail.")
    folder = Path(tidy.enter_context(tempfile.TemporaryDirectory(prefix="holdfast-demo-", ignore_cleanup_errors=True)))
    database = (options.keep or folder / DATABASE).absolute()
    shop = open_shop(folder, database)
    tidy.callback(shop.hold.close)
    crew, customers = Crew(folder, database), Customers(shop, options.seed)
    tidy.callback(crew.stop)
    crew.start()
    tidy.callback(customers.stop)
    _twice(options, show)
    ending.check()
    tidy.enter_context(_served(shop.hold, listening, ending))
    taken = listening.getsockname()[1] != options.port != 0
    show.say(f"\nconsole: {url}" + (f" (port {options.port} is taken)" if taken else ""))
    if not STATIC.joinpath("index.html").exists():
        show.say(NOT_BUILT)
    stage = Stage(shop, crew, customers, show, ending, options.quick)
    try:
        summary = _tell(stage, chapters)
    except Broken as error:
        show.close()
        print(f"the story did not come out as it should: {error}", file=sys.stderr)
        return 1
    _close(summary, options, show)
    if options.stays:
        show.chapter(f"The shop stays open at {url}; Ctrl-C ends it")
        goes_on(stage, _outages(options.seed))
    return 0


def _twice(options: Options, show: Show) -> None:
    """The first chapter: the same trouble without a guard, and with one."""
    bare, guarded = (run_half(guarded=guarded, seed=options.seed, seconds=HALF_S) for guarded in (False, True))
    sums = totals(bare), totals(guarded)
    show.chapter(heading(bare))
    show.table([("", "bare", "guarded"), *(row for row in rows(*sums) if row.what in _SHOWN)], of_figures=True)
    if options.picture is not None:
        options.picture.write_text(draw(bare, guarded), encoding="utf-8")
        show.say(f"  {closing(*sums)}\n  picture: {options.picture}")


def _tell(stage: Stage, chapters: Sequence[Chapter]) -> Summary:
    begun = time.monotonic()
    for title, chapter in chapters:
        stage.show.chapter(title)
        chapter(stage)
    return summed_up(stage, time.monotonic() - begun)


def _close(summary: Summary, options: Options, show: Show) -> None:
    if options.as_json:
        print(json.dumps(summary.document(), indent=2))
    show.chapter(f"What the store and the bank's book say after {summary.seconds:.0f} s")
    show.table(summary.rows())
    if options.keep is not None:
        show.say(f"  kept: {options.keep} (holdfast serve --url sqlite:///{options.keep})")


def _listen(port: int) -> tuple[socket.socket, str]:
    """The port, or the next one that is free."""
    for other in range(port, port + _PORTS):
        try:
            listening = serving.listen(serving.HOST, other)
        except ConfigurationError:
            continue
        return listening, serving.url_of(listening)
    raise ConfigurationError(f"no port from {port} to {port + _PORTS - 1} is free; choose another with --port")


@contextmanager
def _served(hold: Holdfast, listening: socket.socket, ending: Ending) -> Iterator[None]:
    """The console and the API, served in a thread meanwhile."""
    is_up = threading.Event()
    server = serving.server(hold, listening, required=False, told=lambda url: is_up.set())
    thread = threading.Thread(target=server.run, kwargs={"sockets": [listening]}, name="holdfast-server", daemon=True)
    thread.start()
    try:
        end = time.monotonic() + _START_S
        while not is_up.wait(0.05):
            ending.check()
            if not thread.is_alive() or time.monotonic() > end:
                raise ConfigurationError("the server did not start; its log says why")
        yield
    finally:
        server.should_exit = True
        thread.join()


def _outages(seed: int) -> Callable[[], tuple[System, float, float]]:
    luck = Random(f"{seed}/outages")
    return lambda: (luck.choice([*System]), luck.uniform(*_REST_S), luck.uniform(*_OUTAGE_S))
