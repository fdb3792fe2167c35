"""For whoever looks after the outbox: look, requeue, cancel, ask again."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any
from uuid import UUID

import sqlalchemy as sa
from sqlalchemy.orm import Session

from holdfast.audit.event import AuditSink
from holdfast.errors import ConfigurationError
from holdfast.machine.outbox_entry import CANCEL, REQUEUE, WAITING, OutboxStatus, apply, may_requeue
from holdfast.outbox import outcomes
from holdfast.outbox.checks import ids as checked_ids
from holdfast.outbox.checks import number
from holdfast.outbox.entry import OutboxEntry
from holdfast.outbox.place import Place, parts
from holdfast.outbox.rows import COLUMNS, entry_of
from holdfast.outbox.settle import Settlement, write_events
from holdfast.outbox.verdict import PENDING, UNVERIFIED, word_of
from holdfast.outbox.wake import wake_in

Row = dict[str, Any]


class Operators(Place):
    """What is changed here is audited, in the same transaction."""

    def list_abandoned(self, *, limit: int = 100) -> Sequence[OutboxEntry]:
        """Entries that were given up, oldest first."""
        row = self.tables.outbox.c
        return self._list(OutboxStatus.ABANDONED, (row.enqueued_at, row.entry_id), limit)

    def list_scheduled(self, *, limit: int = 100) -> Sequence[OutboxEntry]:
        """Parked entries, nearest horizon first."""
        row = self.tables.outbox.c
        return self._list(OutboxStatus.SCHEDULED, (row.next_attempt_at, row.entry_id), limit)

    def _list(self, status: OutboxStatus, order: Sequence[Any], limit: int) -> Sequence[OutboxEntry]:
        if number("limit", limit) <= 0:
            return ()
        found = self._select().where(self.tables.outbox.c.status == sa.literal_column(f"'{status}'"))
        return self.run(lambda session: tuple(map(entry_of, session.execute(found.order_by(*order).limit(limit)))))

    def requeue(self, entry_ids: Iterable[UUID]) -> Sequence[OutboxEntry]:
        """Hand abandoned entries back with a new budget; those that are not abandoned are passed over.

        The entries that went back, in the order of their ids. Raises ConfigurationError, and nothing is changed, for an
        outbox without audit sink, and for an entry that lost the payload it needs.
        """
        sink = self.audit_sink
        if sink is None:
            raise ConfigurationError("requeue is audited: give the Outbox an audit_sink")
        ids = checked_ids("entry_ids", entry_ids)
        return self.run(lambda session: self._requeue(session, ids, sink)) if ids else ()

    def _requeue(self, session: Session, ids: Sequence[UUID], sink: AuditSink) -> Sequence[OutboxEntry]:
        rows = self._locked(session, ids, {OutboxStatus.ABANDONED})
        if not rows:
            return ()
        for row in rows:
            self._check_requeue(row)
        self._check_dedupe_keys(session, rows)
        now = self.now(session)
        told = [outcomes.requeued(self.operations.find(row["operation"]), _entry(row), now) for row in rows]
        write_events(session, sink, [event for event in told if event is not None])
        for some in parts([row["entry_id"] for row in rows]):
            self.statements(session).move_all(session, REQUEUE, some, False, {})
        entries = _entries(apply(REQUEUE, row, scrub=False) for row in rows)
        for follower in self.followers:
            write_events(session, sink, [*follower.follow(session, [Settlement(one, REQUEUE) for one in entries])])
        wake_in(session, self.tables.outbox.name, self.signals)
        return entries

    def _check_requeue(self, row: Row) -> None:
        operation = self.operations.find(row["operation"])
        needs = operation is not None and operation.needs_payload
        has = row["payload"] is not None
        if not may_requeue(row["status"], needs_payload=needs, has_payload=has, scrubbed=bool(row["scrubbed"])):
            story = f"its payload was scrubbed when it was abandoned, and {row['operation']} cannot do without"
            raise ConfigurationError(f"entry {row['entry_id']} cannot be requeued: {story}; issue it anew")

    def _check_dedupe_keys(self, session: Session, rows: Sequence[Row]) -> None:
        """An entry that takes its place again must not find another one there."""
        holders: dict[str, UUID] = {}
        column = self.tables.outbox.c
        keyed = [row for row in rows if row["dedupe_key"] is not None]
        for some in parts([row["dedupe_key"] for row in keyed]):
            live = sa.select(column.live_dedupe_key, column.entry_id).where(column.live_dedupe_key.in_(some))
            holders |= {one.live_dedupe_key: one.entry_id for one in session.execute(live)}
        for row in keyed:
            other = holders.setdefault(row["dedupe_key"], row["entry_id"])
            if other != row["entry_id"]:
                raise ConfigurationError(f"entry {row['entry_id']} cannot be requeued: {other} has its dedupe_key")

    def cancel(self, entry_ids: Iterable[UUID]) -> Sequence[OutboxEntry]:
        """Give up entries that nobody is calling: pending, failed or scheduled ones. Those that were given up."""
        ids = checked_ids("entry_ids", entry_ids)
        return self.run(lambda session: self.cancel_in(session, ids, following=True)) if ids else ()

    def cancel_in(self, session: Session, ids: Sequence[UUID], *, following: bool = False) -> Sequence[OutboxEntry]:
        """The same in the caller's transaction. `following`: a saga learns of it, as of any entry that is given up."""
        rows = self._locked(session, ids, WAITING)
        if not rows:
            return ()
        now, statements = self.now(session), self.statements(session)
        for scrub in (True, False):
            those = [row["entry_id"] for row in rows if self.operations.is_sensitive(row["operation"]) is scrub]
            for some in parts(those):
                statements.move_all(session, CANCEL, some, scrub, {})
        after = [apply(CANCEL, row, scrub=self.operations.is_sensitive(row["operation"])) for row in rows]
        found = [self.operations.find(row["operation"]) for row in after]
        told = [
            outcomes.abandoned(operation, _entry(row), now, row["last_error"], row["attempts"])
            for operation, row in zip(found, after, strict=True)
        ]
        events = [event for event in told if event is not None]
        if following and self.followers:
            settled = [
                Settlement(_entry(row), CANCEL, {"last_error": ended["last_error"], "attempts": row["attempts"]})
                for row, ended in zip(rows, after, strict=True)
            ]
            for follower in self.followers:
                events += follower.follow(session, settled)
        write_events(session, self.audit_sink, events)
        return _entries(after)

    def verify_again(self, entry_ids: Iterable[UUID]) -> Sequence[OutboxEntry]:
        """Have targets asked again about successes that they denied, or that they were asked about in vain, with a new
        budget; other entries are passed over. It is a runner that asks.

        The entries that are asked about, in the order of their ids. Raises ConfigurationError for an outbox without
        audit sink.
        """
        sink = self.audit_sink
        if sink is None:
            raise ConfigurationError("verify_again is audited: give the Outbox an audit_sink")
        ids = checked_ids("entry_ids", entry_ids)
        return self.run(lambda session: self._verify_again(session, ids, sink)) if ids else ()

    def _verify_again(self, session: Session, ids: Sequence[UUID], sink: AuditSink) -> Sequence[OutboxEntry]:
        succeeded = self._locked(session, ids, {OutboxStatus.SUCCEEDED})
        rows = [row for row in succeeded if word_of(row["verification"], row["verify_at"]) in UNVERIFIED]
        if not rows:
            return ()
        now, table = self.now(session), self.tables.outbox
        told = [
            outcomes.verification_requested(self.operations.find(row["operation"]), _entry(row), now) for row in rows
        ]
        write_events(session, sink, [event for event in told if event is not None])
        asked = {"verification": PENDING, "verify_at": now}
        for some in parts([row["entry_id"] for row in rows]):
            session.execute(table.update().where(table.c.entry_id.in_(some)).values(**asked, verify_attempts=0))
        wake_in(session, table.name, self.signals)
        return _entries(row | asked for row in rows)


def _entry(row: Row) -> OutboxEntry:
    return entry_of([row[name] for name in COLUMNS])


def _entries(rows: Iterable[Row]) -> tuple[OutboxEntry, ...]:
    return tuple(sorted(map(_entry, rows), key=lambda entry: entry.entry_id))
