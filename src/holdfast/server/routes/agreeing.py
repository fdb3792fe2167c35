"""Deleting much at once: how many there are is counted first, and only that many go, a part with each request."""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated, Final

from pydantic import BaseModel, Field

from holdfast.server.problems import refused
from holdfast.server.shapes import Reasoned

AT_ONCE: Final = 2_000
"""How many go with one request, so that none takes longer than a caller waits."""
Days = Annotated[int, Field(ge=0, le=36_500, description="Longer ago than so many days.")]


class Agreed(Reasoned):
    """`expected` is how many the preview has counted: if it is another number by now, nothing is done. With `goes_on`
    it is `left` of the answer before, and they are not counted again.
    """

    expected: int = Field(ge=0, le=2**53)
    goes_on: bool = False


class Matching(BaseModel):
    """How many there are."""

    matched: int


class Deleted(BaseModel):
    """How many are gone. While `left` is not 0 there are more of those that were expected: ask again, with `goes_on`
    and this as `expected`.
    """

    deleted: int
    left: int


def deleted(body: Agreed, what: str, count: Callable[[], int], delete: Callable[[int], int]) -> dict[str, int]:
    """Delete a part of what was agreed to: `delete` is told how many at most. Raises ProblemError."""
    if not body.goes_on and (matched := count()) != body.expected:
        raise refused(
            "count_changed",
            f"{matched:,} {what} match by now, and not {body.expected:,}; look again, and confirm",
            matched=matched,
        )
    most = min(AT_ONCE, body.expected)
    gone = delete(most) if most else 0
    # Where fewer went than were to, somebody else was faster: no more of them are there.
    return {"deleted": gone, "left": body.expected - gone if gone == most else 0}
