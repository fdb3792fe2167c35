"""How the story is told: lines, or lines above a panel that shows how things stand, or not at all."""

from __future__ import annotations

import sys
from collections import deque
from collections.abc import Iterable, Sequence
from typing import Any, Final, Protocol

from holdfast.demo.standing import Standing

Row = Sequence[str]
LOOKS: Final = 40
BARS: Final = " ▁▂▃▄▅▆▇█"
COLOURS: Final = {"open": "red", "half_open": "yellow", "closed": "green"}
_LABEL: Final = 11


class Show(Protocol):
    """Whom the story is told to."""

    def chapter(self, title: str) -> None: ...
    def tell(self, at: float, text: str) -> None: ...
    def say(self, text: str) -> None: ...
    def table(self, rows: Iterable[Row], *, of_figures: bool = False) -> None: ...
    def stand(self, stands: Standing, down: Sequence[str], worker: int | None) -> None: ...
    def close(self) -> None: ...


class Silence:
    """Nobody listens."""

    def chapter(self, title: str) -> None:
        pass

    def tell(self, at: float, text: str) -> None:
        pass

    def say(self, text: str) -> None:
        pass

    def table(self, rows: Iterable[Row], *, of_figures: bool = False) -> None:
        pass

    def stand(self, stands: Standing, down: Sequence[str], worker: int | None) -> None:
        pass

    def close(self) -> None:
        pass


class Lines(Silence):
    """A line for each thing that happens."""

    def chapter(self, title: str) -> None:
        self.say(f"\n{title}")

    def tell(self, at: float, text: str) -> None:
        self.say(f"  {at:5.1f} s  {text}")

    def say(self, text: str) -> None:
        print(text, flush=True)

    def table(self, rows: Iterable[Row], *, of_figures: bool = False) -> None:
        for line in aligned(rows, of_figures=of_figures):
            self.say(f"  {line}")


class Panel(Lines):
    """In a terminal: the lines, and below them how things stand now."""

    def __init__(self, url: str) -> None:
        from rich.console import Console
        from rich.live import Live

        self._url = url
        self._letters: deque[int] = deque([0] * LOOKS, LOOKS)
        self._entries: deque[int] = deque([0] * LOOKS, LOOKS)
        self._console = Console(highlight=False, markup=False, emoji=False)
        self._live = Live(console=self._console, auto_refresh=False, transient=True, redirect_stderr=False)
        self._live.start()

    def chapter(self, title: str) -> None:
        self._console.print()
        self._console.print(title, style="bold")

    def say(self, text: str) -> None:
        self._console.print(text)

    def stand(self, stands: Standing, down: Sequence[str], worker: int | None) -> None:
        self._letters.append(stands.letters_waiting)
        self._entries.append(stands.entries_waiting)
        self._live.update(self.panel(stands, down, worker), refresh=True)

    def close(self) -> None:
        self._live.stop()

    def panel(self, stands: Standing, down: Sequence[str], worker: int | None) -> Any:
        """How things stand, in six lines."""
        from rich.console import Group
        from rich.rule import Rule
        from rich.text import Text

        breakers: list[Any] = []
        for name in ("payments", "stock", "mail"):
            state = stands.breakers.get(name, "closed")
            breakers += [(f"{name} ", ""), (state.replace("_", "-"), COLOURS[state]), ("   ", "")]
        done = stands.workflows.get("SUCCEEDED", 0)
        rows: list[tuple[str, list[Any]]] = [
            ("breakers", breakers),
            ("letters", [(bars(self._letters), "magenta"), f" {stands.letters_waiting} waiting",
                         f", {stands.letters.get('resolved', 0)} replayed"]),
            ("outbox", [(bars(self._entries), "cyan"), f" {stands.entries_waiting} waiting",
                        f", {stands.entries_done} done"]),
            ("workflows", [f"{sum(stands.workflows.values()) - done} under way, {done} done"]),
            ("worker", [("none: it was killed", "red") if worker is None else f"process {worker}",
                        (f"   down: {', '.join(down)}" if down else "", "red")]),
            ("console", [(self._url, "bold"), "   Ctrl-C ends it"]),
        ]  # fmt: skip
        lines = [Text.assemble((f" {name:<{_LABEL}}", "dim"), *parts, no_wrap=True) for name, parts in rows]
        return Group(Rule(style="dim"), *lines)


def show_for(url: str, *, is_silent: bool) -> Show:
    """What fits standard output."""
    if is_silent:
        return Silence()
    can_draw = sys.stdout.isatty() and "utf" in (sys.stdout.encoding or "").lower()
    return Panel(url) if can_draw else Lines()


def aligned(rows: Iterable[Row], *, of_figures: bool = False) -> list[str]:
    """Rows as lines of text; figures stand to the right."""
    kept = [tuple(row) for row in rows]
    widths = [max(map(len, column)) for column in zip(*kept, strict=True)]
    lines = []
    for first, *others in kept:
        sized = zip(others, widths[1:], strict=True)
        cells = [cell.rjust(wide) if of_figures else cell.ljust(wide) for cell, wide in sized]
        lines.append("  ".join([first.ljust(widths[0]), *cells]).rstrip())
    return lines


def bars(values: Iterable[int]) -> str:
    """Values as a line of bars, the highest one full."""
    kept = list(values)
    most = max(kept, default=0)
    return "".join(BARS[0 if not value else max(1, round(8 * value / most))] for value in kept)
