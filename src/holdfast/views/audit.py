"""Events of the audit trail, as data and as sentences; what verifying it has found; checkpoints."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Any, Final
from uuid import UUID

from holdfast.audit.checkpoints import Checkpoint
from holdfast.audit.event import AuditEvent, AuditEventType
from holdfast.audit.reading import Cursor
from holdfast.audit.rows import StoredEvent
from holdfast.audit.verify import Break, ChainVerification
from holdfast.views.plain import iso, masked, plain

MEANINGS: Final = {
    Break.GAP: "events before it are missing, or its number is wrong",
    Break.LINK: "it does not follow from the event before it",
    Break.HASH: "it is not what was written, or was written with another key",
    Break.UNHASHED: "it was written past the chain",
    Break.UNREADABLE: "no event can hold what its row holds",
    Break.HEAD: "the stream's head says that it is not the last event",
    Break.NO_HEAD: "the stream has no head",
    Break.CHECKPOINT: "a checkpoint saw something else",
}
_THINGS: Final = {
    "letters": "letter", "outbox": "outbox entry", "sagas": "saga", "workflows": "workflow", "breakers": "breaker",
    "guards": "guard", "pools": "pool", "bulk": "bulk operation", "workers": "worker", "access": "account",
}  # fmt: skip
_ON: Final = "on_"
_OUTCOMES: Final = ("verification_failed", "succeeded", "failed", "requeued", "parked", "completed", "verified")


def event_document(one: StoredEvent) -> dict[str, Any]:
    """The event, with its place in the chain."""
    fields = one.event.model_dump()
    fields |= {name: None if fields[name] is None else str(fields[name]) for name in ("event_id", "entry_id")}
    place = {name: getattr(one, name) for name in ("stream", "seq", "prior_hash", "event_hash")}
    return {**fields, "payload": masked(fields["payload"]), **place}


def sentence(event: AuditEvent) -> str:
    """What the event says, for people: `ann asked to requeue outbox entry 0198…: the broker is back`."""
    facts: dict[str, Any] = masked(event.payload)
    match event.event_type:
        case AuditEventType.OPERATOR_ACTED:
            why = facts.get("reason")
            return f"{_who(event)} asked to {_deed(facts)}" + (f": {why}" if why else "")
        case AuditEventType.OPERATOR_ACT_FAILED:
            return f"{_who(event)} could not {_deed(facts)} ({facts.get('error', 'it failed')})"
        case AuditEventType.TRAIL_VERIFIED:
            return f"{facts.get('by')} found {facts.get('events')} events in {facts.get('streams')} streams in order"
        case AuditEventType.TRAIL_BROKEN:
            return f"{facts.get('by')} found {facts.get('broken')} of {facts.get('streams')} streams broken"
    return _happened(str(event.event_type), facts)


def verification_document(one: ChainVerification) -> dict[str, Any]:
    """What was found in a stream."""
    shown: dict[str, Any] = plain(one)
    return shown


def checkpoint_document(one: Checkpoint) -> dict[str, Any]:
    """What the end of a stream was at a time."""
    shown: dict[str, Any] = plain(one._asdict())
    return shown


def cursor_text(cursor: Cursor) -> str:
    """A cursor as a text that goes into an address."""
    at, event_id = cursor
    return f"{iso(at)},{event_id}"


def cursor_of(text: str) -> Cursor | None:
    """The cursor of a text; None for what is none."""
    at, _, event_id = text.partition(",")
    try:
        moment, id = datetime.fromisoformat(at), UUID(event_id)
    except ValueError:
        return None
    return moment, id


def _happened(type: str, facts: Mapping[str, Any]) -> str:
    """`mail to smtp failed: ConnectionError`, `saga order stuck: ship: ConnectionError`."""
    why = facts.get("error") or facts.get("reason")
    because = f": {why}" if why else ""
    if type.startswith("saga_") and "definition" in facts:
        return f"saga {facts['definition']} {type.removeprefix('saga_')}{because}"
    outcome = next((word for word in _OUTCOMES if type.endswith(f"_{word}")), None)
    target = facts.get("target") or facts.get("resolver")
    if outcome is None or target is None:
        return type.replace("_", " ") + because
    what = facts.get("operation") or type.removesuffix(f"_{outcome}").replace("_", " ")
    to = "" if target == what else f" to {target}"
    return f"{what}{to} {outcome.replace('_', ' ')}{because}"


def _who(event: AuditEvent) -> str:
    return event.subject_ref.partition(":")[2] or event.subject_ref


def _deed(facts: Mapping[str, Any]) -> str:
    """`letters.replay` on an id: "replay letter 0198…"."""
    resource, _, verb = str(facts.get("act", "")).partition(".")
    on = {name.removeprefix(_ON): value for name, value in facts.items() if name.startswith(_ON)}
    id, verb = on.pop("id", None), verb.replace("_", " ")
    named = " ".join(f"{name} {value}" for name, value in sorted(on.items()))
    if not verb:
        return "do what the event does not name"
    if id is None:
        return f"{verb} {resource} {named}" if named else f"{verb} ({resource})"
    return f"{verb} {_THINGS.get(resource, resource)} {id}" + (f" {named}" if named else "")
