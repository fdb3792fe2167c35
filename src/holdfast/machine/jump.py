"""Jumps: going back to a stage, or on to one further down, in one step.

A jump back begins new incarnations of its target, its source and everything in between that waits for nothing else. A
jump forward leaves out what only the way between would have led to. Either way the target starts at once, whatever it
waits for.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from holdfast.errors import some_of
from holdfast.machine import ends, gates
from holdfast.machine.anew import begin_anew, without_past
from holdfast.machine.graph import SkipCause, downstream, ordered
from holdfast.machine.run_state import Owner, StageState
from holdfast.machine.workflow import S, moved

if TYPE_CHECKING:
    from holdfast.machine.run import Advance

_STARTS: Final = (S.NOT_STARTED, S.BUFFERED)


class Jump(NamedTuple):
    """What a jump does to the graph."""

    back: bool
    reset: tuple[str, ...]
    """Stages that begin anew, in their order; the target and the source are among them."""
    skipped: tuple[str, ...]
    """Stages that are passed over."""


def jump(step: Advance, ref: str, target: str, context: Mapping[str, Any], outputs: Mapping[str, Any]) -> None:
    """The task asks to go on with another stage, which gets `context` into its own."""
    stage = step.touch(ref)
    stage.outputs.update(outputs)
    stage.jumps += 1
    if target not in step.plan.stages:
        message = f"no stage {target!r}; there are {some_of(step.plan.stages)}"
        step.fail(ref, {"type": "WorkflowDefinitionError", "message": message})
        return
    if stage.plan.owner is Owner.INSTANCE:
        step.fail(ref, {"type": "TaskError", "message": f"{ref!r} is one of several instances, which cannot jump"})
        return
    if stage.jumps > stage.plan.max_jumps:
        message = f"stage {ref!r} has jumped {stage.plan.max_jumps} times, which is as often as it may"
        step.fail(ref, {"type": "TaskError", "message": message})
        return
    way = plan_jump({one: plan.before for one, plan in step.plan.stages.items()}, ref, target)
    anew = {ref, target, *without_past(step, way.reset)}
    way = way._replace(reset=tuple([one for one in way.reset if one in anew]))
    status = step.stage(target).status
    # Two branches may lead to one stage: the second of them starts nothing.
    found = {} if way.back or status in _STARTS else {"found": status.value}
    step.note("jumped", ref, to=target, reset=way.reset, skipped=way.skipped, **found)
    for one in (*way.reset, *way.skipped, target):
        step.stage(one)  # whatever is missing is missed before anything is changed
    if not gates.choose(step, stage):
        step.end_if_over()
        return
    step.end_task(stage, S.SUCCEEDED)
    if way.back:
        begin_anew(step, way.reset)
    else:
        step.goal = target
        passed = [one for one in way.skipped if step.stage(one).status is S.NOT_STARTED]
        for one in passed:
            _pass_over(step, step.touch(one))
        _finish_early(step, stage)
        for one in passed:
            ends.tell(step, step.stage(one))
        step.goal = None
    goal = step.touch(target)
    goal.context.update(context)
    if goal.status is S.NOT_STARTED and not way.back:
        step.admit(goal, at_will=True)
    elif goal.status in _STARTS:
        gates.enter(step, goal, at_will=True)
    for one in way.reset:
        step.consider(step.stage(one))  # nobody tells a stage whose way here was kept
    step.end_if_over()


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


def _pass_over(step: Advance, stage: StageState) -> None:
    stage.status, stage.skip_cause, stage.ended_at = S.SKIPPED, SkipCause.JUMPED.value, step.now
    step.note("stage_skipped", stage.plan.ref, cause=stage.skip_cause)
    step.close(stage)


def _finish_early(step: Advance, stage: StageState) -> None:
    for task in stage.tasks[stage.at + 1 :]:
        task.status = moved("task", task.status, S.SKIPPED)
    ends.complete(step, stage, S.SUCCEEDED, goal=step.goal)


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
