"""Summaries of letters that were compressed."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from holdfast.errors import InvalidValue
from holdfast.letters.data import DLQCompressedEntry, entry_of
from holdfast.letters.desk import Desk
from holdfast.letters.values import DAY, ago, checked_dict, size, sought, text, time, whole
from holdfast.machine.dead_letter import SUMMARY, DLQCompressedStatus, LetterRecord, SummaryRecord
from holdfast.machine.letter_summary import LONGEST_ID, aged, change_status, summary_id
from holdfast.store.change import change
from holdfast.store.codec import clean_text, from_json, micros, to_json
from holdfast.store.ids import new_record_id
from holdfast.store.paging import every
from holdfast.store.query import Condition, equal

_CHUNK: Final = 1000


class Summaries(Desk):
    def store_compressed_entry(self, entry: DLQCompressedEntry) -> bool:
        """Keep the entry, in the place of one with the same id."""
        new = _record(entry)

        def decide(found: SummaryRecord | None) -> SummaryRecord:
            return new if found is None else new._replace(version=found.version + 1)

        change(self.store, SUMMARY, new.id, decide)
        return True

    def get_compressed_entries(
        self, domain: str | None = None, status: str | None = None, limit: int = 100
    ) -> list[DLQCompressedEntry]:
        """The latest first."""
        scope = {"domain": domain, "status": status}
        where = equal(**{name: sought(name, value) for name, value in scope.items() if value is not None})
        if size(limit) == 0:
            return []
        found = self.store.page(SUMMARY, where, by="compressed_at", descending=True, limit=size(limit))
        return [entry_of(record) for record in found]

    def get_compressed_summary(self) -> dict[str, Any]:
        """`total_summaries`, `total_compressed_items` and `by_status` with all three, zeros included."""
        by_status = dict.fromkeys((status.value for status in DLQCompressedStatus), 0)
        items = 0
        for record in every(self.store, SUMMARY):
            by_status[record.status] += 1
            items += record.items
        return {
            "total_summaries": sum(by_status.values()),
            "total_compressed_items": items,
            "by_status": by_status,
        }

    def update_compressed_status(self, entry_id: str, new_status: str) -> bool:
        """Whether there is such an entry. Raises ValueError for a status that does not exist."""
        status, now = _status(new_status), self._now()

        def decide(found: SummaryRecord | None) -> SummaryRecord | None:
            return None if found is None else change_status(found, now, status)

        if not isinstance(entry_id, str):
            return False
        return change(self.store, SUMMARY, clean_text(entry_id), decide)[1] is not None

    def age_compressed_entries(self, stale_after_days: float = 30, archive_after_days: float = 90) -> dict[str, int]:
        """Active entries become stale and stale ones archived; how many, by the status that they got."""
        now = self._now()
        steps = (
            (DLQCompressedStatus.ACTIVE, DLQCompressedStatus.STALE, stale_after_days),
            (DLQCompressedStatus.STALE, DLQCompressedStatus.ARCHIVED, archive_after_days),
        )
        moved: dict[str, int] = {}
        for old, new, days in steps:
            where = (*equal(status=old.value), Condition("compressed_at", "<", ago(now, days, DAY)))
            moved[new.value] = 0
            while done := self.store.sweep(SUMMARY, where, aged(now, new), by="compressed_at", limit=_CHUNK):
                moved[new.value] += done
        return moved


def summarise(letters: Sequence[LetterRecord], now: int) -> list[SummaryRecord]:
    """One summary for each domain, failure type and error code, with a sample of the newest letter."""
    groups: dict[tuple[str, str, str], list[tuple[LetterRecord, Any]]] = {}
    for letter in letters:
        payload = from_json(letter.payload)
        group = (letter.domain, letter.failure_type, payload.get("error_code", ""))
        groups.setdefault(group, []).append((letter, payload))
    return [_summary(group, members, now) for group, members in groups.items()]


def _summary(group: tuple[str, str, str], members: list[tuple[LetterRecord, Any]], now: int) -> SummaryRecord:
    newest, payload = max(members, key=lambda member: (member[0].created_at, member[0].id))
    context = {
        "entity_type": newest.entity_type,
        "entity_id": newest.entity_id,
        "metadata": from_json(newest.metadata),
    }
    stamp = int(new_record_id(now)[:14], 16)  # as `now`, but never the same twice
    return SummaryRecord(
        id=summary_id(*group, stamp),
        version=1,
        due_at=None,
        domain=group[0],
        failure_type=group[1],
        error_code=group[2],
        status=DLQCompressedStatus.ACTIVE.value,
        items=len(members),
        first_seen=min(letter.created_at for letter, _ in members),
        last_seen=newest.created_at,
        compressed_at=now,
        stale_at=None,
        archived_at=None,
        sample_error_message=payload.get("error_message", ""),
        sample_context=to_json(context),
    )


def _record(entry: DLQCompressedEntry) -> SummaryRecord:
    """The first version of the entry's record. Raises TypeError or ValueError for what cannot be stored."""
    id = clean_text(entry.id)
    if len(id) > LONGEST_ID:
        raise InvalidValue(f"the id has {len(id)} characters; a summary's id has at most {LONGEST_ID}")
    return SummaryRecord(
        id=id,
        version=1,
        due_at=None,
        domain=text("domain", entry.domain),
        failure_type=text("failure_type", entry.failure_type),
        error_code=text("error_code", entry.error_code),
        status=_status(entry.status),
        items=whole("count", entry.count),
        first_seen=micros(entry.first_seen),
        last_seen=micros(entry.last_seen),
        compressed_at=micros(entry.compressed_at),
        stale_at=time("stale_at", entry.stale_at),
        archived_at=time("archived_at", entry.archived_at),
        sample_error_message=text("sample_error_message", entry.sample_error_message),
        sample_context=to_json(checked_dict("sample_context", entry.sample_context)),
    )


def _status(status: Any) -> str:
    try:
        return DLQCompressedStatus(status).value
    except ValueError:
        known = ", ".join(DLQCompressedStatus)
        raise InvalidValue(f"{status!r} is no status of a summary; use one of {known}") from None
