"""Jumps: going back to a stage, or on to one further down, in one step.

A jump back begins new incarnations of its target, its source and everything in between that waits for nothing else. A
jump forward leaves out what only the way between would have led to. Either way the target starts at once, whatever it
waits for, and also if it was left out before.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from holdfast.errors import some_of
from holdfast.machine import ends, gates
from holdfast.machine.anew import begin_anew, without_past
from holdfast.machine.graph import SKIP, SkipCause, downstream, ordered
from holdfast.machine.run_state import Owner, StageState
from holdfast.machine.workflow import S, moved

if TYPE_CHECKING:
    from holdfast.machine.run import Advance

_STARTS: Final = (S.NOT_STARTED, S.BUFFERED)


class Jump(NamedTuple):
    """What a jump does to the graph."""

    back: bool
    reset: tuple[str, ...]
    """Stages that begin anew, in their order; the target and the source of a jump back are among them."""
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
    if not gates.choose(step, stage):
        step.end_if_over()
        return
    requires = {one: plan.before for one, plan in step.plan.stages.items()}
    way = plan_jump(requires, ref, target)
    if way.back:
        anew = {ref, target, *without_past(step, way.reset)}
        way = way._replace(reset=tuple([one for one in way.reset if one in anew]))
    else:
        way = way._replace(reset=_left_out(step, requires, target))
    status = step.stage(target).status
    # Two branches may lead to one stage: the second of them starts nothing.
    found = {} if way.reset or status in _STARTS else {"found": status.value}
    step.note("jumped", ref, to=target, reset=way.reset, skipped=way.skipped, **found)
    for one in (*way.reset, *way.skipped, target):
        step.stage(one)  # whatever is missing is missed now: whoever reads it begins with the run as it was stored
    step.end_task(stage, S.SUCCEEDED)
    begin_anew(step, way.reset)
    if not way.back:
        _wait_for_them(step, way.reset)
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


def _left_out(step: Advance, requires: Mapping[str, Sequence[str]], target: str) -> tuple[str, ...]:
    """A target that no branch led to, or that could not run, and what was left out only because of that."""
    if not _was_left_out(step.stage(target)) or not without_past(step, [target]):
        return ()
    order, scope = ordered(requires), {target: None}
    for ref in order[order.index(target) + 1 :]:
        if requires[ref] and all(one in scope for one in requires[ref]) and _was_left_out(step.stage(ref)):
            scope[ref] = None
    return tuple(without_past(step, [*scope]))


def _wait_for_them(step: Advance, refs: Sequence[str]) -> None:
    """Where these meet others, what has not begun takes them for left out no more."""
    for ref in dict.fromkeys(one for name in refs for one in step.plan.stages[name].after if one not in refs):
        if step.stage(ref).status is S.NOT_STARTED:
            ends.count_anew(step, step.touch(ref), ())


def _was_left_out(stage: StageState) -> bool:
    return stage.status is S.SKIPPED and stage.skip_cause not in (SKIP.MANUAL, SKIP.DISABLED)


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
