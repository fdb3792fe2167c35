"""Stages that begin anew: as if nothing had happened to them yet, among others that stay as they are."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from holdfast.machine import gates, instances
from holdfast.machine.ends import reweigh
from holdfast.machine.graph import edge_of, edges
from holdfast.machine.workflow import COMPLETE, HALTED, S

if TYPE_CHECKING:
    from holdfast.machine.run import Advance


def begin_anew(step: Advance, refs: Sequence[str]) -> None:
    """New incarnations of these stages and their parts, as if nothing had happened to them yet."""
    scope = dict.fromkeys(part for ref in refs for part in (ref, *step.parts(ref)))
    halted = any(step.stage(ref).status in HALTED or step.stage(ref).bad for ref in refs)
    for ref in scope:
        stage = step.touch(ref)
        if stage.status is not S.NOT_STARTED:
            over = stage.status in COMPLETE
            instances.close(step, stage)
            step.run.live -= not over
            told = [one for one in stage.plan.after if one not in scope and (over or one in stage.told)]
            jumps = stage.jumps
            step.reset(stage)
            stage.jumps, stage.told, stage.flawed = jumps, told, False
            step.dropped.add(ref)
            gates.announce(step, stage)
        stage.edges, stage.fired = edges(len(stage.plan.before)), 0
    for ref in scope:
        stage = step.touch(ref)
        for name in stage.plan.before:
            if name not in scope:  # what is outside stays as it is
                one = step.stage(name)
                stage.edges = stage.edges.counting(edge_of(one, ref))
                if ref in one.told:  # it has forgotten what it was told
                    step.touch(name).told = [name for name in one.told if name != ref]
    if halted:
        reweigh(step)
