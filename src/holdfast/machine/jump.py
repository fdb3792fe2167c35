"""Jumps: going back to a stage, or on to one further down, in one step.

A jump back begins new incarnations of its target, its source and everything in between that waits for nothing else. A
jump forward leaves out what only the way between would have led to. Either way the target starts at once, whatever it
waits for.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from holdfast.machine.graph import downstream, ordered


class Jump(NamedTuple):
    """What a jump does to the graph."""

    back: bool
    reset: tuple[str, ...]
    """Stages that begin anew, in their order; the target and the source are among them."""
    skipped: tuple[str, ...]
    """Stages that are passed over."""


def plan_jump(requires: Mapping[str, Sequence[str]], source: str, target: str) -> Jump:
    """Which stages a jump concerns, by the stages before each stage."""
    order, after = ordered(requires), downstream(requires)
    if source == target or source in _after(after, target):
        scope = {target, source}
        for ref in order[order.index(target) + 1 :]:
            if requires[ref] and all(one in scope for one in requires[ref]):
                scope.add(ref)
        return Jump(True, tuple(ref for ref in order if ref in scope), ())
    between = {source}
    for ref in order[order.index(source) + 1 :]:
        only = ref != target and bool(requires[ref]) and all(one in between for one in requires[ref])
        if only and target in _after(after, ref):
            between.add(ref)
    return Jump(False, (), tuple(ref for ref in order if ref in between - {source}))


def _after(after: Mapping[str, Sequence[str]], ref: str) -> set[str]:
    """All stages that come after one."""
    found: set[str] = set()
    left = [*after[ref]]
    while left:
        one = left.pop()
        if one not in found:
            found.add(one)
            left += after[one]
    return found
