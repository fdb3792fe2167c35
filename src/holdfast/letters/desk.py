"""What every part of the repository works with: the store, the time, and the change of one letter."""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

from holdfast.core.clock import Clock
from holdfast.errors import Conflict
from holdfast.letters.data import FailedOperationData, letter_of, note_change, record_of
from holdfast.letters.lent import Lent
from holdfast.letters.values import is_id
from holdfast.machine.dead_letter import LETTER, LetterRecord
from holdfast.store.change import PATIENCE_S, change
from holdfast.store.codec import micros
from holdfast.store.port import Store, Swap

T = TypeVar("T")
Decide = Callable[[LetterRecord, int], LetterRecord | None]
"""What the machine makes of a letter at this time; None where it says no."""


class Desk:
    """The store is the truth, and its clock the time, unless a clock is given."""

    def __init__(self, store: Store, clock: Clock | None = None) -> None:
        self.store = store
        self._clock = clock
        self._lent = Lent()

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.store.url}>"

    def _now(self) -> int:
        return self.store.now() if self._clock is None else micros(self._clock.wall())

    def _lend(self, record: LetterRecord) -> FailedOperationData:
        """The letter of a record that its caller will probably change."""
        letter = letter_of(record)
        self._lent.add(record.id, letter)
        return letter

    def _change(
        self,
        id: Any,
        decide: Callable[[LetterRecord], LetterRecord | None],
        lent: FailedOperationData | None = None,
    ) -> LetterRecord | None:
        """The letter after the change; None if there is no such letter, or the machine says no."""
        if not is_id(id):
            return None

        def ask(found: LetterRecord | None) -> LetterRecord | None:
            return None if found is None else decide(found)

        if lent is None:
            lent = self._lent.get(id)
        known = None if lent is None else record_of(lent)
        if known is None or known.id != id:
            lent = known = None
        after = change(self.store, LETTER, id, ask, known=known)[1]
        if lent is not None:
            self._note(id, lent, after)
        return after

    def _note(self, id: str, letter: FailedOperationData, after: LetterRecord | None) -> None:
        if after is None:
            self._lent.forget(id)
        else:
            note_change(letter, after)

    def change_known(self, steps: Sequence[tuple[FailedOperationData, Decide]]) -> list[LetterRecord | None]:
        """Change letters as they were read, in one commit.

        None for one that has changed since, or where the machine says no: read it again and ask again.
        """
        now = self._now()
        pairs = [_as_read(letter, decide, now) for letter, decide in steps]
        while places := [at for at, pair in enumerate(pairs) if pair is not None]:
            try:
                self.store.commit([Swap(LETTER, *pair) for pair in pairs if pair is not None])
            except Conflict as conflict:
                for lost in conflict.lost or range(len(places)):
                    pairs[places[lost]] = None
            else:
                break
        after = [None if pair is None else pair[1] for pair in pairs]
        for (letter, _), record in zip(steps, after, strict=True):
            self._note(letter.id, letter, record)
        return after

    def change_read(self, id: str, decide: Decide, known: FailedOperationData | None = None) -> LetterRecord | None:
        """Change a letter as it is now; None if there is no such letter, or the machine says no.

        `known` is the letter as it was seen last, which saves reading it unless it has changed since.
        """
        return self._change(id, lambda letter: decide(letter, self._now()), known)


def _as_read(letter: FailedOperationData, decide: Decide, now: int) -> tuple[LetterRecord, LetterRecord] | None:
    before = record_of(letter)
    after = None if before is None else decide(before, now)
    return None if before is None or after is None else (before, after)


def until_settled(step: Callable[[], T]) -> T:
    """What the step gives, once nobody else was faster: it reads anew each time.

    Raises Conflict if others were faster for 15 seconds.
    """
    give_up = time.monotonic() + PATIENCE_S
    while True:
        try:
            return step()
        except Conflict:
            if time.monotonic() > give_up:
                raise
            time.sleep(random.random() * 0.01)
