"""`hold.workflows`: start workflows, look at them, and do something about them."""

from __future__ import annotations

from collections.abc import Callable, Container, Iterable, Mapping, Sequence
from dataclasses import replace
from functools import cached_property
from typing import TYPE_CHECKING, Any, TypeVar

from holdfast.core.clock import SYSTEM_CLOCK, Clock
from holdfast.errors import TaskError, WorkflowDefinitionError
from holdfast.store.codec import from_json, to_json
from holdfast.store.port import Change, Store
from holdfast.telemetry.causation import CAUSATION_FIELD, causation_id
from holdfast.telemetry.hub import Hub, default_hub
from holdfast.telemetry.tracing import current_trace
from holdfast.workflows.beginning import First, Wanted
from holdfast.workflows.children import CHILD, SubWorkflow
from holdfast.workflows.configs import Configs
from holdfast.workflows.dead_letters import FailedRuns
from holdfast.workflows.dedup import BloomDeduplicator, DeduplicatorHolder
from holdfast.workflows.dedup import offer_default as offer_deduplicator
from holdfast.workflows.definition import definition_of, limit_of
from holdfast.workflows.drifting import CONFIG_OF
from holdfast.workflows.finalizer_rows import Engine
from holdfast.workflows.finalizers import FinalizerRegistry
from holdfast.workflows.finalizers import offer_default as offer_finalizers
from holdfast.workflows.following import follow
from holdfast.workflows.forking import fork
from holdfast.workflows.functions import TaskFunction, WorkflowFunction
from holdfast.workflows.guarantees import WorkflowGuarantees, guarantees_of
from holdfast.workflows.handle import WorkflowRun
from holdfast.workflows.mentions import mentioned
from holdfast.workflows.messages import RunFinalizers, StartWaitingWorkflows
from holdfast.workflows.model import Workflow
from holdfast.workflows.operating import Operating
from holdfast.workflows.own_tasks import BUILT_IN
from holdfast.workflows.parking import Parking
from holdfast.workflows.rates import Rates
from holdfast.workflows.records import STAGE
from holdfast.workflows.recovery import WorkflowRecovery
from holdfast.workflows.registry import TaskRegistry
from holdfast.workflows.reporting import Reporter
from holdfast.workflows.run import CAUSED_BY
from holdfast.workflows.runs import Blueprints
from holdfast.workflows.schedule import WorkflowSchedule
from holdfast.workflows.schedules import Schedules
from holdfast.workflows.settling import WAKE
from holdfast.workflows.starting import start_all
from holdfast.workflows.store import WorkflowStore
from holdfast.workflows.task_guards import TaskGuards
from holdfast.workflows.transactions import SessionsOf, no_sessions
from holdfast.workflows.verification import CHECK, FunctionCheck, ValueCheck, checks_of
from holdfast.workflows.worker import WorkflowWorker

if TYPE_CHECKING:
    from holdfast.letters.handlers import ReplayHandlers

MakesWorkflow = WorkflowFunction[Any, Any] | Callable[..., Workflow]
M = TypeVar("M", bound=MakesWorkflow)
V = TypeVar("V", bound=Callable[..., Any])


class Workflows(Operating):
    """The workflows of one store.

    What an application brings is optional: its guards, sessions on the store's database for transactional tasks, the
    handlers of its dead letters (without them, workflows that fail leave none), its telemetry, and the version of its
    code, which is noted in what it starts. `config` is a ResilienceConfig, a HandlerConfig, an EngineConfig, or several
    of them; what is not given is as the environment says. `reach` lists where http tasks may go at most.
    """

    def __init__(
        self,
        store: Store,
        *,
        guard: Callable[[str], Any] | None = None,
        sessions: SessionsOf | None = None,
        letters: ReplayHandlers | None = None,
        code_version: str | None = None,
        clock: Clock = SYSTEM_CLOCK,
        config: Any = None,
        telemetry: Hub | None = None,
        reach: Sequence[str] = (),
    ) -> None:
        self.tasks: dict[str, TaskFunction[Any, Any]] = {one.name: one for one in BUILT_IN}
        self._guards = TaskGuards(self.tasks, guard or _no_guard, sessions or no_sessions, letters, self)
        failed = FailedRuns(store, self._guards.recovering_domain)
        ending = _nothing if letters is None else failed.ending
        reporter = Reporter(default_hub() if telemetry is None else telemetry)
        super().__init__(store, Blueprints(store), clock, Configs.of(config), reporter, ending)
        self._hub = telemetry
        self.code_version = code_version
        self._parking = Parking(store, self._wake_workers)
        if telemetry is not None:
            telemetry.register(self._parking)
        self.known: dict[str, MakesWorkflow] = {}
        """Workflows that can be started by name."""
        self.registry = TaskRegistry(reach=reach)
        self.registry.register(CHECK, ValueCheck())
        """Tasks of stages that are put together as models, by name."""
        self.rates = Rates(store)
        """How often tasks are begun, by type and by queue."""
        self.schedules = Schedules(store, self._blueprints, self)
        """Workflows that are started again and again."""
        self.finalizers = FinalizerRegistry(Engine(store, self.change, self.registry, self._blueprints), clock=clock)
        """What is done when stages are over."""
        offer_finalizers(self.finalizers)
        self._seen = DeduplicatorHolder()
        offer_deduplicator(self._seen)
        self.delivery.handlers["RunFinalizers"] = self._run_finalizers
        self.delivery.handlers["StartWaitingWorkflows"] = self._start_waiting

    @property
    def has_work(self) -> bool:
        """Whether there are tasks here that a worker could run."""
        return len(self.tasks) > len(BUILT_IN) or len(self.registry) > 1  # besides those that are always there

    def register(self, *functions: Any) -> None:
        """Make tasks known here under their names, so that workers can run them.

        Raises WorkflowDefinitionError for a name that another task has, for a guard that does not fit the task's
        effect, and for a transactional task on a store that is no SQL database.
        """
        for function in functions:
            for one in (function, *function.checks):
                if self.tasks.get(one.name) is one:
                    continue
                if one.name in self.tasks:
                    story = f"there are two tasks {one.name!r}; name one of them"
                    raise WorkflowDefinitionError("duplicate_task", story)
                self._guards.check(one)
                self.tasks[one.name] = one

    def add(self, function: M, name: str | None = None) -> M:
        """Make a workflow known by its name, so that `start` and `holdfast workflow start` take the name; with it the
        tasks and workflows that its body names.

        It is a `@workflow`, or a function that makes a `Workflow`. Raises WorkflowDefinitionError for a name that
        another one has.
        """
        name = name or str(getattr(function, "name", None) or getattr(function, "__name__", "workflow"))
        if self.known.get(name, function) is not function:
            raise WorkflowDefinitionError("duplicate_workflow", f"there are two workflows {name!r}; name one of them")
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

    def verifier(self, function: V, name: str | None = None) -> V:
        """Make a function known that verifies what stages leave, by its name; also a decorator.

        It gets the stage, and answers True or None if all is well, else False or what is wrong.
        """
        self.registry.register(f"{CHECK}.{name or getattr(function, '__name__', '')}", FunctionCheck(function))
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
        return self._start([self.wanted(workflow, args, kwargs, idempotency_key)])[0]

    def start_many(
        self,
        workflow: WorkflowFunction[Any, Any] | str,
        inputs: Iterable[tuple[Any, ...] | Mapping[str, Any]],
        /,
        *,
        idempotency_keys: Sequence[str | None] | None = None,
    ) -> list[WorkflowRun]:
        """Start a workflow for each of these inputs, in as few commits as may be: a tuple of arguments, or a dict of
        them by name.

        Raises as `start` does. Nothing is started if an input cannot be; if a key is taken, those before it are.
        """
        given = list(inputs)
        keys = [None] * len(given) if idempotency_keys is None else list(idempotency_keys)
        if len(keys) != len(given):
            story = f"start_many got {len(given)} inputs and {len(keys)} idempotency_keys; give one for each, or none"
            raise WorkflowDefinitionError("bad_input", story)
        wanted = []
        for one, key in zip(given, keys, strict=True):
            if not isinstance(one, tuple | Mapping):
                story = f"an input of start_many is a tuple of arguments, or a dict of them by name, got {one!r}"
                raise WorkflowDefinitionError("bad_input", story)
            args, kwargs = ((), dict(one)) if isinstance(one, Mapping) else (one, {})
            wanted.append(self.wanted(workflow, args, kwargs, key))
        return self._start(wanted)

    def _start(self, wanted: Sequence[Wanted]) -> list[WorkflowRun]:
        ids = start_all(self._store, self._blueprints, wanted, self._begin)
        return [WorkflowRun(self, id) for id in ids]

    def _begin(self, firsts: Sequence[First]) -> bool:
        """By a worker of ours that is at work, which needs no round through the store then."""
        return any(worker.begin(firsts) for worker in tuple(self._workers))

    def fork(
        self,
        workflow_id: str,
        from_stage: str,
        *,
        context: Mapping[str, Any] | None = None,
        workflow: WorkflowFunction[Any, Any] | Workflow | str | None = None,
        idempotency_key: str | None = None,
        by: str = "anonymous",
    ) -> WorkflowRun:
        """Start a new run of a workflow that has ended, which takes over what its steps before a stage have left, and
        runs that stage and everything else.

        `context` is put into its input. `workflow` is new code in the place of the definition that the run had: a
        stage of the same name keeps what it has left, unless something before it is new. Raises WorkflowNotFoundError,
        TaskError for a run that has not ended, and WorkflowDefinitionError as `start` does.
        """
        origin = self.record(workflow_id)
        inputs: dict[str, Any] = {**from_json(origin.context), **(context or {})}
        if isinstance(workflow, str):
            found = self._known(workflow)
            workflow = found if isinstance(found, WorkflowFunction) else found(**inputs)
        if workflow is None:
            blueprint = self._blueprint(origin)
            if blueprint.result is not None:  # it was made by a function, whose inputs have names
                _check_inputs(from_json(origin.context), context or {})
            wanted = Wanted(blueprint=blueprint, inputs=to_json(inputs), key=idempotency_key)
        elif isinstance(workflow, WorkflowFunction):
            wanted = self.wanted(workflow, (), inputs, idempotency_key)
        else:
            made = self.wanted(workflow, (), {}, idempotency_key)
            wanted = replace(made, inputs=to_json({**inputs, **workflow.context}))
        done = self._all(STAGE, workflow_id)
        return WorkflowRun(self, fork(self._store, self._blueprints, origin, done, wanted, from_stage, by=by))

    def describe(
        self, workflow: WorkflowFunction[Any, Any] | Workflow | str, /, *args: Any, **kwargs: Any
    ) -> WorkflowGuarantees:
        """What a workflow guarantees: one that is known here, by itself or by its name, or one that was started, by its
        id. An example of an input is needed where the body looks at it.

        Raises WorkflowDefinitionError, and WorkflowNotFoundError for what is neither a name nor an id.
        """
        if isinstance(workflow, str) and workflow not in self.known:
            return guarantees_of(self.blueprint(workflow))
        if isinstance(workflow, str):
            found = self._known(workflow)
            workflow = found if isinstance(found, WorkflowFunction) else found(*args, **kwargs)
        if isinstance(workflow, WorkflowFunction) and not args and not kwargs:
            return guarantees_of(self._blueprints.made_from(*workflow.sketch()[:2]))
        return guarantees_of(self.wanted(workflow, args, kwargs).blueprint)

    def keep(self, workflow: Workflow) -> WorkflowRun:
        """Store a workflow without beginning it: `queue.push(StartWorkflow(...))` does. Raises as `start` does."""
        wanted = replace(self._wanted_model(workflow, workflow.idempotency_key), begins=False)
        return self._start([wanted])[0]

    @property
    def deduplicator(self) -> BloomDeduplicator:
        """Ids that were perhaps seen here, for whoever pushes messages; the engine itself does without."""
        return self._seen.get()

    @cached_property
    def store(self) -> WorkflowStore:
        """Workflows and stages as models, with optimistic locks."""
        return WorkflowStore(self)

    @cached_property
    def recovery(self) -> WorkflowRecovery:
        """What takes up workflows that lack something; workers ask it, too."""
        return WorkflowRecovery(self.store, self.queue, self.configs.engine.recovery_max_age_hours)

    def schedule(self, name: str, workflow: MakesWorkflow | str, input: Any = None, **options: Any) -> WorkflowSchedule:
        """Have a workflow started again and again: `schedules.add`, which says what `options` there are."""
        return self.schedules.add(name, workflow, input, **options)

    def worker(self, **options: Any) -> WorkflowWorker:
        """A worker for the tasks that are registered here; `options` are those of `WorkflowWorker`, and go before what
        the configuration says.

        Raises WorkflowDefinitionError as `register` does, for guards that were not there yet.
        """
        for task in self.tasks.values():
            self._guards.check(task)
        handler, engine = self.configs.handler, self.configs.engine
        usual = {
            "threads": handler.max_workers, "bulkheads": self.configs.resilience,
            "beat_s": engine.lease_heartbeat_seconds, "ttl_s": engine.lease_ttl_seconds,
            "retention_days": engine.retention_days,
        }  # fmt: skip
        worker = WorkflowWorker(
            self._store, self.tasks, self.registry, self._blueprints, self.configs, self.finalizers,
            guard=self._guards.find, sessions=self._guards.sessions, told=self.heard, reporter=self._reporter,
            ending=self.ending, parking=self._parking, deliver=self.delivery.deliver, recover=self._recover,
            child=self._child, schedules=self.schedules.ticking, rates=self.rates, clock=self._clock,
            **{**usual, **options},
        )  # fmt: skip
        self._workers.add(worker)
        return worker

    def close(self) -> None:
        """Stop listening."""
        if self._hub is not None:
            self._hub.unregister(self._parking)
        super().close()

    def _recover(self) -> int:
        """A worker's round."""
        self.recovery.forget_marks()
        return self.recovery.sweep() if self.configs.engine.recovery_enabled else 0

    def _run_finalizers(self, message: RunFinalizers, extra: Sequence[Change]) -> None:
        self.finalizers.recover(message.execution_id)
        self._store.commit(extra)

    def _start_waiting(self, message: StartWaitingWorkflows, extra: Sequence[Change]) -> None:
        pipeline = (message.pipeline_config_id or message.execution_id, None)
        room = follow(self._store, self._blueprints, (), self._store.now(), pipelines=(pipeline,))
        self._store.commit([*extra, *room.changes], wake=WAKE)

    def _known(self, name: str) -> MakesWorkflow:
        found = self.known.get(name)
        if found is None:
            there = ", ".join(sorted(self.known)) or "none"
            story = f"no workflow {name!r} is known here; there are {there}; hold.workflows.add(…) adds one"
            raise WorkflowDefinitionError("unknown_workflow", story)
        return found

    def wanted(self, workflow: Any, args: Sequence[Any], kwargs: Mapping[str, Any], key: str | None = None) -> Wanted:
        """A workflow that is ready to be started. Raises WorkflowDefinitionError."""
        if isinstance(workflow, str):
            found = self._known(workflow)
            workflow = found if isinstance(found, WorkflowFunction) else found(*args, **kwargs)
        if isinstance(workflow, Workflow):
            return self._wanted_model(workflow, workflow.idempotency_key if key is None else key)
        if not isinstance(workflow, WorkflowFunction):
            raise _not_a_workflow(workflow)
        graph, inputs, trace = workflow.trace(args, dict(kwargs))
        self.register(*graph.tasks)
        for called in trace.workflows.values():
            self.add(called)
        about: dict[str, Any] = {CONFIG_OF: self.drifting.remember(), **_origin()}
        code = self.code_version if workflow.version == "1" else workflow.version
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
        )

    def _child(self, request: SubWorkflow) -> Wanted:
        """A workflow that a stage asks for. Raises WorkflowDefinitionError."""
        wanted = self.wanted(request.name, request.args, request.kwargs)
        if wanted.is_late(self._store.now()):
            raise WorkflowDefinitionError("too_late", f"workflow {request.name!r} had to begin by {wanted.expires}")
        return wanted if wanted.limit is not None else replace(wanted, expires=None)

    def _wanted_model(self, workflow: Workflow, key: str | None) -> Wanted:
        known = {*self.tasks, *self.registry}
        workflow.validate(tasks=known if self.has_work else None)
        if self.has_work:
            _check_verifiers(workflow, known)
        for type in dict.fromkeys(task.implementing_class for stage in workflow.stages for task in stage.tasks):
            self._guards.check_effect(type, self.registry.effect_of(type))
        about: dict[str, Any] = {"trigger": workflow.trigger.to_document(), "origin": workflow.origin}
        about |= {CONFIG_OF: self.drifting.remember(), **_origin()}
        if workflow.config_version is not None:
            about["config_version"] = workflow.config_version
        if (code := workflow.code_version or self.code_version) is not None:
            about["code_version"] = code
        for stage in workflow.stages if self.known else ():
            name = stage.context.get("workflow")
            if isinstance(name, str) and any(task.implementing_class == CHILD for task in stage.tasks):
                self._known(name)  # what no worker like this one could start is refused now
        return Wanted(
            blueprint=self._blueprints.made_from(definition_of(workflow, self.registry.effect_of)),
            inputs=to_json(workflow.context),
            key=key,
            id=workflow.id,
            application=workflow.application,
            queue=workflow.queue,
            priority=workflow.priority,
            about=to_json(about),
            expires=workflow.start_time_expiry,
            drift=self.drifting.at_start(workflow),
            pipeline=workflow.pipeline_config_id,
            limit=limit_of(workflow),
            keeps=workflow.keep_waiting_pipelines,
        )

    def _wake_workers(self) -> None:
        for worker in tuple(self._workers):
            worker.wake()


def _origin() -> dict[str, Any]:
    """What is told of a workflow that is started here: its cause, and the trace that it is linked to."""
    cause, trace = causation_id(), current_trace()
    found = trace if cause is None else {CAUSATION_FIELD: cause, **trace}
    return {CAUSED_BY: found} if found else {}


def _nothing(*_: Any) -> Any:
    """A workflow that ends leaves no letter."""
    return []


def _check_inputs(there: Mapping[str, Any], given: Mapping[str, Any]) -> None:
    if unknown := [name for name in given if name not in there]:
        names = ", ".join(sorted(there)) or "none"
        raise WorkflowDefinitionError("bad_input", f"there is no input {unknown[0]!r} to change; there are {names}")


def _check_verifiers(workflow: Workflow, known: Container[str]) -> None:
    """Raises WorkflowDefinitionError for a function that nobody has registered."""
    for stage in workflow.stages:
        for check, _ in checks_of(stage):
            if check.implementing_class not in known:
                name = check.implementing_class.removeprefix(f"{CHECK}.")
                story = f"{stage.label} is verified by {name!r}, which nobody has registered; use workflows.verifier(…)"
                raise WorkflowDefinitionError("unknown_task_type", story, (stage.ref_id,))


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
