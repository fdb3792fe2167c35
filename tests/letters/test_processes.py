"""Many processes and threads after the same letters: each attempt has one winner, and nothing is lost of it."""

from __future__ import annotations

import multiprocessing
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path

import pytest

from holdfast.letters.repository import FailedOperationRepository
from holdfast.machine.letter_record import LETTER
from tests.conftest import SIZE
from tests.letters import contest
from tests.stores import SHARED_STORES, Place, fresh_place

PROCESSES = THREADS = 4 if SIZE == 1 else 8
SPAWN = multiprocessing.get_context("spawn")

pytestmark = [pytest.mark.torture, pytest.mark.timeout(1800)]


@pytest.fixture(params=SHARED_STORES)
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Place]:
    with fresh_place(request.param, tmp_path, (LETTER,)) as place:
        yield place


def test_of_many_who_acquire_and_complete_a_letter_one_wins_each_time(place: Place, size: int) -> None:
    store = place.open()
    letters = FailedOperationRepository(store)
    made = letters.create_many([{"domain": "d", "failure_type": "f", "max_retries": 99}] * 4 * size)
    ids = [letter.id for letter in made]
    with ProcessPoolExecutor(PROCESSES, SPAWN, contest.prepare, (SPAWN.Barrier(PROCESSES),)) as pool:
        jobs = [pool.submit(contest.compete, (place.name, place.url), ids, THREADS) for _ in range(PROCESSES)]
        won = [one for job in jobs for one in job.result()]
    rounds = range(1, contest.ROUNDS + 1)
    assert Counter((id, number) for id, _, number, _ in won) == Counter((id, number) for id in ids for number in rounds)
    assert {told for *_, told in won} == {(True, False)}
    tokens = {(id, number): token for id, token, number, _ in won}
    for id in ids:
        attempts = letters.get_attempts(id)
        assert [(one.number, one.token) for one in attempts] == [(number, tokens[id, number]) for number in rounds]
        assert [one.outcome for one in attempts] == ["failed"] * (contest.ROUNDS - 1) + ["succeeded"]
        letter = letters.get_by_id(id)
        assert letter is not None
        assert (letter.status, letter.retry_count) == ("resolved", contest.ROUNDS)
    assert letters.get_statistics()["by_status"] == {"resolved": len(ids)}
    store.close()
