"""Pages of sagas, put together from those of each state."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import datetime
from typing import Final, NamedTuple
from uuid import UUID

from holdfast.audit.searching import Rows
from holdfast.outbox.rows import in_utc
from holdfast.outbox.sagas.rows import SagaRun, run_of

COUNTED: Final = 10_000
SagaPosition = tuple[datetime, UUID]


class FoundSagas(NamedTuple):
    """A page of sagas. `after` is where the search goes on, None if there is nothing more to be searched."""

    sagas: Sequence[SagaRun]
    after: SagaPosition | None


class SagaFacets(NamedTuple):
    """How many sagas there are in each state, and the definitions that are known, or that recent ones have."""

    by_state: dict[str, int]
    definitions: Sequence[str]


def merged(pages: Iterable[Rows], limit: int) -> FoundSagas:
    """One page of several: it ends where the first of them ends, so that nothing between is passed over."""
    rows, until = zip(*pages, strict=True)
    edge = max((_in_utc(*place) for place in until if place is not None), default=None)
    # As rows: a saga is made of those only that are left.
    found = sorted(((_in_utc(row.started_at, row.saga_id), row) for page in rows for row in page), reverse=True)
    seen = [(at, row) for at, row in found if edge is None or at >= edge]
    runs = [run_of(row) for _, row in seen[:limit]]
    return FoundSagas(runs, seen[limit - 1][0] if len(seen) > limit else edge)


def _in_utc(at: datetime, saga_id: UUID) -> SagaPosition:
    return in_utc(at) or at, saga_id
