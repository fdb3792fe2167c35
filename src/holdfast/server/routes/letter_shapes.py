"""What is asked and answered about dead letters."""

from __future__ import annotations

from datetime import datetime
from typing import Any, ClassVar

from pydantic import BaseModel, Field

from holdfast.server.shapes import MayReason, Reasoned


class Letter(BaseModel):
    """A dead letter. Payloads are masked; `reveal` shows them to who may see them."""

    id: str
    domain: str
    failure_type: str
    status: str
    entity_type: str | None
    entity_id: str | None
    entity_refs: dict[str, Any]
    user_id: int | str | None
    error_code: str
    error_message: str
    snapshot_data: dict[str, Any]
    request_data: dict[str, Any]
    response_data: dict[str, Any]
    metadata: dict[str, Any]
    retry_count: int
    max_retries: int
    last_retry_at: datetime | None
    resolved_at: datetime | None
    resolved_by_id: int | str | None
    resolution_type: str
    resolution_note: str
    next_action_hint: str
    recommended_action: str
    expires_at: datetime | None
    created_at: datetime
    updated_at: datetime
    attempt_cap: int | None
    heartbeat_at: datetime | None
    next_attempt_at: datetime | None
    archived_at: datetime | None
    dedup_key: str | None
    occurrences: int
    cursor: str


class Attempt(BaseModel):
    """One attempt to replay a letter; `outcome` and `finished_at` are null while it runs."""

    operation_id: str
    number: int
    trigger: str
    started_at: datetime
    finished_at: datetime | None
    outcome: str | None
    error_type: str
    note: str
    details: dict[str, Any]


class ReplayPreview(BaseModel):
    """What a replay would meet now: whether it can go, and what bars it.

    `here`: this process knows how to replay it; otherwise it is handed to the program's workers.
    """

    possible: bool
    here: bool
    reason: str
    way: str
    retry_after: float | None


class LetterShown(Letter):
    """A letter with its attempts, and what a replay would meet now."""

    attempts: list[Attempt]
    replay: ReplayPreview


class ReplayRequest(MayReason):
    """`force` starts a new budget of attempts, also after a review."""

    audited: ClassVar = ("force",)
    force: bool = False


class ReplayAnswer(BaseModel):
    """What came of a replay."""

    id: str
    outcome: str
    reason: str
    status: str
    attempt: int
    duration_s: float
    retry_at: datetime | None
    retry_after: float | None
    domain_barred: bool


class Facets(BaseModel):
    """How many letters there are: for each choice within the others that were made."""

    by_status: dict[str, int]
    by_domain: dict[str, int]
    by_failure_type: dict[str, int]


class Statistics(BaseModel):
    """How many letters there are, and what waits in each domain."""

    total: int
    by_status: dict[str, int]
    by_domain: dict[str, int]
    pending_by_domain: dict[str, int]
    pending_by_domain_and_failure_type: dict[str, dict[str, int]]


class Retention(BaseModel):
    """What is kept for how long, and how much of it is old.

    `capacity` is how many active letters there may be, `active` how many there are.
    """

    archive_after_days: int
    purge_after_days: int
    stale_after_minutes: int
    resolved_older_than_30_days: int
    archived_older_than_90_days: int
    active: int
    capacity: int
    overflow: str
    spooled: bool
    summaries: int
    summarised_letters: int


class Fingerprint(BaseModel):
    """Letters with one error, but for numbers and names in it. `occurrences` counts repeated failures too."""

    fingerprint: str
    message: str
    example: str
    domain: str
    failure_type: str
    error_code: str
    count: int
    occurrences: int
    by_status: dict[str, int]
    newest: datetime
    oldest: datetime
    sample: list[str]


class Fingerprints(BaseModel):
    """Errors, the most frequent first, of the `looked_at` newest letters; `is_all`: those are all that match."""

    items: list[Fingerprint]
    looked_at: int
    is_all: bool


class Domain(BaseModel):
    """Letters of one domain, and whether they may go out now: `way` is clear, trial (one, to see) or barred.

    `replayed_here`: this process knows how to replay letters of it.
    """

    domain: str
    total: int
    pending: int
    by_status: dict[str, int]
    way: str
    reason: str
    retry_after: float | None
    paused: bool
    paused_by: str
    pause_reason: str
    paused_until: datetime | None
    next_trial_at: datetime | None
    failed_trials: int
    replayed_here: bool


class Revealed(BaseModel):
    """A letter as it was kept."""

    letter: Letter


class Changed(BaseModel):
    """Whether anything was changed."""

    changed: bool


class DomainRequest(MayReason):
    """A domain, which may have any name."""

    audited: ClassVar = ("domain",)
    domain: str = Field(min_length=1, max_length=255)


class PauseRequest(Reasoned):
    """Replay nothing of the domain until then, or until it is resumed."""

    audited: ClassVar = ("domain", "until")
    domain: str = Field(min_length=1, max_length=255)
    until: datetime | None = None
