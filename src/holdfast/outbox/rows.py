"""Between entries and rows: references flattened, corrections in the payload, times in UTC."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any, Final, TypeVar

import sqlalchemy as sa
from pydantic import BaseModel

from holdfast.errors import InvalidValue
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
_RARE: Final = (
    "parks", "last_error", "ordering_key", "dedupe_key", "saga_id", "step", "direction", "depends_on", "verification",
    "verify_at", "result", "headers",
)  # fmt: skip
_NOTHING_RARE: Final = (0, *[None] * (len(_RARE) - 1))
_CLAIMED: Final = (
    "entry_id", "enqueued_at", "last_attempt_at", "attempts", "operation", "resolver", "subject_id", "ref_kind",
    "ref_value", "ref_extra", "payload", *_RARE,
)  # fmt: skip
_COMMON: Final = len(_CLAIMED) - len(_RARE)
_DECODER: Final[Any] = json.JSONDecoder()
_scanned: Final = _DECODER.scan_once
_PLACES: Final = {name: at for at, name in enumerate(COLUMNS)}
_AT_TIMES: Final = tuple((name, _PLACES[name]) for name in _TIMES)


def columns_of(outbox: sa.Table) -> list[sa.Column[Any]]:
    return [outbox.c[name] for name in COLUMNS]


def claimed_columns(outbox: sa.Table, dialect: str) -> list[Any]:
    """What is read of a row that was just claimed, for `claimed_entries`. JSON is a text, and times have no zone: some
    drivers take several times as long for the rest. What is the same in all rows of a claim is left out.
    """
    found: list[Any] = []
    for column in (outbox.c[name] for name in _CLAIMED):
        if column.name in JSON:
            found.append(sa.cast(column, sa.Text()).label(column.name))
        elif column.name in _TIMES and dialect == "postgresql":
            found.append(sa.func.timezone("UTC", column, type_=sa.DateTime()).label(column.name))
        else:
            found.append(column)
    return found


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


def claimed_entries(rows: Sequence[Any], *, lease: timedelta, **same: Any) -> list[OutboxEntry]:
    """The entries of rows of `claimed_columns`, oldest first; `same` are the values that all of them have."""
    if not rows:
        return []
    at: datetime = rows[0][2].replace(tzinfo=UTC)
    values: dict[str, Any] = dict.fromkeys(OutboxEntry.model_fields)
    values |= {"status": OutboxStatus.IN_FLIGHT, "last_attempt_at": at, "next_attempt_at": at + lease, **same}
    values |= {"corrections": (), "parks": 0}
    fields, of_refs = set(_FIELDS), set(_REF_FIELDS)
    entries: list[OutboxEntry] = []
    told, enqueued_at = at, at
    for row in sorted(rows, key=_age):
        if row[1] != told:  # those that were enqueued together have the same
            told = row[1]
            enqueued_at = told.replace(tzinfo=UTC)
        values["enqueued_at"] = enqueued_at
        entries.append(_claimed(row, values, fields, of_refs))
    return entries


def _age(row: Sequence[Any]) -> tuple[datetime, int]:
    return row[1], row[0].int  # an id by itself is compared in Python


def _claimed(row: Sequence[Any], same: dict[str, Any], fields: set[str], of_refs: set[str]) -> OutboxEntry:
    entry_id, _, _, attempts, operation, resolver, subject_id, kind, value, extra, payload = row[:_COMMON]
    ref = {"kind": kind, "value": value, "extra": {} if extra == "{}" else _of_text(extra) or {}}
    values = {
        **same,
        "entry_id": entry_id,
        "attempts": attempts,
        "operation": _OPERATIONS.get(operation, operation),
        "resolver": resolver,
        "subject_id": subject_id,
        "ref": put_together(SubjectRef, ref, of_refs),
        "payload": None if payload is None else _of_text(payload),
    }
    rare = row[_COMMON:]
    if rare != _NOTHING_RARE:
        values |= zip(_RARE, rare, strict=True)
        values["verify_at"] = in_utc(values["verify_at"])
        values |= {name: _of_text(values[name]) for name in ("result", "headers") if values[name] is not None}
    if operation == OutboxOperation.RECTIFY:
        _correct(values)
    return put_together(OutboxEntry, values, fields)


def _of_text(text: str) -> Any:
    try:
        return _scanned(text, 0)[0]  # which looks for no spaces around it
    except (StopIteration, ValueError):
        return json.loads(text)


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
    values["corrections"] = ()
    if operation == OutboxOperation.RECTIFY:
        _correct(values)
    return built(OutboxEntry, values, _FIELDS)


def _correct(values: dict[str, Any]) -> None:
    """Take the corrections out of the payload."""
    payload = values["payload"]
    if isinstance(payload, Mapping) and "corrections" in payload:
        values["corrections"] = tuple(map(_correction, payload["corrections"]))
        values["payload"] = None


def built(model: type[M], values: dict[str, Any], fields: frozenset[str]) -> M:
    """An instance of what was checked when it was stored: to check each row again would cost more than to read it, and
    what an older release stored must stay readable. `model_construct` looks up every field, and costs five times this.
    """
    return put_together(model, values, set(fields))


def put_together(model: type[M], values: dict[str, Any], fields: set[str]) -> M:
    """The same; `fields` may be those of others as well."""
    made: M = _new(model)
    _put_values(made, values)
    _put_fields(made, fields)
    _put_extra(made, None)
    _put_private(made, None)
    return made


# What a model consists of; to find each of them by its name takes as long again.
_new: Final[Any] = object.__new__
_put_values, _put_fields, _put_extra, _put_private = (
    BaseModel.__dict__[name].__set__
    for name in ("__dict__", "__pydantic_fields_set__", "__pydantic_extra__", "__pydantic_private__")
)


def _correction(stored: Mapping[str, Any]) -> Correction:
    category = stored["category"]
    return Correction.model_construct(category=_CATEGORIES.get(category, category), value=stored["value"])


def status_of(text: str) -> OutboxStatus:
    try:
        return _STATUSES[text]
    except KeyError:
        known = ", ".join(_STATUSES)
        raise InvalidValue(f"{text!r} is no status of an outbox entry; known are {known}") from None


def in_utc(at: datetime | None) -> datetime | None:
    """A stored time; databases without time zones give it back without one."""
    if at is None or at.tzinfo is UTC:
        return at
    return at.replace(tzinfo=UTC) if at.tzinfo is None else at.astimezone(UTC)


def oldest_first(entry: OutboxEntry) -> tuple[datetime, Any]:
    return entry.enqueued_at, entry.entry_id
