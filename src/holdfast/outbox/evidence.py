"""Audit events of work that is not committed yet: kept with it, or, if it comes to nothing, as evidence of the attempt.

Events join the caller's transaction only when it is about to commit, so that the heads of the audit chains are not
locked for as long as the caller thinks.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any, Final

from sqlalchemy import event
from sqlalchemy.orm import Session

from holdfast.audit.event import AuditEvent, AuditSink, JoiningSink
from holdfast.outbox.sagas.after import innermost, is_within

_log: Final = logging.getLogger("holdfast.outbox")


class Evidence:
    """The events of one request in the caller's session. A sink that cannot join a transaction gets them at once."""

    def __init__(self, session: Session, sink: AuditSink, *, alone: Callable[[AuditEvent], bool]) -> None:
        self._session = session
        self._sink = sink
        self._alone = alone
        """Which events are written by themselves when the transaction is undone."""
        self._events: list[AuditEvent] = []
        self._joined: list[AuditEvent] = []
        self._joins = isinstance(sink, JoiningSink)
        self._is_kept = False
        self._is_over = False
        self._begun_in = innermost(session)
        if self._joins:
            # They stay for as long as the session does: one that is being called cannot be taken away.
            event.listen(session, "before_commit", self._join)
            event.listen(session, "after_commit", self._keep)
            event.listen(session, "after_soft_rollback", self._undo)
            event.listen(session, "after_transaction_end", self._end)

    def add(self, one: AuditEvent) -> None:
        if self._joins:
            self._events.append(one)
        else:
            self._sink.append(one)

    def _join(self, session: Session) -> None:
        if not session.in_nested_transaction() and self._events and isinstance(self._sink, JoiningSink):
            self._joined, self._events = self._events, []
            self._sink.append_in(session, self._joined)

    def _keep(self, session: Session) -> None:
        if not session.in_nested_transaction():  # a savepoint's release keeps nothing yet
            self._is_kept = True

    def _undo(self, session: Session, previous: Any) -> None:
        """A savepoint with the request in it was undone: what is left goes with the rest of the transaction."""
        if previous.parent is not None and is_within(self._begun_in, previous):
            self._events = list(filter(self._alone, self._events))

    def _end(self, session: Session, transaction: Any) -> None:
        if self._is_over or transaction.parent is not None:
            return
        self._is_over = True
        left, self._joined, self._events = [*self._joined, *self._events], [], []
        if not self._is_kept:
            self._leave(left)

    def _leave(self, events: list[AuditEvent]) -> None:
        """Write down that it was tried."""
        for one in filter(self._alone, events):
            try:
                self._sink.append(one)
            except Exception:  # the caller's own error is on its way, and must not be hidden by ours
                _log.exception("no evidence of an undone request is left: %s could not be appended", one.event_type)
                return
