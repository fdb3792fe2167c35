"""Letters that callers still have: who names one by its id need not have it read again to change it."""

from __future__ import annotations

from typing import Final
from weakref import ref

from holdfast.letters.data import FailedOperationData

_FEWEST: Final = 1000


class Lent:
    """Finds a letter by its id for as long as its caller has it.

    Not a WeakValueDictionary, which takes a microsecond for each letter of a batch. What is gone is cleared away when
    there are twice as many as there were letters the last time.
    """

    def __init__(self) -> None:
        self._letters: dict[str, ref[FailedOperationData]] = {}
        self._most = _FEWEST

    def add(self, id: str, letter: FailedOperationData) -> None:
        self._letters[id] = ref(letter)
        if len(self._letters) > self._most:
            self._clear_away()

    def get(self, id: str) -> FailedOperationData | None:
        found = self._letters.get(id)
        return None if found is None else found()

    def forget(self, id: str) -> None:
        self._letters.pop(id, None)

    def _clear_away(self) -> None:
        # Another thread may add one meanwhile; it is read again then, which does no harm.
        self._letters = {id: letter for id, letter in list(self._letters.items()) if letter() is not None}
        self._most = max(_FEWEST, 2 * len(self._letters))
