"""Dead letters as callers see them: plain mutable copies of what is stored."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field, fields
from datetime import UTC, datetime
from enum import StrEnum
from json import JSONDecoder
from typing import Any, Final

from holdfast.errors import InvalidValue
from holdfast.machine.dead_letter import DLQCompressedStatus, FailedOperationStatus, LetterRecord, SummaryRecord
from holdfast.store.codec import from_json, instant, maybe_instant, micros
from holdfast.store.port import FOREVER
from holdfast.store.query import Cursor

__all__ = [
    "FailedOperationStatus", "FailedOperationDomain", "FailedOperationData", "ReplayAttempt",
    "DLQCompressedStatus", "DLQCompressedEntry",
    "letter_of", "letters_of", "record_of", "note_change", "attempts_of", "entry_of", "cursor_of",
]  # fmt: skip


_DECODER: Final = JSONDecoder()


class FailedOperationDomain(StrEnum):
    """Suggestions; a domain is free text."""

    EXTERNAL_SERVICE = "external_service"
    INTERNAL_PROCESS = "internal_process"
    ASYNC_TASK = "async_task"
    NOTIFICATION = "notification"
    DATA_SYNC = "data_sync"
    CUSTOM = "custom"


def _now() -> datetime:
    return datetime.now(UTC)


@dataclass
class FailedOperationData:
    """A dead letter. A copy: changing it changes nothing that is stored.

    One that a repository hands out reads its record when somebody first looks at it, and the JSON in it when somebody
    looks at that: most letters are moved unread.
    """

    id: str
    domain: str
    failure_type: str
    status: str
    entity_type: str | None = None
    entity_id: str | None = None
    entity_refs: dict[str, Any] = field(default_factory=dict)
    user_id: int | str | None = None
    error_code: str = ""
    error_message: str = ""
    snapshot_data: dict[str, Any] = field(default_factory=dict)
    request_data: dict[str, Any] = field(default_factory=dict)
    response_data: dict[str, Any] = field(default_factory=dict)
    metadata: dict[str, Any] = field(default_factory=dict)
    retry_count: int = 0
    max_retries: int = 2
    last_retry_at: datetime | None = None
    resolved_at: datetime | None = None
    resolved_by_id: int | str | None = None
    resolution_type: str = ""
    resolution_note: str = ""
    next_action_hint: str = ""
    recommended_action: str = ""
    expires_at: datetime | None = None
    created_at: datetime = field(default_factory=_now)
    updated_at: datetime = field(default_factory=_now)
    attempt_token: str | None = None
    attempt_cap: int | None = None
    heartbeat_at: datetime | None = None
    next_attempt_at: datetime | None = None
    archived_at: datetime | None = None
    dedup_key: str | None = None
    occurrences: int = 1

    def __getattr__(self, name: str) -> Any:
        # Only asked for what is not there (yet).
        record: LetterRecord | None = self.__dict__.get("_record")
        read = _READ_LATE.get(name)
        if record is None or read is None:
            raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")
        own, values = self.__dict__, read(record)
        values.update(own)  # what was set or read before stays
        self.__dict__ = values
        return values[name]

    @property
    def is_pending(self) -> bool:
        return self.status == FailedOperationStatus.PENDING

    @property
    def is_resolved(self) -> bool:
        return self.status == FailedOperationStatus.RESOLVED

    @property
    def can_retry(self) -> bool:
        """Whether its own cap allows another attempt, whatever its status."""
        return self.retry_count < self.max_retries

    @property
    def cursor(self) -> str:
        """Where a page that ends with this letter goes on; for `after=`."""
        return f"{micros(self.created_at):x}.{self.id}"


@dataclass
class ReplayAttempt:
    """One attempt to replay a letter; `outcome` and `finished_at` are None while it runs."""

    operation_id: str
    number: int
    token: str | None
    started_at: datetime
    finished_at: datetime | None = None
    outcome: str | None = None
    trigger: str = ""
    error_type: str = ""
    note: str = ""
    details: dict[str, Any] = field(default_factory=dict)


@dataclass
class DLQCompressedEntry:
    """The summary of letters that were compressed."""

    id: str
    domain: str
    failure_type: str
    error_code: str
    count: int
    first_seen: datetime
    last_seen: datetime
    sample_error_message: str
    sample_context: dict[str, Any] = field(default_factory=dict)
    status: str = DLQCompressedStatus.ACTIVE.value
    compressed_at: datetime = field(default_factory=_now)
    stale_at: datetime | None = None
    archived_at: datetime | None = None


def letter_of(record: LetterRecord) -> FailedOperationData:
    """The letter of a record. It remembers the record, which saves a read when it is completed."""
    letter = object.__new__(FailedOperationData)
    # It is no field: it is neither compared nor shown, and a copy made by hand has none.
    letter._record = record  # type: ignore[attr-defined]
    letter.id = record.id  # by which letters are handed on unread
    return letter


def letters_of(records: Iterable[LetterRecord]) -> list[FailedOperationData]:
    """As `letter_of` for each: spelled out, since a call for each would take a third of the time."""
    new, letters = object.__new__, []
    for record in records:
        letter = new(FailedOperationData)
        letter._record = record  # type: ignore[attr-defined]
        letter.id = record.id
        letters.append(letter)
    return letters


def _read(text: str) -> Any:
    """What the codec wrote: there is nothing around it to look for, which is half of what `json.loads` does."""
    return _DECODER.raw_decode(text)[0]


def _columns(record: LetterRecord) -> dict[str, Any]:
    """What is stored as it is read. Replays look at these of every letter, and at the others of hardly any."""
    return {
        "id": record.id,
        "domain": record.domain,
        "failure_type": record.failure_type,
        "status": record.status,
        "entity_type": record.entity_type,
        "entity_id": record.entity_id,
        "retry_count": record.retry_count,
        "max_retries": record.max_retries,
        "resolution_type": record.resolution_type,
        "resolution_note": record.resolution_note,
        "recommended_action": record.recommended_action,
        "attempt_token": record.token,
        "attempt_cap": record.attempt_cap,
        "dedup_key": record.dedup_key,
        "occurrences": record.occurrences,
    }


def _times(record: LetterRecord) -> dict[str, Any]:
    return {
        "last_retry_at": maybe_instant(record.last_retry_at),
        "resolved_at": maybe_instant(record.resolved_at),
        "expires_at": maybe_instant(record.expires_at),
        "heartbeat_at": maybe_instant(record.heartbeat_at),
        "next_attempt_at": instant(record.not_before) if record.not_before else None,
        "archived_at": maybe_instant(record.archived_at),
    }


def _made(record: LetterRecord) -> dict[str, Any]:
    return {"created_at": instant(record.created_at), "updated_at": instant(record.updated_at)}


def _people(record: LetterRecord) -> dict[str, Any]:
    return {"user_id": _value(record.user_id), "resolved_by_id": _value(record.resolved_by)}


def _payload(record: LetterRecord) -> dict[str, Any]:
    get = _read(record.payload).get  # what is empty was left out
    return {
        "entity_refs": get("entity_refs") or {},
        "error_code": get("error_code", ""),
        "error_message": get("error_message", ""),
        "snapshot_data": get("snapshot_data") or {},
        "request_data": get("request_data") or {},
        "response_data": get("response_data") or {},
        "next_action_hint": get("next_action_hint", ""),
    }


def _metadata(record: LetterRecord) -> dict[str, Any]:
    return {"metadata": {} if record.metadata == "{}" else _read(record.metadata)}


_READ_TOGETHER: Final = {
    _metadata: ("metadata",),
    _people: ("user_id", "resolved_by_id"),
    _made: ("created_at", "updated_at"),
    _times: ("last_retry_at", "resolved_at", "expires_at", "heartbeat_at", "next_attempt_at", "archived_at"),
    _payload: (
        "entity_refs", "error_code", "error_message", "snapshot_data", "request_data", "response_data",
        "next_action_hint",
    ),
}  # fmt: skip
_READ_LATE: Final = {one.name: _columns for one in fields(FailedOperationData)} | {
    name: read for read, names in _READ_TOGETHER.items() for name in names
}
for _name in _READ_LATE.keys() & vars(FailedOperationData).keys():
    delattr(FailedOperationData, _name)  # a default that the class has would hide what is not read yet


def record_of(letter: FailedOperationData) -> LetterRecord | None:
    """The record that the letter was made of, or what we made of that since; None if no repository made it."""
    own = letter.__dict__
    record: LetterRecord | None = own.get("_latest") or own.get("_record")
    return record


def read_whole(letter: FailedOperationData) -> FailedOperationData:
    """The letter, with nothing left that is read when it is asked for: at once that takes half the time."""
    own = letter.__dict__
    if (record := own.get("_record")) is not None:
        letter.__dict__ = {
            **_columns(record), **_times(record), **_made(record), **_people(record), **_payload(record),
            **_metadata(record), **own,
        }  # fmt: skip
    return letter


def may_hold(letter: FailedOperationData, column: str, key: str) -> bool:
    """Whether the JSON in a column of the letter's record can hold the key: seen in the text, without reading it."""
    record: LetterRecord | None = letter.__dict__.get("_record")
    return record is None or f'"{key}"' in getattr(record, column)


def note_change(letter: FailedOperationData, record: LetterRecord) -> None:
    """The letter's record is this one now. What the letter shows stays as it was read."""
    letter.__dict__["_latest"] = record


def attempts_of(record: LetterRecord) -> list[ReplayAttempt]:
    """The attempts, oldest first; the last one may still run."""
    attempts = [
        ReplayAttempt(
            record.id, item["number"], item["token"], instant(item["started_at"]), instant(item["finished_at"]),
            item["outcome"], item["trigger"], item["error_type"], item["note"], item["details"],
        )
        for item in from_json(record.history)
    ]  # fmt: skip
    if record.started_at is not None:
        started = instant(record.started_at)
        attempts.append(
            ReplayAttempt(record.id, record.attempts, record.token, started, trigger=record.started_by)
        )  # fmt: skip
    return attempts


def entry_of(record: SummaryRecord) -> DLQCompressedEntry:
    return DLQCompressedEntry(
        id=record.id,
        domain=record.domain,
        failure_type=record.failure_type,
        error_code=record.error_code,
        count=record.items,
        first_seen=instant(record.first_seen),
        last_seen=instant(record.last_seen),
        sample_error_message=record.sample_error_message,
        sample_context=from_json(record.sample_context),
        status=record.status,
        compressed_at=instant(record.compressed_at),
        stale_at=maybe_instant(record.stale_at),
        archived_at=maybe_instant(record.archived_at),
    )


def cursor_of(text: str | None) -> Cursor | None:
    """The cursor in a text that `FailedOperationData.cursor` gave.

    Raises ValueError for any other text.
    """
    if text is None:
        return None
    value, dot, id = text.partition(".")
    try:
        if dot and id and id.isascii() and "\0" not in id and abs(at := int(value, 16)) <= FOREVER:
            return Cursor(at, id)
    except ValueError:
        pass
    raise InvalidValue(f"{text!r} is no cursor; use the `cursor` of the last letter of a page")


def _value(text: str | None) -> Any:
    if text is None:
        return None
    return int(text) if text.isdecimal() else from_json(text)
