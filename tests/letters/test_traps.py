"""What the original got wrong: with eight threads at once, and with rows that look done, protected or strange.

| trap | where it is tested |
|---|---|
| 1 half-open slots and closes by several at once | tests/breakers/test_contention, test_processes |
| 2 concurrent creators of a breaker | tests/breakers/test_contention: concurrent creators |
| 3 counts that are read, then written | here: no retry increment; tests/breakers/test_contention: no count is lost |
| 4 a payload rewritten from an older read | here: no update is lost; test_replay |
| 5 `atomic_*` that are not | tests/breakers/test_contention: forced states |
| 6 a completion of any status, or by a zombie | here |
| 7 pending letters that nobody can acquire | here |
| 8 the note overwrites the error | here |
| 9 live objects, order of a set | test_repository_filing: nothing handed in or out, ids ascend |
| 10 filters after a window | here; test_repository_finding: the SLA sees every row, expired letters have no row cap |
| 11 resolved without a user, never archived | here |
| 12 `max_retries` 0 reads back as 2 | test_repository_filing: falsy is not missing |
| 13 compression without a summary; a missing one | here; test_repository_retention |
| 14 a purge that deletes a part, then raises | test_repository_retention: a purge by ids |
| 15 eviction stops at, or eats, the wrong rows | here; test_repository_retention: eviction looks past |
| 16 an id of another shape raises | test_repository_filing: an unknown id of any shape |
| 17 pins leak trials, are elsewhere, are lost | tests/breakers/test_traps, test_repository: a pinned open breaker |
| 18 a forced close for ever; reset pins | tests/breakers/test_traps, test_repository: atomic reset, forced closed |
| 19 closing keeps opened_at, wipes metadata | tests/breakers/test_repository: closing, last failure |
| 20 a rate of failures only; four times the delay | tests/guard/test_breaker: ratio; test_retry: the waits |
| 21 the SLA's `"default"` | test_repository_finding: the SLA takes |
| 22 statistics of another shape per store | test_repository_finding: statistics; test_same_everywhere |
| 23 "no such table" on a fresh database | here |
| 24 connections that do not come back | here; tests/backends/test_sql_postgres |
| 25 the spool unread, the buffer lost, ids hidden | test_capture: the spool; test_buffer |
| 26 a user id that is no number | test_capture: a non-integer user id |
| 27 replay needs Celery; the delay is not used | test_worker: a thread drains, a due retry; test_replay: waits longer |
| 28 a forced open of one process | tests/breakers/test_traps |
| 29 indexes that MySQL rejects | here |
| 30 memory that becomes Redis, degraded | here |
| 31 files unasked; forks | tests/app/test_app: making one; store/test_ids, backends, test_buffer, breakers: forks |
"""

from __future__ import annotations

import gc
import threading
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any, TypeVar

import pytest

from holdfast.app import Holdfast
from holdfast.backends.memory import MemoryStore
from holdfast.backends.open import open_store
from holdfast.backends.sql import migrate
from holdfast.errors import StoreUnavailable
from holdfast.letters.data import FailedOperationData
from holdfast.letters.repository import FailedOperationRepository
from holdfast.telemetry.hub import Hub
from holdfast.testing.clock import ManualClock
from tests.stores import STORES, fresh_place

Letters = FailedOperationRepository
T = TypeVar("T")
THREADS = 8


def together(work: Callable[[int], T], threads: int = THREADS) -> list[T]:
    """What the work gives for each number, in as many threads, all started at one moment."""
    gate = threading.Barrier(threads)
    results: list[Any] = [None] * threads

    def run(number: int) -> None:
        gate.wait()
        try:
            results[number] = work(number)
        except BaseException as error:
            results[number] = error

    started = [threading.Thread(target=run, args=(number,)) for number in range(threads)]
    for thread in started:
        thread.start()
    for thread in started:
        thread.join()
    for result in results:
        if isinstance(result, BaseException):
            raise result
    return results


def read(letters: Letters, id: str) -> FailedOperationData:
    found = letters.get_by_id(id)
    assert found is not None
    return found


@pytest.mark.parametrize("force", [False, True])
def test_exactly_one_of_many_acquires_a_letter(letters: Letters, force: bool) -> None:
    ids = [letters.create("d", "f").id for _ in range(5)]
    rounds = together(lambda _: [letters.try_acquire_for_replay(id, 2, force) for id in ids])
    for at, id in enumerate(ids):
        (winner,) = [held[at] for held in rounds if held[at] is not None]
        assert winner == read(letters, id)
        assert winner.retry_count == 1


def test_batches_never_share_a_letter(letters: Letters) -> None:
    made = {letter.id for letter in letters.create_many([{"domain": "d", "failure_type": "f"}] * 200)}

    def drain(_: int) -> list[str]:
        got: list[str] = []
        while letters.get_pending_count_by_domain("d"):
            got += [letter.id for letter in letters.acquire_many(domain="d", limit=7, max_retries=2)]
        return got

    claimed = [id for part in together(drain) for id in part]
    assert len(claimed) == 200
    assert set(claimed) == made


def test_exactly_one_of_many_completes_an_attempt(letters: Letters) -> None:
    ids = [letters.create("d", "f").id for _ in range(5)]
    held = [held for id in ids if (held := letters.try_acquire_for_replay(id, 2))]

    def complete(number: int) -> list[bool]:
        return [
            letters.complete_replay(
                letter.id, bool(number % 2), note=str(number), attempt_token=letter.attempt_token, known=letter
            )
            for letter in held
        ]

    for done in zip(*together(complete), strict=True):
        assert sum(done) == 1
    for id in ids:
        (attempt,) = letters.get_attempts(id)
        assert attempt.note == read(letters, id).resolution_note


def test_no_retry_increment_is_lost(letters: Letters) -> None:
    id = letters.create("d", "f").id
    together(lambda _: [letters.increment_retry_count(id) for _ in range(10)])
    assert read(letters, id).retry_count == 80


def test_no_update_is_lost_to_a_rewritten_payload(letters: Letters) -> None:
    id = letters.create("d", "f", request_data={"kept": "x" * 1000}).id
    held = letters.try_acquire_for_replay(id, 2)
    assert held is not None

    def change(number: int) -> object:
        if number == 0:
            return letters.complete_replay(id, True, error_details={"merged": 1}, attempt_token=held.attempt_token)
        return [letters.increment_retry_count(id) for _ in range(5)]

    together(change)
    after = read(letters, id)
    assert (after.status, after.metadata, after.retry_count) == ("resolved", {"merged": 1}, 1 + 5 * 7)
    assert after.request_data == {"kept": "x" * 1000}


def test_operators_and_replays_do_not_undo_each_other(letters: Letters) -> None:
    ids = [letters.create("d", "f").id for _ in range(5)]
    held = [held for id in ids if (held := letters.try_acquire_for_replay(id, 2))]

    def change(number: int) -> list[bool]:
        if number == 0:
            return [letters.update_status(id, "rejected", resolution_note="no") for id in ids]
        return [letters.complete_replay(letter.id, True, attempt_token=letter.attempt_token) for letter in held]

    _, *completions = together(change)
    for id, done in zip(ids, zip(*completions, strict=True), strict=True):
        after = read(letters, id)
        assert (after.status, after.attempt_token) == ("rejected", None)
        assert sum(done) == (after.resolved_at is not None)


def test_concurrent_creators_of_one_key_agree_on_one_letter(letters: Letters) -> None:
    made = together(lambda _: [letters.create("d", "f", dedup_key="k") for _ in range(5)])
    assert len({letter.id for part in made for letter in part}) == 1
    assert letters.count() == 1
    assert read(letters, made[0][0].id).occurrences == 40
    assert sorted(letter.occurrences for part in made for letter in part) == list(range(1, 41))


def test_concurrent_evictions_delete_each_letter_once_and_never_without_a_summary(letters: Letters) -> None:
    letters.create_many([{"domain": "d", "failure_type": "f"}] * 100)
    gone = together(lambda _: letters.compress_and_evict_oldest(20))
    assert sum(gone) == 100
    assert letters.count() == 0
    assert letters.get_compressed_summary()["total_compressed_items"] == 100


def test_a_letter_that_is_acquired_meanwhile_is_not_evicted(letters: Letters) -> None:
    ids = [letter.id for letter in letters.create_many([{"domain": "d", "failure_type": "f"}] * 40)]

    def work(number: int) -> list[str]:
        if number % 2:
            letters.evict_oldest(10)
            return []
        return [id for id in ids if letters.try_acquire_for_replay(id, 1) is not None]

    held = [id for part in together(work) for id in part]
    assert len(held) == len(set(held))
    assert all(read(letters, id).status == "replaying" for id in held)
    assert len(held) + 40 - letters.count() == 40


def test_a_letter_that_is_done_does_not_come_back_by_a_late_completion(letters: Letters) -> None:
    held = letters.try_acquire_for_replay(letters.create("d", "f").id, 2)
    assert held is not None
    letters.update_status(held.id, "archived")
    assert not letters.complete_replay(held.id, False)
    assert not letters.complete_replay(held.id, False, attempt_token=held.attempt_token, known=held)
    assert read(letters, held.id).status == "archived"


def test_a_zombie_cannot_complete_an_attempt_it_lost(letters: Letters, clock: ManualClock) -> None:
    zombie = letters.try_acquire_for_replay(letters.create("d", "f").id, 3)
    assert zombie is not None
    clock.advance(3600)
    letters.release_stale_replaying()
    owner = letters.try_acquire_for_replay(zombie.id, 3)
    assert owner is not None
    assert zombie.attempt_token is not None
    assert not letters.complete_replay(zombie.id, True, attempt_token=zombie.attempt_token, known=zombie)
    assert not letters.return_attempt(zombie.id, zombie.attempt_token)
    assert not letters.heartbeat(zombie.id, zombie.attempt_token)
    assert read(letters, zombie.id) == owner


@pytest.mark.parametrize(("own", "callers"), [(5, 2), (2, 5), (0, 3), (1, 1)])
def test_no_letter_is_left_pending_that_its_caller_cannot_acquire(letters: Letters, own: int, callers: int) -> None:
    id = letters.create("d", "f", max_retries=own).id
    while letters.try_acquire_for_replay(id, callers):
        letters.complete_replay(id, False)
    assert read(letters, id).status == "requires_review"


def test_the_original_error_survives_every_completion(letters: Letters) -> None:
    id = letters.create("d", "f", "the original error", max_retries=1).id
    letters.try_acquire_for_replay(id, 1)
    letters.complete_replay(id, False, note="the replay's error")
    assert read(letters, id).error_message == "the original error"
    assert read(letters, id).resolution_note == letters.get_attempts(id)[0].note == "the replay's error"


def test_a_letter_resolved_without_a_user_is_archived_like_any_other(letters: Letters, clock: ManualClock) -> None:
    replayed = letters.try_acquire_for_replay(letters.create("d", "f").id, 2)
    assert replayed is not None
    letters.complete_replay(replayed.id, True)
    letters.update_status(letters.create("d", "f").id, "resolved")
    clock.advance(31 * 86_400)
    assert letters.archive_old_resolved() == 2


def test_matches_beyond_any_window_are_found(letters: Letters, clock: ManualClock) -> None:
    """The original looked at the first 1,000 rows, or 200, and filtered afterwards."""
    letters.create_many([{"domain": "noise", "failure_type": "f", "expires_at": clock.wall()}] * 1100)
    wanted = [
        letter.id
        for letter in letters.create_many([{"domain": "d", "failure_type": "g", "expires_at": clock.wall()}] * 482)
    ]
    clock.advance(60)
    assert [letter.id for letter in letters.find_by_status("pending", "d", "g", limit=1000)] == wanted
    assert [letter.id for letter in letters.find_replayable(2, "d", "g", limit=1000)] == wanted
    assert len(letters.find_sla_breached(clock.wall(), {"default": timedelta(seconds=1)})) == 1582
    assert len(letters.find_expired(clock.wall())) == 1582


def test_eviction_does_not_eat_archived_rows_while_the_queue_grows(letters: Letters) -> None:
    archived = [letters.create("d", "f").id for _ in range(5)]
    letters.bulk_update_status(archived, "archived")
    held = [letters.create("d", "f").id for _ in range(5)]
    for id in held:
        letters.try_acquire_for_replay(id, 2)
    live = [letters.create("d", "f").id for _ in range(5)]
    assert letters.evict_oldest(3) == 3
    assert letters.get_oldest_ids(9) == live[3:]
    assert letters.count(status="archived") == 5


def test_a_missing_summary_is_not_updated(letters: Letters) -> None:
    assert letters.update_compressed_status("compressed:d:f:e:1", "stale") is False
    assert letters.get_compressed_entries() == []


@pytest.mark.parametrize("url", ["sqlite:///{}/{}.db", "sqlite://"])
def test_trap_23_a_fresh_database_has_its_tables_though_another_object_was_at_its_address(
    tmp_path: Path, url: str
) -> None:
    seen, again = set[int](), 0
    for n in range(60):
        letters = FailedOperationRepository(open_store(url.format(tmp_path, n)))
        letters.create("d", "f")
        assert letters.count() == 1
        again += id(letters.store) in seen
        seen.add(id(letters.store))
        letters.store.close()
        del letters
        gc.collect()
    assert again, "no object came to where another one had been, so nothing was shown"


@pytest.mark.parametrize("name", [name for name in STORES if name not in ("memory", "redis")])
def test_trap_24_a_connection_comes_back_after_each_call_also_one_that_was_refused(name: str, tmp_path: Path) -> None:
    with fresh_place(name, tmp_path) as place:
        store = open_store(place.url, kinds=place.kinds, connections=1, patience=5.0)
        letters = FailedOperationRepository(store)
        for n in range(12):
            letter = letters.create("d", "f", dedup_key=str(n))
            with pytest.raises(TypeError):
                letters.create("d", "f", metadata={"no": object()})
            assert letters.try_acquire_for_replay(letter.id, 2) is not None
            assert letters.complete_replay(letter.id, bool(n % 2))
            with pytest.raises(ValueError, match="not archived"):
                letters.purge_archived(ids=[letter.id])
        assert letters.get_statistics()["total"] == 12
        store.close()


@pytest.mark.parametrize("url", ["mysql://localhost/x", "mariadb://localhost/x"])
def test_trap_29_no_statement_is_one_that_mysql_rejects(url: str) -> None:
    """MariaDB takes it, so that a test on a MariaDB shows nothing."""
    statements = " ".join(migrate.sql(url).upper().split())
    assert "CREATE INDEX " in statements
    for rejected in ("INDEX IF NOT EXISTS", "INDEX IF EXISTS", "COLUMN IF NOT EXISTS", "COLUMN IF EXISTS"):
        assert rejected not in statements


def test_trap_30_memory_is_memory_and_a_store_that_is_away_is_not_replaced_by_one(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for name in ("REDIS_URL", "HOLDFAST_URL", "HOLDFAST_REDIS_URL"):
        monkeypatch.setenv(name, "redis://localhost:1/0")
    with Holdfast("memory://", telemetry=Hub(), background=False) as hold:
        assert isinstance(hold.store, MemoryStore)
    with Holdfast("redis://localhost:1/0", telemetry=Hub(), background=False) as away:
        for ask in (lambda: away.letters.create("d", "f"), away.letters.find, away.letters.get_statistics):
            with pytest.raises(StoreUnavailable):
                ask()
