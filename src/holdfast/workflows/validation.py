"""Whether a workflow can run at all: everything that can be told before it starts."""

from __future__ import annotations

from collections import Counter
from collections.abc import Container, Iterator, Mapping, Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Any, Final

from holdfast.errors import WorkflowDefinitionError
from holdfast.machine.graph import JoinType, SplitType, check_graph, downstream
from holdfast.machine.instances import check_ref
from holdfast.machine.workflow import WorkflowStatus
from holdfast.workflows.expressions import Expression
from holdfast.workflows.owner import SyntheticStageOwner
from holdfast.workflows.provided import how_to_register

if TYPE_CHECKING:
    from holdfast.workflows.stage import StageExecution

# Of each field that holds a word: the words as keys of a dict, and whether there must be one.
_WORDS: Final = (
    ("unknown_join_type", "join_type", dict.fromkeys(JoinType), True),
    ("unknown_split_type", "split_type", dict.fromkeys(SplitType), True),
    ("unknown_milestone_status", "milestone_status", dict.fromkeys(WorkflowStatus), False),
    ("unknown_owner", "synthetic_stage_owner", dict.fromkeys(SyntheticStageOwner), False),
)


def check_workflow(
    stages: Sequence[StageExecution], tasks: Container[str] | None = None, stage_types: Container[str] | None = None
) -> None:
    """Raises WorkflowDefinitionError: its code, what is wrong, and the stages concerned.

    `tasks` and `stage_types` are the registered names; without them the names are not checked.
    """
    _check_refs(stages)
    for stage in stages:
        _check_words(stage)
        _check_jumps(stage)
        _check_conditions(stage)
        _check_times(stage)
    thresholds = {one.ref_id: one.join_threshold for one in stages if one.join_type == JoinType.N_OF_M}
    requisites = {one.ref_id: sorted(one.requisite_stage_ref_ids) for one in stages}
    check_graph(requisites, thresholds)
    after = downstream(requisites)
    ids = {one.id for one in stages}
    wholes = {one.ref_id: one.parent_stage_id for one in stages}
    for stage in stages:
        _check_mentions(stage, after, ids)
        _check_apart(stage, wholes)
        _check_types(stage, tasks, stage_types)
        _check_positions(stage)


def _check_refs(stages: Sequence[StageExecution]) -> None:
    refs: list[Any] = [one.ref_id for one in stages]
    for ref in refs:
        check_ref(ref)
    for code, what, names in (("duplicate_ref", "ref_id", refs), ("duplicate_id", "id", [one.id for one in stages])):
        twice = sorted(name for name, number in Counter(names).items() if number > 1)
        if twice:
            raise WorkflowDefinitionError(code, f"several stages have the {what} {twice[0]!r}", tuple(twice))


def _check_words(stage: StageExecution) -> None:
    for code, field, words, needed in _WORDS:
        word = getattr(stage, field)
        if word not in words and (needed or word is not None):
            story = f"{stage.label} has the {field.replace('_', ' ')} {word!r}; known are {', '.join(words)}"
            raise WorkflowDefinitionError(code, story, (stage.ref_id,))
    if (stage.parent_stage_id is None) != (stage.synthetic_stage_owner is None):
        raise WorkflowDefinitionError(
            "half_synthetic",
            f"{stage.label} needs both parent_stage_id and synthetic_stage_owner, or neither",
            (stage.ref_id,),
        )


def _check_jumps(stage: StageExecution) -> None:
    most: Any = stage.max_jumps
    if isinstance(most, bool) or not isinstance(most, int) or most < 0:
        story = f"{stage.label}: max_jumps must be a whole number of at least 0, got {most!r}; 0 is never"
        raise WorkflowDefinitionError("bad_max_jumps", story, (stage.ref_id,))


def _check_times(stage: StageExecution) -> None:
    for name in ("scheduled_time", "start_time_expiry"):
        at = getattr(stage, name)
        if at is not None and not isinstance(at, datetime):
            story = f"{stage.label}: {name} must be a datetime, got {at!r}; use datetime.fromisoformat(…)"
            raise WorkflowDefinitionError("bad_time", story, (stage.ref_id,))


def _check_conditions(stage: StageExecution) -> None:
    enabled: Any = stage.enabled
    if not isinstance(enabled, bool | str):
        story = f"{stage.label}: enabled must be True, False or a condition, got {enabled!r}"
        raise WorkflowDefinitionError("bad_expression", story, (stage.ref_id,))
    for text in (*stage.split_conditions.values(), *([enabled] if isinstance(enabled, str) else ())):
        try:
            Expression.parse(text)
        except WorkflowDefinitionError as error:
            raise WorkflowDefinitionError(error.code, f"{stage.label}: {error.detail}", (stage.ref_id,)) from None


def _check_mentions(stage: StageExecution, after: Mapping[str, Sequence[str]], ids: set[str]) -> None:
    for what, ref in _mentions(stage):
        if ref not in after:
            raise WorkflowDefinitionError("unknown_ref", f"{stage.label} {what} {ref!r}, which is not there", (ref,))
    parent = stage.parent_stage_id
    if parent is not None and parent not in ids:
        raise WorkflowDefinitionError(
            "unknown_ref", f"{stage.label} belongs to a stage with the id {parent!r}, which is not there", (parent,)
        )
    for ref in stage.split_conditions:
        if ref not in after[stage.ref_id]:
            raise WorkflowDefinitionError(
                "unknown_ref", f"{stage.label} has a condition for {ref!r}, which does not come right after it", (ref,)
            )
    if stage.split_conditions and stage.split_type == SplitType.AND:
        story = f"{stage.label} has split_conditions, and its split type AND asks for none; use SplitType.OR"
        raise WorkflowDefinitionError("unused_conditions", story, (stage.ref_id,))


def _mentions(stage: StageExecution) -> Iterator[tuple[str, str]]:
    for ref in sorted(stage.cancel_region):
        yield "has a cancel region with", ref
    if stage.milestone_ref_id is not None:
        yield "has a milestone in", stage.milestone_ref_id


def _check_apart(stage: StageExecution, wholes: Mapping[str, str | None]) -> None:
    """What ends before its turn with the stage that it is a part of tells nobody else."""
    for ref in sorted(stage.requisite_stage_ref_ids):
        if wholes[ref] is not None and wholes[ref] not in (stage.parent_stage_id, stage.id):
            story = f"{stage.label} waits for {ref!r}, which is a part of another stage; let it wait for that stage"
            raise WorkflowDefinitionError("foreign_part", story, (stage.ref_id, ref))


def _check_types(stage: StageExecution, tasks: Container[str] | None, stage_types: Container[str] | None) -> None:
    for task in stage.tasks if tasks is not None else ():
        if tasks is not None and task.implementing_class not in tasks:
            raise WorkflowDefinitionError(
                "unknown_task_type",
                f"{stage.label} has a task {task.implementing_class!r}, which nobody has registered"
                + how_to_register(task.implementing_class),
                (stage.ref_id,),
            )
    if stage_types is not None and not stage.tasks and stage.type not in stage_types:
        raise WorkflowDefinitionError(
            "unknown_stage_type",
            f"{stage.label} has no tasks, and its type {stage.type!r} is not registered",
            (stage.ref_id,),
        )


def _check_positions(stage: StageExecution) -> None:
    places = Counter(task.position for task in stage.tasks)
    twice = sorted(place for place, number in places.items() if number > 1)
    if twice:
        raise WorkflowDefinitionError(
            "duplicate_position", f"{stage.label} has several tasks at position {twice[0]}", (stage.ref_id,)
        )
