"""Letters that are done with: archive and purge them."""

from __future__ import annotations

from typing import Annotated, Any, ClassVar, Final

from fastapi import Query
from pydantic import BaseModel, Field

from holdfast.server.problems import invalid
from holdfast.server.routes.agreeing import AT_ONCE, Agreed, Days, Deleted, Matching, deleted
from holdfast.server.routing import ADMIN, Asking, Routes
from holdfast.server.shapes import MayReason

routes: Final = Routes("letters")
_MOST_IDS: Final = 500


class ArchiveLetters(MayReason):
    """Letters that were resolved longer ago than that."""

    audited: ClassVar = ("older_than_days",)

    older_than_days: Days = 30


class Archived(BaseModel):
    """How many letters were archived now; `more`: there are others, ask again."""

    archived: int
    more: bool


class PurgeLetters(Agreed):
    """Archived letters by their ids, or those that were resolved longer ago than so many days; 0 is all of them."""

    audited: ClassVar = ("ids", "older_than_days", "expected")

    ids: list[Annotated[str, Field(min_length=1, max_length=200)]] | None = Field(None, max_length=_MOST_IDS)
    older_than_days: Days | None = None


@routes.reads("/archive/preview", response_model=Matching)
def preview_archive(asked: Asking, older_than_days: Annotated[Days, Query()] = 30) -> Any:
    """How many letters would be archived that were resolved longer ago than so many days."""
    return {"matched": asked.hold.letters.count_resolved_older_than(older_than_days)}


@routes.reads("/purge/preview", response_model=Matching)
def preview_purge(asked: Asking, older_than_days: Annotated[Days, Query()]) -> Any:
    """How many archived letters were resolved longer ago than so many days; 0 counts all of them."""
    return {"matched": asked.hold.letters.count_archived_older_than(older_than_days)}


@routes.acts("/archive", response_model=Archived)
def archive(asked: Asking, body: ArchiveLetters) -> Any:
    """Archive letters that were resolved long ago, up to 2,000 at a time. They stay readable until they are purged."""
    number = asked.hold.letters.archive_old_resolved(body.older_than_days, limit=AT_ONCE)
    return {"archived": number, "more": number == AT_ONCE}


@routes.acts("/purge", ADMIN, response_model=Deleted)
def purge(asked: Asking, body: PurgeLetters) -> Any:
    """Delete archived letters for good: those that are named, together or not at all, or up to 2,000 old ones."""
    letters, ids, days = asked.hold.letters, body.ids, body.older_than_days
    if (ids is None) == (days is None):
        raise invalid("invalid_value", "say which letters to purge: ids, or older_than_days (0 for all archived ones)")
    if ids is not None:
        return deleted(body, "of these letters", lambda: _there(asked, ids), lambda _: letters.purge_archived(ids))
    assert days is not None
    return deleted(
        body,
        "archived letters",
        lambda: letters.count_archived_older_than(days),
        lambda most: letters.purge_archived(None, days, limit=most),
    )


def _there(asked: Asking, ids: list[str]) -> int:
    return sum(asked.hold.letters.get_by_id(id) is not None for id in dict.fromkeys(ids))
