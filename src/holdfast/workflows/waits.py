"""Stages that would wait for each other: by way of requisites, milestones, parts and mutex keys."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from typing import Final

from holdfast.errors import WorkflowDefinitionError
from holdfast.machine.graph import JoinType, check_graph
from holdfast.workflows.model import Workflow
from holdfast.workflows.owner import SyntheticStageOwner
from holdfast.workflows.stage import StageExecution

Needs = Mapping[str, set[str]]
_EARLIER: Final[Mapping[SyntheticStageOwner | None, Collection[SyntheticStageOwner]]] = {
    SyntheticStageOwner.STAGE_AFTER: (SyntheticStageOwner.STAGE_BEFORE,),
    SyntheticStageOwner.STAGE_ON_FAILURE: (SyntheticStageOwner.STAGE_BEFORE, SyntheticStageOwner.STAGE_AFTER),
}


def check_waits(workflow: Workflow) -> None:
    """Raises WorkflowDefinitionError if some stages could never go on because of each other."""
    stages = {stage.ref_id: stage for stage in workflow.stages}
    refs = {stage.id: stage.ref_id for stage in workflow.stages}
    parts: dict[str, list[str]] = {ref: [] for ref in stages}
    needs = {ref: set(stage.requisite_stage_ref_ids) for ref, stage in stages.items()}
    ended = {ref: _surely_ended(stage) for ref, stage in stages.items()}
    for ref, stage in stages.items():
        needs[ref] |= _parts_before(stage, workflow.stages)
        if stage.milestone_ref_id is not None:
            needs[ref].add(stage.milestone_ref_id)
        if stage.parent_stage_id is not None:
            parent = refs[stage.parent_stage_id]
            parts[parent].append(ref)
            needs[parent].add(ref)
        for whole in _wholes(stage, stages, refs):  # nothing of it begins before it may itself
            needs[ref] |= whole.requisite_stage_ref_ids | _parts_before(whole, workflow.stages)
            ended[ref] |= _surely_ended(whole)
    check_graph({ref: sorted(names) for ref, names in needs.items()})
    before = {ref: _reached(names, needs) for ref, names in ended.items()}
    held = {
        ref: {one: stages[one].mutex_key or "" for one in _reached(parts[ref], needs) - before[ref] - {ref}}
        for ref, stage in stages.items()
        if stage.mutex_key is not None and parts[ref]
    }
    _check_own_keys(stages, held)
    _check_crossed_keys(stages, held, before)


def _wholes(
    stage: StageExecution, stages: Mapping[str, StageExecution], refs: Mapping[str, str]
) -> Iterator[StageExecution]:
    """The stage that it is a part of, the one that this is a part of, and so on."""
    seen: set[str] = set()
    while stage.parent_stage_id is not None and stage.parent_stage_id not in seen:
        seen.add(stage.parent_stage_id)
        stage = stages[refs[stage.parent_stage_id]]
        yield stage


def _parts_before(stage: StageExecution, stages: Iterable[StageExecution]) -> set[str]:
    """The other parts of its stage that have ended when it begins, as a part of it."""
    earlier = _EARLIER.get(stage.synthetic_stage_owner, ())
    return {
        one.ref_id
        for one in (stages if earlier else ())
        if one.parent_stage_id == stage.parent_stage_id and one.synthetic_stage_owner in earlier
    }


def _surely_ended(stage: StageExecution) -> set[str]:
    """The stages that have ended when it starts. Some joins start while others before it still run."""
    names = set(stage.requisite_stage_ref_ids)
    waits_for_all = stage.join_type in (JoinType.AND, JoinType.OR)
    if stage.join_type is JoinType.N_OF_M:
        waits_for_all = not 0 < stage.join_threshold < len(names)
    return names if waits_for_all or len(names) == 1 else set()


def _check_own_keys(stages: Mapping[str, StageExecution], held: Mapping[str, Mapping[str, str]]) -> None:
    """A stage must not need one that cannot start while it is under way."""
    for ref, needed in held.items():
        key = stages[ref].mutex_key
        for one in sorted(name for name, other in needed.items() if other == key):
            story = (
                f"{stages[ref].label} cannot end before {stages[one].label}, and they have the same mutex key {key!r}"
            )
            raise WorkflowDefinitionError("cycle", f"{story}: they would wait for each other", (one, ref))


def _check_crossed_keys(
    stages: Mapping[str, StageExecution], held: Mapping[str, Mapping[str, str]], before: Needs
) -> None:
    """Stages that may run at once must not each hold the key that the next one of them needs before it ends."""
    wanted = {
        ref: [
            other
            for other in sorted(held)
            if other != ref and stages[other].mutex_key in needed.values() and _may_meet(ref, other, before)
        ]
        for ref, needed in held.items()
    }
    try:
        check_graph(wanted)
    except WorkflowDefinitionError as error:
        ring = [f"{stages[ref].label} with the mutex key {stages[ref].mutex_key!r}" for ref in error.members]
        story = f"{', '.join(ring)} would wait for each other: each needs the key of another one before it ends"
        raise WorkflowDefinitionError("cycle", story, error.members) from None


def _may_meet(ref: str, other: str, before: Needs) -> bool:
    return ref not in before[other] and other not in before[ref]


def _reached(refs: Iterable[str], needs: Needs) -> set[str]:
    """These stages, and whatever they need."""
    found: set[str] = set()
    left = list(refs)
    while left:
        one = left.pop()
        if one not in found:
            found.add(one)
            left += needs[one]
    return found
