"""As much SVG as the picture needs. Colours are classes, so that one file serves light and dark pages."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final
from xml.sax.saxutils import escape, quoteattr

Points = Iterable[tuple[float, float]]

LIGHT: Final = {
    "paper": "#ffffff", "edge": "#d0d7de", "ink": "#1f2328", "muted": "#59636e", "grid": "#e3e8ed",
    "bare": "#d9480f", "guarded": "#0b66c3", "closed": "#2f9e44", "half_open": "#f2a900", "open": "#d6293e",
}  # fmt: skip
DARK: Final = {
    "paper": "#0d1117", "edge": "#30363d", "ink": "#e6edf3", "muted": "#9198a1", "grid": "#2a313a",
    "bare": "#ff922b", "guarded": "#58a6ff", "closed": "#3fb950", "half_open": "#f2b632", "open": "#f85149",
}  # fmt: skip
FONT: Final = "system-ui,-apple-system,'Segoe UI',Roboto,'Helvetica Neue','DejaVu Sans',Arial,sans-serif"


class Canvas:
    """Collects elements, in the order in which they are painted."""

    def __init__(self, width: int, height: int) -> None:
        self.width = width
        self.height = height
        self._elements: list[str] = []

    def rect(self, x: float, y: float, width: float, height: float, fill: str, **more: object) -> None:
        self._add("rect", {"x": x, "y": y, "width": width, "height": height, "class": f"fill-{fill}", **more})

    def line(self, x1: float, y1: float, x2: float, y2: float, stroke: str, **more: object) -> None:
        self._add("line", {"x1": x1, "y1": y1, "x2": x2, "y2": y2, "class": f"stroke-{stroke}", **more})

    def curve(self, points: Points, stroke: str, **more: object) -> None:
        """An open line through the points."""
        self._add("polyline", {"points": _joined(points), "class": f"curve stroke-{stroke}", **more})

    def area(self, points: Points, fill: str, **more: object) -> None:
        self._add("polygon", {"points": _joined(points), "class": f"fill-{fill}", **more})

    def text(self, x: float, y: float, content: str, fill: str = "ink", size: float = 12, **more: object) -> None:
        self._add("text", {"x": x, "y": y, "class": f"fill-{fill}", "font-size": size, **more}, content)

    def document(self, title: str, description: str) -> str:
        """The whole file; the description is for those who cannot see it."""
        head = (
            f'<svg xmlns="http://www.w3.org/2000/svg" width="{self.width}" height="{self.height}" '
            f'viewBox="0 0 {self.width} {self.height}" font-family="{FONT}" '
            'role="img" aria-labelledby="title desc">'
        )
        named = f'<title id="title">{escape(title)}</title>\n<desc id="desc">{escape(description)}</desc>'
        return "\n".join([head, named, f"<style>\n{_style()}\n</style>", *self._elements, "</svg>"]) + "\n"

    def _add(self, tag: str, attributes: Mapping[str, object], content: str | None = None) -> None:
        written = "".join(f" {name.replace('_', '-')}={quoteattr(_shown(it))}" for name, it in attributes.items())
        self._elements.append(f"<{tag}{written}/>" if content is None else f"<{tag}{written}>{escape(content)}</{tag}>")


def _style() -> str:
    rules = [".curve{fill:none;stroke-width:2.5;stroke-linejoin:round}", *_colours(LIGHT)]
    return "\n".join([*rules, "@media (prefers-color-scheme:dark){", *_colours(DARK), "}"])


def _colours(palette: Mapping[str, str]) -> list[str]:
    return [f".fill-{name}{{fill:{value}}}.stroke-{name}{{stroke:{value}}}" for name, value in palette.items()]


def _joined(points: Points) -> str:
    return " ".join(f"{_shown(x)},{_shown(y)}" for x, y in points)


def _shown(value: object) -> str:
    return f"{value:.1f}".removesuffix(".0") if isinstance(value, float) else str(value)
