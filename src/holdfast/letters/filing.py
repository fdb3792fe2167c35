"""Putting letters in, and an operator's changes to them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from functools import partial
from typing import Any, Final

from holdfast.errors import Conflict
from holdfast.letters.data import FailedOperationData, letter_of, letters_of
from holdfast.letters.desk import Desk, until_settled
from holdfast.letters.draft import draft
from holdfast.letters.values import is_id, resolver, status_value, text
from holdfast.machine import dead_letter as machine
from holdfast.machine.dead_letter import ACTIVE, LETTER, FailedOperationStatus, LetterRecord
from holdfast.store.change import remove
from holdfast.store.port import Change, Insert, Store, Swap
from holdfast.store.query import Cursor, equal

WAKE: Final = "letters"
"""The topic that a letter filed with `wake=True` tells."""


class Filing(Desk):
    def create(
        self,
        domain: str,
        failure_type: str,
        error_message: str = "",
        error_code: str = "",
        entity_type: str | None = None,
        entity_id: str | None = None,
        entity_refs: dict[str, Any] | None = None,
        user_id: int | str | None = None,
        snapshot_data: dict[str, Any] | None = None,
        request_data: dict[str, Any] | None = None,
        response_data: dict[str, Any] | None = None,
        metadata: dict[str, Any] | None = None,
        retry_count: int = 0,
        max_retries: int = 2,
        next_action_hint: str = "",
        recommended_action: str = "",
        expires_at: datetime | None = None,
        *,
        dedup_key: str | None = None,
        next_attempt_at: datetime | None = None,
        created_at: datetime | None = None,
        connection: Any = None,
        wake: bool = False,
    ) -> FailedOperationData:
        """The new letter, pending.

        With a `dedup_key` that an active letter of the domain carries: that letter, with one occurrence more.
        `created_at` is when it failed, for who comes to store it only later: by it letters are ordered, and age.
        `connection` is a transaction of the caller's, with which the letter lives or dies; `wake` tells the workers.
        Raises TypeError for what is not JSON, ValueError for NaN, infinities and nesting beyond 100: nothing is kept.
        """
        letter = draft(
            self._now(), domain=domain, failure_type=failure_type, error_message=error_message, error_code=error_code,
            entity_type=entity_type, entity_id=entity_id, entity_refs=entity_refs, user_id=user_id,
            snapshot_data=snapshot_data, request_data=request_data, response_data=response_data, metadata=metadata,
            retry_count=retry_count, max_retries=max_retries, next_action_hint=next_action_hint,
            recommended_action=recommended_action, expires_at=expires_at, dedup_key=dedup_key,
            next_attempt_at=next_attempt_at, created_at=created_at,
        )  # fmt: skip
        return letter_of(self._file([letter], connection, wake)[0])

    def create_many(
        self, letters: Iterable[Mapping[str, Any]], *, connection: Any = None, wake: bool = False
    ) -> list[FailedOperationData]:
        """All of them in one transaction, in this order; each is given as the arguments of `create`."""
        now = self._now()
        drafts = [draft(now, **letter) for letter in letters]
        return letters_of(self._file(drafts, connection, wake))

    def get_by_id(self, id: str) -> FailedOperationData | None:
        if not is_id(id):
            return None
        found = self.store.get(LETTER, (id,))[0]
        return None if found is None else self._lend(found)

    def update_status(
        self,
        id: str,
        status: str,
        resolution_type: str = "",
        resolution_note: str = "",
        resolved_by_id: int | str | None = None,
        recommended_action: str = "",
    ) -> bool:
        """An operator's word: any status to any status. What is empty keeps its old value.

        Raises ValueError for a status that does not exist.
        """
        to = status_value(status)
        decided = partial(
            machine.operate,
            status=to,
            resolution_type=text("resolution_type", resolution_type),
            note=text("resolution_note", resolution_note),
            resolved_by=resolver("resolved_by_id", resolved_by_id),
            recommended_action=text("recommended_action", recommended_action),
        )

        def decide(letter: LetterRecord) -> LetterRecord:
            return decided(letter, self._now(), key_is_free=not self._taken([letter], to))

        return self._change(id, decide) is not None

    def mark_as_resolved(
        self, id: str, resolution_type: str, resolution_note: str = "", resolved_by_id: int | str | None = None
    ) -> bool:
        """As `update_status` to resolved, from any status; once more restamps it."""
        return self.update_status(id, FailedOperationStatus.RESOLVED, resolution_type, resolution_note, resolved_by_id)

    def bulk_update_status(self, ids: list[str], status: str) -> int:
        """As `update_status` for each, all or none; the number of letters there were."""
        to = status_value(status)
        asked = list(dict.fromkeys(id for id in ids if is_id(id)))

        def update() -> int:
            found = [letter for letter in self.store.get(LETTER, asked) if letter is not None]
            swaps = _overrule(found, self._now(), to, self._taken(found, to))
            if swaps:
                self.store.commit(swaps)
            return len(swaps)

        return until_settled(update) if asked else 0

    def increment_retry_count(self, id: str) -> bool:
        """One retry more, made just now; the status stays."""
        return self._change(id, lambda letter: machine.count_retry(letter, self._now())) is not None

    def delete(self, entry_id: str) -> bool:
        """Whether there was such a letter, which is gone now."""
        return is_id(entry_id) and remove(self.store, LETTER, entry_id) is not None

    def _taken(self, letters: Iterable[LetterRecord], status: str) -> set[str]:
        """Of the dedup keys that these letters would ask back, those that others hold."""
        return set(_holders(self.store, (_key_of(letter) for letter in letters if _reactivates(letter, status))))

    def _file(self, drafts: Sequence[LetterRecord], connection: Any, wake: bool) -> list[LetterRecord]:
        """The stored letters. A draft whose key an active letter holds raises that one's occurrences instead."""
        topic = WAKE if wake else None
        if all(letter.unique_key is None for letter in drafts):
            if drafts:
                self.store.commit([Insert(LETTER, letter) for letter in drafts], wake=topic, connection=connection)
            return list(drafts)
        held: dict[str, LetterRecord] = {}

        def file() -> list[LetterRecord]:
            changes, filed = _plan(drafts, held, self._now() if held else 0)
            try:
                self.store.commit(changes, wake=topic, connection=connection)
            except Conflict:
                held.clear()
                held.update(_holders(self.store, (letter.unique_key for letter in drafts)))
                raise
            return filed

        try:
            return file()
        except Conflict:
            # Within a transaction only once more: what it holds itself, nobody else can see.
            return until_settled(file) if connection is None else file()


def _overrule(letters: Iterable[LetterRecord], now: int, status: str, taken: set[str]) -> list[Change]:
    """An operator's word on each. Of letters that ask for the same dedup key, the first one gets it."""
    swaps: list[Change] = []
    for letter in letters:
        after = machine.operate(letter, now, status, key_is_free=_key_of(letter) not in taken)
        if after.unique_key is not None:
            taken.add(after.unique_key)
        swaps.append(Swap(LETTER, letter, after))
    return swaps


def _plan(
    drafts: Sequence[LetterRecord], held: Mapping[str, LetterRecord], now: int
) -> tuple[list[Change], list[LetterRecord]]:
    """What to change so that each draft is filed, and the letter that each of them ends up in."""
    latest: dict[str, LetterRecord] = {}
    places: list[str | LetterRecord] = []
    for letter in drafts:
        key = letter.unique_key
        if key is None:
            places.append(letter)
            continue
        if key in latest:
            latest[key] = latest[key]._replace(occurrences=latest[key].occurrences + 1)
        else:
            latest[key] = letter if key not in held else machine.recur(held[key], now)
        places.append(key)
    filed = [latest[place] if isinstance(place, str) else place for place in places]
    changes: list[Change] = []
    for letter in dict.fromkeys(filed):
        old = held.get(letter.unique_key) if letter.unique_key is not None else None
        changes.append(Insert(LETTER, letter) if old is None else Swap(LETTER, old, letter))
    return changes, filed


def _key_of(letter: LetterRecord) -> str | None:
    return machine.unique_key(letter.domain, letter.dedup_key)


def _reactivates(letter: LetterRecord, status: str) -> bool:
    """Whether the letter asks for its dedup key back."""
    return letter.dedup_key is not None and status in ACTIVE and letter.status not in ACTIVE


def _holders(store: Store, keys: Iterable[str | None]) -> dict[str, LetterRecord]:
    """The active letters that hold these keys."""
    held: dict[str, LetterRecord] = {}
    for key in {key for key in keys if key is not None}:
        # From the place of the key on, so that no store looks at other keys before it.
        for letter in store.page(LETTER, equal(unique_key=key), by="unique_key", after=Cursor(key, ""), limit=1):
            held[key] = letter
    return held
