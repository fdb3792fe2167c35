"""What is kept of a dead letter: the record, and what a store searches and counts of it."""

from __future__ import annotations

from typing import Final, NamedTuple

from holdfast.store.record import Index, Kind


class LetterRecord(NamedTuple):
    """Texts marked JSON hold JSON. `payload` never changes; a step of the machine rewrites only what it says.

    These follow from the others, for the indexes (`machine/dead_letter.py` computes them): `due_at` is set while
    pending, `touched_at` while replaying, `aged_at` while resolved or archived, `unique_key` while active.
    """

    id: str
    version: int
    due_at: int | None  # the order of claims: not_before, or created_at
    domain: str
    failure_type: str
    status: str
    created_at: int
    updated_at: int
    hour: int  # of its creation, for the inflow
    retry_count: int
    max_retries: int
    not_before: int  # next_attempt_at, or 0; no index has it, so that it leads no planner away from the order it needs
    occurrences: int
    attempts: int  # the number of the last attempt, over all redrives
    entity_type: str | None
    entity_id: str | None
    user_id: str | None  # JSON: 7 and "7" are two users
    source: str | None  # of the metadata
    dedup_key: str | None
    unique_key: str | None
    token: str | None
    attempt_cap: int | None
    started_at: int | None  # the open attempt, and who started it
    started_by: str
    last_retry_at: int | None
    heartbeat_at: int | None
    touched_at: int | None  # the later of the two above
    expires_at: int | None
    resolved_at: int | None
    archived_at: int | None
    aged_at: int | None  # what ageing counts from: resolved_at, or archived_at
    resolution_type: str
    resolution_note: str
    resolved_by: str | None  # JSON
    recommended_action: str
    metadata: str  # JSON
    history: str  # JSON: the closed attempts
    payload: str  # JSON: error, entity_refs, snapshot, request, response, hint


LETTER: Final = Kind(
    "letter",
    LetterRecord,
    indexes=(
        Index((), "created_at"),  # the list of everything, newest first; windows of time
        Index(("status",), "created_at"),  # one status, oldest or newest first; eviction; SLA
        Index(("domain",), "created_at"),  # the list of one domain
        Index(("domain", "status"), "created_at"),  # what a domain has to replay; eviction in a domain
        Index(("entity_id",), "created_at", few=True),  # the story of one order
        Index(("user_id",), "created_at", few=True),  # what failed for one user
        Index(("domain",), "due_at"),  # batch claims; only pending letters are in it
        Index((), "expires_at"),  # what has expired, whatever its status; only letters that expire are in it
        Index(("status",), "expires_at"),  # the expiry sweep, past all that it has expired before
        Index(("status",), "aged_at"),  # archive and purge; only resolved and archived letters are in it
        Index((), "touched_at"),  # stale attempts; only replaying letters are in it
        Index((), "unique_key"),  # who holds a dedup key; only its holder is in it
    ),
    unique=("unique_key",),
    tally=("status", "domain", "failure_type"),
    arrivals=("domain", "hour"),
    keyed={"id": 24, "status": 24, "unique_key": 32},
    fresh_ids=True,
)
