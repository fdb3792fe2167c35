"""Looking into the outbox: one entry, pages of entries, how many there are, and how their calls went."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Any, Final, TypedDict, Unpack
from uuid import UUID

import sqlalchemy as sa
from sqlalchemy.orm import Session

from holdfast.errors import InvalidValue
from holdfast.machine.outbox_entry import CLAIMABLE, OutboxStatus
from holdfast.outbox.checks import an_id
from holdfast.outbox.entry import OutboxEntry
from holdfast.outbox.place import Place
from holdfast.outbox.rows import entry_of, in_utc, status_of
from holdfast.outbox.settle import Attempt
from holdfast.outbox.verdict import GIVEN_UP, PENDING


class Wanted(TypedDict, total=False):
    """Which entries are meant: those that have all of these. None is as good as nothing."""

    status: OutboxStatus | str | Collection[OutboxStatus | str] | None
    """One, or any of several."""
    operation: str | None
    target: str | None
    subject_id: str | None
    key: str | None
    """The key in whose order they are called."""
    queue: str | None
    error: str | None
    """The name of the class that the last attempt raised."""
    verification: str | Collection[str] | None
    """One, or any of several: `pending`, `confirmed`, `failed` (the target denies it), and `given_up` for those pending
    ones that nobody asks about any more."""
    saga_id: UUID | None


_COLUMNS: Final = {"target": "resolver", "error": "last_error"}
_COUNTED: Final = ("status", "operation", "target", "queue", "error", "verification")


class Finding(Place):
    """Nothing here changes anything, or keeps others from changing it."""

    def get(self, entry_id: UUID) -> OutboxEntry | None:
        """The entry of this id, if there is one. Raises ValueError for what is no UUID."""
        an_id("entry_id", entry_id)

        def work(session: Session) -> OutboxEntry | None:
            row = session.execute(self._select().where(self.tables.outbox.c.entry_id == entry_id)).first()
            return None if row is None else entry_of(row)

        return self.sessions.run(work, reads=True)

    def find(
        self, *, limit: int = 100, after: UUID | None = None, newest_first: bool = False, **wanted: Unpack[Wanted]
    ) -> Sequence[OutboxEntry]:
        """A page of entries in the order of their ids, which is that of their making; `after` is the last id of the
        page before.

        Raises ValueError for an unknown status, and for ids that are no UUIDs.
        """
        row, found = self.tables.outbox.c, self._select().where(*self._where(wanted))
        if after is not None:
            an_id("after", after)
            found = found.where(row.entry_id < after if newest_first else row.entry_id > after)
        page = found.order_by(row.entry_id.desc() if newest_first else row.entry_id).limit(limit)
        if limit <= 0:
            return ()
        return self.sessions.run(lambda session: tuple(map(entry_of, session.execute(page))), reads=True)

    def ids(self, **wanted: Unpack[Wanted]) -> Sequence[UUID]:
        """The ids of all these entries, in order.

        Raises ValueError for an unknown status.
        """
        id = self.tables.outbox.c.entry_id
        found = sa.select(id).where(*self._where(wanted)).order_by(id)
        return self.sessions.run(lambda session: tuple(session.execute(found).scalars()), reads=True)

    def tally(self, *by: str, **wanted: Unpack[Wanted]) -> dict[tuple[str | None, ...], int]:
        """How many entries there are for each combination of what these columns hold: `tally("queue", "status")`.

        Raises ValueError for a column that cannot be counted by, and for an unknown status.
        """
        if strange := set(by) - set(_COUNTED):
            raise InvalidValue(f"entries are counted by {', '.join(_COUNTED)}, and not by {strange.pop()}")
        columns = [self._column(name) for name in by]
        number = sa.func.count(self.tables.outbox.c.entry_id)
        grouped = sa.select(*columns, number).where(*self._where(wanted)).group_by(*columns)
        if not by:  # without groups there is one row, also of no entries
            grouped = grouped.having(number > 0)

        def work(session: Session) -> dict[tuple[str | None, ...], int]:
            return {tuple(values): int(number) for *values, number in session.execute(grouped)}

        return self.sessions.run(work, reads=True)

    def attempts(self, entry_id: UUID) -> Sequence[Attempt]:
        """The history of an entry's calls, oldest first. One that succeeded at once has none: its row says it all.

        Raises ValueError for what is no UUID.
        """
        an_id("entry_id", entry_id)
        row = self.tables.attempts.c
        found = sa.select(*(row[name] for name in Attempt._fields)).where(row.entry_id == entry_id)
        found = found.order_by(row.finished_at, row.number)

        def work(session: Session) -> Sequence[Attempt]:
            made = (Attempt(*values) for values in session.execute(found))
            return tuple(
                one._replace(started_at=in_utc(one.started_at), finished_at=in_utc(one.finished_at) or one.finished_at)
                for one in made
            )

        return self.sessions.run(work, reads=True)

    def _where(self, wanted: Wanted) -> list[Any]:
        row, given = self.tables.outbox.c, {name: value for name, value in wanted.items() if value is not None}
        if strange := given.keys() - Wanted.__annotations__.keys():
            # A filter that is misspelt must not mean every entry.
            raise TypeError(f"entries have no {strange.pop()!r} to be found by")
        if "saga_id" in given:
            an_id("saga_id", given["saga_id"])
        statuses = statuses_of(given.pop("status", None))
        key, verification = given.pop("key", None), wanted.get("verification")
        given.pop("verification", None)
        conditions: list[Any] = [self._column(name) == value for name, value in given.items()]
        if statuses is not None:
            # As text, and one as one: only so is it seen to be in the partial index of its status.
            texts: list[Any] = [sa.literal_column(f"'{one}'") for one in sorted(statuses)]
            conditions.append(row.status == texts[0] if len(texts) == 1 else row.status.in_(texts))
            if statuses <= CLAIMABLE:
                # Live rows are in one of two indexes that hold nothing else, however many have ended.
                conditions.append(sa.or_(row.fresh_at.is_not(None), row.gate_at.is_not(None)))
        if key is not None:
            is_indexed = statuses is not None and OutboxStatus.SUCCEEDED not in statuses
            conditions.append((row.order_key if is_indexed else row.ordering_key) == key)
        if verification is not None:
            words = [verification] if isinstance(verification, str) else verification
            conditions.append(sa.or_(sa.false(), *(self._is_verified(str(word)) for word in words)))
        return conditions

    def _is_verified(self, word: str) -> Any:
        row = self.tables.outbox.c
        if word == GIVEN_UP:
            return sa.and_(row.verification == PENDING, row.verify_at.is_(None))
        return row.verification == word

    def _column(self, name: str) -> Any:
        return self.tables.outbox.c[_COLUMNS.get(name, name)]


def statuses_of(given: Any) -> frozenset[OutboxStatus] | None:
    """One status or several; None for any. Raises ValueError for an unknown one."""
    if given is None:
        return None
    several = [given] if isinstance(given, str) else given
    return frozenset(status_of(str(one)) for one in several)
