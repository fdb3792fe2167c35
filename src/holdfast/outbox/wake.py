"""Telling runners that there is something to do: an accelerator only, polling is the truth."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from typing import Any, Final

import sqlalchemy as sa
from sqlalchemy import event
from sqlalchemy.orm import Session

from holdfast.audit.sessions import Transaction
from holdfast.backends.sql.join import Direct

CHANNEL: Final = "holdfast"
"""The one of `backends/sql/listen.py`: a process that listens for its store hears of outboxes as well."""
_TOLD: Final = "holdfast_outbox_told"
_NOTIFY: Final = sa.text(f"SELECT pg_notify('{CHANNEL}', :message)")
_log: Final = logging.getLogger("holdfast.outbox")


def topic_of(table: str) -> str:
    """What to subscribe to, at a store on the same database, to hear of an outbox."""
    return f"outbox {table}"


def message_of(table: str) -> str:
    """What is told on the channel; its sender, which goes in front of the colon, is nobody in particular."""
    return f":{topic_of(table)}"


class Signals:
    """Who in this process waits for an outbox."""

    def __init__(self) -> None:
        self._waiting: tuple[Callable[[], object], ...] = ()
        self._lock = threading.Lock()
        # One listener for all sessions: to add one to each session costs more than the insert itself.
        if not event.contains(Session, "after_commit", _call):
            event.listen(Session, "after_commit", _call)

    def add(self, callback: Callable[[], object]) -> Callable[[], None]:
        """Have the callback called after a commit; what is given ends it."""
        with self._lock:
            self._waiting += (callback,)

        def remove() -> None:
            with self._lock:
                self._waiting = tuple(one for one in self._waiting if one is not callback)

        return remove

    def after(self, session: Transaction) -> None:
        """Call whoever waits once the session has committed; once is enough. Nothing else tells when it has."""
        if self._waiting and not isinstance(session, sa.Connection | Direct):
            session.info.setdefault(_TOLD, {})[id(self)] = self

    def call(self) -> None:
        for callback in self._waiting:
            try:
                callback()
            except Exception:  # the commit that woke it is somebody else's, and has happened
                _log.exception("a waiter of the outbox could not be woken")


def wake_in(session: Session, table: str, signals: Signals) -> None:
    """Wake whoever waits for this table, in any process, once the session has committed."""
    signals.after(session)
    # A savepoint that is rolled back takes its notification with it; the database drops what is told twice.
    if session.get_bind().dialect.name == "postgresql":
        session.execute(_NOTIFY, {"message": message_of(table)})


def _call(session: Session) -> None:
    if _TOLD not in session.info or session.in_nested_transaction():
        return  # a savepoint's release says nothing yet
    told: dict[int, Any] = session.info.pop(_TOLD)
    for signals in told.values():
        signals.call()
