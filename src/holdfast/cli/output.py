"""What commands print: tables and facts for people, one JSON document for programs.

Results go to stdout, everything that is said about them to stderr. In a pipe there are no colours and nothing is cut.
Stored texts come from anywhere: control characters, which could steer a terminal, are shown and never sent.
"""

from __future__ import annotations

import dataclasses
import json
import os
import re
import sys
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

from rich.cells import cell_len
from rich.console import Console
from rich.text import Text

from holdfast.views.plain import plain

GAP: Final = 2
NARROWEST: Final = 8
READABLE: Final = 20
_UNCUT: Final = 100_000
_CONTROL: Final = re.compile(r"[\x00-\x1f\x7f-\x9f\u2028\u2029\u202a-\u202e\u2066-\u2069]")
_CONTROL_IN_JSON: Final = re.compile(r"[\x7f-\x9f\u2028\u2029\u202a-\u202e\u2066-\u2069]")

STYLES: Final[Mapping[str, str]] = {
    "pending": "yellow", "replaying": "cyan", "reviewing": "cyan", "requires_review": "red", "resolved": "green",
    "replayed": "green", "permanently_failed": "red", "expired": "dim", "archived": "dim", "rejected": "dim",
    "open": "red", "half_open": "yellow", "closed": "green",
    "succeeded": "green", "failed": "red", "refused": "yellow", "returned": "yellow", "skipped": "yellow",
    "started": "cyan",
    "unsettled": "yellow", "lost": "red", "released": "yellow",
    "in_flight": "cyan", "scheduled": "cyan", "abandoned": "red", "parked": "yellow", "refunded": "yellow",
    "confirmed": "green", "completed": "green", "compensating": "yellow", "compensated": "yellow", "stuck": "red",
    "running": "cyan", "done": "green", "aborted": "yellow", "active": "green", "stale": "yellow",
    "RUNNING": "cyan", "PAUSED": "yellow", "SUSPENDED": "yellow", "REDIRECT": "cyan", "BUFFERED": "yellow",
    "SUCCEEDED": "green", "SKIPPED": "dim", "FAILED_CONTINUE": "yellow", "TERMINAL": "red", "STOPPED": "red",
    "CANCELED": "red", "NOT_STARTED": "dim",
}  # fmt: skip
"""The colours of states and outcomes."""


@dataclasses.dataclass(frozen=True, slots=True)
class Column:
    """A column of a table.

    When the terminal is too narrow, an `optional` one is left out, and then one that `gives` is cut with an ellipsis.
    The last one may go on below itself instead, as it does if it `wraps`.
    """

    title: str
    gives: bool = False
    right: bool = False
    optional: bool = False
    wraps: bool = False


class Prose(str):
    """Sentences: a fact that goes on below itself, between words, where the terminal ends."""

    __slots__ = ()


def table(columns: Sequence[Column], rows: Iterable[Sequence[Any]]) -> None:
    """Print rows under titles. A cell that is a state or an outcome has its colour."""
    console = _console()
    room = _room(console)
    cells = [[_cell(value) for value in row] for row in rows]
    if _squeezed(columns, cells, room):
        kept = [at for at, column in enumerate(columns) if not column.optional]
        columns, cells = [columns[at] for at in kept], [[row[at] for at in kept] for row in cells]
    widths = _widths(columns, cells, room)
    _row(console, [column.title.upper() for column in columns], columns, widths, style="bold")
    for row in cells:
        lines = _filled(row[-1].split(), widths[-1]).split("\n") if columns[-1].wraps else row[-1:]
        for number, line in enumerate(lines):
            _row(console, [*("" if number else cell for cell in row[:-1]), line], columns, widths)


def facts(pairs: Iterable[tuple[str, Any]]) -> None:
    """Print names and values below each other; what is None or empty is left out.

    A tuple is a list of names, which goes on below itself where the terminal ends.
    """
    shown = [(name, value) for name, value in pairs if value not in (None, "", {}, [], ())]
    width = max((len(name) for name, _ in shown), default=0)
    console = _console()
    room = _room(console) - width - GAP
    for name, value in shown:
        text = _fitted(value, room)
        first, *more = text.split("\n")
        line = Text(f"{name:<{width}}  ", style="bold")
        line.append(first, style=STYLES.get(first, "not bold"))
        _print(console, line)
        for rest in more:
            _print(console, Text(" " * (width + GAP) + rest))


def heading(text: str) -> None:
    """Print an empty line and a title."""
    console = _console()
    _print(console, Text(""))
    if text:
        _print(console, Text(text, style="bold"))


def say(text: str) -> None:
    """Print a result that is a sentence."""
    _print(_console(), Text(clean(text)))


def note(text: str) -> None:
    """Say something about the result: on stderr, out of the way of a pipe."""
    _print(_console(stderr=True), Text(clean(text), style="dim"))


def document(value: Any, *, indent: int | None = 2) -> None:
    """Print one JSON document: times in ISO 8601 UTC, enums as their values."""
    encoding = (getattr(sys.stdout, "encoding", None) or "utf-8").lower()
    text = json.dumps(plain(value), indent=indent, ensure_ascii=not encoding.startswith("utf"))
    # Legal in JSON as they are, and nothing that a terminal should get.
    sys.stdout.write(_CONTROL_IN_JSON.sub(lambda match: f"\\u{ord(match[0]):04x}", text) + "\n")
    sys.stdout.flush()


def clean(text: str) -> str:
    """The text on one line, with control characters shown as what they are."""
    return _CONTROL.sub(lambda match: f"\\x{ord(match[0]):02x}", re.sub(r"\s*[\r\n\t]\s*", " ", text))


def shortened(number: float) -> str:
    """Three digits of a number, or all before the point: `0.0123`, `2.95`, `259200`."""
    return f"{number:.0f}" if abs(number) >= 1000 else f"{number:.3g}"


def _cell(value: Any) -> str:
    return "" if value is None else clean(str(value))


def _lines(value: Any) -> str:
    if isinstance(value, dict | list):
        value = json.dumps(plain(value), indent=2, ensure_ascii=False)
    return "\n".join(_CONTROL.sub(lambda match: f"\\x{ord(match[0]):02x}", line) for line in str(value).split("\n"))


def _fitted(value: Any, room: int) -> str:
    match value:
        case tuple():  # a name is never cut, for somebody may want to give it to a command
            return _filled([f"{_cell(name)}," for name in value], room).removesuffix(",")
        case Prose():
            return _filled(_cell(value).split(), room)
    return _lines(value)


def _filled(words: Iterable[str], room: int) -> str:
    """The words, on as many lines as it takes."""
    lines = [""]
    for word in words:
        if lines[-1] and cell_len(lines[-1]) + 1 + cell_len(word) > room:
            lines.append("")
        lines[-1] += (" " if lines[-1] else "") + word
    return "\n".join(lines)


def _room(console: Console) -> int:
    return console.width if console.is_terminal or "COLUMNS" in os.environ else _UNCUT


def _squeezed(columns: Sequence[Column], rows: Sequence[Sequence[str]], room: int) -> bool:
    """Whether a column would be cut so short that it says little, or a line be wider than there is room."""
    natural, given = _widths(columns, rows, _UNCUT), _widths(columns, rows, room)
    is_cut = any(now < before and now < READABLE for before, now in zip(natural, given, strict=True))
    return is_cut or _across(given) > room


def _widths(columns: Sequence[Column], rows: Sequence[Sequence[str]], room: int) -> list[int]:
    """How wide each column is: as its widest cell, or less where the room ends, the widest giving first."""
    widths = [max([len(column.title), *(cell_len(row[at]) for row in rows)]) for at, column in enumerate(columns)]
    giving = [at for at, column in enumerate(columns) if column.gives]
    excess = _across(widths) - room
    while excess > 0 and giving and max(widths[at] for at in giving) > NARROWEST:
        widest = max(giving, key=lambda at: widths[at])
        widths[widest] -= 1
        excess -= 1
    return widths


def _across(widths: Sequence[int]) -> int:
    return sum(widths) + GAP * (len(widths) - 1)


def _row(
    console: Console, cells: Sequence[str], columns: Sequence[Column], widths: Sequence[int], style: str = ""
) -> None:
    line = Text()
    for at, (cell, column, width) in enumerate(zip(cells, columns, widths, strict=True)):
        text = Text(cell, style=style or STYLES.get(cell, ""))
        text.truncate(width, overflow="ellipsis")
        padding = " " * (width - cell_len(text.plain))
        line.append(" " * GAP if at else "")
        line.append(Text.assemble(padding, text) if column.right else Text.assemble(text, padding))
    line.rstrip()
    _print(console, line)


def _print(console: Console, line: Text) -> None:
    console.print(line, soft_wrap=True, highlight=False)


def _console(*, stderr: bool = False) -> Console:
    # Made for each use: who captures the output (a test, a pager) has put another stream in its place.
    colours: Any = None if os.environ.get("NO_COLOR") else "auto"
    return Console(stderr=stderr, color_system=colours, highlight=False, markup=False, emoji=False)
