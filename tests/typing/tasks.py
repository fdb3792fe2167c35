"""Tasks and workflows: what a call gives, which arguments are checked, and what the engine takes besides."""

from __future__ import annotations

from typing import Any, assert_type

from holdfast import Holdfast, TaskFunction, WorkflowRun, task, workflow


@task
def charge(order: dict[str, Any], cents: int = 0) -> str:
    return "receipt"


@task(effect="idempotent", retry=None, guard="carrier")
def ship(order: dict[str, Any], receipt: str) -> int:
    return 1


assert_type(charge({"id": 1}), str)
assert_type(ship({"id": 1}, "r"), int)
charge(7)  # type: ignore[call-overload]  # pyright: ignore[reportArgumentType]
charge({"id": 1}, pounds=3)  # type: ignore[call-overload]  # pyright: ignore[reportCallIssue]
ship({"id": 1})  # type: ignore[call-overload]  # pyright: ignore[reportCallIssue]


@workflow
def fulfil(order: dict[str, Any]) -> int:
    paid = charge(order)
    packed = charge(order, ref="packed")
    assert_type(ship(order, paid, after=packed), int)
    return ship(order, paid, after=[paid, packed], ref="ship")


def start(hold: Holdfast) -> None:
    assert_type(hold.workflows.start(fulfil, {"id": 7}), WorkflowRun)
    assert_type(hold.workflows.fork("id", "ship", context={"order": {}}), WorkflowRun)


def named(one: TaskFunction[..., str]) -> str:
    return one()
