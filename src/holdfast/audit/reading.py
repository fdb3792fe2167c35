"""Reading the trail: by subject, by outbox entry, by time, whole or in pages."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from datetime import datetime
from typing import Any, NamedTuple
from uuid import UUID

import sqlalchemy as sa
from sqlalchemy.orm import Session

from holdfast.audit.rows import StoredEvent, columns_of, in_utc, stored_of
from holdfast.audit.searching import WINDOW, search, unread
from holdfast.audit.tables import AuditTables
from holdfast.errors import AuditIntegrityError, ConfigurationError

Cursor = tuple[datetime, UUID]


class FoundEvents(NamedTuple):
    """A page of events. `after` is where the search goes on, None if there is nothing more to be searched."""

    events: Sequence[StoredEvent]
    after: Cursor | None


def find(
    session: Session,
    tables: AuditTables,
    *,
    subject_ref: str | None = None,
    entry_id: UUID | None = None,
    since: datetime | None = None,
    after: Cursor | None = None,
    limit: int | None = None,
) -> list[StoredEvent]:
    """Events that match all that is given, by time and id. `after` is the `cursor` of the last one of a page.

    Raises ConfigurationError for a time without a zone, AuditIntegrityError for a row that is no event.
    """
    row = tables.events.c
    wanted = _about(row, subject_ref, entry_id, since)
    if after is not None:
        at, last = aware(after[0]), after[1]
        wanted += [row.occurred_at >= at, sa.or_(row.occurred_at > at, row.event_id > last)]
    found = sa.select(*columns_of(tables.events)).where(*wanted).order_by(row.occurred_at, row.event_id)
    try:
        return [stored_of(one) for one in session.execute(found if limit is None else found.limit(limit))]
    except ValueError as error:
        raise AuditIntegrityError(f"an event in the audit trail cannot be read: {error}") from error


def find_newest(
    session: Session,
    tables: AuditTables,
    *,
    subject_ref: str | None = None,
    entry_id: UUID | None = None,
    stream: str | None = None,
    event_types: Collection[str] = (),
    since: datetime | None = None,
    until: datetime | None = None,
    after: Cursor | None = None,
    limit: int = 100,
    window: int = WINDOW,
) -> FoundEvents:
    """Events that match all that is given, the newest first. By type and by stream a part of the trail is searched at a
    time, so a page may have few events, or none, and yet an `after`.

    Raises ConfigurationError for a time without a zone, AuditIntegrityError for a row that is no event.
    """
    row = tables.events.c
    near = _about(row, subject_ref, entry_id, since)
    if until is not None:
        near.append(row.occurred_at < aware(until))
    far: list[Any] = []
    if stream is not None:
        far.append(unread(row.stream) == stream)
    if event_types:
        far.append(row.event_type.in_(sorted(event_types)))
    start = None if after is None else (aware(after[0]), after[1])
    chosen, order = sa.select(*columns_of(tables.events)), (row.occurred_at, row.event_id)
    try:
        found = search(session, chosen, order, near=near, far=far, after=start, limit=limit, window=window)
        events = [stored_of(one) for one in found.rows]
    except ValueError as error:
        raise AuditIntegrityError(f"an event in the audit trail cannot be read: {error}") from error
    return FoundEvents(events, None if found.until is None else (in_utc(found.until[0]), found.until[1]))


def _about(row: Any, subject_ref: str | None, entry_id: UUID | None, since: datetime | None) -> list[Any]:
    """Conditions that an index finds."""
    wanted: list[Any] = []
    if subject_ref is not None:
        wanted.append(row.subject_ref == subject_ref)
    if entry_id is not None:
        wanted.append(row.entry_id == entry_id)
    if since is not None:
        wanted.append(row.occurred_at >= aware(since))
    return wanted


def aware(at: datetime) -> datetime:
    """The time in UTC. Raises ConfigurationError for one without a zone: hours of the trail would be missing."""
    if at.tzinfo is None:
        raise ConfigurationError(f"{at.isoformat()} has no time zone; write datetime(..., tzinfo=UTC)")
    return in_utc(at)
