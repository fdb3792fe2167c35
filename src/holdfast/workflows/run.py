"""One workflow in the memory of a worker: as it is stored, and as the machine works on it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

from holdfast.machine.graph import SkipCause
from holdfast.machine.instances import base_of
from holdfast.machine.run import Advance, Cleanup, Missing, StageState
from holdfast.machine.workflow import WorkflowStatus
from holdfast.store.codec import from_json, objects_to_json, plain_to_json
from holdfast.store.ids import new_record_id
from holdfast.store.port import Change, Insert, Store, Swap
from holdfast.telemetry.causation import CAUSATION_FIELD
from holdfast.workflows.judging import DataJudge
from holdfast.workflows.log import MOST_BEHIND, entry_id
from holdfast.workflows.plan import Blueprint
from holdfast.workflows.records import (
    EVENT,
    FINALIZE,
    ITEM,
    STAGE,
    WORKFLOW,
    ItemRecord,
    StageRecord,
    WorkflowRecord,
    priority_of,
    run_state,
    stage_state,
    stage_text,
)

CAUSED_BY: Final = "caused_by"
"""In what is told of a workflow: where it comes from."""
_TELLS_CAUSE: Final = f'"{CAUSED_BY}"'
RUNNING: Final = WorkflowStatus.RUNNING
_NAME, _LIVE = WorkflowRecord._fields.index("name"), WorkflowRecord._fields.index("live")
_WORKFLOW, _STATUS = StageRecord._fields.index("workflow"), StageRecord._fields.index("status")
# Python's search for cycles passes over tuples of texts and numbers, but not over their kin.
Rows = dict[str, tuple[Any, ...]]
"""Stages as they are stored: what records are made of."""
AHEAD: Final = 32
"""How many stages are read at once, if they are needed one after the other."""


class Run:
    """A workflow. `seq` is the number of the last entry in its log; `is_new` before anything of it is stored; `strict`:
    outputs that clash are an error.

    States are changed in place by the machine; `forget` throws away what was not stored.
    """

    def __init__(
        self, record: WorkflowRecord, blueprint: Blueprint, seq: int, *, is_new: bool = False, strict: bool = False
    ) -> None:
        self.id = record.id
        self.record = record
        self.seq = seq
        self.blueprint = blueprint
        self.state = run_state(record)
        self.about = record.about
        """JSON: what is told of it, to be stored with the next step."""
        self.is_new = is_new
        self.goes_on = False
        """Whether a worker has it in its hands, as far as that one knows."""
        self.strict = strict
        # Nothing here leads back to the run: what is done with goes at once, and not when Python looks for cycles.
        self._stages = _Stages(blueprint if is_new else None)
        self.knows_all = is_new
        """Whether every stage that something has happened to is here: the others are as the definition says."""
        self._rows: Rows = {}
        self._inputs: dict[str, Any] | None = None
        self._caused_by: Mapping[str, str] | None = None
        self._cause: str | None = None

    @property
    def judge(self) -> DataJudge:
        """Who answers the machine; a run asks him where the definition alone does not tell."""
        return DataJudge(self.blueprint, self._given, self._found, strict=self.strict)

    @property
    def inputs(self) -> dict[str, Any]:
        found = self._inputs
        if found is None:
            found = self._inputs = from_json(self.record.context)
        return found

    @property
    def code(self) -> str | None:
        """The code version that it was started with, where one was named."""
        return from_json(self.about).get("code_version") if '"code_version"' in self.about else None

    @property
    def caused_by(self) -> Mapping[str, str]:
        """Where it comes from: a causation id, and the headers of a trace, where it was started by what has them."""
        found = self._caused_by
        if found is None:
            found = self._caused_by = from_json(self.about)[CAUSED_BY] if _TELLS_CAUSE in self.about else {}
        return found

    @property
    def cause(self) -> str:
        """The id of what it follows from: its own, when nothing else is known."""
        found = self._cause
        if found is None:
            found = self._cause = self.caused_by.get(CAUSATION_FIELD) or self.id
        return found

    def advance(self, now: int) -> Advance:
        """A step of the machine over the states that are here."""
        return Advance(self.blueprint.plan, self.state, self._stages, now, self)

    def branches(self, stage: StageState) -> list[str] | None:
        return self.judge.branches(stage)

    def skips(self, stage: StageState) -> SkipCause | None:
        return None if self.blueprint.extras[stage.plan.ref].is_wanted else self.judge.skips(stage)

    def instances(self, stage: StageState) -> Sequence[Any]:
        return self.judge.instances(stage)

    def lacks(self, refs: Iterable[str]) -> list[str]:
        return [ref for ref in refs if ref not in self._stages]

    def stage(self, ref: str) -> StageState:
        return self._stages[ref]

    def left(self, ref: str) -> Any:
        """What a stage that was made of a function has left. It must be here."""
        return self._stages[ref].outputs.get("result")

    def key_of(self, ref: str, at: int) -> str:
        """The idempotency key of a task. The stage must be here, and the one that it is an instance of."""
        stage = self._stages[ref]
        if "#" in ref and (base := base_of(ref)) != ref:
            ref = f"{base}#{self._stages[base].key_incarnation}.{ref.rpartition('.')[2]}"
        return f"{self.id}.{ref}.{stage.key_incarnation}.{at}"

    def version_of(self, ref: str) -> int:
        """The version of a stage's record; 0 for one that nothing has happened to."""
        found = self.as_stored(ref)
        return 0 if found is None else found.version

    def stood(self, status: WorkflowStatus, refs: Iterable[str]) -> list[str]:
        """Those of the stages that stood so when they were stored last."""
        rows = self._rows
        return [ref for ref in refs if ref in rows and rows[ref][_STATUS] == status]

    def as_stored(self, ref: str) -> StageRecord | None:
        """A stage that was read or stored here, as it was stored last."""
        row = self._rows.get(ref)
        return None if row is None else STAGE.make(row)

    def _given(self) -> dict[str, Any]:
        return self.inputs

    def _found(self, ref: str) -> StageState:
        try:
            return self._stages[ref]
        except KeyError:
            raise Missing(ref) from None

    def ahead(self, refs: Iterable[str]) -> list[str]:
        """What is not here of these stages and of those that hear of their ends, and then some that come later: so a
        chain of stages is read in a few goes."""
        plan, near = self.blueprint.plan.stages, list(refs)
        for ref in [*near]:
            near += plan[ref].after
            if (parent := plan[ref].parent) is not None:
                near.append(parent)
        lacking = dict.fromkeys(ref for ref in near if ref not in self._stages)
        if lacking:
            for ref in near:  # which grows
                if len(lacking) >= AHEAD:
                    break
                more = [one for one in plan[ref].after if one not in self._stages and one not in lacking]
                lacking |= dict.fromkeys(more)
                near += more
        return list(lacking)

    def ids_of(self, refs: Iterable[str]) -> list[str]:
        return [f"{self.id}.{ref}" for ref in refs]

    def add(self, refs: Sequence[str], records: Sequence[StageRecord | None]) -> None:
        """States that were read; a stage that nothing has happened to has no record."""
        for ref, record in zip(refs, records, strict=True):
            if record is None:
                self._stages[ref] = _fresh(self.blueprint, ref)
            else:
                # The same objects as in what is made of it: whoever writes that tells by them what has changed.
                self._rows[ref] = (*record[:_WORKFLOW], self.id, ref, *record[_STATUS:])
                self._stages[ref] = stage_state(self.blueprint.plan.stages[ref], record)

    def read(self, store: Store, refs: Iterable[str]) -> None:
        if lacking := self.lacks(refs):
            self._have(store, lacking)

    def _have(self, store: Store, lacking: list[str]) -> None:
        found = [None] * len(lacking) if self.knows_all else store.get(STAGE, self.ids_of(lacking))
        self.add(lacking, found)

    def changes(self, step: Advance, *, fenced: bool = False) -> tuple[list[Change], WorkflowRecord, Rows]:
        """What is to be stored of a step, the record as it will be then, and the rows of stages.

        Only one step can have an entry's number: who was second finds it taken. So where an item tells this workflow
        from another one that had its id (`fenced`), and nothing but its stages has changed, its record is left alone
        for a few steps.
        """
        new, id, seq = self.record, self.id, self.seq + 1
        # The first of all changes: who waits for another one's transaction holds nothing yet that is waited for.
        log = (entry_id(id, seq), 1, None, id, step.now, objects_to_json(step.events))
        changes: list[Change] = [Insert(EVENT, EVENT.make(log))]
        if not fenced or not self._is_as_stored():
            new = self._next(seq)
            changes.append(Insert(WORKFLOW, new) if self.is_new else Swap(WORKFLOW, self.record, new))
        rows: Rows = {}
        for ref, stage in step.changed.items():
            before = self._rows.get(ref)
            # What is as it was is handed on as it is: whoever writes it need not compare.
            rows[ref] = row = (
                f"{id}.{ref}" if before is None else before[0], 1 if before is None else before[1] + 1, None, id,
                ref, stage.status._value_, stage.incarnation, stage.started_at, stage.ended_at, stage_text(stage),
                plain_to_json(stage.context) if stage.context else "{}",
                plain_to_json(stage.outputs) if stage.outputs else "{}",
            )  # fmt: skip
            after = STAGE.make(row)
            changes.append(Insert(STAGE, after) if before is None else Swap(STAGE, STAGE.make(before), after))
        if step.cleanups:
            changes += [self._finalize(step, cleanup) for cleanup in step.cleanups]
        return changes, new, rows

    def _is_as_stored(self) -> bool:
        """Whether it goes on as its record says, which was not written too long ago."""
        old, state = self.record, self.state
        return (
            state.status is RUNNING
            and state.live == old.live
            and self.seq - old.version < MOST_BEHIND
            and old.status == RUNNING
            and self.about is old.about
            and (state.halts, state.reason, state.started_at) == (old.halts, old.reason, old.started_at)
        )

    def _next(self, seq: int) -> WorkflowRecord:
        old, state = self.record, self.state
        return WORKFLOW.make((
            old.id, seq, old.due_at, state.status._value_, *old[_NAME:_LIVE], state.live, state.halts, old.created_at,
            state.started_at, state.ended_at, state.reason, old.context, self.about,
        ))  # fmt: skip

    def _finalize(self, step: Advance, cleanup: Cleanup) -> Change:
        """An item for anybody, also when the workflow is paused or over."""
        record, (ref, incarnation, cut) = self.record, cleanup
        item = ItemRecord(
            new_record_id(step.now), 1, step.now, record.queue, priority_of(record), FINALIZE, "", None, record.id, ref,
            incarnation, cut, 1, 0,
        )  # fmt: skip
        return Insert(ITEM, item)

    def stored(self, record: WorkflowRecord, rows: Rows) -> None:
        """The changes of a step are in the store."""
        self.record = record
        self.seq += 1
        self._rows.update(rows)
        self.is_new = False


def _fresh(blueprint: Blueprint, ref: str) -> StageState:
    """A stage that nothing has happened to."""
    stage = StageState(blueprint.plan.stages[ref])
    model = blueprint.extras[ref].model
    if model is not None:
        stage.context = dict(model.get("context") or {})
    return stage


class _Stages(dict[str, StageState]):
    """The states that are here. With a blueprint, one that is not was never changed: it is made when somebody asks."""

    def __init__(self, blueprint: Blueprint | None) -> None:
        self._blueprint = blueprint

    def __missing__(self, ref: str) -> StageState:
        if self._blueprint is None:
            raise KeyError(ref)
        stage = self[ref] = _fresh(self._blueprint, ref)
        return stage
