"""Pages of tables that may hold millions of rows, newest first, and numbers that are counted only so far.

What an index finds is found at once. For anything else rows must be looked at: at most `WINDOW` of them for a page,
which may then hold fewer than were asked for, and says where the search goes on. Also the outbox's.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final, NamedTuple

import sqlalchemy as sa
from sqlalchemy.orm import Session

WINDOW: Final = 10_000

Place = tuple[Any, ...]
"""The values of a row in the columns by which a page is ordered."""


class Rows(NamedTuple):
    """Rows of a page. `until` is the place at which the page after it begins, None where everything was seen."""

    rows: Sequence[Any]
    until: Place | None


def search(
    session: Session,
    chosen: Any,
    order: Sequence[sa.Column[Any]],
    *,
    near: Sequence[Any] = (),
    far: Sequence[Any] = (),
    after: Place | None = None,
    limit: int,
    window: int = WINDOW,
) -> Rows:
    """The newest rows of `chosen` for which all conditions hold: `near` are those that an index answers, together with
    the order; rows are looked at for `far`.
    """
    newest_first = [column.desc() for column in order]
    bounds = [*near, *(() if after is None else older(order, after))]
    until: Place | None = None
    if far:
        edge = sa.select(*order).where(*bounds).order_by(*newest_first).offset(window - 1).limit(1)
        found = session.execute(edge).first()
        if found is not None:
            until = tuple(found)
            bounds += _not_older(order, until)
    page = chosen.where(*bounds, *far).order_by(*newest_first).limit(limit + 1)
    rows = session.execute(page).all()
    if len(rows) > limit:
        return Rows(rows[:limit], tuple(getattr(rows[limit - 1], column.name) for column in order))
    return Rows(rows, until)


def count_up_to(session: Session, most: int, *columns: sa.Column[Any], where: Sequence[Any] = ()) -> int:
    """How many rows there are, counted no further than `most`."""
    some = sa.select(*columns).where(*where).limit(most).subquery()
    return int(session.execute(sa.select(sa.func.count()).select_from(some)).scalar() or 0)


def unread(column: sa.Column[Any]) -> Any:
    """A text column for `far`, where it has an index: SQLite would read all that this finds, and sort it."""
    return sa.func.coalesce(column, "")


def older(order: Sequence[sa.Column[Any]], place: Place) -> list[Any]:
    """The conditions of rows before a place, by one column or two."""
    first, *rest = order
    if not rest:
        return [first < place[0]]
    return [first <= place[0], sa.or_(first < place[0], rest[0] < place[1])]


def _not_older(order: Sequence[sa.Column[Any]], place: Place) -> list[Any]:
    first, *rest = order
    if not rest:
        return [first >= place[0]]
    return [first >= place[0], sa.or_(first > place[0], rest[0] >= place[1])]
