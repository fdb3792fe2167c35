"""Workflow: a graph of stages, and how far it has come."""

from __future__ import annotations

from collections.abc import Container, Iterable, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum
from typing import Any, Final

from holdfast.core.clock import SYSTEM_CLOCK, Clock
from holdfast.errors import StageNotFoundError, WorkflowDefinitionError
from holdfast.machine import computed_status
from holdfast.machine.workflow import WorkflowStatus
from holdfast.workflows.documents import TIME, Form, one_of, read_document, write_document
from holdfast.workflows.ids import new_id, trouble_with
from holdfast.workflows.neighbours import Neighbours
from holdfast.workflows.stage import StageExecution
from holdfast.workflows.status import STATUS
from holdfast.workflows.trigger import PausedDetails, Trigger
from holdfast.workflows.validation import check_workflow


class WorkflowType(StrEnum):
    """Whether a workflow was made from a stored definition or for once."""

    PIPELINE = "PIPELINE"
    ORCHESTRATION = "ORCHESTRATION"


@dataclass(kw_only=True)
class Workflow:
    """A run of a graph of stages.

    Made by `create` it is checked at once; made like any dataclass it is checked when it is stored. A user's own
    `config_version` is kept, otherwise the engine notes with which configuration it was started.
    """

    id: str = field(default_factory=new_id)
    type: WorkflowType = WorkflowType.PIPELINE
    application: str = ""
    name: str = ""
    status: WorkflowStatus = STATUS
    version: int = 0
    stages: list[StageExecution] = field(default_factory=list)
    context: dict[str, Any] = field(default_factory=dict)
    trigger: Trigger = field(default_factory=Trigger)
    start_time: datetime | None = None
    end_time: datetime | None = None
    start_time_expiry: datetime | None = None
    """One that has not begun by then is cancelled."""
    is_canceled: bool = False
    canceled_by: str | None = None
    cancellation_reason: str | None = None
    paused: PausedDetails | None = None
    pipeline_config_id: str | None = None
    is_limit_concurrent: bool = False
    max_concurrent_executions: int = 0
    keep_waiting_pipelines: bool = True
    config_version: str | None = None
    origin: str = "unknown"
    idempotency_key: str | None = None
    code_version: str | None = None
    parent_workflow_id: str | None = None
    queue: str = "default"
    priority: int = 0
    dead_letter: bool = True
    """Whether it leaves a dead letter when it fails for good."""
    forked_from: tuple[str, str] | None = None
    """The run that it was forked from, and the stage that it began with."""

    def __post_init__(self) -> None:
        self.config_values: Mapping[str, Any] | None = None
        """Of one that was started: every field of the engine's configuration then. `config_drift` compares them."""
        self.type = WorkflowType(self.type)
        self._adopt()

    @classmethod
    def create(
        cls,
        application: str,
        name: str,
        stages: Iterable[StageExecution] = (),
        *,
        tasks: Container[str] | None = None,
        stage_types: Container[str] | None = None,
        clock: Clock = SYSTEM_CLOCK,
        **fields: Any,
    ) -> Workflow:
        """A workflow that can run.

        `tasks` and `stage_types` are the names that are registered, if known. Raises WorkflowDefinitionError.
        """
        fields.setdefault("id", new_id(clock))
        made = cls(application=application, name=name, stages=list(stages), **fields)
        made.validate(tasks=tasks, stage_types=stage_types)
        return made

    @property
    def label(self) -> str:
        return f"workflow {self.name or self.id!r}"

    @property
    def phase_version(self) -> tuple[str, int]:
        """Its status and its version: what an update says it expects."""
        return self.status.name, self.version

    @property
    def graph(self) -> Neighbours:
        """The edges between its stages, as they are now."""
        return Neighbours(self.stages)

    def validate(self, *, tasks: Container[str] | None = None, stage_types: Container[str] | None = None) -> None:
        """Raises WorkflowDefinitionError for a workflow that can never run: its `code`, and the stages concerned."""
        self._adopt()
        if (trouble := trouble_with(self.id)) is not None:
            story = f"workflow {self.name!r}: {trouble}; choose another one, or leave it out"
            raise WorkflowDefinitionError("bad_id", story)
        priority: Any = self.priority
        if isinstance(priority, bool) or priority not in (1, 0, -1):
            story = f"{self.label}: priority must be 1, 0 or -1, got {priority!r}; 1 is taken first"
            raise WorkflowDefinitionError("bad_priority", story)
        queue: Any = self.queue
        if not isinstance(queue, str) or not queue:
            story = f"{self.label}: queue must be a text, got {queue!r}; leave it out for the queue 'default'"
            raise WorkflowDefinitionError("bad_queue", story)
        check_workflow(self.stages, tasks, stage_types)

    def stage(self, ref_id: str) -> StageExecution:
        """The stage of that name. Raises StageNotFoundError."""
        for one in self.stages:
            if one.ref_id == ref_id:
                return one
        raise StageNotFoundError.among(self.label, ref_id, (one.ref_id for one in self.stages))

    def stage_by_id(self, stage_id: str) -> StageExecution:
        """Raises StageNotFoundError."""
        for one in self.stages:
            if one.id == stage_id:
                return one
        raise StageNotFoundError(f"{self.label} has no stage with the id {stage_id!r}")

    def add_stage(self, stage: StageExecution) -> StageExecution:
        """Append a stage; `validate` tells whether it fits."""
        self.stages.append(stage)
        self._adopt()
        return stage

    def top_level_stages(self) -> list[StageExecution]:
        """The stages that belong to no other."""
        return [one for one in self.stages if not one.is_synthetic]

    def initial_stages(self) -> list[StageExecution]:
        """The stages that it begins with."""
        return [one for one in self.top_level_stages() if not one.requisite_stage_ref_ids]

    def determine_status(self) -> WorkflowStatus:
        """What it has come to, judging by its stages."""
        return computed_status.workflow_status(self.top_level_stages(), self.is_canceled)

    def to_document(self, *, with_stages: bool = True) -> dict[str, Any]:
        """Raises TypeError or ValueError naming the way to a value that is not JSON."""
        return write_document(self, self.label, _FORMS, () if with_stages else ("stages",))

    @classmethod
    def from_document(cls, document: Mapping[str, Any]) -> Workflow:
        """Raises SchemaError for a document that this program does not understand."""
        return read_document(cls, "workflow", document, _FORMS)

    def _adopt(self) -> None:
        for stage in self.stages:
            stage._workflow = self  # its other half: a stage knows its neighbours through it
            stage.place_tasks()


_FORMS: Final[Mapping[str, Form]] = {
    "type": one_of(WorkflowType),
    "status": one_of(WorkflowStatus),
    "stages": Form(
        lambda stages, path: [stage.to_document() for stage in stages],
        lambda stored, path: [StageExecution.from_document(one) for one in stored],
    ),
    "trigger": Form(lambda trigger, path: trigger.to_document(), lambda stored, path: Trigger.from_document(stored)),
    "forked_from": Form(
        lambda origin, path: None if origin is None else list(origin),
        lambda stored, path: None if stored is None else tuple(stored),
    ),
    "start_time": TIME,
    "end_time": TIME,
    "start_time_expiry": TIME,
    "paused": Form(
        lambda paused, path: None if paused is None else paused.to_document(),
        lambda stored, path: None if stored is None else PausedDetails.from_document(stored),
    ),
}
