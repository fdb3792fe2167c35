"""Which tasks the body of a workflow names, without running it: so that a worker knows them before one is started."""

from __future__ import annotations

from collections.abc import Iterator
from types import CodeType, FunctionType, ModuleType
from typing import Any

from holdfast.workflows.functions import TaskFunction, WorkflowFunction


def mentioned(workflow: WorkflowFunction[Any, Any]) -> list[TaskFunction[Any, Any] | WorkflowFunction[Any, Any]]:
    """The tasks and workflows that are named by the body, and by the functions of the same package that it calls; each
    once, in their order.

    What it finds in other ways, in a dict say, has to be registered.
    """
    found: dict[int, TaskFunction[Any, Any] | WorkflowFunction[Any, Any]] = {}
    seen: set[int] = set()
    left: list[Any] = [workflow.function]
    while left:
        function = left.pop(0)
        if id(function) in seen or not isinstance(function, FunctionType):
            continue
        seen.add(id(function))
        for one in _named(function):
            if isinstance(one, TaskFunction | WorkflowFunction):
                found[id(one)] = one
            elif isinstance(one, FunctionType) and _package(one) == _package(function):
                left.append(one)
    return list(found.values())


def _package(function: FunctionType) -> str:
    return (function.__module__ or "").partition(".")[0]


def _named(function: FunctionType) -> Iterator[Any]:
    """What the names in a function's code stand for; of a module, whatever else is named there."""
    names = list(dict.fromkeys(_names(function.__code__)))
    known = {**function.__globals__}
    for name, cell in zip(function.__code__.co_freevars, function.__closure__ or (), strict=False):
        try:
            known[name] = cell.cell_contents
        except ValueError:
            continue  # it has no value yet
    for name in names:
        one = known.get(name)
        if isinstance(one, ModuleType):
            yield from (vars(one)[attribute] for attribute in names if attribute in vars(one))
        elif one is not None:
            yield one


def _names(code: CodeType) -> Iterator[str]:
    yield from code.co_names
    yield from code.co_freevars
    for one in code.co_consts:
        if isinstance(one, CodeType):
            yield from _names(one)
