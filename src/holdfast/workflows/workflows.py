"""`hold.workflows`: start workflows, look at them, and do something about them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from functools import cached_property
from typing import TYPE_CHECKING, Any, TypeVar

from holdfast.core.check import check_text
from holdfast.core.clock import SYSTEM_CLOCK, Clock
from holdfast.errors import TaskError, WorkflowDefinitionError
from holdfast.store.codec import from_json, to_json
from holdfast.store.port import Change, Store
from holdfast.telemetry.hub import Hub, default_hub
from holdfast.workflows.beginning import First, Wanted
from holdfast.workflows.catalogue import Catalogue, MakesWorkflow
from holdfast.workflows.configs import Configs
from holdfast.workflows.dead_letters import FailedRuns
from holdfast.workflows.dedup import BloomDeduplicator, DeduplicatorHolder
from holdfast.workflows.dedup import offer_default as offer_deduplicator
from holdfast.workflows.drifting import CONFIG_OF
from holdfast.workflows.finalizer_rows import Engine
from holdfast.workflows.finalizers import FinalizerRegistry
from holdfast.workflows.finalizers import offer_default as offer_finalizers
from holdfast.workflows.following import follow
from holdfast.workflows.forking import fork
from holdfast.workflows.functions import TaskFunction, WorkflowFunction
from holdfast.workflows.guarantees import WorkflowGuarantees, guarantees_of
from holdfast.workflows.handle import WorkflowRun
from holdfast.workflows.lines import line_of
from holdfast.workflows.messages import RunFinalizers, StartWaitingWorkflows
from holdfast.workflows.model import Workflow
from holdfast.workflows.operating import Operating, words
from holdfast.workflows.own_tasks import BUILT_IN
from holdfast.workflows.parking import Parking
from holdfast.workflows.rates import Rates
from holdfast.workflows.records import STAGE
from holdfast.workflows.recovery import WorkflowRecovery
from holdfast.workflows.registry import TaskRegistry
from holdfast.workflows.reporting import Reporter
from holdfast.workflows.runs import Blueprints
from holdfast.workflows.schedule import WorkflowSchedule
from holdfast.workflows.schedules import Schedules
from holdfast.workflows.settling import WAKE
from holdfast.workflows.starting import start_all
from holdfast.workflows.store import WorkflowStore
from holdfast.workflows.task_guards import TaskGuards
from holdfast.workflows.transactions import SessionsOf, no_sessions
from holdfast.workflows.verification import CHECK, FunctionCheck, ValueCheck
from holdfast.workflows.wanting import Wanting
from holdfast.workflows.worker import WorkflowWorker

if TYPE_CHECKING:
    from holdfast.letters.handlers import ReplayHandlers

M = TypeVar("M", bound=MakesWorkflow)
V = TypeVar("V", bound=Callable[..., Any])


class Workflows(Operating):
    """The workflows of one store.

    What an application brings is optional: its guards, sessions on the store's database for transactional tasks, the
    handlers of its dead letters (without them, workflows that fail leave none), its telemetry, and the version of its
    code, which is noted in what it starts. `config` is a ResilienceConfig, a HandlerConfig, an EngineConfig, or several
    of them; what is not given is as the environment says. `reach` lists where http tasks may go at most; `told` is
    called when a task was registered.
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
        told: Callable[[], object] | None = None,
    ) -> None:
        self.tasks: dict[str, TaskFunction[Any, Any]] = {one.name: one for one in BUILT_IN}
        self._guards = TaskGuards(self.tasks, guard or _no_guard, sessions or no_sessions, letters, self)
        failed = FailedRuns(store, self._guards.recovering_domain)
        ending = _nothing if letters is None else failed.ending
        reporter = Reporter(default_hub() if telemetry is None else telemetry)
        super().__init__(store, Blueprints(store), clock, Configs.of(config), reporter, ending)
        self._hub = telemetry
        if code_version is not None:
            check_text("code_version", code_version)
        self.code_version = code_version
        self._parking = Parking(store, self._wake_workers)
        if telemetry is not None:
            telemetry.register(self._parking)
        self.registry = TaskRegistry(reach=reach)
        """Tasks of stages that are put together as models, by name."""
        self.registry.register(CHECK, ValueCheck())
        self.registry.told = told or self.registry.told
        self._catalogue = Catalogue(self.tasks, self.registry, self._guards)
        self.known = self._catalogue.known
        """Workflows that can be started by name."""
        self._wanting = Wanting(
            store, self._blueprints, self._catalogue, self._guards, self.drifting, lambda: self.code_version
        )
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
        return self._catalogue.has_work

    def register(self, *functions: Any) -> None:
        """Make tasks known here under their names, so that workers can run them.

        Raises WorkflowDefinitionError for a name that another task has, for a guard that does not fit the task's
        effect, and for a transactional task on a store that is no SQL database.
        """
        self._catalogue.register(*functions)

    def add(self, function: M, name: str | None = None) -> M:
        """Make a workflow known by its name, so that `start` and `holdfast workflow start` take the name; with it the
        tasks and workflows that its body names.

        It is a `@workflow`, or a function that makes a `Workflow`. Raises WorkflowDefinitionError for a name that
        another one has.
        """
        return self._catalogue.add(function, name)

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
        """Start a workflow with this input, and give a handle. The same key gives the first one that had it, whatever
        code that was started with.

        Raises WorkflowDefinitionError for a graph or an input that cannot be, or a key with another input.
        """
        return self._start([self._wanting.wanted(workflow, args, kwargs, idempotency_key)])[0]

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
            wanted.append(self._wanting.wanted(workflow, args, kwargs, key))
        return self._start(wanted)

    def _start(self, wanted: Sequence[Wanted]) -> list[WorkflowRun]:
        ids = start_all(self._store, self._blueprints, wanted, self._begin)
        runs = [WorkflowRun(self, id) for id in ids]
        self.waiters.expect(runs)
        return runs

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
        reason: str = "",
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
            workflow = self._catalogue.find(workflow, (), inputs)
        if workflow is None:
            blueprint = self._blueprint(origin)
            if blueprint.result is not None:  # it was made by a function, whose inputs have names
                _check_inputs(from_json(origin.context), context or {})
            pipeline, limit, keeps = line_of(self._store, origin)
            wanted = Wanted(
                blueprint=blueprint, inputs=to_json(inputs), key=idempotency_key, pipeline=pipeline, limit=limit,
                keeps=keeps, about=to_json({CONFIG_OF: self.drifting.remember()}),
            )  # fmt: skip
        elif isinstance(workflow, WorkflowFunction):
            wanted = self._wanting.wanted(workflow, (), inputs, idempotency_key)
        else:
            made = self._wanting.wanted(workflow, (), {}, idempotency_key)
            wanted = replace(made, inputs=to_json({**inputs, **workflow.context}))
        done = self._all(STAGE, workflow_id)
        said = {"by": words("by", by), "reason": words("reason", reason)}
        return WorkflowRun(self, fork(self._store, self._blueprints, origin, done, wanted, from_stage, **said))

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
            workflow = self._catalogue.find(workflow, args, kwargs)
        if isinstance(workflow, WorkflowFunction) and not args and not kwargs:
            return guarantees_of(self._blueprints.made_from(*workflow.sketch()[:2]))
        return guarantees_of(self._wanting.wanted(workflow, args, kwargs).blueprint)

    def keep(self, workflow: Workflow) -> WorkflowRun:
        """Store a workflow without beginning it: `queue.push(StartWorkflow(...))` does. Raises as `start` does."""
        wanted = replace(self._wanting.of_model(workflow, workflow.idempotency_key), begins=False)
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
            child=self._wanting.of_child, schedules=self.schedules.ticking, rates=self.rates, clock=self._clock,
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

    def wanted(self, workflow: Any, args: Sequence[Any], kwargs: Mapping[str, Any], key: str | None = None) -> Wanted:
        """A workflow that is ready to be started. Raises WorkflowDefinitionError."""
        return self._wanting.wanted(workflow, args, kwargs, key)

    def _wake_workers(self) -> None:
        for worker in tuple(self._workers):
            worker.wake()


def _nothing(*_: Any) -> Any:
    """A workflow that ends leaves no letter."""
    return []


def _check_inputs(there: Mapping[str, Any], given: Mapping[str, Any]) -> None:
    if unknown := [name for name in given if name not in there]:
        names = ", ".join(sorted(there)) or "none"
        raise WorkflowDefinitionError("bad_input", f"there is no input {unknown[0]!r} to change; there are {names}")


def _no_guard(name: str) -> Any:
    raise TaskError(f"there is no guard {name!r}")
