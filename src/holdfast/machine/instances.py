"""Stages that are run several times side by side: each instance is a stage of its own, which the definition lacks.

An instance is called `ref#incarnation.number`, so a stage that begins anew never meets the instances that it had.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final

from holdfast.errors import PermanentError, TaskError, WorkflowDefinitionError
from holdfast.machine.run_state import OWNER, PART, StagePlan, StageState
from holdfast.machine.workflow import COMPLETE, CONTINUABLE, S, moved

if TYPE_CHECKING:
    from holdfast.machine.run import Advance


MOST: Final = 100_000
"""How many instances a stage may have: they begin in one transaction, and their number may be anybody's data."""


class Stages(dict[str, StagePlan]):
    """The stages of a definition, and the instances of each as if they were there."""

    def __missing__(self, ref: str) -> StagePlan:
        base = base_of(ref)
        config = None if base == ref else self[base].instances
        if config is None:
            raise KeyError(ref)
        plain = StagePlan(ref=ref, tasks=self[base].tasks, parent=base, owner=OWNER.INSTANCE)
        if config.sync_on_complete:
            return plain
        one = self[base]  # nothing waits for it: its failure is the workflow's
        return replace(
            plain,
            continue_on_failure=one.continue_on_failure,
            fail_pipeline=one.fail_pipeline,
            allow_sibling_stages_to_continue=one.allow_sibling_stages_to_continue,
            complete_other_branches_then_fail=one.complete_other_branches_then_fail,
        )


def base_of(ref: str) -> str:
    """The stage that an instance is one of."""
    base, hash, number = ref.rpartition("#")
    return base if hash and number.replace(".", "", 1).isdecimal() else ref


def check_ref(ref: object) -> None:
    """Raises WorkflowDefinitionError for what no stage can be called: nothing, or what an instance is."""
    if not isinstance(ref, str) or not ref:
        raise WorkflowDefinitionError("empty_ref", f"a stage's ref_id must be a text, got {ref!r}")
    if base_of(ref) != ref:
        other = ref.replace("#", "-")
        story = f"a stage cannot be called {ref!r}, as instances of stages are, by # and a number; call it {other!r}"
        raise WorkflowDefinitionError("bad_ref", story, (ref,))


def names_of(stage: StageState) -> list[str]:
    """The instances that a stage has."""
    return [f"{stage.plan.ref}#{stage.incarnation}.{number}" for number in range(stage.spawned)]


def check_number(ref: str, number: int) -> None:
    """Raises TaskError for more instances than a stage may have."""
    if number > MOST:
        raise TaskError(
            f"stage {ref!r} would have {number} instances, and may have {MOST}; let each do several, or start workflows"
        )


def spawn(step: Advance, stage: StageState) -> None:
    """Start the instances of a stage."""
    try:
        items = step.judge.instances(stage)
    except (TaskError, PermanentError) as error:
        stage.reason = str(error)
        step.fail_stage(stage)
        return
    stage.part = PART.INSTANCES
    add(step, stage, items)
    config = stage.plan.instances
    if config is not None and not config.sync_on_complete and stage.status is S.RUNNING:
        _finish(step, stage)
    elif stage.part is PART.INSTANCES:
        settle(step, stage)


def add(step: Advance, stage: StageState, items: Sequence[Any]) -> None:
    """Start one more instance for each of these."""
    first = stage.spawned
    stage.spawned += len(items)
    step.touch(stage.plan.ref)
    made = [step.create(ref) for ref in names_of(stage)[first:]]
    for number, (one, item) in enumerate(zip(made, items, strict=True), start=first):
        one.context = {**stage.context, "instance": number, **({} if item is None else {"item": item})}
        if one.status is S.NOT_STARTED and stage.status is S.RUNNING and stage.part is PART.INSTANCES:
            step.begin(one)
        elif one.status is S.NOT_STARTED:
            step.cut(one)  # enough of them, or too many, have ended at once


def ended(step: Advance, stage: StageState, instance: StageState) -> None:
    """An instance has ended."""
    if not instance.plan.ref.startswith(f"{stage.plan.ref}#{stage.incarnation}."):
        return  # the stage has begun anew since
    good = instance.status in CONTINUABLE
    stage.good += good
    stage.bad += not good
    stage.flawed |= instance.status is S.FAILED_CONTINUE
    if not good and stage.status is S.RUNNING:
        stage.reason = instance.reason or f"instance {instance.plan.ref!r} is {instance.status.value}"
    if stage.part is PART.INSTANCES and not step.cancels:
        settle(step, stage)


def settle(step: Advance, stage: StageState) -> None:
    """A stage ends well with enough instances that have, and fails when that cannot be any more."""
    config = stage.plan.instances
    if config is None or stage.status is not S.RUNNING:
        return
    needed = config.threshold or stage.spawned
    if stage.good >= needed and (stage.spawned or not config.allow_dynamic):
        _finish(step, stage)
    elif stage.bad > stage.spawned - needed and not (config.allow_dynamic and config.threshold):
        left = stage.spawned - stage.bad
        stage.reason = stage.reason or f"{needed} instances must end well, and only {left} can"
        step.fail_stage(stage)


def _finish(step: Advance, stage: StageState) -> None:
    for task in stage.tasks:
        task.status = moved("task", moved("task", task.status, S.RUNNING), S.SUCCEEDED)
    config = stage.plan.instances
    if config is not None and config.cancel_remaining and config.sync_on_complete:
        close(step, stage)
    step.end_tasks(stage)


def stands_alone(step: Advance, stage: StageState) -> bool:
    """Whether a stage is an instance that no stage waits for, so that its failure is the workflow's."""
    if stage.plan.owner is not OWNER.INSTANCE or stage.plan.parent is None:
        return False
    config = step.plan.stages[stage.plan.parent].instances
    return config is not None and not config.sync_on_complete


def lost_some(stage: StageState) -> bool:
    """Whether a stage that did not wait for its instances has some that did not end well."""
    config = stage.plan.instances
    return config is not None and not config.sync_on_complete and stage.good < stage.spawned


def close(step: Advance, stage: StageState) -> None:
    """What is left of the instances counts no more."""
    if stage.good + stage.bad >= stage.spawned:
        return
    for ref in names_of(stage):
        one = step.stage(ref)
        if one.status not in COMPLETE:
            step.cut(one)
