"""Tasks that limit and pace themselves, and tasks that are asked to stop."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest

from holdfast.machine.workflow import WorkflowStatus
from holdfast.testing.clock import ManualClock
from holdfast.workflows.cancel import current_task_token
from holdfast.workflows.functions import task, workflow
from holdfast.workflows.result import TaskResult
from holdfast.workflows.stage import StageExecution
from holdfast.workflows.task import RetryableTask, SkippableTask, Task
from holdfast.workflows.worker import WorkflowWorker
from holdfast.workflows.workflows import Workflows
from tests.workflows.gates import PATIENCE_S, until
from tests.workflows.journal import stage, start

S = WorkflowStatus


class Polls(RetryableTask):
    """Not done before it has been asked `needs` times; asks every ten seconds, for a minute."""

    needs = 3
    asked: list[float]
    leaves: Any = None

    def execute(self, stage: StageExecution) -> TaskResult:
        self.asked.append(0)
        return TaskResult.success({"asked": len(self.asked)}) if len(self.asked) >= self.needs else TaskResult.running()

    def get_timeout(self) -> timedelta:
        return timedelta(minutes=1)

    def get_backoff_period(self, stage: StageExecution, duration: timedelta) -> timedelta:
        self.asked[-1] = duration.total_seconds()
        return timedelta(seconds=10)

    def on_timeout(self, stage: StageExecution) -> TaskResult | None:
        return None if self.leaves is None else TaskResult.success(self.leaves)


@pytest.fixture
def polls(flows: Workflows) -> Polls:
    made = Polls()
    made.asked = []
    flows.registry.register("noted", made)
    return made


def test_a_retryable_task_says_when_it_is_called_again(
    flows: Workflows, worker: WorkflowWorker, clock: ManualClock, polls: Polls
) -> None:
    run = start(flows, stage("a"))
    worker.run_once()
    clock.advance(9.9)
    worker.run_once()
    assert polls.asked == [0]
    for _ in range(2):
        clock.advance(10)
        worker.run_once()
    assert (run.status, flows.workflow(run.id).stage("a").outputs) == (S.SUCCEEDED, {"asked": 3})
    assert polls.asked[:2] == [0, 19.9]  # how long it had been going on


@pytest.mark.parametrize("leaves", [None, {"gave": "up"}])
def test_it_may_go_on_for_so_long_over_all_calls(
    flows: Workflows, worker: WorkflowWorker, clock: ManualClock, polls: Polls, leaves: Any
) -> None:
    polls.needs, polls.leaves = 100, leaves
    run = start(flows, stage("a"))
    for _ in range(8):
        worker.run_once()
        clock.advance(10)
    assert len(polls.asked) == 6
    if leaves is None:
        assert (run.status, run.record.reason) == (
            S.TERMINAL,
            "task 'noted' took longer than it may, over all its calls",
        )
    else:
        assert (run.status, flows.workflow(run.id).stage("a").outputs) == (S.SUCCEEDED, leaves)


def test_one_call_of_it_is_cut_when_the_whole_time_is_over(
    flows: Workflows, worker: WorkflowWorker, clock: ManualClock
) -> None:
    runs, ends = threading.Event(), threading.Event()

    class Hangs(Polls):
        asked: list[float] = []  # noqa: RUF012  # as above

        def execute(self, stage: StageExecution) -> TaskResult:
            runs.set()
            ends.wait(PATIENCE_S)
            return TaskResult.success()

    flows.registry.register("noted", Hangs())
    run = start(flows, stage("a"))
    looking = threading.Thread(target=worker.run_once)
    looking.start()
    assert runs.wait(PATIENCE_S)
    clock.advance(61)
    looking.join(PATIENCE_S)
    assert (run.status, run.record.reason) == (S.TERMINAL, "task 'noted' took longer than 60 s")
    assert worker.stats()["noted"]["abandoned"] == 1
    ends.set()


@pytest.mark.parametrize("wanted", [True, False])
def test_a_skippable_task_may_have_nothing_to_do_in_both_colours(
    flows: Workflows, worker: WorkflowWorker, wanted: bool
) -> None:
    ran: list[str] = []

    class Maybe(SkippableTask):
        def is_enabled(self, stage: StageExecution) -> bool:
            return wanted

        def do_execute(self, stage: StageExecution) -> TaskResult:
            ran.append("plain")
            return TaskResult.success()

    class AsyncMaybe(Maybe):
        async def do_execute(self, stage: StageExecution) -> TaskResult:  # type: ignore[override]  # either is allowed
            ran.append("async")
            return TaskResult.success()

    flows.registry.register("noted", Maybe)
    flows.registry.register("async", AsyncMaybe)
    second = stage("b", "a")
    second.tasks[0].implementing_class = "async"
    run = start(flows, stage("a"), second)
    worker.run_once()
    assert (run.status, ran) == (S.SUCCEEDED, ["plain", "async"] if wanted else [])
    tasks = [one.tasks[0].status for one in flows.workflow(run.id).stages]
    assert tasks == [S.SUCCEEDED if wanted else S.SKIPPED] * 2


@pytest.mark.parametrize("is_async", [True, False])
def test_a_task_that_runs_sees_that_its_workflow_was_cancelled(
    flows: Workflows, worker: WorkflowWorker, is_async: bool
) -> None:
    runs, saw = threading.Event(), list[str]()

    @task
    def waits() -> str:
        token = current_task_token()
        runs.set()
        assert token.wait(PATIENCE_S)
        saw.append(token.reason)
        return "late"

    @task
    async def awaits() -> str:
        runs.set()
        try:
            await asyncio.sleep(PATIENCE_S)
        except asyncio.CancelledError:
            saw.append(current_task_token().reason)
            raise
        return "never"

    @workflow
    def one() -> Any:
        return awaits() if is_async else waits()

    run = flows.start(one)
    looking = threading.Thread(target=worker.run_once)
    looking.start()
    assert runs.wait(PATIENCE_S)
    flows.cancel(run.id, "not wanted")
    looking.join(PATIENCE_S)
    assert (run.status, saw) == (S.CANCELED, ["its workflow is CANCELED"])
    [stage] = flows.workflow(run.id).stages
    assert (stage.status, stage.outputs) == (S.CANCELED, {})  # what it left late counts no more


def test_a_thread_that_hangs_after_a_cancel_is_abandoned_and_keeps_its_slot(
    flows: Workflows, worker_of: Callable[..., WorkflowWorker], clock: ManualClock
) -> None:
    worker, other = worker_of(), worker_of()
    runs, ends, called = threading.Event(), threading.Event(), list[str]()

    class Deaf(Task):
        def execute(self, stage: StageExecution) -> TaskResult:
            runs.set()
            ends.wait(PATIENCE_S)
            return TaskResult.success({"late": True})

        def on_cancel(self, stage: StageExecution) -> None:
            called.append("cancel")

    flows.registry.register("noted", Deaf)
    run = start(flows, stage("a"))
    looking = threading.Thread(target=worker.run_once)
    looking.start()
    assert runs.wait(PATIENCE_S)
    flows.cancel(run.id)
    other.run_once()
    assert (called, worker.stats()["noted"]["abandoned"]) == (["cancel"], 0)  # it still hangs
    clock.advance(31)
    looking.join(PATIENCE_S)
    assert not looking.is_alive()
    figures = worker.stats()["noted"]
    assert (figures["abandoned"], figures["active"]) == (1, 1)
    ends.set()
    until(lambda: worker.stats()["noted"]["active"] == 0)
    assert flows.workflow(run.id).stage("a").outputs == {}
