"""TaskResult: what a task answers, and so what happens next."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from types import MappingProxyType
from typing import Any, Final

from holdfast.errors import TaskError
from holdfast.machine.workflow import COMPLETE, S, WorkflowStatus
from holdfast.store.codec import plain
from holdfast.workflows.documents import TIME, Form, one_of, read_document, write_document
from holdfast.workflows.spans import Span, seconds
from holdfast.workflows.story import said_by

ANSWERS: Final = COMPLETE | {S.RUNNING, S.SUSPENDED, S.REDIRECT}
"""What a task may answer."""
Values = Mapping[str, Any]


_NOTHING: Final[Values] = MappingProxyType({})


@dataclass(frozen=True, slots=True)
class TaskResult:
    """What a task answers. Use its verbs: `TaskResult.success(outputs={"id": 7})`.

    `context` is merged into the stage's context, `outputs` is left to the stages after it. Both must be JSON: a value
    that is not raises TypeError or ValueError naming its key, here and not when it is stored.
    """

    status: WorkflowStatus
    context: Values = field(default_factory=lambda: _NOTHING, hash=False)
    outputs: Values = field(default_factory=lambda: _NOTHING, hash=False)
    error: str | None = None
    target_stage_ref_id: str | None = None
    """Where a jump leads."""
    wake_at: datetime | None = None
    wake_after: float | None = None
    """Seconds from the moment that the result is stored."""
    signal: str | None = None
    """What a suspended stage waits for; None: any signal."""
    on_timeout: WorkflowStatus | None = None
    """What the task becomes when a wait for a signal ends without one."""

    def __post_init__(self) -> None:
        put = object.__setattr__
        put(self, "status", _answer("status", self.status, ANSWERS))
        put(self, "context", _checked("context", self.context))
        put(self, "outputs", _checked("outputs", self.outputs))
        if self.on_timeout is not None:
            put(self, "on_timeout", _answer("on_timeout", self.on_timeout, COMPLETE))
        if self.status is S.REDIRECT and not self.target_stage_ref_id:
            put(self, "status", S.TERMINAL)
            put(self, "error", self.error or "a redirect must name a stage; use TaskResult.jump_to(ref_id)")
        if self.status is not S.SUSPENDED and (self.wakes or self.signal is not None):
            raise ValueError(f"TaskResult: only a suspended task can wait, this one is {self.status}")

    @classmethod
    def success(cls, outputs: Values | None = None, context: Values | None = None) -> TaskResult:
        """It is done."""
        return cls(S.SUCCEEDED, context or _NOTHING, outputs or _NOTHING)

    @classmethod
    def running(cls, context: Values | None = None) -> TaskResult:
        """Not yet: call it again after a while."""
        return cls(S.RUNNING, context or _NOTHING)

    @classmethod
    def terminal(cls, error: str | BaseException, context: Values | None = None) -> TaskResult:
        """It has failed for good."""
        return cls(S.TERMINAL, context or _NOTHING, error=_text(error))

    @classmethod
    def failed_continue(
        cls, error: str | BaseException, outputs: Values | None = None, context: Values | None = None
    ) -> TaskResult:
        """It has failed, and what comes after it runs all the same."""
        return cls(S.FAILED_CONTINUE, context or _NOTHING, outputs or _NOTHING, _text(error))

    @classmethod
    def skipped(cls) -> TaskResult:
        """There was nothing to do."""
        return cls(S.SKIPPED)

    @classmethod
    def canceled(cls) -> TaskResult:
        return cls(S.CANCELED)

    @classmethod
    def stopped(cls) -> TaskResult:
        """This branch ends here, and the workflow does not fail for it."""
        return cls(S.STOPPED)

    @classmethod
    def suspend(cls, context: Values | None = None) -> TaskResult:
        """Wait for any signal."""
        return cls(S.SUSPENDED, context or _NOTHING)

    @classmethod
    def sleep(cls, until: datetime | Span, context: Values | None = None) -> TaskResult:
        """Call it again at that time, or after that span; no worker is held until then."""
        if isinstance(until, datetime):
            aware = until if until.tzinfo is not None else until.replace(tzinfo=UTC)
            return cls(S.SUSPENDED, context or _NOTHING, wake_at=aware.astimezone(UTC))
        return cls(S.SUSPENDED, context or _NOTHING, wake_after=seconds("TaskResult.sleep(until)", until))

    @classmethod
    def wait_signal(
        cls,
        name: str,
        timeout: Span | None = None,
        *,
        on_timeout: WorkflowStatus = S.TERMINAL,
        context: Values | None = None,
    ) -> TaskResult:
        """Wait for a signal of that name; without one, the task becomes `on_timeout` when the time is over."""
        if not name or not isinstance(name, str):
            raise ValueError(f"TaskResult.wait_signal needs the name of a signal, got {name!r}")
        limit = seconds("TaskResult.wait_signal(timeout)", timeout)
        end = None if limit is None else on_timeout
        return cls(S.SUSPENDED, context or _NOTHING, wake_after=limit, signal=name, on_timeout=end)

    @classmethod
    def redirect(
        cls, ref_id: str | None = None, context: Values | None = None, outputs: Values | None = None
    ) -> TaskResult:
        """Go on with another stage; without one, the task is TERMINAL."""
        return cls(S.REDIRECT, context or _NOTHING, outputs or _NOTHING, target_stage_ref_id=ref_id)

    @classmethod
    def jump_to(cls, ref_id: str, context: Values | None = None, outputs: Values | None = None) -> TaskResult:
        """Go on with that stage, which gets `context` into its own."""
        return cls(S.REDIRECT, context or _NOTHING, outputs or _NOTHING, target_stage_ref_id=ref_id)

    @classmethod
    def builder(cls, status: WorkflowStatus) -> TaskResultBuilder:
        return TaskResultBuilder(status)

    @property
    def wakes(self) -> bool:
        """Whether a timer is to be set for it."""
        return self.wake_at is not None or self.wake_after is not None

    def merge_outputs(self, outputs: Values) -> TaskResult:
        """The same with these outputs as well; the new ones win."""
        return replace(self, outputs={**self.outputs, **outputs})

    def to_document(self) -> dict[str, Any]:
        return write_document(self, "result", _FORMS)

    @classmethod
    def from_document(cls, document: Values) -> TaskResult:
        """Raises SchemaError for a document that this program does not understand."""
        return read_document(cls, "result", document, _FORMS)


class TaskResultBuilder:
    """A result, put together piece by piece."""

    __slots__ = ("_context", "_error", "_outputs", "_status", "_target")

    def __init__(self, status: WorkflowStatus) -> None:
        self._status = status
        self._context: dict[str, Any] = {}
        self._outputs: dict[str, Any] = {}
        self._error: str | None = None
        self._target: str | None = None

    def context(self, values: Values) -> TaskResultBuilder:
        self._context.update(values)
        return self

    def outputs(self, values: Values) -> TaskResultBuilder:
        self._outputs.update(values)
        return self

    def error(self, error: str | BaseException) -> TaskResultBuilder:
        self._error = _text(error)
        return self

    def target(self, ref_id: str) -> TaskResultBuilder:
        self._target = ref_id
        return self

    def build(self) -> TaskResult:
        return TaskResult(self._status, self._context, self._outputs, self._error, self._target)


def as_result(answer: Any, task: str) -> TaskResult:
    """The result that a task's answer stands for: None is a success, a dict is a success with these outputs.

    Raises TaskError for anything else.
    """
    if isinstance(answer, TaskResult):
        return answer
    if answer is None:
        return TaskResult.success()
    if isinstance(answer, Mapping):
        return TaskResult.success(answer)
    raise TaskError(
        f"task {task!r} returned a {type(answer).__name__}; return a TaskResult, a dict of outputs, or nothing"
    )


def _answer(name: str, status: Any, allowed: frozenset[WorkflowStatus]) -> WorkflowStatus:
    if status not in allowed:
        known = ", ".join(sorted(allowed))
        raise ValueError(f"TaskResult.{name} must be one of {known}, got {status!r}")
    return S(status)


def _checked(name: str, values: Any) -> Values:
    if not isinstance(values, Mapping):
        raise TypeError(f"{name} is a {type(values).__name__}; give a dict")
    return MappingProxyType(plain(dict(values), name)) if values else _NOTHING


def _text(error: str | BaseException) -> str:
    if isinstance(error, BaseException):
        said = said_by(error)
        return f"{type(error).__name__}: {said}" if said else type(error).__name__
    return error


_VALUES: Final = Form(lambda values, path: plain(dict(values), path), lambda stored, path: stored)
_FORMS: Final[Mapping[str, Form]] = {
    "status": one_of(WorkflowStatus),
    "context": _VALUES,
    "outputs": _VALUES,
    "wake_at": TIME,
    "on_timeout": one_of(WorkflowStatus),
}
