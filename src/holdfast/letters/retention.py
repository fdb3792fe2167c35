"""Ageing and eviction: set by set, in steps of bounded size, safe to run on several hosts at once."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from holdfast.errors import InvalidValue
from holdfast.letters.desk import until_settled
from holdfast.letters.finding import Finding
from holdfast.letters.summaries import summarise
from holdfast.letters.values import DAY, ago, is_id, size
from holdfast.machine.dead_letter import ARCHIVED, EXPIRABLE, LETTER, RESOLVED, SUMMARY, archived, expired
from holdfast.store.port import Change, Delete, Insert
from holdfast.store.query import Condition, Where, equal
from holdfast.store.record import Value

_CHUNK: Final = 500


class Retention(Finding):
    def expire_overdue(self) -> int:
        """Pending letters, and those that require review, past their `expires_at` become expired."""
        now = self._now()
        due = Condition("expires_at", "<", now)
        return sum(
            self._sweep((*equal(status=status), due), expired(now), "expires_at") for status in sorted(EXPIRABLE)
        )

    def archive_old_resolved(self, older_than_days: int = 30, *, limit: int | None = None) -> int:
        """Resolved letters become archived when they were resolved strictly longer ago, at most `limit` of them."""
        now = self._now()
        return self._sweep(_aged(RESOLVED, now, older_than_days), archived(now), "aged_at", limit)

    def count_resolved_older_than(self, older_than_days: int) -> int:
        """How many letters `archive_old_resolved` of that age would archive."""
        return self._count(_aged(RESOLVED, self._now(), older_than_days))

    def purge_archived(
        self, ids: list[str] | None = None, older_than_days: int | None = None, *, limit: int | None = None
    ) -> int:
        """Delete archived letters: these, or those older than so many days (0: all). Neither deletes nothing.

        `limit` is how many of the old ones go at most, those first that were resolved longest ago.
        Raises ValueError for both, for a negative age, and for an id that is not archived; then nothing is deleted.
        """
        if ids is not None and older_than_days is not None:
            raise InvalidValue("purge_archived takes ids or older_than_days, not both; call it twice")
        if ids is not None:
            asked = list(dict.fromkeys(id for id in ids if is_id(id)))
            return until_settled(lambda: self._purge_ids(asked)) if asked else 0
        if older_than_days is None:
            return 0
        return self._sweep(self._purgeable(older_than_days), None, "aged_at", limit)

    def count_archived_older_than(self, older_than_days: int) -> int:
        """How many letters `purge_archived` of that age would delete."""
        return self._count(self._purgeable(older_than_days))

    def get_cleanup_stats(self) -> dict[str, Any]:
        """`total`, `by_status`, `resolved_older_than_30_days` and `archived_older_than_90_days`."""
        now = self._now()
        by_status = {status: number for (status,), number in self.store.tally(LETTER, ("status",)).items()}
        return {
            "total": sum(by_status.values()),
            "by_status": by_status,
            "resolved_older_than_30_days": self._count(_aged(RESOLVED, now, 30)),
            "archived_older_than_90_days": self._count(_aged(ARCHIVED, now, 90)),
        }

    def evict_oldest(self, count: int, domain: str | None = None) -> int:
        """Delete the oldest active letters that nobody holds; how many went."""
        return self._evict(size(count), domain, summarised=False)

    def compress_and_evict_oldest(self, count: int, domain: str | None = None) -> int:
        """As `evict_oldest`, keeping a summary of each group in the same transaction."""
        return self._evict(size(count), domain, summarised=True)

    def _evict(self, count: int, domain: str | None, *, summarised: bool) -> int:
        gone = 0

        def step() -> int:
            # Summaries of one call are made in one piece, or a group would get several.
            victims = self._evictable(count if summarised else min(_CHUNK, count - gone), domain)
            changes: list[Change] = [Delete(LETTER, letter) for letter in victims]
            if summarised:
                changes += [Insert(SUMMARY, summary) for summary in summarise(victims, self._now())]
            if changes:
                self.store.commit(changes)
            return len(victims)

        while gone < count and (went := until_settled(step)):
            gone += went
            if summarised:
                break
        return gone

    def _purge_ids(self, ids: list[str]) -> int:
        found = [letter for letter in self.store.get(LETTER, ids) if letter is not None]
        for letter in found:
            if letter.status != ARCHIVED:
                raise InvalidValue(f"letter {letter.id} is {letter.status}, not archived; nothing was purged")
        if found:
            self.store.commit([Delete(LETTER, letter) for letter in found])
        return len(found)

    def _purgeable(self, older_than_days: int) -> Where:
        if older_than_days < 0:
            raise InvalidValue(f"older_than_days must be at least 0, got {older_than_days}; use 0 for all letters")
        return equal(status=ARCHIVED) if older_than_days == 0 else _aged(ARCHIVED, self._now(), older_than_days)

    def _sweep(self, where: Where, change: Mapping[str, Value] | None, by: str, limit: int | None = None) -> int:
        moved = 0
        while True:
            most = _CHUNK if limit is None else min(_CHUNK, limit - moved)
            done = self.store.sweep(LETTER, where, change, by=by, limit=most) if most > 0 else 0
            moved += done
            if done < most or most <= 0:
                return moved


def _aged(status: str, now: int, days: float) -> Where:
    """Letters of the status that entered it, or were resolved before that, strictly longer ago."""
    return (*equal(status=status), Condition("aged_at", "<", ago(now, days, DAY)))
