"""What a bulk operation is about, and how far it is."""

from __future__ import annotations

from dataclasses import asdict, dataclass, replace
from datetime import datetime
from typing import Any, Final

from holdfast.letters.values import identity, sought
from holdfast.machine import bulk as machine
from holdfast.machine.bulk import BulkAction, BulkRecord, BulkState
from holdfast.machine.dead_letter import ACTIVE, IN_FLIGHT
from holdfast.store.codec import from_json, instant, maybe_instant, micros, to_json
from holdfast.store.query import Condition, Where, among, equal

CONCERNED: Final[dict[BulkAction, frozenset[str]]] = {
    BulkAction.REPLAY: frozenset({"pending"}),
    BulkAction.FORCE_REPLAY: frozenset({"pending", "requires_review"}),
    BulkAction.RESOLVE: ACTIVE - IN_FLIGHT,
    BulkAction.DISCARD: ACTIVE - IN_FLIGHT,
}
"""The statuses on which an action acts; letters in any other one are not part of the operation."""


@dataclass(frozen=True, slots=True)
class LetterFilter:
    """Which letters are meant: all that are given must be equal; both ends of the time are included.

    With an `id` it is one letter: so that a worker replays it which knows how.
    """

    status: str | None = None
    domain: str | None = None
    failure_type: str | None = None
    entity_type: str | None = None
    entity_id: str | None = None
    user_id: int | str | None = None
    created_from: datetime | None = None
    created_to: datetime | None = None
    id: str | None = None

    def where(self) -> Where:
        texts = ("id", "status", "domain", "failure_type", "entity_type", "entity_id")
        given = {name: sought(name, value) for name in texts if (value := getattr(self, name)) is not None}
        found = list(equal(**given))
        if self.user_id is not None:
            found.append(Condition("user_id", "=", identity("user_id", self.user_id)))
        if self.created_from is not None:
            found.append(Condition("created_at", ">=", micros(self.created_from)))
        if self.created_to is not None:
            found.append(Condition("created_at", "<=", micros(self.created_to)))
        return tuple(found)

    def to_json(self) -> str:
        return to_json({name: value for name, value in asdict(self).items() if value is not None})

    @classmethod
    def from_json(cls, text: str) -> LetterFilter:
        given: dict[str, Any] = from_json(text)
        for name in ("created_from", "created_to"):
            if name in given:
                given[name] = datetime.fromisoformat(given[name])
        return cls(**given)


@dataclass(frozen=True, slots=True)
class BulkPreview:
    """What an operation would act on: how many letters, by domain and by status, and the oldest few."""

    total: int
    by_domain: dict[str, int]
    by_status: dict[str, int]
    sample: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class BulkProgress:
    """How far an operation is. `note` says why it waits, failed or was aborted."""

    id: str
    action: BulkAction
    state: BulkState
    filter: LetterFilter
    total: int
    done: int
    succeeded: int
    failed: int
    skipped: int
    requested_by: str
    reason: str
    note: str
    created_at: datetime
    started_at: datetime | None
    finished_at: datetime | None

    @property
    def is_over(self) -> bool:
        return self.state in machine.FINISHED

    @property
    def cursor(self) -> str:
        """Where a page that ends with this operation goes on; for `after=`."""
        return f"{micros(self.created_at):x}.{self.id}"


def progress_of(record: BulkRecord) -> BulkProgress:
    return BulkProgress(
        record.id, BulkAction(record.action), BulkState(record.state), LetterFilter.from_json(record.filter),
        record.total, record.done, record.succeeded, record.failed, record.skipped, record.requested_by, record.reason,
        record.note, instant(record.created_at), maybe_instant(record.started_at), maybe_instant(record.finished_at),
    )  # fmt: skip


def scope_of(filter: LetterFilter, action: BulkAction, upper: int) -> Where:
    """The letters on which the action acts, up to this time of creation."""
    return (
        *filter.where(),
        among("status", sorted(CONCERNED[action])),
        Condition("created_at", "<=", upper),
    )


def whole_scope_of(filter: LetterFilter, action: BulkAction) -> Where | None:
    """The same whenever they were created, which a store has counted; None for a filter of which nobody keeps count."""
    counted = LetterFilter(filter.status, filter.domain, filter.failure_type)
    if replace(counted, created_to=filter.created_to) != filter:
        return None
    return (*counted.where(), among("status", sorted(CONCERNED[action])))


def upper_of(filter: LetterFilter, now: int) -> int:
    """The time of creation up to which letters are meant."""
    return now if filter.created_to is None else min(now, micros(filter.created_to))
