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
from holdfast.demo.picture import draw
from holdfast.demo.run import Half, run_half
from holdfast.demo.summary import as_json, closing

SHORTEST, LONGEST = 4.0, 120.0


def main(arguments: Sequence[str] | None = None, clock: Clock = SYSTEM_CLOCK) -> int:
    """Run the demo; returns the exit status."""
    options = _parser().parse_args(arguments)
    halves = (
        run_half(guarded=False, seed=options.seed, seconds=options.seconds),
        run_half(guarded=True, seed=options.seed, seconds=options.seconds),
    )
    try:
        options.svg.write_text(draw(*halves), encoding="utf-8")
    except OSError as error:
        print(f"cannot write the picture to {options.svg}: {error.strerror}; choose another --svg", file=sys.stderr)
        return 1
    if options.json:
        print(json.dumps(as_json(*halves, str(options.svg)), indent=2))
        return 0
    try:
        _show(halves, clock if sys.stdout.isatty() and not options.fast else None)
    except KeyboardInterrupt:
        print("\nstopped")
        return 130
    print(f"\n{closing(*(totals(half) for half in halves))}\n\npicture: {options.svg}")
    return 0


def _show(halves: tuple[Half, Half], pace: Clock | None) -> None:
    drawable = "utf" in (sys.stdout.encoding or "").lower()
    if sys.stdout.isatty() and drawable and find_spec("rich") is not None:
        from rich.console import Console

        from holdfast.demo import live

        console = Console(highlight=False)
        live.play(halves, console, pace)
        live.summarise(halves, console)
        return
    if find_spec("rich") is None:
        print("for the live view: pip install 'holdfast[demo]'\n")
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
