"""The demo without a terminal, or without rich: a line per event, then a table of text."""

from __future__ import annotations

from collections.abc import Callable

from holdfast.core.clock import Clock
from holdfast.demo.figures import totals
from holdfast.demo.half import Half
from holdfast.demo.story import story
from holdfast.demo.summary import heading, rows

Say = Callable[[str], None]


def play(halves: tuple[Half, Half], say: Say, clock: Clock | None = None) -> None:
    """Tell both halves; with a clock, each line at its time."""
    for half in halves:
        say(f"{half.name}: {len(half.calls)} calls in {half.seconds:g} s")
        begun = 0.0 if clock is None else clock.monotonic()
        for line in story(half):
            if clock is not None:
                clock.sleep(max(0.0, begun + min(line.at, half.seconds) - clock.monotonic()))
            say(f"  t={line.at:4.1f} s  {line.text}")
        say("")


def summarise(halves: tuple[Half, Half], say: Say) -> None:
    """The side-by-side table."""
    table = [("", "bare", "guarded"), *rows(totals(halves[0]), totals(halves[1]))]
    first, second = (max(len(row[column]) for row in table) for column in (0, 1))
    say(heading(halves[0]))
    for row in table:
        say(f"  {row[0]:<{first}}  {row[1]:>{second}}  {row[2]}".rstrip())
