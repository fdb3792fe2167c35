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

_KEY: Final = "holdfast_evidence"
_log: Final = logging.getLogger("holdfast.outbox")


class Evidence:
    """The events of one request in the caller's session. A sink that cannot join a transaction gets them at once."""

    def __init__(self, session: Session, sink: AuditSink, *, alone: Callable[[AuditEvent], bool]) -> None:
        self._sink = sink
        self._alone = alone
        """Which events are written by themselves when the transaction is undone."""
        self._events: list[AuditEvent] = []
        self._joined: list[AuditEvent] = []
        self._begun_in = innermost(session)
        self._joins = isinstance(sink, JoiningSink)
        if self._joins:
            _ending(session).requests.append(self)

    def add(self, one: AuditEvent) -> None:
        if self._joins:
            self._events.append(one)
        else:
            self._sink.append(one)

    def join(self) -> list[tuple[JoiningSink, AuditEvent]]:
        """What goes into the transaction now, and where."""
        if not isinstance(self._sink, JoiningSink):
            return []
        joining, self._events = self._events, []
        self._joined += joining
        return [(self._sink, one) for one in joining]

    def undo(self, transaction: Any) -> None:
        """A savepoint was undone: if the request is in it, what is left goes with the rest of the transaction."""
        if is_within(self._begun_in, transaction):
            self._events = list(filter(self._alone, self._events))

    def leave(self) -> None:
        """The transaction was undone: write down that it was tried."""
        for one in filter(self._alone, [*self._joined, *self._events]):
            try:
                self._sink.append(one)
            except Exception:  # the caller's own error is on its way, and must not be hidden by ours
                _log.exception("no evidence of an undone request is left: %s could not be appended", one.event_type)
                return


class _Ending:
    """The requests in the transaction that a session is in."""

    def __init__(self, session: Session) -> None:
        self.requests: list[Evidence] = []
        self._is_kept = False
        # One set for all requests, for as long as the session is there: a listener that is being called cannot be
        # taken away.
        event.listen(session, "before_commit", self._join)
        event.listen(session, "after_commit", self._keep)
        event.listen(session, "after_soft_rollback", self._undo)
        event.listen(session, "after_transaction_end", self._end)

    def _join(self, session: Session) -> None:
        if session.in_nested_transaction():
            return
        joining = [one for request in self.requests for one in request.join()]
        # All at once: so the heads of chains are locked in one order, however many requests there are.
        for sink in {id(sink): sink for sink, _ in joining}.values():
            sink.append_in(session, [one for of, one in joining if of is sink])

    def _keep(self, session: Session) -> None:
        if not session.in_nested_transaction():  # a savepoint's release keeps nothing yet
            self._is_kept = True

    def _undo(self, session: Session, previous: Any) -> None:
        if previous.parent is not None:
            for request in self.requests:
                request.undo(previous)

    def _end(self, session: Session, transaction: Any) -> None:
        if transaction.parent is not None:
            return
        requests, is_kept = self.requests, self._is_kept
        self.requests, self._is_kept = [], False
        if not is_kept:
            for request in requests:
                request.leave()


def _ending(session: Session) -> _Ending:
    found = session.info.get(_KEY)
    if found is None:
        found = session.info[_KEY] = _Ending(session)
    ending: _Ending = found
    return ending
