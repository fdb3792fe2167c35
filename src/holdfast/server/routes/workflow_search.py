"""Finding workflows among very many: one condition by its index, the others by looking through what that finds."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Annotated, Any, Final

from fastapi import Query

from holdfast.machine.workflow import WorkflowStatus
from holdfast.server.problems import invalid
from holdfast.server.shapes import in_utc
from holdfast.workflows.reading import WorkflowSummary
from holdfast.workflows.workflows import Workflows

STATUSES: Final = [status.value for status in WorkflowStatus]
AT_ONCE: Final = 1000
MOST_LOOKED: Final = 2000
"""How many are looked through for one page."""
_TIMES: Final = ("since", "until")
"""In the order of every index, so they narrow all of them."""


async def filtered(
    status: Annotated[list[str] | None, Query(max_length=12, description="Of the twelve statuses.")] = None,
    name: str | None = None,
    application: str | None = None,
    parent: Annotated[str | None, Query(description="Those that this workflow has started.")] = None,
    pipeline: str | None = None,
    since: datetime | None = None,
    until: datetime | None = None,
) -> dict[str, Any]:
    """What a workflow must be like: the arguments of `find` that were given."""
    for one in status or ():
        if one not in STATUSES:
            raise invalid("unknown_status", f"{one!r} is no status of a workflow; there are {', '.join(STATUSES)}")
    given = {
        "status": status, "name": name, "application": application, "parent": parent, "pipeline": pipeline,
        "since": in_utc("since", since), "until": in_utc("until", until),
    }  # fmt: skip
    return {key: value for key, value in given.items() if value}


def search(
    flows: Workflows, where: Mapping[str, Any], limit: int, after: str | None
) -> tuple[list[WorkflowSummary], str | None]:
    """Workflows, the newest first, and where to go on. Fewer than `limit`, or none, are no end: that nothing is to
    follow is.

    A database that is asked for two conditions may take the index of the wrong one, and read a million rows.
    """
    leads = _lead(flows, where)
    asked = {name: value for name, value in where.items() if name == leads or name in _TIMES}
    rest = {name: value for name, value in where.items() if name not in asked}
    if not rest:
        found = flows.find(**asked, limit=limit + 1, after=after)
        return found[:limit], found[limit - 1].cursor if len(found) > limit else None
    found, looked, cursor = [], 0, after
    while len(found) <= limit and looked < MOST_LOOKED:
        some = flows.find(**asked, limit=AT_ONCE, after=cursor)
        found += [one for one in some if _fits(one, rest)]
        looked += len(some)
        cursor = some[-1].cursor if len(some) == AT_ONCE else None
        if cursor is None:
            break
    return found[:limit], found[limit - 1].cursor if len(found) > limit else cursor


def _lead(flows: Workflows, where: Mapping[str, Any]) -> str | None:
    """The condition that is likely to leave the fewest, of those that have an index."""
    for name in ("parent", "pipeline"):
        if name in where:
            return name
    if "status" in where and "name" in where:
        counts = flows.counts()
        few = sum(counts.get(WorkflowStatus(status), 0) for status in where["status"]) <= MOST_LOOKED
        return "status" if few else "name"
    return next((name for name in ("name", "status") if name in where), None)


def _fits(one: WorkflowSummary, rest: Mapping[str, Any]) -> bool:
    return all(one.status in value if name == "status" else getattr(one, name) == value for name, value in rest.items())
