"""Calling one task: its arguments, what it knows of itself, and what its answer means to the stage."""

from __future__ import annotations

import random
from collections.abc import Callable
from contextvars import ContextVar
from dataclasses import dataclass
from functools import partial
from typing import Any, Final, Protocol

from holdfast.core.backoff import Jitter
from holdfast.core.redact import redact
from holdfast.errors import ConfigurationError, GuardRejected, TaskTimeoutError
from holdfast.machine.retry import Retry
from holdfast.machine.run import Advance, Wait
from holdfast.machine.workflow import WorkflowStatus
from holdfast.store.codec import micros, plain
from holdfast.workflows.execution import ExecutionResult
from holdfast.workflows.faults import Fault, Faults, Judgement
from holdfast.workflows.records import ItemRecord
from holdfast.workflows.result import TaskResult
from holdfast.workflows.settling import Settlement
from holdfast.workflows.task_call import TaskCall

USUAL: Final = Retry(attempts=10, base=1.0, cap=60.0, jitter=Jitter.PROPORTIONAL)
Judge = Callable[[BaseException], Judgement]
REFUSED_S: Final = 1.0
"""When to come back after a refusal that does not say when."""


@dataclass(frozen=True, slots=True)
class TaskContext:
    """What a task knows of itself: `current_task()`."""

    workflow_id: str
    ref: str
    task: str
    attempt: int
    idempotency_key: str
    """The same for every attempt of this incarnation of the stage."""


_current: Final[ContextVar[TaskContext | None]] = ContextVar("holdfast_task", default=None)


def current_task() -> TaskContext | None:
    """The task of a workflow that is being run here, if there is one."""
    return _current.get()


class Doable(Protocol):
    """A task as it is called."""

    @property
    def name(self) -> str: ...
    @property
    def retry(self) -> Retry | None: ...
    @property
    def timeout(self) -> float | None: ...
    @property
    def guard(self) -> str | None: ...
    @property
    def is_async(self) -> bool: ...
    @property
    def function(self) -> Callable[..., Any]: ...


class Call:
    """One call of a task, ready to be made in any thread or on any loop. `judge` says what exceptions mean."""

    __slots__ = ("args", "began_at", "context", "cut_by", "item", "judge", "key", "kwargs", "task", "ticket")

    def __init__(
        self, item: ItemRecord, task: Doable, args: list[Any], kwargs: dict[str, Any], judge: Judge | None = None
    ) -> None:
        self.item = item
        self.key = (item.id, item.version)
        self.task = task
        self.args = args
        self.kwargs = kwargs
        self.judge = judge or Faults().judge
        key = f"{item.workflow}.{item.ref}.{item.incarnation}.{item.at}"
        self.context = TaskContext(item.workflow, item.ref, task.name, item.attempt, key)
        self.began_at = 0.0
        self.ticket: TaskCall | None = None
        self.cut_by: str | None = None
        """Why nobody wants its result any more."""

    def work(self, function: Callable[..., Any]) -> Callable[[], Any]:
        """The call itself, to be made in a context of its own."""

        def call() -> Any:
            _current.set(self.context)
            return function(*self.args, **self.kwargs)

        async def acall() -> Any:
            _current.set(self.context)
            return await function(*self.args, **self.kwargs)

        return acall if self.task.is_async else call

    def on_timeout(self) -> Callable[[], Any] | None:
        """What the task has to say when it took too long; None: nothing."""
        return getattr(self.task, "on_timeout", None)

    def ended(self, result: ExecutionResult) -> Settlement:
        """What follows from how it ended."""
        error = result.error
        if error is None:
            return self.returned(result.result)
        if result.rejected:  # it never ran: that costs no attempt
            hint = getattr(error, "retry_after", None)
            return Settlement(self.item, _again(self.item.ref, REFUSED_S if hint is None else hint, {}, error, costs=0))
        if result.timed_out:
            limit = "its type's limit" if self.task.timeout is None else f"{self.task.timeout:g} s"
            return self.raised(TaskTimeoutError(f"task {self.task.name!r} took longer than {limit}"))
        if isinstance(error, Exception):
            return self.raised(error)
        story = described(error)
        return Settlement(self.item, lambda step: step.fail(self.item.ref, story, WorkflowStatus.CANCELED))

    def returned(self, value: Any) -> Settlement:
        ref = self.item.ref
        if isinstance(value, Wait):
            return Settlement(self.item, lambda step: step.suspend(ref, value))
        if isinstance(value, TaskResult):
            return Settlement(self.item, partial(_settle_result, self.item, value))
        try:
            left = {"result": plain(value, "result")}
        except (TypeError, ValueError) as error:
            return self.failing(error)
        return Settlement(self.item, lambda step: step.succeed(ref, left, {}))

    def raised(self, error: Exception) -> Settlement:
        """Try again, or give up."""
        item = self.item
        if isinstance(error, GuardRejected):  # it never ran: that costs no attempt
            delay = REFUSED_S if error.retry_after is None else error.retry_after
            return Settlement(item, _again(item.ref, delay, {}, error, costs=0))
        policy = self.task.retry or USUAL
        try:
            judged = self.judge(error)
            update = plain(judged.context_update or {}, "context_update")
        except Exception as worse:  # a predicate of the user's, or what is not JSON
            return self.failing(worse)
        if not self._tries(error, judged) or (policy.attempts is not None and item.attempt >= policy.attempts):
            return self.failing(error)
        hint = judged.retry_after
        delay = policy.schedule.delay(item.attempt - 1, random.random) if hint is None else float(hint)
        return Settlement(item, _again(item.ref, delay, update, error))

    def _tries(self, error: Exception, judged: Judgement) -> bool:
        has_policy = self.task.retry is not None
        if isinstance(error, TaskTimeoutError):
            return bool(getattr(self.task, "retry_timeouts", has_policy))
        if isinstance(error, ConfigurationError):
            return False
        return judged.fault is Fault.TRANSIENT or (has_policy and judged.decided_by is None)

    def failing(self, error: Exception) -> Settlement:
        ref, story = self.item.ref, described(error)
        return Settlement(self.item, lambda step: step.fail(ref, story))


def _settle_result(item: ItemRecord, result: TaskResult, step: Advance) -> None:
    """Do what a task's answer asks for."""
    ref, outputs, context = item.ref, dict(result.outputs), dict(result.context)
    match result.status:
        case WorkflowStatus.SUCCEEDED | WorkflowStatus.SKIPPED:
            step.succeed(ref, outputs, context, result.status)
        case WorkflowStatus.RUNNING:
            step.again(ref, USUAL.schedule.delay(min(item.attempt, 10) - 1, random.random), context, None)
        case WorkflowStatus.SUSPENDED:
            seconds = result.wake_after
            if result.wake_at is not None:
                seconds = max(0.0, (micros(result.wake_at) - step.now) / 1e6)
            waits_for = result.signal or (None if result.wakes else "*")
            step.suspend(ref, Wait(waits_for, seconds, True, result.on_timeout), context)
        case WorkflowStatus.REDIRECT:
            step.jump(ref, str(result.target_stage_ref_id), context, outputs)
        case _:
            step.stage(ref).context.update(context)
            message = result.error or f"the task answered {result.status.value}"
            step.fail(ref, {"type": "TaskResult", "message": redact(message)[:2000]}, result.status, outputs)


def described(error: BaseException) -> dict[str, Any]:
    """What is kept of an exception."""
    try:
        message = str(error)
    except Exception:
        message = "it cannot say what it is"
    return {"type": type(error).__name__, "message": redact(message)[:2000]}


def _again(
    ref: str, delay: float, context: dict[str, Any], error: BaseException, *, costs: int = 1
) -> Callable[[Advance], None]:
    story = described(error)
    return lambda step: step.again(ref, delay, context, story, costs)
