"""Messages: what can be asked of a workflow by putting it into the queue. Each is JSON with a schema.

    Message(message_id, execution_id, created_at, attempts, max_attempts, last_error, incarnation)
    ├── StartWorkflow  CompleteWorkflow  CancelWorkflow(user, reason)
    ├── StartWaitingWorkflows(pipeline_config_id, purge_queue)
    └── StageMessage(stage_id)
        ├── StartStage  CompleteStage  SkipStage(user)  CancelStage  RestartStage(user)  ResumeStage(user)
        ├── ContinueParentStage(phase)  CancelRegion  RunFinalizers  FireTimer
        ├── JumpToStage(target_stage_ref_id, jump_context, jump_outputs)
        ├── SignalStage(signal_name, signal_data, persistent)  AddMultiInstance(instance_context)
        └── TaskMessage(task_id)
            └── StartTask  RunTask(task_type)  CompleteTask(status, outputs, context, error)  PauseTask(user)

What each does is in `acting.py`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, ClassVar, Final, Self

from holdfast.errors import SchemaError, WorkflowDefinitionError
from holdfast.machine.workflow import WorkflowStatus
from holdfast.store.codec import plain
from holdfast.workflows.documents import TIME, Form, one_of, read_document, write_document
from holdfast.workflows.ids import LONGEST_ID, new_id

MOST_ATTEMPTS: Final = 10


@dataclass(frozen=True, kw_only=True)
class Message:
    """Something that is asked of a workflow, `execution_id`.

    `message_id` is a logical key: among messages that wait or were handled it is there once. Without one it is a new
    id, so that what is asked twice is done twice; with an `incarnation` it is made of workflow, target, incarnation,
    attempt and kind, so that whoever finds the same thing to do asks for it once.
    """

    execution_id: str
    message_id: str = ""
    created_at: datetime | None = None
    """When it was put into the queue."""
    attempts: int = 0
    max_attempts: int = MOST_ATTEMPTS
    last_error: str | None = None
    incarnation: int | None = None

    kind: ClassVar[str] = "Message"

    def __init_subclass__(cls) -> None:
        cls.kind = cls.__name__

    def __post_init__(self) -> None:
        self._check("execution_id", self.execution_id)
        if not self.message_id:
            key = new_id() if self.incarnation is None else ".".join(self._parts())
            object.__setattr__(self, "message_id", key)
        self._check("message_id", self.message_id)
        if type(self.max_attempts) is not int or self.max_attempts < 1:
            raise _bad(self, f"max_attempts must be a whole number from 1, got {self.max_attempts!r}")
        if type(self.attempts) is not int or self.attempts < 0:
            raise _bad(self, f"attempts must be a whole number from 0, got {self.attempts!r}")

    @property
    def target(self) -> str:
        """The part of the workflow that is meant; empty: all of it."""
        return ""

    def to_document(self) -> dict[str, Any]:
        """Raises TypeError or ValueError naming the way to a value that is not JSON."""
        return {"type": self.kind, **write_document(self, self.kind, _FORMS)}

    @classmethod
    def from_document(cls, document: Mapping[str, Any]) -> Self:
        """Raises SchemaError for one that this program does not understand."""
        return read_document(cls, cls.kind, document, _FORMS)

    def _parts(self) -> list[str]:
        number = str(self.incarnation)
        return [part for part in (self.execution_id, self.target, number, str(self.attempts), self.kind) if part]

    def _check(self, name: str, value: Any) -> None:
        if not isinstance(value, str) or not value or len(value) > LONGEST_ID or plain(value) != value:
            raise _bad(self, f"{name} must be a text of 1 to {LONGEST_ID} characters, got {value!r}")


@dataclass(frozen=True, kw_only=True)
class StartWorkflow(Message):
    """Begin a workflow that was stored and not begun."""


@dataclass(frozen=True, kw_only=True)
class CompleteWorkflow(Message):
    """Look whether everything of it has ended."""


@dataclass(frozen=True, kw_only=True)
class CancelWorkflow(Message):
    user: str = "anonymous"
    reason: str = "canceled"


@dataclass(frozen=True, kw_only=True)
class StartWaitingWorkflows(Message):
    """Let those go on that wait for a place in their pipeline, which stands for the `execution_id`."""

    execution_id: str = ""
    pipeline_config_id: str = ""
    purge_queue: bool = False

    def __post_init__(self) -> None:
        object.__setattr__(self, "execution_id", self.execution_id or self.pipeline_config_id)
        super().__post_init__()


@dataclass(frozen=True, kw_only=True)
class StageMessage(Message):
    """Something about a stage. `stage_id` is its id or its `ref_id`."""

    stage_id: str

    def __post_init__(self) -> None:
        self._check("stage_id", self.stage_id)
        super().__post_init__()

    @property
    def ref(self) -> str:
        """The stage's name within the workflow."""
        return self.stage_id.removeprefix(f"{self.execution_id}.")

    @property
    def target(self) -> str:
        return self.ref


@dataclass(frozen=True, kw_only=True)
class StartStage(StageMessage):
    """Start it if what is before it allows that."""


@dataclass(frozen=True, kw_only=True)
class CompleteStage(StageMessage):
    """End it if everything of it has ended."""


@dataclass(frozen=True, kw_only=True)
class SkipStage(StageMessage):
    user: str = "anonymous"


@dataclass(frozen=True, kw_only=True)
class CancelStage(StageMessage):
    """End it, and halt what comes after it."""


@dataclass(frozen=True, kw_only=True)
class RestartStage(StageMessage):
    user: str = "anonymous"


@dataclass(frozen=True, kw_only=True)
class ResumeStage(StageMessage):
    """Let the paused workflow of a stage go on."""

    user: str = "anonymous"


@dataclass(frozen=True, kw_only=True)
class ContinueParentStage(StageMessage):
    """Look whether a stage can go on, now that a part of it has ended. `phase` says which parts; it decides nothing."""

    phase: str = ""


@dataclass(frozen=True, kw_only=True)
class CancelRegion(StageMessage):
    """Withdraw the `cancel_region` of a stage."""


@dataclass(frozen=True, kw_only=True)
class RunFinalizers(StageMessage):
    """Run what is registered to be done after a stage."""


@dataclass(frozen=True, kw_only=True)
class FireTimer(StageMessage):
    """The time that a stage waits for is over now."""


@dataclass(frozen=True, kw_only=True)
class JumpToStage(StageMessage):
    """Leave a stage that is under way, and go on with another."""

    target_stage_ref_id: str
    jump_context: dict[str, Any] = field(default_factory=dict)
    jump_outputs: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class SignalStage(StageMessage):
    """A signal for one stage, or with an empty `stage_id` for whichever waits for it."""

    stage_id: str = ""
    signal_name: str
    signal_data: Any = None
    persistent: bool = True
    """Whether it is kept until somebody waits for it."""

    def __post_init__(self) -> None:
        self._check("signal_name", self.signal_name)
        Message.__post_init__(self)


@dataclass(frozen=True, kw_only=True)
class AddMultiInstance(StageMessage):
    """One more instance of a stage that is run several times at once."""

    instance_context: Any = None


@dataclass(frozen=True, kw_only=True)
class TaskMessage(StageMessage):
    """Something about a task of a stage; an empty `task_id` is the one that is under way."""

    task_id: str = ""

    @property
    def target(self) -> str:
        return self.task_id.removeprefix(f"{self.execution_id}.") or self.ref


@dataclass(frozen=True, kw_only=True)
class StartTask(TaskMessage):
    """Run it now: a pause between two tries is over."""


@dataclass(frozen=True, kw_only=True)
class RunTask(TaskMessage):
    """As StartTask; whoever finds a task that nobody runs asks for it."""

    task_type: str = ""


@dataclass(frozen=True, kw_only=True)
class CompleteTask(TaskMessage):
    """A task has ended elsewhere; what a worker still makes of it counts no more."""

    status: WorkflowStatus = WorkflowStatus.SUCCEEDED
    outputs: dict[str, Any] = field(default_factory=dict)
    context: dict[str, Any] = field(default_factory=dict)
    error: str | None = None


@dataclass(frozen=True, kw_only=True)
class PauseTask(TaskMessage):
    """Hold the workflow of a task: what runs ends, and nothing new begins."""

    user: str = "anonymous"


CLASSES: Final[Mapping[str, type[Message]]] = {
    one.__name__: one
    for one in (
        StartWorkflow, CompleteWorkflow, CancelWorkflow, StartWaitingWorkflows, CancelRegion, StartStage,
        CompleteStage, SkipStage, CancelStage, RestartStage, ResumeStage, ContinueParentStage, JumpToStage,
        SignalStage, AddMultiInstance, StartTask, RunTask, CompleteTask, PauseTask, RunFinalizers, FireTimer,
    )
}  # fmt: skip
"""Those that can be put into the queue, by name."""


def message_of(document: Any) -> Message:
    """The message of a document. Raises SchemaError for one that this program does not understand."""
    name = document.get("type") if isinstance(document, Mapping) else None
    kind = CLASSES.get(name) if isinstance(name, str) else None
    if kind is None:
        raise SchemaError(f"{name!r} is no message; there are {', '.join(sorted(CLASSES))}")
    for needed in ("execution_id", "message_id"):
        if not document.get(needed):
            raise SchemaError(f"the document of a {name} has no {needed}")
    try:
        return kind.from_document(document)
    except (TypeError, WorkflowDefinitionError) as error:
        raise SchemaError(f"the document of a {name} cannot be read: {error}") from error


def _bad(message: Message, story: str) -> WorkflowDefinitionError:
    return WorkflowDefinitionError("bad_message", f"{type(message).__name__}: {story}")


_FORMS: Final[Mapping[str, Form]] = {"created_at": TIME, "status": one_of(WorkflowStatus)}
