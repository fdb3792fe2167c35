"""What the processes of test_processes.py do. Each opens the place by itself, and its threads share one repository."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from multiprocessing.synchronize import Barrier
from typing import Any

from holdfast.letters.repository import FailedOperationRepository
from holdfast.machine.letter_record import LETTER
from tests.stores import Place

ROUNDS = 5
Won = tuple[str, str | None, int, tuple[bool, ...]]
"""A letter, the token of an attempt, its number, and what each of two completions of it was told."""
_shared: dict[str, Any] = {}


def prepare(start: Barrier) -> None:
    _shared.update(start=start)


def compete(place: tuple[str, str], ids: Sequence[str], threads: int) -> list[Won]:
    """Acquire and complete these letters against everybody else, until each has had all its rounds."""
    store = Place(*place, (LETTER,)).open()
    letters = FailedOperationRepository(store)
    begin = threading.Barrier(threads)

    def run(thread: int) -> list[Won]:
        begin.wait(60)
        return [won for id in ids for won in _win(letters, id, with_a_look=bool(thread % 2))]

    store.ping()
    _shared["start"].wait(120)
    with ThreadPoolExecutor(threads) as pool:
        won = [one for mine in pool.map(run, range(threads)) for one in mine]
    store.close()
    return won


def _win(letters: FailedOperationRepository, id: str, *, with_a_look: bool) -> list[Won]:
    won: list[Won] = []
    while True:
        known = letters.get_by_id(id) if with_a_look else None
        held = letters.try_acquire_for_replay(id, ROUNDS, known=known)
        if held is not None:
            assert not letters.complete_replay(id, True, attempt_token="of nobody")
            last = held.retry_count == ROUNDS
            told = [letters.complete_replay(id, last, attempt_token=held.attempt_token) for _ in range(2)]
            won.append((id, held.attempt_token, held.retry_count, tuple(told)))
        found = letters.get_by_id(id)
        assert found is not None
        if found.is_resolved:
            return won
