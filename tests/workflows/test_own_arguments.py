"""A task may do with its arguments what it likes: nobody else sees it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from holdfast.workflows.functions import task, workflow
from holdfast.workflows.worker import WorkflowWorker
from holdfast.workflows.workflows import Workflows


@task
def make(number: int) -> dict[str, Any]:
    return {"all": [number]}


@task
def spoil(left: dict[str, Any], given: list[int], constant: list[int]) -> list[int]:
    left["all"].append("spoilt")
    given.append(0)
    constant.append(0)
    return given


@task
def look(left: dict[str, Any], given: list[int], constant: list[int], after: Any) -> list[Any]:
    return [left, given, constant]


@workflow
def shared(given: list[int]) -> Any:
    left = make(1)
    spoilt = spoil(left, given, [7])
    return {"seen": look(left, given, [7], spoilt), "left": left, "given": given, "constant": [7]}


def test_what_a_task_does_to_its_arguments_nobody_else_sees(
    flows: Workflows, worker_of: Callable[..., WorkflowWorker]
) -> None:
    worker = worker_of()
    for _ in range(2):  # the second one has the graph of the first
        run = flows.start(shared, [3])
        while not run.status.is_complete:
            worker.run_once()
        expected = {"seen": [{"all": [1]}, [3], [7]], "left": {"all": [1]}, "given": [3], "constant": [7]}
        assert run.result(0) == expected


def test_what_is_returned_in_the_same_process_is_what_is_stored_and_the_callers_own(flows: Workflows) -> None:
    flows.register(make, spoil, look)
    worker = flows.worker().start()
    run = flows.start(shared, [3])
    told = run.result(20)
    assert told == run.result(0)
    told["left"]["all"].clear()
    assert run.result(0)["left"] == {"all": [1]}
    assert worker.stop(20)
