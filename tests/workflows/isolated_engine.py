"""A whole engine whose tasks run in processes of their own. They find it as `isolated_engine:here`, on the database
that a variable names."""

from __future__ import annotations

import os
from datetime import timedelta
from pathlib import Path
from typing import Any

from holdfast import Holdfast, Hub
from holdfast.workflows.config import EngineConfig
from holdfast.workflows.functions import task, workflow
from holdfast.workflows.result import TaskResult
from holdfast.workflows.sub_workflow import SubWorkflow
from holdfast.workflows.task import RetryableTask
from holdfast.workflows.task_context import current_task

URL = "HOLDFAST_TEST_ISOLATED_URL"


def removed(path: str) -> None:
    Path(path).unlink()


@task
def opened(path: str) -> int:
    here = current_task()
    assert here is not None
    here.finalize("removed", path=path)
    Path(path).touch()
    return os.getpid()


@task
def doubled(value: int) -> Any:
    return TaskResult.success({"result": 2 * value})


@task
def asked(value: int) -> SubWorkflow:
    return SubWorkflow("below", (value,))


@workflow
def below(value: int) -> Any:
    return doubled(value)


@workflow
def above(path: str) -> Any:
    return [opened(path), below(3), asked(4)]


class Patient(RetryableTask):
    """It has nothing to do at its first call, and asks to be called again at once."""

    def get_timeout(self) -> timedelta:
        return timedelta(minutes=5)

    def get_backoff_period(self, stage: Any, duration: timedelta) -> timedelta:
        return timedelta(0)

    def execute(self, stage: Any) -> TaskResult:
        if "seen" not in stage.context:
            return TaskResult.running({"seen": os.getpid()})
        return TaskResult.success({"first": stage.context["seen"], "second": os.getpid()})

    def on_cleanup(self, stage: Any) -> None:
        Path(stage.context["path"]).write_text(f"{os.getpid()} {stage.status}")


def made(url: str) -> Holdfast:
    hold = Holdfast(url, telemetry=Hub(), background=False, workflows=EngineConfig(isolation_mode="process"))
    hold.workflows.finalizers.add(removed)
    hold.workflows.registry.register("patient", Patient)
    hold.workflows.add(above)
    hold.workflows.add(below)
    hold.workflows.register(asked)
    return hold


def here() -> Holdfast:
    return made(os.environ[URL])
