"""The tasks and workflows that a program knows, by name."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeVar

from holdfast.errors import WorkflowDefinitionError
from holdfast.workflows.functions import TaskFunction, WorkflowFunction
from holdfast.workflows.mentions import mentioned
from holdfast.workflows.model import Workflow
from holdfast.workflows.own_tasks import BUILT_IN
from holdfast.workflows.registry import TaskRegistry
from holdfast.workflows.task_guards import TaskGuards

MakesWorkflow = WorkflowFunction[Any, Any] | Callable[..., Workflow]
M = TypeVar("M", bound=MakesWorkflow)


class Catalogue:
    """`tasks` are functions, and `registry` has those of stages that are put together as models; `known` are the
    workflows. `guards` say whether a task can be run as it is."""

    def __init__(self, tasks: dict[str, TaskFunction[Any, Any]], registry: TaskRegistry, guards: TaskGuards) -> None:
        self.tasks = tasks
        self.registry = registry
        self._guards = guards
        self.known: dict[str, MakesWorkflow] = {}

    @property
    def has_work(self) -> bool:
        """Whether there are tasks here that a worker could run."""
        return len(self.tasks) > len(BUILT_IN) or len(self.registry) > 1  # besides those that are always there

    def register(self, *functions: Any) -> None:
        """Make tasks known. Raises WorkflowDefinitionError for one that cannot be."""
        for function in functions:
            if not isinstance(function, TaskFunction):
                raise WorkflowDefinitionError("not_a_task", f"{function!r} is no task; {_instead(function)}")
            for one in (function, *function.checks):
                known = self.tasks.get(one.name)
                if known is one:
                    continue
                if known is not None:
                    story = f"there are two tasks {one.name!r}, {_place(known)} and {_place(one)}; name one of them"
                    raise WorkflowDefinitionError("duplicate_task", story)
                self._guards.check(one)
                self.tasks[one.name] = one
                self.registry.told()

    def add(self, function: M, name: str | None = None) -> M:
        """Make a workflow known, and with it what its body names. Raises WorkflowDefinitionError for a name that
        another one has."""
        if isinstance(function, TaskFunction) or not callable(function):
            story = f"{function!r} is no workflow; {_instead(function)}"
            raise WorkflowDefinitionError("not_a_workflow", story)
        name = name or str(getattr(function, "name", None) or getattr(function, "__name__", "workflow"))
        if (known := self.known.get(name, function)) is not function:
            story = f"there are two workflows {name!r}, {_place(known)} and {_place(function)}; name one of them"
            raise WorkflowDefinitionError("duplicate_workflow", story)
        if name in self.known:
            return function
        made: MakesWorkflow = function
        self.known[name] = made
        try:
            for one in (made.as_task, *mentioned(made)) if isinstance(made, WorkflowFunction) else ():
                if isinstance(one, WorkflowFunction):
                    self.add(one)
                else:
                    self.register(one)  # the first is what a call of it in another workflow is
        except BaseException:
            del self.known[name]
            raise
        return function

    def maker(self, name: str) -> MakesWorkflow:
        """What makes the workflows of a name. Raises WorkflowDefinitionError, which says what there is."""
        found = self.known.get(name)
        if found is None:
            there = ", ".join(sorted(self.known)) or "none"
            story = f"no workflow {name!r} is known here; there are {there}; hold.workflows.add(…) adds one"
            raise WorkflowDefinitionError("unknown_workflow", story)
        return found

    def find(self, name: str, args: Sequence[Any], kwargs: Mapping[str, Any]) -> WorkflowFunction[Any, Any] | Workflow:
        """The `@workflow` of a name, or the model that its function makes of these arguments.

        Raises WorkflowDefinitionError.
        """
        found = self.maker(name)
        return found if isinstance(found, WorkflowFunction) else found(*args, **kwargs)


def _instead(given: Any) -> str:
    if isinstance(given, WorkflowFunction):
        return "hold.workflows.add(…) makes a workflow known"
    if isinstance(given, TaskFunction):
        return "hold.workflows.register(…) makes a task known"
    return "decorate a function with @task or @workflow"


def _place(given: Any) -> str:
    """Where it is written."""
    function = getattr(given, "function", given)
    code = getattr(function, "__code__", None)
    where = getattr(function, "__module__", None) or type(function).__module__
    return where if code is None else f"{where}:{code.co_firstlineno}"
