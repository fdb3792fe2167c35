"""How a workflow ends whose tasks always answer the same, by the rules alone: without an order, without time."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from holdfast.machine.graph import JoinType, SkipCause
from holdfast.machine.run_state import Owner
from holdfast.machine.workflow import WorkflowStatus

S = WorkflowStatus
LOST = frozenset({S.TERMINAL, S.STOPPED, S.CANCELED})


@dataclass
class Foreseen:
    """A stage, and what each of its tasks comes to."""

    ref: str
    answer: WorkflowStatus
    before: list[str] = field(default_factory=list)
    join: JoinType = JoinType.AND
    threshold: int = 0
    branches: dict[str, bool] | None = None
    """Where an OR split leads."""
    parent: str | None = None
    owner: Owner | None = None
    goes_on: bool = False
    """Whether what comes after it runs also if it fails."""
    is_disabled: bool = False
    instances: int = 0
    tasks: int = 1


class Ends:
    """Where every stage stands in the end; a skipped one with its cause. Of parts that a failure cuts off nobody can
    tell: `open`."""

    def __init__(self, stages: Mapping[str, Foreseen]) -> None:
        self._stages = stages
        self.status: dict[str, WorkflowStatus] = {}
        self._causes: dict[str, SkipCause] = {}
        self._taken: dict[str, list[str]] = {}
        self.open: set[str] = set()
        for one in stages.values():
            if one.parent is None:
                self._settle(one)

    @property
    def workflow(self) -> WorkflowStatus:
        tops = [self.status[ref] for ref, one in self._stages.items() if one.parent is None]
        return next((one for one in (S.TERMINAL, S.CANCELED) if one in tops), S.SUCCEEDED)

    def known(self) -> dict[str, WorkflowStatus]:
        return {ref: status for ref, status in self.status.items() if ref not in self.open}

    def _settle(self, stage: Foreseen) -> None:
        edges = [edge for one in stage.before if (edge := self._leads(one, stage.ref)) is not None]
        good, wanted = sum(edges), len(edges)
        if stage.join in (JoinType.DISCRIMINATOR, JoinType.MULTI_MERGE):
            wanted = 1
        elif stage.join is JoinType.N_OF_M and stage.threshold:
            wanted = stage.threshold
        if stage.before and not edges:
            self._skip(stage.ref, SkipCause.PRUNED)
        elif stage.before and good < wanted:
            self._skip(stage.ref, SkipCause.UPSTREAM_FAILED)
        elif stage.is_disabled:
            self._skip(stage.ref, SkipCause.DISABLED)
        else:
            self.status[stage.ref] = status = self._run(stage)
            if stage.branches is not None and status not in LOST:
                self._taken[stage.ref] = [ref for ref, holds in stage.branches.items() if holds]
                self._taken[stage.ref] = self._taken[stage.ref] or [*stage.branches][:1]

    def _leads(self, before: str, ref: str) -> bool | None:
        """Whether one before a stage has come to a good end; None: no branch leads from it."""
        if self._is_lost(before):
            return False
        is_dead = self._causes.get(before) is SkipCause.PRUNED or ref not in self._taken.get(before, [ref])
        return None if is_dead else True

    def _is_lost(self, ref: str) -> bool:
        return self.status[ref] in LOST or self._causes.get(ref) is SkipCause.UPSTREAM_FAILED

    def _run(self, stage: Foreseen) -> WorkflowStatus:
        before, answer, lost = self._parts(stage, Owner.STAGE_BEFORE), stage.answer, Owner.STAGE_AFTER
        if answer in (S.STOPPED, S.CANCELED) and stage.instances:
            answer = S.TERMINAL  # too few of them came to a good end
        if before is S.TERMINAL or answer is S.TERMINAL:
            self._cut(stage, lost)
            return self._failed(stage)
        if answer in LOST:
            self._cut(stage, lost, Owner.STAGE_ON_FAILURE)
            return answer
        after = self._parts(stage, Owner.STAGE_AFTER)
        if after is S.TERMINAL:
            return self._failed(stage)
        self._cut(stage, Owner.STAGE_ON_FAILURE)
        return S.FAILED_CONTINUE if S.FAILED_CONTINUE in (before, answer, after) else S.SUCCEEDED

    def _failed(self, stage: Foreseen) -> WorkflowStatus:
        self._parts(stage, Owner.STAGE_ON_FAILURE)
        return S.FAILED_CONTINUE if stage.goes_on else S.TERMINAL

    def _parts(self, stage: Foreseen, owner: Owner) -> WorkflowStatus:
        parts = self._of(stage, owner)
        for one in parts:
            self._settle(one)
        if any(self._is_lost(one.ref) for one in parts):
            for one in parts:
                self._leave_open(one)
            return S.TERMINAL
        flawed = any(self.status[one.ref] is S.FAILED_CONTINUE for one in parts)
        return S.FAILED_CONTINUE if flawed else S.SUCCEEDED

    def _leave_open(self, stage: Foreseen) -> None:
        self.open.add(stage.ref)
        for one in self._of(stage, *Owner):
            self._leave_open(one)

    def _of(self, stage: Foreseen, *owners: Owner) -> list[Foreseen]:
        return [one for one in self._stages.values() if one.parent == stage.ref and one.owner in owners]

    def _cut(self, stage: Foreseen, *owners: Owner) -> None:
        for one in self._of(stage, *owners):
            self._skip(one.ref, SkipCause.PRUNED)

    def _skip(self, ref: str, cause: SkipCause) -> None:
        self.status[ref], self._causes[ref] = S.SKIPPED, cause
        self._cut(self._stages[ref], *Owner)
