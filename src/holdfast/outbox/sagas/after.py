"""What waits for the end of the caller's transaction: audit events go into its last step, the rest comes after it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final

from sqlalchemy import event
from sqlalchemy.orm import Session

from holdfast.audit.event import AuditEvent, JoiningSink

_KEY: Final = "holdfast_after"


class _Ending:
    """What the transaction of a session has collected. What a savepoint undoes is taken out again."""

    def __init__(self, session: Session) -> None:
        self._events: list[tuple[Any, JoiningSink, AuditEvent]] = []
        self._calls: list[tuple[Any, Callable[[], object]]] = []
        self._is_kept = False
        # They stay for as long as the session does: one that is being called cannot be taken away.
        for name, listener in (
            ("before_commit", self._join),
            ("after_commit", self._keep),
            ("after_soft_rollback", self._undo),
            ("after_transaction_end", self._end),
        ):
            event.listen(session, name, listener)

    def add_events(self, session: Session, sink: JoiningSink, events: Sequence[AuditEvent]) -> None:
        self._events += [(innermost(session), sink, one) for one in events]

    def add_call(self, session: Session, call: Callable[[], object]) -> None:
        self._calls.append((innermost(session), call))

    def _join(self, session: Session) -> None:
        if session.in_nested_transaction() or not self._events:
            return
        waiting, self._events = self._events, []
        for sink in {id(sink): sink for _, sink, _ in waiting}.values():
            sink.append_in(session, [one for _, of, one in waiting if of is sink])

    def _keep(self, session: Session) -> None:
        self._is_kept = not session.in_nested_transaction()

    def _undo(self, session: Session, previous: Any) -> None:
        self._events = [one for one in self._events if not is_within(one[0], previous)]
        self._calls = [one for one in self._calls if not is_within(one[0], previous)]

    def _end(self, session: Session, transaction: Any) -> None:
        if transaction.parent is not None:
            return
        calls, is_kept = self._calls, self._is_kept
        self._events, self._calls, self._is_kept = [], [], False
        if is_kept:
            for _, call in calls:
                call()


def audit_at_commit(session: Session, sink: JoiningSink, events: Sequence[AuditEvent]) -> None:
    """Write events just before the commit, so that the heads of audit chains are not locked while the caller thinks."""
    _ending(session).add_events(session, sink, events)


def call_after_commit(session: Session, call: Callable[[], object]) -> None:
    """Call something once the session has committed, and never if it does not."""
    _ending(session).add_call(session, call)


def _ending(session: Session) -> _Ending:
    found = session.info.get(_KEY)
    if found is None:
        found = session.info[_KEY] = _Ending(session)
    ending: _Ending = found
    return ending


def innermost(session: Session) -> Any:
    """The savepoint or transaction that the session is in, if it is in any."""
    return session.get_nested_transaction() or session.get_transaction()


def is_within(transaction: Any, other: Any) -> bool:
    """Whether the first one ends with the second at the latest."""
    while transaction is not None:
        if transaction is other:
            return True
        transaction = transaction.parent
    return False
