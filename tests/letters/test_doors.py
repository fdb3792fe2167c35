"""The seed's names for the repository on each kind of store."""

from __future__ import annotations

import inspect
from pathlib import Path
from typing import Any

import pytest

from holdfast.backends.memory import MemoryStore
from holdfast.letters.doors import (
    InMemoryFailedOperationRepository,
    RedisDLQRepository,
    SQLFailedOperationRepository,
)
from holdfast.letters.repository import FailedOperationRepository
from holdfast.testing.clock import ManualClock
from tests.stores import make_place

SEED: dict[str, str] = {
    "create": "domain, failure_type, error_message='', error_code='', entity_type=None, entity_id=None, "
    "entity_refs=None, user_id=None, snapshot_data=None, request_data=None, response_data=None, metadata=None, "
    "retry_count=0, max_retries=2, next_action_hint='', recommended_action='', expires_at=None",
    "get_by_id": "id",
    "get_pending_by_domain": "domain, limit=100",
    "get_pending_count_by_domain": "domain",
    "update_status": "id, status, resolution_type='', resolution_note='', resolved_by_id=None, recommended_action=''",
    "increment_retry_count": "id",
    "mark_as_resolved": "id, resolution_type, resolution_note='', resolved_by_id=None",
    "get_expired_operations": "before_date, limit=100",
    "bulk_update_status": "ids, status",
    "find_by_status": "status, domain=None, failure_type=None, limit=100",
    "find": "*, status=None, domain=None, failure_type=None, offset=0, limit=100",
    "count": "*, status=None, domain=None, failure_type=None",
    "count_created_in_window": "start, end",
    "find_replayable": "max_retries, domain=None, failure_type=None, limit=100",
    "find_sla_breached": "current_time, sla_thresholds",
    "find_expired": "current_time",
    "get_statistics": "",
    "get_facet_counts": "*, status=None, domain=None",
    "try_acquire_for_replay": "id, max_retries, force=False",
    "complete_replay": "id, success, resolution_type='', note='', resolved_by_id=None, error_details=None",
    "release_stale_replaying": "older_than_minutes=30",
    "archive_old_resolved": "older_than_days=30",
    "purge_archived": "ids=None, older_than_days=None",
    "get_cleanup_stats": "",
    "count_archived_older_than": "older_than_days",
    "count_all": "",
    "count_by_domain": "domain",
    "get_oldest_ids": "count, domain=None",
    "delete": "entry_id",
    "evict_oldest": "count, domain=None",
    "compress_and_evict_oldest": "count, domain=None",
    "store_compressed_entry": "entry",
    "get_compressed_entries": "domain=None, status=None, limit=100",
    "get_compressed_summary": "",
    "update_compressed_status": "entry_id, new_status",
}


@pytest.mark.parametrize("name", SEED)
def test_every_method_has_the_seeds_names_order_and_defaults(name: str) -> None:
    promised: dict[str, Any] = {}
    exec(f"def method(self, {SEED[name]}): ...", promised)
    seed = inspect.signature(promised["method"]).parameters
    ours = inspect.signature(getattr(FailedOperationRepository, name)).parameters
    for parameter in seed.values():
        assert ours[parameter.name].default == parameter.default
        assert ours[parameter.name].kind == parameter.kind
    positional = [p.name for p in seed.values() if p.kind is p.POSITIONAL_OR_KEYWORD]
    assert [p.name for p in ours.values() if p.kind is p.POSITIONAL_OR_KEYWORD] == positional
    assert all(p.default is not p.empty for p in ours.values() if p.name not in seed)


def test_memory_lasts_as_long_as_its_object() -> None:
    clock = ManualClock()
    letters = InMemoryFailedOperationRepository(clock)
    letter = letters.create("d", "f")
    assert letter.created_at == clock.wall()
    assert letters.get_by_id(letter.id) == letter
    assert InMemoryFailedOperationRepository().count() == 0
    assert repr(letters) == "<InMemoryFailedOperationRepository memory://>"


def test_sql_keeps_letters_beyond_its_object(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path / 'letters.db'}"
    clock = ManualClock()
    first = SQLFailedOperationRepository(url, clock=clock)
    letter = first.create("d", "f", request_data={"a": 1})
    first.store.close()
    second = SQLFailedOperationRepository(url, clock=clock)
    assert second.get_by_id(letter.id) == letter
    assert second.compress_and_evict_oldest(1) == 1
    assert second.get_compressed_summary()["total_summaries"] == 1
    second.store.close()


def test_construction_touches_no_file(tmp_path: Path) -> None:
    SQLFailedOperationRepository(f"sqlite:///{tmp_path / 'letters.db'}")
    assert list(tmp_path.iterdir()) == []


def test_redis_keeps_letters_beyond_its_object(tmp_path: Path) -> None:
    place = make_place("redis", tmp_path)
    first = RedisDLQRepository(place.url)
    letter = first.create("d", "f")
    first.store.close()
    second = RedisDLQRepository(place.open())
    assert second.get_by_id(letter.id) == letter
    second.store.close()


@pytest.mark.parametrize(
    ("door", "url"),
    [
        (SQLFailedOperationRepository, "redis://localhost/0"),
        (SQLFailedOperationRepository, "memory://"),
        (RedisDLQRepository, "sqlite:///letters.db"),
        (SQLFailedOperationRepository, MemoryStore()),
        (RedisDLQRepository, MemoryStore()),
    ],
)
def test_a_store_of_another_kind_is_refused(door: Any, url: Any) -> None:
    with pytest.raises(ValueError, match="use a URL that begins with"):
        door(url)
