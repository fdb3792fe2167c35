"""All entries of the outbox: count them, and delete those that succeeded long ago."""

from __future__ import annotations

from collections import Counter
from datetime import datetime, timedelta
from typing import Annotated, Any, ClassVar, Final

from fastapi import Query
from pydantic import BaseModel

from holdfast.server.routes.agreeing import Agreed, Days, Deleted, Matching, deleted
from holdfast.server.routing import ADMIN, Asking, Routes
from holdfast.views.outbox import by_queue, by_status

routes: Final = Routes("outbox")


class QueueCounts(BaseModel):
    """The entries of a queue. `oldest_due` is since when the one that has waited longest could have been called."""

    queue: str
    by_status: dict[str, int]
    oldest_due: datetime | None


class OutboxCounts(BaseModel):
    """How many entries there are in each status: all of them, and in each queue."""

    by_status: dict[str, int]
    queues: list[QueueCounts]


class PruneEntries(Agreed):
    """Entries that succeeded longer ago than so many days."""

    audited: ClassVar = ("older_than_days", "expected")

    older_than_days: Days


@routes.reads("/counts", response_model=OutboxCounts)
def counts(asked: Asking) -> Any:
    """Every entry counted, which takes the longer the more there are; `facets` ends at 10,000."""
    outbox = asked.hold.outbox
    found = by_queue(outbox.tally("queue", "status"))
    queues = [
        {"queue": queue, "by_status": by_status(numbers), "oldest_due": outbox.oldest_due(queue)}
        for queue, numbers in sorted(found.items())
    ]
    return {"by_status": by_status(sum(found.values(), Counter())), "queues": queues}


@routes.reads("/prune/preview", response_model=Matching)
def preview_prune(asked: Asking, older_than_days: Annotated[Days, Query()]) -> Any:
    """How many entries would be deleted that succeeded longer ago than so many days."""
    return {"matched": asked.hold.outbox.prunable(timedelta(days=older_than_days))}


@routes.acts("/prune", ADMIN, response_model=Deleted)
def prune(asked: Asking, body: PruneEntries) -> Any:
    """Delete entries that succeeded long ago, with their attempts, up to 2,000 at a time.

    Entries stay whose group or saga is not complete, and those that were abandoned or not verified. The audit trail
    keeps all its events.
    """
    outbox, age = asked.hold.outbox, timedelta(days=body.older_than_days)
    return deleted(body, "entries", lambda: outbox.prunable(age), lambda most: outbox.prune(age, limit=most))
