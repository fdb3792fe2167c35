"""Dead letters: find, show, replay, resolve, discard, reveal, delete; and domains, which can be paused."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Any, Final

from fastapi import Depends, Query
from fastapi.responses import JSONResponse

from holdfast.access.rights import ADMIN, REVEAL
from holdfast.letters.bulk import BulkProgress, LetterFilter
from holdfast.letters.data import FailedOperationData
from holdfast.letters.gates import Way
from holdfast.machine.bulk import BulkAction, BulkState
from holdfast.machine.dead_letter import LETTER, PENDING, REDRIVABLE, FailedOperationStatus
from holdfast.machine.drain import DOMAIN, is_paused
from holdfast.server.problems import invalid, not_found, refused
from holdfast.server.routes.bulk import Operation, operation_shown
from holdfast.server.routes.letter_shapes import (
    Changed,
    Domain,
    DomainRequest,
    Facets,
    Fingerprints,
    Letter,
    LetterShown,
    PauseRequest,
    ReplayAnswer,
    ReplayRequest,
    Retention,
    Revealed,
    Statistics,
)
from holdfast.server.routing import Asked, Asking, Routes
from holdfast.server.shapes import After, Id, Limit, MayReason, Page, Reasoned, in_utc, page_of
from holdfast.store.codec import maybe_instant
from holdfast.store.query import Condition
from holdfast.views.fingerprints import grouped
from holdfast.views.letters import attempt_document, letter_document, user_of
from holdfast.views.plain import plain

routes: Final = Routes("letters")
STATUSES: Final = [status.value for status in FailedOperationStatus]
MOST_GROUPED: Final = 1000
_LOOKED_AT: Final = 200


async def filtered(
    status: Annotated[str | None, Query(description="One of the ten statuses.")] = None,
    domain: str | None = None,
    failure_type: str | None = None,
    entity_type: str | None = None,
    entity_id: str | None = None,
    user_id: Annotated[str | None, Query(description='A number, or a text; "7" in double quotes is a text.')] = None,
    created_from: datetime | None = None,
    created_to: datetime | None = None,
) -> dict[str, Any]:
    """What a letter must be like: the arguments of `find` that were given."""
    if status is not None and status not in STATUSES:
        raise invalid("unknown_status", f"{status!r} is no status of a letter; there are {', '.join(STATUSES)}")
    given = {
        "status": status, "domain": domain, "failure_type": failure_type, "entity_type": entity_type,
        "entity_id": entity_id, "user_id": None if user_id is None else _user(user_id),
        "created_from": in_utc("created_from", created_from), "created_to": in_utc("created_to", created_to),
    }  # fmt: skip
    return {name: value for name, value in given.items() if value is not None}


def _user(text: str) -> int | str:
    try:
        return user_of(text)
    except ValueError:  # more digits than Python reads
        raise invalid("invalid_value", f"user_id has {len(text)} digits, more than any number that is stored") from None


def find_letter(asked: Asked, id: str) -> FailedOperationData:
    """The letter. Raises ProblemError."""
    letter = asked.hold.letters.get_by_id(id)
    if letter is None:
        raise not_found("letter", id)
    return letter


@routes.reads(response_model=Page[Letter])
def find(
    asked: Asking, where: Annotated[dict[str, Any], Depends(filtered)], limit: Limit = 50, after: After = None
) -> Any:
    """Letters, the newest first. A page may have few letters, or none, and yet a `next`: what no index finds is
    searched for among 10,000 letters at a time.
    """
    found = asked.hold.letters.search(**where, limit=limit, after=after)
    return {"items": [letter_document(letter) for letter in found.letters], "next": found.after}


@routes.reads("/facets", response_model=Facets)
def facets(asked: Asking, status: str | None = None, domain: str | None = None, failure_type: str | None = None) -> Any:
    """How many letters there are by status, domain and failure type: each within the other two."""
    chosen = {"status": status, "domain": domain, "failure_type": failure_type}
    counts = asked.hold.store.tally(LETTER, tuple(chosen))
    found: dict[str, dict[str, int]] = {f"by_{name}": {} for name in chosen}
    for values, number in counts.items():
        named = dict(zip(chosen, values, strict=True))
        for name, value in named.items():
            if all(want in (None, named[other]) for other, want in chosen.items() if other != name):
                group = found[f"by_{name}"]
                group[value] = group.get(value, 0) + number
    return found


@routes.reads("/statistics", response_model=Statistics)
def statistics(asked: Asking) -> Any:
    """How many letters there are, and what waits in each domain."""
    return asked.hold.letters.get_statistics()


@routes.reads("/retention", response_model=Retention)
def retention(asked: Asking) -> Any:
    """What is kept for how long, and how much of it is old."""
    letters = asked.hold.letters
    schedule, figures, room = letters.maintenance.schedule, letters.get_cleanup_stats(), letters.box.room.capacity
    summaries = letters.get_compressed_summary()
    return {
        "archive_after_days": schedule.archive_after_days,
        "purge_after_days": schedule.purge_after_days,
        "stale_after_minutes": schedule.stale_after_minutes,
        "resolved_older_than_30_days": figures["resolved_older_than_30_days"],
        "archived_older_than_90_days": figures["archived_older_than_90_days"],
        "active": letters.count_all(),
        "capacity": room.total,
        "overflow": str(room.overflow),
        "spooled": bool(letters.box.spool),
        "summaries": summaries["total_summaries"],
        "summarised_letters": summaries["total_compressed_items"],
    }


@routes.reads("/fingerprints", response_model=Fingerprints)
def fingerprints(asked: Asking, where: Annotated[dict[str, Any], Depends(filtered)], limit: Limit = 100) -> Any:
    """Errors by how often they come, over the newest 1,000 letters that match; what no index finds is searched for
    among the newest 10,000.
    """
    found = asked.hold.letters.search(**where, limit=MOST_GROUPED)
    items = [plain(group) for group in grouped(found.letters)[:limit]]
    return {"items": items, "looked_at": len(found.letters), "is_all": found.after is None}


@routes.reads("/domains", response_model=Page[Domain])
def domains(asked: Asking, limit: Limit = 100, after: After = None) -> Any:
    """Every domain that has letters, is paused, or can be replayed here; by name."""
    store, handlers = asked.hold.store, asked.hold.letters.handlers
    counts: dict[str, dict[str, int]] = {}
    for (domain, status), number in store.tally(LETTER, ("domain", "status")).items():
        counts.setdefault(domain, {})[status] = number
    paused = store.page(DOMAIN, (Condition("paused", "=", 1),), limit=_LOOKED_AT)
    names = sorted({*counts, *handlers.domains, *(one.id for one in paused)})
    found = [name for name in names if after is None or name > after][: limit + 1]
    return page_of(found, limit, lambda name: _domain(asked, name, counts.get(name, {})), lambda name: name)


@routes.reads("/{id}", response_model=LetterShown)
def show(asked: Asking, id: Id) -> Any:
    """One letter, every attempt to replay it, and what a replay would meet now."""
    letter = find_letter(asked, id)
    attempts = [attempt_document(attempt) for attempt in asked.hold.letters.get_attempts(id)]
    return {**letter_document(letter), "attempts": attempts, "replay": _preview(asked, letter)}


@routes.acts("/{id}/replay", response_model=ReplayAnswer, responses={202: {"model": Operation}})
def replay(asked: Asking, id: Id, body: ReplayRequest) -> Any:
    """Replay a letter now, in this process. Where that does not know how, the program's workers do it: 202, with the
    operation that they carry out.
    """
    letter = find_letter(asked, id)
    if asked.hold.letters.handlers.find(letter) is not None:
        return plain(asked.hold.letters.replay(id, force=body.force, by=asked.by))
    handed = operation_shown(_hand_over(asked, letter, body), asked.hold)
    return JSONResponse(Operation.model_validate(handed).model_dump(mode="json"), 202)


@routes.acts("/{id}/resolve", response_model=Letter)
def resolve(asked: Asking, id: Id, body: Reasoned) -> Any:
    """Say that somebody has seen to it."""
    return _decided(asked, id, FailedOperationStatus.RESOLVED, body.reason)


@routes.acts("/{id}/discard", response_model=Letter)
def discard(asked: Asking, id: Id, body: Reasoned) -> Any:
    """Say that nobody will replay it. Nothing is deleted."""
    return _decided(asked, id, FailedOperationStatus.REJECTED, body.reason)


@routes.acts("/{id}/reveal", REVEAL, response_model=Revealed)
def reveal(asked: Asking, id: Id, body: Reasoned) -> Any:
    """The letter as it was kept, without masks. What the program itself masked stays masked."""
    return {"letter": letter_document(find_letter(asked, id), reveal=True)}


@routes.acts("/{id}/review", response_model=Letter)
def review(asked: Asking, id: Id, body: MayReason) -> Any:
    """Say that somebody looks into it: nobody replays it until it is resolved, discarded or put back."""
    return _decided(asked, id, FailedOperationStatus.REVIEWING, body.reason)


@routes.acts("/{id}/reopen", response_model=Letter)
def reopen(asked: Asking, id: Id, body: Reasoned) -> Any:
    """Put it back among what waits to be replayed."""
    return _decided(asked, id, FailedOperationStatus.PENDING, body.reason)


@routes.acts("/{id}/delete", ADMIN, response_model=Changed)
def delete(asked: Asking, id: Id, body: Reasoned) -> Any:
    """Delete a letter for good. One that is being replayed just now is not deleted."""
    letter = find_letter(asked, id)
    if letter.status == FailedOperationStatus.REPLAYING:
        raise refused("letter_in_flight", f"letter {letter.id} is being replayed; delete it once that has ended")
    return {"changed": asked.hold.letters.delete(id)}


@routes.acts("/domains/pause", response_model=Changed)
def pause(asked: Asking, body: PauseRequest) -> Any:
    """Replay nothing of a domain, on any host."""
    asked.hold.letters.pause(body.domain, by=asked.by, reason=body.reason, until=in_utc("until", body.until))
    return {"changed": True}


@routes.acts("/domains/resume", response_model=Changed)
def resume(asked: Asking, body: DomainRequest) -> Any:
    """Let a domain's letters go again."""
    return {"changed": asked.hold.letters.resume(body.domain)}


def _decided(asked: Asked, id: str, status: FailedOperationStatus, reason: str) -> dict[str, Any]:
    letter = find_letter(asked, id)
    if letter.status == status:
        raise refused(f"already_{status}", f"letter {letter.id} is {status} already")
    how = {FailedOperationStatus.RESOLVED: "manual", FailedOperationStatus.REJECTED: "rejected"}.get(status, "")
    asked.hold.letters.update_status(id, status, how, reason, asked.by if how else None)
    return letter_document(find_letter(asked, id))


def _hand_over(asked: Asked, letter: FailedOperationData, body: ReplayRequest) -> BulkProgress:
    """An operation on this one letter, for a worker that knows how to replay it; the one that waits, if one does."""
    wanted = REDRIVABLE if body.force else {PENDING}
    if letter.status not in wanted:
        hint = "; force starts a new budget of attempts" if letter.status in REDRIVABLE else ""
        raise refused("not_replayable", f"letter {letter.id} is {letter.status}{hint}", status=letter.status)
    bulk, action = asked.hold.letters.bulk, BulkAction.FORCE_REPLAY if body.force else BulkAction.REPLAY
    for state in (BulkState.PENDING, BulkState.RUNNING):
        for one in bulk.find(state, _LOOKED_AT):
            if one.filter.id == letter.id and one.action is action:
                return one
    # With its domain, or workers of other programs would take it; with its time, so that no store has to search.
    only = LetterFilter(
        id=letter.id, domain=letter.domain, created_from=letter.created_at, created_to=letter.created_at
    )
    return bulk.start(only, action, requested_by=asked.by, reason=body.reason)


def _domain(asked: Asked, name: str, by_status: dict[str, int]) -> dict[str, Any]:
    gates, handlers = asked.hold.letters.replayer.gates, asked.hold.letters.handlers
    standing, record = gates.standing(name, knocks=False), gates.record(name)
    paused = is_paused(record, asked.hold.store.now())
    return {
        "domain": name,
        "total": sum(by_status.values()),
        "pending": by_status.get(PENDING, 0),
        "by_status": by_status,
        "way": str(standing.way),
        "reason": standing.reason,
        "retry_after": standing.retry_after,
        "paused": paused,
        "paused_by": record.paused_by if record is not None and paused else "",
        "pause_reason": record.pause_reason if record is not None and paused else "",
        "paused_until": maybe_instant(record.paused_until) if record is not None and paused else None,
        "next_trial_at": None if record is None else maybe_instant(record.due_at),
        "failed_trials": 0 if record is None else record.trials,
        "replayed_here": bool(handlers.routes(name)),
    }


def _preview(asked: Asked, letter: FailedOperationData) -> dict[str, Any]:
    letters = asked.hold.letters
    standing = letters.replayer.gates.standing(letter.domain, knocks=False)
    here = letters.handlers.find(letter) is not None
    settled = "" if letter.status in REDRIVABLE else f"it is {letter.status}"
    return {
        "possible": not settled and standing.way is not Way.BARRED,
        "here": here,
        "reason": settled or standing.reason or ("" if here else letters.handlers.missing(letter)),
        "way": str(standing.way),
        "retry_after": standing.retry_after,
    }
