"""The picture of a run: what callers saw, what the dependency had to bear and what became of failed orders."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from holdfast import CircuitState
from holdfast.demo.twice.dependency import PATIENCE
from holdfast.demo.twice.figures import Slice, Totals, course, totals
from holdfast.demo.twice.half import ORDERS, RATE, Half
from holdfast.demo.twice.summary import closing
from holdfast.demo.twice.svg import Canvas

WIDTH, HEIGHT = 1000, 654
LEFT, RIGHT = 70.0, 838.0  # of the plots; the totals stand to the right of them
TOP, BOTTOM = 92.0, 606.0  # of the shading behind them
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
    "load", "Calls reaching the dependency, per second", 374, 452, 1.5 * RATE,
    ((0, "0"), (RATE / 2, f"{RATE / 2:g}"), (RATE, f"{RATE}")), lambda s: s.load,
)  # fmt: skip
BREAKER: Final = (580.0, 596.0)


def _unplaced(*halves: Half) -> Panel:
    """Its scale is that of the run."""
    most = max(piece.unplaced for half in halves for piece in course(half, SLICES)) or 1
    ticks = ((0, "0"), (most, f"{most}"))
    return Panel("orders", "Failed orders, not placed yet", 488, 566, 1.15 * most, ticks, lambda s: float(s.unplaced))


def draw(bare: Half, guarded: Half) -> str:
    """The picture as an SVG document."""
    canvas = Canvas(WIDTH, HEIGHT)
    canvas.rect(0.5, 0.5, WIDTH - 1, HEIGHT - 1, "paper", rx=12)
    canvas.rect(0.5, 0.5, WIDTH - 1, HEIGHT - 1, "paper stroke-edge", rx=12, fill_opacity=0)
    sums = totals(bare), totals(guarded)
    unplaced = _unplaced(bare, guarded)
    panels = (ANSWERED, LATENCY, LOAD, unplaced)
    _heading(canvas, bare)
    _shading(canvas, bare)
    for panel in panels:
        _grid(canvas, panel)
    _fallback(canvas, guarded)
    _letters(canvas, unplaced, guarded, *sums)
    for panel in panels:
        for half in (bare, guarded):
            points = _steps(panel, half)
            canvas.curve(points, half.name, id=f"{panel.name}-{half.name}")
    _notes(canvas, bare, *sums)
    _breaker(canvas, guarded)
    _axis(canvas, bare)
    _totals(canvas, unplaced, *sums)
    title = f"Holdfast: the same {bare.seconds:g} s of trouble, bare and guarded"
    return canvas.document(title, f"{_shape(bare)} {closing(*sums)}")


def _shape(half: Half) -> str:
    spells = ", then ".join(f"{s.spell.name} from {s.start:g} to {s.end:g} s" for s in half.stretches)
    return (
        "Four plots over time: callers answered, p99 latency, calls reaching the dependency, failed orders that are "
        f"not placed. It is {spells}."
    )


def _heading(canvas: Canvas, half: Half) -> None:
    canvas.text(28, 40, f"The same {half.seconds:g} s of trouble, twice", size=20, font_weight=700)
    about = f"{RATE} calls per second to a flaky dependency, one in {ORDERS} an order; first bare, then guarded"
    canvas.text(28, 62, about, "muted", 13)
    for x, name, label in ((666, "bare", "bare"), (738, "guarded", "guarded")):
        canvas.line(x, 35, x + 22, 35, name, stroke_width=3.5, stroke_linecap="round")
        canvas.text(x + 29, 39.5, label, size=13)
    canvas.rect(834, 29, 22, 12, "guarded", fill_opacity=0.22, rx=2)
    canvas.text(863, 39.5, "fallback or kept", size=13)


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
    """What lies between fresh answers and all answers: last known prices, and orders that will be placed."""
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
    canvas.text(middle, ANSWERED.y(0.44), "last price, or order kept", "guarded", text_anchor="middle")
    canvas.text(middle, LATENCY.y(0.76), f"{PATIENCE:g} s for an error", "bare", text_anchor="middle")
    canvas.text(middle, LOAD.y(0.36 * RATE), spared, "guarded", text_anchor="middle")


def _letters(canvas: Canvas, panel: Panel, guarded: Half, without: Totals, with_guard: Totals) -> None:
    """The dead letters as they pile up and drain, and what has become of them."""
    points = _steps(panel, guarded)
    floor = panel.y(0)
    canvas.area([(points[0][0], floor), *points, (points[-1][0], floor)], "guarded", fill_opacity=0.22, id="letters")
    x = _x(guarded, guarded.outage.start) - 8
    kept = f"kept as dead letters: {with_guard.letters}, placed: {with_guard.placed_later}"
    canvas.text(x, panel.y(0.62 * panel.full), f"lost for good: {without.unplaced}", "bare", text_anchor="end")
    canvas.text(x, panel.y(0.36 * panel.full), kept, "guarded", text_anchor="end")


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


def _totals(canvas: Canvas, unplaced: Panel, bare: Totals, guarded: Totals) -> None:
    """Beside each plot what it comes to."""
    pairs = (
        (ANSWERED, f"{100 * bare.answered:.1f} %", f"{100 * guarded.answered:.1f} %"),
        (LATENCY, f"{1000 * bare.p99:.0f} ms", f"{1000 * guarded.p99:.0f} ms"),
        (LOAD, f"{bare.reached} calls", f"{guarded.reached} calls"),
        (unplaced, f"{bare.unplaced} lost", f"{guarded.unplaced} lost"),
    )
    for panel, without, with_guard in pairs:
        middle = (panel.top + panel.bottom) / 2 - (12 if panel is unplaced else 0)
        canvas.text(RIGHT + 20, middle + 2, with_guard, "guarded", 22, font_weight=700)
        canvas.text(RIGHT + 20, middle + 24, f"bare {without}", "bare", 14, font_weight=600)


def _x(half: Half, moment: float) -> float:
    return LEFT + (RIGHT - LEFT) * moment / half.seconds
