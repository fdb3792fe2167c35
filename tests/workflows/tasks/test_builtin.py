"""The tasks that come with Holdfast, as an application registers them."""

from __future__ import annotations

import pytest

from holdfast.errors import ConfigurationError
from holdfast.workflows.model import Workflow
from holdfast.workflows.registry import TaskRegistry
from holdfast.workflows.result import TaskResult
from holdfast.workflows.stage import StageExecution
from holdfast.workflows.task_run import TaskExecution
from holdfast.workflows.tasks.builtin import builtin_tasks
from holdfast.workflows.worker import WorkflowWorker
from holdfast.workflows.workflows import Workflows
from tests.workflows.tasks.stages import stage


def test_they_can_all_be_registered_and_found() -> None:
    registry = TaskRegistry()
    for name, task in builtin_tasks().items():
        registry.register(name, task)
    assert list(registry) == [
        "approval",
        "docker",
        "http",
        "loop",
        "noop",
        "python",
        "shell",
        "ssh",
        "sub_workflow",
        "wait",
    ]
    assert registry.resolve("noop").execute(stage()) == TaskResult.success()


def test_what_an_application_allows_reaches_its_tasks() -> None:
    python = builtin_tasks(functions={"one": lambda: 1}, scripts=False)["python"]
    assert python.execute(stage(function="one")) == TaskResult.success({"result": 1})
    with pytest.raises(ConfigurationError, match="scripts are not allowed"):
        python.execute(stage(script="pass"))


def test_what_an_earlier_stage_has_left_is_no_setting_of_a_script(flows: Workflows, worker: WorkflowWorker) -> None:
    for name, does in builtin_tasks().items():
        flows.registry.register(name, does)
    flows.registry.register("leave", lambda stage: {"function": "os:system", "script": "result = 'theirs'"})

    def one(ref: str, does: str, *before: str, **context: str) -> StageExecution:
        tasks = [TaskExecution.create(does, does)]
        return StageExecution.create(
            does, ref, ref, tasks=tasks, requisite_stage_ref_ids=set(before), context=dict(context)
        )

    mine = one("mine", "python", "left", script="result = 'mine'")
    run = flows.start(Workflow.create("shop", "scripts", [one("left", "leave"), mine]))
    worker.run_once()
    assert flows.workflow(run.id).stage("mine").outputs["result"] == "mine"
