"""States of stages and tasks to read: nothing in them can be changed, and no later change shows in them."""

from __future__ import annotations

from collections.abc import Mapping, Set
from dataclasses import dataclass, field
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from enum import Enum
from types import MappingProxyType
from typing import Any, Final
from uuid import UUID

from holdfast.machine.workflow import WorkflowStatus

_UNCHANGING: Final = (str, int, float, bytes, datetime, date, time, timedelta, Decimal, UUID, Enum, type(None))


@dataclass(frozen=True, slots=True)
class TaskStateSnapshot:
    """A task as it was."""

    id: str
    name: str
    implementing_class: str
    status: WorkflowStatus
    version: int
    position: int
    attempt: int
    start_time: datetime | None
    end_time: datetime | None
    task_exception_details: Mapping[str, Any] = field(hash=False)

    @property
    def phase_version(self) -> tuple[str, int]:
        return self.status.name, self.version


@dataclass(frozen=True, slots=True)
class StageStateSnapshot:
    """A stage as it was. `context` and `outputs` are read-only all the way down, with tuples for lists."""

    id: str
    ref_id: str
    type: str
    name: str
    status: WorkflowStatus
    version: int
    incarnation: int
    skip_cause: str | None
    start_time: datetime | None
    end_time: datetime | None
    context: Mapping[str, Any] = field(hash=False)
    outputs: Mapping[str, Any] = field(hash=False)
    tasks: tuple[TaskStateSnapshot, ...] = ()

    @property
    def phase_version(self) -> tuple[str, int]:
        return self.status.name, self.version


def frozen(value: Any, path: str = "value") -> Any:
    """A copy that nobody can change. Raises TypeError naming the way to something that can only be shared."""
    if isinstance(value, Mapping):
        return MappingProxyType({key: frozen(item, f"{path}.{key}") for key, item in value.items()})
    if isinstance(value, list | tuple):
        return tuple(frozen(item, f"{path}[{at}]") for at, item in enumerate(value))
    if isinstance(value, Set):
        return frozenset(value)
    if isinstance(value, _UNCHANGING):
        return value
    raise TypeError(
        f"{path} is a {type(value).__name__}, which a snapshot cannot keep; use texts, numbers, lists and dicts"
    )


def thawed(value: Any) -> Any:
    """A copy of something frozen in dicts and lists, which can be changed and written as JSON."""
    if isinstance(value, Mapping):
        return {key: thawed(item) for key, item in value.items()}
    if isinstance(value, tuple):
        return [thawed(item) for item in value]
    return value
