"""TaskExecution: one task of a stage, and how far it has come."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import TYPE_CHECKING, Any, Final

from holdfast.errors import ConfigurationError
from holdfast.machine.workflow import WorkflowStatus
from holdfast.workflows.documents import TIME, Form, one_of, read_document, write_document
from holdfast.workflows.ids import new_id
from holdfast.workflows.snapshot import TaskStateSnapshot, frozen
from holdfast.workflows.spans import seconds
from holdfast.workflows.status import STATUS, start_over

if TYPE_CHECKING:
    from holdfast.guard.retry_policy import RetryPolicy

UNPLACED: Final = -1
"""The position of a task that no stage has placed yet."""


@dataclass(kw_only=True)
class TaskExecution:
    """A task of a stage. Those of one stage run one after another, in the order of their `position`.

    `implementing_class` is the name that the task is registered under. A stage gives its tasks their positions in the
    order in which it got them, unless they have some. Without a `retry_policy` the engine's holds.
    """

    id: str = field(default_factory=new_id)
    name: str = ""
    implementing_class: str = ""
    status: WorkflowStatus = STATUS
    version: int = 0
    start_time: datetime | None = None
    end_time: datetime | None = None
    loop_start: bool = False
    loop_end: bool = False
    stage_start: bool = False
    stage_end: bool = False
    task_exception_details: dict[str, Any] = field(default_factory=dict)
    position: int = UNPLACED
    attempt: int = 0
    """How often it was called in this incarnation of its stage."""
    retry_policy: RetryPolicy | None = None
    retry_timeouts: bool = False
    """Whether a timeout is worth another try."""
    timeout: float | None = None
    """The seconds that one call may take; a timedelta becomes seconds."""

    def __post_init__(self) -> None:
        self.timeout = seconds("TaskExecution.timeout", self.timeout)
        if self.retry_policy is not None and not hasattr(self.retry_policy, "to_retry"):
            raise ConfigurationError(
                f"{self.label}: retry_policy must be a RetryPolicy, got {self.retry_policy!r};"
                " use RetryPolicy(max_attempts=3)"
            )

    @classmethod
    def create(cls, name: str, implementing_class: str, **fields: Any) -> TaskExecution:
        return cls(name=name, implementing_class=implementing_class, **fields)

    @property
    def label(self) -> str:
        return f"task {self.name or self.implementing_class!r}"

    @property
    def phase_version(self) -> tuple[str, int]:
        """Its status and its version: what an update says it expects."""
        return self.status.name, self.version

    def state_snapshot(self) -> TaskStateSnapshot:
        """It as it is now, to read."""
        return TaskStateSnapshot(
            id=self.id,
            name=self.name,
            implementing_class=self.implementing_class,
            status=self.status,
            version=self.version,
            position=self.position,
            attempt=self.attempt,
            start_time=self.start_time,
            end_time=self.end_time,
            task_exception_details=frozen(self.task_exception_details, f"{self.label}.task_exception_details"),
        )

    def reset(self) -> None:
        """As if it had never run, for a new incarnation of its stage."""
        start_over(self)
        self.start_time = self.end_time = None
        self.task_exception_details = {}
        self.attempt = 0

    def to_document(self) -> dict[str, Any]:
        return write_document(self, self.label, _FORMS)

    @classmethod
    def from_document(cls, document: Mapping[str, Any]) -> TaskExecution:
        """Raises SchemaError for a document that this program does not understand."""
        return read_document(cls, "task", document, _FORMS)


def _write_policy(policy: RetryPolicy | None, path: str) -> Any:
    return None if policy is None else policy.model_dump(mode="json")


def _read_policy(stored: Mapping[str, Any] | None, path: str) -> Any:
    if stored is None:
        return None
    from holdfast.guard.retry_policy import RetryPolicy  # pydantic is slow to load, and most tasks have no policy

    known = RetryPolicy.model_fields
    return RetryPolicy(**{name: value for name, value in stored.items() if name in known})


_FORMS: Final[Mapping[str, Form]] = {
    "status": one_of(WorkflowStatus),
    "start_time": TIME,
    "end_time": TIME,
    "retry_policy": Form(_write_policy, _read_policy),
}
