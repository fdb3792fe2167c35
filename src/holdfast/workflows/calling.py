"""Calling one task: its arguments, and what its answer means to the stage."""

from __future__ import annotations

import logging
import random
from asyncio import CancelledError
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, Final, Protocol

from holdfast.core.backoff import Jitter
from holdfast.core.redact import redact
from holdfast.errors import (
    BulkheadFullError,
    CircuitOpenError,
    ConfigurationError,
    GuardRejected,
    TaskTimeoutError,
)
from holdfast.machine.children import spawn
from holdfast.machine.jump import jump
from holdfast.machine.retry import Retry
from holdfast.machine.run import Advance, Child, Wait
from holdfast.machine.workflow import WorkflowStatus
from holdfast.store.codec import AS_THEY_ARE, clean_text, micros, plain
from holdfast.store.ids import new_record_id
from holdfast.workflows.children import Offspring, SubWorkflow, offspring
from holdfast.workflows.compartment import SHORTEST_RETRY_S
from holdfast.workflows.effects import Effect
from holdfast.workflows.execution import ExecutionResult
from holdfast.workflows.faults import Fault, Judgement
from holdfast.workflows.preparing import Settlement, Settles, Success
from holdfast.workflows.records import ItemRecord
from holdfast.workflows.result import TaskResult
from holdfast.workflows.story import LONGEST, described, traced
from holdfast.workflows.task_call import TaskCall
from holdfast.workflows.task_context import Marks, TaskContext

if TYPE_CHECKING:
    from holdfast.workflows.beginning import Wanted
    from holdfast.workflows.finalizers import FinalizerRegistry
    from holdfast.workflows.presence import Presence
    from holdfast.workflows.run import Run

_log: Final = logging.getLogger("holdfast.workflows")
USUAL: Final = Retry(attempts=10, base=1.0, cap=60.0, jitter=Jitter.PROPORTIONAL)
"""How a task is tried again that has no policy, where no configuration says otherwise."""
Judge = Callable[[BaseException], Judgement]
REFUSED_S: Final = 1.0
"""When to come back after a refusal that does not say when."""


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
    def verifies(self) -> bool: ...
    @property
    def function(self) -> Callable[..., Any]: ...


@dataclass(frozen=True, slots=True)
class Workplace:
    """What all calls of a worker have in common: what exceptions mean, how a task is tried again that has no policy,
    what makes a workflow ready that a task asks for, the finalizers, and who runs it."""

    judge: Judge
    usual: Retry
    child: Callable[[SubWorkflow], Wanted]
    registry: FinalizerRegistry
    presence: Presence


class Call:
    """One call of a task, ready to be made in any thread or on any loop."""

    # Many wait at the same time, and Python's search for cycles looks at all that they hold.
    __slots__ = (
        "_place", "_run", "_worker", "args", "began_at", "cut_at", "cut_by", "idempotency_key", "is_settled", "item",
        "key", "kwargs", "task", "ticket", "turn",
    )  # fmt: skip

    def __init__(
        self, item: ItemRecord, task: Doable, args: Sequence[Any], kwargs: dict[str, Any], run: Run, place: Workplace
    ) -> None:
        self.item = item
        self.key = (item.id, item.version)
        self.task = task
        self.args = args
        self.kwargs = kwargs
        self.idempotency_key = run.key_of(item.ref, item.at)
        self._run = run
        self._place = place
        self._worker = place.presence.id
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
                self._marks().announce()
                began(self)
                return self.bred(await function(*self.args, **self.kwargs))

            return acall

        def call() -> Any:
            if self.cut_by is not None:  # while it was put in the place of another one
                raise CancelledError(self.cut_by)
            self._marks().announce()
            began(self)
            value = function(*self.args, **self.kwargs)
            return self.bred(value) if isinstance(value, SubWorkflow) else value

        return call

    def _marks(self) -> Marks:
        place = self._place
        return Marks(self.item, self.task.name, self.idempotency_key, self._run, self._worker, place.registry)

    @property
    def context(self) -> TaskContext:
        """What the task is told of itself."""
        return self._marks().task

    @property
    def cause(self) -> str:
        """The id of what its workflow follows from."""
        return self._run.cause

    @property
    def caused_by(self) -> Mapping[str, str]:
        """The trace that its workflow was started in."""
        return self._run.caused_by

    def bred(self, value: Any) -> Any:
        """The answer; a workflow that is asked for is made ready, where the time and errors of tasks are counted."""
        if not isinstance(value, SubWorkflow):
            return value
        return offspring(value, self._place.child(value), self._run.record, self.item)

    def cut(self, reason: str, *, abandon: bool = False) -> None:
        """Ask it to stop, if it has begun and has not ended."""
        if self.ticket is not None:
            self.ticket.cancel(reason, abandon=abandon, turn=self.turn)

    def takes_the_place_of(self, other: Call) -> bool:
        """Whether it can be made as the next one with the other's ticket: in a thread, with the same time limit."""
        task = self.task
        return task.timeout == other.task.timeout and not task.is_async and not self.is_late

    @property
    def is_late(self) -> bool:
        """Whether its time was over before it was called."""
        return bool(getattr(self.task, "is_late", False))

    def on_timeout(self) -> Callable[[], Any] | None:
        """What the task has to say when it took too long; None: nothing."""
        return getattr(self.task, "on_timeout", None)

    def ended(self, result: ExecutionResult) -> Settles:
        """What follows from how it ended."""
        settlement = self._ended(result)
        if not getattr(self.task, "paces_itself", False):
            return settlement

        def act(step: Advance) -> None:  # whoever limits a task over all calls wants to know when it began
            task = step.stage(self.item.ref).tasks[self.item.at]
            if task.started_at is None:
                task.started_at = step.now - round(result.run_s * 1e6)
            settlement.act(step)

        return Settlement(self.item, act)

    def ended_well(self, answer: Any, run_s: float) -> Settles:
        """The same for a call that has answered."""
        if getattr(self.task, "paces_itself", False):
            return self.ended(ExecutionResult(True, answer, run_s=run_s))
        if type(answer) in AS_THEY_ARE:
            return Success(self.item, {"result": answer})
        return self.returned(answer)

    def _ended(self, result: ExecutionResult) -> Settles:
        error = result.error
        if error is None:
            return self.returned(result.result)
        if result.rejected:  # it never ran: that costs no attempt
            hint = getattr(error, "retry_after", None)
            return Settlement(self.item, _again(self.item.ref, REFUSED_S if hint is None else hint, {}, error, costs=0))
        if result.timed_out:
            return self.raised(TaskTimeoutError(f"task {self.task.name!r} took longer than {self._allowed()}"))
        if isinstance(error, CancelledError):
            story = described(error)
            return Settlement(self.item, lambda step: step.fail(self.item.ref, story, WorkflowStatus.CANCELED))
        return self.raised(error)

    def _allowed(self) -> str:
        if self.is_late:
            return "it may, over all its calls"
        return "its type's limit" if self.task.timeout is None else f"{self.task.timeout:g} s"

    def returned(self, value: Any) -> Settles:
        try:
            return self.answered(value)
        except (TypeError, ValueError) as error:
            return self.failing(error)

    def answered(self, value: Any) -> Settles:
        """What follows from an answer. Raises TypeError or ValueError for one that is not JSON."""
        ref = self.item.ref
        if isinstance(value, Wait):
            return Settlement(self.item, lambda step: step.suspend(ref, value))
        if isinstance(value, Offspring):
            return Settlement(self.item, partial(_spawn, ref, value))
        if isinstance(value, TaskResult):
            pause_s: float | None = getattr(self.task, "pause_s", None)
            usual = self._place.usual
            return Settlement(self.item, partial(_settle_result, self.item, value, usual, pause_s))
        return Success(self.item, {"result": plain(value, "result")})

    def raised(self, error: BaseException) -> Settles:
        """Try again, or give up."""
        item = self.item
        if isinstance(error, GuardRejected) and not self._may_have_done_it:  # it never ran: that costs no attempt
            delay = REFUSED_S if error.retry_after is None else error.retry_after
            return Settlement(item, _again(item.ref, delay, {}, error, costs=0))
        if _log.isEnabledFor(logging.INFO):
            where = (item.workflow, item.ref, item.attempt)
            _log.info("workflow %s, stage %s: attempt %d has raised\n%s", *where, traced(error))
        policy = self.task.retry or self._place.usual
        try:
            judged = self._place.judge(error)
            update = plain(judged.context_update or {}, "context_update")
        except Exception as worse:  # a predicate of the user's, or what is not JSON
            return self.failing(worse)
        hint = judged.retry_after
        if isinstance(error, BulkheadFullError | CircuitOpenError) and judged.fault is Fault.TRANSIENT:
            # A bulkhead or a circuit that the task asks itself: what it wanted to call never ran.
            delay = REFUSED_S if hint is None else max(hint, SHORTEST_RETRY_S)
            return Settlement(item, _again(item.ref, delay, update, error, costs=0))
        tries = self._run.stage(item.ref).tries(item.at, item.attempt)
        if not self._tries(error, judged) or (policy.attempts is not None and tries >= policy.attempts):
            return self.failing(error)
        delay = policy.schedule.delay(tries - 1, random.random) if hint is None else float(hint)
        return Settlement(item, _again(item.ref, delay, update, error))

    @property
    def _may_have_done_it(self) -> bool:
        """Whether a refusal comes from inside of a body that must not run again: the task has no guard of its own."""
        return self.task.effect is Effect.AT_LEAST_ONCE and self.task.guard is None

    def _tries(self, error: BaseException, judged: Judgement) -> bool:
        has_policy = self.task.retry is not None
        if self.task.effect is Effect.AT_LEAST_ONCE:  # only where its author knows that nothing has happened yet
            return judged.nothing_happened
        if isinstance(error, TaskTimeoutError):
            return bool(getattr(self.task, "retry_timeouts", has_policy))
        if isinstance(error, ConfigurationError):
            return False
        return judged.fault is Fault.TRANSIENT or (has_policy and judged.decided_by is None)

    def failing(self, error: BaseException) -> Settles:
        ref, story = self.item.ref, described(error)
        return Settlement(self.item, lambda step: step.fail(ref, story))


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
            message = clean_text(result.error or f"the task answered {result.status.value}")
            step.fail(ref, {"type": "TaskResult", "message": redact(message, LONGEST)}, result.status, outputs)


def _again(
    ref: str, delay: float, context: dict[str, Any], error: BaseException, *, costs: int = 1
) -> Callable[[Advance], None]:
    story = described(error)
    return lambda step: step.again(ref, delay, context, story, costs)
