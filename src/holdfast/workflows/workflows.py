"""`hold.workflows`: start workflows, look at them, and do something about them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

from holdfast.core.clock import SYSTEM_CLOCK, Clock
from holdfast.errors import TaskError, WorkflowDefinitionError
from holdfast.store.codec import to_json
from holdfast.store.port import Store
from holdfast.workflows.definition import definition_of
from holdfast.workflows.functions import TaskFunction, WorkflowFunction
from holdfast.workflows.handle import WorkflowRun
from holdfast.workflows.model import Workflow
from holdfast.workflows.operating import Operating
from holdfast.workflows.registry import TaskRegistry
from holdfast.workflows.runs import Blueprints
from holdfast.workflows.starting import Wanted, start
from holdfast.workflows.waiting import BUILT_IN
from holdfast.workflows.worker import WorkflowWorker

MakesWorkflow = WorkflowFunction[Any, Any] | Callable[..., Workflow]
M = TypeVar("M", bound=MakesWorkflow)


class Workflows(Operating):
    """The workflows of one store."""

    def __init__(self, store: Store, *, guard: Callable[[str], Any] | None = None, clock: Clock = SYSTEM_CLOCK) -> None:
        super().__init__(store, Blueprints(store), clock)
        self._guard = guard
        self.known: dict[str, MakesWorkflow] = {}
        """Workflows that can be started by name."""
        self.tasks: dict[str, TaskFunction[Any, Any]] = {one.name: one for one in BUILT_IN}
        self.registry = TaskRegistry()
        """Tasks of stages that are put together as models, by name."""

    @property
    def has_work(self) -> bool:
        """Whether there are tasks here that a worker could run."""
        return len(self.tasks) > len(BUILT_IN) or len(self.registry) > 0

    def register(self, *functions: Any) -> None:
        """Make tasks known here under their names, so that workers can run them.

        Raises WorkflowDefinitionError for a name that another task has.
        """
        for function in functions:
            known = self.tasks.setdefault(function.name, function)
            if known is not function:
                story = f"there are two tasks {function.name!r}; name one of them"
                raise WorkflowDefinitionError("duplicate_task", story)

    def add(self, function: M, name: str | None = None) -> M:
        """Make a workflow known by its name, so that `start` and `holdfast workflow start` take the name.

        It is a `@workflow`, or a function that makes a `Workflow`. Raises WorkflowDefinitionError for a name that
        another one has.
        """
        name = name or str(getattr(function, "name", None) or getattr(function, "__name__", "workflow"))
        if self.known.setdefault(name, function) is not function:
            raise WorkflowDefinitionError("duplicate_workflow", f"there are two workflows {name!r}; name one of them")
        return function

    def start(
        self,
        workflow: WorkflowFunction[Any, Any] | Workflow | str,
        /,
        *args: Any,
        idempotency_key: str | None = None,
        **kwargs: Any,
    ) -> WorkflowRun:
        """Start a workflow with this input, and give a handle. The same key gives the first one that had it.

        Raises WorkflowDefinitionError for a graph or an input that cannot be, or a key with another input.
        """
        if isinstance(workflow, str):
            found = self._known(workflow)
            workflow = found if isinstance(found, WorkflowFunction) else found(*args, **kwargs)
        if isinstance(workflow, Workflow):
            wanted = self._wanted(workflow, idempotency_key or workflow.idempotency_key)
        else:
            if not isinstance(workflow, WorkflowFunction):
                raise _not_a_workflow(workflow)
            document, inputs, trace = workflow.trace(args, kwargs)
            self.register(*(stage.task for stage in trace.stages.values()))
            wanted = Wanted(blueprint=self._blueprints.made_from(document), inputs=to_json(inputs), key=idempotency_key)
        return WorkflowRun(self, start(self._store, self._blueprints, wanted))

    def worker(self, **options: Any) -> WorkflowWorker:
        """A worker for the tasks that are registered here."""
        worker = WorkflowWorker(
            self._store, self.tasks, self.registry, self._blueprints, guard=self._guard or _no_guard, told=self._tell,
            clock=self._clock, **options,
        )  # fmt: skip
        self._workers.add(worker)
        return worker

    def _known(self, name: str) -> MakesWorkflow:
        found = self.known.get(name)
        if found is None:
            there = ", ".join(sorted(self.known)) or "none"
            story = f"no workflow {name!r} is known here; there are {there}; hold.workflows.add(…) adds one"
            raise WorkflowDefinitionError("unknown_workflow", story)
        return found

    def _wanted(self, workflow: Workflow, key: str | None) -> Wanted:
        known = {*self.tasks, *self.registry}
        workflow.validate(tasks=known if known else None)
        return Wanted(
            blueprint=self._blueprints.made_from(definition_of(workflow)),
            inputs=to_json(workflow.context),
            key=key,
            id=workflow.id,
            application=workflow.application,
            queue=workflow.queue,
            priority=workflow.priority,
            about=to_json({"trigger": workflow.trigger.to_document(), "origin": workflow.origin}),
            expires=workflow.start_time_expiry,
        )


def _no_guard(name: str) -> Any:
    raise TaskError(f"there is no guard {name!r}")


def _not_a_workflow(given: object) -> WorkflowDefinitionError:
    if isinstance(given, TaskFunction):
        fix = "call it in a function with @workflow, and start that"
    elif callable(given):
        fix = "decorate it with @workflow, or start what it returns if it makes a Workflow"
    else:
        fix = "start takes a function with @workflow, a Workflow, or the name of one that was added"
    return WorkflowDefinitionError("not_a_workflow", f"{given!r} is no workflow; {fix}")
