"""The demo in a terminal: both halves as they happen, in one picture that fits 80 × 24."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Final

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.rule import Rule
from rich.table import Table
from rich.text import Text

from holdfast import CircuitState
from holdfast.core.clock import Clock
from holdfast.demo.dependency import PATIENCE
from holdfast.demo.figures import Slice, Totals, course, state_at, state_in, totals
from holdfast.demo.half import RATE, Half
from holdfast.demo.story import story
from holdfast.demo.summary import heading, rows

COLUMNS: Final = 50  # slices of the course, a character each
FRAMES: Final = 12  # per second
LINES: Final = 8  # of the story
BARS: Final = " ▁▂▃▄▅▆▇█"
LABEL: Final = 15
STATES: Final = {
    CircuitState.CLOSED: ("▁", "green"),
    CircuitState.HALF_OPEN: ("▄", "yellow"),
    CircuitState.OPEN: ("█", "red"),
}
FALLBACK: Final = "deep_sky_blue3"
KEPT: Final = "medium_orchid"
COLOURS: Final = {"bare": "dark_orange", "guarded": "dodger_blue1"}


def play(halves: tuple[Half, Half], console: Console, clock: Clock | None) -> None:
    """Show both halves at the clock's pace; without a clock, only how they ended."""
    bare, guarded = halves
    if clock is None:
        console.print(frame(halves, guarded, guarded.seconds))
        return
    with Live(console=console, auto_refresh=False, transient=False) as live:
        for half in (bare, guarded):
            begun = clock.monotonic()
            while (moment := clock.monotonic() - begun) < half.seconds:
                live.update(frame(halves, half, moment), refresh=True)
                clock.sleep(1 / FRAMES)
        live.update(frame(halves, guarded, guarded.seconds), refresh=True)


def summarise(halves: tuple[Half, Half], console: Console) -> None:
    """The side-by-side table."""
    table = Table(title=heading(halves[0]), title_justify="left", title_style="bold")
    table.add_column("")
    table.add_column("bare", justify="right", style=COLOURS["bare"])
    table.add_column("guarded", justify="right", style=COLOURS["guarded"])
    for row in rows(totals(halves[0]), totals(halves[1])):
        table.add_row(*(Text(cell) for cell in row))
    console.print()
    console.print(table)


def frame(halves: tuple[Half, Half], playing: Half, moment: float) -> RenderableType:
    """Both halves as they stand when `playing` has come to `moment`."""
    bare, guarded = halves
    over = playing is guarded and moment >= guarded.seconds
    most = max(piece.unplaced for half in halves for piece in course(half, COLUMNS))
    parts: list[RenderableType] = [_head(playing, moment, over), _spells(bare)]
    parts += _block(bare, moment if playing is bare else bare.seconds + PATIENCE, most)
    parts += _block(guarded, moment if playing is guarded else 0.0, most, with_breaker=True, over=over)
    parts.append(Rule(style="dim"))
    told = [line for line in story(playing) if over or line.at <= moment][-LINES:]
    for line in told:
        newest = line is told[-1] and not over
        text = Text(f" t={line.at:4.1f} s  {line.text}", style="" if newest else "dim", no_wrap=True)
        text.truncate(79, overflow="ellipsis")
        parts.append(text)
    parts += [Text("")] * (LINES - len(told))
    return Group(*parts)


def _head(playing: Half, moment: float, over: bool) -> Text:
    head = Text(" holdfast demo  ", style="bold", no_wrap=True)
    if over:
        return head.append("both halves done", style="default not bold")
    done = round(24 * moment / playing.seconds)
    head.append(f"{playing.name:<8}", style=COLOURS[playing.name])
    head.append("━" * done, style=COLOURS[playing.name])
    head.append("─" * (24 - done), style="dim not bold")
    return head.append(f"  t={moment:4.1f} of {playing.seconds:g} s", style="default not bold")


def _spells(half: Half) -> Text:
    """The names of the spells, over the slices that they cover."""
    line = Text(" " * LABEL, no_wrap=True)
    shades = ("green", "yellow", "orange3", "red", "green")
    for stretch, shade in zip(half.stretches, shades, strict=True):
        width = round(COLUMNS * stretch.end / half.seconds) - round(COLUMNS * stretch.start / half.seconds)
        name = stretch.spell.name
        line.append(f"{name if len(name) < width else name.split()[-1]:<{width}}", style=f"{shade} reverse")
    return line


def _block(
    half: Half, until: float, most: int, *, with_breaker: bool = False, over: bool = False
) -> list[RenderableType]:
    known = math.inf if over else until
    now = totals(half, known)
    slices = course(half, COLUMNS, known)
    answered = p99 = reached = ""
    if now.calls:
        answered, p99, reached = f"{100 * now.answered:.1f} %", f"{1000 * now.p99:.0f} ms", f"{now.reached}"
    lines: list[RenderableType] = [
        _title(half, now),
        _row("answered", slices, lambda s: s.answered, 1.0, _answer_style, answered),
        _row("p99", slices, lambda s: s.p99, PATIENCE, lambda s: _mood(1 - (s.p99 or 0.0) / PATIENCE), p99),
        _row("calls made", slices, lambda s: s.load, 1.25 * RATE, lambda _: "default", reached),
    ]
    if with_breaker:
        left = f"{now.unplaced} waiting" if now.unplaced else "all placed" if now.letters else ""
        lines.append(_breaker(half, slices, until))
        lines.append(_row("dead letters", slices, lambda s: s.unplaced or None, most, lambda _: KEPT, left))
    else:
        lost = f"{now.lost} for good" if now.lost else ""
        lines.append(_row("orders lost", slices, lambda s: s.unplaced or None, most, lambda _: "red", lost))
    return lines


def _title(half: Half, now: Totals) -> Text:
    title = Text(f" {half.name.upper()}", style=f"bold {COLOURS[half.name]}", no_wrap=True)
    if now.calls:
        title.append(f"  {now.calls} calls, {now.failed} failed", style="default not bold")
    if now.fallback:
        title.append(f", {now.fallback} by the fallback", style=f"not bold {FALLBACK}")
    if now.kept:
        title.append(f", {now.kept} kept", style=f"not bold {KEPT}")
    return title


def _row(
    label: str,
    slices: list[Slice],
    value: Callable[[Slice], float | None],
    full: float,
    style: Callable[[Slice], str],
    total: str,
) -> Text:
    line = Text(f"  {label:<{LABEL - 2}}", style="default", no_wrap=True)
    for piece in slices:
        height = value(piece)
        bar = " " if height is None else BARS[max(1, round(8 * min(1.0, height / full)))]
        line.append(bar, style=style(piece))
    return line.append(" " * (COLUMNS - len(slices)) + f" {total}", style="bold")


def _answer_style(piece: Slice) -> str:
    answered, fresh = piece.answered or 0.0, piece.fresh or 0.0
    return FALLBACK if fresh < answered / 2 else _mood(answered)


def _mood(goodness: float) -> str:
    return "green" if goodness > 0.95 else "yellow" if goodness > 0.5 else "red"


def _breaker(half: Half, slices: list[Slice], until: float) -> Text:
    line = Text(f"  {'breaker':<{LABEL - 2}}", style="default", no_wrap=True)
    for piece in slices:
        mark, style = STATES[state_in(half, piece.start, min(piece.end, until))]
        line.append(mark, style=style)
    if slices:
        state = state_at(half, until)
        line.append(" " * (COLUMNS - len(slices)) + f" {state.replace('_', '-')}", style=STATES[state][1])
    return line
