"""What several resources ask and answer alike."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Annotated, Any, ClassVar, Generic, TypeVar

from fastapi import Path, Query
from pydantic import AfterValidator, BaseModel, ConfigDict, Field

from holdfast.server.problems import invalid

T = TypeVar("T")
LONGEST_REASON = 500


def _has_words(text: str) -> str:
    if not text.strip():
        raise ValueError("say why; others will want to know")
    return text.strip()


Why = Annotated[str, Field(min_length=1, max_length=LONGEST_REASON), AfterValidator(_has_words)]
Id = Annotated[str, Path(min_length=1, max_length=200)]
Limit = Annotated[int, Query(ge=1, le=500, description="How many at most.")]
After = Annotated[str | None, Query(max_length=500, description="`next` of the page before.")]


class Body(BaseModel):
    """What a request says; a field that nobody knows is refused.

    All of it is in the audit trail: `audited` names the fields that say what it is about, `withheld` those of which the
    trail is told nothing, as they hold secrets or anybody's data.
    """

    audited: ClassVar[tuple[str, ...]] = ()
    withheld: ClassVar[tuple[str, ...]] = ()
    model_config = ConfigDict(extra="forbid")

    def given(self) -> dict[str, Any]:
        """What it asks for, with defaults; without what is empty and nobody has set."""
        values = {name: getattr(self, name) for name in type(self).model_fields}
        return {name: value for name, value in values.items() if value or name in self.model_fields_set}


class Reasoned(Body):
    """A request that must say why."""

    reason: Why


class MayReason(Body):
    """A request that may say why."""

    reason: str = Field("", max_length=LONGEST_REASON)


class Page(BaseModel, Generic[T]):
    """A part of a list. `next` goes into `after` for the following part, and is null where there is none."""

    items: list[T]
    next: str | None = None


def page_of(found: list[Any], limit: int, shown: Any, cursor: Any) -> dict[str, Any]:
    """A page of at most `limit` out of what was found when one more was asked for; `cursor` names its last one."""
    kept = found[:limit]
    return {"items": [shown(one) for one in kept], "next": cursor(kept[-1]) if len(found) > limit else None}


def in_utc(name: str, at: datetime | None) -> datetime | None:
    """A time in UTC. Raises ProblemError for one without an offset, which could mean any hour of a day."""
    if at is None:
        return None
    if at.tzinfo is None:
        raise invalid("time_without_offset", f"{name} must have an offset, such as Z; got {at.isoformat()}")
    try:
        return at.astimezone(UTC)
    except OverflowError:  # at either end of time an offset leads beyond it
        raise invalid("time_out_of_range", f"{name} is no time in UTC: {at.isoformat()}") from None
