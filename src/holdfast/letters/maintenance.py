"""Maintenance: what time does to dead letters. Every step may run on several hosts at once."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from datetime import timedelta
from functools import partial
from typing import TYPE_CHECKING, Final

from holdfast.core.clock import SYSTEM_CLOCK, Clock
from holdfast.errors import PolicyError
from holdfast.letters.events import MaintenanceRan, SlaBreached
from holdfast.machine.bulk import BULK, FINISHED
from holdfast.machine.dead_letter import LETTER, LetterRecord
from holdfast.machine.drain import DOMAIN, tell, told_upto
from holdfast.store import lease
from holdfast.store.change import change
from holdfast.store.codec import duration
from holdfast.store.query import Condition, Cursor, among, equal
from holdfast.telemetry.hub import Hub, default_hub

if TYPE_CHECKING:
    from holdfast.letters.repository import FailedOperationRepository

DAY: Final = timedelta(days=1)
_UNSETTLED: Final = ("pending", "replaying", "reviewing")
_PAGE: Final = 500
# field: (least, most) days
_BOUNDS: Final = {"summaries_stale_days": (7, 365), "summaries_archived_days": (30, 730)}


@dataclass(frozen=True, slots=True)
class Schedule:
    """When what happens. A replay shows every 20 seconds that it lives, so one that is silent for minutes is stale.

    `service_levels` are how long a letter may wait, by domain or "default" (else 24 hours).
    """

    stale_after_minutes: int = 5
    archive_after_days: int = 30
    purge_after_days: int = 90
    summaries_stale_days: int = 30
    summaries_archived_days: int = 90
    service_levels: Mapping[str, timedelta] = field(default_factory=dict)

    def __post_init__(self) -> None:
        for name in ("stale_after_minutes", "archive_after_days", "purge_after_days"):
            if getattr(self, name) < 1:
                raise PolicyError(f"Schedule.{name} must be at least 1, got {getattr(self, name)}")
        for name, (least, most) in _BOUNDS.items():
            if not least <= getattr(self, name) <= most:
                raise PolicyError(f"Schedule.{name} must be from {least} to {most}, got {getattr(self, name)}")

    def service_level(self, domain: str) -> timedelta:
        return self.service_levels.get(domain, self.service_levels.get("default", DAY))


@dataclass(frozen=True, slots=True)
class MaintenanceReport:
    """How many letters were released, expired, archived and purged, summaries aged, and service levels missed."""

    released: int = 0
    expired: int = 0
    archived: int = 0
    purged: int = 0
    aged: int = 0
    breached: int = 0

    def __bool__(self) -> bool:
        return any(asdict(self).values())


class Maintenance:
    """Releases stale attempts, expires, archives, purges, ages summaries and tells of missed service levels."""

    def __init__(
        self,
        repository: FailedOperationRepository,
        schedule: Schedule | None = None,
        *,
        hub: Hub | None = None,
        clock: Clock = SYSTEM_CLOCK,
    ) -> None:
        self._repository = repository
        self._store = repository.store
        self.schedule = Schedule() if schedule is None else schedule
        self._hub = default_hub() if hub is None else hub
        self._clock = clock

    def run(self) -> MaintenanceReport:
        """Do everything that is due."""
        began = self._clock.monotonic()
        letters, schedule = self._repository, self.schedule
        report = MaintenanceReport(
            released=letters.release_stale_replaying(schedule.stale_after_minutes),
            expired=letters.expire_overdue(),
            archived=letters.archive_old_resolved(schedule.archive_after_days),
            purged=letters.purge_archived(older_than_days=schedule.purge_after_days),
            aged=sum(
                letters.age_compressed_entries(schedule.summaries_stale_days, schedule.summaries_archived_days).values()
            ),
            breached=sum(self._tell_breaches(domain) for domain in self._domains()),
        )
        self._forget_bulks()
        if report:
            self._hub.emit(MaintenanceRan("", "", **asdict(report), duration_s=self._clock.monotonic() - began))
        return report

    def run_if_due(self, every_s: float) -> MaintenanceReport | None:
        """Do it, unless this or another host did within the last `every_s` seconds."""
        # Nobody gives this lease back: it ends when the next run is due.
        if lease.acquire(self._store, "maintenance", every_s) is None:
            return None
        return self.run()

    def _domains(self) -> list[str]:
        return sorted(domain for (domain,) in self._store.tally(LETTER, ("domain",), (among("status", _UNSETTLED),)))

    def _tell_breaches(self, domain: str) -> int:
        """Tell of every letter that has waited too long, once: the domain remembers up to which one it was told."""
        level, told = self.schedule.service_level(domain), 0
        while True:
            now = self._store.now()
            since = told_upto(self._store.get(DOMAIN, (domain,))[0])
            page = self._late(domain, now - duration(level), since)
            if not page:
                return told
            upto = (page[-1].created_at, page[-1].id)
            if change(self._store, DOMAIN, domain, partial(tell, id=domain, since=since, upto=upto))[1] is None:
                return told  # another host is at it
            for letter in page:
                age = (now - letter.created_at) / 1e6
                self._hub.emit(SlaBreached(domain, "", letter.id, age, level.total_seconds()))
            told += len(page)

    def _late(self, domain: str, before: int, since: tuple[int, str] | None) -> list[LetterRecord]:
        where = (*equal(domain=domain), among("status", _UNSETTLED), Condition("created_at", "<", before))
        after = None if since is None else Cursor(*since)
        return self._store.page(LETTER, where, by="created_at", after=after, limit=_PAGE)

    def _forget_bulks(self) -> None:
        before = self._store.now() - duration(DAY * self.schedule.purge_after_days)
        self._store.sweep(BULK, (among("state", sorted(FINISHED)), Condition("finished_at", "<", before)))


def run_maintenance(
    repository: FailedOperationRepository,
    schedule: Schedule | None = None,
    *,
    hub: Hub | None = None,
    clock: Clock = SYSTEM_CLOCK,
) -> MaintenanceReport:
    """Do all maintenance that is due, once: for cron and for a task queue."""
    return Maintenance(repository, schedule, hub=hub, clock=clock).run()
