"""A workflow as a picture: its graph with states and timings, as SVG. Colours fit light and dark pages alike."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from itertools import chain
from typing import Final, NamedTuple
from unicodedata import east_asian_width
from xml.sax.saxutils import escape, quoteattr

from holdfast.machine.graph import SkipCause
from holdfast.machine.workflow import COMPLETE, S, WorkflowStatus
from holdfast.workflows.assembly import REASON
from holdfast.workflows.layers import Link, Point, arranged, links_of
from holdfast.workflows.lengths import took
from holdfast.workflows.model import Workflow
from holdfast.workflows.stage import StageExecution

WIDTH, HEIGHT, ACROSS, DOWN, MARGIN, HEAD = 184, 50, 64, 22, 24, 66
_ROOM: Final = WIDTH - 22
"""For a line of text in a box."""
MARKS: Final[Mapping[WorkflowStatus, str]] = {
    S.NOT_STARTED: "○", S.RUNNING: "●", S.PAUSED: "‖", S.SUSPENDED: "◔", S.REDIRECT: "↪", S.BUFFERED: "◌",
    S.SUCCEEDED: "✓", S.SKIPPED: "–", S.FAILED_CONTINUE: "!", S.TERMINAL: "✗", S.STOPPED: "■", S.CANCELED: "⊘",
}  # fmt: skip
"""A sign for each state, so that nobody has to tell colours apart."""
_TONES: Final[Mapping[WorkflowStatus, str]] = {
    S.RUNNING: "busy", S.REDIRECT: "busy", S.PAUSED: "wait", S.SUSPENDED: "wait", S.BUFFERED: "wait",
    S.SUCCEEDED: "good", S.FAILED_CONTINUE: "warn", S.TERMINAL: "bad", S.STOPPED: "bad", S.CANCELED: "bad",
}  # fmt: skip
_LIGHT: Final = {
    "paper": "#ffffff", "box": "#f6f8fa", "ink": "#1f2328", "muted": "#59636e", "line": "#8c959f",
    "good": "#1a7f37", "busy": "#0969da", "wait": "#8250df", "warn": "#9a6700", "bad": "#cf222e",
}  # fmt: skip
_DARK: Final = {
    "paper": "#0d1117", "box": "#161b22", "ink": "#e6edf3", "muted": "#9198a1", "line": "#6e7681",
    "good": "#3fb950", "busy": "#58a6ff", "wait": "#bc8cff", "warn": "#d29922", "bad": "#f85149",
}  # fmt: skip
TAKEN, OPEN, DEAD = "taken", "open", "dead"
_EDGES: Final[Mapping[str, list[str]]] = {TAKEN: [], OPEN: ["idle"], DEAD: ["dead"]}
_FONT: Final = "system-ui,-apple-system,'Segoe UI',Roboto,'Helvetica Neue','DejaVu Sans',Arial,sans-serif"
_NOT_XML: Final = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f\ud800-\udfff\ufffe\uffff]")


class _Size(NamedTuple):
    width: float
    height: float


def picture(workflow: Workflow, now: datetime | None = None) -> str:
    """The SVG file of a workflow. With `now`, what is under way says for how long."""
    links = links_of(workflow.stages)
    layout = arranged((stage.ref_id for stage in workflow.stages), links)
    stages = {stage.ref_id: stage for stage in workflow.stages}
    size = _size((*layout.places.values(), *chain(*layout.routes.values())), _title(workflow), _facts(workflow, now))
    drawn = [f'<rect class="paper" width="{size.width:g}" height="{size.height:g}"/>', *_heading(workflow, now)]
    drawn += [_line(link, layout.routes[link.source, link.target], stages) for link in links]
    drawn += [_box(stage, layout.places[stage.ref_id], now) for stage in workflow.stages]
    return "\n".join([*_top(workflow, size, now), *drawn, "</svg>"]) + "\n"


def _size(places: Iterable[Point], title: str, facts: str) -> _Size:
    wide, deep = float(MARGIN + max(11 * _cells(title), 7.5 * _cells(facts))), float(HEAD)
    for place in places:
        wide, deep = max(wide, _x(place.layer) + WIDTH), max(deep, _y(place.row) + HEIGHT)
    return _Size(wide + MARGIN, round(deep + MARGIN))


def _x(layer: int) -> float:
    return MARGIN + layer * (WIDTH + ACROSS)


def _y(row: float) -> float:
    return MARGIN + HEAD + row * (HEIGHT + DOWN)


def _top(workflow: Workflow, size: _Size, now: datetime | None) -> list[str]:
    ended = sum(stage.status in COMPLETE for stage in workflow.stages)
    story = f"{_title(workflow)}: {ended} of {len(workflow.stages)} stages have ended. " + " ".join(
        f"{stage.ref_id}: {_words(stage, now)}." for stage in workflow.stages[:100]
    )
    return [
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{size.width:g}" height="{size.height:g}" '
        f'viewBox="0 0 {size.width:g} {size.height:g}" font-family="{_FONT}" role="img" aria-labelledby="title desc">',
        f'<title id="title">{escape(_legal(_title(workflow)))}</title>',
        f'<desc id="desc">{escape(_legal(story))}</desc>',
        f"<style>\n{_style()}\n</style>",
        '<defs><marker id="tip" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="7" markerHeight="7" orient="auto">'
        '<path class="tip" d="M0 0.5 L8 4 L0 7.5 z"/></marker></defs>',
    ]


def _style() -> str:
    rules = [
        ".box{stroke-width:1.5}", ".edge{fill:none;stroke-width:1.5}", ".idle{opacity:.55}", ".dim{opacity:.75}",
        ".part{stroke-dasharray:2 4}", ".dead{stroke-dasharray:6 4;opacity:.45}", *_colours(_LIGHT),
    ]  # fmt: skip
    return "\n".join([*rules, "@media (prefers-color-scheme:dark){", *_colours(_DARK), "}"])


def _colours(palette: Mapping[str, str]) -> list[str]:
    tones = [f".{name}{{fill:{value}}}.of-{name}{{stroke:{value}}}" for name, value in palette.items()]
    return [*tones, f".tip{{fill:{palette['line']}}}"]


def _heading(workflow: Workflow, now: datetime | None) -> list[str]:
    tone = _TONES.get(workflow.status, "muted")
    return [
        _written(MARGIN, MARGIN + 16, "ink", 18, _title(workflow), bold=True),
        _written(MARGIN, MARGIN + 38, tone, 12.5, _facts(workflow, now)),
    ]


def _facts(workflow: Workflow, now: datetime | None) -> str:
    length = took(workflow.start_time, workflow.end_time, None if workflow.status in COMPLETE else now)
    return " · ".join(part for part in (f"{MARKS[workflow.status]} {workflow.status}", length, workflow.id) if part)


def _title(workflow: Workflow) -> str:
    return workflow.name or "workflow"


def _line(link: Link, way: Sequence[Point], stages: Mapping[str, StageExecution]) -> str:
    spots = [(_x(one.layer), _y(one.row) + HEIGHT / 2) for one in way]
    x, y = spots[0][0] + WIDTH, spots[0][1]
    path = [f"M{x:g} {y:.1f}"]
    for at, (there, level) in enumerate(spots[1:], start=1):
        half = (there - x) / 2
        path.append(f"C{x + half:g} {y:.1f} {there - half:g} {level:.1f} {there:g} {level:.1f}")
        if at < len(spots) - 1:  # it passes a layer of boxes
            path.append(f"L{there + WIDTH:g} {level:.1f}")
            x, y = there + WIDTH, level
    names = ["edge", "of-line", *(["part"] if link.owner is not None else []), *_EDGES[liveness(link, stages)]]
    return f'<path class="{" ".join(names)}" marker-end="url(#tip)" d="{" ".join(path)}"/>'


def liveness(link: Link, stages: Mapping[str, StageExecution]) -> str:
    """Whether a way was taken, is open, or is dead: it never can be."""
    source, target = stages[link.source], stages[link.target]
    chosen = source.activated
    never = target.skip_cause in (SkipCause.PRUNED, SkipCause.UPSTREAM_FAILED, SkipCause.JUMPED)
    if never or (chosen is not None and link.owner is None and link.target not in chosen):
        return DEAD
    return OPEN if target.status is S.NOT_STARTED else TAKEN


def _box(stage: StageExecution, spot: Point, now: datetime | None) -> str:
    x, y, tone = _x(spot.layer), _y(spot.row), _TONES.get(stage.status, "muted")
    length = took(stage.start_time, stage.end_time, None if stage.status in COMPLETE else now)
    status = f"{MARKS[stage.status]} {stage.status}" + (f" · {length}" if length else "")
    dim, outline = (' class="dim"', "line") if tone == "muted" else ("", tone)
    return "\n".join([
        f"<g{dim} data-stage={quoteattr(_legal(stage.ref_id))}>"
        f"<title>{escape(_legal(f'{stage.ref_id}: {_words(stage, now)}'))}</title>",
        f'<rect class="box of-{outline}" x="{x:g}" y="{y:.1f}" width="{WIDTH}" height="{HEIGHT}" rx="7"/>',
        f'<rect class="{tone}" x="{x:g}" y="{y + 8:.1f}" width="4" height="{HEIGHT - 16}" rx="2"/>',
        _written(x + 14, y + 21, "ink", 13.5, _cut(stage.ref_id, 21), bold=True, room=_ROOM),
        _written(x + 14, y + 39, tone, 11.5, status, room=_ROOM) + "</g>",
    ])  # fmt: skip


def _written(
    x: float, y: float, tone: str, size: float, content: str, *, bold: bool = False, room: float | None = None
) -> str:
    """A line of text; one that may need more than its `room` is drawn as wide as that."""
    more = ' font-weight="600"' if bold else ""
    if room is not None and _extent(content, size) > room:
        more += f' textLength="{room:g}" lengthAdjust="spacingAndGlyphs"'
    return f'<text class="{tone}" x="{x:g}" y="{y:.1f}" font-size="{size:g}"{more}>{escape(_legal(content))}</text>'


def _words(stage: StageExecution, now: datetime | None) -> str:
    """What is known of a stage, in a line."""
    length = took(stage.start_time, stage.end_time, None if stage.status in COMPLETE else now)
    tries = max((task.attempt for task in stage.tasks), default=0)
    parts = [
        str(stage.status), length, f"attempt {tries}" if tries > 1 else "",
        f"incarnation {stage.incarnation}" if stage.incarnation > 1 else "", str(stage.engine_state.get(REASON, "")),
    ]  # fmt: skip
    return ", ".join(part for part in parts if part)


def _legal(text: str) -> str:
    """Without the characters that XML cannot hold."""
    return _NOT_XML.sub("\ufffd", text)


def _cells(text: str) -> int:
    """How wide a text is, in letters."""
    return sum(2 if east_asian_width(letter) in "WF" else 1 for letter in text)


def _extent(text: str, size: float) -> float:
    """How wide a text is drawn, about: capitals are wider than other letters."""
    return size * (0.5 * _cells(text) + 0.14 * sum(letter.isupper() for letter in text))


def _cut(text: str, most: int) -> str:
    if _cells(text) <= most:
        return text
    while _cells(text) > most - 1:
        text = text[:-1]
    return f"{text}…"
