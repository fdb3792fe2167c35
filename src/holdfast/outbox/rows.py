"""Between entries and rows: references flattened, corrections in the payload, times in UTC."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Any, Final, TypeVar

import sqlalchemy as sa
from pydantic import BaseModel

from holdfast.machine.outbox_entry import TERMINAL, OutboxStatus
from holdfast.outbox.entry import OutboxEntry, OutboxOperation
from holdfast.outbox.subject import Correction, PiiCategory, SubjectRef, utc

M = TypeVar("M", bound=BaseModel)
_STATUSES: Final[dict[str, OutboxStatus]] = {str(one): one for one in OutboxStatus}
_OPERATIONS: Final[dict[str, OutboxOperation]] = {str(one): one for one in OutboxOperation}
_CATEGORIES: Final[dict[str, PiiCategory]] = {str(one): one for one in PiiCategory}
_FIELDS: Final = frozenset(OutboxEntry.model_fields)
_SAME: Final = (
    "entry_id", "subject_id", "resolver", "attempts", "last_error", "claim_token", "claimed_by", "ordering_key",
    "dedupe_key", "saga_id", "step", "direction", "depends_on", "result", "verification", "queue", "headers", "parks",
)  # fmt: skip
JSON: Final = ("ref_extra", "payload", "headers", "result")
_TIMES: Final = ("enqueued_at", "last_attempt_at", "next_attempt_at", "verify_at")
COLUMNS: Final = (*_SAME, *_TIMES, "status", "operation", "ref_kind", "ref_value", "ref_extra", "payload")
"""What is read of a row, in this order."""
_REF_FIELDS: Final = frozenset(SubjectRef.model_fields)
_PLACES: Final = {name: at for at, name in enumerate(COLUMNS)}
_AT_TIMES: Final = tuple((name, _PLACES[name]) for name in _TIMES)


def columns_of(outbox: sa.Table) -> list[sa.Column[Any]]:
    return [outbox.c[name] for name in COLUMNS]


def columns_as_text(outbox: sa.Table) -> list[Any]:
    """The same with JSON as text, for `entry_of_text`: some drivers decode it at several times the cost."""
    return [sa.cast(one, sa.Text()).label(one.name) if one.name in JSON else one for one in columns_of(outbox)]


def row_of(entry: OutboxEntry) -> dict[str, Any]:
    """What is inserted. An entry that has ended keeps no payload."""
    row: dict[str, Any] = {name: getattr(entry, name) for name in _SAME}
    for name in _TIMES:  # an entry that was copied with other times has not had them checked
        at = getattr(entry, name)
        row[name] = None if at is None else utc(at)
    if entry.corrections:
        payload: Any = {"corrections": [one.model_dump(mode="json") for one in entry.corrections]}
    else:
        payload = entry.payload
    return row | {
        "status": str(entry.status),
        "operation": str(entry.operation),
        "ref_kind": entry.ref.kind,
        "ref_value": entry.ref.value,
        "ref_extra": entry.ref.extra,
        "payload": None if entry.status in TERMINAL else payload,
    }


def entry_of(row: Sequence[Any]) -> OutboxEntry:
    """The entry of a row of `COLUMNS`.

    Raises ValueError for a status that nobody knows.
    """
    return _entry(dict(zip(COLUMNS, row, strict=True)), row)


def entry_of_text(row: Sequence[Any]) -> OutboxEntry:
    """The entry of a row of `columns_as_text`."""
    values: dict[str, Any] = dict(zip(COLUMNS, row, strict=True))
    for name in JSON:
        text = values[name]
        if text is not None:
            values[name] = {} if text == "{}" else json.loads(text)
    return _entry(values, row)


def _entry(values: dict[str, Any], row: Sequence[Any]) -> OutboxEntry:
    for name, at in _AT_TIMES:
        if row[at] is not None:
            values[name] = in_utc(row[at])
    values["status"] = status_of(values["status"])
    operation = values["operation"]
    values["operation"] = _OPERATIONS.get(operation, operation)
    values["ref"] = built(
        SubjectRef,
        {"kind": values.pop("ref_kind"), "value": values.pop("ref_value"), "extra": values.pop("ref_extra") or {}},
        _REF_FIELDS,
    )
    payload = values["payload"]
    values["corrections"] = ()
    if operation == OutboxOperation.RECTIFY and isinstance(payload, Mapping) and "corrections" in payload:
        values["corrections"] = tuple(map(_correction, payload["corrections"]))
        values["payload"] = None
    return built(OutboxEntry, values, _FIELDS)


def built(model: type[M], values: dict[str, Any], fields: frozenset[str]) -> M:
    """An instance of what was checked when it was stored: to check each row again would cost more than to read it, and
    what an older release stored must stay readable. `model_construct` looks up every field, and costs five times this.
    """
    built = model.__new__(model)
    object.__setattr__(built, "__dict__", values)
    object.__setattr__(built, "__pydantic_fields_set__", set(fields))
    object.__setattr__(built, "__pydantic_extra__", None)
    object.__setattr__(built, "__pydantic_private__", None)
    return built


def _correction(stored: Mapping[str, Any]) -> Correction:
    category = stored["category"]
    return Correction.model_construct(category=_CATEGORIES.get(category, category), value=stored["value"])


def status_of(text: str) -> OutboxStatus:
    try:
        return _STATUSES[text]
    except KeyError:
        known = ", ".join(_STATUSES)
        raise ValueError(f"{text!r} is no status of an outbox entry; known are {known}") from None


def in_utc(at: datetime | None) -> datetime | None:
    """A stored time; databases without time zones give it back without one."""
    if at is None or at.tzinfo is UTC:
        return at
    return at.replace(tzinfo=UTC) if at.tzinfo is None else at.astimezone(UTC)


def oldest_first(entry: OutboxEntry) -> tuple[datetime, Any]:
    return entry.enqueued_at, entry.entry_id
