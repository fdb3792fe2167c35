"""Stages whose tasks note that they ran, and answer what they are told to."""

from __future__ import annotations

from typing import Any

from holdfast.workflows.model import Workflow
from holdfast.workflows.result import TaskResult
from holdfast.workflows.stage import StageExecution
from holdfast.workflows.task_run import TaskExecution
from holdfast.workflows.workflows import Workflows


class Journal:
    """What ran, and what the next runs of a stage answer."""

    def __init__(self, flows: Workflows) -> None:
        self.ran: list[str] = []
        self.answers: dict[str, list[TaskResult]] = {}
        flows.registry.register("noted", self.run)

    def run(self, stage: StageExecution) -> TaskResult:
        self.ran.append(stage.ref_id)
        waiting = self.answers.get(stage.ref_id, [])
        return waiting.pop(0) if waiting else TaskResult.success({stage.ref_id: len(self.ran)})


def stage(ref: str, *before: str, **fields: Any) -> StageExecution:
    tasks = [TaskExecution.create("note", "noted")]
    return StageExecution.create("noted", ref, ref, tasks=tasks, requisite_stage_ref_ids=set(before), **fields)


def start(flows: Workflows, *stages: StageExecution, **fields: Any) -> Any:
    return flows.start(Workflow.create("shop", "made", stages, **fields))
