"""StageExecution: a node of a workflow's graph, and how far it has come."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum
from typing import TYPE_CHECKING, Any, Final

from holdfast.errors import WorkflowDefinitionError, WorkflowError
from holdfast.machine import computed_status
from holdfast.machine.graph import JoinType, SkipCause, SplitType
from holdfast.machine.workflow import WorkflowStatus
from holdfast.workflows.documents import NAMES, TIME, Form, one_of, read_document, write_document
from holdfast.workflows.ids import new_id
from holdfast.workflows.multi_instance import MultiInstanceConfig
from holdfast.workflows.owner import SyntheticStageOwner
from holdfast.workflows.snapshot import StageStateSnapshot, frozen
from holdfast.workflows.spans import seconds
from holdfast.workflows.status import STATUS, start_over
from holdfast.workflows.task_run import UNPLACED, TaskExecution

if TYPE_CHECKING:
    from holdfast.workflows.model import Workflow

ACTIVATED: Final = "activated"
MERGES: Final = "merges"
JUMPS: Final = "jumps"
_KEPT: Final = (JUMPS,)
"""What a new incarnation keeps of the engine's state: the limit of jumps counts all of them."""


@dataclass(kw_only=True)
class StageExecution:
    """A stage: tasks that run one after another, once the stages that it names have come to a good end.

    `context` is what its tasks get, `outputs` what it leaves to the stages after it.
    """

    id: str = field(default_factory=new_id)
    ref_id: str = ""
    type: str = ""
    name: str = ""
    status: WorkflowStatus = STATUS
    version: int = 0
    context: dict[str, Any] = field(default_factory=dict)
    outputs: dict[str, Any] = field(default_factory=dict)
    tasks: list[TaskExecution] = field(default_factory=list)
    requisite_stage_ref_ids: set[str] = field(default_factory=set)
    parent_stage_id: str | None = None
    synthetic_stage_owner: SyntheticStageOwner | None = None
    start_time: datetime | None = None
    end_time: datetime | None = None
    start_time_expiry: datetime | None = None
    """A stage that has not begun by then is skipped."""
    scheduled_time: datetime | None = None
    join_type: JoinType | str = JoinType.AND
    join_threshold: int = 0
    split_type: SplitType | str = SplitType.AND
    split_conditions: dict[str, str] = field(default_factory=dict)
    """For each stage after it, the expression that activates it."""
    mi_config: MultiInstanceConfig | None = None
    mutex_key: str | None = None
    deferred_choice_group: str | None = None
    milestone_ref_id: str | None = None
    milestone_status: WorkflowStatus | None = None
    cancel_region: set[str] = field(default_factory=set)
    output_reducers: dict[str, str] = field(default_factory=dict)
    continue_on_failure: bool = False
    fail_pipeline: bool = True
    allow_sibling_stages_to_continue: bool = False
    complete_other_branches_then_fail: bool = False
    enabled: bool | str = True
    """Or an expression."""
    stage_timeout: float | None = None
    """Seconds; a timedelta becomes seconds."""
    manual_skip: bool = False
    max_jumps: int = 10
    verification: dict[str, Any] | None = None
    incarnation: int = 1
    skip_cause: SkipCause | None = None
    pending_upstreams: int = 0
    engine_state: dict[str, Any] = field(default_factory=dict)
    """What the engine notes for itself; tasks neither read nor write it."""

    def __post_init__(self) -> None:
        self._workflow: Workflow | None = None
        self.requisite_stage_ref_ids = _names(self, "requisite_stage_ref_ids")
        self.cancel_region = _names(self, "cancel_region")
        self.join_type = _known(JoinType, self.join_type)
        self.split_type = _known(SplitType, self.split_type)
        self.milestone_status = _known(WorkflowStatus, self.milestone_status)
        self.synthetic_stage_owner = _known(SyntheticStageOwner, self.synthetic_stage_owner)
        self.stage_timeout = seconds("StageExecution.stage_timeout", self.stage_timeout)
        self.place_tasks()

    @classmethod
    def create(cls, type: str, name: str, ref_id: str, **fields: Any) -> StageExecution:
        return cls(type=type, name=name, ref_id=ref_id, **fields)

    @property
    def label(self) -> str:
        return f"stage {self.ref_id!r}"

    @property
    def phase_version(self) -> tuple[str, int]:
        """Its status and its version: what an update says it expects."""
        return self.status.name, self.version

    @property
    def is_synthetic(self) -> bool:
        """Whether it belongs to another stage."""
        return self.parent_stage_id is not None

    @property
    def activated(self) -> Sequence[str] | None:
        """The stages that its split has chosen; None: all."""
        chosen: Sequence[str] | None = self.engine_state.get(ACTIVATED)
        return chosen

    @property
    def merges(self) -> int:
        """How often its join has fired."""
        return int(self.engine_state.get(MERGES, 0))

    @property
    def workflow(self) -> Workflow:
        """The workflow that it is part of. Raises WorkflowError if it is part of none."""
        if self._workflow is None:
            raise WorkflowError(f"{self.label} is part of no workflow; add it with Workflow.add_stage")
        return self._workflow

    def place_tasks(self) -> None:
        """Give tasks without a position the next one, and sort them."""
        last = -1
        for task in self.tasks:
            if task.position == UNPLACED:
                task.position = last + 1
            last = max(last, task.position)
        self.tasks.sort(key=lambda task: task.position)

    def add_task(self, task: TaskExecution) -> TaskExecution:
        """Append a task."""
        self.tasks.append(task)
        self.place_tasks()
        return task

    def next_task(self, after: TaskExecution | None = None) -> TaskExecution | None:
        """The task after this one, or the first; None: there is none."""
        left = (task for task in self.tasks if after is None or task.position > after.position)
        return min(left, key=lambda task: task.position, default=None)

    def failure_status(self) -> WorkflowStatus:
        """What it becomes if it fails."""
        return computed_status.failure_status(self.continue_on_failure, self.fail_pipeline)

    def determine_status(self) -> WorkflowStatus:
        """What it has come to, judging by its tasks and the stages that belong to it."""
        parts = [task.status for task in self.tasks]
        if self._workflow is None:
            return computed_status.stage_status(parts, (), self.failure_status())
        parts += [stage.status for stage in self.before_stages()]
        return computed_status.stage_status(parts, [one.status for one in self.after_stages()], self.failure_status())

    def upstream_stages(self) -> list[StageExecution]:
        """The stages right before it, by name."""
        return self.workflow.graph.upstream(self)

    def downstream_stages(self) -> list[StageExecution]:
        """The stages right after it, by name."""
        return self.workflow.graph.downstream(self)

    def ancestors(self) -> list[StageExecution]:
        """All stages before it, each after those before it; a part of a stage has those of the stage as well."""
        return self.workflow.graph.ancestors(self)

    def parent(self) -> StageExecution | None:
        """The stage that it belongs to."""
        return next((one for one in self.workflow.stages if one.id == self.parent_stage_id), None)

    def before_stages(self) -> list[StageExecution]:
        return self.synthetic_stages(SyntheticStageOwner.STAGE_BEFORE)

    def after_stages(self) -> list[StageExecution]:
        return self.synthetic_stages(SyntheticStageOwner.STAGE_AFTER)

    def on_failure_stages(self) -> list[StageExecution]:
        return self.synthetic_stages(SyntheticStageOwner.STAGE_ON_FAILURE)

    def synthetic_stages(self, owner: SyntheticStageOwner) -> list[StageExecution]:
        """The stages that belong to it in that way."""
        mine = (one for one in self.workflow.stages if one.parent_stage_id == self.id)
        return [one for one in mine if one.synthetic_stage_owner is owner]

    def state_snapshot(self) -> StageStateSnapshot:
        """It as it is now, to read."""
        return StageStateSnapshot(
            id=self.id,
            ref_id=self.ref_id,
            type=self.type,
            name=self.name,
            status=self.status,
            version=self.version,
            incarnation=self.incarnation,
            skip_cause=self.skip_cause,
            start_time=self.start_time,
            end_time=self.end_time,
            context=frozen(self.context, f"{self.label}.context"),
            outputs=frozen(self.outputs, f"{self.label}.outputs"),
            tasks=tuple(task.state_snapshot() for task in self.tasks),
        )

    def reset(self) -> None:
        """Begin a new incarnation: as it was defined, with the context that it has now. The only way back."""
        start_over(self)
        self.incarnation += 1
        self.start_time = self.end_time = self.skip_cause = None
        self.outputs = {}
        self.pending_upstreams = 0
        self.engine_state = {key: self.engine_state[key] for key in _KEPT if key in self.engine_state}
        for task in self.tasks:
            task.reset()

    def to_document(self, *, with_tasks: bool = True) -> dict[str, Any]:
        """Raises TypeError or ValueError naming the way to a value that is not JSON."""
        return write_document(self, self.label, _FORMS, () if with_tasks else ("tasks",))

    @classmethod
    def from_document(cls, document: Mapping[str, Any]) -> StageExecution:
        """Raises SchemaError for a document that this program does not understand."""
        return read_document(cls, "stage", document, _FORMS)


def _names(stage: StageExecution, name: str) -> set[str]:
    given: Iterable[str] = getattr(stage, name)
    if isinstance(given, str):
        raise WorkflowDefinitionError(
            "not_a_list", f"{stage.label}: {name} must be a list of stages, got the text {given!r}", (stage.ref_id,)
        )
    return set(given)


def _known(words: type[StrEnum], word: Any) -> Any:
    # An unknown one stays as it is: `validate` refuses it, and readiness is undefined.
    return words(word) if word in frozenset(words) else word


_FORMS: Final[Mapping[str, Form]] = {
    "status": one_of(WorkflowStatus),
    "tasks": Form(
        lambda tasks, path: [task.to_document() for task in tasks],
        lambda stored, path: [TaskExecution.from_document(one) for one in stored],
    ),
    "requisite_stage_ref_ids": NAMES,
    "synthetic_stage_owner": one_of(SyntheticStageOwner),
    "start_time": TIME,
    "end_time": TIME,
    "start_time_expiry": TIME,
    "scheduled_time": TIME,
    "join_type": one_of(JoinType, strict=False),
    "split_type": one_of(SplitType, strict=False),
    "mi_config": Form(
        lambda config, path: None if config is None else config.to_document(),
        lambda stored, path: None if stored is None else MultiInstanceConfig.from_document(stored),
    ),
    "milestone_status": one_of(WorkflowStatus),
    "cancel_region": NAMES,
    "skip_cause": one_of(SkipCause),
}
