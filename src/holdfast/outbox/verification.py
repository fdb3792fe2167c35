"""Asking targets, after a success is on disk, whether it is real. The verdict is audited; it reverts nothing.

A question is held like a claim: `verify_at` says from when on others may ask, and a verdict counts only while it still
holds the value that its asker knows.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Sequence
from datetime import datetime, timedelta
from typing import Any, NamedTuple
from uuid import UUID

import sqlalchemy as sa
from sqlalchemy.orm import Session

from holdfast.audit.event import AuditEvent, AuditSink
from holdfast.errors import ResolverContractError
from holdfast.machine.outbox_entry import EXHAUSTED
from holdfast.outbox import outcomes
from holdfast.outbox.backoff import BackoffPolicy
from holdfast.outbox.calling import Call, Check
from holdfast.outbox.entry import OutboxEntry
from holdfast.outbox.outbox import Outbox
from holdfast.outbox.rows import columns_of, entry_of, in_utc
from holdfast.outbox.runner_errors import error_name
from holdfast.outbox.settle import write_events
from holdfast.outbox.verdict import CONFIRMED, FAILED, GIVEN_UP, PENDING


class Verdict(NamedTuple):
    """What a check came to: `word` is confirmed, failed, pending, given_up, or empty if the target cannot tell."""

    call: Call
    word: str
    ask_again_at: datetime | None = None
    error: str | None = None
    event: AuditEvent | None = None

    @property
    def column(self) -> str | None:
        """What the row says."""
        return PENDING if self.word == GIVEN_UP else self.word or None


class Verification:
    """The questions that are due, and what their answers mean."""

    def __init__(
        self,
        outbox: Outbox,
        *,
        backoff: BackoffPolicy,
        rng: Callable[[], float] | None,
        attempts: int,
        audited: bool,
    ) -> None:
        self._outbox = outbox
        self._backoff = backoff
        self._rng = rng
        self._attempts = attempts
        self._audited = audited

    def claim(self, session: Session, limit: int) -> list[tuple[OutboxEntry, Check]]:
        """Questions that are due, held for a lease."""
        table = self._outbox.tables.outbox
        row, now = table.c, self._outbox.now(session)
        due = sa.select(row.verify_attempts, *columns_of(table)).where(row.verify_at <= now)
        due = due.order_by(row.verify_at, row.entry_id).limit(limit).with_for_update(skip_locked=True)
        found = [(int(number) + 1, entry_of(rest)) for number, *rest in session.execute(due)]
        if not found:
            return []
        until = now + self._backoff.lease
        ids = [entry.entry_id for _, entry in found]
        held = {"verify_at": until, "verify_attempts": row.verify_attempts + 1}
        session.execute(table.update().where(row.entry_id.in_(ids)).values(held))
        return [(entry, Check(until, number)) for number, entry in found]

    def is_exhausted(self, check: Check) -> bool:
        """Whether it was asked as often as allowed: those count that crashed their runners."""
        return check.number > self._attempts

    def verdict(self, call: Call, now: datetime) -> Verdict:
        """What came of asking."""
        check, operation, entry = call.check, call.operation, call.entry
        assert check is not None
        if self.is_exhausted(check):
            return Verdict(call, GIVEN_UP, error=EXHAUSTED)
        if call.error is not None or not isinstance(call.answer, bool | None):
            error = ResolverContractError.__name__ if call.error is None else error_name(call.error)
            if check.number >= self._attempts:
                return Verdict(call, GIVEN_UP, error=error)
            return Verdict(call, PENDING, now + self._backoff.delay(check.number, rng=self._rng), error)
        if call.answer is None:
            return Verdict(call, "")
        event = None
        if operation is not None and self._audited:
            event = outcomes.verified(operation, entry, now, call.answer)
        return Verdict(call, CONFIRMED if call.answer else FAILED, event=event)

    def writing(self, verdicts: Sequence[Verdict], sink: AuditSink | None) -> Callable[[Session], list[bool]]:
        """A unit of work that writes verdicts with their events; for each whether the question was still held."""

        def work(session: Session) -> list[bool]:
            table = self._outbox.tables.outbox
            row = table.c
            asked: dict[UUID, datetime] = {
                one.call.entry.entry_id: one.call.check.until for one in verdicts if one.call.check is not None
            }
            found = sa.select(row.entry_id, row.verification, row.verify_at).where(row.entry_id.in_(list(asked)))
            locked = session.execute(found.order_by(row.entry_id).with_for_update())
            held = {id for id, word, until in locked if word == PENDING and _same(in_utc(until), asked[id])}
            alike: defaultdict[Any, list[UUID]] = defaultdict(list)
            for one in verdicts:
                if one.call.entry.entry_id in held:
                    alike[one.column, one.ask_again_at].append(one.call.entry.entry_id)
            for (word, at), ids in alike.items():
                session.execute(table.update().where(row.entry_id.in_(ids)).values(verification=word, verify_at=at))
            told = [one for one in verdicts if one.call.entry.entry_id in held]
            write_events(session, sink, [one.event for one in told if one.event is not None])
            return [one.call.entry.entry_id in held for one in verdicts]

        return work


def _same(one: datetime | None, other: datetime) -> bool:
    """Databases keep microseconds, some of them rounded."""
    return one is not None and abs(one - other) <= timedelta(microseconds=1)
