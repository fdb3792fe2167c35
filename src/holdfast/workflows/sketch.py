"""A workflow's graph for a terminal: a line per stage, beside the lines that lead to it and from it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Final, NamedTuple

from holdfast.machine.graph import downstream
from holdfast.machine.workflow import COMPLETE
from holdfast.workflows.layers import links_of
from holdfast.workflows.lengths import took
from holdfast.workflows.model import Workflow
from holdfast.workflows.picture import MARKS
from holdfast.workflows.stage import StageExecution

MOST_LANES: Final = 12
"""With more lines side by side than that none are drawn."""
_UP, _DOWN, _LEFT, _RIGHT = 1, 2, 4, 8
_BOXES: Final = " ╵╷│╴╯╮┤╶╰╭├─┴┬┼"
"""A character for each sum of the sides that lines lead to."""
_PLAIN: Final = str.maketrans("╵╷│╴╯╮┤╶╰╭├─┴┬┼○●‖◔↪◌✓–✗■⊘", "|||-'.+-'.+-+++o*=?>:v-xX/")


class SketchLine(NamedTuple):
    """Lines of the graph and, if there is one here, a stage."""

    graph: str
    stage: StageExecution | None


def sketched(workflow: Workflow) -> list[SketchLine]:
    """The graph from top to bottom, each stage below those that it waits for."""
    stages = {stage.ref_id: stage for stage in workflow.stages}
    before: dict[str, list[str]] = {ref: [] for ref in stages}
    for link in links_of(workflow.stages):
        before[link.target].append(link.source)
    after, order = downstream(before), _in_depth(before)
    lines: list[SketchLine] = []
    lanes: list[str | None] = []
    for ref in order:
        if ref not in lanes:
            _put(lanes, ref)
        own = lanes.index(ref)
        marks = ["│" if lane is not None else " " for lane in lanes]
        marks[own] = MARKS[stages[ref].status]
        lines.append(SketchLine(" ".join(marks).rstrip(), stages[ref]))
        fork = _lead_on(lanes, own, after[ref])
        if fork:
            lines.append(SketchLine(fork, None))
        if len(lanes) > MOST_LANES:
            return [SketchLine(MARKS[stages[one].status], stages[one]) for one in order]
    return lines


def sketch(workflow: Workflow, now: datetime | None = None, *, plain: bool = False) -> str:
    """The graph as text; `plain` uses no other characters than ASCII has."""
    lines = sketched(workflow)
    drawn = max((len(line.graph) for line in lines), default=0)
    named = max((len(stage.ref_id) for stage in workflow.stages), default=0)
    text = "\n".join(_written(line, drawn, named, now) for line in lines) + "\n"
    return text.translate(_PLAIN) if plain else text


def plain_graph(graph: str) -> str:
    """The lines of a graph in ASCII."""
    return graph.translate(_PLAIN)


def _written(line: SketchLine, drawn: int, named: int, now: datetime | None) -> str:
    stage = line.stage
    if stage is None:
        return line.graph
    length = took(stage.start_time, stage.end_time, None if stage.status in COMPLETE else now)
    return f"{line.graph:<{drawn}}  {stage.ref_id:<{named}}  {stage.status:<15}  {length}".rstrip()


def _in_depth(before: Mapping[str, Sequence[str]]) -> list[str]:
    """Each stage after those before it, and a branch to its end before the next one begins."""
    waiting = {ref: len(set(sources)) for ref, sources in before.items()}
    after = downstream(before)
    left = [ref for ref in reversed(list(before)) if waiting[ref] == 0]
    found: list[str] = []
    while left:
        ref = left.pop()
        found.append(ref)
        for child in reversed(after[ref]):
            waiting[child] -= 1
            if waiting[child] == 0:
                left.append(child)
    return found


def _put(lanes: list[str | None], ref: str) -> int:
    """A lane for a line that leads to a stage: the first free one."""
    if None in lanes:
        at = lanes.index(None)
        lanes[at] = ref
        return at
    lanes.append(ref)
    return len(lanes) - 1


def _lead_on(lanes: list[str | None], own: int, children: Sequence[str]) -> str:
    """Lead the line of a stage on to those after it; how that looks, unless it just goes straight on or ends."""
    old = list(lanes)
    lanes[own] = None
    ends = [lanes.index(child) if child in lanes else _put_near(lanes, own, child) for child in children]
    while lanes and lanes[-1] is None:
        lanes.pop()
    if ends in ([], [own]):
        return ""
    sides = [_sides(at, old, lanes) for at in range(max(len(old), len(lanes)))]
    sides[own] |= _UP
    first, last = min(own, *ends), max(own, *ends)
    for at in range(first, last + 1):
        joins = at == own or at in ends
        if joins or not sides[at]:
            sides[at] |= (_LEFT if at > first else 0) | (_RIGHT if at < last else 0)
    return _drawn(sides, first, last)


def _put_near(lanes: list[str | None], own: int, ref: str) -> int:
    if lanes[own] is None:
        lanes[own] = ref
        return own
    return _put(lanes, ref)


def _sides(at: int, old: Sequence[str | None], new: Sequence[str | None]) -> int:
    up = _UP if at < len(old) and old[at] is not None else 0
    down = _DOWN if at < len(new) and new[at] is not None else 0
    return up | down


def _drawn(sides: Sequence[int], first: int, last: int) -> str:
    """The row; a line that crosses others passes behind them."""
    text = ""
    for at, side in enumerate(sides):
        text += _BOXES[side] + ("─" if first <= at < last else " ")
    return text.rstrip()
