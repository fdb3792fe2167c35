"""A trail to test: a sink on a database, events, and a count of statements."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID

import sqlalchemy as sa

from holdfast.audit.event import AuditEvent
from holdfast.audit.sink import DatabaseAuditSink
from tests.databases import Database

NOON = datetime(2026, 3, 1, 12, tzinfo=UTC)
NAIVE = NOON.replace(tzinfo=None)


def sink_on(database: Database, *, chained: bool = True, **options: Any) -> DatabaseAuditSink:
    tables = database.tables
    if chained:
        options = {"chain_heads": tables.chain_heads, "checkpoints": tables.checkpoints, **options}
    return DatabaseAuditSink(database.sessions, tables.audit_events, **options)


def event(number: int = 0, subject: str = "ann", **fields: Any) -> AuditEvent:
    """Event number so and so: a second after the one before it."""
    fields.setdefault("event_id", UUID(int=0x7000_8000_0000_0000_0000 + number))
    fields.setdefault("event_type", "erasure_requested")
    fields.setdefault("occurred_at", NOON + timedelta(seconds=number, microseconds=number))
    fields.setdefault("payload", {"refs": number, "external": number % 2 == 0, "target": f"crm é {number}"})
    return AuditEvent(subject_ref=subject, **fields)


def fill(sink: DatabaseAuditSink, number: int, subjects: int = 1) -> list[AuditEvent]:
    """So many events, of so many subjects in turn."""
    events = [event(n, f"subject-{n % subjects}" if subjects > 1 else "ann") for n in range(number)]
    sink.run(lambda session: sink.append_in(session, events))
    return events


def execute(database: Database, *statements: Any) -> None:
    """What somebody with access to the database does."""
    with database.engine.begin() as connection:
        for statement in statements:
            connection.execute(statement)


def rows_of(database: Database) -> list[Any]:
    events = database.tables.audit_events
    with database.engine.connect() as connection:
        return list(connection.execute(sa.select(events).order_by(events.c.stream, events.c.seq)))


@contextmanager
def statements_of(database: Database) -> Iterator[list[str]]:
    """The statements that are executed meanwhile."""
    seen: list[str] = []

    def note(connection: Any, cursor: Any, statement: str, *rest: Any) -> None:
        seen.append(statement)

    sa.event.listen(database.engine, "before_cursor_execute", note)
    try:
        yield seen
    finally:
        sa.event.remove(database.engine, "before_cursor_execute", note)
