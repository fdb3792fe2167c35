"""Where the stages of a graph are drawn: in layers, each one after those before it, with few lines crossing."""

from __future__ import annotations

from bisect import bisect_right, insort
from collections.abc import Iterable, Mapping, Sequence
from itertools import pairwise
from typing import Final, NamedTuple

from holdfast.machine.graph import downstream, ordered
from holdfast.workflows.owner import SyntheticStageOwner
from holdfast.workflows.stage import StageExecution

_SWEEPS: Final = 8
_MOST_BENDS: Final = 4000
"""Beyond so many, long lines go straight: nobody follows one of them in such a graph."""
_MOST_COUNTED: Final = 2000
"""Of a graph with more lines crossings are not counted: whatever order comes last is taken."""

Node = str | tuple[str, str, int]
"""A stage, or the place where the line from one stage to another passes a layer."""


class Link(NamedTuple):
    """A line from a stage to one that comes after it."""

    source: str
    target: str
    owner: SyntheticStageOwner | None = None
    """How one of them belongs to the other; None: it waits for it."""


class Point(NamedTuple):
    layer: int
    row: float


class Layout(NamedTuple):
    """Places of stages, and of the bends of the lines between them, their ends included."""

    places: dict[str, Point]
    routes: dict[tuple[str, str], list[Point]]


def links_of(stages: Sequence[StageExecution]) -> list[Link]:
    """The lines between stages: to those that wait for them, and between a stage and those that belong to it."""
    refs = {stage.id: stage.ref_id for stage in stages}
    found: list[Link] = []
    for stage in stages:
        found += [Link(ref, stage.ref_id) for ref in sorted(stage.requisite_stage_ref_ids)]
        parent = refs.get(stage.parent_stage_id or "")
        owner = stage.synthetic_stage_owner or SyntheticStageOwner.STAGE_AFTER  # an instance of a stage has none
        if parent is not None:
            first = owner is SyntheticStageOwner.STAGE_BEFORE
            found.append(Link(stage.ref_id, parent, owner) if first else Link(parent, stage.ref_id, owner))
    return found


def arranged(refs: Iterable[str], links: Sequence[Link]) -> Layout:
    """The places of stages. Links must not lead in a circle."""
    before: dict[str, list[str]] = {ref: [] for ref in refs}
    for link in links:
        before[link.target].append(link.source)
    depth = _depths(before, links)
    layers: list[list[Node]] = [[] for _ in range(1 + max(depth.values(), default=-1))]
    for ref in before:
        layers[depth[ref]].append(ref)
    ways = _ways(before, depth)
    ahead: dict[Node, list[Node]] = {}
    for ends, way in ways.items():
        for one, following in pairwise(way):
            ahead.setdefault(one, []).append(following)
        for layer, node in enumerate(way[1:-1], start=depth[ends[0]] + 1):
            layers[layer].append(node)
    rows = _rows(_untangled(layers, ahead), ahead)
    spots = {node: Point(at, rows[node]) for at, layer in enumerate(layers) for node in layer}
    routes = {ends: [spots[node] for node in way] for ends, way in ways.items()}
    return Layout({ref: spots[ref] for ref in before}, routes)


def _depths(before: Mapping[str, Sequence[str]], links: Iterable[Link]) -> dict[str, int]:
    """The layer of each stage. What belongs to a stage comes after what the stage waits for, and before what waits for
    the stage."""
    waits = {ref: list(sources) for ref, sources in before.items()}
    parts = [link for link in links if link.owner is not None]
    for part in parts:
        waits[part.target].remove(part.source)
    follow = downstream(waits)
    needs = {ref: list(sources) for ref, sources in before.items()}
    for source, target, owner in parts:
        if owner is SyntheticStageOwner.STAGE_BEFORE:
            needs[source] += waits[target]
        else:
            for one in follow[source]:
                needs[one].append(target)
    depth: dict[str, int] = {}
    for ref in ordered(needs):
        depth[ref] = 1 + max((depth[one] for one in needs[ref]), default=-1)
    return depth


def _ways(before: Mapping[str, Sequence[str]], depth: Mapping[str, int]) -> dict[tuple[str, str], list[Node]]:
    """The nodes that each line passes: its ends, and one in every layer between."""
    spare, ways = _MOST_BENDS, {}
    for target, sources in before.items():
        for source in dict.fromkeys(sources):
            between = range(depth[source] + 1, depth[target])
            spare -= len(between)
            bends: list[Node] = [(source, target, layer) for layer in between] if spare >= 0 else []
            ways[source, target] = [source, *bends, target]
    return ways


Near = Mapping[Node, Sequence[Node]]
"""The nodes that lines lead to from each node, ahead or back."""


def _back(ahead: Near) -> dict[Node, list[Node]]:
    behind: dict[Node, list[Node]] = {}
    for node, there in ahead.items():
        for one in there:
            behind.setdefault(one, []).append(node)
    return behind


def _untangled(layers: list[list[Node]], ahead: Near) -> list[list[Node]]:
    """The layers, each in an order in which few lines cross: every node near the middle of its neighbours."""
    behind = _back(ahead)
    is_counted = sum(len(there) for there in ahead.values()) <= _MOST_COUNTED
    best = now = [list(layer) for layer in layers]
    fewest = _crossings(now, ahead) if is_counted else 1
    for _ in range(_SWEEPS):
        if fewest == 0:
            break
        now = [list(layer) for layer in now]
        for at in range(1, len(now)):
            now[at] = _by_neighbours(now[at], now[at - 1], behind)
        for at in range(len(now) - 2, -1, -1):
            now[at] = _by_neighbours(now[at], now[at + 1], ahead)
        crossing = _crossings(now, ahead) if is_counted else 1
        if crossing < fewest or not is_counted:
            best, fewest = now, crossing
    return best


def _by_neighbours(layer: list[Node], beside: list[Node], near: Near) -> list[Node]:
    place = {node: at for at, node in enumerate(beside)}
    middles: dict[Node, float] = {}
    for at, node in enumerate(layer):
        there = [place[one] for one in near.get(node, ()) if one in place]
        middles[node] = sum(there) / len(there) if there else float(at)
    return sorted(layer, key=lambda node: middles[node])


def _crossings(layers: Sequence[Sequence[Node]], ahead: Near) -> int:
    crossed = 0
    for layer, following in pairwise(layers):
        place = {node: at for at, node in enumerate(following)}
        ends: list[int] = []
        for node in layer:
            mine = sorted(place[one] for one in ahead.get(node, ()) if one in place)
            crossed += sum(len(ends) - bisect_right(ends, end) for end in mine)
            for end in mine:
                insort(ends, end)
    return crossed


def _rows(layers: list[list[Node]], ahead: Near) -> dict[Node, float]:
    """How far down each node is: near the middle of its neighbours, in the order of its layer, one row apart."""
    rows: dict[Node, float] = {node: float(at) for layer in layers for at, node in enumerate(layer)}
    behind = _back(ahead)
    for sweep in range(_SWEEPS):
        near: Near = behind if sweep % 2 == 0 else ahead
        for layer in layers if sweep % 2 == 0 else reversed(layers):
            wanted = [_middle(rows, near.get(node, ()), rows[node]) for node in layer]
            rows.update(zip(layer, _apart(wanted), strict=True))
    top = min(rows.values(), default=0.0)
    return {node: row - top for node, row in rows.items()}


def _middle(rows: Mapping[Node, float], near: Sequence[Node], own: float) -> float:
    return sum(rows[one] for one in near) / len(near) if near else own


def _apart(wanted: Sequence[float]) -> list[float]:
    """Rows near the wanted ones, at least one apart, in this order."""
    down, up = list(wanted), list(wanted)
    for at in range(1, len(wanted)):
        down[at] = max(down[at], down[at - 1] + 1)
    for at in range(len(wanted) - 2, -1, -1):
        up[at] = min(up[at], up[at + 1] - 1)
    # Both keep the distance, so the middle of the two keeps it as well.
    return [(one + other) / 2 for one, other in zip(down, up, strict=True)]
