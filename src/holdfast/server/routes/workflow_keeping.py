"""Workflows that ended long ago: delete them."""

from __future__ import annotations

from datetime import datetime
from typing import Any, ClassVar, Final

from holdfast.server.routes.agreeing import Agreed, Deleted, Matching, deleted
from holdfast.server.routing import ADMIN, Asking, Routes
from holdfast.server.shapes import in_utc

routes: Final = Routes("workflows")


class Prunable(Matching):
    """How many workflows would be deleted, and why others that ended as long ago would not be."""

    kept: dict[str, int]


class PruneWorkflows(Agreed):
    """Workflows that ended before that time."""

    audited: ClassVar = ("before", "expected")

    before: datetime


@routes.reads("/prune/preview", response_model=Prunable)
def preview_prune(asked: Asking, before: datetime) -> Any:
    """How many workflows would be deleted that ended before a time. All of them are looked at."""
    found = asked.hold.workflows.prune(_moment(before), dry_run=True)
    return {"matched": found.pruned, "kept": dict(found.kept)}


@routes.acts("/prune", ADMIN, response_model=Deleted)
def prune(asked: Asking, body: PruneWorkflows) -> Any:
    """Delete workflows that ended before a time, with their stages and logs, up to 2,000 at a time.

    Those stay that have dead letters, finalizers that were not done, or a parent that is under way. The idempotency
    key of one that goes can be used again.
    """
    flows, before = asked.hold.workflows, _moment(body.before)
    return deleted(
        body,
        "workflows",
        lambda: flows.prune(before, dry_run=True).pruned,
        lambda most: flows.prune(before, limit=most).pruned,
    )


def _moment(before: datetime) -> datetime:
    at = in_utc("before", before)
    assert at is not None
    return at
