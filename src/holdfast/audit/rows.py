"""Between events and rows: times in UTC, types by name, and the place in the chain."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Sequence
from datetime import UTC, datetime
from typing import Any, Final, NamedTuple
from uuid import UUID

import sqlalchemy as sa

from holdfast.audit.chain import Link
from holdfast.audit.event import AuditEvent, AuditEventType
from holdfast.errors import AuditIntegrityError

COLUMNS: Final = (
    "event_id", "event_type", "subject_ref", "occurred_at", "payload", "entry_id", "stream", "seq", "prior_hash",
    "event_hash",
)  # fmt: skip
BUILT_IN: Final = frozenset(map(str, AuditEventType))


class StoredEvent(NamedTuple):
    """An event with its place in the chain, which is None where it was written without one."""

    event: AuditEvent
    stream: str | None
    seq: int | None
    prior_hash: str | None
    event_hash: str | None

    @property
    def cursor(self) -> tuple[datetime, UUID]:
        """Where the next page goes on."""
        return self.event.occurred_at, self.event.event_id


def columns_of(events: sa.Table) -> list[sa.Column[Any]]:
    return [events.c[name] for name in COLUMNS]


def stored_of(row: Any) -> StoredEvent:
    """The event of a row.

    Raises AuditIntegrityError if no event can be like that: then it was not written by this program.
    """
    try:
        event = AuditEvent(
            event_id=row.event_id,
            event_type=row.event_type,
            subject_ref=row.subject_ref,
            occurred_at=in_utc(row.occurred_at),
            payload=row.payload,
            entry_id=row.entry_id,
        )
    except ValueError as error:
        raise AuditIntegrityError(f"event {row.event_id} in the audit trail cannot be read: {error}") from error
    return StoredEvent(event, row.stream, row.seq, row.prior_hash, row.event_hash)


def link_of(row: Any) -> Link:
    """What the hash of a row covers."""
    return Link(
        row.stream, row.seq, row.event_id, row.event_type, row.subject_ref, in_utc(row.occurred_at), row.entry_id,
        row.payload, row.prior_hash,
    )  # fmt: skip


def in_utc(at: datetime) -> datetime:
    """A time in UTC; databases without time zones give it back without one."""
    if at.tzinfo is UTC:
        return at
    return at.replace(tzinfo=UTC) if at.tzinfo is None else at.astimezone(UTC)


def refuse_unknown_types(found: Iterable[StoredEvent], known: Collection[str]) -> None:
    """Raises AuditIntegrityError if one of the events has a type that is neither built in nor registered."""
    for one in found:
        name = str(one.event.event_type)
        if name not in BUILT_IN and name not in known:
            raise AuditIntegrityError(
                f"event {one.event.event_id} is of type {name!r}, which nobody registered; "
                f"name it in DatabaseAuditSink(event_types=…)"
            )


def oldest_first(found: Sequence[StoredEvent]) -> list[StoredEvent]:
    """By time and id, except that the events of one stream keep the order in which they were appended: clocks of
    different hosts disagree, the chain does not.
    """
    by_time = sorted(found, key=lambda one: one.cursor)
    chained: defaultdict[str, list[StoredEvent]] = defaultdict(list)
    for one in by_time:
        if one.stream is not None and one.seq is not None:
            chained[one.stream].append(one)
    turns = {stream: iter(sorted(those, key=lambda one: one.seq or 0)) for stream, those in chained.items()}
    return [next(turns[one.stream]) if one.stream is not None and one.seq is not None else one for one in by_time]
