"""Putting calls into the outbox, in the caller's own transaction."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any, Final
from uuid import UUID

from holdfast.audit.driven import Row
from holdfast.audit.sessions import Transaction, transaction_of
from holdfast.errors import ConfigurationError, Conflict
from holdfast.outbox.checks import each
from holdfast.outbox.draft import DEFAULT_QUEUE, PUBLISH, Draft, check_size, rows_of
from holdfast.outbox.entry import OutboxEntry
from holdfast.outbox.inserts import MANY
from holdfast.outbox.place import Place
from holdfast.outbox.rows import JSON, row_of
from holdfast.outbox.subject import CompositeSubjectId, SubjectRef
from holdfast.store.codec import plain_to_json

if TYPE_CHECKING:
    from holdfast.audit.sessions import Given

_TRIES: Final = 5
_MOST_FITTING: Final = 1000  # so many sets of names are remembered; a program has a handful


class Sending(Place):
    """What is written here lives or dies with the caller's transaction.

    That may be of a Session or a Connection of SQLAlchemy's, or of a connection of psycopg's or sqlite3's own. A worker
    in this program hears of it after the commit of a Session; of any other on PostgreSQL, which tells it.
    """

    def enqueue(self, session: Given, entries: Sequence[OutboxEntry]) -> None:
        """Write entries as they are, their times and status included; one that has ended keeps no payload.

        An entry whose `dedupe_key` a live entry has already is left out. Of an AsyncSession, use `aenqueue`.
        Raises ValueError for a payload that is too large.
        """
        entries = each("entries", entries, OutboxEntry)
        keys = {entry.ordering_key for entry in entries if entry.ordering_key is not None}
        once = any(entry.dedupe_key is not None for entry in entries)
        self._write(transaction_of(session), len(entries), map(self._row, entries), keys, once=once)

    async def aenqueue(self, session: Any, entries: Sequence[OutboxEntry]) -> None:
        """The same in the transaction of an AsyncSession."""
        await session.run_sync(self.enqueue, entries)

    def put(
        self,
        session: Given,
        operation: str,
        payload: Any = None,
        *,
        target: str,
        ref: SubjectRef | None = None,
        subject_id: str | CompositeSubjectId | None = None,
        key: str | None = None,
        dedupe_key: str | None = None,
        delay: timedelta | None = None,
        at: datetime | None = None,
        queue: str = DEFAULT_QUEUE,
        headers: Mapping[str, str] | None = None,
        saga_id: UUID | None = None,
        step: str | None = None,
        direction: str | None = None,
        depends_on: UUID | None = None,
        entry_id: UUID | None = None,
    ) -> UUID:
        """Have a registered operation called once this transaction has committed; the entry's id. See `Draft`.

        If a live entry has the same `dedupe_key` nothing is written, and the id is that entry's. Entries with the same
        `key` are called in the order of this method's calls: whoever comes second waits here until the first one's
        transaction has ended. Raises ConfigurationError for an operation that nobody registered, ValueError for
        what cannot be stored.
        """
        draft = Draft(
            operation, payload, target=target, ref=ref, subject_id=subject_id, key=key, dedupe_key=dedupe_key,
            delay=delay, at=at, queue=queue, headers=headers, saga_id=saga_id, step=step, direction=direction,
            depends_on=depends_on, entry_id=entry_id,
        )  # fmt: skip
        return self.put_many(session, (draft,))[0]

    async def aput(self, session: Any, operation: str, payload: Any = None, *, target: str, **more: Any) -> UUID:
        """The same in the transaction of an AsyncSession."""
        drafts = (Draft(operation, payload, target=target, **more),)
        ids: tuple[UUID, ...] = await session.run_sync(self.put_many, drafts)
        return ids[0]

    def put_many(self, session: Given, drafts: Iterable[Draft]) -> tuple[UUID, ...]:
        """Many calls at once, in few statements; their ids, in the order of the drafts."""
        drafts = each("drafts", drafts, Draft)
        keys = {draft.key for draft in drafts if isinstance(draft.key, str)}  # any other is refused below
        once = any(draft.dedupe_key is not None for draft in drafts)
        rows = rows_of(self._fitting(drafts), len(drafts), self.max_payload)
        return self._write(transaction_of(session), len(drafts), rows, keys, once=once)

    async def aput_many(self, session: Any, drafts: Iterable[Draft]) -> tuple[UUID, ...]:
        """The same in the transaction of an AsyncSession."""
        ids: tuple[UUID, ...] = await session.run_sync(self.put_many, drafts)
        return ids

    def publish(
        self,
        session: Given,
        topic: str,
        payload: Any,
        *,
        key: str | None = None,
        target: str = "default",
        dedupe_key: str | None = None,
        headers: Mapping[str, str] | None = None,
        delay: timedelta | None = None,
        at: datetime | None = None,
        queue: str = DEFAULT_QUEUE,
        type: str | None = None,
        content_type: str | None = None,
        attributes: Mapping[str, Any] | None = None,
        entry_id: UUID | None = None,
    ) -> UUID:
        """Have a message published once this transaction has committed, by the publisher of the name `target`.

        Messages with the same `key` are published in order. `type`, `content_type` and `attributes` go into its
        CloudEvent. Otherwise as `put`.
        """
        draft = Draft.publish(
            topic, payload, target=target, key=key, dedupe_key=dedupe_key, headers=headers, delay=delay, at=at,
            queue=queue, type=type, content_type=content_type, attributes=attributes, entry_id=entry_id,
        )  # fmt: skip
        return self.put_many(session, (draft,))[0]

    async def apublish(self, session: Any, topic: str, payload: Any, **more: Any) -> UUID:
        """The same in the transaction of an AsyncSession."""
        ids: tuple[UUID, ...] = await session.run_sync(self.put_many, (Draft.publish(topic, payload, **more),))
        return ids[0]

    def _fitting(self, drafts: Iterable[Draft]) -> Iterator[Draft]:
        """These drafts, each once it is known that its operation is there and takes such a payload."""
        fitting = self._fits
        for draft in drafts:
            payload, name = draft.payload, str(draft.operation)
            # Whether it fits is a matter of the payload's names, and those of many drafts are the same.
            names = (name, *payload) if type(payload) is dict else None
            if names is None or names not in fitting:
                self._check_operation(name, payload)
                if names is not None:
                    if len(fitting) >= _MOST_FITTING:
                        fitting.clear()
                    fitting.add(names)
            yield draft

    def _check_operation(self, name: str, payload: Any) -> None:
        """Publishing needs no registration here: only whoever makes the calls must know the publishers."""
        if name == PUBLISH:
            return
        operation = self.operations.find(name)
        if operation is None:
            known = ", ".join(sorted(one.name for one in self.operations)) or "none"
            raise ConfigurationError(f"unknown operation {name!r}; registered: {known}")
        operation.check(payload)

    def _row(self, entry: OutboxEntry) -> Row:
        row = row_of(entry)
        for name in JSON:
            if row[name] is not None:
                row[name] = check_size(row[name], self.max_payload) if name == "payload" else plain_to_json(row[name])
        return row

    def _write(
        self, to: Transaction, number: int, rows: Iterator[Row], keys: set[str], *, once: bool
    ) -> tuple[UUID, ...]:
        """Write so many rows, which are made on the way; for each its id, or that of the live entry that has its dedupe
        key."""
        if number >= MANY and not once:
            ids = self.inserts(to).load(to, rows, keys, self._time_here)
            if ids is not None:
                self.signals.after(to)
                return tuple(ids)
        made = [*rows]
        others = self._insert(to, made)
        return tuple([others.get(row["entry_id"]) or row["entry_id"] for row in made])

    def _insert(self, to: Transaction, rows: list[dict[str, Any]]) -> dict[UUID, UUID]:
        """Write rows; for each that was left out the live entry that has its dedupe key."""
        others: dict[UUID, UUID] = {}
        for _ in range(_TRIES if rows else 0):
            left_out = self.inserts(to).insert(to, rows, self._time_here)
            if not left_out:
                break
            rows = [row for row in rows if row["entry_id"] in left_out]
            live = self.inserts(to).live(to, [row["dedupe_key"] for row in rows])
            others |= {row["entry_id"]: live[row["dedupe_key"]] for row in rows if row["dedupe_key"] in live}
            # Whatever stood in the way may have ended meanwhile.
            rows = [row for row in rows if row["entry_id"] not in others]
            if not rows:
                break
        else:
            if rows:
                raise Conflict(
                    f"dedupe_key {rows[0]['dedupe_key']!r} is taken and freed again and again; try once more"
                )
        self.signals.after(to)
        return others
