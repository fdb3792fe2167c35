"""Expiry, archive, purge, eviction, compression, summaries."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from holdfast.letters.data import DLQCompressedEntry, FailedOperationData, FailedOperationStatus
from holdfast.letters.repository import FailedOperationRepository
from holdfast.testing.clock import ManualClock

Letters = FailedOperationRepository
DAY = 86_400.0


def read(letters: Letters, id: str) -> FailedOperationData:
    found = letters.get_by_id(id)
    assert found is not None
    return found


def made(letters: Letters, status: str, domain: str = "d", **more: Any) -> str:
    id = letters.create(domain, "f", **more).id
    letters.update_status(id, status)
    return id


def test_expiry_takes_pending_and_requires_review_past_their_time(letters: Letters, clock: ManualClock) -> None:
    at = clock.wall() + timedelta(seconds=5)
    ids = {status: made(letters, status, expires_at=at) for status in FailedOperationStatus}
    forever = made(letters, "pending")
    clock.advance(5)
    assert letters.expire_overdue() == 0
    clock.advance(0.000001)
    assert letters.expire_overdue() == 2
    assert letters.expire_overdue() == 0
    for status, id in ids.items():
        letter = read(letters, id)
        if status in ("pending", "requires_review"):
            assert (letter.status, letter.resolution_type, letter.updated_at) == (
                "expired",
                "ttl_expired",
                clock.wall(),
            )
            assert letters.try_acquire_for_replay(id, 9) is None
        else:
            assert (letter.status, letter.resolution_type) == (status, "")
    assert read(letters, forever).status == "pending"
    assert letters.count(status="expired") == 3


def test_archiving_takes_what_was_resolved_strictly_longer_ago(letters: Letters, clock: ManualClock) -> None:
    id = made(letters, "resolved")
    resolved_at = clock.wall()
    clock.advance(30 * DAY)
    assert letters.archive_old_resolved() == 0
    clock.advance(0.000001)
    assert letters.count_resolved_older_than(31) == letters.archive_old_resolved(31) == 0
    assert letters.count_resolved_older_than(30) == letters.archive_old_resolved() == 1
    assert letters.count_resolved_older_than(0) == 0
    letter = read(letters, id)
    assert (letter.status, letter.resolved_at) == ("archived", resolved_at)
    assert letter.archived_at == letter.updated_at == clock.wall()


def test_archiving_leaves_other_statuses_alone(letters: Letters, clock: ManualClock) -> None:
    for status in FailedOperationStatus:
        made(letters, status)
    clock.advance(1)
    assert letters.archive_old_resolved(0) == 1
    assert letters.count(status="archived") == 2


def test_archiving_and_purging_have_no_row_cap(letters: Letters, clock: ManualClock) -> None:
    ids = [letter.id for letter in letters.create_many([{"domain": "d", "failure_type": "f"}] * 1100)]
    letters.bulk_update_status(ids, "resolved")
    clock.advance(1)
    assert letters.archive_old_resolved(0) == 1100
    assert letters.purge_archived(older_than_days=0) == 1100
    assert letters.count() == 0


@pytest.mark.parametrize("limit", [0, 3, 600, 1000])
def test_no_more_are_archived_and_purged_than_allowed(letters: Letters, clock: ManualClock, limit: int) -> None:
    ids = [letter.id for letter in letters.create_many([{"domain": "d", "failure_type": "f"}] * 700)]
    letters.bulk_update_status(ids, "resolved")
    clock.advance(1)
    assert letters.archive_old_resolved(0, limit=limit) == min(limit, 700)
    letters.archive_old_resolved(0)
    assert letters.purge_archived(older_than_days=0, limit=limit) == min(limit, 700)
    assert letters.count() == 700 - min(limit, 700)


def test_a_purge_without_a_choice_deletes_nothing(letters: Letters) -> None:
    made(letters, "archived")
    assert letters.purge_archived() == letters.purge_archived(ids=[]) == 0
    with pytest.raises(ValueError, match="not both"):
        letters.purge_archived(ids=[], older_than_days=3)
    for call in (letters.count_archived_older_than, lambda days: letters.purge_archived(older_than_days=days)):
        with pytest.raises(ValueError, match="at least 0"):
            call(-1)
    assert letters.count() == 1


def test_a_purge_by_ids_deletes_all_or_nothing(letters: Letters) -> None:
    archived = [made(letters, "archived") for _ in range(3)]
    for status in FailedOperationStatus:
        if status != "archived":
            other = made(letters, status)
            with pytest.raises(ValueError, match="not archived"):
                letters.purge_archived(ids=[*archived, other])
            assert letters.count(status="archived") == 3
    assert letters.purge_archived([archived[0], "nothing", archived[0], archived[1]]) == 2
    assert letters.count(status="archived") == 1


def test_a_purge_by_age_counts_from_the_resolution_else_from_archiving(letters: Letters, clock: ManualClock) -> None:
    never_resolved = made(letters, "archived")
    resolved = made(letters, "resolved")
    clock.advance(10 * DAY)
    letters.update_status(resolved, "archived")
    again = made(letters, "archived")
    for days, number in ((10, 0), (9, 2), (0, 3)):
        assert letters.count_archived_older_than(days) == number
    assert letters.purge_archived(older_than_days=10) == 0
    clock.advance(0.000001)
    assert letters.count_archived_older_than(10) == 2
    assert letters.purge_archived(older_than_days=10) == 2
    assert letters.get_by_id(never_resolved) is None
    assert letters.get_by_id(resolved) is None
    assert read(letters, again).status == "archived"
    assert letters.count_archived_older_than(10**15) == letters.purge_archived(older_than_days=10**15) == 0


def test_zero_days_is_every_archived_letter_without_looking_at_the_time(letters: Letters) -> None:
    made(letters, "archived")
    assert letters.count_archived_older_than(0) == 1
    assert letters.purge_archived(older_than_days=0) == 1


def test_cleanup_statistics_use_the_same_ages(letters: Letters, clock: ManualClock) -> None:
    assert letters.get_cleanup_stats() == {
        "total": 0, "by_status": {}, "resolved_older_than_30_days": 0, "archived_older_than_90_days": 0,
    }  # fmt: skip
    made(letters, "resolved")
    made(letters, "archived")
    made(letters, "pending")
    clock.advance(30 * DAY)
    assert letters.get_cleanup_stats()["resolved_older_than_30_days"] == 0
    clock.advance(1)
    assert letters.get_cleanup_stats()["resolved_older_than_30_days"] == 1
    clock.advance(60 * DAY)
    assert letters.get_cleanup_stats() == {
        "total": 3,
        "by_status": {"resolved": 1, "archived": 1, "pending": 1},
        "resolved_older_than_30_days": 1,
        "archived_older_than_90_days": 1,
    }


def test_eviction_looks_past_what_is_protected_and_what_is_done(letters: Letters, clock: ManualClock) -> None:
    protected = [made(letters, status) for status in ("replaying", "reviewing", "resolved", "rejected", "archived")]
    evictable = []
    for status in ("expired", "pending", "requires_review", "permanently_failed", "replayed", "pending"):
        clock.advance(1)
        evictable.append(made(letters, status))
    assert letters.get_oldest_ids(4) == evictable[:4]
    assert letters.get_oldest_ids(100) == evictable
    assert letters.evict_oldest(2) == 2
    assert letters.get_oldest_ids(100) == evictable[2:]
    assert letters.evict_oldest(100) == 4
    assert letters.evict_oldest(100) == 0
    assert sorted(letter.id for letter in letters.find()) == protected


def test_eviction_in_a_domain_leaves_the_others_alone(letters: Letters) -> None:
    first = made(letters, "pending", "a")
    second = made(letters, "requires_review", "b")
    third = made(letters, "pending", "b")
    assert letters.get_oldest_ids(9, "b") == [second, third]
    assert letters.get_oldest_ids(9, "c") == letters.get_oldest_ids(9, "") == []
    assert letters.evict_oldest(9, "b") == 2
    assert letters.evict_oldest(9, "") == 0
    assert letters.get_oldest_ids(9) == [first]


def test_eviction_has_no_row_cap(letters: Letters) -> None:
    letters.create_many([{"domain": "d", "failure_type": "f"}] * 1300)
    assert letters.evict_oldest(1299) == 1299
    assert letters.count() == 1


def test_compression_keeps_one_summary_of_each_group(letters: Letters, clock: ManualClock) -> None:
    first = letters.create("a", "F", "old", "E1", entity_id="1")
    clock.advance(1)
    letters.create("a", "F", "new", "E1", "order", "2", metadata={"m": 1})
    letters.create("a", "F", "other code", "E2")
    letters.create("b", "F", "other domain", "E1")
    kept = letters.create("b", "G", "stays")
    clock.advance(1)
    assert letters.compress_and_evict_oldest(4) == 4
    assert [letter.id for letter in letters.find()] == [kept.id]
    entries = {(entry.domain, entry.error_code): entry for entry in letters.get_compressed_entries()}
    assert {group: entry.count for group, entry in entries.items()} == {("a", "E1"): 2, ("a", "E2"): 1, ("b", "E1"): 1}
    entry = entries["a", "E1"]
    assert (entry.failure_type, entry.status, entry.sample_error_message) == ("F", "active", "new")
    assert entry.sample_context == {"entity_type": "order", "entity_id": "2", "metadata": {"m": 1}}
    assert (entry.first_seen, entry.last_seen) == (first.created_at, first.created_at + timedelta(seconds=1))
    assert entry.compressed_at == clock.wall()
    assert entry.id.startswith("compressed:a:F:E1:")
    assert letters.compress_and_evict_oldest(4, "a") == 0
    assert letters.get_compressed_summary()["total_compressed_items"] == 4


def test_compressing_twice_at_one_moment_keeps_both_summaries(letters: Letters) -> None:
    for _ in range(2):
        letters.create("a", "F", error_code="E")
        assert letters.compress_and_evict_oldest(1) == 1
    assert letters.get_compressed_summary()["total_summaries"] == 2


def test_a_large_compression_still_makes_one_summary_per_group(letters: Letters) -> None:
    letters.create_many([{"domain": "d", "failure_type": "f"}] * 1200)
    assert letters.compress_and_evict_oldest(1100) == 1100
    assert [entry.count for entry in letters.get_compressed_entries()] == [1100]
    assert letters.count() == 100


def test_a_group_with_long_names_has_a_summary_too(letters: Letters) -> None:
    letters.create("d" * 191, "f" * 191, error_code="e" * 5000)
    letters.create("d" * 191, "f" * 191, error_code="e" * 5001)
    assert letters.compress_and_evict_oldest(2) == 2
    assert sorted(len(entry.error_code) for entry in letters.get_compressed_entries()) == [5000, 5001]


def entry(clock: ManualClock, id: str = "compressed:d:f:e:1", **more: Any) -> DLQCompressedEntry:
    fields = {"domain": "d", "failure_type": "f", "error_code": "e", "count": 3, "sample_error_message": "m", **more}
    return DLQCompressedEntry(
        id, first_seen=clock.wall(), last_seen=clock.wall(), **{"compressed_at": clock.wall(), **fields}
    )


def test_storing_a_summary_replaces_one_with_the_same_id(letters: Letters, clock: ManualClock) -> None:
    first = entry(clock, sample_context={"a": 1})
    assert letters.store_compressed_entry(first) is True
    assert letters.get_compressed_entries() == [first]
    second = entry(clock, domain="e", count=0, status="stale", stale_at=clock.wall())
    assert letters.store_compressed_entry(second) is True
    assert letters.get_compressed_entries() == [second]
    with pytest.raises(ValueError, match="no status"):
        letters.store_compressed_entry(entry(clock, status="gone"))
    with pytest.raises(TypeError):
        letters.store_compressed_entry(entry(clock, sample_context={"a": object()}))
    with pytest.raises(ValueError, match="at most"):
        letters.store_compressed_entry(entry(clock, "x" * 192))
    assert letters.get_compressed_entries() == [second]


def test_summaries_come_latest_first_and_by_filter(letters: Letters, clock: ManualClock) -> None:
    for n in range(5):
        letters.store_compressed_entry(entry(clock, f"s{n}", domain="ab"[n % 2], status=["active", "stale"][n // 3]))
        clock.advance(n % 2)

    def ids(**filters: Any) -> list[str]:
        return [found.id for found in letters.get_compressed_entries(**filters)]

    assert ids() == ["s4", "s3", "s2", "s1", "s0"]
    assert ids(limit=2) == ["s4", "s3"]
    assert ids(domain="b") == ["s3", "s1"]
    assert ids(status="stale", domain="a") == ["s4"]
    assert ids(status="gone") == ids(domain="") == []


def test_the_overall_summary_has_all_three_statuses(letters: Letters, clock: ManualClock) -> None:
    nothing = {"active": 0, "stale": 0, "archived": 0}
    assert letters.get_compressed_summary() == {
        "total_summaries": 0, "total_compressed_items": 0, "by_status": nothing,
    }  # fmt: skip
    for n in range(1050):
        letters.store_compressed_entry(entry(clock, f"s{n}", count=2))
    letters.update_compressed_status("s7", "archived")
    assert letters.get_compressed_summary() == {
        "total_summaries": 1050,
        "total_compressed_items": 2100,
        "by_status": {"active": 1049, "stale": 0, "archived": 1},
    }


def test_a_status_is_stamped_when_it_is_entered(letters: Letters, clock: ManualClock) -> None:
    letters.store_compressed_entry(entry(clock, "s"))
    clock.advance(1)
    stale_at = clock.wall()
    assert letters.update_compressed_status("s", "stale") is True
    clock.advance(1)
    assert letters.update_compressed_status("s", "stale") is True
    assert letters.update_compressed_status("s", "archived") is True
    (found,) = letters.get_compressed_entries()
    assert (found.status, found.stale_at, found.archived_at) == ("archived", stale_at, clock.wall())
    with pytest.raises(ValueError, match="no status"):
        letters.update_compressed_status("s", "gone")
    assert letters.update_compressed_status("nothing", "stale") is False


def test_summaries_age_but_are_not_deleted(letters: Letters, clock: ManualClock) -> None:
    letters.store_compressed_entry(entry(clock, "old"))
    clock.advance(30 * DAY)
    assert letters.age_compressed_entries() == {"stale": 0, "archived": 0}
    clock.advance(1)
    letters.store_compressed_entry(entry(clock, "young"))
    assert letters.age_compressed_entries() == {"stale": 1, "archived": 0}
    clock.advance(60 * DAY)
    assert letters.age_compressed_entries() == {"stale": 1, "archived": 1}
    clock.advance(1000 * DAY)
    assert letters.age_compressed_entries() == {"stale": 0, "archived": 1}
    assert letters.get_compressed_summary()["by_status"] == {"active": 0, "stale": 0, "archived": 2}
