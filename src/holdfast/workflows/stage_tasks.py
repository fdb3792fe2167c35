"""Tasks of stages that were put together as models: what they are shown, and how they are called."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Callable, Mapping, Sequence
from datetime import timedelta
from typing import Any

from holdfast.core.clock import SYSTEM_CLOCK, Clock
from holdfast.errors import Conflict, StoreError, TaskError, TransientError
from holdfast.machine.retry import Retry
from holdfast.machine.run import Missing, StageState
from holdfast.machine.workflow import WorkflowStatus
from holdfast.store.codec import instant
from holdfast.store.port import Store
from holdfast.workflows.children import SubWorkflow
from holdfast.workflows.definition import model_of
from holdfast.workflows.effects import Effect
from holdfast.workflows.result import TaskResult, as_result
from holdfast.workflows.run import Run
from holdfast.workflows.stage import StageExecution
from holdfast.workflows.task import RetryableTask, Task
from holdfast.workflows.verification import Verification, is_check


class SeenContext(dict[str, Any]):
    """A stage's own context. What is not in it is looked up in what the stages before it have left."""

    def __init__(self, own: Mapping[str, Any], seen: Mapping[str, Any]) -> None:
        super().__init__(own)
        self.seen = seen

    @property
    def own(self) -> dict[str, Any]:
        """Without what other stages left: settings must not come from there."""
        return dict(self)

    def __missing__(self, key: str) -> Any:
        return self.seen[key]

    def __contains__(self, key: object) -> bool:
        return super().__contains__(key) or key in self.seen

    def get(self, key: str, default: Any = None) -> Any:
        try:
            return self[key]
        except KeyError:
            return default


class StageTask:
    """A task of a stage, ready to be called: `function()`."""

    is_async: bool
    guard = None

    def __init__(
        self,
        name: str,
        task: Task,
        stage: StageExecution,
        options: Mapping[str, Any],
        effect: Effect | None,
        prepare: Callable[[], None] | None = None,
        *,
        execute: Callable[[StageExecution], Any] | None = None,
        went_s: float = 0.0,
        clock: Clock = SYSTEM_CLOCK,
    ) -> None:
        self.name = name
        self.verifies = is_check(name)
        self.task = task
        self.stage = stage
        self.timeout: float | None = options.get("timeout")
        self.retry = _asked_again(options["verify"]) if options.get("verify") else _retry(options.get("retry"))
        self.effect = effect
        self.retry_timeouts = bool(options.get("retry_timeouts"))
        self._execute = task.execute if execute is None else execute
        """The task's own, or who has it run elsewhere."""
        self.is_async = inspect.iscoroutinefunction(self._execute)
        self._prepare = prepare
        """What is to be stored before it is called."""
        self.went_s = went_s
        """How long it has been going on, over all calls."""
        self.paces_itself = isinstance(task, RetryableTask)
        self.pause_s: float | None = None
        """The pause that it wants before the next call."""
        self.is_late = False
        """Whether its time is over before it is called."""
        self._clock = clock
        self._limit(task)

    def function(self) -> Any:
        """The answer as a TaskResult or a SubWorkflow, or a coroutine that gives it."""
        if self._prepare is not None and self.is_async:
            return self._prepared(self._prepare)
        if self._prepare is not None:
            _noted(self._prepare)
        began = self._clock.monotonic()
        answer = self._execute(self.stage)
        return self._awaited(answer, began) if inspect.isawaitable(answer) else self._result(answer, began)

    def _limit(self, task: Task) -> None:
        """A task may limit itself, over all calls."""
        if isinstance(task, RetryableTask):
            left = task.get_dynamic_timeout(self.stage).total_seconds() - self.went_s
            self.is_late = left <= 0
            if not self.is_late:
                self.timeout = left if self.timeout is None else min(self.timeout, left)
            # The whole time is over, then: another try would come too late.
            self.retry_timeouts = self.retry_timeouts and not self.is_late

    def _result(self, answer: Any, began: float) -> TaskResult | SubWorkflow:
        if isinstance(answer, SubWorkflow):
            return answer
        result = as_result(answer, self.name)
        task = self.task
        if isinstance(task, RetryableTask) and result.status is WorkflowStatus.RUNNING:
            took = self._clock.monotonic() - began
            wanted = task.get_dynamic_backoff_period(self.stage, timedelta(seconds=self.went_s + took))
            left = task.get_dynamic_timeout(self.stage).total_seconds() - self.went_s - took
            self.pause_s = max(0.0, min(wanted.total_seconds(), left))
        return result

    def on_timeout(self) -> Any:
        """What the task leaves when it took too long, or a coroutine that gives it; None: nothing."""
        answer = self.task.on_timeout(self.stage)
        if inspect.isawaitable(answer):
            return self._maybe(answer)
        return None if answer is None else as_result(answer, self.name)

    async def _maybe(self, answer: Any) -> Any:
        given = await answer
        return None if given is None else as_result(given, self.name)

    async def _prepared(self, prepare: Callable[[], None]) -> Any:
        await asyncio.to_thread(_noted, prepare)
        return await self._awaited(self._execute(self.stage), self._clock.monotonic())

    async def _awaited(self, answer: Any, began: float) -> Any:
        return self._result(await answer, began)


def shown(run: Run, stage: StageState) -> StageExecution:
    """The stage as its tasks see it. Raises Missing if something that it sees was not read."""
    model = run.blueprint.extras[stage.plan.ref].model
    if model is None:
        raise TaskError(f"stage {stage.plan.ref!r} was made by a function; no task of a model can run it")
    view = StageExecution.from_document(model_of(run.id, stage.plan, model))
    vars(view)["status"] = stage.status
    view.context = SeenContext(stage.context, run.judge.seen(stage))
    view.outputs = dict(stage.outputs)
    view.incarnation = stage.incarnation
    view.start_time = None if stage.started_at is None else instant(stage.started_at)
    for task, state in zip(view.tasks, stage.tasks, strict=True):
        vars(task)["status"] = state.status
        task.attempt = state.attempt
    return view


def read_shown(store: Store, run: Run, ref: str) -> StageExecution:
    """The same, with what it takes read from the store."""
    run.read(store, [ref])
    while True:
        try:
            return shown(run, run.stage(ref))
        except Missing as missing:
            run.read(store, missing.refs)


def _noted(prepare: Callable[[], None]) -> None:
    try:
        prepare()
    except (StoreError, Conflict) as error:
        raise TransientError(f"it was not called: what is to be done after it was not stored: {error}") from error


def _asked_again(verify: Sequence[Any]) -> Retry:
    retries, delay = verify
    return Verification(max_retries=retries, retry_delay=delay).retry


def _retry(policy: Mapping[str, Any] | None) -> Any:
    if policy is None:
        return None
    from holdfast.guard.retry_policy import RetryPolicy

    return RetryPolicy.model_validate(policy).to_retry()
