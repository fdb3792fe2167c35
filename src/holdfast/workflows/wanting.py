"""From what somebody asks for, a function, a model or a name, to a workflow that is ready to be started."""

from __future__ import annotations

from collections.abc import Callable, Container, Mapping, Sequence
from dataclasses import replace
from typing import Any

from holdfast.errors import WorkflowDefinitionError
from holdfast.store.codec import to_json
from holdfast.store.port import Store
from holdfast.telemetry.causation import CAUSATION_FIELD, causation_id
from holdfast.telemetry.tracing import current_trace
from holdfast.workflows.beginning import Wanted
from holdfast.workflows.catalogue import Catalogue
from holdfast.workflows.children import CHILD, SubWorkflow
from holdfast.workflows.definition import definition_of, limit_of
from holdfast.workflows.drifting import CONFIG_OF, Drifting
from holdfast.workflows.functions import TaskFunction, WorkflowFunction
from holdfast.workflows.model import Workflow
from holdfast.workflows.run import CAUSED_BY
from holdfast.workflows.runs import Blueprints
from holdfast.workflows.task_guards import TaskGuards
from holdfast.workflows.verification import CHECK, checks_of


class Wanting:
    """What is new in it is made known to the `catalogue`. `code` is the version that is noted where it has none of its
    own."""

    def __init__(
        self,
        store: Store,
        blueprints: Blueprints,
        catalogue: Catalogue,
        guards: TaskGuards,
        drifting: Drifting,
        code: Callable[[], str | None],
    ) -> None:
        self._store = store
        self._blueprints = blueprints
        self._catalogue = catalogue
        self._guards = guards
        self._drifting = drifting
        self._code = code

    def wanted(self, workflow: Any, args: Sequence[Any], kwargs: Mapping[str, Any], key: str | None = None) -> Wanted:
        """A workflow with this input. Raises WorkflowDefinitionError."""
        if isinstance(workflow, str):
            workflow = self._catalogue.find(workflow, args, kwargs)
        if isinstance(workflow, Workflow):
            return self.of_model(workflow, workflow.idempotency_key if key is None else key)
        if not isinstance(workflow, WorkflowFunction):
            raise _not_a_workflow(workflow)
        graph, inputs, trace = workflow.trace(args, dict(kwargs))
        self._catalogue.register(*graph.tasks)
        for called in trace.workflows.values():
            self._catalogue.add(called)
        about: dict[str, Any] = {CONFIG_OF: self._drifting.remember(), **_origin()}
        code = self._code() if workflow.version == "1" else workflow.version
        if code is not None:
            about["code_version"] = code
        return Wanted(
            blueprint=self._blueprints.made_from(graph.document, graph.form),
            inputs=to_json(inputs),
            key=key,
            about=to_json(about),
            pipeline=workflow.pipeline,
            limit=workflow.limit,
            keeps=workflow.keep_waiting,
            defaults=workflow.defaults,
        )

    def of_child(self, request: SubWorkflow) -> Wanted:
        """A workflow that a stage asks for. Raises WorkflowDefinitionError."""
        name: Any = request.name
        args: Any = request.args
        if not isinstance(name, str) or isinstance(args, str):
            story = "SubWorkflow takes the name that a workflow is known by, and a list of arguments"
            raise WorkflowDefinitionError("bad_input", f"{story}; got {name!r} and {args!r}")
        wanted = self.wanted(request.name, request.args, request.kwargs)
        if wanted.is_late(self._store.now()):
            raise WorkflowDefinitionError("too_late", f"workflow {request.name!r} had to begin by {wanted.expires}")
        return wanted if wanted.limit is not None else replace(wanted, expires=None)

    def of_model(self, workflow: Workflow, key: str | None) -> Wanted:
        """A workflow that was put together as a model. Raises WorkflowDefinitionError."""
        there = self._catalogue
        known = {*there.tasks, *there.registry}
        workflow.validate(tasks=known if there.has_work else None)
        if there.has_work:
            _check_verifiers(workflow, known)
        for type in dict.fromkeys(task.implementing_class for stage in workflow.stages for task in stage.tasks):
            self._guards.check_effect(type, there.registry.effect_of(type))
        about: dict[str, Any] = {"trigger": workflow.trigger.to_document(), "origin": workflow.origin}
        about |= {CONFIG_OF: self._drifting.remember(), **_origin()}
        if workflow.config_version is not None:
            about["config_version"] = workflow.config_version
        if (code := workflow.code_version or self._code()) is not None:
            about["code_version"] = code
        for stage in workflow.stages if there.known else ():
            name = stage.context.get("workflow")
            if isinstance(name, str) and any(task.implementing_class == CHILD for task in stage.tasks):
                there.maker(name)  # what no worker like this one could start is refused now
        return Wanted(
            blueprint=self._blueprints.made_from(definition_of(workflow, there.registry.effect_of)),
            inputs=to_json(workflow.context),
            key=key,
            id=workflow.id,
            application=workflow.application,
            queue=workflow.queue,
            priority=workflow.priority,
            about=to_json(about),
            expires=workflow.start_time_expiry,
            drift=self._drifting.at_start(workflow),
            pipeline=workflow.pipeline_config_id,
            limit=limit_of(workflow),
            keeps=workflow.keep_waiting_pipelines,
        )


def _origin() -> dict[str, Any]:
    """What is told of a workflow that is started here: its cause, and the trace that it is linked to."""
    cause, trace = causation_id(), current_trace()
    found = trace if cause is None else {CAUSATION_FIELD: cause, **trace}
    return {CAUSED_BY: found} if found else {}


def _check_verifiers(workflow: Workflow, known: Container[str]) -> None:
    """Raises WorkflowDefinitionError for a function that nobody has registered."""
    for stage in workflow.stages:
        for check, _ in checks_of(stage):
            if check.implementing_class not in known:
                name = check.implementing_class.removeprefix(f"{CHECK}.")
                story = f"{stage.label} is verified by {name!r}, which nobody has registered; use workflows.verifier(…)"
                raise WorkflowDefinitionError("unknown_task_type", story, (stage.ref_id,))


def _not_a_workflow(given: object) -> WorkflowDefinitionError:
    if isinstance(given, TaskFunction):
        fix = "call it in a function with @workflow, and start that"
    elif callable(given):
        fix = "decorate it with @workflow, or start what it returns if it makes a Workflow"
    else:
        fix = "start takes a function with @workflow, a Workflow, or the name of one that was added"
    return WorkflowDefinitionError("not_a_workflow", f"{given!r} is no workflow; {fix}")
