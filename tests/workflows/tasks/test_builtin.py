"""The tasks that come with Holdfast, as an application registers them."""

from __future__ import annotations

import pytest

from holdfast.errors import ConfigurationError
from holdfast.workflows.registry import TaskRegistry
from holdfast.workflows.result import TaskResult
from holdfast.workflows.tasks.builtin import builtin_tasks
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
