"""A stage that has others run again, or leaves them out, as a condition says."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from holdfast.errors import ConfigurationError
from holdfast.workflows.effects import Effect
from holdfast.workflows.expressions import evaluate
from holdfast.workflows.result import TaskResult
from holdfast.workflows.stage import StageExecution
from holdfast.workflows.task import Task
from holdfast.workflows.tasks.settings import check_text, settings_of


@dataclass(frozen=True, slots=True, kw_only=True)
class LoopSettings:
    """Where to go while the loop goes on, and when it is over; where that is not said, the next stage is.

    `repeat_while` and `repeat_until` are conditions on what the stage sees; without one it goes on. `carry` names what
    goes along, by key: into the context of the stage that it jumps to, or as outputs to the next one.
    """

    back_to: str | None = None
    leave_to: str | None = None
    repeat_while: str | None = None
    repeat_until: str | None = None
    carry: Any = field(default_factory=dict)

    def __post_init__(self) -> None:
        for name in ("back_to", "leave_to", "repeat_while", "repeat_until"):
            check_text(name, getattr(self, name), optional=True)
        if self.back_to is None and self.leave_to is None:
            raise ConfigurationError("a loop task needs 'back_to', 'leave_to' or both in its stage's context")
        if self.repeat_while is not None and self.repeat_until is not None:
            raise ConfigurationError("a loop task has either repeat_while or repeat_until; give one of them")
        if not isinstance(self.carry, Mapping) or not all(isinstance(one, str) for one in self.carry.values()):
            raise ConfigurationError(f"carry must be a mapping of keys to names, got {self.carry!r}")

    def goes_on(self, seen: Mapping[str, Any]) -> bool:
        """Raises WorkflowDefinitionError or PermanentError for a condition that cannot be."""
        if self.repeat_until is not None:
            return not evaluate(self.repeat_until, seen)
        return self.repeat_while is None or bool(evaluate(self.repeat_while, seen))


class LoopTask(Task):
    """Jumps back while the loop goes on, at most `max_jumps` times, or on when it is over."""

    effect = Effect.PURE

    def execute(self, stage: StageExecution) -> TaskResult:
        settings = settings_of(LoopSettings, "loop", stage.context)
        target = settings.back_to if settings.goes_on(stage.context) else settings.leave_to
        carried = {key: stage.context.get(one) for key, one in settings.carry.items()}
        return TaskResult.success(carried) if target is None else TaskResult.jump_to(target, carried)
