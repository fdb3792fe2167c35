"""Stages that begin anew: as if nothing had happened to them yet, among others that stay as they are."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Final

from holdfast.machine import gates, instances
from holdfast.machine.ends import awaits, count_anew, rests, reweigh
from holdfast.machine.run_state import Owner, Part
from holdfast.machine.workflow import COMPLETE, HALTED, S

if TYPE_CHECKING:
    from holdfast.machine.run import Advance, StageState

_PASSED: Final[Mapping[Part, tuple[Owner, ...]]] = {
    Part.BEFORE: (),
    Part.TASKS: (Owner.STAGE_BEFORE,),
    Part.INSTANCES: (Owner.STAGE_BEFORE,),
    Part.AFTER: (Owner.STAGE_BEFORE,),
    Part.FAILURE: (Owner.STAGE_BEFORE, Owner.STAGE_AFTER),
}
"""The parts that have had their turn when a stage has come so far."""


def without_past(step: Advance, refs: Sequence[str]) -> list[str]:
    """These stages, but for parts whose stage has ended, or come further, and is not among them: nothing would begin
    those again."""
    scope = set(refs)

    def is_past(ref: str) -> bool:
        plan = step.plan.stages[ref]
        if plan.parent is None:
            return False
        if plan.parent in scope:
            return is_past(plan.parent)
        whole = step.stage(plan.parent)
        return whole.status in COMPLETE or plan.owner in _PASSED[whole.part]

    return [ref for ref in refs if not is_past(ref)]


def begin_anew(step: Advance, refs: Sequence[str]) -> None:
    """New incarnations of these stages and their parts, as if nothing had happened to them yet."""
    scope = dict.fromkeys(part for ref in refs for part in (ref, *step.parts(ref)))
    halted = any(step.stage(ref).status in HALTED or step.stage(ref).bad for ref in refs)
    for ref in scope:
        stage = step.touch(ref)
        over = stage.status in COMPLETE
        is_told = over and not rests(stage)
        told = [one for one in stage.plan.after if one not in scope and (is_told or one in stage.told)]
        if stage.status is not S.NOT_STARTED:
            instances.close(step, stage)
            step.run.live -= not over
            if is_told and stage.plan.parent is not None and stage.plan.parent not in scope:
                _await(step, stage)
            step.reset(stage)
            stage.flawed = False
            step.drop(ref)
            gates.announce(step, stage)
        stage.told, stage.fired = told, 0
    for ref in scope:
        count_anew(step, step.touch(ref), scope)
    if halted:
        reweigh(step)


def _await(step: Advance, part: StageState) -> None:
    """The stage that a part belongs to has counted its end, and waits for it again."""
    parent = step.stage(str(part.plan.parent))
    if awaits(parent, part.plan):
        step.touch(parent.plan.ref).children_left += 1
