"""Which letters of a domain go out next: oldest first, and for one entity never a younger one past an older one.

A letter whose entity has an older one that is still open waits for it, be that one parked until its next attempt, in
somebody's hands or before a person. Letters of other entities, and those of none, pass by.
"""

from __future__ import annotations

import heapq
from collections import deque
from collections.abc import Callable, Collection, Hashable, Mapping, Sequence, Set
from typing import Final

from holdfast.machine.dead_letter import LETTER, LetterRecord
from holdfast.store.port import Store
from holdfast.store.query import Condition, Cursor, Where, among, equal

BLOCKING: Final = ("pending", "replaying", "reviewing", "requires_review")
"""An older letter in one of these statuses keeps the younger ones of its entity back."""

_PAGE: Final = 200
_SHORT: Final = 25
_MOST_WAITING: Final = 10_000
KeyOf = Callable[[LetterRecord], Hashable | None]
_Place = tuple[int, str]
"""When a letter was made, and its id."""


def entity_of(letter: LetterRecord) -> Hashable | None:
    return None if letter.entity_id is None else (letter.entity_type, letter.entity_id)


class Queue:
    """The letters of one domain that may go out, handed out round by round.

    Ask for the next round when the last one is settled. The domain is read once from its oldest letter on; of those
    that wait for their turn only the place is kept, at most 10,000 of them.
    """

    def __init__(
        self,
        store: Store,
        domain: str,
        failure_types: Collection[str],
        *,
        key_of: KeyOf | None = None,
        is_ready: Callable[[LetterRecord, int], bool] = lambda letter, now: True,
    ) -> None:
        self._store = store
        self._domain = domain
        self._types = tuple(failure_types)
        self._key_of = entity_of if key_of is None else key_of
        self._by_entity = key_of is None
        self._is_ready = is_ready
        self._read_upto: Cursor | None = None
        self._all_read = False
        self._waiting: dict[Hashable, deque[_Place]] = {}
        self._first: list[tuple[_Place, Hashable]] = []  # a heap of the first place of everything that waits
        self._parked: set[Hashable] = set()

    def next(self, limit: int) -> list[LetterRecord]:
        """Up to `limit` letters, at most one of each entity; none: the queue is empty."""
        picked: list[LetterRecord] = []
        taken: list[Hashable] = []
        just_read: dict[str, LetterRecord] = {}
        while len(picked) < limit:
            wanted = limit - len(picked)
            while len(self._first) < wanted and self._read(max(_SHORT, 2 * limit), just_read):
                pass
            heads = [heapq.heappop(self._first) for _ in range(min(wanted, len(self._first)))]
            if not heads:
                break
            found = self._records([id for (_, id), _ in heads], just_read)
            oldest = self._oldest([letter for letter in found if letter is not None])
            for (_, key), letter in zip(heads, found, strict=True):
                if letter is not None and self._goes(letter, oldest):
                    picked.append(letter)
                    taken.append(key)  # the next of its entity comes in another round
                else:
                    self._advance(key)
        for key in taken:
            self._advance(key)
        return picked

    def _read(self, limit: int, just_read: dict[str, LetterRecord]) -> bool:
        """Read on; False when there is nothing more, or no room for it."""
        if self._all_read or sum(map(len, self._waiting.values())) >= _MOST_WAITING:
            return False
        page = self._page(min(_PAGE, limit))
        self._all_read = not page
        for letter in page:
            self._read_upto = Cursor(letter.created_at, letter.id)
            key = self._key_of(letter)
            if key is None:
                key = object()  # waits for nobody
            elif key in self._parked:
                continue
            just_read[letter.id] = letter
            places = self._waiting.setdefault(key, deque())
            places.append((letter.created_at, letter.id))
            if len(places) == 1:
                heapq.heappush(self._first, (places[0], key))
        return bool(page)

    def _advance(self, key: Hashable) -> None:
        """The first place of this entity is dealt with."""
        places = self._waiting[key]
        places.popleft()
        if not places or key in self._parked:
            del self._waiting[key]
        else:
            heapq.heappush(self._first, (places[0], key))

    def _records(self, ids: Sequence[str], just_read: dict[str, LetterRecord]) -> list[LetterRecord | None]:
        """The letters as they are now; None for one that is no longer there to go out."""
        missing = [id for id in ids if id not in just_read]
        now = self._store.now()
        for letter in self._store.get(LETTER, missing) if missing else ():
            if letter is not None and letter.status == "pending" and (letter.due_at or 0) <= now:
                just_read[letter.id] = letter
        return [just_read.get(id) for id in ids]

    def _goes(self, letter: LetterRecord, oldest: dict[Hashable, str]) -> bool:
        key = self._key_of(letter)
        can = letter.retry_count < letter.max_retries and self._is_ready(letter, self._store.now())
        if key is not None and (not can or oldest.get(key, letter.id) != letter.id):
            self._parked.add(key)
            return False
        return can

    def _page(self, limit: int) -> list[LetterRecord]:
        where: Where = (
            *equal(domain=self._domain, status="pending"),
            among("failure_type", self._types),
            Condition("due_at", "<=", self._store.now()),
        )
        return self._store.page(LETTER, where, by="created_at", after=self._read_upto, limit=limit)

    def _oldest(self, letters: Sequence[LetterRecord]) -> dict[Hashable, str]:
        """The oldest open letter of the entity of each of these, by its id."""
        by_key = {key: letter for letter in letters if (key := self._key_of(letter)) is not None}
        return self._oldest_by_entity(by_key) if self._by_entity else self._oldest_by_key(by_key.keys())

    def _oldest_by_entity(self, by_key: Mapping[Hashable, LetterRecord]) -> dict[Hashable, str]:
        found: dict[Hashable, str] = {}
        # Most have one that is open: as many letters as there are entities tell of them all, and some more of the rest.
        for limit in (len(by_key), max(_SHORT, 2 * len(by_key))):
            missing = {letter.entity_id for key, letter in by_key.items() if key not in found}
            if not missing:
                return found
            older = self._open((among("entity_id", sorted(id for id in missing if id is not None)),), None, limit)
            self._note(older, found)
            if len(older) < limit:
                return found
        # One of them has very many: the others are asked for one by one.
        return found | {key: self._oldest_of(one) for key, one in by_key.items() if key not in found}

    def _oldest_by_key(self, keys: Set[Hashable]) -> dict[Hashable, str]:
        found: dict[Hashable, str] = {}
        after: Cursor | None = None
        while keys - found.keys():
            older = self._open((), after, _PAGE)
            self._note(older, found)
            if len(older) < _PAGE:
                break
            after = Cursor(older[-1].created_at, older[-1].id)
        return found

    def _open(self, where: Where, after: Cursor | None, limit: int) -> list[LetterRecord]:
        """Letters that keep others back, oldest first."""
        where = (*equal(domain=self._domain), among("status", BLOCKING), *where)
        return self._store.page(LETTER, where, by="created_at", after=after, limit=limit)

    def _note(self, letters: Sequence[LetterRecord], found: dict[Hashable, str]) -> None:
        for letter in letters:
            key = self._key_of(letter)
            if key is not None:
                found.setdefault(key, letter.id)

    def _oldest_of(self, letter: LetterRecord) -> str:
        where: Where = (
            *equal(entity_id=letter.entity_id),
            Condition("entity_type", "=", letter.entity_type),
        )
        found = self._open(where, None, 1)
        return found[0].id if found else letter.id
