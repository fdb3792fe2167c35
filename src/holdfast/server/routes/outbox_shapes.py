"""What is asked and answered about the outbox."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Any, ClassVar, Literal
from uuid import UUID

from pydantic import AfterValidator, BaseModel, Field

from holdfast.machine.outbox_entry import OutboxStatus
from holdfast.server.routes.audit import TrailEvent, storable
from holdfast.server.shapes import Body, MayReason, Reasoned

Verified = Literal["pending", "confirmed", "failed", "given_up"]


class Entry(BaseModel):
    """A call that must happen, or has. Payload, result and headers are masked; `reveal` shows them."""

    entry_id: UUID
    status: OutboxStatus
    operation: str
    resolver: str
    subject_id: str
    ref: dict[str, Any]
    queue: str
    attempts: int
    parks: int
    last_error: str | None
    enqueued_at: datetime
    last_attempt_at: datetime | None
    next_attempt_at: datetime | None
    claimed_by: str | None
    ordering_key: str | None
    dedupe_key: str | None
    depends_on: UUID | None
    saga_id: UUID | None
    step: str | None
    direction: str | None
    payload: Any
    corrections: list[dict[str, Any]]
    headers: dict[str, str] | None
    result: Any
    verification: str | None
    verify_at: datetime | None


class EntryCall(BaseModel):
    """One attempt to make the call. One that succeeds at once leaves none: the entry says it all."""

    number: int
    started_at: datetime | None
    finished_at: datetime
    outcome: str
    error: str | None


class EntryMove(BaseModel):
    """Something that can be done to it, or why it cannot."""

    act: str
    possible: bool
    reason: str


class EntryShown(Entry):
    """An entry, how its calls went, what the audit trail says of it, and what can be done now.

    `verified` is how far the verification of a success is; `known` says whether this server knows the operation.
    """

    history: list[EntryCall]
    events: list[TrailEvent]
    known: bool
    verified: str | None
    moves: list[EntryMove]


class EntryRevealed(BaseModel):
    """An entry as it was kept."""

    entry: Entry


class OutboxQueue(BaseModel):
    """A queue that is in use, or paused. `waiting` is counted up to 10,000."""

    queue: str
    waiting: int
    oldest_due: datetime | None
    lag_s: float
    paused: bool
    paused_at: datetime | None
    paused_by: str | None
    paused_reason: str | None


class OutboxFacets(BaseModel):
    """How many entries there are. Of the statuses in `at_least` there are so many or more: counting ends at 10,000.
    Operations, targets and errors are those of the newest entries.
    """

    by_status: dict[str, int]
    at_least: list[str]
    queues: list[OutboxQueue]
    operations: list[str]
    targets: list[str]
    errors: list[str]


class MatchingEntries(Body):
    """Which abandoned entries are meant: those that have all of these."""

    operation: Annotated[str | None, Field(max_length=255), AfterValidator(storable)] = None
    target: Annotated[str | None, Field(max_length=255), AfterValidator(storable)] = None
    subject_id: Annotated[str | None, Field(max_length=255), AfterValidator(storable)] = None
    key: Annotated[str | None, Field(max_length=255), AfterValidator(storable)] = None
    queue: Annotated[str | None, Field(max_length=255), AfterValidator(storable)] = None
    error: Annotated[str | None, Field(max_length=255), AfterValidator(storable)] = None


class RequeueMany(MatchingEntries, Reasoned):
    """`expected` is how many the preview has counted: if it is another number by now, nothing is done. `after` is
    `next` of the answer before, and goes on without counting again.
    """

    audited: ClassVar = ("operation", "target", "subject_id", "key", "queue", "error", "expected")

    expected: int = Field(ge=0, le=2**53)
    after: UUID | None = None


class MatchingCalls(BaseModel):
    """How many entries of one operation and target match. One that is not `known` here cannot be requeued here."""

    operation: str
    target: str
    entries: int
    known: bool


class RequeuePreview(BaseModel):
    """What would be requeued."""

    matched: int
    calls: list[MatchingCalls]


class RequeueRefusal(BaseModel):
    """An entry that cannot be requeued, and why."""

    entry_id: UUID
    why: str


class RequeuedMany(BaseModel):
    """How far it came. While `next` is not null there may be more: ask again with it as `after`."""

    requeued: int
    refused: list[RequeueRefusal]
    next: str | None


class QueueResume(MayReason):
    """A queue, which may have any name."""

    audited: ClassVar = ("queue",)

    queue: Annotated[str, Field(min_length=1, max_length=64), AfterValidator(storable)]


class QueuePause(Reasoned):
    """Call nothing of the queue until it is resumed."""

    audited: ClassVar = ("queue",)

    queue: Annotated[str, Field(min_length=1, max_length=64), AfterValidator(storable)]


class QueueChanged(BaseModel):
    """Whether anything was changed."""

    changed: bool
