"""`python -m holdfast.demo`: the same trouble twice, bare and guarded, with a summary and a picture."""

from __future__ import annotations

import argparse
import json
import os
import sys
from collections.abc import Sequence
from importlib.util import find_spec
from pathlib import Path

from holdfast.core.clock import SYSTEM_CLOCK, Clock
from holdfast.demo import plain
from holdfast.demo.figures import totals
from holdfast.demo.half import Half
from holdfast.demo.keeping import FILE
from holdfast.demo.picture import draw
from holdfast.demo.run import run_half
from holdfast.demo.summary import as_json, closing

SHORTEST, LONGEST = 4.0, 120.0


def main(arguments: Sequence[str] | None = None, clock: Clock = SYSTEM_CLOCK) -> int:
    """Run the demo; returns the exit status."""
    options = _parser().parse_args(arguments)
    if (refusal := _cannot_keep(options.keep)) is not None:
        print(refusal, file=sys.stderr)
        return 1
    try:
        return _run(options, clock)
    except KeyboardInterrupt:
        print("\nstopped")
        return 130


def _run(options: argparse.Namespace, clock: Clock) -> int:
    halves = (
        run_half(guarded=False, seed=options.seed, seconds=options.seconds),
        run_half(guarded=True, seed=options.seed, seconds=options.seconds, keep=options.keep),
    )
    try:
        options.svg.write_text(draw(*halves), encoding="utf-8")
    except OSError as error:
        print(f"cannot write the picture to {options.svg}: {error.strerror}; choose another --svg", file=sys.stderr)
        return 1
    if options.json:
        print(json.dumps(as_json(*halves, str(options.svg)), indent=2))
        return 0
    _show(halves, clock if sys.stdout.isatty() and not options.fast else None)
    print(f"\n{closing(*(totals(half) for half in halves))}\n\npicture: {options.svg}")
    if options.keep is not None:
        print(f"store:   {options.keep}  (holdfast letters list --url sqlite:///{options.keep})")
    return 0


def _cannot_keep(file: Path | None) -> str | None:
    if file is None:
        return None
    if find_spec("sqlalchemy") is None:
        return "there is no SQLite file to keep without SQLAlchemy; run: pip install 'holdfast[demo]'"
    if file.exists():
        return f"{file} is there already; choose another --keep"
    if not file.absolute().parent.is_dir():
        return f"cannot keep {file}: there is no such folder; choose another --keep"
    return None


def _show(halves: tuple[Half, Half], pace: Clock | None) -> None:
    extras = {"rich": "the live view", "sqlalchemy": "dead letters in SQLite"}
    if missing := [what for package, what in extras.items() if find_spec(package) is None]:
        print(f"for {' and '.join(missing)}: pip install 'holdfast[demo]'\n")
    drawable = "utf" in (sys.stdout.encoding or "").lower()
    if sys.stdout.isatty() and drawable and find_spec("rich") is not None:
        from rich.console import Console

        from holdfast.demo import live

        console = Console(highlight=False)
        live.play(halves, console, pace)
        live.summarise(halves, console)
        return
    plain.play(halves, print, pace)
    plain.summarise(halves, print)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m holdfast.demo",
        description="A flaky dependency under load, first bare, then guarded: the same trouble twice.",
    )
    parser.add_argument("--seed", type=int, default=7, help="chance; the same seed gives the same figures (7)")
    parser.add_argument("--seconds", type=_length, default=10.0, help="length of each half (10)")
    parser.add_argument("--svg", type=Path, default=Path("holdfast-demo.svg"), help="the picture (%(default)s)")
    parser.add_argument(
        "--keep", type=Path, nargs="?", const=Path(FILE), metavar="FILE",
        help=f"keep the SQLite file with the dead letters ({FILE})",
    )  # fmt: skip
    parser.add_argument("--fast", action="store_true", help="show the result without playing it in real time")
    parser.add_argument("--json", action="store_true", help="print the summary as JSON, and nothing else")
    return parser


def _length(text: str) -> float:
    try:
        seconds = float(text)
    except ValueError:
        seconds = 0.0
    if not SHORTEST <= seconds <= LONGEST:
        raise argparse.ArgumentTypeError(f"must be {SHORTEST:g} to {LONGEST:g} seconds, got {text}")
    return seconds


def _program() -> int:
    try:
        status = main()
        sys.stdout.flush()
    except BrokenPipeError:  # `| head` has seen enough
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # or the flush at exit would complain
        return 1
    return status


if __name__ == "__main__":
    sys.exit(_program())
