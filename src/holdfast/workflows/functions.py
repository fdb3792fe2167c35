"""Plain functions as tasks and workflows: `@task` and `@workflow`."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from contextvars import ContextVar
from dataclasses import dataclass, field
from datetime import timedelta
from functools import update_wrapper
from typing import Any, Final, Generic, ParamSpec, TypeVar, overload

from holdfast.core.check import check_seconds
from holdfast.errors import ConfigurationError, WorkflowDefinitionError
from holdfast.machine.graph import check_graph
from holdfast.machine.retry import Retry
from holdfast.workflows.binding import Binding, Promise, bind, sources, tracked

P = ParamSpec("P")
T = TypeVar("T")
_KEY: Final = "idempotency_key"
_tracing: Final[ContextVar[Trace | None]] = ContextVar("holdfast_trace", default=None)


class TaskFunction(Generic[P, T]):
    """A function that can be a step of a workflow. Called outside of one, it is the function itself."""

    def __init__(
        self,
        function: Callable[P, T],
        *,
        name: str | None = None,
        retry: Any = None,
        timeout: float | timedelta | None = None,
        guard: str | None = None,
    ) -> None:
        if not callable(function):
            raise ConfigurationError(f"@task is for functions, got {function!r}")
        update_wrapper(self, function)
        self.function = function
        self.name: str = name or getattr(function, "__name__", "") or type(function).__name__
        self.retry: Retry | None = retry if retry is None or isinstance(retry, Retry) else retry.to_retry()
        if isinstance(timeout, timedelta):
            timeout = timeout.total_seconds()
        if timeout is not None:
            check_seconds("task.timeout", timeout, "leave it out for no limit")
        self.timeout = timeout
        self.guard = guard
        self.is_async = inspect.iscoroutinefunction(function)
        self._signature = inspect.signature(function)

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> T:
        trace = _tracing.get()
        if trace is None:
            return self.function(*args, **kwargs)
        after = kwargs.pop("after", ()) if "after" not in self._signature.parameters else ()
        ref: Any = kwargs.pop("ref", None) if "ref" not in self._signature.parameters else None
        try:
            self._signature.bind(*args, **kwargs)
        except TypeError as error:
            raise WorkflowDefinitionError("bad_arguments", f"task {self.name!r}: {error}", (self.name,)) from None
        return trace.add(self, args, kwargs, after, ref)  # type: ignore[return-value]  # a promise of it

    def __repr__(self) -> str:
        return f"<task {self.name!r}>"


@dataclass(slots=True)
class TracedStage:
    """A call of a task in the body of a workflow."""

    ref: str
    task: TaskFunction[Any, Any]
    args: list[Binding]
    kwargs: dict[str, Binding]
    requires: list[str]


@dataclass(slots=True)
class Trace:
    """The calls of tasks that the body of a workflow has made."""

    inputs: dict[int, str]
    stages: dict[str, TracedStage] = field(default_factory=dict)
    names: dict[str, int] = field(default_factory=dict)
    """How many stages have been named after a task."""

    def add(self, task: TaskFunction[Any, Any], args: Any, kwargs: Any, after: Any, ref: str | None) -> Promise:
        given = [bind(value, self.inputs) for value in args]
        named = {key: bind(value, self.inputs) for key, value in kwargs.items()}
        needs = [name for binding in (*given, *named.values()) for name in sources(binding)]
        needs += [self._ref(one) for one in ([after] if isinstance(after, Promise) else after)]
        if ref is not None and ref in self.stages:
            raise WorkflowDefinitionError("duplicate_ref", f"there are two stages {ref!r}", (ref,))
        ref = ref or self._free(task.name.rpartition(".")[2])
        self.stages[ref] = TracedStage(ref, task, given, named, list(dict.fromkeys(needs)))
        return Promise(ref)

    def _ref(self, one: Any) -> str:
        if not isinstance(one, Promise):
            raise WorkflowDefinitionError("bad_arguments", f"after= takes what tasks returned, got {one!r}")
        return one.ref

    def _free(self, name: str) -> str:
        while True:
            number = self.names[name] = self.names.get(name, 0) + 1
            ref = name if number == 1 else f"{name}-{number}"
            if ref not in self.stages:
                return ref


class WorkflowFunction(Generic[P, T]):
    """A function whose calls of tasks are the stages of a workflow; the data decides which one waits for which.

    Its body is run when a workflow starts, to see the graph. It gets the input itself, and promises of what tasks will
    leave. Called outside, it is the function itself.
    """

    def __init__(self, function: Callable[P, T], *, name: str | None = None, version: str = "1") -> None:
        if inspect.iscoroutinefunction(function) or not callable(function):
            raise ConfigurationError(f"@workflow is for plain functions, which only name their tasks; got {function!r}")
        update_wrapper(self, function)
        self.function = function
        self.name: str = name or str(getattr(function, "__name__", "workflow"))
        self.version = version
        self._signature = inspect.signature(function)
        if _KEY in self._signature.parameters:
            raise WorkflowDefinitionError(
                "reserved_input",
                f"workflow {self.name!r} has an input {_KEY!r}, which start(…) takes itself; rename it",
            )

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> T:
        return self.function(*args, **kwargs)

    def trace(self, args: Sequence[Any], kwargs: dict[str, Any]) -> tuple[dict[str, Any], dict[str, Any], Trace]:
        """The graph as a document, the input by name, and the calls. Raises WorkflowDefinitionError."""
        try:
            bound = self._signature.bind(*args, **kwargs)
        except TypeError as error:
            raise WorkflowDefinitionError("bad_input", f"workflow {self.name!r}: {error}") from None
        bound.apply_defaults()
        inputs = {
            name: value.total_seconds() if isinstance(value, timedelta) else value
            for name, value in bound.arguments.items()
        }
        # So that the graph is the same for every input, and is kept once.
        bound.arguments = {name: tracked(value) for name, value in bound.arguments.items()}
        trace = Trace({id(value): name for name, value in bound.arguments.items()})
        token = _tracing.set(trace)
        try:
            returned = self.function(*bound.args, **bound.kwargs)
        finally:
            _tracing.reset(token)
        if not trace.stages:
            raise WorkflowDefinitionError("no_stages", f"workflow {self.name!r} calls no task")
        check_graph({ref: stage.requires for ref, stage in trace.stages.items()})
        return self._document(trace, bind(returned, trace.inputs)), inputs, trace

    def _document(self, trace: Trace, result: Binding) -> dict[str, Any]:
        stages = [
            {
                "ref": one.ref,
                "tasks": [{"name": one.task.name, "type": one.task.name}],
                "requires": one.requires,
                "args": one.args,
                "kwargs": one.kwargs,
            }
            for one in trace.stages.values()
        ]
        return {"v": 1, "name": self.name, "version": self.version, "stages": stages, "result": result}

    def __repr__(self) -> str:
        return f"<workflow {self.name!r}>"


@overload
def task(function: Callable[P, T], /) -> TaskFunction[P, T]: ...
@overload
def task(
    *, name: str | None = ..., retry: Any = ..., timeout: float | timedelta | None = ..., guard: str | None = ...
) -> Callable[[Callable[P, T]], TaskFunction[P, T]]: ...
def task(function: Any = None, /, **options: Any) -> Any:
    """Make a function a task. `retry` is a `Retry` or `RetryPolicy`: any exception but PermanentError is tried again.

    Without it only TransientError is, ten times. `timeout` is for each call; `guard` names a guard of the application
    that every call goes through. Names are what is stored: they must stay when the code moves.
    """
    return TaskFunction(function, **options) if function is not None else lambda fn: TaskFunction(fn, **options)


@overload
def workflow(function: Callable[P, T], /) -> WorkflowFunction[P, T]: ...
@overload
def workflow(*, name: str | None = ..., version: str = ...) -> Callable[[Callable[P, T]], WorkflowFunction[P, T]]: ...
def workflow(function: Any = None, /, **options: Any) -> Any:
    """Make a function a workflow: the tasks that it calls are its stages."""
    return WorkflowFunction(function, **options) if function is not None else lambda fn: WorkflowFunction(fn, **options)
