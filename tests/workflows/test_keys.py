"""Idempotency keys: which runs of a task are one and the same to those that it calls."""

from __future__ import annotations

import threading
from typing import Any

import pytest

from holdfast.errors import PermanentError
from holdfast.machine.workflow import WorkflowStatus
from holdfast.workflows.functions import task, workflow
from holdfast.workflows.multi_instance import MultiInstanceConfig
from holdfast.workflows.owner import SyntheticStageOwner
from holdfast.workflows.result import TaskResult
from holdfast.workflows.stage import StageExecution
from holdfast.workflows.task_context import current_task
from holdfast.workflows.worker import WorkflowWorker
from holdfast.workflows.workflows import Workflows
from tests.workflows.journal import stage, start

S = WorkflowStatus


class Keys:
    """A task of a stage that notes its keys, and fails as often as it is told to."""

    def __init__(self, flows: Workflows, **fails: int) -> None:
        self.seen: dict[str, list[str]] = {}
        self.fails = fails
        flows.registry.register("noted", self.run)

    def run(self, stage: StageExecution) -> TaskResult:
        here = current_task()
        assert here is not None
        ref = stage.ref_id.partition("#")[0]
        self.seen.setdefault(ref, []).append(here.idempotency_key.removeprefix(f"{here.workflow_id}."))
        if self.fails.get(ref, 0) > 0:
            self.fails[ref] -= 1
            return TaskResult.terminal("not today")
        return TaskResult.success()


def test_a_retry_goes_on_with_the_key_of_what_failed(flows: Workflows, worker: WorkflowWorker) -> None:
    keys = Keys(flows, pay=2)
    run = start(flows, stage("pack"), stage("pay", "pack"), stage("ship", "pay"))
    worker.run_once()
    for _ in range(2):
        assert run.status is S.TERMINAL
        flows.retry(run.id)
        worker.run_once()
    assert run.status is S.SUCCEEDED
    assert keys.seen == {"pack": ["pack.1.0"], "pay": ["pay.1.0"] * 3, "ship": ["ship.3.0"]}


def test_a_restart_is_a_new_effect_with_a_new_key(flows: Workflows, worker: WorkflowWorker) -> None:
    keys = Keys(flows, pay=1)
    run = start(flows, stage("pay"))
    worker.run_once()
    flows.retry(run.id)
    worker.run_once()
    flows.restart(run.id, "pay")
    worker.run_once()
    assert keys.seen == {"pay": ["pay.1.0", "pay.1.0", "pay.3.0"]}


def test_what_the_failure_of_another_branch_cut_off_goes_on_with_its_key(
    flows: Workflows, worker: WorkflowWorker
) -> None:
    keys: list[str] = []
    called = threading.Event()

    @task
    def wait() -> Any:
        here = current_task()
        assert here is not None
        keys.append(here.idempotency_key)
        called.set()
        return TaskResult.running() if len(keys) == 1 else None

    @task
    def fail() -> None:
        called.wait(30)
        if len(keys) == 1:
            raise PermanentError("no")

    @workflow
    def both() -> Any:
        return [wait(), fail()]

    run = flows.start(both)
    worker.run_once()
    assert (run.status, flows.stages(run.id)["wait"]) == (S.TERMINAL, S.CANCELED)
    called.clear()
    flows.retry(run.id)
    worker.run_once()
    assert run.status is S.SUCCEEDED
    assert keys == [f"{run.id}.wait.1.0"] * 2


def test_what_was_undone_because_of_a_failure_is_a_new_effect_when_it_is_retried(
    flows: Workflows, worker: WorkflowWorker
) -> None:
    keys = Keys(flows, pay=1)
    pay = stage("pay")
    undo = stage("undo", synthetic_stage_owner=SyntheticStageOwner.STAGE_ON_FAILURE, parent_stage_id=pay.id)
    run = start(flows, pay, undo)
    worker.run_once()
    assert run.status is S.TERMINAL
    flows.retry(run.id)
    worker.run_once()
    assert (run.status, keys.seen) == (S.SUCCEEDED, {"pay": ["pay.1.0", "pay.2.0"], "undo": ["undo.1.0"]})


def test_the_instances_of_a_stage_that_is_retried_have_the_keys_that_they_had(
    flows: Workflows, worker: WorkflowWorker
) -> None:
    keys = Keys(flows, pay=1)
    run = start(flows, stage("pay", mi_config=MultiInstanceConfig(count=2)))
    worker.run_once()
    assert run.status is S.TERMINAL
    flows.retry(run.id)
    worker.run_once()
    assert (run.status, set(keys.seen["pay"])) == (S.SUCCEEDED, {"pay#1.0.1.0", "pay#1.1.1.0"})


@pytest.mark.parametrize("again", ["retry", "restart"])
def test_what_is_after_a_stage_that_begins_anew_has_a_new_key_if_it_had_run(
    flows: Workflows, worker: WorkflowWorker, again: str
) -> None:
    keys = Keys(flows, pay=1)
    run = start(flows, stage("pay", continue_on_failure=True), stage("ship", "pay"), stage("end", "ship"))
    keys.fails["end"] = 1
    worker.run_once()
    flows.restart(run.id, "pay") if again == "restart" else flows.retry(run.id)
    worker.run_once()
    assert keys.seen["ship"] == (["ship.1.0", "ship.2.0"] if again == "restart" else ["ship.1.0"])
    assert keys.seen["end"] == (["end.1.0", "end.2.0"] if again == "restart" else ["end.1.0", "end.1.0"])
