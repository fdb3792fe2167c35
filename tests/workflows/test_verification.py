"""Verification: a stage has succeeded only when it has left what was asked for."""

from __future__ import annotations

from typing import Any

import pytest

from holdfast.errors import ConfigurationError, TaskError, WorkflowDefinitionError
from holdfast.machine.workflow import WorkflowStatus
from holdfast.testing.clock import ManualClock
from holdfast.workflows.functions import task, workflow
from holdfast.workflows.result import TaskResult
from holdfast.workflows.stage import StageExecution
from holdfast.workflows.worker import WorkflowWorker
from holdfast.workflows.workflows import Workflows
from tests.workflows.journal import Journal, stage, start

S = WorkflowStatus


@pytest.fixture
def journal(flows: Workflows) -> Journal:
    return Journal(flows)


@pytest.mark.parametrize(
    ("left", "story"),
    [
        ({"receipt": "r-7", "kilos": 3}, None),
        ({"kilos": 3}, "stage 'a' lacks 'receipt'; it left kilos"),
        ({"receipt": "r-7", "kilos": "3"}, "stage 'a' left 'kilos' as a str, not as a number"),
        ({"receipt": "r-7", "kilos": True}, "stage 'a' left 'kilos' as a bool, not as a number"),
    ],
)
def test_keys_and_types_are_checked_after_success(
    flows: Workflows, worker: WorkflowWorker, journal: Journal, left: dict[str, Any], story: str | None
) -> None:
    journal.answers["a"] = [TaskResult.success(left)]
    asked = {"required_keys": ["receipt"], "type_checks": {"kilos": "number"}}
    run = start(flows, stage("a", verification=asked), stage("b", "a"))
    worker.run_once()
    if story is None:
        assert (run.status, journal.ran) == (S.SUCCEEDED, ["a", "b"])
        return
    assert (run.status, run.record.reason, journal.ran) == (S.TERMINAL, story, ["a"])
    found = flows.workflow(run.id).stage("a")
    assert [one.status for one in found.tasks] == [S.SUCCEEDED, S.TERMINAL]
    assert found.tasks[1].task_exception_details["type"] == "VerificationError"
    [ended] = [one for one in flows.log(run.id) if one.type == "task_ended" and one.facts["task"] == 1]
    assert ended.facts["error"] == f"VerificationError: {story}"


def test_a_failure_that_is_passed_over_is_no_success_to_be_verified(
    flows: Workflows, worker: WorkflowWorker, journal: Journal
) -> None:
    asked: list[str] = []
    flows.verifier(lambda stage: asked.append(stage.ref_id), "look")
    journal.answers["a"] = [TaskResult.failed_continue("no receipt")]
    verification = {"required_keys": ["receipt"], "function": "look"}
    run = start(flows, stage("a", verification=verification), stage("b", "a"))
    worker.run_once()
    assert (run.status, journal.ran, asked) == (S.SUCCEEDED, ["a", "b"], [])
    found = flows.workflow(run.id).stage("a")
    assert found.status is S.FAILED_CONTINUE
    assert [one.status for one in found.tasks] == [S.FAILED_CONTINUE, S.SKIPPED, S.SKIPPED]


@pytest.mark.parametrize("is_async", [True, False])
def test_a_function_is_asked_again_as_often_and_as_late_as_it_says(
    flows: Workflows, worker: WorkflowWorker, journal: Journal, clock: ManualClock, is_async: bool
) -> None:
    seen: list[Any] = []
    arrives = [99]

    def there(stage: StageExecution) -> Any:
        seen.append(stage.outputs["a"])
        return True if len(seen) >= arrives[0] else "it is not there yet"

    async def athere(stage: StageExecution) -> Any:
        return there(stage)

    flows.verifier(athere if is_async else there, "there")
    asked = {"function": "there", "max_retries": 2, "retry_delay": 30}
    run = start(flows, stage("a", verification=asked))
    worker.run_once()
    for _ in range(3):
        clock.advance(29.9)
        worker.run_once()
        clock.advance(0.1)
        worker.run_once()
    assert (run.status, len(seen), run.record.reason) == (S.TERMINAL, 3, "it is not there yet")
    retried = [one.facts for one in flows.log(run.id) if one.type == "task_retried"]
    assert [(one["delay"], one["error"]) for one in retried] == [(30, "VerificationError: it is not there yet")] * 2
    seen.clear()
    arrives[0] = 2
    second = start(flows, stage("a", verification=asked))
    worker.run_once()
    clock.advance(30)
    worker.run_once()
    assert (second.status, len(seen), journal.ran) == (S.SUCCEEDED, 2, ["a", "a"])  # the task itself ran once each


def test_a_function_is_asked_in_its_own_time_however_often_it_says_no(
    flows: Workflows, worker: WorkflowWorker, clock: ManualClock
) -> None:
    asked: list[float] = []

    def there(_: Any) -> bool:
        asked.append(clock.monotonic())
        return len(asked) == 9

    @task(verify={"function": there, "max_retries": 20, "retry_delay": 1})
    def sends() -> int:
        return 1

    flows.verifier(there, "there")
    patient = {"function": "there", "max_retries": 20, "retry_delay": 1}
    Journal(flows)
    for start_one in (
        lambda: start(flows, stage("a", verification=patient)),
        lambda: flows.start(workflow(name="sending")(lambda: sends())),
    ):
        asked.clear()
        run = start_one()
        for _ in range(9):
            worker.run_once()
            clock.advance(1)
        assert run.status == S.SUCCEEDED
        assert [at - asked[0] for at in asked] == [*range(9)]


@pytest.mark.parametrize(
    ("asked", "words"),
    [
        ({}, "a dict of required_keys"),
        ({"keys": ["a"]}, "'keys', which is unknown; known are required_keys"),
        ({"required_keys": "a"}, "required_keys must be a list of names, got 'a'"),
        ({"type_checks": {"a": "text"}}, "says 'text' of 'a'; use one of str, int"),
        ({"function": "f", "max_retries": -1}, "max_retries must be a whole number from 0, got -1"),
        ({"function": "f", "retry_delay": "1s"}, "retry_delay must be seconds from 0, got '1s'"),
        ({"max_retries": 1}, "asks for nothing"),
        ({"function": 7}, "function is the name of a registered one, got 7"),
        ({"function": "nobody"}, "verified by 'nobody', which nobody has registered"),
    ],
)
def test_a_verification_that_cannot_be_is_refused_at_the_start(
    flows: Workflows, journal: Journal, asked: dict[str, Any], words: str
) -> None:
    with pytest.raises(WorkflowDefinitionError, match=words) as refused:
        start(flows, stage("a", verification=asked))
    assert refused.value.members == ("a",)
    assert flows.counts() == {}


def test_a_task_function_says_what_it_must_leave(flows: Workflows, worker: WorkflowWorker, clock: ManualClock) -> None:
    asks: list[Any] = []

    def shipped(result: dict[str, Any]) -> bool:
        asks.append(result)
        return len(asks) > 1

    @task(verify={"required_keys": ["parcel"], "function": shipped, "retry_delay": 10})
    def ship(parcel: str | None) -> dict[str, Any]:
        return {} if parcel is None else {"parcel": parcel}

    @task
    def tell(shipped: dict[str, Any]) -> str:
        return f"{shipped['parcel']} is on its way"

    @workflow
    def send(parcel: str | None) -> Any:
        return tell(ship(parcel))

    run, bad = flows.start(send, "p-1"), flows.start(send, None)
    worker.run_once()
    assert (run.status, bad.status) == (S.RUNNING, S.TERMINAL)
    with pytest.raises(TaskError, match="task 'ship' lacks 'parcel'; it left nothing"):
        bad.result(0)
    clock.advance(10)
    worker.run_once()
    assert (run.result(0), asks) == ("p-1 is on its way", [{"parcel": "p-1"}] * 2)


def test_a_function_alone_verifies_a_result_in_both_colours(flows: Workflows, worker: WorkflowWorker) -> None:
    async def even(result: int) -> str | None:
        return None if result % 2 == 0 else f"{result} is odd"

    @task(verify=even)
    async def double(number: int) -> int:
        return 2 * number

    @task(verify={"function": lambda result: result > 10, "max_retries": 0})
    def grow(number: int) -> int:
        return number + 1

    @workflow
    def both(number: int) -> Any:
        return grow(double(number))  # type: ignore[arg-type]  # what it gives, not its coroutine

    run, small = flows.start(both, 7), flows.start(both, 1)
    worker.run_once()
    assert (run.result(0), small.status) == (15, S.TERMINAL)
    assert small.record.reason == "task 'grow' is not what was asked for: False"


def test_a_task_function_that_has_failed_and_is_passed_over_is_not_verified(
    flows: Workflows, worker: WorkflowWorker
) -> None:
    asked: list[Any] = []

    @task(verify={"required_keys": ["parcel"], "function": asked.append})
    def ship() -> Any:
        return TaskResult.failed_continue("no parcel")

    @workflow
    def send() -> Any:
        return ship()

    run = flows.start(send)
    worker.run_once()
    assert (run.status, asked) == (S.SUCCEEDED, [])
    [found] = flows.workflow(run.id).stages
    assert found.status is S.FAILED_CONTINUE
    assert [one.status for one in found.tasks] == [S.FAILED_CONTINUE, S.SKIPPED, S.SKIPPED]


def test_a_bad_verification_of_a_task_function_is_refused_where_it_is_written() -> None:
    with pytest.raises(ConfigurationError, match=r"verify\.function must be a function"):
        task(verify={"function": "name"})(print)
    with pytest.raises(WorkflowDefinitionError, match="asks for nothing"):
        task(verify={"max_retries": 2})(print)
