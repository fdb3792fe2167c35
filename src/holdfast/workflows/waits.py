"""Stages that would wait for each other: by way of requisites, milestones, parts and mutex keys."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from holdfast.errors import WorkflowDefinitionError
from holdfast.machine.graph import check_graph
from holdfast.workflows.model import Workflow
from holdfast.workflows.stage import StageExecution

Needs = Mapping[str, set[str]]


def check_waits(workflow: Workflow) -> None:
    """Raises WorkflowDefinitionError if some stages could never go on because of each other."""
    stages = {stage.ref_id: stage for stage in workflow.stages}
    refs = {stage.id: stage.ref_id for stage in workflow.stages}
    parts: dict[str, list[str]] = {ref: [] for ref in stages}
    needs = {ref: set(stage.requisite_stage_ref_ids) for ref, stage in stages.items()}
    for ref, stage in stages.items():
        if stage.milestone_ref_id is not None:
            needs[ref].add(stage.milestone_ref_id)
        if stage.parent_stage_id is not None:
            parent = stages[refs[stage.parent_stage_id]]
            parts[parent.ref_id].append(ref)
            needs[parent.ref_id].add(ref)
            needs[ref] |= parent.requisite_stage_ref_ids
    check_graph({ref: sorted(names) for ref, names in needs.items()})
    before = {ref: _reached(stage.requisite_stage_ref_ids, needs) for ref, stage in stages.items()}
    held = {
        ref: {one: stages[one].mutex_key or "" for one in _reached(parts[ref], needs) - before[ref] - {ref}}
        for ref, stage in stages.items()
        if stage.mutex_key is not None and parts[ref]
    }
    _check_own_keys(stages, held)
    _check_crossed_keys(stages, held, before)


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
    """Two stages that may run at once must not each hold the key that the other one needs before it ends."""
    for ref, other in _pairs(held, before):
        mine, its = stages[ref].mutex_key, stages[other].mutex_key
        if its in held[ref].values() and mine in held[other].values():
            story = f"{stages[ref].label} needs the mutex key {its!r} of {stages[other].label}, which needs {mine!r}"
            raise WorkflowDefinitionError("cycle", f"{story}: they would wait for each other", (ref, other))


def _pairs(held: Mapping[str, object], before: Needs) -> Iterator[tuple[str, str]]:
    refs = sorted(held)
    for at, ref in enumerate(refs):
        for other in refs[at + 1 :]:
            if ref not in before[other] and other not in before[ref]:
                yield ref, other


def _reached(refs: set[str] | list[str], needs: Needs) -> set[str]:
    """These stages, and whatever they need."""
    found: set[str] = set()
    left = list(refs)
    while left:
        one = left.pop()
        if one not in found:
            found.add(one)
            left += needs[one]
    return found
