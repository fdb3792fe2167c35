"""Whatever is done to two repositories, one in memory and one on another store, they tell the same story."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import asdict
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule, run_state_machine_as_test

from holdfast.backends.memory import MemoryStore
from holdfast.letters.data import DLQCompressedEntry, FailedOperationData, FailedOperationStatus, ReplayAttempt
from holdfast.letters.repository import FailedOperationRepository
from holdfast.testing.clock import ManualClock
from tests.conftest import SIZE
from tests.stores import SHARED_STORES, fresh_store

DOMAINS = st.sampled_from(["a", "b", ""])
KINDS = st.sampled_from(["F", "G"])
STATUSES = st.sampled_from([status.value for status in FailedOperationStatus])
PLACES = st.integers(0, 30)
SMALL = st.integers(-1, 6)


class TwoRepositories(RuleBasedStateMachine):
    def __init__(self, name: str, tmp_path: Path) -> None:
        super().__init__()
        self.clock = ManualClock()
        self.opened = ExitStack()
        store = self.opened.enter_context(fresh_store(name, tmp_path, clock=self.clock))
        self.both = [FailedOperationRepository(MemoryStore(self.clock)), FailedOperationRepository(store)]
        self.ids: list[list[str]] = [[], []]

    def teardown(self) -> None:
        self.opened.close()

    def ask(self, question: Callable[[FailedOperationRepository, list[str]], Any]) -> Any:
        """The answer of both, which must be the same once ids and tokens are told apart no more."""
        answers = []
        for letters, ids in zip(self.both, self.ids, strict=True):
            try:
                answer = question(letters, ids)
            except ValueError as error:
                answer = type(error)
            answers.append(self.plain(answer, ids))
        assert answers[0] == answers[1]
        return answers[0]

    def plain(self, answer: Any, ids: list[str]) -> Any:
        match answer:
            case list():
                return [self.plain(item, ids) for item in answer]
            case FailedOperationData():
                if answer.id not in ids:
                    ids.append(answer.id)
                return asdict(answer) | {"id": ids.index(answer.id), "attempt_token": answer.attempt_token is not None}
            case ReplayAttempt():
                return asdict(answer) | {"operation_id": None, "token": None}
            case DLQCompressedEntry():
                return asdict(answer) | {"id": answer.id.rpartition(":")[0]}
            case str() if answer in ids:
                return ids.index(answer)
        return answer

    @rule(seconds=st.sampled_from([0.000001, 1, 60, 3600, 40 * 86_400]))
    def time_passes(self, seconds: float) -> None:
        self.clock.advance(seconds)

    @rule(
        domain=DOMAINS,
        kind=KINDS,
        key=st.sampled_from([None, None, "k", "l"]),
        cap=st.integers(0, 3),
        expires=st.sampled_from([None, -1, 60]),
        waits=st.sampled_from([None, -1, 60]),
    )
    def create(self, domain: str, kind: str, key: str | None, cap: int, expires: int | None, waits: int | None) -> None:
        def at(seconds: int | None) -> Any:
            return None if seconds is None else self.clock.wall() + timedelta(seconds=seconds)

        self.ask(
            lambda letters, _: letters.create(
                domain, kind, "message", kind, entity_id=domain + kind, user_id=cap, metadata={"source": kind},
                max_retries=cap, expires_at=at(expires), dedup_key=key, next_attempt_at=at(waits),
            )
        )  # fmt: skip

    @rule(keys=st.lists(st.sampled_from([None, "k", "l"]), max_size=4), domain=DOMAINS)
    def create_many(self, keys: list[str | None], domain: str) -> None:
        drafts = [{"domain": domain, "failure_type": "F", "dedup_key": key} for key in keys]
        self.ask(lambda letters, _: letters.create_many(drafts))

    @rule(at=PLACES, cap=st.integers(0, 3), force=st.booleans())
    def acquire(self, at: int, cap: int, force: bool) -> None:
        self.ask(lambda letters, ids: letters.try_acquire_for_replay(_at(ids, at), cap, force, trigger="t"))

    @rule(domain=DOMAINS, limit=SMALL, cap=st.integers(0, 3), kind=st.none() | KINDS)
    def acquire_many(self, domain: str, limit: int, cap: int, kind: str | None) -> None:
        self.ask(
            lambda letters, _: letters.acquire_many(domain=domain, limit=limit, max_retries=cap, failure_type=kind)
        )

    @rule(at=PLACES, success=st.booleans(), note=st.sampled_from(["", "note"]), waits=st.none() | st.integers(0, 90))
    def complete(self, at: int, success: bool, note: str, waits: int | None) -> None:
        retry_at = None if waits is None else self.clock.wall() + timedelta(seconds=waits)
        details = {"error_type": "E", "source": "H"} if note else None
        self.ask(
            lambda letters, ids: letters.complete_replay(
                _at(ids, at), success, note, note, None, details, attempt_token=_token(letters, _at(ids, at)),
                retry_at=retry_at,
            )
        )  # fmt: skip

    @rule(at=PLACES, returned=st.booleans())
    def heartbeat_or_return(self, at: int, returned: bool) -> None:
        def act(letters: FailedOperationRepository, ids: list[str]) -> bool:
            token = _token(letters, _at(ids, at)) or "none"
            return letters.return_attempt(_at(ids, at), token) if returned else letters.heartbeat(_at(ids, at), token)

        self.ask(act)

    @rule(at=PLACES, status=STATUSES, by=st.sampled_from([None, 0, "ann"]))
    def update(self, at: int, status: str, by: Any) -> None:
        self.ask(lambda letters, ids: letters.update_status(_at(ids, at), status, "manual", "", by))

    @rule(places=st.lists(PLACES, max_size=5), status=STATUSES)
    def bulk_update(self, places: list[int], status: str) -> None:
        self.ask(lambda letters, ids: letters.bulk_update_status([_at(ids, at) for at in places], status))

    @rule(at=PLACES)
    def increment(self, at: int) -> None:
        self.ask(lambda letters, ids: letters.increment_retry_count(_at(ids, at)))

    @rule(at=PLACES)
    def delete(self, at: int) -> None:
        self.ask(lambda letters, ids: letters.delete(_at(ids, at)))

    @rule(days=st.integers(0, 50), minutes=st.integers(0, 90), places=st.lists(PLACES, max_size=3))
    def maintain(self, days: int, minutes: int, places: list[int]) -> None:
        self.ask(lambda letters, _: letters.release_stale_replaying(minutes))
        self.ask(lambda letters, _: letters.expire_overdue())
        self.ask(lambda letters, _: letters.count_resolved_older_than(days))
        self.ask(lambda letters, _: letters.archive_old_resolved(days))
        self.ask(lambda letters, _: letters.count_archived_older_than(days))
        self.ask(lambda letters, ids: letters.purge_archived(ids=[_at(ids, at) for at in places]))
        self.ask(lambda letters, _: letters.purge_archived(older_than_days=days))
        self.ask(lambda letters, _: letters.age_compressed_entries())

    @rule(count=SMALL, domain=st.none() | DOMAINS, compress=st.booleans())
    def evict(self, count: int, domain: str | None, compress: bool) -> None:
        self.ask(lambda letters, _: letters.get_oldest_ids(count, domain))
        if compress:
            self.ask(lambda letters, _: letters.compress_and_evict_oldest(count, domain))
        else:
            self.ask(lambda letters, _: letters.evict_oldest(count, domain))

    @rule(
        status=st.none() | STATUSES,
        domain=st.none() | DOMAINS,
        kind=st.none() | KINDS,
        entity=st.sampled_from([None, "aF", ""]),
        user=st.sampled_from([None, 0, 1]),
        offset=SMALL,
        limit=SMALL,
    )
    def look(self, **filters: Any) -> None:
        kind, entity, user = filters.pop("kind"), filters.pop("entity"), filters.pop("user")
        narrow = {"failure_type": kind, "entity_id": entity, "user_id": user}
        self.ask(lambda letters, _: letters.find(**filters, **narrow))
        offset, limit = filters.pop("offset"), filters.pop("limit")
        self.ask(lambda letters, _: letters.count(**filters, **narrow))
        self.ask(lambda letters, _: letters.get_facet_counts(**filters))
        self.ask(
            lambda letters, _: letters.find_by_status(filters["status"] or "pending", filters["domain"], kind, limit)
        )
        self.ask(lambda letters, _: letters.find_replayable(offset, filters["domain"], kind, limit, source=kind))
        self.ask(lambda letters, _: letters.get_expired_operations(self.clock.wall(), limit))
        spans = {"a": timedelta(seconds=60), "default": timedelta(seconds=1)}
        self.ask(lambda letters, _: letters.find_sla_breached(self.clock.wall(), spans))
        self.ask(lambda letters, _: letters.count_created_in_window(self.clock.wall(), self.clock.wall()))

    @invariant()
    def both_hold_the_same(self) -> None:
        everything = self.ask(lambda letters, _: letters.find(limit=1000))
        statistics = self.ask(lambda letters, _: letters.get_statistics())
        assert statistics["total"] == len(everything)
        self.ask(lambda letters, ids: [letters.get_attempts(id) for id in ids])
        self.ask(lambda letters, _: letters.get_cleanup_stats())
        self.ask(lambda letters, _: letters.get_compressed_summary())
        self.ask(lambda letters, _: letters.get_compressed_entries())
        self.ask(lambda letters, _: [letters.inflow(), letters.inflow("a", self.clock.wall())])


def _at(ids: list[str], at: int) -> str:
    return ids[at] if at < len(ids) else "nothing"


def _token(letters: FailedOperationRepository, id: str) -> str | None:
    found = letters.get_by_id(id)
    return None if found is None else found.attempt_token


@pytest.mark.parametrize("name", SHARED_STORES)
def test_every_store_does_what_memory_does(name: str, tmp_path: Path) -> None:
    run_state_machine_as_test(
        lambda: TwoRepositories(name, tmp_path),
        settings=settings(
            max_examples=10 * SIZE, stateful_step_count=40, deadline=None, suppress_health_check=list(HealthCheck)
        ),
    )
