"""Claiming what is due, and holding on to it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import datetime, timedelta
from typing import Any, Final, cast
from uuid import UUID, uuid4

import sqlalchemy as sa
from sqlalchemy.orm import Session

from holdfast.backends.sql.join import Direct
from holdfast.machine.outbox_entry import CLAIM, RENEW
from holdfast.outbox.checks import each, number, span
from holdfast.outbox.draft import DEFAULT_QUEUE
from holdfast.outbox.entry import OutboxEntry
from holdfast.outbox.place import Place
from holdfast.outbox.rows import entry_of, oldest_first
from holdfast.outbox.statements import Statements, sizes

_DEFAULT_LEASE: Final = timedelta(minutes=5)


class Claims(Place):
    """Every claim of a batch has one token; whoever holds it may settle the entries, nobody else."""

    def claim_batch(
        self, limit: int = 50, *, lease: timedelta = _DEFAULT_LEASE, queues: Sequence[str] = (DEFAULT_QUEUE,)
    ) -> Sequence[OutboxEntry]:
        """Claim up to `limit` due entries, oldest first; each is this caller's alone until the lease ends.

        Of several queues, the first ones come first; of a paused one nothing comes.
        """
        claiming = self.claiming(number("limit", limit), lease=lease, queues=queues)
        if limit <= 0:
            return ()
        return self.run_alone(claiming) if len(queues) == 1 else self.run(claiming)

    def claiming(
        self, limit: int, *, lease: timedelta, queues: Sequence[str] = (DEFAULT_QUEUE,)
    ) -> Callable[[Session | Direct], tuple[OutboxEntry, ...]]:
        """A claim as a unit of work, for `run` or `arun`; of one queue for `run_alone`, if nothing has to commit with
        it."""
        span("lease", lease, above=True)
        each("queues", queues, str)

        def work(to: Session | Direct) -> tuple[OutboxEntry, ...]:
            claimed: list[OutboxEntry] = []
            for queue in queues:
                if len(claimed) < limit:
                    claimed += self._claim(to, queue, limit - len(claimed), lease)
            return tuple(claimed)

        return work

    def _claim(self, to: Session | Direct, queue: str, limit: int, lease: timedelta) -> list[OutboxEntry]:
        statements = self.statements(to)
        token = uuid4()
        if statements.returns_updates:
            now = self._time_here(to)
            return statements.claim(to, queue=queue, limit=limit, lease=lease, token=token, who=self.name, now=now)
        session = cast("Session", to)  # on PostgreSQL alone it may be anything else
        now = self.now(session)
        held: dict[str, Any] = {"last_attempt_at": now, "next_attempt_at": now + lease}
        held |= {"claim_token": token, "claimed_by": self.name}
        return self._claim_in_steps(session, statements, queue, limit, held)

    def _claim_in_steps(
        self, session: Session, statements: Statements, queue: str, limit: int, held: dict[str, Any]
    ) -> list[OutboxEntry]:
        """Where an update returns nothing."""
        given = {**sizes(limit), "from_queue": queue, "now": held["last_attempt_at"]}
        found = [row for part in statements.candidates for row in session.execute(part, given)]
        # A locked row may be younger than the view in which its turn was judged, and have an older one before it.
        if keyed := [row.entry_id for row in found if row.ordering_key is not None]:
            mine = set(session.execute(statements.still_have_their_turn(keyed)).scalars())
            found = [row for row in found if row.ordering_key is None or row.entry_id in mine]
        ids = [row.entry_id for row in sorted(found, key=lambda row: (row.enqueued_at, row.entry_id))[:limit]]
        if not ids:
            return []
        statements.move_all(session, CLAIM, ids, False, held)
        rows = session.execute(sa.select(*statements.columns).where(statements.outbox.c.entry_id.in_(ids)))
        return sorted(map(entry_of, rows), key=oldest_first)

    def renew(self, entries: Sequence[OutboxEntry], *, lease: timedelta = _DEFAULT_LEASE) -> set[UUID]:
        """Prolong claims; the ids of the entries that are still held."""
        return self.run(self.renewing(entries, lease)) if entries else set()

    def renewing(self, entries: Sequence[OutboxEntry], lease: timedelta) -> Callable[[Session], set[UUID]]:
        """A unit of work that prolongs claims, and tells which of them are still held."""
        span("lease", lease, above=True)

        def work(session: Session) -> set[UUID]:
            statements, held = self.statements(session), set[UUID]()
            until = self.now(session) + lease
            for token in {entry.claim_token for entry in entries if entry.claim_token is not None}:
                ids = [entry.entry_id for entry in entries if entry.claim_token == token]
                held |= _renew(session, statements, ids, token, until)
            return held

        return work


def _renew(session: Session, statements: Statements, ids: Sequence[UUID], token: UUID, until: datetime) -> set[UUID]:
    given = {"next_attempt_at": until}
    if statements.returns_updates:
        return set(statements.move_held(session, RENEW, ids, token, False, given))
    row, mine = statements.outbox.c, statements.held_by(token)
    locked = sa.select(row.entry_id).where(row.entry_id.in_(ids), mine).order_by(row.entry_id).with_for_update()
    held = set(session.execute(locked).scalars())
    if held:
        statements.move_all(session, RENEW, sorted(held), False, given)
    return held
