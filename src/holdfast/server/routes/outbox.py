"""The outbox: calls that must happen. See how they went, call them again, give them up, stop and start queues."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime
from typing import Annotated, Any, Final
from uuid import UUID

from fastapi import Depends, Query

from holdfast.access.rights import REVEAL
from holdfast.errors import ConfigurationError
from holdfast.machine.outbox_entry import CANCEL, REQUEUE, OutboxStatus
from holdfast.outbox.entry import OutboxEntry
from holdfast.outbox.many import Outcome, change_many
from holdfast.outbox.searching import QueueState
from holdfast.outbox.verdict import CONFIRMED, PENDING, UNVERIFIED, word_of
from holdfast.server.problems import not_found, refused
from holdfast.server.routes.audit import Name, shown_event
from holdfast.server.routes.outbox_shapes import (
    Entry,
    EntryRevealed,
    EntryShown,
    MatchingEntries,
    OutboxFacets,
    QueueChanged,
    QueuePause,
    QueueResume,
    RequeuedMany,
    RequeueMany,
    RequeuePreview,
    Verified,
)
from holdfast.server.routing import Asked, Asking, Routes
from holdfast.server.shapes import Limit, MayReason, Page, Reasoned
from holdfast.store.codec import clean_text
from holdfast.views.outbox import attempt_document, entry_document

routes: Final = Routes("outbox")
_MOST_EVENTS: Final = 100
_AT_ONCE: Final = 1_000
_PROGRAM: Final = "serve the program that calls it: holdfast serve --app module:hold"


async def filtered(
    operation: Name = None,
    target: Name = None,
    subject_id: Annotated[Name, Query(description="Whom or what it is about.")] = None,
    key: Annotated[Name, Query(description="The key in whose order entries are called.")] = None,
    queue: Name = None,
    error: Annotated[Name, Query(description="What the last attempt raised, for instance ConnectionError.")] = None,
) -> dict[str, Any]:
    """What an entry must be like, the status apart."""
    given = {
        "operation": operation, "target": target, "subject_id": subject_id, "key": key, "queue": queue, "error": error,
    }  # fmt: skip
    return {name: value for name, value in given.items() if value is not None}


Where = Annotated[dict[str, Any], Depends(filtered)]


def find_entry(asked: Asked, id: UUID) -> OutboxEntry:
    """The entry. Raises ProblemError."""
    entry = asked.hold.outbox.get(id)
    if entry is None:
        raise not_found("entry", str(id))
    return entry


@routes.reads(response_model=Page[Entry])
def find(
    asked: Asking,
    where: Where,
    status: OutboxStatus | None = None,
    verification: Verified | None = None,
    saga_id: UUID | None = None,
    limit: Limit = 50,
    after: UUID | None = None,
) -> Any:
    """Entries, the newest first. A page may have few entries, or none, and yet a `next`: what no index finds is
    searched for among 10,000 entries at a time.
    """
    hold = asked.hold
    found = hold.outbox.search(
        **where, status=status, verification=verification, saga_id=saga_id, limit=limit, after=after
    )
    return {
        "items": [entry_document(one, hold.outbox.operations) for one in found.entries],
        "next": None if found.after is None else str(found.after),
    }


@routes.reads("/facets", response_model=OutboxFacets)
def facets(asked: Asking) -> Any:
    """How many entries there are in each status, how far behind the queues are, and what entries are about."""
    found = asked.hold.outbox.facets()
    known = {operation.name for operation in asked.hold.outbox.operations}
    return {
        "by_status": found.by_status,
        "at_least": sorted(found.at_least),
        "queues": [_queue(one, found.now) for one in found.queues],
        "operations": sorted({*found.operations, *known}),
        "targets": found.targets,
        "errors": found.errors,
    }


@routes.reads("/requeue/preview", response_model=RequeuePreview)
def preview_requeue(asked: Asking, where: Where) -> Any:
    """How many abandoned entries match, by operation and target."""
    return _preview(asked, where)


@routes.reads("/{id}", response_model=EntryShown)
def show(asked: Asking, id: UUID) -> Any:
    """One entry, how its calls went, and what can be done now."""
    hold, entry = asked.hold, find_entry(asked, id)
    events = hold.audit.page(entry_id=id, limit=_MOST_EVENTS)
    return {
        **entry_document(entry, hold.outbox.operations),
        "history": [attempt_document(one) for one in hold.outbox.attempts(id)],
        "events": [shown_event(one) for one in events],
        "known": _knows(asked, entry.operation),
        "verified": word_of(entry.verification, entry.verify_at),
        "moves": [
            {"act": act, "possible": why is None, "reason": why or ""}
            for act, bars in (("requeue", _bars_requeue), ("cancel", _bars_cancel), ("verify", _bars_verify))
            for why in (bars(asked, entry),)
        ],
    }


@routes.acts("/requeue", response_model=RequeuedMany)
def requeue_matching(asked: Asking, body: RequeueMany) -> Any:
    """Hand back abandoned entries that match, up to 1,000 at a time, the newest first."""
    where = body.model_dump(include=set(MatchingEntries.model_fields), exclude_none=True)
    if body.after is None:
        preview = _preview(asked, where)
        if preview["matched"] != body.expected:
            raise refused(
                "count_changed",
                f"{preview['matched']:,} entries match by now, and not {body.expected:,}; look again, and confirm",
                matched=preview["matched"],
            )
        _refuse_unknown(asked, [call["operation"] for call in preview["calls"]])
    outbox = asked.hold.outbox
    found = outbox.search(**where, status=OutboxStatus.ABANDONED, limit=_AT_ONCE, after=body.after)
    _refuse_unknown(asked, {str(one.operation) for one in found.entries})
    ids = [one.entry_id for one in found.entries]
    outcome = change_many(outbox.requeue, ids, Outcome(len(ids)))
    return {
        "requeued": outcome.changed,
        "refused": [{"entry_id": id, "why": why} for id, why in outcome.refused.items()],
        "next": None if found.after is None else str(found.after),
    }


@routes.acts("/queues/pause", response_model=QueueChanged)
def pause(asked: Asking, body: QueuePause) -> Any:
    """Call nothing of a queue, on any host, until it is resumed. MatchingCalls that run already go on."""
    return {"changed": asked.hold.outbox.pause(body.queue, by=clean_text(asked.by), reason=clean_text(body.reason))}


@routes.acts("/queues/resume", response_model=QueueChanged)
def resume(asked: Asking, body: QueueResume) -> Any:
    """Let entries of a queue be called again."""
    return {"changed": asked.hold.outbox.resume(body.queue)}


@routes.acts("/{id}/requeue", response_model=Entry)
def requeue(asked: Asking, id: UUID, body: MayReason) -> Any:
    """Hand an abandoned entry back, with a new budget of attempts."""
    entry = find_entry(asked, id)
    _refuse("cannot_requeue", _bars_requeue(asked, entry))
    try:
        changed = asked.hold.outbox.requeue([id])
    except ConfigurationError as error:
        raise refused("cannot_requeue", str(error)) from error
    return _after(asked, id, bool(changed), "requeued")


@routes.acts("/{id}/cancel", response_model=Entry)
def cancel(asked: Asking, id: UUID, body: Reasoned) -> Any:
    """Give up an entry that nobody is calling. A payload that is sensitive is scrubbed, and gone for good."""
    entry = find_entry(asked, id)
    _refuse("cannot_cancel", _bars_cancel(asked, entry))
    return _after(asked, id, bool(asked.hold.outbox.cancel([id])), "cancelled")


@routes.acts("/{id}/verify", response_model=Entry)
def verify(asked: Asking, id: UUID, body: MayReason) -> Any:
    """Have the target asked again about a success that it denied, or could not be asked about. A worker asks."""
    entry = find_entry(asked, id)
    _refuse("cannot_verify", _bars_verify(asked, entry))
    return _after(asked, id, bool(asked.hold.outbox.verify_again([id])), "asked about again")


@routes.acts("/{id}/reveal", REVEAL, response_model=EntryRevealed)
def reveal(asked: Asking, id: UUID, body: Reasoned) -> Any:
    """The entry as it was kept, without masks."""
    return {"entry": entry_document(find_entry(asked, id), asked.hold.outbox.operations, reveal=True)}


def _preview(asked: Asked, where: dict[str, Any]) -> dict[str, Any]:
    found = asked.hold.outbox.tally("operation", "target", **where, status=OutboxStatus.ABANDONED)
    calls = [
        {"operation": str(operation), "target": str(target), "entries": number, "known": _knows(asked, operation)}
        for (operation, target), number in sorted(found.items(), key=str)
    ]
    return {"matched": sum(found.values()), "calls": calls}


def _knows(asked: Asked, operation: Any) -> bool:
    return asked.hold.outbox.operations.find(str(operation)) is not None


def _refuse_unknown(asked: Asked, operations: Iterable[str]) -> None:
    for name in sorted(set(operations)):
        if not _knows(asked, name):
            raise refused("unknown_operation", _unknown(name), operation=name)


def _unknown(operation: str) -> str:
    return f"nobody here knows operation {operation!r}, and so what to audit and to scrub; {_PROGRAM}"


def _bars_requeue(asked: Asked, entry: OutboxEntry) -> str | None:
    if entry.status not in REQUEUE.sources:
        return f"it is {entry.status}; only what was abandoned can be requeued"
    return None if _knows(asked, entry.operation) else _unknown(str(entry.operation))


def _bars_cancel(asked: Asked, entry: OutboxEntry) -> str | None:
    if entry.status is OutboxStatus.IN_FLIGHT:
        return "it is being called; wait until that has ended"
    if entry.status not in CANCEL.sources:
        return f"it is {entry.status}, and nobody will call it any more"
    return None if _knows(asked, entry.operation) else _unknown(str(entry.operation))


def _bars_verify(asked: Asked, entry: OutboxEntry) -> str | None:
    word = word_of(entry.verification, entry.verify_at)
    if entry.status is not OutboxStatus.SUCCEEDED or word is None:
        return "it is not to be verified: it has not succeeded, its operation does not ask, or its target cannot tell"
    if word in UNVERIFIED:
        return None
    return {CONFIRMED: "it is confirmed already", PENDING: "it is asked about already"}.get(word, f"it is {word}")


def _refuse(code: str, why: str | None) -> None:
    if why is not None:
        raise refused(code, why)


def _after(asked: Asked, id: UUID, changed: bool, done: str) -> dict[str, Any]:
    entry = find_entry(asked, id)
    if not changed:
        raise refused("changed_meanwhile", f"entry {id} was not {done}: it is {entry.status} by now")
    return entry_document(entry, asked.hold.outbox.operations)


def _queue(one: QueueState, now: datetime) -> dict[str, Any]:
    since, paused = one.oldest_due, one.paused
    return {
        "queue": one.queue,
        "waiting": one.waiting,
        "oldest_due": since,
        "lag_s": 0.0 if since is None else max(0.0, (now - since).total_seconds()),
        "paused": paused is not None,
        "paused_at": None if paused is None else paused.paused_at,
        "paused_by": None if paused is None else paused.paused_by,
        "paused_reason": None if paused is None else paused.reason,
    }
