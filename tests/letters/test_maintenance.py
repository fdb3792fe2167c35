"""What time does to letters, once, on however many hosts."""

from __future__ import annotations

from datetime import timedelta

import pytest

from holdfast.errors import PolicyError
from holdfast.letters.bulk import Bulk, LetterFilter
from holdfast.letters.events import MaintenanceRan, SlaBreached
from holdfast.letters.maintenance import Maintenance, MaintenanceReport, Schedule, run_maintenance
from holdfast.store.port import Store
from holdfast.testing.clock import ManualClock
from tests.letters.replay_kit import Kit

DAY = 86_400.0


def maintenance(kit: Kit, **schedule: object) -> Maintenance:
    return Maintenance(kit.letters, Schedule(**schedule), hub=kit.hub, clock=kit.clock)  # type: ignore[arg-type]


def test_everything_that_is_due_happens_once(store: Store, clock: ManualClock) -> None:
    kit = Kit(store, clock)
    soon = clock.wall() + timedelta(minutes=5)
    stale, expiring, done, waits = (kit.letter(n, **f) for n, f in (  # type: ignore[arg-type]
        ("a", {}), ("b", {"expires_at": soon}), ("c", {}), ("d", {}),
    ))  # fmt: skip
    assert kit.letters.try_acquire_for_replay(stale.id, 3) is not None
    kit.letters.mark_as_resolved(done.id, "manual")
    clock.advance(31 * 60)
    assert maintenance(kit).run() == MaintenanceReport(released=1, expired=1)
    assert [kit.status(one.id) for one in (stale, expiring, done, waits)] == [
        "pending", "expired", "resolved", "pending",
    ]  # fmt: skip
    clock.advance(31 * DAY)
    report = maintenance(kit).run()
    assert (report.archived, report.purged, report.breached) == (1, 0, 2)
    clock.advance(91 * DAY)
    assert maintenance(kit).run().purged == 1
    assert kit.letters.get_by_id(done.id) is None
    assert not maintenance(kit).run()


def test_a_missed_service_level_is_told_once_per_letter(store: Store, clock: ManualClock) -> None:
    kit = Kit(store, clock)
    levels = {"payments": timedelta(hours=1), "default": timedelta(hours=2)}
    first = kit.letter("a")
    other = kit.letters.create("mail", "X")
    clock.advance(3600)
    assert maintenance(kit, service_levels=levels).run().breached == 0  # exactly an hour is not more than an hour
    clock.advance(1)
    second = kit.letter("b")
    assert maintenance(kit, service_levels=levels).run().breached == 1
    assert maintenance(kit, service_levels=levels).run().breached == 0
    clock.advance(3601)
    assert maintenance(kit, service_levels=levels).run().breached == 2
    told = kit.told(SlaBreached)
    assert sorted(event.letter_id for event in told) == sorted([first.id, second.id, other.id])
    assert (told[0].operation_key, told[0].limit_s, told[0].age_s) == ("payments", 3600, 3601)


def test_more_late_letters_than_fit_a_page_are_all_told() -> None:
    kit = Kit()
    kit.letters.create_many([{"domain": "payments", "failure_type": "X"} for _ in range(1203)])
    kit.clock.advance(2 * DAY)
    assert maintenance(kit).run().breached == 1203
    assert len({event.letter_id for event in kit.told(SlaBreached)}) == 1203


def test_what_was_resolved_in_time_is_not_told() -> None:
    kit = Kit()
    kit.letters.mark_as_resolved(kit.letter().id, "manual")
    kit.clock.advance(2 * DAY)
    assert maintenance(kit).run().breached == 0


def test_summaries_age() -> None:
    kit = Kit()
    kit.letter()
    kit.letters.compress_and_evict_oldest(1)
    kit.clock.advance(31 * DAY)
    assert maintenance(kit).run().aged == 1
    assert kit.letters.get_compressed_summary()["by_status"] == {"active": 0, "stale": 1, "archived": 0}
    kit.clock.advance(60 * DAY)
    assert maintenance(kit).run().aged == 1


def test_one_host_in_an_interval_does_it(store: Store, clock: ManualClock) -> None:
    kit = Kit(store, clock)
    here, there = maintenance(kit), maintenance(kit)
    assert here.run_if_due(60) is not None
    assert there.run_if_due(60) is None
    clock.advance(60)
    assert there.run_if_due(60) is not None
    assert here.run_if_due(60) is None


def test_old_bulk_operations_are_forgotten() -> None:
    kit = Kit()
    bulk = Bulk(kit.replayer)
    begun = bulk.start(LetterFilter(domain="payments"))
    bulk.run(begun.id)
    kit.clock.advance(89 * DAY)
    maintenance(kit).run()
    assert bulk.progress(begun.id) is not None
    kit.clock.advance(2 * DAY)
    maintenance(kit).run()
    assert bulk.progress(begun.id) is None


def test_what_moved_is_told_and_nothing_is_silent() -> None:
    kit = Kit()
    kit.letter(expires_at=kit.clock.wall())
    kit.clock.advance(1)
    assert run_maintenance(kit.letters, hub=kit.hub, clock=kit.clock).expired == 1
    run_maintenance(kit.letters, hub=kit.hub, clock=kit.clock)
    [event] = kit.told(MaintenanceRan)
    assert event.expired == 1


@pytest.mark.parametrize(
    "wrong",
    [{"stale_after_minutes": 0}, {"summaries_stale_days": 6}, {"summaries_archived_days": 731}],
)
def test_a_schedule_that_cannot_work_is_refused(wrong: dict[str, int]) -> None:
    with pytest.raises(PolicyError, match=next(iter(wrong))):
        Schedule(**wrong)  # type: ignore[arg-type]
