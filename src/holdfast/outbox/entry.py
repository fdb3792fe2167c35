"""One durable external call, as callers hand it in and get it back."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated, Any
from uuid import UUID

from pydantic import AfterValidator, BaseModel, Field, ValidationInfo, field_validator, model_validator

from holdfast.machine.outbox_entry import OutboxStatus
from holdfast.outbox.subject import (
    FROZEN,
    Correction,
    Name,
    StoredSubjectId,
    SubjectRef,
    Text,
    Utc,
    json_value,
    storable,
)


class OutboxOperation(StrEnum):
    """The operations that are built in. Others are registered by name (`OperationRegistry`) and stay plain texts."""

    ERASE = "erase"
    RECTIFY = "rectify"


OperationName = Annotated[
    OutboxOperation | Annotated[str, Field(min_length=1, max_length=32), AfterValidator(storable)],
    Field(union_mode="left_to_right"),
]
_Word = Annotated[str, Field(max_length=16), AfterValidator(storable)]


class OutboxEntry(BaseModel):
    """One external call that awaits execution, or has had it.

    `entry_id` is the idempotency key: the same for every attempt, and after a requeue. `next_attempt_at` is the
    earliest time at which a runner may claim it, None: at once. `last_error` is the name of an exception's class, and
    never its message. `corrections` and `payload` are what the call needs; the former is how a rectify entry says it.
    """

    model_config = FROZEN

    attempts: int = Field(default=0, ge=0)
    corrections: tuple[Correction, ...] = ()
    enqueued_at: Utc
    entry_id: UUID
    last_attempt_at: Utc | None = None
    last_error: Text | None = None
    next_attempt_at: Utc | None = None
    operation: OperationName = OutboxOperation.ERASE
    ref: SubjectRef
    resolver: Name
    status: OutboxStatus = OutboxStatus.PENDING
    subject_id: StoredSubjectId

    claim_token: UUID | None = None
    ordering_key: Name | None = None
    dedupe_key: Name | None = None
    saga_id: UUID | None = None
    payload: Any = None
    headers: dict[Text, Text] | None = None
    queue: Annotated[str, Field(min_length=1, max_length=64), AfterValidator(storable)] = "default"
    step: Name | None = None
    direction: _Word | None = None
    depends_on: UUID | None = None
    result: Any = None
    verification: _Word | None = None
    verify_at: Utc | None = None
    parks: int = Field(default=0, ge=0)
    claimed_by: Name | None = None

    @field_validator("payload", "result")
    @classmethod
    def _is_json(cls, value: Any, info: ValidationInfo) -> Any:
        return json_value(info.field_name or "payload", value)

    @model_validator(mode="after")
    def _says_it_once(self) -> OutboxEntry:
        if self.corrections and self.payload is not None:
            raise ValueError("give corrections or payload, not both: corrections are the payload of a rectify entry")
        return self

    def __hash__(self) -> int:
        return hash(self.entry_id)
