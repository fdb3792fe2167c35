"""A dead letter's life: its states, who moves it where, and the rule of each step.

Each function gives the letter's next version, or None where the step is not allowed. Times are microseconds.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from enum import StrEnum
from hashlib import blake2b
from typing import Any, Final

from holdfast.machine.letter_history import AttemptOutcome, close_attempt, next_number
from holdfast.machine.letter_record import LETTER, LetterRecord
from holdfast.machine.letter_summary import SUMMARY, DLQCompressedStatus, SummaryRecord
from holdfast.store.codec import from_json, plain, to_json
from holdfast.store.record import Value

__all__ = [
    "FailedOperationStatus", "Step", "TRANSITIONS", "ACTIVE", "IN_FLIGHT", "EVICTABLE", "ACQUIRABLE",
    "REDRIVABLE", "HELD", "EXPIRABLE",
    "acquire", "redrive", "heartbeat", "return_attempt", "complete", "release", "operate", "count_retry", "recur",
    "archived", "expired", "unique_key", "source_of", "diagram",
    "AttemptOutcome", "LETTER", "LetterRecord", "SUMMARY", "SummaryRecord", "DLQCompressedStatus",
]  # fmt: skip


class FailedOperationStatus(StrEnum):
    PENDING = "pending"
    REPLAYING = "replaying"
    REVIEWING = "reviewing"
    REPLAYED = "replayed"
    REQUIRES_REVIEW = "requires_review"
    RESOLVED = "resolved"
    REJECTED = "rejected"
    ARCHIVED = "archived"
    EXPIRED = "expired"
    PERMANENTLY_FAILED = "permanently_failed"


class Step(StrEnum):
    """Who moves a letter. `operate` is an operator's word, which goes against every rule."""

    ACQUIRE = "acquire"
    REDRIVE = "redrive"
    COMPLETE = "complete"
    RELEASE = "release"
    RETURN = "return"
    EXPIRE = "expire"
    ARCHIVE = "archive"
    OPERATE = "operate"


# Records hold plain texts: a driver may have ideas of its own about an enum.
ALL: Final = frozenset(status.value for status in FailedOperationStatus)
(
    PENDING, REPLAYING, REVIEWING, REPLAYED, REQUIRES_REVIEW, RESOLVED, REJECTED, ARCHIVED, EXPIRED, PERMANENTLY_FAILED,
) = (status.value for status in FailedOperationStatus)  # fmt: skip

TRANSITIONS: Final[Mapping[Step, tuple[frozenset[str], frozenset[str]]]] = {
    # step: (from, to)
    Step.ACQUIRE: (frozenset({PENDING}), frozenset({REPLAYING})),
    Step.REDRIVE: (frozenset({PENDING, REQUIRES_REVIEW}), frozenset({REPLAYING})),
    Step.COMPLETE: (frozenset({REPLAYING}), frozenset({RESOLVED, PENDING, REQUIRES_REVIEW})),
    Step.RELEASE: (frozenset({REPLAYING}), frozenset({PENDING, REQUIRES_REVIEW})),
    Step.RETURN: (frozenset({REPLAYING}), frozenset({PENDING})),
    Step.EXPIRE: (frozenset({PENDING, REQUIRES_REVIEW}), frozenset({EXPIRED})),
    Step.ARCHIVE: (frozenset({RESOLVED}), frozenset({ARCHIVED})),
    Step.OPERATE: (ALL, ALL),
}

ACTIVE: Final = ALL - {RESOLVED, REJECTED, ARCHIVED}
"""Still somebody's business: counted against the capacity, and the holders of a dedup key."""
IN_FLIGHT: Final = frozenset({REPLAYING, REVIEWING})
EVICTABLE: Final = ACTIVE - IN_FLIGHT
ACQUIRABLE: Final = TRANSITIONS[Step.ACQUIRE][0]
REDRIVABLE: Final = TRANSITIONS[Step.REDRIVE][0]
HELD: Final = TRANSITIONS[Step.COMPLETE][0]
EXPIRABLE: Final = TRANSITIONS[Step.EXPIRE][0]
_UNRESOLVED: Final = frozenset({PENDING, REPLAYING, REVIEWING, REQUIRES_REVIEW})
_AGEING: Final = frozenset({RESOLVED, ARCHIVED})

INTERRUPTED: Final = "The last allowed attempt was interrupted: its lease ran out before it was completed."
OVERRULED: Final = "An operator set the status to {}."


def acquire(letter: LetterRecord, now: int, max_retries: int, token: str, trigger: str = "") -> LetterRecord | None:
    """An attempt of a letter that is pending, due, and below the caller's cap."""
    if letter.status not in ACQUIRABLE or letter.retry_count >= max_retries or letter.not_before > now:
        return None
    number, cap = next_number(letter, _spent_before(letter)), min(max_retries, letter.max_retries)
    budget = {"retry_count": letter.retry_count + 1, "attempt_cap": cap, "attempts": number}
    return _begin(letter, now, token, trigger, budget)


def redrive(letter: LetterRecord, now: int, token: str, trigger: str = "") -> LetterRecord | None:
    """A forced attempt, which starts a new budget and leaves the old one's size in the metadata."""
    if letter.status not in REDRIVABLE:
        return None
    metadata = from_json(letter.metadata)
    before = _whole(metadata.get("previous_total_retries"))
    number = next_number(letter, before)
    metadata["previous_total_retries"] = before + letter.retry_count
    metadata["force_redrive_count"] = _whole(metadata.get("force_redrive_count")) + 1
    changes = _unexhausted(letter) | {"attempt_cap": letter.max_retries, "metadata": to_json(metadata)}
    return _begin(letter, now, token, trigger, changes | {"retry_count": 1, "attempts": number})


def heartbeat(letter: LetterRecord, now: int, token: str) -> LetterRecord | None:
    """The lease of the attempt with this token, extended."""
    if letter.status not in HELD or letter.token != token:
        return None
    return _after(letter, now, {"heartbeat_at": now})


def return_attempt(letter: LetterRecord, now: int, token: str) -> LetterRecord | None:
    """The letter as if the attempt, whose body never started, had not been made."""
    if letter.status not in HELD or letter.token != token:
        return None
    count = max(0, letter.retry_count - 1)
    return _end(letter, now, PENDING, AttemptOutcome.RETURNED, {"retry_count": count})


def complete(
    letter: LetterRecord,
    now: int,
    success: bool,
    *,
    token: str | None = None,
    resolution_type: str = "",
    note: str = "",
    resolved_by: str | None = None,
    details: dict[str, Any] | None = None,
    retry_at: int | None = None,
) -> LetterRecord | None:
    """The end of an attempt: resolved, or pending again, or requires_review when its cap is reached.

    A token that is given must be the letter's: a holder whose lease ran out cannot write.
    """
    if letter.status not in HELD or (token is not None and letter.token != token):
        return None
    changes = _resolution(resolution_type, note, resolved_by)
    if details:
        metadata = {**from_json(letter.metadata), **details}
        changes |= {"metadata": to_json(metadata), "source": source_of(metadata)}
    outcome = AttemptOutcome.SUCCEEDED if success else AttemptOutcome.FAILED
    if success:
        return _end(letter, now, RESOLVED, outcome, {**changes, "resolved_at": now}, note, details)
    if _exhausted(letter):
        return _end(letter, now, REQUIRES_REVIEW, outcome, {**_EXHAUSTION, **changes}, note, details)
    return _end(letter, now, PENDING, outcome, {**changes, "not_before": retry_at or 0}, note, details)


def release(letter: LetterRecord, now: int, before: int) -> LetterRecord | None:
    """A letter whose attempt gave no sign of life since `before`; the attempt counts."""
    if letter.status not in HELD or letter.touched_at is None or letter.touched_at >= before:
        return None
    if _exhausted(letter):
        changes = {**_EXHAUSTION, "resolution_note": INTERRUPTED}
        return _end(letter, now, REQUIRES_REVIEW, AttemptOutcome.RELEASED, changes, INTERRUPTED)
    return _end(letter, now, PENDING, AttemptOutcome.RELEASED, {})


def operate(
    letter: LetterRecord,
    now: int,
    status: str,
    *,
    resolution_type: str = "",
    note: str = "",
    resolved_by: str | None = None,
    recommended_action: str = "",
    key_is_free: bool = True,
) -> LetterRecord:
    """Any status to any status, by an operator. What is empty stays as it was.

    A letter that becomes active again takes its dedup key back, unless another one holds it by now.
    """
    changes = _resolution(resolution_type, note, resolved_by)
    if recommended_action:
        changes["recommended_action"] = recommended_action
    if status == RESOLVED:
        changes["resolved_at"] = now
    elif status in _UNRESOLVED:
        changes["resolved_at"] = None
    if status == ARCHIVED:
        changes["archived_at"] = now
    if status in ACTIVE and letter.status not in ACTIVE and key_is_free:
        changes["unique_key"] = unique_key(letter.domain, letter.dedup_key)
    if letter.status == REPLAYING and status != REPLAYING:
        return _end(letter, now, status, AttemptOutcome.RELEASED, changes, OVERRULED.format(status))
    return _after(letter, now, {**changes, "status": status})


def count_retry(letter: LetterRecord, now: int) -> LetterRecord:
    """One more retry, made by somebody else; the status stays."""
    return _after(letter, now, {"retry_count": letter.retry_count + 1, "last_retry_at": now})


def recur(letter: LetterRecord, now: int) -> LetterRecord:
    """The same failure once more; only an active letter holds the key by which it was found."""
    return _after(letter, now, {"occurrences": letter.occurrences + 1})


def archived(now: int) -> dict[str, Value]:
    """What archiving gives to a resolved letter; `aged_at` stays the time of its resolution."""
    return {"status": ARCHIVED, "archived_at": now, "updated_at": now}


def expired(now: int) -> dict[str, Value]:
    """What expiry gives to a letter that nobody holds."""
    return {"status": EXPIRED, "due_at": None, "not_before": 0, "resolution_type": "ttl_expired", "updated_at": now}


def unique_key(domain: str, dedup_key: str | None) -> str | None:
    """What only one active letter may have; of fixed width, however long the key is."""
    if dedup_key is None:
        return None
    return blake2b(f"{domain}\0{dedup_key}".encode(), digest_size=16).hexdigest()


def source_of(metadata: Mapping[str, Any]) -> str | None:
    """The metadata's `source`, if it is stored as a text."""
    source = plain(metadata.get("source"), "metadata.source")
    return source if isinstance(source, str) else None


def diagram() -> str:
    """The transition table as a Mermaid state diagram, without what an operator may do."""
    return "\n".join(_diagram_lines()) + "\n"


_EXHAUSTION: Final[Mapping[str, Value]] = {
    "resolution_type": "max_retries_exhausted",
    "recommended_action": "escalate",
}


def _unexhausted(letter: LetterRecord) -> dict[str, Value]:
    """What the end of the last budget wrote, taken back; what somebody else has written since then stays."""
    if letter.resolution_type != _EXHAUSTION["resolution_type"]:
        return {}
    written = {**_EXHAUSTION, "resolution_note": INTERRUPTED}
    return {name: "" for name, value in written.items() if getattr(letter, name) == value}


def _exhausted(letter: LetterRecord) -> bool:
    # The cap in force when it was acquired: with another one the letter could end up pending and unacquirable.
    return letter.retry_count >= (letter.max_retries if letter.attempt_cap is None else letter.attempt_cap)


def _spent_before(letter: LetterRecord) -> int:
    """The retries of earlier budgets; the metadata is read only where it can tell of some."""
    if "previous_total_retries" not in letter.metadata:
        return 0
    return _whole(from_json(letter.metadata).get("previous_total_retries"))


def _whole(value: object) -> int:
    return value if isinstance(value, int) else 0


def _resolution(resolution_type: str, note: str, resolved_by: str | None) -> dict[str, Value]:
    given = {"resolution_type": resolution_type, "resolution_note": note, "resolved_by": resolved_by}
    return {name: value for name, value in given.items() if value}


def _begin(letter: LetterRecord, now: int, token: str, trigger: str, changes: Mapping[str, Value]) -> LetterRecord:
    # The clocks of two hosts differ a little, and an attempt does not begin before the last one has ended.
    began = max(now, letter.updated_at)
    attempt: dict[str, Value] = {
        "status": REPLAYING, "token": token, "started_at": began, "started_by": trigger,
        "last_retry_at": now, "heartbeat_at": now,
    }  # fmt: skip
    return _after(letter, now, {**attempt, **changes})


def _end(
    letter: LetterRecord,
    now: int,
    status: str,
    outcome: AttemptOutcome,
    changes: Mapping[str, Value],
    note: str = "",
    details: dict[str, Any] | None = None,
) -> LetterRecord:
    history = close_attempt(letter, now, outcome, note, details)
    over: dict[str, Value] = {"token": None, "attempt_cap": None, "started_at": None, "started_by": ""}
    return _after(letter, now, {**over, **changes, "status": status, "history": history})


def _after(letter: LetterRecord, now: int, changes: dict[str, Any]) -> LetterRecord:
    """The next version, with the columns that follow from others. The changes are its own to add to."""
    status = changes.get("status", letter.status)
    if status != PENDING:
        changes["due_at"], changes["not_before"] = None, 0
    elif letter.status != PENDING:
        changes["due_at"] = changes.get("not_before") or letter.created_at
    changes["touched_at"] = _touched(letter, now, changes) if status == REPLAYING else None
    changes["aged_at"] = _aged(letter, changes) if status in _AGEING else None
    if status not in ACTIVE:
        changes["unique_key"] = None
    changes["version"], changes["updated_at"] = letter.version + 1, now
    return LETTER.changed(letter, changes)


def _touched(letter: LetterRecord, now: int, changes: Mapping[str, Any]) -> int:
    last: int | None = changes.get("last_retry_at", letter.last_retry_at)
    beat: int | None = changes.get("heartbeat_at", letter.heartbeat_at)
    return now if last is beat is None else max(last or 0, beat or 0)


def _aged(letter: LetterRecord, changes: Mapping[str, Any]) -> int | None:
    resolved_at: int | None = changes.get("resolved_at", letter.resolved_at)
    archived_at: int | None = changes.get("archived_at", letter.archived_at)
    return archived_at if resolved_at is None else resolved_at


def _diagram_lines() -> Iterator[str]:
    yield "stateDiagram-v2"
    yield f"    [*] --> {PENDING}: create"
    for step, (sources, targets) in TRANSITIONS.items():
        if step is not Step.OPERATE:
            for source in sorted(sources):
                for target in sorted(targets):
                    yield f"    {source} --> {target}: {step}"
    yield f"    {ARCHIVED} --> [*]: purge"
