"""Entries for tests of the outbox itself, and short ways to put them in and see what became of them."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from typing import Any, Final
from uuid import UUID

import sqlalchemy as sa

from holdfast.audit.event import AuditEvent
from holdfast.audit.sink import DatabaseAuditSink
from holdfast.core.clock import Clock
from holdfast.machine.outbox_entry import OutboxStatus
from holdfast.outbox.entry import OutboxEntry, OutboxOperation
from holdfast.outbox.ids import new_entry_id
from holdfast.outbox.operation import Done, Operation, OperationRegistry, StepEvents
from holdfast.outbox.outbox import Outbox
from holdfast.outbox.settle import Settlement
from holdfast.outbox.subject import Correction, PiiCategory, SubjectRef
from holdfast.outbox.subject_operations import ERASE, RECTIFY
from tests.databases import Database

START: Final = datetime(2026, 1, 1, tzinfo=UTC)
"""When a ManualClock begins."""
MINUTE: Final = timedelta(minutes=1)
HOUR: Final = timedelta(hours=1)
LEASE: Final = timedelta(minutes=5)


def operations() -> OperationRegistry:
    """Erase, rectify, one with a sensitive payload and one whose payload anybody may see."""
    return OperationRegistry(
        ERASE,
        RECTIFY,
        Operation(name="charge", call=lambda target, context: Done(), events=StepEvents.of("charge")),
        Operation(name="ping", call=lambda target, context: Done(), sensitive=False),
    )


def open_outbox(database: Database, clock: Clock | None = None, **options: Any) -> Outbox:
    known = operations()
    sink = DatabaseAuditSink(database.sessions, database.tables.audit_events, event_types=known.event_types)
    options = {"audit_sink": sink, "operations": known, **options}
    return Outbox(database.sessions, database.tables.outbox, clock=clock, **options)


def make_entry(subject: str = "ann", *, at: datetime = START, **fields: Any) -> OutboxEntry:
    ref = SubjectRef(kind="crm", value=f"crm-{subject}", extra={"tenant": 7})
    given = {"entry_id": new_entry_id(), "enqueued_at": at, "ref": ref, "resolver": "crm", "subject_id": subject}
    return OutboxEntry(**given | fields)


def make_rectify(subject: str = "ann", **fields: Any) -> OutboxEntry:
    corrections = (Correction(category=PiiCategory.CONTACT, value="new@example.org"),)
    return make_entry(subject, operation=OutboxOperation.RECTIFY, corrections=corrections, **fields)


def enqueue(outbox: Outbox, *entries: OutboxEntry) -> list[OutboxEntry]:
    with outbox.sessions.factory.begin() as session:
        outbox.enqueue(session, entries)
    return list(entries)


def ids_of(entries: Sequence[OutboxEntry]) -> list[UUID]:
    return [entry.entry_id for entry in entries]


def stored(outbox: Outbox, entry: OutboxEntry | UUID) -> OutboxEntry:
    found = outbox.get(entry if isinstance(entry, UUID) else entry.entry_id)
    assert found is not None
    return found


def status_of(outbox: Outbox, entry: OutboxEntry) -> OutboxStatus:
    return stored(outbox, entry).status


def raw(outbox: Outbox, entry: OutboxEntry, column: str) -> Any:
    """What is really in the row."""
    table = outbox.tables.outbox
    found = sa.select(table.c[column]).where(table.c.entry_id == entry.entry_id)
    return outbox.run(lambda session: session.execute(found).scalar())


def delete_row(outbox: Outbox, entry: OutboxEntry) -> None:
    table = outbox.tables.outbox
    outbox.run(lambda session: session.execute(table.delete().where(table.c.entry_id == entry.entry_id)))


def abandon(outbox: Outbox, *entries: OutboxEntry, error: str = "Boom") -> list[OutboxEntry]:
    """Enqueue them, claim them and give them up."""
    enqueue(outbox, *entries)
    claimed = outbox.claim_batch(len(entries), lease=LEASE)
    assert all(outbox.mark_abandoned(one, error=error) for one in claimed)
    return list(claimed)


def events_of(outbox: Outbox, subject: str) -> list[AuditEvent]:
    assert outbox.audit_sink is not None
    return list(outbox.audit_sink.read(subject))


def settlement(entry: OutboxEntry, move: Any, **given: Any) -> Settlement:
    return Settlement(entry, move, given)


def nothing() -> None:
    """A completion that nobody waits for."""


class Calls:
    """Counts how often it was called."""

    def __init__(self, error: Exception | None = None) -> None:
        self.number = 0
        self._error = error

    def __call__(self) -> None:
        self.number += 1
        if self._error is not None:
            raise self._error
