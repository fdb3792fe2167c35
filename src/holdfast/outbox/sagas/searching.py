"""Pages of sagas, put together from those of each state."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Final, NamedTuple
from uuid import UUID

from holdfast.audit.searching import Place
from holdfast.outbox.rows import in_utc
from holdfast.outbox.sagas.rows import SagaRun

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


def merged(pages: Sequence[Sequence[SagaRun]], until: Sequence[Place | None], limit: int) -> FoundSagas:
    """One page of several: it ends where the first of them ends, so that nothing between is passed over."""
    ends = [(in_utc(place[0]) or place[0], place[1]) for place in until if place is not None]
    edge = max(ends, default=None)
    found = sorted((run for page in pages for run in page), key=_position, reverse=True)
    seen = [run for run in found if edge is None or _position(run) >= edge]
    if len(seen) > limit:
        return FoundSagas(seen[:limit], _position(seen[limit - 1]))
    return FoundSagas(seen, edge)


def _position(run: SagaRun) -> SagaPosition:
    return run.started_at, run.saga_id
