"""Events of the audit trail, as commands show them; and whether what is done here may be written into it."""

from __future__ import annotations

from typing import Any, Final

from holdfast.audit.reading import Cursor
from holdfast.audit.rows import StoredEvent
from holdfast.cli.exits import Failed, WrongUsage
from holdfast.cli.output import Column
from holdfast.cli.session import AUDIT_KEY, Session
from holdfast.cli.times import stamp
from holdfast.views.audit import cursor_of
from holdfast.views.plain import masked

OCCURRED: Final = Column("occurred")
TYPE: Final = Column("type")
FACTS: Final = Column("facts", gives=True)


def event_row(one: StoredEvent) -> tuple[str, str, str]:
    """When it occurred, its type, and what it says."""
    said = " ".join(f"{name}={_word(value)}" for name, value in masked(one.event.payload).items())
    return stamp(one.event.occurred_at), str(one.event.event_type), said


def cursor_given(text: str) -> Cursor:
    """What --after says. Raises WrongUsage for what is no cursor."""
    cursor = cursor_of(text)
    if cursor is None:
        raise WrongUsage(f"{text!r} is no cursor; take the one that a page named")
    return cursor


def refuse_another_key(session: Session) -> None:
    """Raises Failed if the trail is written with another key than this command has: an event of ours would be the one
    at which its chain breaks. A program brings the key of its own tables, and a server has it.
    """
    if session.has_program and session.prefix is None:
        return
    if not session.audit.has_the_key():
        raise Failed(
            f"the audit trail is written with another key, and what is done here would break its chain; "
            f"set {AUDIT_KEY}, or give --app of its program"
        )


def _word(value: Any) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)
