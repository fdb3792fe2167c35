"""Bulk operations: the same act on every letter that a filter finds, counted first, carried out by the workers."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Any, ClassVar, Final

from fastapi import Query
from pydantic import BaseModel, Field, StrictInt, StrictStr

from holdfast.app import Holdfast
from holdfast.errors import InvalidValue
from holdfast.letters.bulk import BulkProgress, LetterFilter
from holdfast.letters.walk import SETTLES
from holdfast.machine.bulk import BulkAction, BulkState
from holdfast.machine.dead_letter import FailedOperationStatus
from holdfast.server.problems import not_found, refused
from holdfast.server.routing import Asked, Asking, Routes
from holdfast.server.shapes import After, Body, Id, Limit, Page, Reasoned, in_utc, page_of
from holdfast.store.codec import instant
from holdfast.views.letters import letter_document, operation_document, pace_of
from holdfast.views.plain import plain

routes: Final = Routes("bulk")
_TURN_S: Final = 1.0
_MOST_LETTERS: Final = 1 << 53
Text = Annotated[str | None, Field(max_length=1000)]


class Filter(Body):
    """Which letters are meant: all that is given must be equal; both ends of the time are included."""

    id: Text = None
    status: FailedOperationStatus | None = None
    domain: Text = None
    failure_type: Text = None
    entity_type: Text = None
    entity_id: Text = None
    user_id: StrictInt | Annotated[StrictStr, Field(max_length=1000)] | None = None
    created_from: datetime | None = None
    created_to: datetime | None = None

    def __str__(self) -> str:
        given = self.model_dump(mode="json", exclude_none=True)
        return ", ".join(f"{name} {value}" for name, value in given.items()) or "all letters"


class PreviewRequest(Body):
    """What would be done, and to which letters."""

    action: BulkAction
    filter: Filter = Filter()


class StartRequest(Reasoned):
    """`confirm_count` is the total of the preview, and `filter` the one that the preview gave back."""

    audited: ClassVar = ("action", "filter", "confirm_count")
    action: BulkAction
    filter: Filter = Filter()
    confirm_count: int = Field(ge=0, le=_MOST_LETTERS)


class Sampled(BaseModel):
    """One of the letters that an operation would act on."""

    id: str
    domain: str
    status: str
    failure_type: str
    error_message: str
    created_at: datetime


class Preview(BaseModel):
    """What an operation would act on. What fails after `snapshot` is not part of it: `filter` says so, and goes into
    the request that starts the operation."""

    action: str
    filter: dict[str, Any]
    snapshot: datetime
    total: int
    by_domain: dict[str, int]
    by_status: dict[str, int]
    sample: list[Sampled]


class Operation(BaseModel):
    """A bulk operation and how far it is. `note` says why it waits, failed or was aborted. `rate_per_s` and `eta_s` are
    null while nobody knows."""

    id: str
    action: str
    state: str
    filter: dict[str, Any]
    total: int
    done: int
    succeeded: int
    failed: int
    skipped: int
    requested_by: str
    reason: str
    note: str
    created_at: datetime
    started_at: datetime | None
    finished_at: datetime | None
    rate_per_s: float | None
    eta_s: float | None


def operation_shown(progress: BulkProgress, hold: Holdfast) -> dict[str, Any]:
    """An operation, with its pace."""
    return {**operation_document(progress), **pace_of(progress, instant(hold.store.now()))}


def find_operation(asked: Asked, id: str) -> BulkProgress:
    """The operation. Raises ProblemError."""
    found = asked.hold.letters.bulk.progress(id) if id.isascii() and "\0" not in id else None
    if found is None:
        raise not_found("operation", id)
    return found


@routes.reads("/preview", method="POST", response_model=Preview)
def preview(asked: Asking, body: PreviewRequest) -> Any:
    """Count what an operation would act on now. Nothing is changed."""
    letters, snapshot = asked.hold.letters, instant(asked.hold.store.now())
    given = _letter_filter(body.filter)
    until = snapshot if given.created_to is None else min(given.created_to, snapshot)
    scope = LetterFilter(**{**_fields(given), "created_to": until})
    found = letters.bulk.dry_run(scope, body.action)
    sample = [letter_document(one) for id in found.sample if (one := letters.get_by_id(id)) is not None]
    shown = {name: value for name, value in plain(scope).items() if value is not None}
    return {**plain(found), "action": body.action, "filter": shown, "snapshot": snapshot, "sample": sample}


@routes.acts("", response_model=Operation, status_code=202)
def start(asked: Asking, body: StartRequest) -> Any:
    """Start an operation. Workers carry it out; what needs no program is begun here.

    409 `count_changed` when other letters match than were confirmed: look at a new preview.
    """
    bulk, scope = asked.hold.letters.bulk, _letter_filter(body.filter)
    try:
        begun = bulk.start(
            scope, body.action, confirm_count=body.confirm_count, requested_by=asked.by, reason=body.reason
        )
    except InvalidValue as error:
        total = bulk.dry_run(scope, body.action).total
        raise refused("count_changed", str(error), total=total, confirmed=body.confirm_count) from None
    if body.action in SETTLES:
        begun = bulk.run(begun.id, turn_s=_TURN_S) or begun
    return operation_shown(begun, asked.hold)


@routes.reads(response_model=Page[Operation])
def find(
    asked: Asking, state: Annotated[BulkState | None, Query()] = None, limit: Limit = 50, after: After = None
) -> Any:
    """Operations, the newest first."""
    found = asked.hold.letters.bulk.find(state, limit + 1, after)
    return page_of(found, limit, lambda one: operation_shown(one, asked.hold), lambda one: one.cursor)


@routes.reads("/{id}", response_model=Operation)
def show(asked: Asking, id: Id) -> Any:
    """One operation, and how far it is."""
    return operation_shown(find_operation(asked, id), asked.hold)


@routes.acts("/{id}/abort", response_model=Operation)
def abort(asked: Asking, id: Id, body: Reasoned) -> Any:
    """Stop an operation. What was done stays done."""
    found = find_operation(asked, id)
    if not asked.hold.letters.bulk.abort(id, by=asked.by):
        raise refused("operation_over", f"operation {found.id} is over already: {found.state}", state=found.state)
    return operation_shown(find_operation(asked, id), asked.hold)


def _letter_filter(given: Filter) -> LetterFilter:
    values = given.model_dump()
    values["status"] = None if given.status is None else given.status.value
    for name in ("created_from", "created_to"):
        values[name] = in_utc(name, values[name])
    return LetterFilter(**values)


def _fields(filter: LetterFilter) -> dict[str, Any]:
    return {name: getattr(filter, name) for name in LetterFilter.__slots__}
