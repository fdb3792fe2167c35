"""One workflow in the memory of a worker: as it is stored, and as the machine works on it."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from holdfast.machine.run import Advance, Missing, StagePlan, StageState
from holdfast.store.codec import from_json, plain_to_json
from holdfast.store.port import Change, Insert, Store, Swap
from holdfast.workflows.judging import DataJudge
from holdfast.workflows.plan import Blueprint
from holdfast.workflows.records import (
    EVENT,
    STAGE,
    WORKFLOW,
    EventRecord,
    StageRecord,
    WorkflowRecord,
    run_state,
    stage_state,
    stage_text,
)


class Run:
    """A workflow. `is_new` before anything of it is stored.

    States are changed in place by the machine; `forget` throws away what was not stored.
    """

    def __init__(self, record: WorkflowRecord, blueprint: Blueprint, *, is_new: bool = False) -> None:
        self.record = record
        self.blueprint = blueprint
        self.state = run_state(record)
        self.about = record.about
        """JSON: what is told of it, to be stored with the next step."""
        self.is_new = is_new
        self.held = 0
        """How many items of it this worker has."""
        self._stages: dict[str, StageState] = {}
        self._records: dict[str, StageRecord] = {}
        self._inputs: dict[str, Any] | None = None
        self.judge = DataJudge(blueprint, lambda: self.inputs, self._found)
        if is_new:
            self._stages = {ref: self._fresh(plan) for ref, plan in blueprint.plan.stages.items()}

    @property
    def id(self) -> str:
        return self.record.id

    @property
    def inputs(self) -> dict[str, Any]:
        found = self._inputs
        if found is None:
            found = self._inputs = from_json(self.record.context)
        return found

    def advance(self, now: int) -> Advance:
        """A step of the machine over the states that are here."""
        return Advance(self.blueprint.plan, self.state, self._stages, now, self.judge)

    def lacks(self, refs: Iterable[str]) -> list[str]:
        return [ref for ref in refs if ref not in self._stages]

    def stage(self, ref: str) -> StageState:
        return self._stages[ref]

    def _found(self, ref: str) -> StageState:
        found = self._stages.get(ref)
        if found is None:
            raise Missing(ref)
        return found

    def _fresh(self, plan: StagePlan) -> StageState:
        """A stage that nothing has happened to."""
        stage = StageState(plan)
        model = self.blueprint.extras[plan.ref].model
        if model is not None:
            stage.context = dict(model.get("context") or {})
        return stage

    def ids_of(self, refs: Iterable[str]) -> list[str]:
        return [f"{self.record.id}.{ref}" for ref in refs]

    def add(self, refs: Sequence[str], records: Sequence[StageRecord | None]) -> None:
        """States that were read; a stage that nothing has happened to has no record."""
        for ref, record in zip(refs, records, strict=True):
            plan = self.blueprint.plan.stages[ref]
            if record is None:
                self._stages[ref] = self._fresh(plan)
            else:
                self._records[ref] = record
                self._stages[ref] = stage_state(plan, record)

    def read(self, store: Store, refs: Iterable[str]) -> None:
        lacking = self.lacks(refs)
        if lacking:
            self.add(lacking, store.get(STAGE, self.ids_of(lacking)))

    def changes(self, step: Advance) -> tuple[list[Change], WorkflowRecord, dict[str, StageRecord]]:
        """What is to be stored of a step, and the records as they will be then."""
        old, state = self.record, self.state
        new = WorkflowRecord(
            old.id, old.version + 1, old.due_at, state.status.value, old.name, old.application, old.definition,
            old.queue, old.priority, old.pipeline, old.idempotency_key, old.parent, state.live, state.halts,
            old.created_at, state.started_at, state.ended_at, state.reason, old.context, self.about,
        )  # fmt: skip
        changes: list[Change] = [Insert(WORKFLOW, new) if self.is_new else Swap(WORKFLOW, old, new)]
        records: dict[str, StageRecord] = {}
        for ref, stage in step.changed.items():
            before = self._records.get(ref)
            records[ref] = after = StageRecord(
                f"{old.id}.{ref}", 1 if before is None else before.version + 1, None, old.id, ref, stage.status.value,
                stage.incarnation, stage.started_at, stage.ended_at, stage_text(stage), plain_to_json(stage.context),
                plain_to_json(stage.outputs),
            )  # fmt: skip
            changes.append(Insert(STAGE, after) if before is None else Swap(STAGE, before, after))
        log = EventRecord(f"{old.id}.{new.version:09d}", 1, None, old.id, step.now, plain_to_json(step.events))
        changes.append(Insert(EVENT, log))
        return changes, new, records

    def stored(self, record: WorkflowRecord, records: dict[str, StageRecord]) -> None:
        """The changes of a step are in the store."""
        self.record = record
        self._records.update(records)
        self.is_new = False
