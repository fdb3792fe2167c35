"""What the audit trail says of outcomes. The facts of each event are put together here and nowhere else: names, numbers
and what an operation declared, never a message or a payload.

An operation that has no names of its own for its outcomes shares the general ones, which every reader knows; its name
is a fact then. So is that of an operation which nobody here has registered.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Any, Final

from holdfast.audit.event import AuditEvent, AuditEventType
from holdfast.outbox.entry import OutboxEntry
from holdfast.outbox.ids import new_entry_id
from holdfast.outbox.operation import OPERATION_EVENTS, Facts, Operation, StepEvents
from holdfast.outbox.rows import put_together
from holdfast.outbox.verdict import word_of
from holdfast.store.codec import clean_text

_FIELDS: Final = set(AuditEvent.model_fields)  # of all: an event is frozen, and a copy has its own
_NONE: Final[Mapping[str, Any]] = {}


def succeeded(operation: Operation, entry: OutboxEntry, at: datetime, facts: Facts) -> AuditEvent | None:
    """The call was made."""
    names = operation.events
    if names is None:
        return None
    payload = _named(names, entry)
    payload["target"] = entry.resolver
    if facts:
        payload |= _allowed(operation, facts)
    payload["external"] = True
    payload["attempts"] = entry.attempts
    return _event(names.succeeded, entry, at, payload)


def completed(operation: Operation, entry: OutboxEntry, at: datetime) -> AuditEvent | None:
    """It was the last one that its group lacked."""
    names = _names(operation)
    return _event(names.completed, entry, at, _named(names, entry)) if names is not None and names.completed else None


def parked(operation: Operation, entry: OutboxEntry, at: datetime, until: datetime, facts: Facts) -> AuditEvent | None:
    """It was put off until a time that its target named."""
    names = _names(operation)
    if names is None or not names.parked:
        return None
    payload = {**_named(names, entry), "target": entry.resolver, "external": True, "expires_at": until.isoformat()}
    payload |= {**_allowed(operation, facts), "prior_attempts": entry.attempts}
    return _event(names.parked, entry, at, payload)


def abandoned(
    operation: Operation | None, entry: OutboxEntry, at: datetime, error: str, attempts: int
) -> AuditEvent | None:
    """It was given up, by the runner or by an operator."""
    names = _names(operation)
    if names is None:
        return None
    labels = _NONE if operation is None else operation.labels
    payload = {**_named(names, entry), "target": entry.resolver, **labels, "external": True}
    payload |= {"error": error, "attempts": attempts, "abandoned": True}
    return _event(names.failed, entry, at, payload)


def requeued(operation: Operation | None, entry: OutboxEntry, at: datetime) -> AuditEvent | None:
    """It was handed back; `entry` is as it was before."""
    names = _names(operation)
    if names is None:
        return None
    payload = {**_named(names, entry), "entry_id": str(entry.entry_id), "resolver": entry.resolver}
    payload["prior_attempts"] = entry.attempts
    if entry.last_error is not None:
        payload["prior_error"] = entry.last_error
    return _event(names.requeued, entry, at, payload)


def verified(operation: Operation, entry: OutboxEntry, at: datetime, confirmed: bool) -> AuditEvent | None:
    """Its target was asked whether its success is real."""
    names = _names(operation)
    kind = "" if names is None else names.verified if confirmed else names.unverified
    if names is None or not kind:
        return None
    payload = {**_named(names, entry), "target": entry.resolver, "external": True, "confirmed_absent": confirmed}
    payload["attempts"] = entry.attempts
    return _event(kind, entry, at, payload)


def verification_requested(operation: Operation | None, entry: OutboxEntry, at: datetime) -> AuditEvent | None:
    """An operator has its target asked again; `entry` is as it was before."""
    if _names(operation) is None:
        return None
    prior = str(word_of(entry.verification, entry.verify_at))
    payload = {"operation": str(entry.operation), "target": entry.resolver, "external": True, "prior": prior}
    return _event(AuditEventType.VERIFICATION_REQUESTED, entry, at, payload)


def _names(operation: Operation | None) -> StepEvents | None:
    return OPERATION_EVENTS if operation is None else operation.events


def _named(names: StepEvents, entry: OutboxEntry) -> dict[str, Any]:
    """Whose outcome it is, where the type does not say so."""
    general = names is OPERATION_EVENTS or names == OPERATION_EVENTS
    return {"operation": str(entry.operation)} if general else {}


def _allowed(operation: Operation, facts: Facts) -> Mapping[str, Any]:
    """Of what a call says, that which may stand in the trail."""
    if not facts:
        return _NONE
    return {
        name: clean_text(fact) if isinstance(fact, str) else fact
        for name, fact in facts.items()
        if name in operation.facts and isinstance(fact, str | int)
    }


def _event(kind: str, entry: OutboxEntry, at: datetime, payload: dict[str, Any]) -> AuditEvent:
    # Every part was checked when it was stored or made here; to check it again would cost more than all the rest. The
    # id ascends like that of an entry, so that the trail's index grows at its end.
    values = {
        "event_id": new_entry_id(),
        "event_type": kind,
        "subject_ref": entry.subject_id,
        "occurred_at": at,
        "payload": payload,
        "entry_id": entry.entry_id,
    }
    return put_together(AuditEvent, values, _FIELDS)
