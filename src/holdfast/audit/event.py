"""One fact of the audit trail: what happened, to whom, when. No message and no value of anybody's is ever in it."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import UTC, datetime
from enum import StrEnum
from typing import Annotated, Any, Protocol, runtime_checkable
from uuid import UUID, uuid4

from pydantic import AfterValidator, BaseModel, ConfigDict, Field

from holdfast.store.codec import clean_text


class AuditEventType(StrEnum):
    """The types that are built in: those of erasures and corrections, of published messages, and of all operations that
    have no names of their own. Others are registered by name.
    """

    ERASURE_REQUESTED = "erasure_requested"
    ERASURE_STEP_SUCCEEDED = "erasure_step_succeeded"
    ERASURE_STEP_FAILED = "erasure_step_failed"
    ERASURE_LOCAL_COMPLETED = "erasure_local_completed"
    ERASURE_EXPIRY_SCHEDULED = "erasure_expiry_scheduled"
    ERASURE_COMPLETED = "erasure_completed"
    ERASURE_REQUEUED = "erasure_requeued"
    ERASURE_EXTERNAL_VERIFIED = "erasure_external_verified"
    ERASURE_EXTERNAL_VERIFICATION_FAILED = "erasure_external_verification_failed"
    ERASURE_VERIFIED = "erasure_verified"
    ERASURE_VERIFICATION_FAILED = "erasure_verification_failed"
    ERASURE_REPLAYED = "erasure_replayed"
    RECTIFICATION_REQUESTED = "rectification_requested"
    RECTIFICATION_STEP_SUCCEEDED = "rectification_step_succeeded"
    RECTIFICATION_STEP_FAILED = "rectification_step_failed"
    RECTIFICATION_LOCAL_COMPLETED = "rectification_local_completed"
    RECTIFICATION_COMPLETED = "rectification_completed"
    RECTIFICATION_REQUEUED = "rectification_requeued"
    OPERATION_SUCCEEDED = "operation_succeeded"
    OPERATION_FAILED = "operation_failed"
    OPERATION_REQUEUED = "operation_requeued"
    OPERATION_PARKED = "operation_parked"
    OPERATION_COMPLETED = "operation_completed"
    OPERATION_VERIFIED = "operation_verified"
    OPERATION_VERIFICATION_FAILED = "operation_verification_failed"
    PUBLISH_SUCCEEDED = "publish_succeeded"
    PUBLISH_FAILED = "publish_failed"
    PUBLISH_REQUEUED = "publish_requeued"
    PUBLISH_PARKED = "publish_parked"
    PUBLISH_COMPLETED = "publish_completed"
    PUBLISH_VERIFIED = "publish_verified"
    PUBLISH_VERIFICATION_FAILED = "publish_verification_failed"
    VERIFICATION_REQUESTED = "verification_requested"
    EXPORT_REQUESTED = "export_requested"
    EXPORT_COMPLETED = "export_completed"
    CONSENT_GRANTED = "consent_granted"
    CONSENT_WITHDRAWN = "consent_withdrawn"
    RESTRICTION_PLACED = "restriction_placed"
    RESTRICTION_LIFTED = "restriction_lifted"
    RETENTION_EXPIRED = "retention_expired"
    MANIFEST_SNAPSHOT = "manifest_snapshot"
    OPERATOR_ACTED = "operator_acted"
    OPERATOR_ACT_FAILED = "operator_act_failed"
    TRAIL_VERIFIED = "trail_verified"
    TRAIL_BROKEN = "trail_broken"


def _utc(at: datetime) -> datetime:
    return at.replace(tzinfo=UTC) if at.tzinfo is None else at.astimezone(UTC)


def _storable(text: str) -> str:
    if clean_text(text) != text:
        raise ValueError("it holds U+0000 or half of a surrogate pair, which not every database stores; leave it out")
    return text


Text = Annotated[str, AfterValidator(_storable)]
EventTypeName = Annotated[
    AuditEventType | Annotated[str, Field(min_length=1, max_length=64), AfterValidator(_storable)],
    Field(union_mode="left_to_right"),
]


class AuditEvent(BaseModel):
    """What happened to a subject. `entry_id` names the outbox entry, if there is one; `payload` holds plain facts."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    event_id: UUID = Field(default_factory=uuid4)
    event_type: EventTypeName
    subject_ref: Text = Field(min_length=1, max_length=255)
    occurred_at: Annotated[datetime, AfterValidator(_utc)] = Field(default_factory=lambda: datetime.now(UTC))
    payload: dict[Text, Text | int | bool] = Field(default_factory=dict)
    entry_id: UUID | None = None

    def __hash__(self) -> int:
        return hash(self.event_id)


@runtime_checkable
class AuditSink(Protocol):
    """Where events go. `append` returns once the event is kept, and raises if it is not.

    A sink that also has `append_in(session, events)` writes into the transaction of the given Session, so that a change
    and its events are kept together or not at all.
    """

    def append(self, event: AuditEvent) -> None: ...

    def read(self, subject_ref: str) -> Sequence[AuditEvent]:
        """The subject's events, oldest first."""
        ...


@runtime_checkable
class JoiningSink(AuditSink, Protocol):
    """A sink that can join a transaction."""

    def append_in(self, session: Any, events: Iterable[AuditEvent]) -> None: ...
