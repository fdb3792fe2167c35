"""What a host hears when an entry is given up."""

from __future__ import annotations

from typing import Protocol, runtime_checkable
from uuid import UUID

from pydantic import BaseModel, Field

from holdfast.outbox.entry import OperationName
from holdfast.outbox.subject import FROZEN, LONGEST, Name


class AbandonedSignal(BaseModel):
    """An abandoned entry without anything personal: `error` is the name of an exception's class."""

    model_config = FROZEN

    attempts: int = Field(ge=0)
    entry_id: UUID
    error: Name
    operation: OperationName
    resolver: Name
    subject_id: str = Field(min_length=1, max_length=LONGEST)


@runtime_checkable
class AbandonedHook(Protocol):
    """Called once the abandonment and its audit event are on disk; what it raises is logged and goes no further.

    It may also have `on_overdue(signal)` (an entry was put off too often or for too long) and `on_unverified(signal)`
    (nobody could confirm that a subject is gone); both are called the same way.
    """

    def on_abandoned(self, signal: AbandonedSignal) -> None: ...
