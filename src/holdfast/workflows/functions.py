"""Plain functions as tasks and workflows: `@task` and `@workflow`."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextvars import ContextVar
from datetime import timedelta
from functools import partial, update_wrapper
from typing import Any, Final, Generic, ParamSpec, TypeVar, overload

from holdfast.core.check import check_seconds, check_text
from holdfast.errors import ConfigurationError, WorkflowDefinitionError
from holdfast.machine.graph import check_graph
from holdfast.machine.retry import Retry
from holdfast.workflows.binding import Binding, Unknown, bind, tracked
from holdfast.workflows.effects import check_colour, check_retry, effect_named
from holdfast.workflows.limit import check_limit
from holdfast.workflows.sub_workflow import SubWorkflow
from holdfast.workflows.trace import Graph, Trace, TracedStage, Traces
from holdfast.workflows.verification import LOOK, judge, parse_verification

P = ParamSpec("P")
T = TypeVar("T")
_KEY: Final = "idempotency_key"
WORKFLOW_TYPE: Final = "workflow:"
"""What the type of a stage begins with that starts the workflow of that name."""
_BY_PLACE: Final = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
_VARIADIC: Final = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)
_tracing: Final[ContextVar[Trace | None]] = ContextVar("holdfast_trace", default=None)


class TaskFunction(Generic[P, T]):
    """A function that can be a step of a workflow. Called outside of one, it is the function itself."""

    is_late = paces_itself = False  # which other kinds of tasks may be

    def __init__(
        self,
        function: Callable[P, T],
        *,
        name: str | None = None,
        retry: Any = None,
        timeout: float | timedelta | None = None,
        guard: str | None = None,
        verify: Any = None,
        effect: str | None = None,
    ) -> None:
        if not callable(function):
            raise ConfigurationError(f"@task is for functions, got {function!r}; a name is given as @task(name=…)")
        if isinstance(function, WorkflowFunction):
            raise ConfigurationError(f"@task is for functions, got {function!r}; call it in another one as it is")
        if _yields(function):
            raise ConfigurationError(
                f"@task is for functions that return what is stored; {function!r} yields: return a list"
            )
        update_wrapper(self, function)
        self.function = function
        self.name: str = name or getattr(function, "__name__", "") or type(function).__name__
        self.stem = self.name.removeprefix(WORKFLOW_TYPE).rpartition(".")[2]
        """What its stages are named after."""
        self.retry = _retry(self.name, retry)
        if isinstance(timeout, timedelta):
            timeout = timeout.total_seconds()
        if timeout is not None:
            check_seconds("task.timeout", timeout, "leave it out for no limit")
        self.timeout = timeout
        if guard is not None and not isinstance(guard, str):
            raise ConfigurationError(f"task {self.name!r}: guard must be the name of one, got {guard!r}")
        self.guard = guard
        self.is_async = inspect.iscoroutinefunction(function)
        self.verifies = False
        """Whether it is called with what its stage has left, and not with arguments."""
        self.checks: tuple[TaskFunction[Any, Any], ...] = () if verify is None else tuple(_checks(self.name, verify))
        """The tasks of its stage that follow it: those that verify what it left."""
        self.refuses_early = False
        """Whether its arguments are judged where they are written, by calling it."""
        self.effect = effect_named(self.name, effect)
        check_retry(self.name, self.effect, self.retry is not None and self.retry.attempts != 1)
        check_colour(self.name, self.effect, self.is_async)
        self._signature = inspect.signature(function)
        self._takes = _positional(self._signature)

    # What the engine takes besides the function's own arguments cannot be said together with these: a call with it is
    # checked for what it gives only.
    @overload
    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> T: ...
    @overload
    def __call__(self, *args: Any, ref: str, **kwargs: Any) -> T: ...
    @overload
    def __call__(self, *args: Any, after: Any, ref: str | None = ..., **kwargs: Any) -> T: ...
    def __call__(self, *args: Any, **kwargs: Any) -> T:
        trace = _tracing.get()
        if trace is None:
            return self.function(*args, **kwargs)
        if not kwargs and len(args) in self._takes:
            return trace.add(self, args, kwargs, (), None)  # type: ignore[return-value]  # a promise of it
        after = kwargs.pop("after", ()) if "after" not in self._signature.parameters else ()
        ref: Any = kwargs.pop("ref", None) if "ref" not in self._signature.parameters else None
        try:
            self._signature.bind(*args, **kwargs)
        except TypeError as error:
            name = self.name.removeprefix(WORKFLOW_TYPE)
            what = f"{'task' if name == self.name else 'workflow'} {name!r}"
            story = f"{what}: {error}; {_taken(self._signature, args, kwargs)}"
            raise WorkflowDefinitionError("bad_arguments", story, (self.name,)) from None
        return trace.add(self, args, kwargs, after, ref)  # type: ignore[return-value]  # a promise of it

    def __repr__(self) -> str:
        return f"<task {self.name!r}>"


def _yields(function: Any) -> bool:
    return inspect.isgeneratorfunction(function) or inspect.isasyncgenfunction(function)


def _retry(name: str, policy: Any) -> Retry | None:
    if policy is None or isinstance(policy, Retry):
        return policy
    if not hasattr(policy, "to_retry"):
        story = f"task {name!r}: retry must be a Retry or a RetryPolicy, got {policy!r}; use Retry(attempts=3)"
        raise ConfigurationError(story)
    converted: Retry = policy.to_retry()
    return converted


def _positional(signature: inspect.Signature) -> range:
    """How many arguments a function takes by their place alone; none if it needs some by name."""
    least = most = 0
    for one in signature.parameters.values():
        if one.kind is one.VAR_POSITIONAL:
            most = 1 << 20
        elif one.kind in _BY_PLACE:
            least += one.default is one.empty
            most += 1
        elif one.kind is one.KEYWORD_ONLY and one.default is one.empty:
            return range(0)
    return range(least, most + 1)


def _checks(name: str, verify: Any) -> Iterator[TaskFunction[Any, Any]]:
    """Raises WorkflowDefinitionError for a verification that cannot be."""
    label = f"task {name!r}"
    asked = parse_verification({"function": verify} if callable(verify) else verify, label)
    if asked.looks_at_values:

        def look(result: Any) -> Any:
            asked.check(label, result)
            return result

        yield _of_result(look, name + LOOK, None)
    if asked.function is not None:
        yield _of_result(_asking(label, asked.function), f"{name}.verify", asked.retry)


def _of_result(function: Callable[[Any], Any], name: str, retry: Retry | None) -> TaskFunction[Any, Any]:
    made = TaskFunction(function, name=name, retry=retry)
    made.verifies = True
    return made


def _asking(label: str, function: Callable[[Any], Any]) -> Callable[[Any], Any]:
    if not callable(function):
        raise ConfigurationError(f"{label}: verify.function must be a function, got {function!r}")

    def ask(result: Any) -> Any:
        judge(label, function(result))
        return result

    async def aask(result: Any) -> Any:
        judge(label, await function(result))
        return result

    return aask if inspect.iscoroutinefunction(function) else ask


class WorkflowFunction(Generic[P, T]):
    """A function whose calls of tasks are the stages of a workflow; the data decides which one waits for which.

    Its body is run when a workflow starts, to see the graph. It gets the input itself, and promises of what tasks will
    leave. Called in another workflow it is a stage that starts one and waits for its end; with `wait=False` it does not
    wait, and after `timeout=` seconds it fails. Called outside, it is the function itself.

    Of its pipeline, which is named after it unless `pipeline` says otherwise, `limit` run at once. The others wait for
    their turn, or without `keep_waiting` only the newest of them.
    """

    def __init__(
        self,
        function: Callable[P, T],
        *,
        name: str | None = None,
        version: str = "1",
        limit: int | None = None,
        pipeline: str | None = None,
        keep_waiting: bool = True,
        dead_letter: bool = True,
    ) -> None:
        if inspect.iscoroutinefunction(function) or _yields(function) or not callable(function):
            raise ConfigurationError(f"@workflow is for plain functions, which only name their tasks; got {function!r}")
        update_wrapper(self, function)
        self.function = function
        self.name: str = name or str(getattr(function, "__name__", "workflow"))
        check_text(f"workflow {self.name!r}: version", version)
        self.version = version
        check_limit(f"workflow {self.name!r}: limit", limit)
        if limit is None and not (pipeline is None and keep_waiting):
            story = f"workflow {self.name!r} has a pipeline or keep_waiting and no limit; give limit= as well"
            raise WorkflowDefinitionError("bad_limit", story)
        self.limit = limit
        self.pipeline = None if limit is None else pipeline or self.name
        self.keep_waiting = keep_waiting
        self.dead_letter = dead_letter
        self._signature = inspect.signature(function)
        by_place = all(one.kind in _BY_PLACE for one in self._signature.parameters.values())
        self._by_place = tuple(self._signature.parameters) if by_place else None
        """Its arguments, if all can be given by their place."""
        self._traces = Traces()
        self.as_task: TaskFunction[P, T] = _starter(self)
        """What a call of it in another workflow is."""
        if _KEY in self._signature.parameters:
            raise WorkflowDefinitionError(
                "reserved_input",
                f"workflow {self.name!r} has an input {_KEY!r}, which start(…) takes itself; rename it",
            )

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> T:
        trace = _tracing.get()
        if trace is None:
            return self.function(*args, **kwargs)
        trace.workflows[self.name] = self
        return self.as_task(*args, **kwargs)

    def trace(self, args: Sequence[Any], kwargs: dict[str, Any]) -> tuple[Graph, dict[str, Any], Trace]:
        """The graph, the input by name, and the calls. Raises WorkflowDefinitionError."""
        names = self._by_place
        if names is not None and not kwargs and len(args) == len(names):  # what `bind` finds out at length
            return self._traced(dict(zip(names, args, strict=True)))
        try:
            bound = self._signature.bind(*args, **kwargs)
        except TypeError as error:
            story = f"workflow {self.name!r}: {error}; {_taken(self._signature, args, kwargs)}"
            raise WorkflowDefinitionError("bad_input", story) from None
        bound.apply_defaults()
        return self._traced(bound.arguments, bound)

    def defaults(self) -> dict[str, Any]:
        """What its arguments are that nobody gives, by name."""
        bound = self._signature.bind_partial()
        bound.apply_defaults()
        return _as_kept(bound.arguments)

    def sketch(self) -> Graph:
        """The graph without an input. Raises WorkflowDefinitionError if the body looks at it."""
        bound = self._signature.bind_partial()
        for name, one in self._signature.parameters.items():
            if one.default is one.empty and one.kind not in _VARIADIC:
                bound.arguments[name] = Unknown(name)
        bound.apply_defaults()
        try:
            return self._traced(bound.arguments, bound)[0]
        except Exception as error:  # whatever the body makes of it
            story = f"workflow {self.name!r} looks at its input ({error}); give an example of one"
            raise WorkflowDefinitionError("needs_input", story) from error

    def _traced(
        self, given: dict[str, Any], bound: inspect.BoundArguments | None = None
    ) -> tuple[Graph, dict[str, Any], Trace]:
        """`given` are the arguments by name: all that there are, to be given by their place, or as `bound` says."""
        inputs = _as_kept(given)
        # So that the graph is the same for every input, and is kept once.
        given = {name: tracked(value) for name, value in given.items()}
        trace = Trace({id(value): name for name, value in given.items()}, self._traces)
        token = _tracing.set(trace)
        try:
            if bound is None:
                returned: Any = self.function(*given.values())  # type: ignore[call-arg]  # as many as it takes
            else:
                bound.arguments = given
                returned = self.function(*bound.args, **bound.kwargs)
        finally:
            _tracing.reset(token)
        return self._traces.graph(trace, returned, partial(self._document, trace, returned)), inputs, trace

    def _document(self, trace: Trace, returned: Any) -> dict[str, Any]:
        if not trace.stages:
            raise WorkflowDefinitionError(
                "no_stages", f"workflow {self.name!r} calls no task; a step is a function with @task"
            )
        check_graph({ref: stage.requires for ref, stage in trace.stages.items()})
        _check_loops(trace)
        result: Binding = bind(returned, trace.inputs, "result")
        called = {one.task: None for one in trace.stages.values()}
        tasks = {task: [_task_document(one) for one in (task, *task.checks)] for task in called}
        stages = [_stage_document(one, tasks[one.task]) for one in trace.stages.values()]
        document = {"v": 1, "name": self.name, "version": self.version, "stages": stages, "result": result}
        if trace.patches:
            document["patches"] = sorted(trace.patches)
        return document if self.dead_letter else {**document, "dead_letter": False}

    def __repr__(self) -> str:
        return f"<workflow {self.name!r}>"


def _as_kept(inputs: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value.total_seconds() if isinstance(value, timedelta) else value for name, value in inputs.items()}


def _taken(signature: inspect.Signature, args: Sequence[Any], kwargs: Mapping[str, Any]) -> str:
    """What is taken, and what was given, without the values: they may be anybody's secrets."""
    places = [f"{len(args)} by place"] if args else []
    given = ", ".join([*places, *kwargs]) or "nothing"
    return f"it takes {', '.join(signature.parameters) or 'nothing'}, got {given}"


def _starter(workflow: WorkflowFunction[P, T]) -> TaskFunction[P, T]:
    """A task that has the workflow started with its arguments."""
    own = workflow._signature.parameters
    more = [
        inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=default)
        for name, default in (("wait", True), ("timeout", None))
        if name not in own
    ]

    def request(*args: Any, **kwargs: Any) -> Any:
        options = {one.name: kwargs.pop(one.name, one.default) for one in more}
        return SubWorkflow(workflow.name, args, kwargs, **options)

    kinds = [one.kind for one in own.values()]
    at = kinds.index(inspect.Parameter.VAR_KEYWORD) if inspect.Parameter.VAR_KEYWORD in kinds else len(kinds)
    parameters = [*own.values()]
    request.__signature__ = workflow._signature.replace(  # type: ignore[attr-defined]  # what `inspect` looks at
        parameters=[*parameters[:at], *more, *parameters[at:]]
    )
    return TaskFunction(request, name=f"{WORKFLOW_TYPE}{workflow.name}")


def current_trace() -> Trace | None:
    """The calls of the body of a workflow that is being run here to see its graph."""
    return _tracing.get()


def _check_loops(trace: Trace) -> None:
    """Raises WorkflowDefinitionError for a stage that would not know which round it is about."""
    for end, inside in trace.loops:
        for ref, stage in trace.stages.items():
            found = [one for one in stage.requires if one in inside]
            if found and ref not in inside and ref != end:
                story = f"{ref!r} waits for {found[0]!r}, which every round of {end!r} runs; take what the loop gives"
                raise WorkflowDefinitionError("inside_of_loop", story, (ref, found[0]))


def _stage_document(stage: TracedStage, tasks: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    document = {
        "ref": stage.ref, "tasks": tasks, "requires": stage.requires, "args": stage.args, "kwargs": stage.kwargs,
    }  # fmt: skip
    return document if stage.max_jumps is None else {**document, "max_jumps": stage.max_jumps}


def _task_document(task: TaskFunction[Any, Any]) -> dict[str, Any]:
    document = {"name": task.name, "type": task.name}
    return document if task.effect is None else {**document, "effect": task.effect.value}


@overload
def task(function: Callable[P, T], /) -> TaskFunction[P, T]: ...
@overload
def task(
    *,
    name: str | None = ...,
    retry: Any = ...,
    timeout: float | timedelta | None = ...,
    guard: str | None = ...,
    verify: Any = ...,
    effect: str | None = ...,
) -> Callable[[Callable[P, T]], TaskFunction[P, T]]: ...
def task(function: Any = None, /, **options: Any) -> Any:
    """Make a function a task. `retry` is a `Retry` or `RetryPolicy`: any exception but PermanentError is tried again.

    Without it only TransientError is, ten times. `timeout` is for each call; `guard` names a guard of the application
    that every call goes through. `verify` says what it must leave: a function of the result that answers True or None
    if all is well, or a dict with required_keys, type_checks, function, max_retries, retry_delay. `effect` says what to
    run it again would do: see `Effect`. Names are what is stored: they must stay when the code moves.
    """
    return TaskFunction(function, **options) if function is not None else lambda fn: TaskFunction(fn, **options)


@overload
def workflow(function: Callable[P, T], /) -> WorkflowFunction[P, T]: ...
@overload
def workflow(
    *,
    name: str | None = ...,
    version: str = ...,
    limit: int | None = ...,
    pipeline: str | None = ...,
    keep_waiting: bool = ...,
    dead_letter: bool = ...,
) -> Callable[[Callable[P, T]], WorkflowFunction[P, T]]: ...
def workflow(function: Any = None, /, **options: Any) -> Any:
    """Make a function a workflow: the tasks that it calls are its stages.

    One that fails for good leaves a dead letter, unless `dead_letter` is False.
    """
    return WorkflowFunction(function, **options) if function is not None else lambda fn: WorkflowFunction(fn, **options)
