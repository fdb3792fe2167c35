"""A definition as the machine wants to see it, and what else is known of its stages."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from hashlib import sha256
from typing import Any, Final, NamedTuple

from holdfast.machine.graph import JoinType, SplitType, downstream
from holdfast.machine.instances import Stages, base_of
from holdfast.machine.run import Instances, Owner, Plan, StagePlan, TaskPlan
from holdfast.machine.workflow import WorkflowStatus
from holdfast.store.codec import from_json
from holdfast.workflows.binding import Binding, sources
from holdfast.workflows.expressions import Expression

_FLAGS: Final = (
    "continue_on_failure", "fail_pipeline", "allow_sibling_stages_to_continue", "complete_other_branches_then_fail",
    "max_jumps",
)  # fmt: skip


class StageExtras(NamedTuple):
    """What the machine does not decide on by itself."""

    args: Sequence[Binding]
    kwargs: dict[str, Binding]
    sources: tuple[str, ...]
    """The stages that its arguments come from."""
    conditions: Mapping[str, Expression]
    """For each stage after it, what activates it."""
    enabled: bool | Expression
    manual_skip: bool
    is_wanted: bool
    """Whatever the data says."""
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
    patches: tuple[str, ...] = ()
    """What the code had that it was made by: see `patched`."""
    dead_letter: bool = True
    """Whether a run that fails for good leaves a dead letter."""

    def has(self, ref: str) -> bool:
        """Whether there is such a stage, or one that it is an instance of."""
        return base_of(ref) in self.extras


def id_of(text: str) -> str:
    """Equal definitions have equal ids."""
    return sha256(text.encode()).hexdigest()[:32]


def parse_blueprint(text: str) -> Blueprint:
    document = from_json(text)
    found: dict[str, Any] = {stage["ref"]: stage for stage in document["stages"]}
    requires = {ref: tuple(stage.get("requires", ())) for ref, stage in found.items()}
    after = downstream(requires)
    kin = _Kin(found)
    stages = {ref: _stage(stage, requires[ref], tuple(after[ref]), kin.of(stage)) for ref, stage in found.items()}
    roots = [ref for ref, stage in found.items() if not requires[ref] and stage.get("parent") is None]
    return Blueprint(
        id=id_of(text),
        name=document["name"],
        version=str(document.get("version", "1")),
        text=text,
        plan=Plan(Stages(stages), tuple(roots)),
        extras=_Extras({ref: _extras(stage) for ref, stage in found.items()}),
        result=document.get("result"),
        patches=tuple(document.get("patches", ())),
        dead_letter=document.get("dead_letter", True),
    )


def _stage(
    stage: Mapping[str, Any],
    before: tuple[str, ...],
    after: tuple[str, ...],
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
        scheduled_at=stage.get("scheduled_at"),
        expires_at=stage.get("expires_at"),
        limit_s=stage.get("limit_s"),
        milestone=None if milestone is None else (milestone[0], WorkflowStatus(milestone[1])),
        cancel_region=tuple(stage.get("cancel_region", ())),
        instances=None if several is None else Instances(**{name: several[name] for name in Instances._fields}),
        **kin,
        **{name: stage[name] for name in _FLAGS if name in stage},
    )


class _Kin:
    """The stages that have something to do with a stage without coming before or after it; found once for all."""

    def __init__(self, found: Mapping[str, Any]) -> None:
        self._parts: defaultdict[tuple[str, str], list[str]] = defaultdict(list)
        self._same: defaultdict[tuple[str, Any], list[str]] = defaultdict(list)
        self._watchers: defaultdict[str, list[str]] = defaultdict(list)
        for ref, stage in found.items():
            if stage.get("parent") is not None:
                self._parts[stage["parent"], stage["owner"]].append(ref)
            if stage.get("milestone"):
                self._watchers[stage["milestone"][0]].append(ref)
            for key in ("mutex", "choice"):
                self._same[key, stage.get(key)].append(ref)

    def of(self, stage: Mapping[str, Any]) -> dict[str, Any]:
        ref = stage["ref"]
        return {
            "children": {owner: tuple(self._parts[ref, owner]) for owner in Owner if (ref, owner) in self._parts},
            "watched_by": tuple(self._watchers.get(ref, ())),
            "peers": self._others("mutex", stage),
            "rivals": self._others("choice", stage),
        }

    def _others(self, key: str, stage: Mapping[str, Any]) -> tuple[str, ...]:
        mine = stage.get(key)
        return () if mine is None else tuple(one for one in self._same[key, mine] if one != stage["ref"])


def _extras(stage: Mapping[str, Any]) -> StageExtras:
    enabled, args, kwargs = stage.get("enabled", True), stage.get("args", []), stage.get("kwargs", {})
    manual_skip = bool(stage.get("manual_skip", False))
    return StageExtras(
        args=args,
        kwargs=kwargs,
        sources=tuple({ref: None for binding in (*args, *kwargs.values()) for ref in sources(binding)}),
        conditions={ref: Expression.parse(text) for ref, text in stage.get("conditions", {}).items()},
        enabled=Expression.parse(enabled) if isinstance(enabled, str) else bool(enabled),
        manual_skip=manual_skip,
        is_wanted=bool(enabled) and not isinstance(enabled, str) and not manual_skip,
        tasks=tuple(stage.get("tasks", ())),
        instances=stage.get("instances"),
        reducers=stage.get("reducers", {}),
        model=stage.get("model"),
    )
