"""What a task knows of itself, and the guards below it: `current_task()`."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

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
from holdfast.errors import ConfigurationError
from holdfast.letters.capture import IDEMPOTENCY_KEY
from holdfast.telemetry.causation import CAUSATION
from holdfast.workflows.records import ItemRecord

if TYPE_CHECKING:
    from holdfast.workflows.finalizers import FinalizerRegistry
    from holdfast.workflows.run import Run


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

    def finalize(self, name: str, /, **args: Any) -> None:
        """Have the finalizer of that name called with these arguments once this stage is over. Stored when it returns.

        Raises ConfigurationError for a name that nothing is bound to, and outside of an engine.
        """
        if self.registry is None:
            raise ConfigurationError(f"finalize({name!r}) needs a task that an engine runs")
        self.registry.register(self.stage_id, name, args=args)


class Marks(ContextSource):
    """What a call knows of itself. What its task, and guards below, see of that is made when one of them asks."""

    __slots__ = ("_item", "_name", "_registry", "_run", "_task", "_worker", "clock", "key")

    operation_key = ""
    retry_domain = None
    clock: Clock

    def __init__(
        self, item: ItemRecord, task: str, key: str, run: Run, worker: str, registry: FinalizerRegistry
    ) -> None:
        self._item = item
        self._name = task
        self._run = run
        self._worker = worker
        self._registry = registry
        self._task: TaskContext | None = None
        self.key = key

    @property
    def cause(self) -> str:
        """The id of what its workflow follows from."""
        return self._run.cause

    @property
    def task(self) -> TaskContext:
        found = self._task
        if found is None:
            item = self._item
            found = self._task = TaskContext(
                item.workflow, item.ref, self._name, item.attempt, self.key, self._run.blueprint.patches,
                item.incarnation, self._worker, self._registry,
            )  # fmt: skip
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


@contextmanager
def being(context: TaskContext) -> Iterator[None]:
    """What runs in the block is this task."""
    token = _current.set(context)
    try:
        yield
    finally:
        _current.reset(token)


def be_task(context: TaskContext) -> None:
    """What runs from here on, in this context, is this task."""
    _current.set(context)
