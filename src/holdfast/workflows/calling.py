"""Calling one task: its arguments, what it knows of itself, and what its answer means to the stage."""

from __future__ import annotations

import random
from asyncio import CancelledError
from collections.abc import Callable, Mapping
from contextvars import ContextVar
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any, Final, Protocol

from holdfast.core.backoff import Jitter
from holdfast.core.clock import Clock
from holdfast.core.context import (
    CONTEXT,
    CURRENT,
    LIMIT,
    PARENT,
    SOURCE,
    ContextSource,
    ResilienceContext,
    context_of,
)
from holdfast.core.deadline import Deadline
from holdfast.core.redact import redact
from holdfast.errors import ConfigurationError, GuardRejected, TaskError, TaskTimeoutError
from holdfast.letters.capture import IDEMPOTENCY_KEY
from holdfast.machine.children import spawn
from holdfast.machine.jump import jump
from holdfast.machine.retry import Retry
from holdfast.machine.run import Advance, Child, Wait
from holdfast.machine.workflow import WorkflowStatus
from holdfast.store.codec import micros, plain
from holdfast.store.ids import new_record_id
from holdfast.telemetry.causation import CAUSATION
from holdfast.workflows.children import Offspring, SubWorkflow
from holdfast.workflows.effects import Effect
from holdfast.workflows.execution import ExecutionResult
from holdfast.workflows.faults import Fault, Judgement
from holdfast.workflows.preparing import Settlement
from holdfast.workflows.records import ItemRecord
from holdfast.workflows.result import TaskResult
from holdfast.workflows.task_call import TaskCall

if TYPE_CHECKING:
    from holdfast.workflows.finalizers import FinalizerRegistry

USUAL: Final = Retry(attempts=10, base=1.0, cap=60.0, jitter=Jitter.PROPORTIONAL)
"""How a task is tried again that has no policy, where no configuration says otherwise."""
Judge = Callable[[BaseException], Judgement]
Breed = Callable[[SubWorkflow, str], Offspring]
"""Makes a workflow ready that a task asks for, under the key of the task."""
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
    """The same for every attempt of this incarnation of the stage, and for a retry of it after it has failed."""
    patches: tuple[str, ...] = ()
    """What the workflow was started with: see `patched`."""
    incarnation: int = 1
    worker: str = ""
    """Who runs it."""
    registry: FinalizerRegistry | None = field(default=None, repr=False, compare=False)
    """The finalizers of its engine."""

    @property
    def stage_id(self) -> str:
        return f"{self.workflow_id}.{self.ref}"

    def finalize(self, name: str, **args: Any) -> None:
        """Have the finalizer of that name called with these arguments once this stage is over. Stored when it returns.

        Raises ConfigurationError for a name that nothing is bound to, and outside of an engine.
        """
        if self.registry is None:
            raise ConfigurationError(f"finalize({name!r}) needs a task that an engine runs")
        self.registry.register(self.stage_id, name, args=args)


class Marks(ContextSource):
    """What a call knows of itself. What its task, and guards below, see of that is made when one of them asks."""

    __slots__ = ("_about", "_task", "cause", "clock", "key")

    operation_key = ""
    retry_domain = None
    clock: Clock

    def __init__(self, item: ItemRecord, task: str, key: str, cause: str, *about: Any) -> None:
        self._about = (item, task, about)
        self._task: TaskContext | None = None
        self.key = key
        self.cause = cause

    @property
    def task(self) -> TaskContext:
        found = self._task
        if found is None:
            item, task, (patches, worker, registry) = self._about
            found = self._task = TaskContext(
                item.workflow, item.ref, task, item.attempt, self.key, patches, item.incarnation, worker, registry
            )
        return found

    def context(self, deadline: Deadline) -> ResilienceContext:
        return ResilienceContext("", deadline, properties={IDEMPOTENCY_KEY: self.key, CAUSATION: self.cause})

    def announce(self) -> None:
        """Let the task that is called from here on, in this context, and the guards that it meets know what it is."""
        _current.set(self)
        link = CURRENT.get()  # the one that bounds this call by its time limit
        if link is None:
            return
        if link[CONTEXT] is None and link[PARENT] is None:
            self.clock = link[SOURCE].clock
            CURRENT.set([self, None, link[LIMIT], None])
        elif (around := context_of(link)) is not None:
            around.set(IDEMPOTENCY_KEY, self.key)
            around.set(CAUSATION, self.cause)


_current: Final[ContextVar[TaskContext | Marks | None]] = ContextVar("holdfast_task", default=None)


def current_task() -> TaskContext | None:
    """The task of a workflow that is being run here, if there is one."""
    found = _current.get()
    return found.task if isinstance(found, Marks) else found


def be_task(context: TaskContext) -> None:
    """What runs from here on, in this context, is this task."""
    _current.set(context)


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
    def effect(self) -> Effect | None: ...
    @property
    def is_async(self) -> bool: ...
    @property
    def function(self) -> Callable[..., Any]: ...


class Call:
    """One call of a task, ready to be made in any thread or on any loop. `judge` says what exceptions mean, `usual` how
    a task is tried again that has no policy."""

    __slots__ = (
        "_marks", "args", "began_at", "breed", "cause", "caused_by", "cut_at", "cut_by", "is_settled", "item", "judge",
        "key", "kwargs", "task", "ticket", "turn", "usual",
    )  # fmt: skip

    def __init__(
        self,
        item: ItemRecord,
        task: Doable,
        args: list[Any],
        kwargs: dict[str, Any],
        judge: Judge,
        key: str,
        patches: tuple[str, ...] = (),
        usual: Retry = USUAL,
        breed: Breed | None = None,
        *,
        worker: str = "",
        registry: FinalizerRegistry | None = None,
        cause: str | None = None,
        caused_by: Mapping[str, str] | None = None,
    ) -> None:
        self.cause = item.workflow if cause is None else cause
        """The id of what its workflow follows from."""
        self.caused_by = caused_by
        """The trace that its workflow was started in."""
        self.usual = usual
        self.item = item
        self.key = (item.id, item.version)
        self.task = task
        self.args = args
        self.kwargs = kwargs
        self.judge = judge
        self.breed = breed or _barren
        self._marks = Marks(item, task.name, key, self.cause, patches, worker, registry)
        self.is_settled = False
        """Whether what follows from it is stored already, with what it wrote itself."""
        self.began_at = 0.0
        self.ticket: TaskCall | None = None
        self.turn = 0
        """Which of the calls of its ticket it is."""
        self.cut_by: str | None = None
        """Why nobody wants its result any more."""
        self.cut_at = 0.0

    def work(self, function: Callable[..., Any], began: Callable[[Call], None]) -> Callable[[], Any]:
        """The call itself, to be made in a context of its own; `began` hears of it where it is made."""

        if self.task.is_async:

            async def acall() -> Any:
                self._marks.announce()
                began(self)
                return self.bred(await function(*self.args, **self.kwargs))

            return acall

        def call() -> Any:
            if self.cut_by is not None:  # while it was put in the place of another one
                raise CancelledError(self.cut_by)
            self._marks.announce()
            began(self)
            return self.bred(function(*self.args, **self.kwargs))

        return call

    @property
    def context(self) -> TaskContext:
        """What the task is told of itself."""
        return self._marks.task

    @property
    def idempotency_key(self) -> str:
        return self._marks.key

    def bred(self, value: Any) -> Any:
        """The answer; a workflow that is asked for is made ready, where the time and errors of tasks are counted."""
        return self.breed(value, self._marks.key) if isinstance(value, SubWorkflow) else value

    def cut(self, reason: str, *, abandon: bool = False) -> None:
        """Ask it to stop, if it has begun and has not ended."""
        if self.ticket is not None:
            self.ticket.cancel(reason, abandon=abandon, turn=self.turn)

    def takes_the_place_of(self, other: Call) -> bool:
        """Whether it can be made as the next one with the other's ticket: in a thread, with the same time limit."""
        task = self.task
        return not task.is_async and not self.is_late and task.timeout == other.task.timeout

    @property
    def is_late(self) -> bool:
        """Whether its time was over before it was called."""
        return bool(getattr(self.task, "is_late", False))

    def on_timeout(self) -> Callable[[], Any] | None:
        """What the task has to say when it took too long; None: nothing."""
        return getattr(self.task, "on_timeout", None)

    def ended(self, result: ExecutionResult) -> Settlement:
        """What follows from how it ended."""
        settlement = self._ended(result)
        if not getattr(self.task, "paces_itself", False):
            return settlement

        def act(step: Advance) -> None:  # whoever limits a task over all calls wants to know when it began
            task = step.stage(self.item.ref).tasks[self.item.at]
            if task.started_at is None:
                task.started_at = step.now - round(result.run_s * 1e6)
            settlement.act(step)

        return settlement._replace(act=act)

    def ended_well(self, answer: Any, run_s: float) -> Settlement:
        """The same for a call that has answered."""
        if getattr(self.task, "paces_itself", False):
            return self.ended(ExecutionResult(True, answer, run_s=run_s))
        return self.returned(answer)

    def _ended(self, result: ExecutionResult) -> Settlement:
        error = result.error
        if error is None:
            return self.returned(result.result)
        if result.rejected:  # it never ran: that costs no attempt
            hint = getattr(error, "retry_after", None)
            return Settlement(self.item, _again(self.item.ref, REFUSED_S if hint is None else hint, {}, error, costs=0))
        if result.timed_out:
            return self.raised(TaskTimeoutError(f"task {self.task.name!r} took longer than {self._allowed()}"))
        if isinstance(error, Exception):
            return self.raised(error)
        story = described(error)
        return Settlement(self.item, lambda step: step.fail(self.item.ref, story, WorkflowStatus.CANCELED))

    def _allowed(self) -> str:
        if self.is_late:
            return "it may, over all its calls"
        return "its type's limit" if self.task.timeout is None else f"{self.task.timeout:g} s"

    def returned(self, value: Any) -> Settlement:
        try:
            return self.answered(value)
        except (TypeError, ValueError) as error:
            return self.failing(error)

    def answered(self, value: Any) -> Settlement:
        """What follows from an answer. Raises TypeError or ValueError for one that is not JSON."""
        ref = self.item.ref
        if isinstance(value, Wait):
            return Settlement(self.item, lambda step: step.suspend(ref, value))
        if isinstance(value, Offspring):
            return Settlement(self.item, partial(_spawn, ref, value))
        if isinstance(value, TaskResult):
            pause_s: float | None = getattr(self.task, "pause_s", None)
            return Settlement(self.item, partial(_settle_result, self.item, value, self.usual, pause_s))
        left = {"result": plain(value, "result")}
        return Settlement(self.item, partial(_succeed, ref, left))

    def raised(self, error: Exception) -> Settlement:
        """Try again, or give up."""
        item = self.item
        if isinstance(error, GuardRejected):  # it never ran: that costs no attempt
            delay = REFUSED_S if error.retry_after is None else error.retry_after
            return Settlement(item, _again(item.ref, delay, {}, error, costs=0))
        policy = self.task.retry or self.usual
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


def _barren(request: SubWorkflow, key: str) -> Offspring:
    raise TaskError(f"nobody here can start workflow {request.name!r}")


def _succeed(ref: str, left: dict[str, Any], step: Advance) -> None:
    step.succeed(ref, left, {})


def _spawn(ref: str, child: Offspring, step: Advance) -> None:
    id = child.wanted.id or new_record_id(step.now)
    spawn(step, Child(ref, id, child.wanted, child.waits), child.wait, child.name)


def _settle_result(item: ItemRecord, result: TaskResult, usual: Retry, pause_s: float | None, step: Advance) -> None:
    """Do what a task's answer asks for."""
    ref, outputs, context = item.ref, dict(result.outputs), dict(result.context)
    match result.status:
        case WorkflowStatus.SUCCEEDED | WorkflowStatus.SKIPPED:
            step.succeed(ref, outputs, context, result.status)
        case WorkflowStatus.RUNNING:
            delay = usual.schedule.delay(min(item.attempt, 10) - 1, random.random) if pause_s is None else pause_s
            step.again(ref, delay, context, None)
        case WorkflowStatus.SUSPENDED:
            seconds = result.wake_after
            if result.wake_at is not None:
                seconds = max(0.0, (micros(result.wake_at) - step.now) / 1e6)
            waits_for = result.signal or (None if result.wakes else "*")
            step.suspend(ref, Wait(waits_for, seconds, True, result.on_timeout), context)
        case WorkflowStatus.REDIRECT:
            jump(step, ref, str(result.target_stage_ref_id), context, outputs)
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
