"""A definition as the machine wants to see it, and what else is known of its stages."""

from __future__ import annotations

from collections.abc import Mapping
from hashlib import sha256
from typing import Any, Final, NamedTuple

from holdfast.machine.graph import JoinType, SplitType, downstream
from holdfast.machine.instances import Stages, base_of
from holdfast.machine.run import Instances, Owner, Plan, StagePlan, TaskPlan
from holdfast.machine.workflow import WorkflowStatus
from holdfast.store.codec import from_json, to_json
from holdfast.workflows.binding import Binding
from holdfast.workflows.expressions import Expression

_FLAGS: Final = (
    "continue_on_failure", "fail_pipeline", "allow_sibling_stages_to_continue", "complete_other_branches_then_fail",
    "max_jumps",
)  # fmt: skip


class StageExtras(NamedTuple):
    """What the machine does not decide on by itself."""

    args: list[Binding]
    kwargs: dict[str, Binding]
    conditions: Mapping[str, Expression]
    """For each stage after it, what activates it."""
    enabled: bool | Expression
    manual_skip: bool
    tasks: tuple[Mapping[str, Any], ...]
    instances: Mapping[str, Any] | None
    """How many times it is run side by side."""
    reducers: Mapping[str, str]
    """How what the stages before it left is combined, by key."""
    model: Mapping[str, Any] | None
    """The stage as it was defined, if it was put together as a model."""


class _Extras(dict[str, StageExtras]):
    """An instance of a stage has those of the stage."""

    def __missing__(self, ref: str) -> StageExtras:
        if (base := base_of(ref)) == ref:
            raise KeyError(ref)
        return self[base]


class Blueprint(NamedTuple):
    """A definition: its id, its graph, and where arguments and the result come from."""

    id: str
    name: str
    version: str
    text: str
    plan: Plan
    extras: Mapping[str, StageExtras]
    result: Binding | None


def blueprint_of(document: Mapping[str, Any]) -> Blueprint:
    """The blueprint of a document; equal documents have equal ids."""
    return parse_blueprint(to_json(dict(document)))


def parse_blueprint(text: str) -> Blueprint:
    document = from_json(text)
    found: dict[str, Any] = {stage["ref"]: stage for stage in document["stages"]}
    requires = {ref: tuple(stage.get("requires", ())) for ref, stage in found.items()}
    after = downstream(requires)
    stages = {
        ref: _stage(stage, requires[ref], tuple(after[ref]), _children(ref, found), _kin(ref, found))
        for ref, stage in found.items()
    }
    roots = [ref for ref, stage in found.items() if not requires[ref] and stage.get("parent") is None]
    return Blueprint(
        id=sha256(text.encode()).hexdigest()[:32],
        name=document["name"],
        version=str(document.get("version", "1")),
        text=text,
        plan=Plan(Stages(stages), tuple(roots)),
        extras=_Extras({ref: _extras(stage) for ref, stage in found.items()}),
        result=document.get("result"),
    )


def _stage(
    stage: Mapping[str, Any],
    before: tuple[str, ...],
    after: tuple[str, ...],
    children: Mapping[Owner, tuple[str, ...]],
    kin: Mapping[str, Any],
) -> StagePlan:
    owner, milestone, several = stage.get("owner"), stage.get("milestone"), stage.get("instances")
    return StagePlan(
        ref=stage["ref"],
        tasks=tuple(TaskPlan(name=task["name"], type=task["type"]) for task in stage.get("tasks", ())),
        before=before,
        after=after,
        join=JoinType(stage.get("join", JoinType.AND)),
        threshold=stage.get("threshold", 0),
        split=SplitType(stage.get("split", SplitType.AND)),
        parent=stage.get("parent"),
        owner=None if owner is None else Owner(owner),
        children=children,
        scheduled_at=stage.get("scheduled_at"),
        expires_at=stage.get("expires_at"),
        limit_s=stage.get("limit_s"),
        milestone=None if milestone is None else (milestone[0], WorkflowStatus(milestone[1])),
        cancel_region=tuple(stage.get("cancel_region", ())),
        instances=None if several is None else Instances(**{name: several[name] for name in Instances._fields}),
        **kin,
        **{name: stage[name] for name in _FLAGS if name in stage},
    )


def _children(ref: str, found: Mapping[str, Any]) -> dict[Owner, tuple[str, ...]]:
    mine = [stage for stage in found.values() if stage.get("parent") == ref]
    return {owner: refs for owner in Owner if (refs := tuple(one["ref"] for one in mine if one.get("owner") == owner))}


def _kin(ref: str, found: Mapping[str, Any]) -> dict[str, tuple[str, ...]]:
    """The stages that have something to do with a stage without coming before or after it."""

    def same(key: str) -> tuple[str, ...]:
        mine = found[ref].get(key)
        return (
            () if mine is None else tuple(one for one, other in found.items() if one != ref and other.get(key) == mine)
        )

    watched_by = tuple(one for one, other in found.items() if (other.get("milestone") or (None,))[0] == ref)
    return {"peers": same("mutex"), "rivals": same("choice"), "watched_by": watched_by}


def _extras(stage: Mapping[str, Any]) -> StageExtras:
    enabled = stage.get("enabled", True)
    return StageExtras(
        args=stage.get("args", []),
        kwargs=stage.get("kwargs", {}),
        conditions={ref: Expression.parse(text) for ref, text in stage.get("conditions", {}).items()},
        enabled=Expression.parse(enabled) if isinstance(enabled, str) else bool(enabled),
        manual_skip=bool(stage.get("manual_skip", False)),
        tasks=tuple(stage.get("tasks", ())),
        instances=stage.get("instances"),
        reducers=stage.get("reducers", {}),
        model=stage.get("model"),
    )
