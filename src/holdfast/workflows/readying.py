"""Making calls of items: which task it is, what it is called with, and where."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

from holdfast.core.clock import Clock
from holdfast.machine.finalizer import FinalizerForm
from holdfast.machine.instances import base_of
from holdfast.machine.retry import Retry
from holdfast.machine.run import StageState
from holdfast.machine.workflow import WorkflowStatus
from holdfast.store.port import Store
from holdfast.workflows.beginning import Wanted
from holdfast.workflows.binding import resolve
from holdfast.workflows.calling import Call, Doable, Workplace
from holdfast.workflows.children import SubWorkflow
from holdfast.workflows.effects import Effect
from holdfast.workflows.finalizers import FinalizerRegistry
from holdfast.workflows.functions import TaskFunction
from holdfast.workflows.isolation import IsolatedTask, ProcessIsolation
from holdfast.workflows.own_tasks import BUILT_IN
from holdfast.workflows.plan import StageExtras
from holdfast.workflows.presence import Presence
from holdfast.workflows.records import ItemRecord
from holdfast.workflows.registry import TaskRegistry, hooks_of
from holdfast.workflows.result import TaskResult
from holdfast.workflows.run import Run
from holdfast.workflows.stage_tasks import StageTask, read_shown
from holdfast.workflows.verification import is_check


class Readying:
    """`child` makes a workflow ready that a task asks for; `usual` is how a task is tried again that has no policy."""

    def __init__(
        self,
        store: Store,
        tasks: Mapping[str, TaskFunction[Any, Any]],
        registry: TaskRegistry,
        finalizers: FinalizerRegistry,
        presence: Presence,
        *,
        child: Callable[[SubWorkflow], Wanted],
        isolation: ProcessIsolation | None,
        usual: Retry,
        clock: Clock,
    ) -> None:
        self._store = store
        self._tasks = tasks
        self._registry = registry
        self._finalizers = finalizers
        self._isolation = isolation
        self._clock = clock
        self._place = Workplace(registry.judge, usual, child, finalizers, presence)

    def call(self, item: ItemRecord, run: Run) -> Call:
        """A call of an item's task, with its arguments as they are now. Raises what stands in the way."""
        extras = run.blueprint.extras[item.ref]
        args, kwargs = extras.args, extras.kwargs
        if not run.knows_all:
            run.read(self._store, (item.ref, base_of(item.ref), *extras.sources))

        task = self._tasks.get(item.type)
        if _verifies(item.type, task) and _has_failed(run.stage(item.ref)):
            return Call(item, TaskFunction(TaskResult.skipped, name=item.type), (), {}, run, self._place)
        if task is None:
            return self._stage_call(item, run, extras)
        doable = task if self._isolation is None else self._apart(task)
        if task.verifies:
            return Call(item, doable, (run.left(item.ref),), {}, run, self._place)
        inputs, own = run.inputs, run.stage(item.ref).context
        given = tuple([resolve(binding, inputs, run.left, own) for binding in args])
        named = {name: resolve(binding, inputs, run.left, own) for name, binding in kwargs.items()} if kwargs else {}
        return Call(item, doable, given, named, run, self._place)

    def _stage_call(self, item: ItemRecord, run: Run, extras: StageExtras) -> Call:
        """A call of a task that is shown its stage."""
        stage = read_shown(self._store, run, item.ref)
        found = self._registry.resolve(item.type)
        prepare = partial(self._hook, item) if any(hooks_of(found)) else None
        began = run.stage(item.ref).tasks[item.at].started_at
        went_s = 0.0 if began is None else max(0, self._store.now() - began) / 1e6
        effect = self._registry.effect_of(item.type)
        isolation = None if effect is Effect.TRANSACTIONAL else self._isolation
        execute = None if isolation is None else partial(isolation.execute, item.type)
        task = StageTask(
            item.type, found, stage, extras.tasks[item.at], effect, prepare, execute=execute, went_s=went_s,
            clock=self._clock,
        )  # fmt: skip
        return Call(item, task, (), {}, run, self._place)

    def _hook(self, item: ItemRecord) -> None:
        """What a task does when its stage is over is on record before it is called."""
        cancels, cleans = hooks_of(self._registry.resolve(item.type))
        if cancels:
            self._finalizers.hook(FinalizerForm.CANCEL, item.type, item.at)
        if cleans:
            self._finalizers.hook(FinalizerForm.CLEANUP, item.type, item.at)

    def _apart(self, task: Doable) -> Doable:
        """The task in a process of its own, where that is asked for. The engine's own waits are none, and who writes
        in the step's transaction must be where that is."""
        if self._isolation is None or task in BUILT_IN or task.effect is Effect.TRANSACTIONAL:
            return task
        return IsolatedTask(task, self._isolation)


def _verifies(type: str, task: TaskFunction[Any, Any] | None) -> bool:
    return is_check(type) if task is None else task.verifies


def _has_failed(stage: StageState) -> bool:
    """Whether a task of it has failed and was passed over: there is no success to be verified."""
    return any(task.status is WorkflowStatus.FAILED_CONTINUE for task in stage.tasks)
