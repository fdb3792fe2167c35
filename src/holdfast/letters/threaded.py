"""The repository for asyncio: the same names and rules, one thread hop per call."""

from __future__ import annotations

from holdfast.letters.repository import FailedOperationRepository
from holdfast.store.hop import Hopping, hop


class AsyncFailedOperationRepository(Hopping[FailedOperationRepository]):
    """See `FailedOperationRepository`; made of one: `AsyncFailedOperationRepository(repository)`."""

    create = hop(FailedOperationRepository.create)
    create_many = hop(FailedOperationRepository.create_many)
    get_by_id = hop(FailedOperationRepository.get_by_id)
    update_status = hop(FailedOperationRepository.update_status)
    mark_as_resolved = hop(FailedOperationRepository.mark_as_resolved)
    bulk_update_status = hop(FailedOperationRepository.bulk_update_status)
    increment_retry_count = hop(FailedOperationRepository.increment_retry_count)
    delete = hop(FailedOperationRepository.delete)

    get_pending_by_domain = hop(FailedOperationRepository.get_pending_by_domain)
    get_pending_count_by_domain = hop(FailedOperationRepository.get_pending_count_by_domain)
    find_by_status = hop(FailedOperationRepository.find_by_status)
    find = hop(FailedOperationRepository.find)
    search = hop(FailedOperationRepository.search)
    count = hop(FailedOperationRepository.count)
    count_created_in_window = hop(FailedOperationRepository.count_created_in_window)
    count_all = hop(FailedOperationRepository.count_all)
    count_by_domain = hop(FailedOperationRepository.count_by_domain)
    find_replayable = hop(FailedOperationRepository.find_replayable)
    find_sla_breached = hop(FailedOperationRepository.find_sla_breached)
    get_expired_operations = hop(FailedOperationRepository.get_expired_operations)
    find_expired = hop(FailedOperationRepository.find_expired)
    get_oldest_ids = hop(FailedOperationRepository.get_oldest_ids)

    try_acquire_for_replay = hop(FailedOperationRepository.try_acquire_for_replay)
    acquire_many = hop(FailedOperationRepository.acquire_many)
    acquire_known = hop(FailedOperationRepository.acquire_known)
    change_known = hop(FailedOperationRepository.change_known)
    change_read = hop(FailedOperationRepository.change_read)
    heartbeat = hop(FailedOperationRepository.heartbeat)
    return_attempt = hop(FailedOperationRepository.return_attempt)
    complete_replay = hop(FailedOperationRepository.complete_replay)
    release_stale_replaying = hop(FailedOperationRepository.release_stale_replaying)
    get_attempts = hop(FailedOperationRepository.get_attempts)

    expire_overdue = hop(FailedOperationRepository.expire_overdue)
    archive_old_resolved = hop(FailedOperationRepository.archive_old_resolved)
    count_resolved_older_than = hop(FailedOperationRepository.count_resolved_older_than)
    purge_archived = hop(FailedOperationRepository.purge_archived)
    count_archived_older_than = hop(FailedOperationRepository.count_archived_older_than)
    get_cleanup_stats = hop(FailedOperationRepository.get_cleanup_stats)
    evict_oldest = hop(FailedOperationRepository.evict_oldest)
    compress_and_evict_oldest = hop(FailedOperationRepository.compress_and_evict_oldest)

    store_compressed_entry = hop(FailedOperationRepository.store_compressed_entry)
    get_compressed_entries = hop(FailedOperationRepository.get_compressed_entries)
    get_compressed_summary = hop(FailedOperationRepository.get_compressed_summary)
    update_compressed_status = hop(FailedOperationRepository.update_compressed_status)
    age_compressed_entries = hop(FailedOperationRepository.age_compressed_entries)

    get_statistics = hop(FailedOperationRepository.get_statistics)
    get_facet_counts = hop(FailedOperationRepository.get_facet_counts)
    inflow = hop(FailedOperationRepository.inflow)
