"""An engine whose tasks run in processes of their own does with them what it does with all others."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from holdfast import Holdfast, StageExecution, TaskExecution, Workflow
from holdfast.workflows.worker import WorkflowWorker
from tests.stores import fresh_url
from tests.workflows.isolated_engine import URL, above, made


@pytest.fixture(params=["sqlite", "postgres"])
def hold(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Holdfast]:
    with fresh_url(request.param, tmp_path) as url:
        monkeypatch.setenv(URL, url)
        with made(url) as hold:
            yield hold


@pytest.fixture
def worker(hold: Holdfast) -> Iterator[WorkflowWorker]:
    worker = hold.workflows.worker(application="tests.workflows.isolated_engine:here")
    yield worker
    worker.close()


def test_functions_may_ask_for_a_finalizer_a_workflow_and_a_result(
    hold: Holdfast, worker: WorkflowWorker, tmp_path: Path
) -> None:
    run = hold.workflows.start(above, str(tmp_path / "opened"))
    worker.run_once()
    pid, *results = run.result(0)
    assert pid != os.getpid()
    assert results == [6, 8]
    assert [(one.name, one.state) for one in hold.workflows.finalizers.find(run.id)] == [("removed", "DONE")]
    assert not (tmp_path / "opened").exists()


def test_a_task_of_a_stage_has_its_own_pause_and_is_cleaned_up_after(
    hold: Holdfast, worker: WorkflowWorker, tmp_path: Path
) -> None:
    path = tmp_path / "cleaned"
    stage = StageExecution.create(
        "patient", "patient", "patient", tasks=[TaskExecution.create("patient", "patient")], context={"path": str(path)}
    )
    run = hold.workflows.start(Workflow.create("shop", "patience", [stage]))
    worker.run_once()
    outputs = hold.workflows.workflow(run.id).stage("patient").outputs
    assert len({outputs["first"], outputs["second"], os.getpid()}) == 3
    assert path.read_text() == f"{os.getpid()} SUCCEEDED"
