"""The picture of a run: what callers saw, and what the dependency had to bear, bare and guarded."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from holdfast import CircuitState
from holdfast.demo.dependency import PATIENCE
from holdfast.demo.figures import Slice, Totals, course, totals
from holdfast.demo.run import RATE, Half
from holdfast.demo.summary import closing
from holdfast.demo.svg import Canvas

WIDTH, HEIGHT = 1000, 540
LEFT, RIGHT = 70.0, 838.0  # of the plots; the totals stand to the right of them
TOP, BOTTOM = 92.0, 492.0  # of the shading behind them
SLICES: Final = 40
SHADES: Final = {"errors": ("half_open", 0.10), "latency spikes": ("half_open", 0.18), "outage": ("open", 0.13)}

Value = Callable[[Slice], float | None]


@dataclass(frozen=True, slots=True)
class Panel:
    """A plot: its place, its scale, and what it shows."""

    name: str
    title: str
    top: float
    bottom: float
    full: float
    ticks: tuple[tuple[float, str], ...]
    value: Value

    def y(self, value: float) -> float:
        return self.bottom - (self.bottom - self.top) * min(value, self.full) / self.full


ANSWERED: Final = Panel(
    "answered", "Callers answered", 122, 212, 1.0, ((0, "0"), (0.5, "50"), (1, "100 %")), lambda s: s.answered
)
LATENCY: Final = Panel(
    "latency", "Latency, p99", 248, 338, 1.12 * PATIENCE, ((0, "0"), (0.5, "0.5"), (1, "1 s")), lambda s: s.p99
)
LOAD: Final = Panel(
    "load", "Calls reaching the dependency, per second", 374, 452, 1.3 * RATE,
    ((0, "0"), (RATE / 2, f"{RATE / 2:g}"), (RATE, f"{RATE}")), lambda s: s.load,
)  # fmt: skip
BREAKER: Final = (466.0, 482.0)


def draw(bare: Half, guarded: Half) -> str:
    """The picture as an SVG document."""
    canvas = Canvas(WIDTH, HEIGHT)
    canvas.rect(0.5, 0.5, WIDTH - 1, HEIGHT - 1, "paper", rx=12)
    canvas.rect(0.5, 0.5, WIDTH - 1, HEIGHT - 1, "paper stroke-edge", rx=12, fill_opacity=0)
    sums = totals(bare), totals(guarded)
    _heading(canvas, bare)
    _shading(canvas, bare)
    for panel in (ANSWERED, LATENCY, LOAD):
        _grid(canvas, panel)
    _fallback(canvas, guarded)
    for panel in (ANSWERED, LATENCY, LOAD):
        for half in (bare, guarded):
            points = _steps(panel, half)
            canvas.curve(points, half.name, id=f"{panel.name}-{half.name}")
    _notes(canvas, bare, *sums)
    _breaker(canvas, guarded)
    _axis(canvas, bare)
    _totals(canvas, *sums)
    title = f"Holdfast: the same {bare.seconds:g} s of trouble, bare and guarded"
    return canvas.document(title, f"{_shape(bare)} {closing(*sums)}")


def _shape(half: Half) -> str:
    spells = ", then ".join(f"{s.spell.name} from {s.start:g} to {s.end:g} s" for s in half.stretches)
    return f"Three plots over time: callers answered, p99 latency, calls reaching the dependency. It is {spells}."


def _heading(canvas: Canvas, half: Half) -> None:
    canvas.text(28, 40, f"The same {half.seconds:g} s of trouble, twice", size=20, font_weight=700)
    canvas.text(28, 62, f"{RATE} calls per second to a flaky dependency, first bare, then guarded", "muted", 13)
    for x, name, label in ((722, "bare", "bare"), (794, "guarded", "guarded")):
        canvas.line(x, 35, x + 22, 35, name, stroke_width=3.5, stroke_linecap="round")
        canvas.text(x + 29, 39.5, label, size=13)
    canvas.rect(890, 29, 22, 12, "guarded", fill_opacity=0.22, rx=2)
    canvas.text(919, 39.5, "fallback", size=13)


def _shading(canvas: Canvas, half: Half) -> None:
    for stretch in half.stretches:
        name, start, end = stretch.spell.name, _x(half, stretch.start), _x(half, stretch.end)
        if name in SHADES:
            fill, opacity = SHADES[name]
            canvas.rect(start, TOP - 12, end - start, BOTTOM - TOP + 12, fill, fill_opacity=opacity)
        canvas.text((start + end) / 2, TOP + 4, name, "muted", 12, text_anchor="middle", font_style="italic")


def _grid(canvas: Canvas, panel: Panel) -> None:
    canvas.text(LEFT + 6, panel.top - 8, panel.title, size=12.5, font_weight=600)
    for value, label in panel.ticks:
        canvas.line(LEFT, panel.y(value), RIGHT, panel.y(value), "grid")
        canvas.text(LEFT - 8, panel.y(value) + 4, label, "muted", 11, text_anchor="end")


def _fallback(canvas: Canvas, guarded: Half) -> None:
    """What lies between fresh answers and all answers."""
    upper = _steps(ANSWERED, guarded)
    lower = _steps(ANSWERED, guarded, lambda s: s.fresh)
    canvas.area([*upper, *reversed(lower)], "guarded", fill_opacity=0.22, id="fallback")


def _steps(panel: Panel, half: Half, value: Value | None = None) -> list[tuple[float, float]]:
    points: list[tuple[float, float]] = []
    for piece in course(half, SLICES):
        height = (value or panel.value)(piece)
        if height is not None:
            y = panel.y(height)
            points += [(_x(half, piece.start), y), (_x(half, piece.end), y)]
    return points


def _notes(canvas: Canvas, bare: Half, without: Totals, with_guard: Totals) -> None:
    """What to see in the outage, written where it can be seen."""
    middle = (_x(bare, bare.outage.start) + _x(bare, bare.outage.end)) / 2
    spared = f"{with_guard.reached_in_outage} calls instead of {without.reached_in_outage}"
    canvas.text(middle, ANSWERED.y(0.44), "the last known price, at once", "guarded", text_anchor="middle")
    canvas.text(middle, LATENCY.y(0.76), f"{PATIENCE:g} s for an error", "bare", text_anchor="middle")
    canvas.text(middle, LOAD.y(0.36 * RATE), spared, "guarded", text_anchor="middle")


def _breaker(canvas: Canvas, half: Half) -> None:
    top, bottom = BREAKER
    edges = [(0.0, CircuitState.CLOSED), *((change.at, change.state) for change in half.changes)]
    ends = [*(min(at, half.seconds) for at, _ in edges[1:]), half.seconds]
    for (start, state), end in zip(edges, ends, strict=True):
        left, right = _x(half, min(start, half.seconds)), _x(half, end)
        canvas.rect(left, top, right - left, bottom - top, state.value, data_state=state.value)
        if right - left > 36:
            middle = (left + right) / 2
            canvas.text(middle, bottom - 4, state.value, "paper", 10.5, text_anchor="middle", font_weight=600)
    canvas.text(LEFT - 8, bottom - 4, "breaker", "muted", 11, text_anchor="end")
    for place, state in enumerate((CircuitState.CLOSED, CircuitState.HALF_OPEN, CircuitState.OPEN)):
        x, y = RIGHT + 22, top - 14 + 16 * place
        canvas.rect(x, y, 10, 10, state.value, rx=2)
        canvas.text(x + 16, y + 9, state.value.replace("_", "-"), "muted", 11)


def _axis(canvas: Canvas, half: Half) -> None:
    step = next(step for step in (0.5, 1, 2, 5, 10, 20) if half.seconds / step <= 12)
    for place in range(int(half.seconds / step + 1e-9) + 1):
        moment = place * step
        canvas.line(_x(half, moment), BOTTOM, _x(half, moment), BOTTOM + 5, "muted")
        canvas.text(_x(half, moment), BOTTOM + 19, f"{moment:g}", "muted", 11, text_anchor="middle")
    canvas.text((LEFT + RIGHT) / 2, BOTTOM + 37, "seconds", "muted", 11, text_anchor="middle")


def _totals(canvas: Canvas, bare: Totals, guarded: Totals) -> None:
    """Beside each plot what it comes to."""
    pairs = (
        (ANSWERED, f"{100 * bare.answered:.1f} %", f"{100 * guarded.answered:.1f} %"),
        (LATENCY, f"{1000 * bare.p99:.0f} ms", f"{1000 * guarded.p99:.0f} ms"),
        (LOAD, f"{bare.reached} calls", f"{guarded.reached} calls"),
    )
    for panel, without, with_guard in pairs:
        middle = (panel.top + panel.bottom) / 2 - (12 if panel is LOAD else 0)
        canvas.text(RIGHT + 20, middle + 2, with_guard, "guarded", 23, font_weight=700)
        canvas.text(RIGHT + 20, middle + 24, f"bare {without}", "bare", 14, font_weight=600)


def _x(half: Half, moment: float) -> float:
    return LEFT + (RIGHT - LEFT) * moment / half.seconds
