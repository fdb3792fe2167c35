"""What a caller still has is not read again, and whoever else changes a letter is not overlooked for that."""

from __future__ import annotations

import gc
from collections.abc import Sequence

import pytest

from holdfast.backends.memory import MemoryStore
from holdfast.letters.repository import FailedOperationRepository
from holdfast.store.port import Store
from holdfast.store.record import Kind, R
from holdfast.testing.clock import ManualClock

Letters = FailedOperationRepository


class Reading(MemoryStore):
    """Counts what is read by id."""

    reads = 0

    def get(self, kind: Kind[R], ids: Sequence[str]) -> list[R | None]:
        self.reads += 1
        return super().get(kind, ids)


@pytest.fixture
def reading(clock: ManualClock) -> Reading:
    return Reading(clock)


def test_a_letter_that_the_caller_holds_is_changed_without_a_read(reading: Reading) -> None:
    letters = Letters(reading)
    [one, other] = [letters.create("d", "f").id for _ in range(2)]
    held = letters.acquire_many(domain="d", limit=2, max_retries=2)
    assert [letter.id for letter in held] == [one, other]
    assert letters.heartbeat(one, held[0].attempt_token or "")
    assert letters.heartbeat(one, held[0].attempt_token or "")
    assert letters.complete_replay(one, True, attempt_token=held[0].attempt_token)
    assert letters.return_attempt(other, held[1].attempt_token or "")
    assert reading.reads == 0


def test_a_letter_at_hand_is_acquired_without_a_read(reading: Reading) -> None:
    letters = Letters(reading)
    id = letters.create("d", "f").id
    [found] = letters.find_replayable(2)
    held = letters.try_acquire_for_replay(id, 2, known=found)
    assert held is not None
    assert held.retry_count == 1
    assert reading.reads == 0


def test_a_letter_that_nobody_holds_any_more_is_forgotten(reading: Reading) -> None:
    letters = Letters(reading)
    id = letters.create("d", "f").id
    held = letters.try_acquire_for_replay(id, 2)
    assert held is not None
    token = held.attempt_token
    del held
    gc.collect()
    reading.reads = 0
    assert letters.complete_replay(id, True, attempt_token=token)
    assert reading.reads == 1


def test_what_a_letter_shows_is_what_it_was_when_it_was_read(store: Store, clock: ManualClock) -> None:
    letters = Letters(store)
    id = letters.create("d", "f").id
    held = letters.try_acquire_for_replay(id, 2)
    assert held is not None
    clock.advance(5)
    assert letters.complete_replay(id, True, note="done", attempt_token=held.attempt_token)
    assert (held.status, held.resolution_note, held.resolved_at) == ("replaying", "", None)


def test_a_letter_that_somebody_else_has_changed_is_read_again(store: Store) -> None:
    letters, others = Letters(store), Letters(store)
    id = letters.create("d", "f", max_retries=5).id
    held = letters.try_acquire_for_replay(id, 5)
    assert held is not None
    assert others.update_status(id, "pending")
    later = others.try_acquire_for_replay(id, 5)
    assert later is not None
    assert not letters.heartbeat(id, held.attempt_token or "")
    assert not letters.complete_replay(id, True, attempt_token=held.attempt_token)
    assert not letters.complete_replay(id, True, attempt_token=held.attempt_token, known=held)
    assert others.complete_replay(id, True, attempt_token=later.attempt_token)
    assert [attempt.outcome for attempt in letters.get_attempts(id)] == ["released", "succeeded"]


def test_a_letter_found_long_ago_is_acquired_as_it_is_now(store: Store) -> None:
    letters, others = Letters(store), Letters(store)
    id = letters.create("d", "f", max_retries=5).id
    [found] = letters.find_replayable(5)
    taken = others.try_acquire_for_replay(id, 5)
    assert taken is not None
    assert letters.try_acquire_for_replay(id, 5, known=found) is None
    assert others.complete_replay(id, False, attempt_token=taken.attempt_token)
    held = letters.try_acquire_for_replay(id, 5, known=found)
    assert held is not None
    assert held.retry_count == 2


def test_a_letter_that_is_gone_is_gone_for_its_holder_too(store: Store) -> None:
    letters, others = Letters(store), Letters(store)
    id = letters.create("d", "f").id
    held = letters.try_acquire_for_replay(id, 2)
    assert held is not None
    assert others.delete(id)
    assert not letters.complete_replay(id, True, attempt_token=held.attempt_token)
    assert letters.get_by_id(id) is None


def test_of_letters_that_are_gone_nothing_piles_up(reading: Reading) -> None:
    letters = Letters(reading)
    kept = []
    for _ in range(30):
        letters.create_many([{"domain": "d", "failure_type": "f"}] * 100)
        kept += letters.acquire_many(domain="d", limit=100, max_retries=2)[:1]
    assert len(letters._lent._letters) <= 1000
    reading.reads = 0
    assert all(letters.complete_replay(held.id, True, attempt_token=held.attempt_token) for held in kept)
    assert reading.reads == 0
