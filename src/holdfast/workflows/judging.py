"""What a workflow decides by its data: which branches a split takes, and whether a stage is wanted."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from holdfast.errors import TaskError
from holdfast.machine.graph import SkipCause
from holdfast.machine.instances import check_number, names_of
from holdfast.machine.run import Missing, StagePlan, StageState
from holdfast.workflows.expressions import Expression
from holdfast.workflows.merging import merge_ancestors
from holdfast.workflows.plan import Blueprint


class DataJudge:
    """Looks at what stages have left. `stage_of` gives the state of a stage, or raises Missing."""

    def __init__(
        self,
        blueprint: Blueprint,
        inputs: Callable[[], dict[str, Any]],
        stage_of: Callable[[str], StageState],
        *,
        strict: bool = False,
    ) -> None:
        self._strict = strict
        self._blueprint = blueprint
        self._inputs = inputs
        self._stage_of = stage_of

    def branches(self, stage: StageState) -> list[str] | None:
        conditions = self._blueprint.extras[stage.plan.ref].conditions
        names = self.seen(stage) | stage.context | stage.outputs
        return [ref for ref in stage.plan.after if ref not in conditions or bool(conditions[ref].evaluate(names))]

    def skips(self, stage: StageState) -> SkipCause | None:
        extras = self._blueprint.extras[stage.plan.ref]
        if extras.manual_skip:
            return SkipCause.MANUAL
        enabled = extras.enabled
        if isinstance(enabled, Expression):
            enabled = bool(enabled.evaluate(self.seen(stage) | stage.context))
        return None if enabled else SkipCause.DISABLED

    def instances(self, stage: StageState) -> Sequence[Any]:
        config = self._blueprint.extras[stage.plan.ref].instances or {}
        names = self.seen(stage) | stage.context
        if (key := config.get("items_from")) is not None:
            items = names.get(key)
            if not isinstance(items, list):
                raise TaskError(
                    f"stage {stage.plan.ref!r} has an instance for each of {key!r}, which is no list: {items!r}"
                )
            check_number(stage.plan.ref, len(items))
            return items
        key = config.get("count_from")
        number = config.get("count") if key is None else names.get(key)
        if key is not None and (isinstance(number, bool) or not isinstance(number, int) or number < 0):
            raise TaskError(f"stage {stage.plan.ref!r} has {key!r} instances, which is no number of them: {number!r}")
        check_number(stage.plan.ref, number or 0)
        return (None,) * (number or 0)

    def seen(self, stage: StageState) -> dict[str, Any]:
        """What a stage sees: the workflow's context, and what the stages before it have left."""
        plan = self._blueprint.plan.stages
        requisites = {ref: one.before for ref, one in plan.items()}
        requisites[stage.plan.ref] = stage.plan.before
        for whole in self._wholes(stage):  # a part of a stage sees what the stage sees
            requisites[stage.plan.ref] += whole.before
        before = _ancestors(stage.plan.ref, requisites)
        outputs = {ref: self._left(ref) for ref in before}
        reducers = self._reducers(stage, before)
        merged = merge_ancestors(stage.plan.ref, requisites, outputs, strict=self._strict, reducers=reducers)
        return self._inputs() | merged.values

    def _reducers(self, stage: StageState, before: Sequence[str]) -> dict[str, Mapping[str, str]]:
        extras, own = self._blueprint.extras, stage.plan.ref
        found = {ref: extras[ref].reducers for ref in (*before, own)}
        for whole in self._wholes(stage):
            found[own] = {**extras[whole.ref].reducers, **found[own]}
        return found

    def _wholes(self, stage: StageState) -> Iterator[StagePlan]:
        """The stage that it is a part of, the one that this is a part of, and so on."""
        parent = stage.plan.parent
        while parent is not None:
            whole = self._blueprint.plan.stages[parent]
            yield whole
            parent = whole.parent

    def _left(self, ref: str) -> dict[str, Any]:
        """What a stage has left; of one with instances also what each of them has, as `<ref>_instances`."""
        stage = self._stage_of(ref)
        names, lacking = names_of(stage), list[str]()
        for name in names:
            try:
                self._stage_of(name)
            except Missing:
                lacking.append(name)
        if lacking:
            raise Missing(*lacking)
        return (
            stage.outputs | {f"{ref}_instances": [self._stage_of(name).outputs for name in names]}
            if names
            else stage.outputs
        )


def _ancestors(ref: str, requisites: dict[str, tuple[str, ...]]) -> list[str]:
    found: dict[str, None] = {}
    left = list(requisites[ref])
    while left:
        one = left.pop()
        if one not in found:
            found[one] = None
            left += requisites[one]
    return list(found)
