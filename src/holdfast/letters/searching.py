"""Pages of letters for a screen, newest first, however many there are.

What an index finds is found at once. For anything else letters must be looked at: about `WINDOW` of them for a page,
which may then hold fewer than were asked for, and says where the search goes on.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, NamedTuple, Unpack

from holdfast.letters.data import FailedOperationData, cursor_of, letters_of
from holdfast.letters.finding import Finding, Sought, conditions
from holdfast.letters.values import size
from holdfast.machine.dead_letter import LETTER
from holdfast.store.query import Condition, Cursor, Where

WINDOW: Final = 10_000
_OWN: Final = ("entity_id", "user_id")
"""Few letters have the same one, so it leads to them best."""
_COUNTED: Final = ("status", "domain", "failure_type")
_LISTED: Final = ("status", "domain")
_FIRST_ID: Final = "0"
"""Before every id: where a page ends that has seen all letters of its last moment."""


class FoundLetters(NamedTuple):
    """A page of letters. `after` is where the search goes on, None if there is nothing more to be searched."""

    letters: Sequence[FailedOperationData]
    after: str | None


class Searching(Finding):
    def search(
        self, *, limit: int = 50, after: str | None = None, window: int = WINDOW, **wanted: Unpack[Sought]
    ) -> FoundLetters:
        """As `find`, with its filters, but takes about as long with a million letters as with a thousand.

        Raises TypeError for a filter that there is not.
        """
        where, cursor = conditions(**wanted), cursor_of(after)
        if size(limit) == 0 or not self._may_be_some(where):
            return FoundLetters((), None)
        near, far = _split(self._narrowed(where))
        until = self._edge(near, cursor, window) if far else None
        seen = () if until is None else (Condition("created_at", ">=", until),)
        found = self.store.page(
            LETTER, (*near, *far, *seen), by="created_at", descending=True, after=cursor, limit=limit + 1
        )
        letters = letters_of(found[:limit])
        if len(found) > limit:
            return FoundLetters(letters, letters[-1].cursor)
        return FoundLetters(letters, None if until is None else f"{until:x}.{_FIRST_ID}")

    def _may_be_some(self, where: Where) -> bool:
        """Whether the counters know of such letters; if not, nobody has to walk through all of them to find none."""
        counted = tuple(one for one in where if one.field in _COUNTED)
        return not counted or bool(self.store.tally(LETTER, (), counted))

    def _narrowed(self, where: Where) -> Where:
        """The conditions, and by the counters the one domain or status in which there are such failures."""
        if not any(one.field == "failure_type" for one in where):
            return where
        counted = tuple(one for one in where if one.field in _COUNTED)
        groups = self.store.tally(LETTER, _LISTED, counted)
        given = {one.field for one in where}
        more: list[Condition] = []
        for at, name in enumerate(_LISTED):
            values = {group[at] for group in groups}
            if name not in given and len(values) == 1:
                more.append(Condition(name, "=", values.pop()))
        return (*where, *more)

    def _edge(self, near: Where, cursor: Cursor | None, window: int) -> int | None:
        """When the last letter was made that is looked at for a page; None where all that are left are looked at."""
        if all(one.field in _LISTED for one in near) and sum(self.store.tally(LETTER, (), near).values()) <= window:
            return None
        last = self.store.page(LETTER, near, by="created_at", descending=True, after=cursor, offset=window - 1, limit=1)
        return last[0].created_at if last else None


def _split(where: Where) -> tuple[Where, Where]:
    """The conditions that an index answers, together with the order, and those for which letters are looked at."""
    own = next((name for name in _OWN for one in where if one.field == name), None)
    led = (own,) if own else _LISTED
    near = tuple(one for one in where if one.field in led or one.field == "created_at")
    return near, tuple(one for one in where if one not in near)
