"""Events of the audit trail, as commands show them; and whether what is done here may be written into it."""

from __future__ import annotations

from typing import Any, Final

import sqlalchemy as sa

from holdfast.audit.chain import link_hash
from holdfast.audit.rows import StoredEvent, columns_of, link_of
from holdfast.cli.exits import Failed
from holdfast.cli.output import Column, masked
from holdfast.cli.session import AUDIT_KEY, Session, audit_key
from holdfast.cli.times import stamp

OCCURRED: Final = Column("occurred")
TYPE: Final = Column("type")
FACTS: Final = Column("facts", gives=True)


def event_document(one: StoredEvent) -> dict[str, Any]:
    """The event for a JSON document."""
    fields = one.event.model_dump()
    fields |= {name: None if fields[name] is None else str(fields[name]) for name in ("event_id", "entry_id")}
    place = {name: getattr(one, name) for name in ("stream", "seq", "prior_hash", "event_hash")}
    return {**fields, "payload": masked(fields["payload"]), **place}


def event_row(one: StoredEvent) -> tuple[str, str, str]:
    """When it occurred, its type, and what it says."""
    said = " ".join(f"{name}={_word(value)}" for name, value in masked(one.event.payload).items())
    return stamp(one.event.occurred_at), str(one.event.event_type), said


def refuse_another_key(session: Session) -> None:
    """Raises Failed if the trail is written with another key than this command has: an event of ours would be the one
    at which its chain breaks. A program brings the key of its own tables.
    """
    if session.has_app and session.prefix is None:
        return
    trail = session.audit
    row = trail.tables.events.c
    newest = sa.select(*columns_of(trail.tables.events)).where(row.stream.is_not(None))
    newest = newest.order_by(row.occurred_at.desc(), row.event_id.desc()).limit(1)
    last = trail.run(lambda session: session.execute(newest).first())
    if last is not None and link_hash(link_of(last), audit_key()) != last.event_hash:
        raise Failed(
            f"the audit trail is written with another key, and what is done here would break its chain; "
            f"set {AUDIT_KEY}, or give --app of its program"
        )


def _word(value: Any) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)
