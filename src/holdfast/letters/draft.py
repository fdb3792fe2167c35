"""A letter that is not stored yet, made of what a caller knows of a failure."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from holdfast.letters.values import HOUR, checked_dict, maybe_text, text, time, user, whole
from holdfast.machine.dead_letter import PENDING, LetterRecord, source_of, unique_key
from holdfast.machine.letter_history import EMPTY
from holdfast.store.codec import to_json
from holdfast.store.ids import new_record_id


def draft(
    now: int,
    *,
    domain: str,
    failure_type: str,
    error_message: str = "",
    error_code: str = "",
    entity_type: str | None = None,
    entity_id: str | None = None,
    entity_refs: dict[str, Any] | None = None,
    user_id: int | str | None = None,
    snapshot_data: dict[str, Any] | None = None,
    request_data: dict[str, Any] | None = None,
    response_data: dict[str, Any] | None = None,
    metadata: dict[str, Any] | None = None,
    retry_count: int = 0,
    max_retries: int = 2,
    next_action_hint: str = "",
    recommended_action: str = "",
    expires_at: datetime | None = None,
    dedup_key: str | None = None,
    next_attempt_at: datetime | None = None,
    created_at: datetime | None = None,
) -> LetterRecord:
    """The first version. Raises TypeError or ValueError for what cannot be stored."""
    payload = {
        "error_code": text("error_code", error_code),
        "error_message": text("error_message", error_message),
        "entity_refs": checked_dict("entity_refs", entity_refs),
        "snapshot_data": checked_dict("snapshot_data", snapshot_data),
        "request_data": checked_dict("request_data", request_data),
        "response_data": checked_dict("response_data", response_data),
        "next_action_hint": text("next_action_hint", next_action_hint),
    }
    facts = checked_dict("metadata", metadata)
    domain, key = text("domain", domain), maybe_text("dedup_key", dedup_key)
    not_before = time("next_attempt_at", next_attempt_at) or 0
    failed_at = time("created_at", created_at)
    # The clock of who saw it fail may be ahead of the store's, and nobody looks for letters of the future.
    failed_at = now if failed_at is None else min(failed_at, now)
    return LetterRecord(
        id=new_record_id(now),
        version=1,
        due_at=not_before or failed_at,
        domain=domain,
        failure_type=text("failure_type", failure_type),
        status=PENDING,
        created_at=failed_at,
        updated_at=now,
        hour=failed_at // HOUR,
        retry_count=whole("retry_count", retry_count),
        max_retries=whole("max_retries", max_retries),
        not_before=not_before,
        occurrences=1,
        attempts=0,
        entity_type=maybe_text("entity_type", entity_type),
        entity_id=maybe_text("entity_id", entity_id),
        user_id=user(user_id),
        source=source_of(facts),
        dedup_key=key,
        unique_key=unique_key(domain, key),
        token=None,
        attempt_cap=None,
        started_at=None,
        started_by="",
        last_retry_at=None,
        heartbeat_at=None,
        touched_at=None,
        expires_at=time("expires_at", expires_at),
        resolved_at=None,
        archived_at=None,
        aged_at=None,
        resolution_type="",
        resolution_note="",
        resolved_by=None,
        recommended_action=text("recommended_action", recommended_action),
        metadata=to_json(facts, "metadata") if facts else "{}",
        history=EMPTY,
        payload=to_json({name: value for name, value in payload.items() if value}, ""),
    )
