"""Tasks that wait: for a time, for somebody's word, or not at all. None of them polls, and none holds a worker."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any, Final

from holdfast.core.clock import SYSTEM_CLOCK, Clock
from holdfast.errors import ConfigurationError
from holdfast.machine.run_state import WORD
from holdfast.machine.workflow import COMPLETE, WorkflowStatus
from holdfast.workflows.effects import Effect
from holdfast.workflows.result import TaskResult
from holdfast.workflows.signals import APPROVAL, word_of
from holdfast.workflows.stage import StageExecution
from holdfast.workflows.task import Task
from holdfast.workflows.task_context import current_task
from holdfast.workflows.tasks.settings import check_flag, check_text, check_time, settings_of

WAIT: Final = "wait"


class NoopTask(Task):
    """Does nothing, and succeeds."""

    effect = Effect.PURE

    def execute(self, stage: StageExecution) -> TaskResult:
        return TaskResult.success()


@dataclass(frozen=True, slots=True, kw_only=True)
class WaitSettings:
    """How long: `seconds` from the first call, or `until` a time (ISO 8601, UTC where it names no zone)."""

    seconds: float | None = None
    until: str | None = None

    def __post_init__(self) -> None:
        if (self.seconds is None) == (self.until is None):
            raise ConfigurationError("a wait task needs either 'seconds' or 'until' in its stage's context")
        if self.seconds is not None:
            check_time("seconds", self.seconds)

    def end(self, now: datetime) -> datetime:
        if self.seconds is not None:
            try:
                return now + timedelta(seconds=self.seconds)
            except OverflowError:
                raise ConfigurationError(f"seconds is beyond the calendar, got {self.seconds!r}") from None
        try:
            at = datetime.fromisoformat(str(self.until))
        except ValueError:
            raise ConfigurationError(f"until must be a time such as 2030-01-31T08:00:00Z, got {self.until!r}") from None
        return at if at.tzinfo is not None else at.replace(tzinfo=UTC)


class WaitTask(Task):
    """Waits for a time. Called again too early, it waits for the rest; the end is set once and kept in the context."""

    effect = Effect.PURE

    def __init__(self, clock: Clock = SYSTEM_CLOCK) -> None:
        self._clock = clock

    def execute(self, stage: StageExecution) -> TaskResult:
        now = self._clock.wall()
        if (noted := _noted(stage, WAIT)) is not None:
            end = datetime.fromisoformat(noted["until"])
        else:
            end = settings_of(WaitSettings, "wait", stage.context).end(now)
        if now >= end:
            return TaskResult.success()
        return TaskResult.sleep(end, {WAIT: {"of": _mark(stage), "until": end.isoformat()}})


@dataclass(frozen=True, slots=True, kw_only=True)
class ApprovalSettings:
    """Which signal brings the word, how long to wait for it, and what follows."""

    approval_signal: str = APPROVAL
    approval_timeout: float | None = None
    """Seconds; None: for ever."""
    on_timeout: str = WorkflowStatus.TERMINAL
    fail_on_reject: bool = True
    """Otherwise a rejection is a success too, and the stages after it look at `approved`."""

    def __post_init__(self) -> None:
        check_text("approval_signal", self.approval_signal)
        if self.approval_timeout is not None:
            check_time("approval_timeout", self.approval_timeout)
        if self.on_timeout not in COMPLETE:
            raise ConfigurationError(
                f"on_timeout must be one of {', '.join(sorted(COMPLETE))}, got {self.on_timeout!r}"
            )
        check_flag("fail_on_reject", self.fail_on_reject)


class ApprovalTask(Task):
    """Waits until somebody approves or rejects, as `hold.workflows.approve` and `reject` do; publishes `approved`,
    `user` and `comment`.

    A signal that is sent otherwise says `approved` (true or false) and may name `user` and `comment`.
    """

    effect = Effect.PURE

    def execute(self, stage: StageExecution) -> TaskResult:
        settings = settings_of(ApprovalSettings, "approval", stage.context)
        noted, word = _noted(stage, APPROVAL), stage.context.get(WORD)
        if noted is not None and isinstance(word, Mapping) and word.get("name") == settings.approval_signal:
            result = _decided(settings, word.get("data"))
            # A retry goes on with what was approved. What was rejected has failed by that, and is asked about again.
            if result.status is WorkflowStatus.SUCCEEDED or noted.get("round") == _round(stage):
                return result
        return TaskResult.wait_signal(
            settings.approval_signal,
            settings.approval_timeout,
            on_timeout=WorkflowStatus(settings.on_timeout),
            # A word from an earlier round of a loop is not one about this round.
            context={APPROVAL: {"of": _mark(stage), "round": _round(stage)}, WORD: None},
        )


def _decided(settings: ApprovalSettings, data: Any) -> TaskResult:
    approved = data.get("approved") if isinstance(data, Mapping) else None
    if not isinstance(approved, bool):
        raise ConfigurationError(f"an approval's signal must say approved: true or false, got {data!r}")
    outputs = word_of(approved, data.get("user"), data.get("comment"))
    if approved or not settings.fail_on_reject:
        return TaskResult.success(outputs)
    reason = f": {outputs['comment']}" if outputs["comment"] else ""
    return TaskResult.terminal(f"rejected by {outputs['user'] or 'somebody'}{reason}")


def _noted(stage: StageExecution, key: str) -> Mapping[str, Any] | None:
    """What this task noted in this incarnation of its stage; a loop leaves notes of earlier ones in the context."""
    noted = stage.context.get(key)
    return noted if isinstance(noted, Mapping) and noted.get("of") == _mark(stage) else None


def _mark(stage: StageExecution) -> str:
    running = current_task()
    return f"{stage.id}.{stage.incarnation}" if running is None else running.idempotency_key


def _round(stage: StageExecution) -> int:
    running = current_task()
    return stage.incarnation if running is None else running.incarnation
