"""Tasks: what a stage does, as classes to derive from."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable
from datetime import timedelta
from typing import TYPE_CHECKING, Any, ClassVar

from holdfast.workflows.result import TaskResult

if TYPE_CHECKING:
    from holdfast.workflows.stage import StageExecution

Answer = TaskResult | Awaitable[TaskResult]


class Task(ABC):
    """Something that a stage does. `execute` may be a coroutine function, and so may every hook.

    It is called at least once: again after a crash, with the same idempotency key. Whatever it raises is classified by
    the registry; what is not declared transient ends the stage.
    """

    aliases: ClassVar[tuple[str, ...]] = ()
    """Further names that it is registered under."""
    effect: ClassVar[str | None] = None
    """What it does to the world, an `Effect`; None: nothing is said of it."""

    @abstractmethod
    def execute(self, stage: StageExecution) -> Answer:
        """Do it."""

    def on_timeout(self, stage: StageExecution) -> TaskResult | Awaitable[TaskResult | None] | None:
        """It took too long. A result that is returned here counts as its own; None: it has failed."""
        return None

    def on_cancel(self, stage: StageExecution) -> TaskResult | Awaitable[TaskResult | None] | None:
        """It was cancelled. What a result brings is kept; the stage is cancelled all the same."""
        return None

    def on_cleanup(self, stage: StageExecution) -> Awaitable[None] | None:
        """Its stage has ended, in whatever way. May be called twice."""
        return None


class RetryableTask(Task):
    """A task that has its own time limit, and its own pause between two calls while it answers RUNNING."""

    @abstractmethod
    def get_timeout(self) -> timedelta:
        """How long it may go on, over all calls."""

    @abstractmethod
    def get_backoff_period(self, stage: StageExecution, duration: timedelta) -> timedelta:
        """The pause before the next call; `duration` is how long it has been going on."""

    def get_dynamic_timeout(self, stage: StageExecution) -> timedelta:
        """The time limit for this stage. The stage's own `stage_timeout` holds besides."""
        return self.get_timeout()

    def get_dynamic_backoff_period(self, stage: StageExecution, duration: timedelta) -> timedelta:
        return self.get_backoff_period(stage, duration)


class SkippableTask(Task):
    """A task that may find out that it has nothing to do."""

    def is_enabled(self, stage: StageExecution) -> bool:
        """Whether it is to run."""
        return True

    def should_skip(self, stage: StageExecution) -> bool:
        return not self.is_enabled(stage)

    def execute(self, stage: StageExecution) -> Answer:
        return TaskResult.skipped() if self.should_skip(stage) else self.do_execute(stage)

    @abstractmethod
    def do_execute(self, stage: StageExecution) -> Answer:
        """Do it."""


class FunctionTask(Task):
    """A function of the stage. It returns a TaskResult, a dict of outputs, or nothing."""

    def __init__(self, function: Callable[[StageExecution], Any]) -> None:
        self.function = function

    def execute(self, stage: StageExecution) -> Any:
        return self.function(stage)

    def __repr__(self) -> str:
        return f"FunctionTask({getattr(self.function, '__qualname__', self.function)!s})"
