"""Tasks of stages that were put together as models: what they are shown, and how they are called."""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from typing import Any

from holdfast.errors import TaskError
from holdfast.machine.run import StageState
from holdfast.store.codec import instant
from holdfast.workflows.definition import model_of
from holdfast.workflows.result import as_result
from holdfast.workflows.run import Run
from holdfast.workflows.stage import StageExecution
from holdfast.workflows.task import Task


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

    def __init__(self, name: str, task: Task, stage: StageExecution, options: Mapping[str, Any]) -> None:
        self.name = name
        self.task = task
        self.stage = stage
        self.timeout: float | None = options.get("timeout")
        self.retry = _retry(options.get("retry"))
        self.retry_timeouts = bool(options.get("retry_timeouts"))
        self.is_async = inspect.iscoroutinefunction(task.execute)

    def function(self) -> Any:
        """The answer as a TaskResult, or a coroutine that gives it."""
        answer = self.task.execute(self.stage)
        return self._awaited(answer) if inspect.isawaitable(answer) else as_result(answer, self.name)

    def on_timeout(self) -> Any:
        """What the task leaves when it took too long, or a coroutine that gives it; None: nothing."""
        answer = self.task.on_timeout(self.stage)
        if inspect.isawaitable(answer):
            return self._maybe(answer)
        return None if answer is None else as_result(answer, self.name)

    async def _maybe(self, answer: Any) -> Any:
        given = await answer
        return None if given is None else as_result(given, self.name)

    async def _awaited(self, answer: Any) -> Any:
        return as_result(await answer, self.name)


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


def _retry(policy: Mapping[str, Any] | None) -> Any:
    if policy is None:
        return None
    from holdfast.guard.retry_policy import RetryPolicy

    return RetryPolicy.model_validate(policy).to_retry()
