"""Pages and claims: the form of what is asked, and the values to ask it with."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final, NamedTuple

from holdfast.backends.sql.changing import Changes
from holdfast.backends.sql.database import Link, Row
from holdfast.backends.sql.pages import Read
from holdfast.backends.sql.plans import Plans
from holdfast.backends.sql.statement import Statement
from holdfast.backends.sql.where import Asked
from holdfast.store.query import Cursor
from holdfast.store.record import R

LATER_ROUNDS: Final = 100  # rows to read at least, where the first have been left alone
NO_LIMIT: Final = 1 << 61  # with an offset added it still fits


class Question(NamedTuple):
    """What is asked of a kind, and in which order. `asked` are the conditions."""

    plans: Plans
    asked: Asked
    by: str

    def page(
        self,
        limit: int,
        *,
        descending: bool = False,
        after: Cursor | None = None,
        offset: int = 0,
        lock: str = "",
    ) -> tuple[Statement, list[Any]]:
        """The statement for a page, and its values."""
        inline = self.plans.dialect.inline_limit
        most = min(limit, NO_LIMIT)
        values = [*self.asked.values]
        if after is not None and self.by == "id":
            values = [*self.asked.beyond(after.id, descending), after.id]
        elif after is not None:
            values += after
        if not inline:
            values.append(most)
        if offset:
            skipped = min(offset, NO_LIMIT)
            values += (skipped, skipped + most)
        form = Read(self.asked.terms, self.by, descending, after is not None, offset > 0, most if inline else -1, lock)
        return self.plans.page(form), values


def claim(link: Link, question: Question, decide: Callable[[R], R | None], limit: int) -> list[R]:
    """Change up to `limit` records as `decide` says; the new versions of those that were still as they were read."""
    plans = question.plans
    kind = plans.kind
    chosen = Changes(plans)
    claimed: list[R] = []
    after: Cursor | None = None
    wanted = limit
    while True:
        rows, ours = _candidates(link, question, wanted, after)
        for row in ours:
            old = kind.make(row)
            if (new := decide(old)) is not None:
                chosen.add(row, new)  # type: ignore[arg-type]  # records are NamedTuples
                claimed.append(new)
                if len(claimed) == limit:
                    break
        if len(rows) < wanted or len(claimed) == limit:
            break
        after = Cursor(rows[-1][kind.positions[question.by]], rows[-1][0])
        wanted = max(limit - len(claimed), LATER_ROUNDS)
    if not claimed:
        return []
    gone = link.make(chosen.steps)
    return [record for record in claimed if record.id not in gone] if gone else claimed


def _candidates(
    link: Link, question: Question, wanted: int, after: Cursor | None
) -> tuple[Sequence[Row], Sequence[Row]]:
    """The next matching rows, and those of them that nobody else is claiming."""
    plans = question.plans
    if not (link.holds and plans.dialect.locks):
        rows = link.rows(*question.page(wanted, after=after))
        return rows, rows
    statement, values = question.page(wanted, after=after, lock="skip")
    rows = link.rows(statement, values)
    if not rows or not plans.pages.is_split(question.asked.terms, question.by):
        return rows, rows
    held = {(row[0], row[1]) for row in link.rows(plans.hold, (plans.dialect.listing([row[0] for row in rows]),))}
    return rows, [row for row in rows if (row[0], row[1]) in held]
