"""Acquire, heartbeat, return, complete, release: one holder at a time, fenced by a token."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Any

import pytest

from holdfast.letters.data import FailedOperationData, FailedOperationStatus
from holdfast.letters.repository import FailedOperationRepository
from holdfast.testing.clock import ManualClock

Letters = FailedOperationRepository


def read(letters: Letters, id: str) -> FailedOperationData:
    found = letters.get_by_id(id)
    assert found is not None
    return found


def acquired(letters: Letters, id: str, max_retries: int = 2, **options: Any) -> FailedOperationData:
    held = letters.try_acquire_for_replay(id, max_retries, **options)
    assert held is not None
    return held


def test_an_acquire_makes_the_caller_its_holder(letters: Letters, clock: ManualClock) -> None:
    letter = letters.create("d", "f", request_data={"a": 1}, max_retries=5)
    clock.advance(3)
    held = acquired(letters, letter.id, 3)
    assert (held.status, held.retry_count, held.attempt_cap) == ("replaying", 1, 3)
    assert held.last_retry_at == held.heartbeat_at == held.updated_at == clock.wall()
    assert held.attempt_token
    assert held.request_data == {"a": 1}
    assert held == read(letters, letter.id)
    assert letters.try_acquire_for_replay(letter.id, 3) is None
    assert letters.try_acquire_for_replay(letter.id, 3, force=True) is None


@pytest.mark.parametrize("status", list(FailedOperationStatus))
def test_only_pending_letters_are_acquired_and_by_force_those_that_require_review(
    letters: Letters, status: FailedOperationStatus
) -> None:
    id = letters.create("d", "f").id
    letters.update_status(id, status)
    before = read(letters, id)
    if status != "pending":
        assert letters.try_acquire_for_replay(id, 2) is None
        assert read(letters, id) == before
    by_force = letters.try_acquire_for_replay(id, 2, force=True)
    assert (by_force is not None) is (status in ("pending", "requires_review"))
    if by_force is None:
        assert read(letters, id) == before


@pytest.mark.parametrize(
    ("count", "cap", "allowed"), [(0, 0, False), (0, 1, True), (1, 1, False), (5, 6, True), (0, -1, False)]
)
def test_the_callers_cap_decides(letters: Letters, count: int, cap: int, allowed: bool) -> None:
    id = letters.create("d", "f", retry_count=count, max_retries=1).id
    assert (letters.try_acquire_for_replay(id, cap) is not None) is allowed


@pytest.mark.parametrize(("own", "callers", "in_force"), [(2, 5, 2), (5, 2, 2), (0, 3, 0), (3, 3, 3), (7, 10**30, 7)])
def test_the_lower_cap_is_in_force(letters: Letters, own: int, callers: int, in_force: int) -> None:
    assert acquired(letters, letters.create("d", "f", max_retries=own).id, callers).attempt_cap == in_force


def test_a_letter_that_waits_cannot_be_acquired_but_forced(letters: Letters, clock: ManualClock) -> None:
    later = clock.wall() + timedelta(seconds=5)
    ids = [letters.create("d", "f", next_attempt_at=later).id for _ in range(2)]
    assert letters.try_acquire_for_replay(ids[0], 2) is None
    assert acquired(letters, ids[1], force=True).next_attempt_at is None
    clock.advance(5)
    assert acquired(letters, ids[0]).next_attempt_at is None


def test_a_forced_redrive_starts_a_new_budget_and_keeps_the_scar(letters: Letters) -> None:
    id = letters.create("d", "f", max_retries=2, metadata={"kept": 1}).id
    scars = []
    for _ in range(3):
        while held := letters.try_acquire_for_replay(id, 2):
            assert letters.complete_replay(id, False, attempt_token=held.attempt_token)
        assert read(letters, id).status == "requires_review"
        assert read(letters, id).retry_count == 2
        forced = acquired(letters, id, 0, force=True)
        assert (forced.status, forced.retry_count, forced.attempt_cap) == ("replaying", 1, 2)
        scars.append((forced.metadata["previous_total_retries"], forced.metadata["force_redrive_count"]))
        assert letters.complete_replay(id, False)
        assert read(letters, id).status == "pending"
    assert scars == [(2, 1), (4, 2), (6, 3)]
    assert read(letters, id).metadata["kept"] == 1
    assert [attempt.number for attempt in letters.get_attempts(id)] == list(range(1, 8))


def test_a_heartbeat_extends_the_lease_until_it_is_lost(letters: Letters, clock: ManualClock) -> None:
    held = acquired(letters, letters.create("d", "f").id)
    token = held.attempt_token
    assert token is not None
    clock.advance(20 * 60)
    assert letters.heartbeat(held.id, token)
    assert read(letters, held.id).heartbeat_at == clock.wall()
    clock.advance(20 * 60)
    assert letters.release_stale_replaying(30) == 0
    assert not letters.heartbeat(held.id, "another")
    clock.advance(10 * 60 + 1)
    assert letters.release_stale_replaying(30) == 1
    assert not letters.heartbeat(held.id, token)


def test_a_returned_attempt_costs_nothing(letters: Letters, clock: ManualClock) -> None:
    id = letters.create("d", "f", max_retries=1).id
    for number in range(1, 4):
        held = acquired(letters, id, 1, trigger="sweep")
        assert held.attempt_token is not None
        assert not letters.return_attempt(id, "another")
        clock.advance(1)
        assert letters.return_attempt(id, held.attempt_token)
        assert not letters.return_attempt(id, held.attempt_token)
        back = read(letters, id)
        assert (back.status, back.retry_count, back.attempt_token, back.attempt_cap) == ("pending", 0, None, None)
        assert len(letters.get_attempts(id)) == number
    assert {attempt.outcome for attempt in letters.get_attempts(id)} == {"returned"}
    assert [attempt.number for attempt in letters.get_attempts(id)] == [1, 2, 3]


def test_success_resolves(letters: Letters, clock: ManualClock) -> None:
    held = acquired(letters, letters.create("d", "f", "the error").id)
    clock.advance(2)
    assert letters.complete_replay(held.id, True, "manual_replay", "went well", 7, attempt_token=held.attempt_token)
    done = read(letters, held.id)
    assert (done.status, done.resolution_type, done.resolution_note, done.resolved_by_id) == (
        "resolved", "manual_replay", "went well", 7,
    )  # fmt: skip
    assert done.resolved_at == done.updated_at == clock.wall()
    assert (done.attempt_token, done.attempt_cap, done.error_message) == (None, None, "the error")


def test_failure_goes_back_to_pending_and_at_the_cap_to_review(letters: Letters, clock: ManualClock) -> None:
    id = letters.create("d", "f").id
    acquired(letters, id)
    assert letters.complete_replay(id, False, note="first")
    once = read(letters, id)
    assert (once.status, once.retry_count, once.resolution_note, once.resolved_at) == ("pending", 1, "first", None)
    assert once.recommended_action == ""
    acquired(letters, id)
    assert letters.complete_replay(id, False)
    twice = read(letters, id)
    assert (twice.status, twice.retry_count, twice.resolution_note) == ("requires_review", 2, "first")
    assert (twice.recommended_action, twice.resolution_type) == ("escalate", "max_retries_exhausted")


def test_a_failure_without_a_recorded_cap_counts_by_the_rows_own(letters: Letters) -> None:
    for retries, status in ((0, "pending"), (2, "requires_review")):
        id = letters.create("d", "f", retry_count=retries, max_retries=2).id
        letters.update_status(id, "replaying")
        assert letters.complete_replay(id, False)
        assert read(letters, id).status == status
        assert letters.get_attempts(id) == []


def test_retry_at_delays_the_next_attempt(letters: Letters, clock: ManualClock) -> None:
    id = letters.create("d", "f").id
    acquired(letters, id)
    later = clock.wall() + timedelta(minutes=1)
    assert letters.complete_replay(id, False, retry_at=later)
    assert read(letters, id).next_attempt_at == later
    assert letters.find_replayable(9) == []
    assert letters.try_acquire_for_replay(id, 9) is None
    clock.advance(60)
    assert acquired(letters, id, 9).next_attempt_at is None


@pytest.mark.parametrize("status", [status for status in FailedOperationStatus if status != "replaying"])
@pytest.mark.parametrize("success", [True, False])
def test_only_a_replaying_letter_is_completed(letters: Letters, status: str, success: bool) -> None:
    id = letters.create("d", "f").id
    letters.update_status(id, status)
    before = read(letters, id)
    assert letters.complete_replay(id, success, "manual", "note", 1, {"a": 1}) is False
    assert read(letters, id) == before


def test_a_token_that_is_given_must_be_the_letters(letters: Letters) -> None:
    held = acquired(letters, letters.create("d", "f").id)
    for wrong in ("another", "", held.id):
        assert letters.complete_replay(held.id, True, attempt_token=wrong) is False
    assert letters.complete_replay(held.id, True, attempt_token=held.attempt_token) is True
    operated = letters.create("d", "f").id
    letters.update_status(operated, "replaying")
    assert letters.complete_replay(operated, True, attempt_token="any") is False
    assert letters.complete_replay(operated, True) is True


def test_details_are_merged_and_kept_with_the_attempt(letters: Letters) -> None:
    id = letters.create("d", "f", "the error", metadata={"a": 1, "deep": {"x": 1}, "source": "s"}).id
    acquired(letters, id, trigger="manual_retry")
    details = {"deep": {"y": 2}, "error_type": "OSError", "source": "t"}
    assert letters.complete_replay(id, False, "manual_retry", "no luck", "ann", details)
    after = read(letters, id)
    assert after.metadata == {"a": 1, **details}
    assert (after.resolution_type, after.resolved_by_id, after.error_message) == ("manual_retry", "ann", "the error")
    assert [letter.id for letter in letters.find_replayable(2, source="t")] == [id]
    (attempt,) = letters.get_attempts(id)
    assert (attempt.outcome, attempt.trigger, attempt.note) == ("failed", "manual_retry", "no luck")
    assert (attempt.error_type, attempt.details) == ("OSError", details)


@pytest.mark.parametrize("details", [{"x": object()}, {"x": float("nan")}, ["no dict"], {1: 2}])
def test_details_that_are_not_json_change_nothing(letters: Letters, details: Any) -> None:
    held = acquired(letters, letters.create("d", "f").id)
    with pytest.raises((TypeError, ValueError)):
        letters.complete_replay(held.id, False, error_details=details)
    assert read(letters, held.id) == held


def test_a_known_letter_saves_the_read_and_an_outdated_one_does_no_harm(letters: Letters) -> None:
    held = acquired(letters, letters.create("d", "f").id)
    assert held.attempt_token is not None
    letters.heartbeat(held.id, held.attempt_token)
    assert letters.complete_replay(held.id, False, attempt_token=held.attempt_token, known=held) is True
    assert letters.complete_replay(held.id, False, attempt_token=held.attempt_token, known=held) is False
    again = acquired(letters, held.id)
    assert letters.complete_replay(held.id, True, known=letters.create("d", "f")) is True
    assert letters.complete_replay(again.id, True, known=again) is False
    assert read(letters, held.id).status == "resolved"


def test_the_history_has_one_row_for_each_acquire(letters: Letters, clock: ManualClock) -> None:
    id = letters.create("d", "f", max_retries=9).id
    times: list[datetime] = []
    for success in (False, True):
        times.append(clock.wall())
        acquired(letters, id, 9, trigger="t")
        clock.advance(1)
        letters.complete_replay(id, success)
        clock.advance(1)
    letters.update_status(id, "pending")
    running = acquired(letters, id, 9)
    first, second, third = letters.get_attempts(id)
    assert [first.number, second.number, third.number] == [1, 2, 3]
    assert [first.outcome, second.outcome, third.outcome] == ["failed", "succeeded", None]
    assert [first.started_at, second.started_at] == times
    assert first.finished_at == times[0] + timedelta(seconds=1)
    assert (third.token, third.finished_at, third.operation_id) == (running.attempt_token, None, id)
    assert len({attempt.token for attempt in (first, second, third)}) == 3


def test_the_numbers_go_on_from_the_retries_that_a_letter_came_with(letters: Letters) -> None:
    id = letters.create("d", "f", retry_count=3, max_retries=9).id
    acquired(letters, id, 9)
    assert [attempt.number for attempt in letters.get_attempts(id)] == [4]


def test_a_very_long_history_keeps_its_newest_attempts(letters: Letters) -> None:
    id = letters.create("d", "f", max_retries=1000).id
    for n in range(60):
        acquired(letters, id, 1000)
        letters.complete_replay(id, False, note=f"{n} " + "x" * 4000)
    attempts = letters.get_attempts(id)
    assert 8 <= len(attempts) <= 16
    assert [attempt.number for attempt in attempts] == list(range(61 - len(attempts), 61))
    assert attempts[-1].note.startswith("59 ")


def test_stale_is_strictly_older_than_the_last_sign_of_life(letters: Letters, clock: ManualClock) -> None:
    id = letters.create("d", "f").id
    held = acquired(letters, id)
    clock.advance(30 * 60)
    assert letters.release_stale_replaying() == 0
    clock.advance(0.000001)
    assert letters.release_stale_replaying() == 1
    back = read(letters, id)
    assert (back.status, back.retry_count, back.attempt_token, back.updated_at) == ("pending", 1, None, clock.wall())
    (attempt,) = letters.get_attempts(id)
    assert (attempt.outcome, attempt.token, attempt.finished_at) == ("released", held.attempt_token, clock.wall())
    assert letters.release_stale_replaying(0) == 0


def test_a_letter_whose_last_attempt_was_interrupted_requires_review(letters: Letters, clock: ManualClock) -> None:
    id = letters.create("d", "f", "the error", max_retries=1).id
    acquired(letters, id, 5)
    clock.advance(61)
    assert letters.release_stale_replaying(1) == 1
    ended = read(letters, id)
    assert (ended.status, ended.retry_count, ended.recommended_action) == ("requires_review", 1, "escalate")
    assert "interrupted" in ended.resolution_note
    assert ended.error_message == "the error"


def test_an_operators_replaying_letter_is_stale_by_its_last_change(letters: Letters, clock: ManualClock) -> None:
    id = letters.create("d", "f").id
    clock.advance(3600)
    letters.update_status(id, "replaying")
    clock.advance(60)
    assert letters.release_stale_replaying(1) == 0
    clock.advance(1)
    assert letters.release_stale_replaying(1) == 1
    assert letters.get_attempts(id) == []


def test_a_release_has_no_row_cap(letters: Letters, clock: ManualClock) -> None:
    letters.create_many([{"domain": "d", "failure_type": "f"}] * 1200)
    assert len(letters.acquire_many(domain="d", limit=1200, max_retries=2)) == 1200
    clock.advance(10**6)
    assert letters.release_stale_replaying(10**12) == 0
    assert letters.release_stale_replaying() == 1200
    assert letters.count(status="pending") == 1200


@pytest.mark.parametrize("status", [status for status in FailedOperationStatus if status != "replaying"])
def test_an_operator_who_takes_a_letter_away_revokes_the_token(letters: Letters, status: str) -> None:
    held = acquired(letters, letters.create("d", "f").id)
    assert held.attempt_token is not None
    letters.update_status(held.id, status)
    assert read(letters, held.id).attempt_token is None
    assert not letters.heartbeat(held.id, held.attempt_token)
    letters.update_status(held.id, "replaying")
    assert not letters.complete_replay(held.id, True, attempt_token=held.attempt_token)
    assert [attempt.outcome for attempt in letters.get_attempts(held.id)] == ["released"]


def test_an_operators_word_that_changes_nothing_keeps_the_holder(letters: Letters) -> None:
    held = acquired(letters, letters.create("d", "f").id)
    letters.update_status(held.id, "replaying", resolution_note="still at it")
    assert letters.complete_replay(held.id, True, attempt_token=held.attempt_token)


def test_a_batch_takes_what_has_been_due_for_longest(letters: Letters, clock: ManualClock) -> None:
    soon = clock.wall() + timedelta(seconds=2)
    delayed = letters.create("d", "f", next_attempt_at=soon)
    waiting = letters.create("d", "f", next_attempt_at=soon + timedelta(days=1))
    clock.advance(1)
    plain = [letters.create("d", kind) for kind in ("f", "g", "f")]
    letters.create("elsewhere", "f")
    tried = letters.create("d", "f", retry_count=2, max_retries=9)
    clock.advance(9)
    batch = letters.acquire_many(domain="d", limit=2, max_retries=2, trigger="scheduled_batch")
    assert [letter.id for letter in batch] == [plain[0].id, plain[1].id]
    assert len({letter.attempt_token for letter in batch}) == 2
    assert {letter.status for letter in batch} == {"replaying"}
    rest = letters.acquire_many(domain="d", limit=100, max_retries=2, failure_type="f")
    assert [letter.id for letter in rest] == [plain[2].id, delayed.id]
    assert letters.acquire_many(domain="d", limit=100, max_retries=2) == []
    assert read(letters, waiting.id).status == read(letters, tried.id).status == "pending"
    assert letters.get_attempts(plain[0].id)[0].trigger == "scheduled_batch"
    assert letters.complete_replay(rest[1].id, True, attempt_token=rest[1].attempt_token, known=rest[1])
