"""The audit trail: who did what, and whether what it says is what was written."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import datetime
from typing import Annotated, Any, ClassVar, Final
from uuid import UUID, uuid4

from fastapi import Depends, FastAPI, Query, Request
from pydantic import AfterValidator, BaseModel, Field

from holdfast.audit.checkpoints import StreamEnd
from holdfast.audit.event import AuditEventType
from holdfast.audit.reading import Cursor
from holdfast.audit.rows import StoredEvent
from holdfast.errors import AuditIntegrityError
from holdfast.server.problems import invalid, not_found, refused
from holdfast.server.routing import Asked, Asking, Routes
from holdfast.server.shapes import After, Limit, MayReason, Page, in_utc
from holdfast.server.verifying import SUBJECT, Verification, Verifications, VerificationState
from holdfast.store.codec import clean_text, instant
from holdfast.views.audit import (
    MEANINGS,
    checkpoint_document,
    cursor_of,
    cursor_text,
    event_document,
    sentence,
    verification_document,
)
from holdfast.views.plain import plain

routes: Final = Routes("audit")
_ALL_STREAMS: Final = 10_000
_BROKEN_SHOWN: Final = 100


def storable(text: str | None) -> str | None:
    """The text, if a database could hold it. Raises ValueError."""
    if text is not None and clean_text(text) != text:
        raise ValueError("it holds U+0000 or half of a surrogate pair, which no database stores")
    return text


Name = Annotated[str | None, Query(max_length=255), AfterValidator(storable)]
"""What a filter asks for: nothing could be found by what no database stores."""


class TrailEvent(BaseModel):
    """What happened to a subject, and its place in the chain; `says` is the event as a sentence."""

    event_id: UUID
    event_type: str
    subject_ref: str
    occurred_at: datetime
    payload: dict[str, Any]
    entry_id: UUID | None
    stream: str | None
    seq: int | None
    prior_hash: str | None
    event_hash: str | None
    says: str


class TrailCheckpoint(BaseModel):
    """What the end of a stream was at a time."""

    stream: str
    seq: int
    event_hash: str
    taken_at: datetime


class TrailStream(BaseModel):
    """A chain of events: how many its head counts, and the last checkpoint of it."""

    stream: str
    events: int
    checkpoint: TrailCheckpoint | None


class LastVerification(BaseModel):
    """The last verification of the whole trail that the trail itself tells of."""

    verified: bool
    until: datetime
    by: str
    events: int
    streams: int
    broken: int


class TrailStatus(BaseModel):
    """What is known of the trail. `keyed`: nobody without the key can make an event that passes for a real one.
    `has_the_key`: what this server writes fits the chain.
    """

    keyed: bool
    has_the_key: bool
    streams: int
    events: int
    last_checkpoint_at: datetime | None
    last_verification: LastVerification | None
    running: str | None


class BrokenStream(BaseModel):
    """Where a stream breaks, and what that means."""

    stream: str
    events: int
    first_broken_event_id: UUID | None
    reason: str | None
    meaning: str


class VerificationShown(BaseModel):
    """A verification. While it runs, `events` of about `events_total` are in order so far."""

    id: str
    by: str
    stream: str | None
    state: VerificationState
    started_at: datetime
    finished_at: datetime | None
    streams: int
    streams_total: int
    events: int
    events_total: int
    broken: list[BrokenStream]
    error: str


class VerifyRequest(MayReason):
    """Verify one stream, or all of them."""

    audited: ClassVar = ("stream",)

    stream: Annotated[str | None, Field(max_length=255), AfterValidator(storable)] = None


class CheckpointsTaken(BaseModel):
    """Checkpoints of all streams. `export` is a line for each, to be kept where those who can change the trail cannot;
    with a key, signed.
    """

    checkpoints: list[TrailCheckpoint]
    export: str
    signed: bool


@asynccontextmanager
async def _ending(app: FastAPI) -> AsyncIterator[None]:
    yield
    under_way: Verifications | None = getattr(app.state, "verifications", None)
    if under_way is not None:
        await asyncio.to_thread(under_way.close)


routes.lifespan_context = _ending


async def _verifications(request: Request) -> Verifications:
    # In the event loop, so that two requests do not make two of them.
    state = request.app.state
    if not hasattr(state, "verifications"):
        hold = state.hold
        state.verifications = Verifications(hold.audit, lambda: instant(hold.store.now()))
    found: Verifications = state.verifications
    return found


Verifying = Annotated[Verifications, Depends(_verifications)]


@routes.reads(response_model=Page[TrailEvent])
def find(
    asked: Asking,
    subject: Annotated[Name, Query(description="Whom or what it is about; of operators operator:NAME.")] = None,
    entry: Annotated[UUID | None, Query(description="The id of an entry of the outbox.")] = None,
    type: Annotated[list[str] | None, Query(max_length=20, description="Any of these types.")] = None,
    stream: Name = None,
    since: datetime | None = None,
    until: datetime | None = None,
    limit: Limit = 50,
    after: After = None,
) -> Any:
    """Events, the newest first. A page may have few events, or none, and yet a `next`: by type and stream 10,000 events
    are searched at a time.
    """
    types = [name for name in type or () if len(name) <= 64 and clean_text(name) == name]
    if len(types) < len(type or ()):
        raise invalid("unknown_type", "a type of events is a name of up to 64 characters")
    found = asked.hold.audit.newest(
        subject_ref=subject, entry_id=entry, event_types=types, stream=stream, since=in_utc("since", since),
        until=in_utc("until", until), limit=limit, after=cursor_after(after),
    )  # fmt: skip
    return {
        "items": [shown_event(one) for one in found.events],
        "next": None if found.after is None else cursor_text(found.after),
    }


@routes.reads("/types", response_model=list[str])
def types(asked: Asking) -> Any:
    """The types of events that are known here."""
    return sorted({*map(str, AuditEventType), *asked.hold.audit.event_types})


@routes.reads("/status", response_model=TrailStatus)
def status(asked: Asking, verifying: Verifying) -> Any:
    """How much there is, and until when it is known to be in order."""
    trail = asked.hold.audit
    ends = trail.chain.ends(limit=_ALL_STREAMS)
    taken = [end.checkpoint.taken_at for end in ends if end.checkpoint is not None]
    running = verifying.running
    return {
        "keyed": trail.is_keyed,
        "has_the_key": trail.has_the_key(),
        "streams": len(ends),
        "events": sum(end.seq for end in ends),
        "last_checkpoint_at": max(taken, default=None),
        "last_verification": _last(asked),
        "running": None if running is None else running.id,
    }


@routes.reads("/streams", response_model=Page[TrailStream])
def streams(asked: Asking, limit: Limit = 100, after: Name = None) -> Any:
    """The chains, by name, and the last checkpoint of each."""
    found = asked.hold.audit.chain.ends(limit=limit + 1, after=after)
    return {
        "items": [_stream(end) for end in found[:limit]],
        "next": found[limit - 1].stream if len(found) > limit else None,
    }


@routes.acts("/verify", response_model=VerificationShown)
def verify(asked: Asking, body: VerifyRequest, verifying: Verifying) -> Any:
    """Begin to verify the trail, in the background; the verification that is under way already, if one is.

    What is found is written into the trail.
    """
    ends = asked.hold.audit.chain.ends(limit=_ALL_STREAMS)
    if body.stream is not None:
        ends = [end for end in ends if end.stream == body.stream]
        if not ends:
            raise not_found("stream", body.stream)
    begun = verifying.start(str(uuid4()), asked.by, body.stream, len(ends), sum(end.seq for end in ends))
    return _shown(begun)


@routes.reads("/verify/{id}", response_model=VerificationShown)
def verification(asked: Asking, id: UUID, verifying: Verifying) -> Any:
    """How far a verification is. A server keeps the last 20, until it ends."""
    found = verifying.get(str(id))
    if found is None:
        raise not_found("verification", str(id))
    return _shown(found)


@routes.acts("/checkpoints", response_model=CheckpointsTaken)
def take_checkpoints(asked: Asking, body: MayReason) -> Any:
    """Take a checkpoint of every stream, to be kept elsewhere: it exposes that an end was cut off."""
    trail = asked.hold.audit
    try:
        taken = trail.checkpoint()
    except AuditIntegrityError as error:
        raise refused("trail_broken", str(error)) from error
    return {
        "checkpoints": [checkpoint_document(one) for one in taken],
        "export": trail.export_checkpoints(taken),
        "signed": trail.is_keyed,
    }


def shown_event(one: StoredEvent) -> dict[str, Any]:
    """An event with its sentence."""
    return {**event_document(one), "says": sentence(one.event)}


def cursor_after(after: str | None) -> Cursor | None:
    """The cursor that a page named. Raises ProblemError for what is none."""
    if after is None:
        return None
    cursor = cursor_of(after)
    if cursor is None:
        raise invalid("no_cursor", "`after` must be `next` of the page before")
    return in_utc("after", cursor[0]) or cursor[0], cursor[1]


def _last(asked: Asked) -> dict[str, Any] | None:
    for one in asked.hold.audit.newest(subject_ref=SUBJECT, limit=20).events:
        facts = one.event.payload
        if "stream" not in facts:
            return {
                "verified": one.event.event_type == AuditEventType.TRAIL_VERIFIED,
                **{name: facts.get(name) for name in ("until", "by", "events", "streams", "broken")},
            }
    return None


def _stream(end: StreamEnd) -> dict[str, Any]:
    last = end.checkpoint
    return {
        "stream": end.stream, "events": end.seq, "checkpoint": None if last is None else checkpoint_document(last),
    }  # fmt: skip


def _shown(found: Verification) -> dict[str, Any]:
    broken = [
        {**verification_document(one), "meaning": "" if one.reason is None else MEANINGS[one.reason]}
        for one in found.broken[:_BROKEN_SHOWN]
    ]
    return {**plain(found), "broken": broken}
