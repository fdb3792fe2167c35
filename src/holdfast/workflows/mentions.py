"""What the body of a function names, without running it: so that a worker knows the tasks of a workflow before one is
started, and the doctor which guards are called inside of others."""

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
    found = (one for one in named_by(workflow.function) if isinstance(one, TaskFunction | WorkflowFunction))
    return list({id(one): one for one in found}.values())


def named_by(function: Any) -> Iterator[Any]:
    """What the body of a function names, and so do the functions of the same package that it names, in their order.

    Into what is guarded, or is a task, it does not go.
    """
    seen: set[int] = set()
    left: list[Any] = [function]
    while left:
        function = left.pop(0)
        if id(function) in seen or not isinstance(function, FunctionType):
            continue
        seen.add(id(function))
        for one in _named(function):
            yield one
            is_plain = isinstance(one, FunctionType) and not hasattr(one, "__holdfast_guard__")
            if is_plain and _package(one) == _package(function):
                left.append(one)


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
